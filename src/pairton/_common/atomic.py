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

__all__ = [
    "CompleteOrNothing",
    "Replacement",
    "discard_unfinished",
    "locked",
    "note_input",
    "output_errors",
    "protecting_inputs",
    "replacing",
]

LOCK = ".pairton.lock"


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
        with contextlib.suppress(OSError):
            found = os.stat(self.path)
            if (given := _inputs.get((found.st_dev, found.st_ino))) is not None:
                raise OutputError(f"{self.path}: this is {given}, which was given as input: write to another file")
        # the suffix stays: some libraries choose a format by it
        self.temporary = folder / f".{self.path.stem[:100]}.{secrets.token_hex(4)}{self.path.suffix}"
        _unfinished.add(self.temporary)

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
                _sync_folder(self.path.parent)
            _unfinished.discard(self.temporary)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)
        _unfinished.discard(self.temporary)


_unfinished: set[Path] = set()  # temporary files of this process


def discard_unfinished() -> None:
    """Remove all files in the making, before the process ends at once."""
    for path in list(_unfinished):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Until then, a power cut may undo a rename."""
    with contextlib.suppress(OSError):  # not every system opens folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_inputs: dict[tuple[int, int], str] = {}  # device and inode of what a command reads -> its name
_protecting = False


@contextmanager
def protecting_inputs() -> Iterator[None]:
    """Within the block no output replaces a file that `note_input` was told of, under whatever name."""
    global _protecting
    _protecting = True
    try:
        yield
    finally:
        _protecting = False
        _inputs.clear()


def note_input(path: str | Path) -> None:
    """What this command reads, it must not overwrite."""
    if _protecting:
        with contextlib.suppress(OSError):
            found = os.stat(path)
            _inputs[found.st_dev, found.st_ino] = str(path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one run at a time writes to a folder; the lock ends with its process, however that ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    path, mine = folder / LOCK, False
    with output_errors(path):
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.samestat(os.fstat(descriptor), os.stat(path))  # else its owner has just removed it
        except (BlockingIOError, FileNotFoundError):
            mine = False
        except OSError:  # a file system without locks
            mine = True
        if not mine:
            raise OutputError(f"{folder}: another run is writing there: wait for its end, or give another folder")
        yield
    finally:
        if mine:
            path.unlink(missing_ok=True)
        os.close(descriptor)


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
