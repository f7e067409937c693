"""The parts of pages, as Markdown: models beside other methods, and studies, which compare trainings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from page import figures
from page.comparing import RESOLVED, Row, compare, rows_of, seed_spread, verdict
from page.reading import EVENT, INCLUSIVE, Evaluation, Results
from page.writing import Page, cell, lead, number, signed, table
from pairton.evaluation.metrics.flow import flow_plot
from plan import RECIPES, Study

__all__ = ["commands", "evaluation", "overview", "probabilities", "study"]

SIGNS = {"reproduced": "the paper's sign", "refuted": "the other sign"}

# -- models ------------------------------------------------------------------------------------------------


def overview(page: Page, evaluations: Sequence[Evaluation], leader: str = "the first") -> str:
    """Every model and other methods on the same events, in a table and by number of jets."""
    return page.render(
        "overview", evaluations=evaluations, leader=leader, figure=_by_jets(page, "models", evaluations)
    )


def _by_jets(page: Page, name: str, evaluations: Sequence[Evaluation]) -> str:
    panels = {
        each.title: {
            each.label(name): {where: method["efficiency"][EVENT][where] for where in each.bins}
            for name, method in each.methods.items()
        }
        for each in evaluations
    }
    alt = "Share of complete events that are right, by number of jets"
    return page.figure(name, figures.multiplicities(panels), alt)


def probabilities(page: Page, evaluations: Sequence[Evaluation]) -> str:
    """The probability of answers and the share that is right, for all events."""
    known = [(each, each.methods[each.first].get("calibration_all", {}).get(EVENT)) for each in evaluations]
    rows = [(each, found) for each, found in known if found is not None]
    if not rows:
        return ""
    curves = {each.title: found["bins"] for each, found in rows}
    alt = "Probability of an answer against the share that is right"
    figure = page.figure("calibration", figures.calibrations(curves), alt)
    return page.render("probabilities", rows=rows, figure=figure)


def commands(page: Page, evaluations: Sequence[Evaluation]) -> str:
    return page.render("commands", evaluations=evaluations)


# -- targets -----------------------------------------------------------------------------------------------


def evaluation(page: Page, results: Results, name: str) -> str:
    """What an evaluation compares, by number of jets or in the flow of its steps, and the command."""
    found = results.evaluation(name)
    if found is None:
        return ""
    types = [what for what in found.methods[found.first]["efficiency"] if what != EVENT]
    cells = [(EVENT, where) for where in (*found.bins, INCLUSIVE)] + [(what, INCLUSIVE) for what in types]
    lines = []
    for method, values in found.methods.items():
        shares = [cell(values["efficiency"][what][where]) for what, where in cells]
        lines.append([found.label(method), *shares, lead(found.difference(found.first, method))])
    head = [
        "",
        *found.bins,
        "all",
        *(results.symbol(what) for what in types),
        f"lead of {found.label(found.first)}",
    ]
    figure = flow(page, results, name) or _by_jets(page, name, [found])
    shown = results.shown(str(found.raw["command"]))
    return page.render(
        "evaluation", found=found, head=head, lines=lines, figure=figure, results=results, commands=shown
    )


def flow(page: Page, results: Results, name: str) -> str:
    """The flow of events through right and wrong steps, for the first method of an evaluation that has one."""
    found = results.evaluation(name)
    for method, entry in ({} if found is None else found.methods).items():
        row, _, decoding = method.partition(":")
        plot = flow_plot(results.plan.label(row), entry["flow"]) if decoding and "flow" in entry else None
        if plot is not None:
            return f"{page.figure(f'flow_{name}', plot.draw(), plot.title)}\n\n{plot.caption}"
    return ""


def study(page: Page, results: Results, study: Study) -> str:
    """The table of a study, its differences, learning curves and commands; curves alone without an evaluation."""
    found = results.evaluation(study.name)
    curves = _curves(page, results, study)
    if found is None:
        return curves
    if not (rows := rows_of(results, found, study.rows)):
        results.log(f"{study.name}: none of its rows were evaluated")
        return ""
    plan, first = results.plan, rows[0].methods[0]
    shown = plan.train_command(first), plan.answer_command(first), str(found.raw["command"])
    pooled = seed_spread(results, rows)
    differences = _differences(results, study, rows)
    words = [line[-1] for line in differences]
    return page.render(
        "study",
        results=results,
        study=study,
        head=_head(results, study, found),
        lines=[_line(results, study, row) for row in rows],
        symbol=results.symbol(EVENT),
        differences=differences,
        pooled=pooled,
        single=any(len(row.methods) == 1 for row in rows),
        counts={word: words.count(word) for word in ("reproduced", "refuted", "unresolved") if word in words},
        cells=_cells(results, rows) if study.cells else "",
        masses=_masses(page, study, rows) if study.cells else "",
        curves=curves,
        commands=results.shown(*shown),
    )


def _head(results: Results, study: Study, found: Evaluation) -> list[str]:
    """Efficiencies first, with the paper's beside them, then those by number of jets and facts about trainings."""
    symbols = [results.symbol(what) for what in found.methods[found.first]["efficiency"]]
    shown = [text for each in symbols for text in ([each, f"*{each}, paper*"] if study.published else [each])]
    bins = [f"{results.symbol(EVENT)}, {where}" for where in found.bins]
    return ["", "steps", "seeds", *shown, *bins, "recipe", "training events", "parameters"]


