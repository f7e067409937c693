"""A worker process with limits on memory and time, for libraries that work on files of other people.

If such a file crashes a library or keeps it busy, this ends the worker, and its parent gets an error of one line.
Requests are pickled. Answers are not: they are JSON, followed by the bytes of arrays. So a worker that was taken
over by an attacker cannot make its parent run code.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import awkward as ak
import numpy as np

from pairton import errors
from pairton._common.signals import blocked
from pairton.errors import InputError, MissingExtraError, PairtonError, PairtonWarning

__all__ = ["Limits", "Worker", "pack", "unpack"]

SIZES = struct.Struct("<QQ")  # bytes of JSON, and of arrays
MOST_BYTES = 8 * 2**30  # of an answer
DOUBT = "the file may be damaged or malicious"


@dataclass(frozen=True)
class Limits:
    """Limits on a worker process."""

    memory: int = 4 * 2**30  # bytes, in addition to the interpreter and its libraries
    seconds: float | None = 120  # for each request; None: no limit


class Worker:
    """An object in a process of its own, which several threads may share.

    factory, *arguments   make the object: a function or class of a module, and what it is called with
    name                  what it works on, for errors: the path of a file
    limits                of the process; anything but `Limits` stands for the default
    error, doubt          the kind of error if the process ends, and the end of its message

    >>> Worker(range, 3, name="a range").call("index", 2)
    2
    """

    def __init__(
        self,
        factory: Callable[..., object],
        *arguments: Any,
        name: str,
        limits: Any = None,
        error: type[PairtonError] = InputError,
        doubt: str = DOUBT,
    ) -> None:
        self._name, self._error, self._doubt, self._lock = name, error, doubt, threading.Lock()
        self._limits = limits if isinstance(limits, Limits) else Limits()
        # -P: do not import modules from the current folder
        with blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", "from pairton._common.worker import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        self.close = weakref.finalize(self, _end, self._process)
        self._ask((self._limits, factory, arguments))

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the object; its errors are raised here, if they are of Pairton, else as `error`."""
        return self._ask((method, arguments))

    def _ask(self, request: tuple[Any, ...]) -> Any:
        process, seconds = self._process, self._limits.seconds
        timer = threading.Timer(seconds or 0, process.kill)
        with self._lock:
            begun = time.monotonic()
            if seconds is not None:
                timer.start()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                pickle.dump(request, process.stdin)
                process.stdin.flush()
                answer = unpack(process.stdout)
                failure, texts = answer.get("error"), answer["warnings"]
            except (EOFError, OSError):
                late = seconds is not None and time.monotonic() - begun >= seconds
                raise self._error(f"{self._name}: {self._why_ended(late)}: {self._doubt}") from None
            except Exception as error:  # a worker that was taken over may send anything
                self.close()
                raise self._error(
                    f"{self._name}: its worker process sent an invalid answer ({_one_line(error)}): {self._doubt}"
                ) from None
            except BaseException:
                self.close()  # an interrupt: the answer to this request must not be taken for that to the next
                raise
            finally:
                timer.cancel()
        for text in texts:
            warnings.warn(str(text), PairtonWarning, stacklevel=3)
        if failure is None:
            return answer["value"]
        kind = getattr(errors, str(failure), None)
        if isinstance(kind, type) and issubclass(kind, PairtonError) and kind is not MissingExtraError:
            raise kind(str(answer["message"]))
        raise self._error(f"{self._name}: {answer['message']}: {self._doubt}")

    def _why_ended(self, late: bool) -> str:
        code = self._process.wait()
        if late or -code == getattr(signal, "SIGXCPU", None):
            return f"stopped, since it took longer than {self._limits.seconds:g} s"
        how = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
        return f"its worker process crashed ({how})"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):  # raised if data could not be sent
            if stream is not None:
                stream.close()
    process.wait()


