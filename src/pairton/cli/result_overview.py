"""Tables that show how a result was made, for `pairton inspect RESULT`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton.errors import printable
from pairton.events.domain import CUTS

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["is_result", "result_tables"]

SHOWN = 12  # characters of a hash to show
MOST = 20  # inputs to list
# metadata that are not settings, or have their own rows
OTHER = frozenset(
    (
        "format_version",
        "topology",
        "slots",
        "pairton_version",
        "model",
        "inputs",
        "input_metadata",
        "events",
        "status",
    )
) | frozenset(
    ("variation_status", "first_bad", "parts", "part", "reading", "temperatures", "jets", "btagged_jets")
)


def is_result(path: str) -> bool:
    """Whether a file or a folder of parts is a result of `pairton reconstruct`."""
    from pairton.reconstruction.provenance import result_metadata

    found = Path(path)
    return found.is_dir() if not found.is_file() else result_metadata(found) is not None


def result_tables(path: str, metadata: Mapping[str, Any]) -> Iterator[Table]:
    """Tables of the events and the model, the settings, and the inputs of a result."""
    from rich import box
    from rich.table import Table

    def table(title: str, rows: Iterable[tuple[str, str]]) -> Table:
        made = Table(
            box=box.SIMPLE, show_header=False, pad_edge=False, title=printable(title), title_justify="left"
        )
        made.add_column(style="bold cyan", no_wrap=True)
        made.add_column(overflow="fold")
        for row in rows:
            made.add_row(*map(printable, row))
        return made

    yield table(f"a result of pairton reconstruct: {path}", _about(metadata))
    yield table("settings", _settings(metadata))
    yield table("inputs", _inputs(metadata))


def _about(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    model = _mapping(metadata, "model")
    parts = f" in {len(metadata['parts'])} parts" if isinstance(metadata.get("parts"), list) else ""
    yield "events", f"{_short(metadata.get('events'))}{parts}"
    yield "status", ", ".join(f"{n} {label}" for label, n in _mapping(metadata, "status").items() if n)
    yield "topology", _short(metadata.get("topology"))
    yield "pairton", _short(metadata.get("pairton_version"))
    yield "model", f"{_short(model.get('name'))}, of pairton {_short(model.get('code_version'))}"
    yield from _files(model)
    folds = model.get("folds")
    for k, member in enumerate(folds if isinstance(folds, list) else []):
        if isinstance(member, Mapping):
            yield f"fold {k}", f"{_short(member.get('name'))}, for events that it was not trained on"
            yield from _files(member)


def _files(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, sha256 in _mapping(model, "files").items():
        yield "", f"{name}, sha256 {str(sha256)[:SHOWN]}"
    if "engine" in model:
        yield "engine", _short(model["engine"])


def _settings(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in metadata.items():
        if name == "cuts":
            yield name, _cuts(value)
        elif name not in OTHER:
            yield name, _short(value)
    fitted = metadata.get("temperatures")
    yield "temperatures", "1, not fitted for this decoding" if fitted is None else _short(fitted)
    for name, value in _mapping(metadata, "reading").items():
        yield f"reading: {name}", _short(value)


def _cuts(value: Any) -> str:
    """Cuts on objects, by kind."""
    if not isinstance(value, Mapping):  # written by an earlier version
        return "those of the model" if value is True else _short(value)
    return "; ".join(f"{kind}: {_bounds(value, kind)}" for kind in value)


def _bounds(cuts: Mapping[str, Any], kind: str) -> str:
    """The cuts on objects of a kind, in the form of --jets."""
    bounds = _mapping(cuts, kind)
    return ",".join(f"{n}{sign}{_short(bounds[n])}" for n, sign in CUTS.items() if bounds.get(n)) or "none"


def _inputs(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    inputs = metadata.get("inputs")
    inputs = inputs if isinstance(inputs, list) else []
    for one in inputs[:MOST]:
        if not isinstance(one, Mapping):  # written by an earlier version
            yield "file", str(one)
            continue
        hashed = f"sha256 {str(one['sha256'])[:SHOWN]}" if one.get("sha256") else "not hashed"
        yield "file", _short(one.get("name"))
        yield "", f"{_short(one.get('events'))} events, {_short(one.get('format'))}, {hashed}"
        for name, value in _mapping(one, "read_as").items():
            yield "", f"{name}: {_short(value)}"
    if len(inputs) > MOST:
        yield "", f"and {len(inputs) - MOST} more: --json lists them"


def _mapping(metadata: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping in the metadata; empty if it is missing or not a mapping."""
    found = metadata.get(name)
    return found if isinstance(found, Mapping) else {}


def _short(value: Any) -> str:
    """A setting as short text; a table of tags or a topology is shown by its name."""
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str):
            return str(value["name"])
        return ", ".join(f"{name}: {_short(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_short, value)) or "none"
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
