"""Sections on the models themselves: events, efficiencies, mass, steps, jet energy scale.

Each takes the results and the page, and adds nothing where its input is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from page import figures
from page.comparing import RESOLVED
from page.reading import Evaluation, Results
from page.writing import Page, cell, number, signed, table
from pairton.report.sankey import flow_plot

__all__ = ["decodings", "efficiencies", "energy_scale", "events", "mass", "summary"]

EVENT, INCLUSIVE = "event", "inclusive"
MAIN = "main"  # the evaluation that compares the models with other methods
SCALE = "scale"  # the one with other jet energy scales

Json = Mapping[str, Any]


def _half(found: Json) -> float:
    return float(found["high"] - found["low"]) / 2


def _sigmas(found: Json) -> str:
    return f"{abs(found['value']) / _half(found):.1f} σ" if _half(found) > 0 else "–"


# -- the first lines ---------------------------------------------------------------------------------------


def summary(results: Results, page: Page) -> None:
    evaluation = results.evaluation(MAIN)
    page.add(
        "# Results",
        f"Made by `python workflow/results.py {results.plan.target}` from what the workflow trained and evaluated "
        f"(`snakemake -s workflow/Snakefile {results.plan.target} --cores 2`, or the commands that "
        f"`python workflow/plan.py {results.plan.target}` prints{_with_peers(results)}). Every section names the "
        "command behind its numbers. Intervals cover 68 %; ± is half of one. What is counted: "
        "[evaluate.md](evaluate.md).",
    )
    if evaluation is None:
        return
    first, *others = evaluation.methods
    found = evaluation.methods[first]["efficiency"][EVENT][INCLUSIVE]
    lines = [
        f"**{results.plan.label(first)}: every jet right in {cell(found)} of {found['total']:,} fully "
        "reconstructible test events.**"
    ]
    leads = []
    for other in others:
        lead = evaluation.difference(first, other)
        if lead is not None and lead[EVENT][INCLUSIVE]["value"] is not None:
            each = lead[EVENT][INCLUSIVE]
            right = cell(evaluation.methods[other]["efficiency"][EVENT][INCLUSIVE])
            time = _minutes(results, other)
            after = f" after {time:g} minutes of one core" if time else ""
            leads.append(f"{signed(each['value'], _half(each))} {results.plan.label(other)} ({right}{after})")
    lines += [f"On the same events, against: {'; '.join(leads)}."] if leads else []
    page.add(" ".join(lines))


def _peer(results: Results, method: str) -> Json | None:
    """What is known of another method, by the name of its answers."""
    found: Json | None = results.plan.config.get("known_peers", {}).get(method.removesuffix(".h5"))
    return found


def _minutes(results: Results, method: str) -> float | None:
    peer = _peer(results, method)
    return float(peer["minutes"]) if peer else None


def _with_peers(results: Results) -> str:
    """How other methods, which need packages of their own, get into the commands."""
    evaluation = results.evaluations.get(MAIN)
    methods = evaluation.methods if evaluation is not None else ()
    there = [name.removesuffix(".h5") for name in methods if _peer(results, name)]
    return f"; with `peers: [{', '.join(there)}]` in config.yaml" if there else ""


def events(results: Results, page: Page) -> None:
    evaluation = results.evaluations.get(MAIN)
    plan = results.plan
    page.add("## Events")
    page.add(
        "Numbers from different samples do not compare, not even by jet multiplicity: detector, generator and mix "
        "differ. Test events were not filtered; `--filter` drops events with soft or forward quarks before the "
        "shower, which for training saves time."
        if "--filter" not in plan.sample_command(plan.settings["test"])
        else "",
        "\n".join(results.shown(plan.sample_command(sample)) for sample in plan.samples),
    )
    rows = []
    if evaluation is not None:
        raw = evaluation.raw
        rows.append(["test", f"{raw['events']:,}", f"{raw['complete']:,}"])
        for name in evaluation.methods:
            model = results.named_model(name)
            if model is not None and model.get("data", {}).get("training_events"):
                data = model["data"]
                rows.append([f"training of {plan.label(name)}", "", f"{data['training_events']:,}"])
                rows.append(["its validation, to choose among its states", f"{data['validation_events']:,}", ""])
    if rows:
        page.add(table(["", "events", "fully reconstructible"], rows))


# -- efficiencies ------------------------------------------------------------------------------------------


def efficiencies(results: Results, page: Page) -> None:
    evaluation = results.evaluation(MAIN)
    if evaluation is None:
        return
    plan, published = results.plan, results.published["efficiency"]
    names = list(evaluation.methods)
    head = ["", "jets", *(plan.label(name) for name in names), *(f"*{name}, paper*" for name in published)]
    rows = []
    mixed = {name: method.get("reweighted") for name, method in evaluation.methods.items()}
    for what in evaluation.methods[names[0]]["efficiency"]:
        for k, where in enumerate((*evaluation.bins, INCLUSIVE)):
            own = [cell(evaluation.methods[name]["efficiency"][what][where]) for name in names]
            rows.append([results.symbol(what) if k == 0 else "", where, *own, *_published(published, what, where)])
        if all(mixed.values()):
            own = [cell(mixed[name]["efficiency"][what]) for name in names]  # type: ignore[index]
            rows.append(["", "at the paper's mix", *own, *_published(published, what, INCLUSIVE)])
    page.add("## Efficiencies", results.command(evaluation), table(head, rows))
    mix = next(iter(mixed.values()))
    shares = " / ".join(f"{100 * share:.0f}" for share in mix["mix"].values()) if mix else ""
    page.add(
        f"*Columns in italics are from another sample*, the {results.published['sample']}, as published: not to "
        "be compared with ours digit by digit. "
        + (f"The paper's mix is {shares} % of fully reconstructible events in the bins. " if mix else "")
        + f"The other columns share their test events{_learned_alike(results, names)}. Masses, widths and tag "
        "rates of the mass chi-square were fitted on the truth of the test events themselves, in its favour."
    )
    page.figure(
        "multiplicity",
        figures.multiplicities(
            {plan.label(n): evaluation.methods[n]["efficiency"][EVENT] for n in names},
            evaluation.bins,
            "event efficiency",
        ),
        "Event efficiency by number of jets, for each method",
    )
    _leads(results, page, evaluation)
    for name in names:
        if peer := _peer(results, name):
            commands = "\n".join(map(results.shown, plan.peer_commands(name.removesuffix(".h5"))))
            page.add(
                f"{plan.label(name)}, {peer['about']}, had {_minutes(results, name):g} minutes of one core on "
                f"{plan.train_sample.name}. Its authors train for far longer on far more events: the column says "
                "what these minutes and events buy, not how good it becomes.",
                commands,
            )


def _learned_alike(results: Results, names: Sequence[str]) -> str:
    """Who learned from more than what all learned from."""
    plan = results.plan
    more = [plan.label(name) for name in names if name in plan.trainings and plan.trainings[name].samples[1:]]
    if not more:
        return " and their training events"
    return f"; every network learned from {plan.train_sample.name}, and {' and '.join(more)} from more (above)"


def _published(published: Json, what: str, where: str) -> list[str]:
    found = (each.get(what, {}).get(where) for each in published.values())
    return [f"*{number(*value)}*" if value else "–" for value in found]


def _leads(results: Results, page: Page, evaluation: Evaluation) -> None:
    """The first method less each other one, on the same events."""
    first, *others = evaluation.methods
    rows = []
    for other in others:
        lead = evaluation.difference(first, other)
        for what in lead or {}:
            assert lead is not None
            values = [lead[what][where] for where in (*evaluation.bins, INCLUSIVE)]
            shown = ["–" if v["value"] is None else f"{signed(v['value'], _half(v))}" for v in values]
            last = values[-1]
            sigmas = "–" if last["value"] is None else _sigmas(last)
            rows.append([f"{results.plan.label(other)}, {results.symbol(what)}", *shown, sigmas])
    if rows:
        page.add(
            f"{results.plan.label(first)} less the others, on the same events (bootstrap over them: σ know of "
            "chance in the test events, not in the training):",
            table(["less", *evaluation.bins, INCLUSIVE, "inclusive, in σ"], rows),
        )


def mass(results: Results, page: Page) -> None:
    evaluation = results.evaluation(MAIN)
    if evaluation is None:
        return
    edges = next(iter(evaluation.methods.values()))["mass"]["edges"]
    if len(edges) < 2:
        results.log("main: no masses, so no efficiency against them")
        return
    labels = {results.plan.label(name): method["mass"] for name, method in evaluation.methods.items()}
    symbol = results.symbol(EVENT)
    page.add(f"## {symbol} against the mass of all matched jets", results.command(evaluation))
    page.figure("mass", figures.against_mass(labels, "event efficiency"), "Event efficiency in bins of mass")
    rows = [
        [f"{edges[k]:.0f} to {edges[k + 1]:.0f}", f"{next(iter(labels.values()))['efficiency'][k]['total']:,}"]
        + [cell(each["efficiency"][k]) for each in labels.values()]
        for k in range(len(edges) - 1)
    ]
    page.add(table(["mass [GeV]", "events", *labels], rows))


# -- ways to decode ----------------------------------------------------------------------------------------


def decodings(results: Results, page: Page) -> None:
    """Evaluations with a title: methods on the same events, and how right their steps were."""
    for name, raw in results.plan.evaluations.items():
        evaluation = results.evaluation(name) if "title" in raw else None
        if evaluation is None:
            continue
        page.add(f"## {raw['title']}", results.command(evaluation))
        first, *others = evaluation.methods
        rows = []
        for method, found in evaluation.methods.items():
            line = [
                _name(results, method),
                *(cell(found["efficiency"][what][INCLUSIVE]) for what in found["efficiency"]),
            ]
            lead = evaluation.difference(method, first) if method in others else None
            change = lead[EVENT][INCLUSIVE] if lead else None
            known = change is not None and change["value"] is not None
            rows.append([*line, *(_judged(change) if known and change else ("", ""))])
        whats = [results.symbol(what) for what in evaluation.methods[first]["efficiency"]]
        less = f"{results.symbol(EVENT)} less that of the first row"
        page.add(table(["", *whats, less, ""], rows))
        _flows(results, page, evaluation)


def _name(results: Results, method: str) -> str:
    training, _, decoding = method.partition(":")
    return (
        f"{results.plan.label(training)}, {decoding.replace('_', ' ')}"
        if decoding
        else results.plan.label(training)
    )


def _judged(found: Json) -> tuple[str, str]:
    """A paired difference, and whether it is one."""
    word = "" if abs(found["value"]) >= max(RESOLVED * _half(found), 1e-9) else ", unresolved"
    return signed(found["value"], _half(found)), f"{_sigmas(found)}{word}"


def _flows(results: Results, page: Page, evaluation: Evaluation) -> None:
    """Once for each model whose steps were followed; the first one is drawn."""
    flows: dict[str, Json] = {}
    for method, found in evaluation.methods.items():
        if "flow" in found:
            flows.setdefault(method.partition(":")[0], found["flow"])
    for k, (model, counts) in enumerate(flows.items()):
        label = results.plan.label(model)
        plot = flow_plot(label, counts) if k == 0 else None
        if plot is not None:
            page.figure(f"flow_{evaluation.name}", plot.draw(), plot.title)
            page.add(plot.caption)
        kinds = [kind for kind in counts if kind not in ("stages", "recovery")]
        rows = []
        for stage in range(len(counts["stages"])):
            for wrong in (False, True) if stage else (False,):
                before = "some step before it wrong" if wrong else "every step before it right"
                row = ["" if wrong else counts["stages"][stage], before if stage else ""]
                for kind in kinds:
                    good, total = _after(counts[kind][stage], stage, wrong=wrong)
                    row.append(f"{good:,} of {total:,}: {number(good / total)}" if total else "–")
                rows.append([*row, ""])
        for what in counts.get("recovery", {}).get("difference", {}):
            row = [
                what,
                "found after a wrong first step",
                *(cell(counts["recovery"][kind][what]) for kind in kinds),
            ]
            change = counts["recovery"]["difference"][what]
            rows.append([*row, "" if change["value"] is None else " ".join(_judged(change))])
        head = ["", "", *(kind.replace("_", " ") for kind in kinds), "difference, same events"]
        page.add(f"Steps of {label} that were right, by what came before:", table(head, rows))


def _after(counts: Json, k: int, *, wrong: bool) -> tuple[int, int]:
    """Right ones and all of step k, of events in which the steps before were all right, or some wrong."""
    chosen = [history for history in counts if ("-" in history[:k]) == wrong]
    total = sum(counts[history] for history in chosen)
    return sum(counts[history] for history in chosen if history[k] == "+"), total


# -- another calibration of the jets -----------------------------------------------------------------------


def energy_scale(results: Results, page: Page) -> None:
    evaluation = results.evaluation(SCALE)
    if evaluation is None:
        return
    curves: dict[str, list[tuple[float, str]]] = {}
    for name, method in evaluation.methods.items():
        scale = float(method["method"].get("jet_scale", 1))
        curves.setdefault(name.removesuffix(f" x {scale:g}"), []).append((scale, name))
    curves = {name: sorted(points) for name, points in curves.items() if len(points) > 1}
    if not curves:
        results.log("scale: no --jet-scale in it")
        return
    symbol = results.symbol(EVENT)
    page.add(f"## {symbol} against the jet energy scale", results.command(evaluation))
    page.add(
        "pT and energy of all jets times one number; models and fits stay as they are, and so do the jets that "
        "are used: the file has none below the cut that a higher scale could lift over it."
    )
    drawn = {
        results.plan.label(name): [(s, evaluation.methods[n]["efficiency"][EVENT][INCLUSIVE]) for s, n in points]
        for name, points in curves.items()
    }
    page.figure("scale", figures.against_scale(drawn, "event efficiency"), "Event efficiency against the scale")
    rows = []
    for name, points in curves.items():
        for scale, varied in points:
            method = evaluation.methods[varied]
            lead = evaluation.difference(varied, name) if varied != name else None
            change = lead[EVENT][INCLUSIVE] if lead else None
            mean = method.get("limit", {}).get(INCLUSIVE, {}).get("probability")
            rows.append(
                [
                    results.plan.label(name),
                    f"{100 * (scale - 1):+.0f} %".replace("-", "−") if not math.isclose(scale, 1) else "0",
                    cell(method["efficiency"][EVENT][INCLUSIVE]),
                    signed(change["value"], _half(change)) if change else "",
                    number(mean),
                ]
            )
    page.add(table(["", "scale", symbol, "change, same events", "mean probability of the answer"], rows))
