"""Read untrusted files in a separate process, so that a crash of a library does not end the caller.

The child process opens one file, with limits on memory and time, and sends events as plain arrays. Neither side
unpickles anything. A message is its length, followed by an archive of arrays (npz without pickle) with a JSON
header.
"""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton import errors
from pairton.errors import InputError, PairtonError, PairtonWarning
from pairton.events import Events
from pairton.formats.base import Source
from pairton.formats.files import one_line
from pairton.topology import Topology, load_topology, parse_topology

__all__ = ["IsolatedSource", "Limits", "decode_events", "encode_events"]

Arrays = dict[str, npt.NDArray[Any]]
HEADER = "header"
SIZE = struct.Struct("<Q")


@dataclass(frozen=True)
class Limits:
    """Limits on the process that reads a file."""

    memory: int = 4 * 2**30  # bytes, in addition to the interpreter and its libraries
    seconds: float = 120  # for opening the file, and for each chunk
    message: int = 8 * 2**30  # bytes per chunk


# -- events as plain arrays --------------------------------------------------------------------------------


def encode_events(events: Events) -> tuple[dict[str, Any], Arrays]:
    """Events, except for their topology, as a header for JSON and plain arrays."""
    arrays: Arrays = {"ids": events.ids}
    if events.truth is not None:
        arrays["truth"] = events.truth
    if events.weights is not None:
        arrays["weights"] = events.weights
    ragged: dict[str, Any] = {f"object:{kind}": objects for kind, objects in events.objects.items()}
    ragged |= {f"column:{name}": column for name, column in events.columns.items()}
    for name, varied in events.variations.items():
        ragged |= {f"variation:{name}:{kind}": objects for kind, objects in varied.items()}
    forms = {}
    for name, array in ragged.items():
        form, length, buffers = ak.to_buffers(ak.to_packed(ak.Array(array)))
        forms[name] = {"form": form.to_dict(), "length": length, "dense": isinstance(array, np.ndarray)}
        arrays |= {f"{name}/{key}": np.asarray(buffer) for key, buffer in buffers.items()}
    return {"forms": forms, "metadata": dict(events.metadata)}, arrays


def decode_events(header: Mapping[str, Any], arrays: Mapping[str, Any], topology: Topology) -> Events:
    """The inverse of `encode_events`; ValueError or TypeError if the parts do not fit together."""
    found: dict[str, Any] = {}
    for name, part in header["forms"].items():
        prefix = f"{name}/"
        buffers = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
        array = ak.from_buffers(part["form"], part["length"], buffers)
        if problem := ak.validity_error(array):
            raise ValueError(problem)
        found[name] = ak.to_numpy(array) if part["dense"] else array
    variations: dict[str, dict[str, Any]] = {}
    for name, array in _part(found, "variation:").items():
        variation, _, kind = name.rpartition(":")
        variations.setdefault(variation, {})[kind] = array
    return Events(
        _part(found, "object:"),
        topology,
        arrays.get("truth"),
        arrays.get("weights"),
        arrays["ids"],
        _part(found, "column:"),
        header["metadata"],
        variations,
    )


def _part(found: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): array for name, array in found.items() if name.startswith(prefix)}


def _send(stream: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> None:
    payload = io.BytesIO()
    text = np.frombuffer(json.dumps(header, default=str).encode(), dtype=np.uint8)
    content: dict[str, Any] = {HEADER: text, **(arrays or {})}
    np.savez(payload, **content)
    stream.write(SIZE.pack(payload.tell()))
    stream.write(payload.getbuffer())
    stream.flush()


def _receive(stream: IO[bytes], limit: int) -> tuple[dict[str, Any], Arrays]:
    """Read a message; EOFError if the other process has ended, ValueError if the message is not valid."""
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        raise EOFError
    (size,) = SIZE.unpack(head)
    if size > limit:
        raise ValueError(f"a message of {size} bytes")
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays.pop(HEADER).tobytes())
    if not isinstance(header, dict):
        raise ValueError("a header that is not a mapping")
    return header, arrays


# -- the parent process ------------------------------------------------------------------------------------


