"""Sections that compare trainings: seeds, ablations, learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from page import figures, models
from page.comparing import Comparison, Row, Spread, compare, rows_of, seed_spread, verdict
from page.reading import Results
from page.summaries import EVENT, INCLUSIVE, Summary, summarise
from page.writing import Page, number, signed, table, wrapped
from pairton.report.sankey import flow_plot
from plan import RECIPES, Study

__all__ = ["evaluation_part", "flow", "studies", "study_part", "summary"]

Json = Mapping[str, Any]


def studies(results: Results, page: Page) -> None:
    """Every study of a target, as a section; those without an evaluation have learning curves only."""
    for study in results.plan.studies.values():
        if results.evaluation(study.name) is None:
            _curves(results, page, study, f"## {study.title}, not evaluated yet")
        else:
            page.add(f"## {study.title}")
            study_part(results, page, study)


def study_part(results: Results, page: Page, study: Study) -> None:
    """The table of a study, its differences, learning curves and commands."""
    evaluation = results.evaluation(study.name)
    rows = [] if evaluation is None else rows_of(results, evaluation, study.rows)
    if evaluation is None or not rows:
        results.log(f"{study.name}: none of its rows were evaluated")
        return
    _table(results, page, study, rows)
    if len(rows) > 1:
        _comparisons(results, page, study, rows)
    _curves(results, page, study)
    if results.kept is not None:
        page.add(_all_commands(results))
        return
    _commands(results, page, rows)
    page.add(results.command(evaluation))


def summary(results: Results, name: str) -> Summary | None:
    """An evaluation of a target, with the words of its plan; None if it does not exist."""
    found = results.evaluation(name)
    if found is None:
        return None
    labels = {method: results.plan.label(method) for method in found.methods}
    words = {"title": results.plan.evaluations[name].get("title", name), "labels": labels}
    return Summary(name, summarise(found.raw), words)


def evaluation_part(results: Results, page: Page, name: str) -> None:
    """The methods that an evaluation compares, the flow of their steps, and the command."""
    found, raw = summary(results, name), results.evaluation(name)
    if found is None or raw is None:
        return
    models.methods(page, found)
    flow(results, page, name)
    page.add(_all_commands(results) if results.kept is not None else results.command(raw))


def flow(results: Results, page: Page, name: str) -> None:
    """The flow of events through right and wrong steps, for the first method of an evaluation that has one."""
    evaluation = results.evaluation(name)
    for method, found in ({} if evaluation is None else evaluation.methods).items():
        row, _, decoding = method.partition(":")
        plot = flow_plot(results.plan.label(row), found["flow"]) if decoding and "flow" in found else None
        if plot is not None:
            page.figure(f"flow_{name}", plot.draw(), plot.title)
            page.add(plot.caption)
            return


def _all_commands(results: Results) -> str:
    """What makes the summary of a target, in two lines."""
    target = results.plan.target
    return wrapped(
        [f"python workflow/plan.py {target} | nice sh -e", f"python workflow/results.py --keep {target}"],
        "takes hours",
    )


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
    """Efficiencies first, with the paper's beside them, then those by number of jets and facts about trainings."""
    whats = list(rows[0].evaluation.methods[rows[0].methods[0]]["efficiency"])
    bins = rows[0].evaluation.bins
    head = ["", "steps", "seeds"]
    for what in whats:
        symbol = results.symbol(what)
        head += [symbol, f"*{symbol}, paper*"] if study.published else [symbol]
    head += [f"{results.symbol(EVENT)}, {where}" for where in bins]
    head += ["recipe", "training events", "parameters"]
    lines = []
    for row in rows:
        known = results.trained(row.methods[0])
        line = [row.label, _count(known.steps), str(len(row.methods))]
        theirs = results.published["ablations"].get(row.name, {})
        for what in whats:
            line.append(_mean(row, what, INCLUSIVE))
            if study.published:
                line.append(f"*{number(theirs[what])}*" if what in theirs else "–")
        line += [_mean(row, EVENT, where) for where in bins]
        line.append(f"`{_recipe(results.plan.trainings[row.methods[0]].base)}`")
        lines.append([*line, _count(known.events), _count(known.parameters)])
    page.add(table(head, lines))
    if study.published:
        page.add("In italics: the paper's numbers, for another sample and 826,000 steps.")


def _count(found: int | None) -> str:
    return "–" if found is None else f"{found:,}"


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
        shown = f"{word} with one seed" if pooled is None and found.resolved else word
        lines.append([f"{first.label} − {second.label}", difference, _sigmas(found), shown])
    page.add(table(["difference", results.symbol(EVENT), "", ""], lines))
    page.add(_notes(pooled, study, rows, words))


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


def _notes(pooled: Spread | None, study: Study, rows: Sequence[Row], words: Sequence[str]) -> str:
    """What a table of differences does not say; docs/studies/README.md explains all of them."""
    notes = []
    if pooled is None:
        notes.append("Every row has one seed, so ± does not include the spread over seeds.")
    elif any(len(row.methods) == 1 for row in rows):
        notes.append(f"Rows with one seed are given the spread of those with several, {number(pooled.spread)}.")
    if study.published and study.against is None and words:
        counts = {word: words.count(word) for word in ("reproduced", "refuted", "unresolved") if word in words}
        summed = ", ".join(f"{count} {word}" for word, count in counts.items())
        notes.append(f"In the paper, the first of each pair is better: {summed}.")
    return " ".join(notes)


# -- learning curves ---------------------------------------------------------------------------------------


def _curves(results: Results, page: Page, study: Study, *title: str) -> None:
    """Draw the learning curve of every training, also of unfinished ones, from its metrics.csv."""
    every = [results.plan.of_row(row) for row in study.rows]
    curves = {each[0].label: [results.trained(training.name).learning for training in each] for each in every}
    known = {label: [seed for seed in seeds if len(seed) > 1] for label, seeds in curves.items()}
    known = {label: seeds for label, seeds in known.items() if seeds}
    if known:
        page.add(*title)
        figure = figures.learning_curves(known, f"{results.symbol(EVENT)} on validation events")
        page.figure(f"learning_{study.name}", figure, "Event efficiency on validation events against the step")
