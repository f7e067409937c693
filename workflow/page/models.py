"""The results of models: tables, figures, and the commands behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from page import figures
from page.summaries import EVENT, INCLUSIVE, Summary
from page.writing import Page, cell, number, signed, table, wrapped

__all__ = ["commands", "methods", "overview", "probabilities"]

Json = Mapping[str, Any]


def overview(page: Page, summaries: Sequence[Summary], first: str = "Pairton") -> None:
    """Compare every model with other methods on the same events, in a table and by number of jets."""
    head = ["events", "right if", "complete events", "method", "share right", f"lead of {first}"]
    rows = [row for summary in summaries for row in _rows(summary)]
    page.add(table(head, rows))
    panels = {
        summary.title: {
            summary.label(name): {where: method["efficiency"][EVENT][where] for where in summary.bins}
            for name, method in summary.methods.items()
        }
        for summary in summaries
    }
    page.figure(
        "models", figures.multiplicities(panels), "Share of complete events that are right, by number of jets"
    )


def methods(page: Page, summary: Summary) -> None:
    """The methods of one evaluation, and the lead of the first."""
    head = ["", "share right", f"lead of {summary.label(summary.first)}"]
    page.add(table(head, [row[3:] for row in _rows(summary)]))


def _rows(summary: Summary) -> list[list[str]]:
    rows = []
    for k, (name, method) in enumerate(summary.methods.items()):
        about = ["", "", ""]
        if not k:
            about = [summary.title, str(summary.words.get("right", "")), f"{summary.numbers['complete']:,}"]
        lead = summary.numbers["differences"].get(name)
        known = "" if lead is None else signed(lead["value"], (lead["high"] - lead["low"]) / 2)
        rows.append([*about, summary.label(name), cell(method["efficiency"][EVENT][INCLUSIVE]), known])
    return rows


def probabilities(page: Page, summaries: Sequence[Summary]) -> None:
    """Compare the probability of answers with the share that is right, for all events."""
    known = [summary for summary in summaries if "calibration" in summary.methods[summary.first]]
    curves, rows = {}, []
    for summary in known:
        found = summary.methods[summary.first]["calibration"]
        curves[summary.title] = found["bins"]
        events = f"{summary.numbers['events']:,}"
        rows.append([summary.title, events, number(found["probability"]), number(found["right"])])
    if not rows:
        return
    page.add(table(["all selected events", "events", "mean probability", "share right"], rows))
    page.figure(
        "calibration", figures.calibrations(curves), "Probability of an answer against the share that is right"
    )


def commands(page: Page, summaries: Sequence[Summary]) -> None:
    for summary in summaries:
        about = " ".join(str(summary.words.get("events", "")).split())
        version = summary.numbers.get("pairton_version")
        parts = [f"{summary.numbers['events']:,} events", about, f"Pairton {version}" if version else ""]
        page.add(f"{summary.title}: {'; '.join(filter(None, parts))}", wrapped([str(summary.numbers["command"])]))
