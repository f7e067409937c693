"""Sessions of ONNX Runtime that reach no other file, and keep within limits of processor time and memory.

A graph of standard operators can ask for any amount of either, and how much can depend on the events. So the
limits hold while it runs. They are far above what a network of its size needs (docs/reliability.md).
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

# limits for a file of 1 MB or less; those of larger ones are larger in proportion
MEGABYTE = 10**6
OPENING = 10.0  # seconds of processor time
STARTING = 6.0  # seconds for all answers together, and:
EVENT = 0.01  # seconds for each event of so many objects; more for more, by the square of their number
OBJECTS = 8
MEMORY, MEMORY_PER_THREAD = 2**29, 2**27  # bytes
MOST_OPERATORS = 5000  # the runtime's time to open a graph grows with the square of their number
NOWHERE = os.path.join(os.devnull, "none")  # a folder in which there can be no file
OUT_OF_MEMORY = ("Available memory", "allocate memory", "bad_alloc")  # in errors of the runtime


# operators of the standard that are run; not among them are control flow, random numbers, texts, sequences,
# images, signals, convolutions and quantised arithmetic
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
    """A session on one thread of the CPU, for several threads to call, within limits; `remedy` ends its errors."""

    def __init__(self, file: OnnxFile, threads: int = 1, remedy: str = "export the model again") -> None:
        _check_operators(file)
        self._source, self._remedy = file.path, remedy
        self._scale = max(1.0, len(file.payload) / MEGABYTE)
        self._memory = int((MEMORY + MEMORY_PER_THREAD * threads) * self._scale)
        opening = Budget(self._slow("opening it takes", OPENING * self._scale), OPENING * self._scale)
        self._budget = Budget(self._slow("its answers take", STARTING * self._scale), STARTING * self._scale)
        with opening.spending(), memory_limit(self._memory):  # of which the runtime's own limit knows nothing
            self._session = _opened(file.payload, file.path, self._memory)
        self.inputs = {item.name: item.shape for item in self._session.get_inputs()}
        self.outputs = {item.name: item.shape for item in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Outputs by name. Arrays have an axis of events, then one of objects; a ModelError where it fails."""
        import onnxruntime

        options = onnxruntime.RunOptions()
        masks = [array.shape for name, array in feeds.items() if name.endswith("_mask")]
        events, objects = max(shape[0] for shape in masks), sum(shape[1] for shape in masks)
        self._budget.allow(self._scale * EVENT * events * max(1.0, (objects / OBJECTS) ** 2))
        try:
            if not self._budget.spent:
                with self._budget.spending(lambda: setattr(options, "terminate", True)):
                    return dict(zip(self.outputs, self._session.run(None, dict(feeds), options), strict=True))
        except Exception as error:  # onnxruntime has a class of error for each code, without a common base
            if not self._budget.spent:
                raise self._failed(error) from None
        raise ModelError(self._budget.complaint)

    def _slow(self, what: str, seconds: float) -> str:
        return (
            f"{self._source}: {what} more than {seconds:.0f} s of processor time, much more than a network of its "
            "size needs: is it damaged?"
        )

    def _failed(self, error: Exception) -> ModelError:
        reason = " ".join(str(error).split())
        if any(word in reason for word in OUT_OF_MEMORY):
            return ModelError(
                f"{self._source}: asks for more than {self._memory / 2**20:.0f} MiB of memory, much more than a "
                "network of its size needs: is it damaged?"
            )
        return ModelError(f"{self._source}: ONNX Runtime failed ({reason[:200]}): {self._remedy}")


def _check_operators(file: OnnxFile) -> None:
    if file.branches:
        raise ModelError(
            f"{file.path}: has loops or conditions, which may never end: export it with `pairton export`"
        )
    found = [kind for kind, _, _ in operators(file) if kind != "Constant"]
    if len(found) > MOST_OPERATORS:
        raise ModelError(f"{file.path}: has {len(found)} operators, but at most {MOST_OPERATORS} are run")
    if strange := sorted(set(found) - OPERATORS):
        raise ModelError(
            f"{file.path}: has the operator {strange[0]}, which is not run: networks of Pairton and SPANet need "
            "arithmetic, matrices, sums and shapes only"
        )


def open_trusted(payload: bytes, source: str | Path) -> Any:
    """A session without limits, for a model that was made in this process."""
    return _opened(payload, source, None)


def _opened(payload: bytes, source: str | Path, memory: int | None) -> Any:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # is read when onnxruntime is first imported
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1
    options.log_severity_level = 4  # an error is raised, and said once
    options.add_session_config_entry("session.load_model_format", "ONNX")  # whatever the first bytes look like
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", NOWHERE)
    if memory is not None:
        kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
        place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
        # for sessions that are opened from now on, in place of the one before
        onnxruntime.create_and_register_allocator(place, onnxruntime.OrtArenaCfg({"max_mem": memory}))
        options.add_session_config_entry("session.use_env_allocators", "1")
        # constants are computed when it runs, where it can be stopped
        options.add_session_config_entry("optimization.disable_specified_optimizers", "ConstantFolding")
    try:
        return onnxruntime.InferenceSession(payload, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of error for each code, without a common base
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{source}: ONNX Runtime {onnxruntime.__version__} cannot run it ({reason[:200]}): update "
            "onnxruntime, or export the model again"
        ) from None
