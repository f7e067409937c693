"""A reader and checker of ONNX files that does not need the onnx package.

An ONNX file is a protocol buffer: a list of fields with a number and a value, which may be another message. ONNX
Runtime has its own parser, so everything that it might read differently is rejected: unknown fields, and numbers
that are not encoded in the shortest way. Files that keep weights in other files are rejected too, since they could
name any file of this machine.
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
ATTRIBUTE_GRAPHS = (6, 11)
TENSOR_EXTERNAL = (13, 14)  # names of external files, and whether the values are in one
# message -> numbers of its allowed fields; not allowed are training (20) and functions (25) of a model, and sparse
# tensors, which the runtime expands
KNOWN = {
    "model": {*range(1, 9), 14, 26},
    "graph": {1, 2, 5, *range(10, 15), 16},
    "node": {*range(1, 11)},
    "attribute": {*range(1, 12), 13, 14, 15, 20, 21},
    "tensor": {*range(1, 15), 16},
}
# message -> number of a field that holds messages -> name of these messages
NESTED = {
    "model": {MODEL_GRAPH: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
STANDARD = ("", "ai.onnx")  # domains of operators
MOST_NESTED = 40  # depth of messages inside messages

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
    branches: bool  # whether it has graphs inside graphs, for loops and conditions


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
            _check(memoryview(payload), "model", path),
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


def _check(message: memoryview, kind: str, path: Path, depth: int = 0) -> bool:
    """Raise ModelError for unknown fields or external files; return whether a graph is inside another."""
    branches = False
    if depth > MOST_NESTED:
        raise ValueError("nested too deep")
    for number, value in _fields(message):
        if kind == "tensor" and number in TENSOR_EXTERNAL and value != 0:
            raise ModelError(
                f"{path}: keeps its weights in other files, which are not read: save it as one self-contained file"
            )
        if number not in KNOWN[kind]:
            raise ModelError(
                f"{path}: has a part that Pairton does not know (field {number} of a {kind}) and cannot check: "
                "export the model with `pairton export`"
            )
        if kind == "node" and number == NODE_DOMAIN and _decoded(value) not in STANDARD:
            raise ModelError(
                f"{path}: needs operators of {_decoded(value)!r}, but only standard ONNX ones are allowed"
            )
        branches |= kind == "attribute" and number in ATTRIBUTE_GRAPHS
        if (inner := NESTED[kind].get(number)) is not None:
            if isinstance(value, int):
                raise ValueError("not a message")
            branches |= _check(value, inner, path, depth + 1)
    return branches


def _fields(message: memoryview) -> Iterator[Field]:
    """Number and value of each field, in the order of the file; fixed-size numbers as bytes."""
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
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            if (not byte and shift) or value >= 2**64:
                raise ValueError("number not in its shortest form")
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
    return next((_decoded(value) for number, value in _fields(message) if number == wanted), "")


def _opset(message: memoryview) -> tuple[str, int]:
    version = next((v for number, v in _fields(message) if number == 2 and isinstance(v, int)), 0)
    return _text(message, 1), version
