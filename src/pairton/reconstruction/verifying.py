"""Whether a result is as it was written, and its inputs as they were read."""

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
    """What was checked, and what is wrong: a line for each problem."""

    events: int
    parts: int  # of a folder; 0 for a single file, which has no record of itself
    inputs: int  # that are as they were read
    absent: int  # inputs that are not there, or on the network, and were not checked
    problems: tuple[str, ...]


def read_result(path: str | Path) -> dict[str, Any]:
    """What a result says of itself: a file, or a folder of parts. Raises InputError where it is none."""
    path = Path(path)
    if path.is_dir():
        if not (path / COMPLETE).is_file():
            some = len(list(path.glob("part-*")))
            raise InputError(
                f"{path}: {some} parts, but no {COMPLETE}: the run that writes them has not ended; continue with "
                "`pairton reconstruct … --resume`"
                if some
                else f"{path}: this is a folder without {COMPLETE}: give a file, or a result in parts"
            )
        found = read_json(path / COMPLETE, InputError)
        if not isinstance(found, dict):
            raise InputError(f"{path / COMPLETE}: damaged: make the result again")
        return found
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder: give a result of `pairton reconstruct`")
    said = result_metadata(path)
    if said is None:
        raise InputError(f"{path}: not a result of `pairton reconstruct`, or damaged")
    return said


def verify(path: str | Path) -> Verified:
    """Compare a result with what was recorded when it was written.

    Parts must all be there, have the SHA-256 in `_reconstruction.json`, and be made in the way that it says.
    Inputs that are still where they were must have the SHA-256 that they were read with.
    """
    path = Path(path)
    said = read_result(path)
    try:
        problems = list(_parts(path, said)) if path.is_dir() else []
        checked = [_input(one) for one in said["inputs"]]
        events, parts = int(said["events"]), len(said["parts"]) if path.is_dir() else 0
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{path}: written by an earlier Pairton, or damaged: it has no hashes to check") from None
    problems += [problem for problem in checked if problem]
    return Verified(events, parts, checked.count(""), checked.count(None), tuple(problems))


def _parts(folder: Path, said: Mapping[str, Any]) -> Iterator[str]:
    known = {str(part["name"]): part for part in said["parts"]}
    for name, part in known.items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            yield f"{path}: missing"
        elif file_sha256(path) != part["sha256"]:
            yield f"{path}: altered since it was written"
        else:
            done = Done.read(path)
            if done is None or done.key != part["key"] or len(done) != part["events"]:
                yield f"{path}: not made as {COMPLETE} says"
    for path in sorted(folder.glob("part-*")):
        if path.name not in known:
            yield f"{path}: not of this result"


def _input(one: Mapping[str, Any]) -> str | None:
    """A problem, "" for none, None where there is nothing to compare."""
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
    return "" if same else f"{name}: not the file that was read: its content is another"