class IsolatedSource(Source):
    """A file that is open in a child process."""

    def __init__(
        self,
        path: str,
        format: str | None = None,
        *,
        topology: Topology | str | Path | None = None,
        limits: Limits | None = None,
        **options: Any,
    ) -> None:
        self.path = path
        self._limits = limits or Limits()
        # -P: do not import modules from the current folder
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pairton.formats.isolation"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        tree = None if topology is None else load_topology(topology).to_dict()
        options.pop("bad_labels", None)  # the child process counts them itself
        request = {"path": path, "format": format, "topology": tree, "options": options}
        try:
            answer, _ = self._ask(request | {"limits": asdict(self._limits)})
            self.format = str(answer["format"])
            self.n_events, self.has_truth = int(answer["n_events"]), bool(answer["has_truth"])
            self.metadata, self.tagging = answer["metadata"], str(answer["tagging"])
            self.read_as, self.chosen = answer["read_as"], answer["chosen"]
            self.topology = parse_topology(answer["topology"], path)
        except BaseException:
            self._end()
            raise

    def taggers(self) -> list[dict[str, Any]]:
        header, _ = self._ask({"taggers": True})
        return list(header.get("taggers", ()))

    def read(self, start: int, stop: int) -> Events:
        header, arrays = self._ask({"read": [start, stop]})
        try:
            events = decode_events(header, arrays, self.topology)
        except (ValueError, KeyError, TypeError, PairtonError) as error:
            raise InputError(
                f"{self.path}: the process that reads it sent invalid events ({one_line(error)}): the file may be "
                "damaged"
            ) from error
        if len(events) != stop - start:
            raise InputError(
                f"{self.path}: the process that reads it sent {len(events)} of the rows {start} to {stop}: the "
                "file may be damaged"
            )
        return events

    def close(self) -> None:
        try:
            if self._process.poll() is None:
                self._ask({"close": True})
        finally:
            self._end()

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
        """Send a request to the child process and return its answer; InputError if it crashes or is too slow."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(self._limits.seconds, give_up)
        timer.start()
        try:
            _send(self._process.stdin, request)
            header, arrays = _receive(self._process.stdout, self._limits.message)
        except (EOFError, OSError):
            raise InputError(self._gone(late.is_set())) from None
        except Exception as error:  # a corrupted child process may send anything
            self._process.kill()
            raise InputError(
                f"{self.path}: the process that reads it sent an invalid answer ({one_line(error)}): the file may "
                "be damaged"
            ) from None
        finally:
            timer.cancel()
        for text in header.get("warnings", ()):
            warnings.warn(str(text), PairtonWarning, stacklevel=3)
        if "error" in header:
            kind = getattr(errors, str(header["error"]), InputError)
            known = isinstance(kind, type) and issubclass(kind, PairtonError)
            known = known and kind is not errors.MissingExtraError  # it has other arguments
            raise (kind if known else InputError)(str(header["message"]))
        return header, arrays

    def _gone(self, late: bool) -> str:
        """Why the child process has ended."""
        if late:
            return (
                f"{self.path}: stopped, since reading it took longer than {self._limits.seconds:g} s: it may be "
                "damaged"
            )
        code = self._process.wait()
        how = f"exit code {code}"
        if code < 0:
            how = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"{self.path}: the library that reads it crashed ({how}): the file is damaged or malicious"

    def _end(self) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:  # raised if data could not be sent
                pass
        self._process.wait()


# -- the child process -------------------------------------------------------------------------------------


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Open one file, and answer requests until the parent process ends."""
    from pairton.formats import open_source
    from pairton.formats.common import BadLabels

    request, _ = _receive(requests, 2**30)
    limits = Limits(**request["limits"])
    path, bad_labels = str(request["path"]), BadLabels()
    source: Source | None = None
    _restrict(limits.memory)
    while True:
        _more_time(limits.seconds)
        header: dict[str, Any] = {}
        arrays: Arrays = {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                if source is None:
                    tree = None if request["topology"] is None else parse_topology(request["topology"], path)
                    options = {"topology": tree, "bad_labels": bad_labels, **request["options"]}
                    source = open_source(path, request["format"], **options)
                    header = {"format": source.format, "n_events": source.n_events}
                    header |= {"has_truth": bool(source.has_truth), "metadata": dict(source.metadata)}
                    header |= {
                        "topology": source.topology.to_dict(),
                        "tagging": source.tagging,
                        "read_as": dict(source.read_as),
                        "chosen": dict(source.chosen),
                    }
                elif "close" in request:
                    bad_labels.warn()
                elif "taggers" in request:
                    header = {"taggers": source.taggers()}
                else:
                    header, arrays = encode_events(source.read(*request["read"]))
            except PairtonError as error:
                header = {"error": type(error).__name__, "message": str(error)}
            except MemoryError:
                gib = limits.memory / 2**30
                header = {"error": "InputError"}
                header["message"] = f"{path}: reading it takes more than {gib:.3g} GiB: it may be damaged"
            except Exception as error:  # a damaged file may cause any error
                message = f"{path}: cannot be read ({type(error).__name__}: {one_line(error)})"
                header = {"error": "InputError", "message": message}
        header["warnings"] = [str(w.message) for w in caught if issubclass(w.category, PairtonWarning)]
        _send(answers, header, arrays)
        request, _ = _receive(requests, 2**30)


def _restrict(memory: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return  # other systems than Linux ignore this limit or count differently
    limit = _allowed(resource.RLIMIT_AS, used + memory)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _more_time(seconds: float) -> None:
    """Limit the processor time, in case the parent process, which checks the time, was killed."""
    if sys.platform == "win32":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = used.ru_utime + used.ru_stime + seconds * (os.cpu_count() or 1)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (_allowed(resource.RLIMIT_CPU, int(allowed) + 1), hard))


def _allowed(kind: int, limit: int) -> int:
    """The limit, or the existing limit of the process, for example from a batch system, if that is lower."""
    import resource

    hard = resource.getrlimit(kind)[1]
    return limit if hard == resource.RLIM_INFINITY else min(limit, hard)


@errors.naming_flags()  # the parent process may name arguments of Python instead
def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps the output of libraries out of the answers
    try:
        serve(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError):
        os._exit(0)


if __name__ == "__main__":
    main()
