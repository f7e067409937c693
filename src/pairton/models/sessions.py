"""Sessions of ONNX Runtime that cannot open other files, in this process or in a worker process with limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from pairton._common.worker import Worker
from pairton.errors import ModelError
from pairton.models.onnx_file import OnnxFile, operators

__all__ = ["Session", "open_runtime", "open_session"]

NOWHERE = os.path.join(os.devnull, "none")  # a folder that cannot exist

# the standard operators that are allowed: none for control flow, random numbers, strings, sequences, images,
# signals, convolutions or quantised arithmetic
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


class Session:
    """A session for a file of someone else, which several threads may call; its errors end with `remedy`."""

    def __init__(self, file: OnnxFile, remedy: str) -> None:
        if strange := sorted({kind for kind, _, _ in operators(file)} - OPERATORS):
            raise ModelError(
                f"{file.path}: has the operator {strange[0]}, which is not allowed: networks of Pairton and "
                "SPANet need only arithmetic, matrices, sums and shapes"
            )
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


def open_runtime(payload: bytes, source: str | Path) -> Any:
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
        return onnxruntime.InferenceSession(payload, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the errors of onnxruntime have no common base class
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{source}: ONNX Runtime {onnxruntime.__version__} cannot run it ({reason[:200]}): update "
            "onnxruntime, or export the model again"
        ) from None
