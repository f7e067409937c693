"""A folder of parts: which are there, whether they are as they were written, and when all are.

part-00000.parquet, ...   the rows, in order
_progress.jsonl           while the work goes on: the SHA-256 of every part that is finished, a line each
_reconstruction.json      when all are there: what one file would say of itself, and the parts with their SHA-256
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairton._common.atomic import output_errors, replacing
from pairton._common.configuration import parse_json
from pairton.errors import OutputError, PairtonError
from pairton.reconstruction.provenance import file_sha256, result_metadata

__all__ = ["COMPLETE", "Done", "Folder", "parts_in"]

COMPLETE = "_reconstruction.json"  # readers of folders skip _names
PROGRESS = "_progress.jsonl"
NAME = re.compile(r"part-\d+\.(parquet|root|h5)", re.IGNORECASE)


@dataclass(frozen=True)
class Done:
    """A part that is on disk."""

    path: Path
    key: str  # a hash of all that changes its content
    sha256: str
    status: Mapping[str, int]  # label -> events
    columns: tuple[str, ...]
    varied: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # the status of each variation
    first_bad: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # status -> file and row
    new: bool = True
    jets: int = 0  # that were used, where the model takes tags
    tagged: int = 0  # of those, with a b-tag

    def __len__(self) -> int:
        return sum(self.status.values())

    @classmethod
    def read(cls, path: Path, new: bool = True) -> Done | None:
        """What a part says of itself; None if it is none, or damaged."""
        said = result_metadata(path)
        try:
            if said is None:
                return None
            own, varied = said["part"], said.get("variation_status", {})
            first = {str(label): (str(file), int(row)) for label, (file, row) in said["first_bad"].items()}
            tags = int(said.get("jets", 0)), int(said.get("btagged_jets", 0))
            about = path, own["key"], file_sha256(path), said["status"], tuple(own["columns"])
            return cls(*about, varied, first, new, *tags)
        except (KeyError, TypeError, ValueError, AttributeError, PairtonError):
            return None


def parts_in(folder: Path) -> list[Path]:
    """The files of a folder that have names of parts, in order; those with other names are not ours."""
    return sorted(path for path in folder.glob("part-*") if NAME.fullmatch(path.name))


class Folder:
    """What is in a folder of parts; only its owner, who holds the lock, changes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.altered = 0  # parts that are not as they were written

    @property
    def is_complete(self) -> bool:
        return (self.path / COMPLETE).exists()

    def find(self, keys: Mapping[str, str], resume: bool, force: bool) -> dict[str, Done]:
        """The parts that are as this run would make them, by name; `keys` are those of all its parts."""
        there = parts_in(self.path)
        if there and not (resume or force):
            state = "the parts" if self.is_complete else f"{len(there)} parts"
            raise OutputError(
                f"{self.path} holds {state} of an earlier run: continue with --resume, replace them with --force"
            )
        foreign = [path for path in there if path.name not in keys]
        if foreign and not force:
            raise OutputError(
                f"{self.path} holds {foreign[0].name}, which is not of these inputs: remove it, or give another "
                "folder"
            )
        with output_errors(self.path):
            for path in foreign:
                path.unlink()
        if force and not resume:
            return {}
        found: dict[str, Done] = {}
        written = self.written()
        for path in there:
            done = Done.read(path, new=False) if path.name in keys else None
            if path.name in written and (done is None or written[path.name] != done.sha256):
                self.altered += 1
            elif done is not None and done.key == keys[path.name] and path.name in written:
                found[path.name] = done
        return found

    def written(self) -> dict[str, str]:
        """The SHA-256 of parts when they were written, by name."""
        found: dict[str, str] = {}
        try:
            if self.is_complete:
                for part in parse_json((self.path / COMPLETE).read_bytes(), COMPLETE)["parts"]:
                    found[str(part["name"])] = str(part["sha256"])
            else:
                for line in (self.path / PROGRESS).read_text(encoding="utf-8").splitlines():
                    part = json.loads(line)  # the last line may be cut short
                    found[str(part["name"])] = str(part["sha256"])
        except (OSError, ValueError, KeyError, TypeError, PairtonError):
            pass  # what is not known to be good is made again
        return found

    def begin(self, finished: Iterable[Done]) -> None:
        """The work goes on: what was said of the whole is no longer so."""
        with replacing(self.path / PROGRESS) as temporary:
            temporary.write_text("".join(map(_line, finished)), encoding="utf-8")
        with output_errors(self.path):
            (self.path / COMPLETE).unlink(missing_ok=True)

    def note(self, done: Done) -> None:
        """A part is finished."""
        with output_errors(self.path / PROGRESS), open(self.path / PROGRESS, "a", encoding="utf-8") as stream:
            stream.write(_line(done))
            stream.flush()
            os.fsync(stream.fileno())

    def complete(self, finished: Iterable[Done], said: Mapping[str, Any], begun: float) -> None:
        """All parts are there: say so, if they still are as they were written."""
        for done in finished:
            if not done.path.is_file() or file_sha256(done.path) != done.sha256:
                raise OutputError(
                    f"{done.path}: it changed since this run wrote it: does another run write to the same folder? "
                    "Run again with --resume"
                )
        with replacing(self.path / COMPLETE) as temporary:
            temporary.write_text(json.dumps(said, indent=1), encoding="utf-8")
        with output_errors(self.path):
            (self.path / PROGRESS).unlink(missing_ok=True)
            for left in self.path.glob(".part-*"):  # of runs that were killed; a slow worker may still write
                if left.stat().st_mtime < begun:
                    left.unlink(missing_ok=True)


def _line(done: Done) -> str:
    return json.dumps({"name": done.path.name, "sha256": done.sha256}) + "\n"
