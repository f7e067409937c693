"""A check that a result, and the inputs that it was made from, have not changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairton._common.configuration import read_json
from pairton.errors import InputError, PairtonError
from pairton.formats.files import fingerprint, is_url
from pairton.reconstruction.part_folder import COMPLETE, Done
from pairton.reconstruction.provenance import file_sha256, result_metadata

__all__ = ["Verified", "read_result", "verify"]


@dataclass(frozen=True)
class Verified:
    """What was checked, and one line for each problem."""

    events: int
    parts: int  # number of parts in a folder; 0 for a single file, which does not contain its own hash
    inputs: int  # number of unchanged inputs
    absent: int  # number of inputs that were not checked, because they are missing or on the network
    problems: tuple[str, ...]


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


def verify(path: str | Path) -> Verified:
    """Compare a result with the hashes that were recorded when it was written.

    All parts must exist, with the SHA-256 and the key that `_reconstruction.json` lists. Inputs that still exist
    must have the SHA-256 that they had when they were read.
    """
    path = Path(path)
    metadata = read_result(path)
    try:
        problems = list(_parts(path, metadata)) if path.is_dir() else []
        checked = [_input(one) for one in metadata["inputs"]]
        events, parts = int(metadata["events"]), len(metadata["parts"]) if path.is_dir() else 0
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(
            f"{path}: has no hashes to check: it is damaged, or an earlier Pairton wrote it"
        ) from None
    problems += [problem for problem in checked if problem]
    return Verified(events, parts, checked.count(""), checked.count(None), tuple(problems))


def _parts(folder: Path, metadata: Mapping[str, Any]) -> Iterator[str]:
    """The problems of the parts of a folder."""
    known = {str(part["name"]): part for part in metadata["parts"]}
    for name, part in known.items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            yield f"{path}: missing"
        elif file_sha256(path) != part["sha256"]:
            yield f"{path}: changed since it was written"
        else:
            done = Done.read(path)
            if done is None or done.key != part["key"] or len(done) != part["events"]:
                yield f"{path}: made from other inputs or settings than {COMPLETE} lists"
    for path in sorted(folder.glob("part-*")):
        if path.name not in known:
            yield f"{path}: not part of this result"


def _input(one: Mapping[str, Any]) -> str | None:
    """The problem of an input, "" for none, or None if it cannot be checked."""
    name = str(one["name"])
    if is_url(name) or not Path(name).is_file():
        return None
    try:
        same = (
            file_sha256(name) == one["sha256"]
            if one["sha256"]
            else f"{fingerprint(name):016x}" == one["fingerprint"]
        )
    except PairtonError as error:
        return str(error)
    return "" if same else f"{name}: its content has changed since it was read"
