"""Small summaries of evaluations, which are kept with the code, for docs/results.md."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pairton._common.atomic import replacing
from plan import HERE

__all__ = [
    "EVENT",
    "FOLDER",
    "INCLUSIVE",
    "SHIPPED",
    "Summary",
    "add",
    "command",
    "efficiencies",
    "kept",
    "numbers",
    "summarise",
    "write_lines",
]

FOLDER = HERE / "summaries"
SHIPPED = HERE / "shipped.yaml"
EVENT, INCLUSIVE = "event", "inclusive"
DIGITS = 5

Json = Mapping[str, Any]


class Summary:
    """One evaluation, with title and labels from shipped.yaml or a target."""

    def __init__(self, name: str, numbers: Json, words: Json) -> None:
        self.name, self.numbers, self.words = name, numbers, words

    @property
    def title(self) -> str:
        return str(self.words.get("title", self.name))

    @property
    def methods(self) -> Mapping[str, Json]:
        found: Mapping[str, Json] = self.numbers["methods"]
        return found

    @property
    def first(self) -> str:
        return next(iter(self.methods))

    @property
    def bins(self) -> list[str]:
        return [cell for cell in self.methods[self.first]["efficiency"][EVENT] if cell != INCLUSIVE]

    def label(self, method: str) -> str:
        return str(self.words.get("labels", {}).get(method, method))


def summarise(raw: Json) -> dict[str, Any]:
    """The part of a file of `pairton evaluate --json` that the page needs."""
    first = next(iter(raw["methods"]))
    return {
        "command": command(str(raw.get("command", ""))),
        "pairton_version": raw.get("pairton_version"),
        "topology": raw["topology"],
        "events": raw["events"],
        "complete": raw["complete"],
        "methods": {name: _method(method) for name, method in raw["methods"].items()},
        "differences": {
            each["second"]: numbers(each["efficiency"][EVENT][INCLUSIVE], "value", "low", "high", "p_value")
            for each in raw["differences"]
            if each["first"] == first
        },
    }


def _method(method: Json) -> dict[str, Any]:
    found: dict[str, Any] = {"efficiency": efficiencies(method)}
    if EVENT in (all_events := method.get("calibration_all", {})):
        known = all_events[EVENT]
        found["calibration"] = numbers(known, "probability", "right") | {
            "bins": [numbers(each, "probability", "value", "low", "high", "total") for each in known["bins"]]
        }
    return found


def efficiencies(method: Json) -> dict[str, Any]:
    """The efficiencies of a method, by what is found and number of jets."""
    return {
        what: {cell: numbers(value, "value", "low", "high") for cell, value in cells.items()}
        for what, cells in method["efficiency"].items()
    }


def numbers(found: Json, *names: str) -> dict[str, Any]:
    """Some numbers, rounded: p-values to two significant digits, others to DIGITS decimals."""
    values = {name: found.get(name) for name in names}
    return {
        name: float(f"{value:.2g}") if name == "p_value" else round(value, DIGITS)
        for name, value in values.items()
        if value is not None
    }


def command(typed: str) -> str:
    """A command without paths of the machine, and without options that do not change the numbers.

    >>> command("pairton evaluate /somewhere/test.h5 --threads 1 --baseline chi2 --json /tmp/x.json")
    'pairton evaluate test.h5 --baseline chi2'
    """
    words = shlex.split(typed)
    for option in ("--threads", "--json", "--report", "--jobs"):
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    return shlex.join(Path(word).name if word.startswith("/") else word for word in words)


def add(name: str, evaluation: Path, folder: Path = FOLDER) -> Path:
    """Write the summary of an evaluation under the name of a model."""
    words = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    if name not in words:
        raise SystemExit(f"results: no model {name!r} in {SHIPPED.name}: it has {', '.join(words)}")
    path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    summary = summarise(json.loads(evaluation.read_text(encoding="utf-8")))
    write_lines(path, summary)
    return path


def write_lines(path: Path, values: Json) -> None:
    """Write JSON, a line for each key, so that a change is seen in a diff."""
    with replacing(path) as temporary:
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())
        temporary.write_text(f"{{{lines}}}\n", encoding="utf-8")


def kept(folder: Path = FOLDER) -> tuple[list[Summary], list[str]]:
    """The existing summaries, in the order of shipped.yaml, and the names of models without one."""
    words = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    existing = [name for name in words if (folder / f"{name}.json").is_file()]
    read = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in existing}
    return [Summary(name, read[name], words[name]) for name in existing], [
        name for name in words if name not in existing
    ]
