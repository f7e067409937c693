"""Find files (lists, globs, URLs), recognise their container by the first bytes, and compute fingerprints."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from pairton._common.atomic import note_input
from pairton._common.configuration import read_text
from pairton.errors import InputError, MissingExtraError, PairtonError

__all__ = [
    "CONTAINERS",
    "check_address",
    "container_of",
    "digest",
    "expand",
    "file_state",
    "fingerprint",
    "fsspec_options",
    "is_url",
    "one_line",
    "open_binary",
    "reading_as",
    "refuse_inflated",
    "sample_file",
    "unchanged",
]

# suffix -> container
CONTAINERS = {
    ".h5": "HDF5",
    ".hdf5": "HDF5",
    ".hdf": "HDF5",
    ".root": "ROOT",
    ".parquet": "Parquet",
    ".pq": "Parquet",
}
SIGNATURES = {"ROOT": b"root", "Parquet": b"PAR1", "HDF5": b"\x89HDF\r\n\x1a\n"}
FINGERPRINT_BYTES = 65_536
MOST_LIST = 2**24  # bytes of a list of files
COMMENT = re.compile(r"(^|\s)#.*")  # in a list of files; a name may contain #
TIMEOUT = 60  # seconds that a server has to answer a request
GLOB = "*?["
SAMPLE = "sample:"  # prefix for the sample events in the package
LIST, URL_LIST = "@", "urls:"  # prefixes for a list of files, and for one that may name URLs
SCHEMES = ("http", "https", "root", "s3", "gs")  # of URLs, and those in
MORE_SCHEMES = "PAIRTON_SCHEMES"  # this environment variable, separated by commas

Paths = str | Path | Sequence[str | Path]
State = tuple[int, int, int]  # inode, size, time of the last change
MOST_BYTES = 2**28  # of uncompressed values that are read together, or
MOST_INFLATED = 100  # times the size of the file, if that is more


def is_url(path: str) -> bool:
    """Whether a path is remote; `file://` is local."""
    return "://" in path and not path.startswith("file://")


def check_address(path: str) -> None:
    """Raise InputError for an address that must not be opened. Each file is opened after this check.

    fsspec has schemes, and chains of them, that evaluate templates, run commands or read other files.
    """
    if "::" in path:
        raise InputError(f"{path}: chains of addresses (::) are not read: give one file or URL, without ::")
    scheme, separator, rest = path.partition("://")
    if not separator or scheme == "file":
        return
    if "@" in rest.lstrip("/").split("/")[0]:
        raise InputError(
            f"{path}: a URL with a user or a password would be stored in results: remove it, and give the "
            "password to the client of the protocol (~/.netrc for http and https)"
        )
    allowed = [*SCHEMES, *os.environ.get(MORE_SCHEMES, "").replace(",", " ").split()]
    if scheme not in allowed:
        raise InputError(
            f"{path}: URLs of {scheme}:// are not read, only those of {', '.join(allowed)}: download the file, "
            f"or, if you trust the address, set {MORE_SCHEMES}={scheme} in the environment"
        )


def expand(paths: Paths) -> list[str]:
    """The files that paths, globs, URLs and lists of files stand for, in the given order.

    A list, `@list.txt`, has one path per line, relative to its own folder, and comments after # at the start of a
    line or after a space. `urls:list.txt` is a list that may name URLs. `sample:ttbar_allhad` stands for the
    sample events in the package.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise InputError("no input file: give at least one file, glob, URL or @list.txt")
    lists: set[str] = set()
    seen: dict[str, str] = {}
    for path in (path for entry in given for path in _expand_one(os.fspath(entry), lists)):
        if not is_url(path):
            if not os.path.isfile(path):  # reading a pipe may block, and a device may never end
                raise InputError(f"{path}: this is not a regular file: copy its content to a file first")
            note_input(path)
        place = path if is_url(path) else os.path.realpath(path)
        if place in seen:
            also = f", also as {seen[place]}" if seen[place] != path else ""
            raise InputError(f"{path}: given twice{also}, so its events would count twice: remove one")
        seen[place] = path
    return [*seen.values()]


