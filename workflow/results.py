"""The page of results and its figures, from a folder of evaluations and models.

    python workflow/results.py cpu                                  reads results/cpu, writes docs/results.md
    python workflow/results.py cpu --results R --page P [--notes N]

Sections whose inputs are missing are left out, with a line that says so; no number is written by hand. What was
tried and told in words is appended from a file of notes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from page import probabilities, sections, studies
from page.reading import Results
from page.writing import Page
from pairton.report.style import require, styled
from plan import HERE, Plan, load_config

__all__ = ["main", "write"]

NOTES = HERE / "notes.md"
SECTIONS = (
    sections.summary,
    sections.events,
    sections.efficiencies,
    sections.mass,
    probabilities.calibration,
    probabilities.limit,
    sections.energy_scale,
    sections.decodings,
    studies.studies,
)


def write(plan: Plan, folder: Path, notes: Path | None = None) -> list[str]:
    """Write results.md and images/ in a folder; returns what was left out, in lines."""
    log: list[str] = []

    def once(line: str) -> None:
        if line not in log:
            log.append(line)

    results, page = Results(plan, once), Page(folder)
    with styled():
        for section in SECTIONS:
            section(results, page)
    if notes is not None:
        page.add(notes.read_text(encoding="utf-8").strip())
    page.save()
    return log


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", help="of config.yaml")
    parser.add_argument("--results", help="folder of results; default: that of config.yaml")
    parser.add_argument("--page", type=Path, help="folder for results.md and images/; default: that of the target")
    parser.add_argument("--notes", type=Path, help="Markdown to append; default: notes.md beside this, if any")
    options = parser.parse_args(arguments)
    require()
    config = load_config()
    if options.results is not None:
        config["results"] = options.results
    plan = Plan(config, options.target)
    folder = options.page or plan.page
    notes = options.notes or (NOTES if NOTES.is_file() else None)
    for line in write(plan, folder, notes):
        print(f"results: {line}", file=sys.stderr)
    print(f"wrote {folder / 'results.md'}")


if __name__ == "__main__":
    main()
