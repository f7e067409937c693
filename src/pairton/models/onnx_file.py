"""Reads the description of ONNX files without the onnx package, and runs them with ONNX Runtime.

An ONNX file is a protocol buffer: a list of fields with a number and a value, which may be another message. A
session runs in this process, or in a worker process with limits. It reads no other file: ONNX Runtime gets the
content, and as folder of weights in other files a path that cannot exist.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from pairton._common.worker import Worker
from pairton.errors import ConfigError, ModelError

__all__ = ["OnnxFile", "Operator", "Session", "open_runtime", "open_session", "read_onnx"]

# numbers of fields, from onnx.proto
GRAPH, METADATA = 7, 14  # of a model
NODE, INPUT, OUTPUT = 1, 11, 12  # of a graph
NODE_INPUT, NODE_OUTPUT, NODE_OPERATOR = 1, 2, 4
VARINT, BYTES = 0, 2
FIXED = {1: 8, 5: 4}  # wire type -> bytes
PROVIDERS = {  # device -> what runs a graph on it
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "dml": "DmlExecutionProvider",
}
NOWHERE = os.path.join(os.devnull, "none")  # a folder that cannot exist

Message = dict[int, list[Any]]  # number of a field -> its values: numbers, or bytes
Operator = tuple[str, tuple[str, ...], tuple[str, ...]]  # name, names of inputs, names of outputs


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file."""

    path: Path
    payload: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[Operator, ...]  # in the order of the file
    metadata: dict[str, str]


def read_onnx(path: str | Path) -> OnnxFile:
    """Read a file; ModelError if it is no ONNX file."""
    path = Path(path)
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}): check the path") from None
    try:
        model = _message(memoryview(payload))
        graph = _message(model[GRAPH][-1])
        nodes = [_message(node) for node in graph.get(NODE, [])]
        operators = tuple((_text(n, NODE_OPERATOR), _texts(n, NODE_INPUT), _texts(n, NODE_OUTPUT)) for n in nodes)
        inputs, outputs = (
            tuple(_text(_message(item), 1) for item in graph.get(key, [])) for key in (INPUT, OUTPUT)
        )
        metadata = {_text(item, 1): _text(item, 2) for item in map(_message, model.get(METADATA, []))}
    except (ValueError, KeyError, IndexError, TypeError):
        raise ModelError(f"{path}: not an ONNX file, or truncated: copy or export it again") from None
    return OnnxFile(path, payload, inputs, outputs, operators, metadata)


def _message(content: memoryview) -> Message:
    """The fields of a message; ValueError, TypeError or IndexError if it is none."""
    found: Message = {}
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        if tag & 7 == VARINT:
            value: Any
            value, at = _varint(content, at)
        else:
            size, at = _varint(content, at) if tag & 7 == BYTES else (FIXED[tag & 7], at)
            value, at = content[at : at + size], at + size
            if at > len(content):
                raise ValueError("cut short")
        found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number that begins at a byte, and where the next field begins."""
    value = 0
    for shift in range(0, 64, 7):
        byte = message[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
    raise ValueError("number too long")


def _texts(message: Message, number: int) -> tuple[str, ...]:
    return tuple(str(value, "utf-8") for value in message.get(number, []))


def _text(message: Message, number: int) -> str:
    return ("", *_texts(message, number))[-1]


# -- sessions ----------------------------------------------------------------------------------------------


class Session:
    """A session for a file of someone else, which several threads may call; its errors end with `remedy`."""

    def __init__(self, file: OnnxFile, remedy: str, device: str = "cpu") -> None:
        self._source, self._remedy = file.path, remedy
        self._session = open_runtime(file.payload, file.path, device)
        self.inputs = {item.name: item.shape for item in self._session.get_inputs()}
        self.outputs = {item.name: item.shape for item in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Outputs by name; ModelError if the runtime fails."""
        try:
            return dict(zip(self.outputs, self._session.run(None, dict(feeds)), strict=True))
        except Exception as error:  # the errors of onnxruntime have no common base class
            reason = " ".join(str(error).split())
            raise ModelError(f"{self._source}: ONNX Runtime failed ({reason[:200]}): {self._remedy}") from None

    def tensors(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Names and shapes of inputs, and of outputs."""
        return self.inputs, self.outputs


class IsolatedSession(Session):
    """A session in a worker process. It answers one call at a time."""

    def __init__(self, file: OnnxFile, remedy: str, device: str, limits: Any) -> None:
        self._worker = Worker(Session, file, remedy, device, name=str(file.path), limits=limits, error=ModelError)
        self.inputs, self.outputs = self._worker.call("tensors")

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        found: dict[str, npt.NDArray[Any]] = self._worker.call("run", dict(feeds))
        return found


def open_session(
    file: OnnxFile, isolate: Any = False, remedy: str = "export the model again", device: str = "cpu"
) -> Session:
    """A session in this process or, with `isolate` (True, or `Limits`), in a worker process."""
    return IsolatedSession(file, remedy, device, isolate) if isolate else Session(file, remedy, device)


def open_runtime(payload: bytes, source: str | Path, device: str = "cpu") -> Any:
    """A session of ONNX Runtime itself, for a graph that was checked, or that this process has made."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when onnxruntime is first imported
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    possible = [name for name, provider in PROVIDERS.items() if provider in onnxruntime.get_available_providers()]
    if device not in possible:
        raise ConfigError(
            f"onnxruntime has no device {device!r} here, but {', '.join(possible)}: install its build for the "
            "device (onnxruntime-gpu for cuda), or choose another"
        )
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1
    options.log_severity_level = 4  # no log of errors, since they are raised
    options.add_session_config_entry("session.load_model_format", "ONNX")  # do not guess from the first bytes
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", NOWHERE)
    try:
        return onnxruntime.InferenceSession(payload, options, providers=[PROVIDERS[device]])
    except Exception as error:  # the errors of onnxruntime have no common base class
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{source}: ONNX Runtime {onnxruntime.__version__} cannot run it ({reason[:200]}): update "
            "onnxruntime, or export the model again"
        ) from None
