"""Sections that compare trainings: seeds, ablations, learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from page import figures
from page.comparing import RESOLVED, SEEDS, Comparison, Row, Spread, compare, rows_of, seed_spread, verdict
from page.reading import Results
from page.writing import Page, number, signed, table
from plan import RECIPES, Study

__all__ = ["studies"]

EVENT, INCLUSIVE = "event", "inclusive"

Json = Mapping[str, Any]


def studies(results: Results, page: Page) -> None:
    for study in results.plan.studies.values():
        evaluation = results.evaluation(study.name)
        if evaluation is None:
            _curves(results, page, study, f"## {study.title}, not evaluated yet")
            continue
        rows = rows_of(results, evaluation, study.rows)
        if not rows:
            results.log(f"{study.name}: none of its rows were evaluated")
            continue
        page.add(f"## {study.title}")
        _commands(results, page, rows)
        page.add(results.command(evaluation))
        _curves(results, page, study)
        _table(results, page, study, rows)
        if len(rows) > 1:
            _comparisons(results, page, study, rows)


def _commands(results: Results, page: Page, rows: Sequence[Row]) -> None:
    """The commands of the first row, and how the others follow from them."""
    plan = results.plan
    first = rows[0].methods[0]
    minutes = {plan.trainings[row.methods[0]].minutes for row in rows}
    page.add(results.shown(plan.train_command(first), plan.answer_command(first)))
    notes = []
    if len(rows) > 1 or len(rows[0].methods) > 1:
        notes.append(
            f"and so on for every row and seed (`python workflow/plan.py {plan.target}` prints them all)."
        )
    if len(minutes) == 1 and None not in minutes:
        notes.append(
            f"Every training has as many steps as fit into {minutes.pop()} minutes of one core "
            "(`workflow/budget.py`). What holds after long training may differ."
        )
    page.add(" ".join(notes))


# -- tables ------------------------------------------------------------------------------------------------


def _table(results: Results, page: Page, study: Study, rows: Sequence[Row]) -> None:
    whats = list(rows[0].evaluation.methods[rows[0].methods[0]]["efficiency"])
    cells = [*rows[0].evaluation.bins, INCLUSIVE]
    many = any(len(row.methods) > 1 for row in rows)
    head = ["", "recipe", "training events", "steps", "parameters", "seeds"]
    head += [f"{results.symbol(EVENT)}, {where}" for where in cells]
    head += [results.symbol(what) for what in whats if what != EVENT]
    head += [f"*{results.symbol(what)}, paper*" for what in whats] if study.published else []
    lines = []
    for row in rows:
        model = results.model(row.methods[0])
        steps = model["recipe"]["optimiser"]["steps"] if model and model.get("recipe") else None
        line = [row.label, f"`{_recipe(results.plan.trainings[row.methods[0]].base)}`"]
        line.append(f"{model['data']['training_events']:,}" if model and "data" in model else "–")
        line.append(f"{steps:,}" if steps else "–")
        line += [f"{results.parameters(row.methods[0]):,}" if model else "–", str(len(row.methods))]
        line += [_mean(row, EVENT, where) for where in cells]
        line += [_mean(row, what, INCLUSIVE) for what in whats if what != EVENT]
        if study.published:
            known = results.published["ablations"].get(row.name, {})
            line += [f"*{number(known[what])}*" if what in known else "–" for what in whats]
        lines.append(line)
    page.add(table(head, lines))
    notes = ["± is half the interval from the number of test events"]
    notes += ["; of several seeds, the mean ± the standard deviation over them"] if many else []
    notes += [". In italics: the paper's, on another sample, after 826k steps"] if study.published else []
    page.add("".join(notes) + ".")


def _recipe(path: Path) -> str:
    """The recipe as a user would type it."""
    path = path.resolve()
    if path.is_relative_to(RECIPES):
        return path.relative_to(RECIPES).with_suffix("").as_posix()
    return f"{path.parent.name}/{path.name}"


def _mean(row: Row, what: str, where: str) -> str:
    found = row.mean(what, where)
    if found is None:
        return "–"
    return number(found.mean, row.half_width(what, where) if found.spread is None else found.spread)


# -- which is better ---------------------------------------------------------------------------------------


def _comparisons(results: Results, page: Page, study: Study, rows: Sequence[Row]) -> None:
    """Compare each row with the one before it, or all with one."""
    pooled = seed_spread(results, rows, EVENT)
    pairs = _pairs(study, rows)
    if not pairs:
        results.log(f"{study.name}: {study.against} is missing, so nothing to compare with")
        return
    lines, words = [], []
    for first, second in pairs:
        found = compare(first, second, EVENT, pooled)
        if found is None:
            results.log(f"{study.name}: {first.name} and {second.name} were not evaluated on the same events")
            continue
        word = verdict(found, expected=study.published and study.against is None)
        words.append(word)
        difference = signed(found.difference, found.deviation)
        lines.append([f"{first.label} − {second.label}", difference, _sigmas(found), word])
    page.add(table(["difference", results.symbol(EVENT), "", ""], lines))
    page.add(_how(pooled, study, words))


def _pairs(study: Study, rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    known = {row.name: row for row in rows}
    if study.expect:
        return [(known[better], known[worse]) for better, worse in study.expect if {better, worse} <= set(known)]
    if study.against is None:
        return list(zip(rows[1:], rows[:-1], strict=True))
    base = [row for row in rows if row.name == study.against]
    return [(row, base[0]) for row in rows if base and row.name != study.against]


def _sigmas(found: Comparison) -> str:
    return f"{abs(found.significance):.1f} σ"


def _how(pooled: Spread | None, study: Study, words: Sequence[str]) -> str:
    text = f"Unresolved: below {RESOLVED:g} σ. ± is from the test events, paired, "
    if pooled is None:
        text += "alone: nothing was trained with several seeds, so it does not include the spread over seeds."
    else:
        text += f"and {SEEDS.format(*pooled)}"
    if study.published and study.against is None and words:
        counts = {word: words.count(word) for word in ("reproduced", "refuted", "unresolved") if word in words}
        summed = ", ".join(f"{count} {word}" for word, count in counts.items())
        text += f" In the paper, the first of each pair is better: {summed}."
    return text


# -- learning curves ---------------------------------------------------------------------------------------


def _curves(results: Results, page: Page, study: Study, *title: str) -> None:
    """Draw the learning curve of every training, also of unfinished ones, from its metrics.csv."""
    every = [results.plan.of_row(row) for row in study.rows]
    curves = {each[0].label: [results.learning(training.name) for training in each] for each in every}
    known = {label: [seed for seed in seeds if len(seed) > 1] for label, seeds in curves.items()}
    known = {label: seeds for label, seeds in known.items() if seeds}
    if known:
        page.add(*title)
        figure = figures.learning_curves(known, f"{results.symbol(EVENT)} on validation events")
        page.figure(f"learning_{study.name}", figure, "Event efficiency on validation events against the step")
