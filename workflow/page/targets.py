"""Small summaries of targets, which are kept with the code, for the pages of docs/studies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from page import summaries
from page.reading import Evaluation, Results
from page.summaries import EVENT, INCLUSIVE, command, efficiencies, numbers, write_lines

__all__ = ["FOLDER", "keep", "kept"]

FOLDER = summaries.FOLDER / "targets"

Json = Mapping[str, Any]


def keep(results: Results, folder: Path = FOLDER) -> Path:
    """Write the summary of a target, from its folder of results."""
    names = {name: results.evaluation(name) for name in results.plan.evaluated}
    evaluations = {name: _evaluation(found) for name, found in names.items() if found is not None}
    if not evaluations:
        raise SystemExit(f"results: {results.plan.folder} has no evaluation to keep")
    known = {name: results.trained(name)._asdict() for name in results.plan.trainings}
    trainings = {name: each for name, each in known.items() if any(each.values())}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{results.plan.target}.json"
    write_lines(path, {"evaluations": evaluations, "trainings": trainings})
    return path


def kept(folder: Path = FOLDER) -> Iterator[tuple[str, Json]]:
    """Name and summary of every target that has one."""
    for path in sorted(folder.glob("*.json")):
        yield path.stem, json.loads(path.read_text(encoding="utf-8"))


def _evaluation(found: Evaluation) -> dict[str, Any]:
    """The part of an evaluation that a page of studies needs, in the same form."""
    return {
        **{name: found.raw[name] for name in ("topology", "events", "complete")},
        "command": command(str(found.raw.get("command", ""))),
        "pairton_version": found.raw.get("pairton_version"),
        "methods": {
            name: {
                "efficiency": efficiencies(method),
                **({"flow": method["flow"]} if "flow" in method else {}),
            }
            for name, method in found.methods.items()
        },
        "differences": [
            {
                "first": each["first"],
                "second": each["second"],
                "efficiency": {
                    EVENT: {INCLUSIVE: numbers(each["efficiency"][EVENT][INCLUSIVE], "value", "low", "high")}
                },
            }
            for each in found.raw["differences"]
        ],
    }
