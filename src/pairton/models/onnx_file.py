"""Reads and checks ONNX files without the onnx package, and runs them with ONNX Runtime.

An ONNX file is a protocol buffer: a list of fields with a number and a value, which may be another message. Files
that keep weights in other files are refused, since they could name any file of this machine, and so is what could
hide operators: functions, and graphs inside graphs. A session runs in this process, or in a worker process with
limits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from pairton._common.worker import Worker
from pairton.errors import ModelError

__all__ = ["OPERATORS", "OnnxFile", "Operator", "Session", "open_runtime", "open_session", "read_onnx"]

# numbers of fields, from onnx.proto
GRAPH, METADATA = 7, 14  # of a model
NODE, INPUT, OUTPUT = 1, 11, 12  # of a graph
NODE_INPUT, NODE_OUTPUT, NODE_OPERATOR, NODE_DOMAIN = 1, 2, 4, 7
# message -> number of a field that holds messages -> name of these messages
NESTED = {
    "model": {GRAPH: "graph", METADATA: "entry"},
    "graph": {NODE: "node", 5: "tensor", INPUT: "entry", OUTPUT: "entry"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 10: "tensor"},
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
# the operators that are allowed: none for control flow, random numbers, strings, sequences, images, signals,
# convolutions or quantised arithmetic
GROUPS = (
    "Abs Add Ceil Clip Div Exp Erf Floor Log Mod Mul Neg Pow Reciprocal Round Sign Sqrt Sub IsInf IsNaN CumSum",
    "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinh Tan Tanh",
    "And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Where Xor",
    "Celu Elu Gelu HardSigmoid HardSwish Hardmax LeakyRelu LogSoftmax Mish PRelu Relu Selu Sigmoid Softmax",
    "Softplus Softsign Swish ThresholdedRelu",
    "BatchNormalization Dropout GroupNormalization LayerNormalization RMSNormalization",
    "Attention Einsum Gemm MatMul",
    "ArgMax ArgMin Max Mean Min ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin",
    "ReduceProd ReduceSum ReduceSumSquare Sum TopK",
    "Cast CastLike Concat Constant ConstantOfShape Expand EyeLike Flatten Gather GatherElements GatherND Identity",
    "NonZero OneHot Pad Range Reshape ScatterElements ScatterND Shape Size Slice Split Squeeze Tile Transpose",
    "Trilu Unsqueeze",
)
OPERATORS = frozenset(name for group in GROUPS for name in group.split())
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
PROVIDERS = {"cpu": "CPUExecutionProvider"}  # device -> what runs a graph on it
NOWHERE = os.path.join(os.devnull, "none")  # a folder that cannot exist

Message = dict[int, list[Any]]  # number of a field -> its values: numbers, bytes or messages
Operator = tuple[str, tuple[str, ...], tuple[str, ...]]  # name, names of inputs, names of outputs


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file that was read and checked."""

    path: Path
    payload: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[Operator, ...]  # in the order of the file
    metadata: dict[str, str]


def read_onnx(path: str | Path) -> OnnxFile:
    """Read a file, and check that it is self-contained and has only allowed operators."""
    path = Path(path)
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}): check the path") from None
    try:
        model = _message(memoryview(payload), "model", path)
        (graph,) = model[GRAPH]
        nodes = graph.get(NODE, [])
        operators = tuple((_text(n, NODE_OPERATOR), _texts(n, NODE_INPUT), _texts(n, NODE_OUTPUT)) for n in nodes)
        domains = {_text(node, NODE_DOMAIN) for node in nodes} - {"", "ai.onnx"}
        inputs, outputs = (tuple(_text(item, 1) for item in graph.get(key, [])) for key in (INPUT, OUTPUT))
        metadata = {_text(item, 1): _text(item, 2) for item in model.get(METADATA, [])}
    except (ValueError, KeyError, IndexError):
        raise ModelError(f"{path}: not an ONNX file, or truncated: copy or export it again") from None
    if domains:
        raise ModelError(f"{path}: needs operators of {min(domains)!r}, but only standard ONNX ones are allowed")
    if strange := sorted({name for name, _, _ in operators} - OPERATORS):
        raise ModelError(
            f"{path}: has the operator {strange[0]!r}, which is not allowed: networks of Pairton and SPANet need "
            "only arithmetic, matrices, sums and shapes"
        )
    return OnnxFile(path, payload, inputs, outputs, operators, metadata)


def _message(content: memoryview, kind: str, path: Path) -> Message:
    """The fields of a message; ModelError if it has what is not allowed."""
    found: Message = {}
    for number, value in _fields(content):
        if (what := REFUSED.get((kind, number))) is not None and value != 0:  # 0: the weights are in this file
            raise ModelError(
                f"{path}: has {what}, which are not read: save it as one self-contained file of standard "
                "operators, as `pairton export` does"
            )
        inner = NESTED.get(kind, {}).get(number)
        if inner is not None and isinstance(value, int):
            raise ValueError("not a message")
        found.setdefault(number, []).append(_message(value, inner, path) if inner else value)  # type: ignore[arg-type]
    return found


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
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
    values = message.get(number, [])
    if any(isinstance(value, int) for value in values):
        raise ValueError("not a text")
    return tuple(bytes(value).decode() for value in values)


def _text(message: Message, number: int) -> str:
    return ("", *_texts(message, number))[-1]  # the runtime also takes the last one


# -- sessions ----------------------------------------------------------------------------------------------


class Session:
    """A session for a file of someone else, which several threads may call; its errors end with `remedy`."""

    def __init__(self, file: OnnxFile, remedy: str) -> None:
        self._source, self._remedy = file.path, remedy
        self._session = open_runtime(file.payload, file.path)
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

    def __init__(self, file: OnnxFile, remedy: str, limits: Any) -> None:
        self._worker = Worker(Session, file, remedy, name=str(file.path), limits=limits, error=ModelError)
        self.inputs, self.outputs = self._worker.call("tensors")

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        found: dict[str, npt.NDArray[Any]] = self._worker.call("run", dict(feeds))
        return found


def open_session(file: OnnxFile, isolate: Any = False, remedy: str = "export the model again") -> Session:
    """A session in this process or, with `isolate` (True, or `Limits`), in a worker process."""
    return IsolatedSession(file, remedy, isolate) if isolate else Session(file, remedy)


def open_runtime(payload: bytes, source: str | Path, device: str = "cpu") -> Any:
    """A session of ONNX Runtime itself, for a graph that was checked, or that this process has made."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when onnxruntime is first imported
    import onnxruntime

    onnxruntime.disable_telemetry_events()
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
