"""The engine torch, which runs the weights in the folder of a model; it is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from pairton.errors import MissingExtraError, ModelError
from pairton.models.engines import Opened, Request
from pairton.models.storage import ONNX, WEIGHTS, read_info

__all__ = ["open_engine"]


def open_engine(request: Request) -> Opened:
    """A model from its folder. It runs code of Pairton only, so that it is never isolated."""
    path = request.path
    if path.suffix == ".onnx":
        if path.name != ONNX or not (path.parent / WEIGHTS).is_file():
            raise ModelError(f"{path}: torch cannot run an ONNX file: give the model's folder, or use onnx")
        path = path.parent
    if not (path / WEIGHTS).is_file():
        raise ModelError(f"{path}: has no {WEIGHTS}, which torch needs: use the engine onnx")
    try:
        engine = import_module("pairton.network.engine").TorchEngine(path, request.threads)
    except ImportError:
        raise MissingExtraError("train", "torch") from None
    return Opened(path.name, read_info(path), engine)
