"""Counts the events of Les Houches files. Pythia reads them, and their weights."""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from pairton.errors import InputError
from pairton.formats.files import refuse_inflated

__all__ = ["LHEFile", "scan"]

BLOCK = re.compile(rb"\s*<(init|event)[\s>]")  # but not <initrwgt>, <eventgroup>
MOST_LINE = 2**16  # bytes of a line that are read at once


@dataclass(frozen=True)
class LHEFile:
    """A Les Houches file."""

    path: str
    n_events: int
    sha256: str


def scan(path: str | Path) -> LHEFile:
    """Count the events of a file, plain or gzipped, and hash its content."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: this is not a regular file: copy its content to a file first")
    digest, size, n_events = hashlib.sha256(), 0, 0
    try:
        stored = path.stat().st_size
        with _open(path) as stream:
            for line in iter(partial(stream.readline, MOST_LINE), b""):
                digest.update(line)
                size += len(line)
                refuse_inflated(str(path), size, stored)
                if match := BLOCK.match(line):  # before <init>, headers and comments may mention any tag
                    n_events = 0 if match[1] == b"init" else n_events + 1
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not n_events:
        raise InputError(f"{path} has no <event>: --lhe takes a Les Houches event file, plain or gzipped")
    return LHEFile(str(path.resolve()), n_events, digest.hexdigest())


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]
