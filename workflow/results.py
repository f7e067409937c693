"""Writes pages of results and their figures, from evaluations.

    python workflow/results.py                           the marked parts of docs, from workflow/summaries
    python workflow/results.py --add MODEL FILE          the same, after adding an evaluation of a model
    python workflow/results.py --keep TARGET             the same, after adding what a target made (config.yaml)
    python workflow/results.py TARGET [--results R]      a page for a target, from R/TARGET

FILE is from `pairton evaluate --json`. No number in a marked part is written by hand. Sections whose inputs are
missing are left out, and a message says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from page import parts, reading
from page.reading import Results
from page.writing import PART, Page
from pairton.evaluation.plots import require, styled
from plan import HERE, Plan, load_config

__all__ = ["main", "write_docs", "write_target"]

DOCS = HERE.parent / "docs"
PAGES = ("*.md", "studies/*.md")  # of DOCS, that may have marked parts


def write_docs(docs: Path = DOCS, kept: Path = reading.SUMMARIES) -> list[str]:
    """Write the marked parts of the pages in `docs` from the summaries. Return a line for each missing one."""
    found, missing = reading.kept_models(kept)
    log = [f"no {name}.json among the summaries: left out" for name in missing]
    writers: dict[str, Callable[[Page], str]] = {
        "models/overview": lambda page: parts.overview(page, found, "Pairton"),
        "models/probabilities": lambda page: parts.probabilities(page, found),
        "models/commands": lambda page: parts.commands(page, found),
    }
    config = load_config()
    for target, summary in reading.kept_targets(kept):
        results = Results(Plan(config, target), log.append, summary)
        every = [each for name in results.plan.evaluations if (each := results.evaluation(name)) is not None]
        writers[f"{target}/overview"] = partial(parts.overview, evaluations=every)
        writers[f"{target}/probabilities"] = partial(parts.probabilities, evaluations=every)
        for study in results.plan.studies.values():
            writers[f"{target}/{study.name}"] = partial(parts.study, results=results, study=study)
        for name in results.plan.evaluations:
            writers[f"{target}/{name}"] = partial(parts.evaluation, results=results, name=name)
    with styled():
        for path in sorted(path for pattern in PAGES for path in docs.glob(pattern)):
            if PART.search(path.read_text(encoding="utf-8")):
                Page(path.parent, path.stem).fill(writers)
    return log


def write_target(plan: Plan, folder: Path) -> list[str]:
    """Write the page of a target. Return a line for each part that was left out."""
    log: dict[str, None] = {}
    results, page = Results(plan, log.setdefault), Page(folder)
    with styled():
        found = [each for name in plan.evaluations if (each := results.evaluation(name)) is not None]
        compared = [
            parts.overview(page, found),
            parts.probabilities(page, found),
            *(parts.evaluation(page, results, each.name) for each in found),
        ]
        studies = {
            study.title + ("" if results.evaluation(study.name) else ", not evaluated yet"): part
            for study in plan.studies.values()
            if (part := parts.study(page, results, study))
        }
        page.save(page.render("target", plan=plan, compared=compared if found else [], studies=studies) + "\n")
    return list(log)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", nargs="?", help="of config.yaml; without one: the pages of docs")
    parser.add_argument("--add", nargs=2, metavar=("MODEL", "FILE"), action="append", default=[])
    parser.add_argument("--keep", metavar="TARGET", action="append", default=[])
    parser.add_argument("--results", help="folder of results; default: that of config.yaml")
    parser.add_argument("--page", type=Path, help="folder for results.md and images/ of a target")
    options = parser.parse_args(arguments)
    require()
    config = load_config()
    if options.results is not None:
        config["results"] = options.results
    for name, file in options.add:
        print(f"wrote {reading.keep_model(name, Path(file))}")
    for target in options.keep:
        print(f"wrote {reading.keep_target(Results(Plan(config, target), print))}")
    if options.target is None:
        log, wrote = write_docs(), DOCS
    else:
        plan = Plan(config, options.target)
        wrote = options.page or plan.page
        log = write_target(plan, wrote)
    for line in log:
        print(f"results: {line}", file=sys.stderr)
    print(f"wrote {wrote}")


if __name__ == "__main__":
    main()
