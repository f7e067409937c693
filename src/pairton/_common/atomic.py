"""Outputs appear under their name only when they are complete: a temporary name beside it, then a rename."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from pairton.errors import OutputError, PairtonError

__all__ = ["CompleteOrNothing", "Replacement", "output_errors", "replacing"]


class CompleteOrNothing(ABC):
    """A writer as a context manager: complete under the final name, or nothing is."""

    @abstractmethod
    def close(self) -> None:
        """Finish the file and give it its final name."""

    @abstractmethod
    def abort(self) -> None:
        """Remove what was written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class Replacement:
    """A file in the making: write to `temporary`, then `commit` or `discard`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     new = Replacement(Path(folder) / "numbers.txt")
    ...     _ = new.temporary.write_text("1 2 3")
    ...     before = new.path.exists()
    ...     new.commit()
    ...     before, new.path.read_text()
    (False, '1 2 3')
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        folder = self.path.parent
        if not folder.is_dir():
            raise OutputError(f"{self.path}: there is no folder {folder}: create it first")
        if self.path.exists() and not self.path.is_file():
            raise OutputError(f"{self.path}: this is not a file that can be replaced: give a file name")
        if not os.access(folder, os.W_OK):
            raise OutputError(f"{self.path}: the folder {folder} is read-only: write elsewhere")
        # the suffix stays: some libraries choose a format by it
        self.temporary = folder / f".{self.path.stem[:100]}.{secrets.token_hex(4)}{self.path.suffix}"

    def commit(self) -> None:
        """Flush to disk and give the file its name."""
        try:
            with output_errors(self.path):
                descriptor = os.open(self.temporary, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                os.replace(self.temporary, self.path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to: it takes the name `path` when the block ends, or is gone if it fails.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "table.json") as temporary:
    ...         _ = temporary.write_text("{}")
    ...     [entry.name for entry in Path(folder).iterdir()]
    ['table.json']
    """
    new = Replacement(path)
    try:
        with output_errors(new.path):
            yield new.temporary
    except BaseException:
        new.discard()
        raise
    new.commit()


@contextmanager
def output_errors(path: str | Path) -> Iterator[None]:
    """A full disk or a missing permission becomes an OutputError of one line."""
    try:
        yield
    except PairtonError:
        raise
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({_reason(error)}); nothing was left behind") from error


def _reason(error: OSError) -> str:
    text = " ".join((error.strerror or str(error)).split())
    said = re.search(r"\[errno \d+\] (.*)", text)  # how Arrow passes on the system's error
    return said[1] if said else text