def _expand_one(entry: str, lists: set[str], within: Path | None = None, urls: bool = True) -> list[str]:
    """within: the list that has the entry, and urls: whether it may name URLs.

    lists: those that were read already. Each is read once, so that lists cannot refer to each other forever.
    """
    folder = Path() if within is None else within.parent
    if not urls and (is_url(entry) or entry.startswith(URL_LIST)):
        raise InputError(
            f"@{within}: this list names URLs, which are read only if you ask for it: check them, and give the "
            f"list as {URL_LIST}{within}"
        )
    for prefix in (LIST, URL_LIST):
        if entry.startswith(prefix):
            path = folder / _home(entry.removeprefix(prefix))
            return _from_list(path, lists, prefix == URL_LIST or (urls and within is not None))
    if entry.startswith(SAMPLE):
        return [str(sample_file(entry.removeprefix(SAMPLE)))]
    check_address(entry)
    if is_url(entry):
        return _remote_glob(entry) if "*" in entry else [entry]
    name = str(folder / _home(entry.removeprefix("file://")))
    if any(sign in name for sign in GLOB) and not os.path.exists(name):
        return sorted(glob.glob(name, recursive=True)) or _missing(f"{name}: no file matches")
    if os.path.isdir(name):
        raise InputError(f"{name}: this is a folder: give its files, for example {os.path.join(name, '*.h5')}")
    return [name] if os.path.exists(name) else _missing(f"{name}: no such file")


def _missing(what: str) -> list[str]:
    raise InputError(f"{what}; check the name and the folder")


def _home(path: str) -> str:
    """The path with `~` replaced, if there is such a user."""
    return path if "\0" in path else os.path.expanduser(path)


def sample_file(topology: str = "ttbar_allhad") -> Path:
    """The file of the sample events for a topology."""
    folder = Path(__file__).parent.parent / "samples"
    known = sorted(path.stem for path in folder.glob("*.h5"))
    if topology not in known:
        raise InputError(f"no sample events for {topology!r} in the package: there are {', '.join(known)}")
    return folder / f"{topology}.h5"


def _from_list(path: Path, lists: set[str], urls: bool) -> list[str]:
    place = os.path.realpath(path)
    if place in lists:
        raise InputError(f"@{path}: this list is given twice, perhaps by itself: give it once")
    lists.add(place)
    note_input(path)
    lines = [COMMENT.sub("", line).strip() for line in read_text(path, InputError, MOST_LIST).splitlines()]
    found = [name for line in lines if line for name in _expand_one(line, lists, path, urls)]
    if not found:
        raise InputError(f"@{path}: this list is empty: write one path per line")
    return found


def _remote_glob(url: str) -> list[str]:
    import fsspec

    try:
        system, _, (pattern,) = fsspec.get_fs_token_paths(url, expand=False, storage_options=fsspec_options(url))
        found = sorted(system.unstrip_protocol(name) for name in system.glob(pattern))
    except PairtonError:
        raise
    except Exception as error:  # each file system raises its own kinds
        raise InputError(f"{url}: cannot list remote files ({one_line(error)})") from None
    return found or _missing(f"{url}: no remote file matches")


def open_binary(path: str) -> IO[bytes]:
    """Open a local or remote file for reading."""
    check_address(path)
    try:
        if is_url(path):
            import fsspec

            stream = cast("IO[bytes]", fsspec.open(path, "rb", **fsspec_options(path)).open())
            if getattr(stream, "size", 0) is None:  # a stream that cannot be read in parts and may never end
                stream.close()
                raise OSError("the server does not say how long it is, or sends no parts of it: download it first")
            return stream
        return open(path, "rb")
    except FileNotFoundError as error:
        if is_url(path):  # fsspec also raises this for hosts that do not answer
            reason = one_line(error.__cause__ or "not found")
            raise InputError(f"{path}: no such file ({reason}): check the address and the network") from None
        raise InputError(f"{path}: no such file; check the name and the folder") from None
    except IsADirectoryError:
        raise InputError(f"{path}: this is a folder: give its files") from None
    except PairtonError:
        raise
    except Exception as error:  # permissions, network, a missing driver
        raise InputError(f"{path}: cannot be opened ({one_line(error)})") from None


