"""Atomic output: a file is written under a temporary name and renamed when it is complete."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pairton.errors import OutputError, PairtonError

__all__ = [
    "Replacement",
    "locked",
    "note_input",
    "output_errors",
    "protecting_inputs",
    "refuse_existing",
    "replacing",
]

LOCK = ".pairton.lock"


class Replacement:
    """A file that is being written: write to `temporary`, then call `commit` or `discard`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        folder = self.path.parent
        if not folder.is_dir():
            raise OutputError(f"{self.path}: there is no folder {folder}: create it first")
        if self.path.exists() and not self.path.is_file():
            raise OutputError(f"{self.path}: this is not a file that can be replaced: give a file name")
        if not os.access(folder, os.W_OK):
            raise OutputError(f"{self.path}: the folder {folder} is read-only: write elsewhere")
        if (given := _inputs.get(_identity(self.path))) is not None:
            raise OutputError(f"{self.path}: this is {given}, which was given as input: write to another file")
        # keep the suffix, since some libraries choose the format by it
        self.temporary = folder / f".{self.path.stem[:100]}.{secrets.token_hex(4)}{self.path.suffix}"

    def commit(self) -> None:
        """Flush to disk and give the file its name."""
        try:
            with output_errors(self.path):
                _sync(self.temporary)
                os.replace(self.temporary, self.path)
                with contextlib.suppress(OSError):  # not every system opens folders
                    _sync(self.path.parent)  # until then, a power cut may undo the rename
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _identity(path: str | Path) -> tuple[int, int] | None:
    """Device and inode of a file, which are the same under all its names."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def refuse_existing(path: str | Path | None, force: bool = False) -> None:
    """Refuse to replace a file without `force`."""
    if path is not None and not force and os.path.lexists(path):
        raise OutputError(f"{path} exists: give another name, or replace it with --force")


_inputs: dict[tuple[int, int] | None, str] = {}  # identity of each input file -> its name
_protecting = False


@contextmanager
def protecting_inputs() -> Iterator[None]:
    """Within the block, refuse to overwrite any file that was passed to `note_input`, even through a link."""
    global _protecting
    _protecting = True
    try:
        yield
    finally:
        _protecting = False
        _inputs.clear()


def note_input(path: str | Path) -> None:
    """Record that this command reads a file, so that it cannot overwrite it."""
    if _protecting and (identity := _identity(path)) is not None:
        _inputs[identity] = str(path)


@contextmanager
def locked(folder: Path, lock: Path | None = None) -> Iterator[None]:
    """Lock a folder so that only one run writes to it. The lock is released even if the process crashes.

    lock   the file that is locked, if it must not lie in the folder because the folder may be removed
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    path, acquired = lock or folder / LOCK, False
    with output_errors(path):
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # the files differ if the previous owner has just removed the lock
            acquired = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except (BlockingIOError, FileNotFoundError):
            acquired = False
        except OSError:  # a file system without locks
            acquired = True
        if not acquired:
            raise OutputError(f"{folder}: another run is writing there: wait for its end, or give another folder")
        yield
    finally:
        if acquired:
            path.unlink(missing_ok=True)
        os.close(descriptor)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to. It is renamed to `path` when the block ends, or removed if that fails.

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
    """Turn an OSError in the block, such as a full disk, into an OutputError."""
    try:
        yield
    except PairtonError:
        raise
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({_reason(error)}); nothing was left behind") from error


def _reason(error: OSError) -> str:
    text = " ".join((error.strerror or str(error)).split())
    match = re.search(r"\[errno \d+\] (.*)", text)  # Arrow's form of a system error
    return match[1] if match else text
