"""How a result was made: its model, settings and inputs, so that it can be compared, checked and repeated.

The metadata of a result contain all of it. The key of a part is a hash of everything that changes its answers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._common.configuration import read_json
from pairton._version import __version__
from pairton.errors import InputError
from pairton.formats.base import Source
from pairton.formats.column_files import container_module
from pairton.formats.files import CONTAINERS, fingerprint, is_url, one_line
from pairton.formats.taggers import BTag
from pairton.models.storage import INFO, WEIGHTS, WEIGHTS_KEY
from pairton.reconstruction.assigner import Assigner
from pairton.topology import load_topology

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = [
    "COMPLETE",
    "KEY",
    "InputFile",
    "absolute",
    "content_hash",
    "engine_version",
    "file_sha256",
    "hash_of",
    "plain_reading",
    "read_result",
    "result_metadata",
    "result_settings",
    "verify",
]

COMPLETE = "_reconstruction.json"  # of a result in parts; programs that read Parquet folders skip names with _
KEY = "pairton_reconstruction"  # name of the metadata in a file
NEUTRAL = ("truth", "strict", "isolate", "refuse_others", "fields", "bad_labels")  # options that change no answer


def absolute(name: str) -> str:
    """The absolute path of a file; URLs stay as they are."""
    return name if is_url(name) else os.path.abspath(name)


def content_hash(name: str) -> str | None:
    """The SHA-256 of an input; None for a URL, since its content would be fetched twice."""
    return None if is_url(name) else file_sha256(name)


def file_sha256(path: str | Path) -> str:
    """The SHA-256 of a file, as `sha256sum` prints it; one gigabyte takes about a second."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({one_line(error)})") from None


@dataclass(frozen=True)
class InputFile:
    """One input file, and how it was read."""

    name: str  # path or URL
    format: str
    events: int
    sha256: str | None  # None for a URL
    fingerprint: str  # of the size, the head and the tail of the file
    read_as: Mapping[str, Any] = field(default_factory=dict)  # choices of the reader: tagger, identification, ...

    @classmethod
    def of(cls, source: Source, sha256: str | None) -> InputFile:
        """Describe an open file."""
        name = absolute(source.path)
        chosen = {key: value for key, value in source.read_as.items() if key != "tag_table"}
        chosen |= {"tags": source.tagging} if source.tagging else {}
        return cls(name, source.format, source.n_events, sha256, f"{fingerprint(name):016x}", chosen)

    @property
    def identity(self) -> str:
        """The SHA-256, or for a URL the fingerprint."""
        return self.sha256 or self.fingerprint

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def plain_reading(options: Mapping[str, Any]) -> dict[str, Any]:
    """The reading options that change answers, as plain data; names of files are replaced by their content."""
    found = {name: value for name, value in options.items() if name not in NEUTRAL and value not in (None, {}, [])}
    if "topology" in found:  # the model contains its own topology
        topology = load_topology(found.pop("topology"))
        found |= {} if options.get("refuse_others") else {"topology": topology.to_dict()}
    if "btag" in found:
        found["btag"] = BTag.parse(found["btag"]).plain
    return {name: _plain(value) for name, value in sorted(found.items())}