def fsspec_options(url: str) -> dict[str, Any]:
    """Options of fsspec that limit how long a server may take to answer, and take passwords from ~/.netrc."""
    if not url.startswith(("http://", "https://")):
        return {}  # other protocols have their own limits
    try:
        from aiohttp import ClientTimeout
    except ImportError:
        raise MissingExtraError("http", "aiohttp") from None
    return {"client_kwargs": {"timeout": ClientTimeout(total=TIMEOUT), "trust_env": True}}


def container_of(path: str, needed: str | None = None) -> str:
    """HDF5, ROOT or Parquet, by the first bytes of the file.

    InputError if it is not the container that is needed for a format, or else the one that the suffix states.
    """
    with open_binary(path) as stream:
        head = _read(path, stream, 8)
    if not head:
        raise InputError(f"{path}: the file is empty: write it again, or remove it from the input")
    found = next((kind for kind, sign in SIGNATURES.items() if head.startswith(sign)), None)
    stated = CONTAINERS.get(Path(path).suffix.lower())
    if found is None:
        if head.startswith(b"<LesHouc") or ".lhe" in Path(path).suffixes:
            raise InputError(
                f"{path}: events of a generator have no jets yet: simulate them first with "
                "`pairton generate TOPOLOGY --lhe FILE -o events.h5`"
            )
        negation = f"not {stated}, as its suffix says, nor" if stated else "not"
        rest = " or ".join(kind for kind in ("HDF5", "ROOT", "Parquet") if kind != stated)
        raise InputError(
            f"{path}: the content is {negation} {rest} (it begins with {head!r}): check how it was written"
        )
    if needed is not None and found != needed:
        raise InputError(f"{path}: the content is {found}, not {needed}: choose another --set format, or none")
    if needed is None and found != (stated or found):
        raise InputError(
            f"{path}: the content is {found}, but the suffix says {stated}: rename it, or give --set format=NAME"
        )
    return found


def fingerprint(path: str) -> int:
    """A hash of 64 bits from the size, the beginning and the end of a file; it does not depend on the name."""
    with open_binary(path) as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        head = _read(path, stream, FINGERPRINT_BYTES)
        stream.seek(max(size - FINGERPRINT_BYTES, 0))
        tail = _read(path, stream, FINGERPRINT_BYTES)
    return digest(size.to_bytes(8, "little") + head + tail)


@contextmanager
def unchanged(path: str, since: State | None = None) -> Iterator[None]:
    """Raise InputError if a local file is replaced, written or removed in the block; since: an earlier state."""
    before = since or file_state(path)
    try:
        yield
    except InputError:  # a file that looks damaged may have been overwritten
        if file_state(path) == before:
            raise
    if file_state(path) != before:
        raise InputError(f"{path}: the file changed while it was read: wait until it is complete, and start again")


def file_state(path: str) -> State | None:
    """Inode, size and time of the last change of a local file; None for a URL or a missing file."""
    try:
        found = None if is_url(path) else os.stat(path)
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


def digest(content: bytes) -> int:
    """A hash of 64 bits, as an unsigned number."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _read(path: str, stream: IO[bytes], count: int) -> bytes:
    try:
        return stream.read(count)
    except Exception as error:  # a network or a disk that fails
        raise InputError(f"{path}: cannot be read ({one_line(error)})") from None


@contextmanager
def reading_as(container: str, path: str) -> Iterator[None]:
    """Turn any error of a library into an InputError, since libraries raise many kinds for damaged files."""
    try:
        yield
    except PairtonError:
        raise
    except Exception as error:
        raise InputError(
            f"{path}: cannot be read as {container}, because it is damaged or truncated ({one_line(error)})"
        ) from error


def refuse_inflated(path: str, declared: int, size: int, most: int = MOST_INFLATED) -> None:
    """Raise InputError if a file of `size` bytes declares far more bytes of values than it can hold."""
    if declared > MOST_BYTES and declared > most * size:
        raise InputError(
            f"{path}: declares {declared / 2**20:.0f} MiB of values in {size} bytes: it is damaged, or made to "
            "exhaust the memory"
        )


def one_line(error: BaseException | str, limit: int = 200) -> str:
    """The message of a library's error, shortened to one line."""
    text: Any = error
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    message = " ".join(str(text).split()) or type(error).__name__
    return message if len(message) <= limit else message[: limit - 1] + "…"
