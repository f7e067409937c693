"""Sessions of ONNX Runtime that cannot open other files, with limits on processor time and memory.

A graph of standard operators can use any amount of either, depending on the events. So the limits apply while it
runs. They are far above the needs of a network of its size (docs/reliability.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from pairton._common.budget import Budget, memory_limit
from pairton.errors import ModelError
from pairton.models.onnx_file import OnnxFile, operators

__all__ = ["Session", "open_trusted"]

# limits for files up to 1 MB; they grow in proportion to the size of larger files
MEGABYTE = 10**6
OPENING = 10.0  # seconds of processor time to open a session
STARTING = 6.0  # seconds for all calls together, plus:
EVENT = 0.01  # seconds per event with OBJECTS objects or fewer; grows with the square of their number
OBJECTS = 8
MEMORY, MEMORY_PER_THREAD = 2**29, 2**27  # bytes
MOST_OPERATORS = 5000  # the time to open a graph grows with the square of their number
NOWHERE = os.path.join(os.devnull, "none")  # a folder that cannot exist
OUT_OF_MEMORY = ("Available memory", "allocate memory", "bad_alloc")  # words in errors of the runtime

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
    """A session with limits, which several threads may call; its errors end with `remedy`."""

    def __init__(self, file: OnnxFile, threads: int = 1, remedy: str = "export the model again") -> None:
        _check_operators(file)
        self._source, self._remedy = file.path, remedy
        self._scale = max(1.0, len(file.payload) / MEGABYTE)
        self._memory = int((MEMORY + MEMORY_PER_THREAD * threads) * self._scale)
        opening = Budget(self._slow("opening it takes", OPENING * self._scale), OPENING * self._scale)
        self._budget = Budget(self._slow("its answers take", STARTING * self._scale), STARTING * self._scale)
        with opening.spending(), memory_limit(self._memory):  # the runtime's own limit does not cover opening
            self._session = _opened(file.payload, file.path, self._memory)
        self.inputs = {item.name: item.shape for item in self._session.get_inputs()}
        self.outputs = {item.name: item.shape for item in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Outputs by name. The first axes of all inputs are events and objects. Raises ModelError on failure."""
        import onnxruntime

        options = onnxruntime.RunOptions()
        masks = [array.shape for name, array in feeds.items() if name.endswith("_mask")]
        events, objects = max(shape[0] for shape in masks), sum(shape[1] for shape in masks)
        self._budget.allow(self._scale * EVENT * events * max(1.0, (objects / OBJECTS) ** 2))
        try:
            if not self._budget.spent:
                with self._budget.spending(lambda: setattr(options, "terminate", True)):
                    return dict(zip(self.outputs, self._session.run(None, dict(feeds), options), strict=True))
        except Exception as error:  # the errors of onnxruntime have no common base class
            if not self._budget.spent:
                raise self._failed(error) from None
        raise ModelError(self._budget.complaint)

    def _slow(self, what: str, seconds: float) -> str:
        return (
            f"{self._source}: {what} more than {seconds:.0f} s of processor time, much more than a network of its "
            "size needs: the file may be damaged, so copy or export it again"
        )

    def _failed(self, error: Exception) -> ModelError:
        reason = " ".join(str(error).split())
        if any(word in reason for word in OUT_OF_MEMORY):
            return ModelError(
                f"{self._source}: asks for more than {self._memory / 2**20:.0f} MiB of memory, much more than a "
                "network of its size needs: the file may be damaged, so copy or export it again"
            )
        return ModelError(f"{self._source}: ONNX Runtime failed ({reason[:200]}): {self._remedy}")


def _check_operators(file: OnnxFile) -> None:
    if file.branches:
        raise ModelError(
            f"{file.path}: has loops or conditions, which are not allowed as they may never end: export the model "
            "with `pairton export`"
        )
    found = [kind for kind, _, _ in operators(file) if kind != "Constant"]
    if len(found) > MOST_OPERATORS:
        raise ModelError(f"{file.path}: has {len(found)} operators, but at most {MOST_OPERATORS} are allowed")
    if strange := sorted(set(found) - OPERATORS):
        raise ModelError(
            f"{file.path}: has the operator {strange[0]}, which is not allowed: networks of Pairton and SPANet "
            "need only arithmetic, matrices, sums and shapes"
        )


def open_trusted(payload: bytes, source: str | Path) -> Any:
    """A session without limits, for a model that this process has made."""
    return _opened(payload, source, None)


def _opened(payload: bytes, source: str | Path, memory: int | None) -> Any:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when onnxruntime is first imported
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1
    options.log_severity_level = 4  # no log of errors, since they are raised
    options.add_session_config_entry("session.load_model_format", "ONNX")  # do not guess from the first bytes
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", NOWHERE)
    if memory is not None:
        kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
        place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
        # it replaces the previous allocator, for sessions that are opened from now on
        onnxruntime.create_and_register_allocator(place, onnxruntime.OrtArenaCfg({"max_mem": memory}))
        options.add_session_config_entry("session.use_env_allocators", "1")
        # constants are computed while the session runs, when it can be stopped
        options.add_session_config_entry("optimization.disable_specified_optimizers", "ConstantFolding")
    try:
        return onnxruntime.InferenceSession(payload, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the errors of onnxruntime have no common base class
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{source}: ONNX Runtime {onnxruntime.__version__} cannot run it ({reason[:200]}): update "
            "onnxruntime, or export the model again"
        ) from None