def _line(results: Results, study: Study, row: Row) -> list[str]:
    known = results.trained(row.methods[0])
    theirs = results.published["ablations"].get(row.name, {})
    line = [row.label, _count(known.steps), str(len(row.methods))]
    for what in row.evaluation.methods[row.methods[0]]["efficiency"]:
        line.append(_mean(row, what, INCLUSIVE))
        if study.published:
            line.append(f"*{number(theirs[what])}*" if what in theirs else "–")
    line += [_mean(row, EVENT, where) for where in row.evaluation.bins]
    recipe = _recipe(results.plan.trainings[row.methods[0]].base)
    return [*line, f"`{recipe}`", _count(known.events), _count(known.parameters)]


def _cells(results: Results, rows: Sequence[Row]) -> str:
    """Each efficiency by number of jets: the rows with their spread over seeds, beside the paper's first table."""
    published = results.published["table1"]
    others = list(next(iter(published.values())))
    bins = [*rows[0].evaluation.bins, INCLUSIVE]
    lines = [
        [
            results.symbol(what),
            where,
            *(_mean(row, what, where) for row in rows),
            *(f"*{number(*value) if isinstance(value, list) else number(value)}*" for value in theirs),
        ]
        for what, columns in published.items()
        for where, *theirs in zip(bins, *columns.values(), strict=True)
    ]
    return table(["", "jets", *(row.label for row in rows), *(f"*{name}, paper*" for name in others)], lines)


def _masses(page: Page, study: Study, rows: Sequence[Row]) -> str:
    """The event efficiency against the mass of the top pair, for the first seed of each row."""
    methods = {row.label: row.evaluation.methods[row.methods[0]].get("mass") for row in rows}
    curves = {label: found for label, found in methods.items() if found is not None}
    if not curves:
        return ""
    alt = "Event efficiency against the mass of all matched jets"
    return page.figure(f"mass_{study.name}", figures.masses(curves), alt)


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
    return number(found.mean, found.deviation if found.models > 1 else row.half_width(what, where))


def _differences(results: Results, study: Study, rows: Sequence[Row]) -> list[list[str]]:
    """Each row compared with the one before it, or all with one."""
    pooled = seed_spread(results, rows)
    lines = []
    for first, second in _pairs(results, study, rows):
        found = compare(first, second, pooled)
        if found is None:
            results.log(f"{study.name}: {first.name} and {second.name} were not evaluated on the same events")
            continue
        word = verdict(found, expected=study.published and study.against is None)
        if pooled is None and abs(found.significance) >= RESOLVED:  # a word that claims needs a spread over seeds
            word = f"{SIGNS.get(word, word)}; one seed, no spread known"
        difference = signed(found.difference, found.deviation)
        names = f"{first.label} − {second.label}"
        lines.append([names, difference, f"{abs(found.significance):.1f} σ", word])
    return lines


def _pairs(results: Results, study: Study, rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    known = {row.name: row for row in rows}
    if study.against is None:
        return list(zip(rows[1:], rows[:-1], strict=True))
    if study.against not in known:
        results.log(f"{study.name}: {study.against} is missing, so nothing to compare with")
        return []
    return [(row, known[study.against]) for row in rows if row.name != study.against]


def _curves(page: Page, results: Results, study: Study) -> str:
    """The learning curve of every training, also of unfinished ones, from its metrics.csv."""
    every = [results.plan.of_row(row) for row in study.rows]
    curves = {each[0].label: [results.trained(training.name).learning for training in each] for each in every}
    known = {label: [seed for seed in seeds if len(seed) > 1] for label, seeds in curves.items()}
    known = {label: seeds for label, seeds in known.items() if seeds}
    if not known:
        return ""
    figure = figures.learning_curves(known, f"{results.symbol(EVENT)} on validation events")
    return page.figure(f"learning_{study.name}", figure, "Event efficiency on validation events against the step")
