"""What an ONNX file says of itself, read without the onnx package and without running it.

An ONNX file is a protocol buffer: fields of a number and a value, some of them messages again. Only the few that
matter here are followed. Weights may be stored in other files, named inside; a file that does so is not
self-contained, and could name any file of this machine: it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairton.errors import ModelError

__all__ = ["OnnxFile", "read_onnx"]

# numbers of fields, from onnx.proto
MODEL_IR, MODEL_GRAPH, MODEL_OPSET, MODEL_METADATA, MODEL_TRAINING, MODEL_FUNCTIONS = 1, 7, 8, 14, 20, 25
GRAPH_INPUT, GRAPH_OUTPUT = 11, 12
TENSOR_EXTERNAL_DATA, TENSOR_DATA_LOCATION = 13, 14
# message -> number of a field that holds messages -> which
NESTED = {
    "model": {MODEL_GRAPH: "graph", MODEL_TRAINING: "training", MODEL_FUNCTIONS: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "tensor": {},
}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class OnnxFile:
    """A file that was read and found self-contained."""

    path: Path
    payload: bytes
    ir_version: int
    opsets: dict[str, int]  # domain of operators -> version
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    metadata: dict[str, str]


def read_onnx(path: str | Path) -> OnnxFile:
    """Read a file and check that its weights are inside it."""
    path = Path(path)
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}): check the path") from None
    try:
        fields = list(_fields(memoryview(payload)))
        graphs = [value for number, value in fields if number == MODEL_GRAPH and isinstance(value, memoryview)]
        if not graphs:
            raise ValueError
        if _has_external_data(memoryview(payload), "model"):
            raise ModelError(
                f"{path}: keeps its weights in other files, which are not read: save it as one self-contained file"
            )
        inside = [field for graph in graphs for field in _fields(graph)]
        return OnnxFile(
            path,
            payload,
            next((value for number, value in fields if number == MODEL_IR and isinstance(value, int)), 0),
            dict(
                _opset(value) for number, value in fields if number == MODEL_OPSET and not isinstance(value, int)
            ),
            tuple(_text(value, 1) for number, value in inside if number == GRAPH_INPUT),
            tuple(_text(value, 1) for number, value in inside if number == GRAPH_OUTPUT),
            {_text(value, 1): _text(value, 2) for number, value in fields if number == MODEL_METADATA},
        )
    except (ValueError, IndexError, UnicodeDecodeError):
        raise ModelError(f"{path}: not an ONNX file, or cut short: copy or export it again") from None


def _has_external_data(message: memoryview, kind: str) -> bool:
    for number, value in _fields(message):
        if kind == "tensor" and (
            number == TENSOR_EXTERNAL_DATA or (number == TENSOR_DATA_LOCATION and value == 1)
        ):
            return True
        inner = NESTED[kind].get(number)
        if inner is not None and isinstance(value, memoryview) and _has_external_data(value, inner):
            return True
    return False


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field, in the order of the file."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError("cut short")
        if kind == BYTES:
            yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("number too long")


def _text(message: int | memoryview, wanted: int) -> str:
    if isinstance(message, int):
        raise ValueError("not a message")
    return next(
        (bytes(v).decode() for number, v in _fields(message) if number == wanted and isinstance(v, memoryview)), ""
    )


def _opset(message: memoryview) -> tuple[str, int]:
    version = next((v for number, v in _fields(message) if number == 2 and isinstance(v, int)), 0)
    return _text(message, 1), version
