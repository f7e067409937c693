"""A reader and checker of ONNX files that does not need the onnx package.

An ONNX file is a protocol buffer: a list of fields with a number and a value, which may be another message. Files
that keep weights in other files are rejected, since they could name any file of this machine, and so is what could
hide operators: functions, and graphs inside graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairton.errors import ModelError

__all__ = ["OnnxFile", "Operator", "operators", "read_onnx"]

# numbers of fields, from onnx.proto
MODEL_IR, MODEL_GRAPH, MODEL_OPSET, MODEL_METADATA = 1, 7, 8, 14
GRAPH_NODE, GRAPH_INPUT, GRAPH_OUTPUT = 1, 11, 12
NODE_INPUT, NODE_OUTPUT = 1, 2
NODE_OPERATOR, NODE_DOMAIN = 4, 7
# message -> number of a field that holds messages -> name of these messages
NESTED = {
    "model": {MODEL_GRAPH: "graph"},
    "graph": {GRAPH_NODE: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 10: "tensor"},
    "tensor": {},
}
ELSEWHERE, SPARSE = "weights in other files", "sparse tensors"
REFUSED = {  # message and number of a field -> what it holds
    ("model", 20): "graphs for training",
    ("model", 25): "functions",
    ("graph", 15): SPARSE,
    ("attribute", 6): "loops or conditions",
    ("attribute", 11): "loops or conditions",
    ("attribute", 22): SPARSE,
    ("attribute", 23): SPARSE,
    ("tensor", 13): ELSEWHERE,
    ("tensor", 14): ELSEWHERE,
}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
STANDARD = ("", "ai.onnx")  # domains of operators

Field = tuple[int, int | memoryview]
Operator = tuple[str, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file that was read and found to be self-contained."""

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
        (graph,) = [value for number, value in fields if number == MODEL_GRAPH and isinstance(value, memoryview)]
        inside = list(_fields(graph))
        _check(memoryview(payload), "model", path)
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
    except (ValueError, IndexError):
        raise ModelError(f"{path}: not an ONNX file, or truncated: copy or export it again") from None


def operators(file: OnnxFile) -> tuple[Operator, ...]:
    """The operators of the graph, in the order of the file: name, names of inputs, names of outputs."""
    (graph,) = [value for number, value in _fields(memoryview(file.payload)) if number == MODEL_GRAPH]
    assert isinstance(graph, memoryview)
    found = []
    for number, node in _fields(graph):
        if number == GRAPH_NODE and isinstance(node, memoryview):
            parts = list(_fields(node))
            try:
                inputs = tuple(_decoded(value) for part, value in parts if part == NODE_INPUT)
                outputs = tuple(_decoded(value) for part, value in parts if part == NODE_OUTPUT)
                found.append((_text(node, NODE_OPERATOR), inputs, outputs))
            except ValueError:
                raise ModelError(
                    f"{file.path}: the name of an operator or array is no text: export it again"
                ) from None
    return tuple(found)


def _check(message: memoryview, kind: str, path: Path) -> None:
    """Raise ModelError for what is not allowed."""
    for number, value in _fields(message):
        if (what := REFUSED.get((kind, number))) is not None and value != 0:  # 0: the weights are in this file
            raise ModelError(
                f"{path}: has {what}, which are not read: save it as one self-contained file of standard "
                "operators, as `pairton export` does"
            )
        if kind == "node" and number == NODE_DOMAIN and _decoded(value) not in STANDARD:
            raise ModelError(
                f"{path}: needs operators of {_decoded(value)!r}, but only standard ONNX ones are allowed"
            )
        if (inner := NESTED[kind].get(number)) is not None:
            if isinstance(value, int):
                raise ValueError("not a message")
            _check(value, inner, path)


def _fields(message: memoryview) -> Iterator[Field]:
    """Number and value of each field, in the order of the file; all numbers as integers."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if not 0 < tag >> 3 < 2**29:  # the runtime drops higher bits
            raise ValueError("field number")
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
        content = message[at : at + size]
        yield tag >> 3, content if kind == BYTES else int.from_bytes(content, "little")
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


def _decoded(value: int | memoryview) -> str:
    if isinstance(value, int):
        raise ValueError("not a text")
    return bytes(value).decode()


def _text(message: int | memoryview, wanted: int) -> str:
    if isinstance(message, int):
        raise ValueError("not a message")
    found = [_decoded(value) for number, value in _fields(message) if number == wanted]
    return found[-1] if found else ""  # the runtime also takes the last one


def _opset(message: memoryview) -> tuple[str, int]:
    version = next((v for number, v in _fields(message) if number == 2 and isinstance(v, int)), 0)
    return _text(message, 1), version
