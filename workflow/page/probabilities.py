"""Sections on probabilities: are they what comes true, and how far is the limit that they set?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from page import figures
from page.reading import Results
from page.writing import Page, cell, number, signed, table

__all__ = ["calibration", "is_within", "limit"]

EVENT, INCLUSIVE, MAIN = "event", "inclusive", "main"
ENOUGH = 1000  # entries of a bin that is judged
TOLERANCE = 0.03
SIGMAS = 2.0

Json = Mapping[str, Any]


def is_within(row: Json) -> bool:
    """Whether the probability of a bin is within .03 or two standard deviations of the share that is right.

    >>> is_within({"probability": 0.95, "value": 0.93, "low": 0.929, "high": 0.931})
    True
    >>> is_within({"probability": 0.95, "value": 0.91, "low": 0.905, "high": 0.915})
    False
    >>> is_within({"probability": 0.95, "value": 0.91, "low": 0.88, "high": 0.94})
    True
    """
    away = row["probability"] - row["value"]
    deviation = row["high"] - row["value"] if away > 0 else row["value"] - row["low"]
    return bool(abs(away) <= max(TOLERANCE, SIGMAS * deviation))


def calibration(results: Results, page: Page) -> None:
    """Of the first method, on fully reconstructible events and on all."""
    evaluation = results.evaluation(MAIN)
    if evaluation is None:
        return
    name, method = next(iter(evaluation.methods.items()))
    if EVENT not in method.get("calibration", {}):
        results.log(f"{MAIN}: {name} has no probabilities")
        return
    full, every = method["calibration"], method.get("calibration_all", {})
    page.add(
        "## Calibration",
        results.command(evaluation),
        f"Of {results.plan.label(name)}. *Fully reconstructible* events: every product has its jet, so the answer "
        "can be right. *All selected* events are what data has: where a product has no jet, the event cannot be "
        "right and counts as wrong, and so does a particle that needs that jet. A network that has only seen "
        "complete events gives the probability of its answer if the event is complete; whether it is, it does not "
        "say. The column *complete* is the share of fully reconstructible events.",
    )
    panels = {"fully reconstructible": _curves(results, full)}
    if every:
        panels["all selected"] = _curves(results, every)
    page.figure("calibration", figures.calibrations(panels), "Probability against the share that is right")
    for title, found in (("Fully reconstructible", full), ("All selected", every)):
        if EVENT in found:
            _bins(results, page, title, found[EVENT])
    rows = [
        [title, what, f"{each['total']:,}", *(number(each[name]) for name in ("probability", "right", "error"))]
        for title, found in (("fully reconstructible", full), ("all selected", every))
        for what, each in found.items()
        if each["total"]
    ]
    head = ["events", "", "entries", "mean probability", "right", "mean distance in bins"]
    page.add(table(head, rows))


def _curves(results: Results, found: Json) -> dict[str, Any]:
    names = {EVENT: "event"}
    return {names.get(what, what): each["bins"] for what, each in found.items() if each["bins"]}


def _bins(results: Results, page: Page, title: str, found: Json) -> None:
    judged = [row for row in found["bins"] if row["total"] >= ENOUGH]
    good = sum(map(is_within, judged))
    head = ["probability", "events", "mean", "right", f"within {number(TOLERANCE)[:3]} or 2 σ"]
    extra = "complete" in next(iter(found["bins"]), {})
    rows = []
    for row in found["bins"]:
        judgement = ("yes" if is_within(row) else "**no**") if row["total"] >= ENOUGH else "few events"
        edges = f"{row['from']:.1f} to {row['to']:.1f}"
        line = [edges, f"{row['total']:,}", number(row["probability"]), cell(row)]
        if extra:
            complete = row["complete"]
            line += [number(complete / row["total"]), number(row["correct"] / complete if complete else None)]
        rows.append([*line, judgement])
    if extra:
        head[4:4] = ["complete", "right, of the complete"]
    page.add(
        f"{title} events, the whole event: {good} of {len(judged)} bins with {ENOUGH:,} events or more are within "
        f"{number(TOLERANCE)[:3]} or two standard deviations.",
        table(head, rows),
    )


def limit(results: Results, page: Page) -> None:
    """Mean probability of the answer against the efficiency."""
    evaluation = results.evaluation(MAIN)
    if evaluation is None:
        return
    rows = []
    for name, method in evaluation.methods.items():
        for where, found in method.get("limit", {}).items():
            if found["total"]:
                apart = signed(found["difference"], found["deviation"])
                shown = f"{abs(found['difference']) / found['deviation']:.1f} σ" if found["deviation"] else "–"
                label = results.plan.label(name)
                rows.append([label, where, number(found["probability"]), number(found["right"]), apart, shown])
    if not rows:
        results.log(f"{MAIN}: no probabilities, so no limit")
        return
    symbol = results.symbol(EVENT)
    page.add(
        "## Distance to the limit",
        results.command(evaluation),
        "Of all assignments the most probable one is the answer. If probabilities are calibrated, no other choice "
        f"from the same network is right more often, and the mean probability of the answer is the {symbol} to "
        "expect: more can only come from a network that knows more. Fully reconstructible events with an answer:",
        table(["", "jets", "mean probability", symbol, "difference", ""], rows),
    )