def result_settings(assigner: Assigner, reading: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The metadata on how a result was made; `reading` are the options from `plain_reading`."""
    fitted = [member.temperatures for member in assigner.members]  # one per fold
    return {
        "pairton_version": __version__,
        "model": _describe(assigner.model),
        **{name: _plain(value) for name, value in vars(assigner.settings).items()},
        "temperatures": _plain(fitted if len(fitted) > 1 else fitted[0]),  # None: not fitted for this decoding
        "reading": dict(reading or {}),
        "inputs": [],
    }


def _describe(model: Model) -> dict[str, Any]:
    """A model as plain data: hashes of its files and its info, and the version of its engine."""
    info, engine = model.info, getattr(model, "engine", None)
    path = Path(getattr(engine, "path", ""))
    files = [file for file in (path, path / WEIGHTS, path / INFO) if file.is_file()]
    result: dict[str, Any] = {"name": model.name, "code_version": info.code_version}
    result |= {WEIGHTS_KEY: info.weights_sha256, "info_sha256": hash_of(info.to_dict())}
    if getattr(model, "network", None) is not None:
        result["zero_shot"] = model.zero_shot
    result["files"] = {file.name: file_sha256(file) for file in files}
    if (library := getattr(engine, "library", None)) is not None:
        result["engine"] = engine_version(library)
    if members := getattr(model, "folds", ()):
        result["folds"] = [_describe(member) for member in members]
    return result


def engine_version(library: str) -> str:
    """A library with its version, on which rounding may depend."""
    try:
        return f"{library} {version(library)}"
    except PackageNotFoundError:
        return library


def hash_of(what: Any) -> str:
    """The SHA-256 of plain data; it does not depend on the order of keys."""
    return hashlib.sha256(json.dumps(_plain(what), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A value as JSON stores it: tuples become lists, objects become mappings."""

    def other(item: Any) -> Any:
        if hasattr(item, "to_dict"):
            return item.to_dict()
        if is_dataclass(item) and not isinstance(item, type):
            return asdict(item)
        return dict(item) if isinstance(item, Mapping) else str(item)

    return json.loads(json.dumps(value, default=other))


def result_metadata(path: str | Path) -> dict[str, Any] | None:
    """The metadata of a result file; None if it is not a result, or damaged."""
    container = container_module(CONTAINERS.get(Path(path).suffix.lower(), "HDF5"))
    try:
        with closing(container.open_file(str(path))) as file:
            found = json.loads(file.text(KEY))
    except Exception:  # each library has its own errors for damaged files
        return None
    return found if isinstance(found, dict) else None


def read_result(path: str | Path) -> dict[str, Any]:
    """The metadata of a result, which is a file or a folder of parts. Raises InputError if it is neither."""
    path = Path(path)
    if path.is_dir():
        if not (path / COMPLETE).is_file():
            some = len(list(path.glob("part-*")))
            raise InputError(
                f"{path}: has {some} parts, but no {COMPLETE}: the run has not finished; continue it with "
                "`pairton reconstruct … --resume`"
                if some
                else f"{path}: this is a folder, but not a result in parts: it has no {COMPLETE}; give its files"
            )
        found = read_json(path / COMPLETE, InputError)
        if not isinstance(found, dict):
            raise InputError(f"{path / COMPLETE}: damaged: make the result again")
        return found
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder: give a result of `pairton reconstruct`")
    metadata = result_metadata(path)
    if metadata is None:
        raise InputError(f"{path}: not a result of `pairton reconstruct`, or damaged")
    return metadata


def verify(path: str | Path) -> tuple[str, list[str]]:
    """Compare the parts of a result, and the inputs that still exist, with the SHA-256 that was recorded.

    Returns what was checked, and one line for each problem.
    """
    path = Path(path)
    metadata = read_result(path)
    try:
        parts = {str(part["name"]): part["sha256"] for part in metadata["parts"]} if path.is_dir() else {}
        inputs = {str(one["name"]): one["sha256"] for one in metadata["inputs"]}
        events = int(metadata["events"])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: has no hashes to check: it is damaged") from None
    problems = [
        f"{path / name}: {'changed since it was written' if (path / name).is_file() else 'missing'}"
        for name, sha256 in parts.items()
        if not (path / name).is_file() or file_sha256(path / name) != sha256
    ]
    problems += [f"{each}: not part of this result" for each in path.glob("part-*") if each.name not in parts]
    here = {name: sha256 for name, sha256 in inputs.items() if not is_url(name) and Path(name).is_file()}
    changed = [name for name, sha256 in here.items() if file_sha256(name) != sha256]
    problems += [f"{name}: its content has changed since it was read" for name in changed]
    what = f"{len(parts)} parts" if path.is_dir() else "one file, whose own hash is not recorded"
    absent = f", {len(inputs) - len(here)} missing or on the network" if len(inputs) > len(here) else ""
    return f"{events} events, {what}; {len(here) - len(changed)} inputs unchanged{absent}", sorted(problems)
