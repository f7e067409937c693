"""The folder of a result in parts: which parts exist, whether they have changed, and whether all are done.

part-00000.parquet, ...   the rows, in order
_progress.jsonl           during the run: one line per finished part, with its SHA-256
_reconstruction.json      after the run: the metadata of the whole result, and the SHA-256 of each part
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from pairton._common.atomic import output_errors, replacing
from pairton._common.configuration import parse_json
from pairton.errors import OutputError, PairtonError
from pairton.reconstruction.provenance import file_sha256, result_metadata

__all__ = ["COMPLETE", "Done", "Folder", "parts_in"]

COMPLETE = "_reconstruction.json"  # programs that read Parquet folders skip names with _
PROGRESS = "_progress.jsonl"
NAME = re.compile(r"part-\d+\.(parquet|root|h5)", re.IGNORECASE)


@dataclass(frozen=True)
class Done:
    """A part that is on disk."""

    path: Path
    key: str  # a hash of everything that changes its content
    sha256: str
    status: Mapping[str, int]  # label -> events
    columns: tuple[str, ...]
    varied: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # variation -> the same as `status`
    first_bad: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # status -> file and row
    new: bool = True  # whether this run has made it
    jets: int = 0  # number of jets that were used, if the model takes tags
    tagged: int = 0  # number of b-tagged ones among them

    def __len__(self) -> int:
        return sum(self.status.values())

    @classmethod
    def read(cls, path: Path, new: bool = True) -> Done | None:
        """A part from its metadata; None if the file is not a part, or damaged."""
        metadata = result_metadata(path)
        try:
            if metadata is None:
                return None
            own, varied = metadata["part"], metadata.get("variation_status", {})
            first = {str(label): (str(file), int(row)) for label, (file, row) in metadata["first_bad"].items()}
            tags = int(metadata.get("jets", 0)), int(metadata.get("btagged_jets", 0))
            about = path, own["key"], file_sha256(path), metadata["status"], tuple(own["columns"])
            return cls(*about, varied, first, new, *tags)
        except (KeyError, TypeError, ValueError, AttributeError, PairtonError):
            return None


def parts_in(folder: Path) -> list[Path]:
    """The files in a folder that are named like parts, in order."""
    return sorted(path for path in folder.glob("part-*") if NAME.fullmatch(path.name))


class Folder:
    """A folder of parts; only the process that holds its lock may change it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.altered = 0  # number of parts that changed since they were written

    @property
    def is_complete(self) -> bool:
        return (self.path / COMPLETE).exists()

    def find(self, keys: Mapping[str, str], resume: bool, force: bool) -> dict[str, Done]:
        """The existing parts that this run can keep, by name; `keys` are the keys of all parts of this run."""
        existing = parts_in(self.path)
        if existing and not (resume or force):
            state = "the parts" if self.is_complete else f"{len(existing)} parts"
            raise OutputError(
                f"{self.path} holds {state} of an earlier run: continue it with --resume, or replace it with "
                "--force"
            )
        foreign = [path for path in existing if path.name not in keys]
        if foreign and not force:
            raise OutputError(
                f"{self.path} holds {foreign[0].name}, which does not belong to these inputs: remove it, or give "
                "another folder"
            )
        with output_errors(self.path):
            for path in foreign:
                path.unlink()
        if force and not resume:
            return {}
        found: dict[str, Done] = {}
        written = self.written()
        for path in existing:
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
                    part = json.loads(line)  # the last line may be truncated
                    found[str(part["name"])] = str(part["sha256"])
        except (OSError, ValueError, KeyError, TypeError, PairtonError):
            pass  # parts without a hash are made again
        return found

    def begin(self, finished: Iterable[Done]) -> None:
        """Start a run: record the finished parts, and remove the file that marks the result as complete."""
        with replacing(self.path / PROGRESS) as temporary:
            temporary.write_text("".join(map(_line, finished)), encoding="utf-8")
        with output_errors(self.path):
            (self.path / COMPLETE).unlink(missing_ok=True)

    def note(self, done: Done) -> None:
        """Record that a part is finished."""
        with output_errors(self.path / PROGRESS), open(self.path / PROGRESS, "a", encoding="utf-8") as stream:
            stream.write(_line(done))
            stream.flush()
            os.fsync(stream.fileno())

    def complete(self, finished: Iterable[Done], metadata: Mapping[str, Any], begun: float) -> None:
        """Mark the result as complete, after a check that no part has changed since it was written."""
        for done in finished:
            if not done.path.is_file() or file_sha256(done.path) != done.sha256:
                raise OutputError(
                    f"{done.path}: changed since this run wrote it; perhaps another run writes to the same "
                    "folder: run again with --resume"
                )
        with replacing(self.path / COMPLETE) as temporary:
            temporary.write_text(json.dumps(metadata, indent=1), encoding="utf-8")
        with output_errors(self.path):
            (self.path / PROGRESS).unlink(missing_ok=True)
        self.remove_unfinished(begun)  # newer ones may still be written

    def remove_unfinished(self, before: float = inf) -> None:
        """Remove the files of parts that were not finished, because their process was killed."""
        with output_errors(self.path):
            for left in self.path.glob(".part-*"):
                if left.stat().st_mtime < before:
                    left.unlink(missing_ok=True)


def _line(done: Done) -> str:
    return json.dumps({"name": done.path.name, "sha256": done.sha256}) + "\n"
