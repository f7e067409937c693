"""A worker process with limits on memory and time, for libraries that work on files of other people.

If such a file crashes a library or keeps it busy, this ends the worker, and its parent gets an error of one line.
Requests are pickled. Answers are not: they are MessagePack, with arrays as their bytes. So a worker that was taken
over by an attacker cannot make its parent run code.
"""

from __future__ import annotations

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
import msgspec
import numpy as np

from pairton import errors
from pairton._common.parallel import blocked
from pairton.errors import InputError, MissingExtraError, PairtonError, PairtonWarning

__all__ = ["Limits", "Worker", "pack", "unpack"]

SIZE = struct.Struct("<Q")  # bytes of an answer
ARRAY, AWKWARD = 1, 2  # extension types of MessagePack
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
        if late:
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
    content = msgspec.msgpack.encode(value, enc_hook=_packed)
    stream.write(SIZE.pack(len(content)) + content)
    stream.flush()


def _packed(item: Any) -> Any:
    """What stands for an object in the plain data."""
    if isinstance(item, ak.Array):
        form, length, buffers = ak.to_buffers(ak.to_packed(item))
        return msgspec.msgpack.Ext(
            AWKWARD, msgspec.msgpack.encode([form.to_dict(), length, buffers], enc_hook=_packed)
        )
    if isinstance(item, np.ndarray):
        content = [item.dtype.str, item.shape, np.ascontiguousarray(item).tobytes()]
        return msgspec.msgpack.Ext(ARRAY, msgspec.msgpack.encode(content))
    return dict(item) if isinstance(item, Mapping) else item.item() if isinstance(item, np.generic) else str(item)


def unpack(stream: IO[bytes]) -> Any:
    """Read what `pack` wrote. EOFError if the stream ends; other errors if the content is not valid."""
    (size,) = SIZE.unpack(_exactly(stream, SIZE.size))
    if size > MOST_BYTES:
        raise ValueError(f"an answer of {size} bytes")
    return msgspec.msgpack.decode(_exactly(stream, size), ext_hook=_unpacked)


def _unpacked(kind: int, content: memoryview) -> Any:
    """The array that `_packed` wrote."""
    first, shape, values = msgspec.msgpack.decode(content, ext_hook=_unpacked)
    if kind == ARRAY:
        return np.frombuffer(values, np.dtype(str(first))).reshape(shape).copy()
    array = ak.from_buffers(first, shape, values)
    if problem := ak.validity_error(array):
        raise ValueError(problem)
    return array


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
        _limit_memory(limits.memory)
        _answer(answers, limits, lambda: made.append(factory(*arguments)))
        while True:
            method, arguments = pickle.load(sys.stdin.buffer)
            _answer(answers, limits, partial(getattr(made[0], method), *arguments))
    except (EOFError, BrokenPipeError):
        os._exit(0)


def _answer(answers: IO[bytes], limits: Limits, work: Callable[[], Any]) -> None:
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


def _limit_memory(most: int) -> None:
    """Limit the memory of this process to what it has and `most` bytes more (Linux)."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            limit = int(file.read().split()[0]) * resource.getpagesize() + most
    except (ImportError, OSError):
        return
    for kind, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, limit)):
        hard = resource.getrlimit(kind)[1]  # of a batch system, for example
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
