"""Writes pages of results and their figures, from evaluations.

    python workflow/results.py                           docs/results.md, from the summaries in workflow/summaries
    python workflow/results.py --add MODEL FILE          first add an evaluation of a model to the summaries
    python workflow/results.py TARGET [--results R]      a page for a target of config.yaml, from R/TARGET

FILE is from `pairton evaluate --json`. No number is written by hand. Sections whose inputs are missing are left
out, and a message says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from page import models, studies, summaries
from page.reading import Results
from page.writing import Page
from pairton.report.sankey import flow_plot
from pairton.report.style import require, styled
from plan import HERE, Plan, load_config

__all__ = ["main", "write_models", "write_target"]

DOCS = HERE.parent / "docs"
TEXT = HERE / "results.md.in"  # the text of docs/results.md


def write_models(folder: Path = DOCS, kept: Path = summaries.FOLDER) -> list[str]:
    """Write results.md and its figures from the summaries. Return a line for each missing one."""
    found, missing = summaries.kept(kept)
    page = Page(folder)
    parts = {
        "@overview@": lambda: models.overview(page, found),
        "@probabilities@": lambda: models.probabilities(page, found),
        "@commands@": lambda: models.commands(page, found),
    }
    with styled():
        for paragraph in TEXT.read_text(encoding="utf-8").strip().split("\n\n"):
            if paragraph in parts:
                parts[paragraph]()
            else:
                page.add(paragraph)
    page.save()
    return [f"no {name}.json among the summaries: left out" for name in missing]


def write_target(plan: Plan, folder: Path) -> list[str]:
    """Write the page of a target. Return a line for each part that was left out."""
    log: list[str] = []

    def once(line: str) -> None:
        if line not in log:
            log.append(line)

    results, page = Results(plan, once), Page(folder)
    page.add(f"# {plan.target}", f"Made by `python workflow/results.py {plan.target}`.")
    with styled():
        evaluated = {name: results.evaluation(name) for name in plan.evaluations}
        existing = {name: each for name, each in evaluated.items() if each is not None}
        compared = []
        for name, each in existing.items():
            labels = {method: plan.label(method) for method in each.methods}
            words = {"title": plan.evaluations[name].get("title", name), "labels": labels}
            compared.append(summaries.Summary(name, summaries.summarise(each.raw), words))
        if compared:
            models.overview(page, compared, "the first")
            models.probabilities(page, compared)
            models.commands(page, compared)
        for name, each in existing.items():
            for method, found in each.methods.items():
                row, _, decoding = method.partition(":")
                if (
                    decoding
                    and "flow" in found
                    and (plot := flow_plot(plan.label(row), found["flow"])) is not None
                ):
                    page.figure(f"flow_{name}", plot.draw(), plot.title)
                    page.add(plot.caption)
                    break
        studies.studies(results, page)
    page.save()
    return log


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", nargs="?", help="of config.yaml; without one: docs/results.md")
    parser.add_argument("--add", nargs=2, metavar=("MODEL", "FILE"), action="append", default=[])
    parser.add_argument("--results", help="folder of results; default: that of config.yaml")
    parser.add_argument("--page", type=Path, help="folder for results.md and images/")
    options = parser.parse_args(arguments)
    require()
    for name, file in options.add:
        print(f"wrote {summaries.add(name, Path(file))}")
    if options.target is None:
        folder = options.page or DOCS
        log = write_models(folder)
    else:
        config = load_config()
        if options.results is not None:
            config["results"] = options.results
        plan = Plan(config, options.target)
        folder = options.page or plan.page
        log = write_target(plan, folder)
    for line in log:
        print(f"results: {line}", file=sys.stderr)
    print(f"wrote {folder / 'results.md'}")


if __name__ == "__main__":
    main()
