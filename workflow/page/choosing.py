"""Sections on what was chosen by validation events: trainings of equal time, by what they saw at their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from page.comparing import RESOLVED, SEEDS, Spread, compare_means, mean_spread, pooled_spread, verdict
from page.reading import Results
from page.writing import Page, number, signed, table
from plan import Study

__all__ = ["choosing"]

LIKELIHOOD, EVENT = "event_likelihood", "e_event"

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Chosen:
    """A row: what its seeds saw on validation events."""

    label: str
    steps: int
    minutes: float  # of one core
    parameters: int
    metrics: tuple[dict[str, float], ...]  # of each seed

    def values(self, name: str) -> list[float]:
        return [each[name] for each in self.metrics]


def choosing(results: Results, page: Page, study: Study) -> None:
    """A table of the rows that were trained; the first is what others are held to."""
    rows = list(filter(None, (_row(results, name) for name in study.rows)))
    if not rows or results.plan.of_row(study.rows[0])[0].label != rows[0].label:
        results.log(f"{study.name}: {study.rows[0]} was not trained, so nothing to compare with")
        return
    first = results.plan.of_row(study.rows[0])[0]
    page.add(f"## {study.title}", results.shown(results.plan.train_command(first.name)))
    page.add(
        f"and so on (`python workflow/plan.py {results.plan.target}` prints every recipe and command). Steps "
        "are those that fit into the minutes of one core (`workflow/budget.py`), the schedule over them; "
        "validation events are a part of the training file, and no test event was looked at."
    )
    symbol = results.symbol("event")
    head = ["", "minutes", "steps", "parameters", "seeds"]
    head += ["−log P(truth)", symbol, "−log P less that of the first", ""]
    pooled = _spread(results)
    page.add(table(head, [_line(row, rows[0], pooled) for row in rows]))
    if pooled is None:
        page.add("No row was trained twice, so that it is not known how much of a difference is chance.")
    else:
        page.add(
            "All rows have the same validation events, so that what chance in them does is mostly common: ± is "
            f"{SEEDS.format(*pooled)} Better is less; unresolved: below {RESOLVED:g} σ."
        )


def _models(results: Results, name: str) -> dict[str, Json]:
    """The seeds of a row that are there."""
    found = {each.name: results.model(each.name) for each in results.plan.of_row(name)}
    return {name: model for name, model in found.items() if model is not None}


def _spread(results: Results) -> Spread | None:
    """Over seeds, of all studies like this one: their rows differ in the network, not in kind or in events."""
    studies = [study for study in results.plan.studies.values() if study.validation]
    names = dict.fromkeys(name for study in studies for name in study.rows)
    seeds = ([float(model["metrics"][LIKELIHOOD]) for model in _models(results, name).values()] for name in names)
    return pooled_spread(mean_spread(values) for values in seeds if values)


def _row(results: Results, name: str) -> Chosen | None:
    planned, there = results.plan.of_row(name), _models(results, name)
    if missing := [each.name for each in planned if each.name not in there]:
        results.log(f"without {', '.join(missing)}")
    if not there:
        return None
    one, model = next(iter(there.items()))
    return Chosen(
        planned[0].label,
        int(model["recipe"]["optimiser"]["steps"]),
        planned[0].minutes or 0.0,
        results.parameters(one),
        tuple(dict(model["metrics"]) for model in there.values()),
    )


def _line(row: Chosen, first: Chosen, pooled: Spread | None) -> Sequence[str]:
    likelihood, right = (mean_spread(row.values(name)) for name in (LIKELIHOOD, EVENT))
    line = [row.label, f"{row.minutes:g}", f"{row.steps:,}", f"{row.parameters:,}", str(likelihood.seeds)]
    line += [f"{likelihood.mean:.4f}", number(right.mean)]
    if row is first or pooled is None:
        return [*line, "", ""]
    gain = compare_means(mean_spread(first.values(LIKELIHOOD)), likelihood, pooled, statistical=0.0)
    return [
        *line,
        signed(-gain.difference, gain.deviation),
        f"{abs(gain.significance):.1f} σ, {verdict(gain, expected=False)}",
    ]
