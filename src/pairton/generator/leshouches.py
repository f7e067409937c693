"""Counts the events of Les Houches files and reads their weights. Pythia reads the rest."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from pairton.errors import InputError

__all__ = ["LHEFile", "read_weights", "scan"]

# Free text, which may contain any tag.
SKIPPED = {b"<header": b"</header>", b"<!--": b"-->"}
BLOCK = re.compile(rb"\s*<(init|event)[\s>]")  # but not <initrwgt>, <eventgroup>
UNIT, WEIGHTED = 3, 4  # weight strategies, without sign, in which Pythia uses every event of the file


@dataclass(frozen=True)
class LHEFile:
    """A Les Houches file."""

    path: str
    n_events: int
    sha256: str


def scan(path: str | Path) -> LHEFile:
    """Count the events of a file, plain or gzipped, and hash it."""
    weights, digest = _read(Path(path))
    return LHEFile(str(Path(path).resolve()), len(weights), digest)


def read_weights(file: LHEFile) -> npt.NDArray[np.float64]:
    """The nominal weights of all events, in the order of the file."""
    weights, digest = _read(Path(file.path))
    if digest != file.sha256:
        raise InputError(f"{file.path} has changed since this run started: start again with another output")
    return weights


def _read(path: Path) -> tuple[npt.NDArray[np.float64], str]:
    digest = hashlib.sha256()
    weights: list[float] = []
    block, end = b"", b""
    try:
        with _open(path) as stream:
            for line in stream:
                digest.update(line)
                if not end:
                    end = next((end for start, end in SKIPPED.items() if line.lstrip().startswith(start)), b"")
                if end:
                    end = b"" if end in line else end
                elif match := BLOCK.match(line):
                    block = match[1]
                elif block and (fields := line.split()):  # the first line of the block
                    if block == b"init":
                        _check_strategy(int(fields[8]), path)
                    else:
                        weights.append(float(fields[2]))  # after number of particles and process
                    block = b""
    except (OSError, EOFError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    except (IndexError, ValueError) as error:
        what = "<init> has no weight strategy" if block == b"init" else f"event {len(weights)} has no weight"
        raise InputError(f"{path}: {what}: is it a Les Houches file?") from error
    if not weights:
        raise InputError(f"{path} has no <event>: --lhe takes a Les Houches event file, plain or gzipped")
    return np.array(weights), digest.hexdigest()


def _check_strategy(strategy: int, path: Path) -> None:
    if abs(strategy) not in (UNIT, WEIGHTED):
        raise InputError(
            f"{path} has weight strategy {strategy}, in which Pythia leaves out events: write it with "
            "unit weights (3, -3) or weighted events (4, -4)"
        )


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]