def pack(stream: IO[bytes], value: Any) -> None:
    """Write plain data: mappings and lists of numbers, texts, and arrays of numpy and awkward."""
    arrays: list[np.ndarray[Any, Any]] = []

    def plain(item: Any) -> Any:
        if isinstance(item, ak.Array):
            form, length, buffers = ak.to_buffers(ak.to_packed(item))
            return {"awkward": [form.to_dict(), length], "buffers": plain(buffers)["mapping"]}
        if isinstance(item, np.ndarray):
            arrays.append(np.ascontiguousarray(item).reshape(item.shape))
            return {"array": [item.dtype.str, item.shape]}
        if isinstance(item, Mapping):
            return {"mapping": {str(name): plain(inner) for name, inner in item.items()}}
        return [plain(inner) for inner in item] if isinstance(item, list | tuple) else item

    text = json.dumps(
        plain(value), default=lambda item: item.item() if isinstance(item, np.generic) else str(item)
    )
    stream.write(SIZES.pack(len(text.encode()), sum(array.nbytes for array in arrays)) + text.encode())
    for array in arrays:
        stream.write(array.tobytes())
    stream.flush()


def unpack(stream: IO[bytes]) -> Any:
    """Read what `pack` wrote. EOFError if the stream ends; other errors if the content is not valid."""
    sizes = SIZES.unpack(_exactly(stream, SIZES.size))
    if sum(sizes) > MOST_BYTES:
        raise ValueError(f"an answer of {sum(sizes)} bytes")
    text, content, at = _exactly(stream, sizes[0]), memoryview(_exactly(stream, sizes[1])), 0

    def restored(item: Any) -> Any:
        nonlocal at
        if isinstance(item, list):
            return [restored(inner) for inner in item]
        if not isinstance(item, dict):
            return item
        if "array" in item:
            kind, count = np.dtype(str(item["array"][0])), int(np.prod(item["array"][1], dtype=np.int64))
            found = np.frombuffer(content[at : at + count * kind.itemsize], kind).reshape(item["array"][1]).copy()
            at += count * kind.itemsize
            return found
        if "awkward" in item:
            buffers = {name: restored(inner) for name, inner in item["buffers"].items()}
            array = ak.from_buffers(*item["awkward"], buffers)
            if problem := ak.validity_error(array):
                raise ValueError(problem)
            return array
        return {name: restored(inner) for name, inner in item["mapping"].items()}

    return restored(json.loads(text))


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content


@errors.naming_flags()  # the parent process may name arguments of Python instead
def serve() -> None:
    """Make the object that the first request names, and answer requests until the parent process ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps the output of libraries out of the answers
    made: list[Any] = []
    try:
        limits, factory, arguments = pickle.load(sys.stdin.buffer)
        _set_limits(limits, memory=True)
        _answer(answers, limits, lambda: made.append(factory(*arguments)))
        while True:
            method, arguments = pickle.load(sys.stdin.buffer)
            _answer(answers, limits, partial(getattr(made[0], method), *arguments))
    except (EOFError, BrokenPipeError):
        os._exit(0)


def _answer(answers: IO[bytes], limits: Limits, work: Callable[[], Any]) -> None:
    _set_limits(limits)
    answer: dict[str, Any]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = {"value": work()}
        except PairtonError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        except MemoryError:
            answer = {"error": "", "message": f"needs more than {limits.memory / 2**30:.3g} GiB of memory"}
        except Exception as error:  # a damaged file may cause any error
            answer = {"error": "", "message": f"fails ({type(error).__name__}: {_one_line(error)})"}
    answer["warnings"] = [str(w.message) for w in caught if issubclass(w.category, PairtonWarning)]
    pack(answers, answer)


def _set_limits(limits: Limits, memory: bool = False) -> None:
    """Limit the time of the next answer, and with `memory` the memory of the process.

    The parent process checks the time too; a limit on processor time holds also if it was killed.
    """
    if sys.platform == "win32":
        return
    import resource

    wanted = {}
    if limits.seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = used.ru_utime + used.ru_stime + limits.seconds * (os.cpu_count() or 1)
        wanted[resource.RLIMIT_CPU] = int(seconds) + 1
    if memory:
        wanted[resource.RLIMIT_CORE] = 0
        with (
            suppress(OSError),
            open("/proc/self/statm", encoding="ascii") as file,
        ):  # of Linux
            wanted[resource.RLIMIT_AS] = int(file.read().split()[0]) * resource.getpagesize() + limits.memory
    for kind, limit in wanted.items():  # an existing limit, for example of a batch system, may be lower
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
