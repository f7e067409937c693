"""Decoding: from the outputs of a network to an object in each slot, with probabilities.

It takes any callable `predict(nodes, tokens) -> outputs by name` and any topology, works on whole batches, and
needs neither torch nor ONNX. The decodings are registered by name in `pairton.decoding.decodings`.
"""

from pairton.decoding.branches import BRANCHES
from pairton.decoding.decodings import (
    DECODINGS,
    Decoded,
    Decoding,
    Predict,
    Step,
    Task,
    decode,
    get_decoding,
    register_decoding,
)
from pairton.decoding.exact import Sums
from pairton.decoding.hyper_decoding import HYPER
from pairton.decoding.patterns import ANSWERS, Question
from pairton.decoding.step_decoding import run_steps
from pairton.decoding.terms import Outputs

__all__ = [
    "ANSWERS",
    "BRANCHES",
    "DECODINGS",
    "HYPER",
    "Decoded",
    "Decoding",
    "Outputs",
    "Predict",
    "Question",
    "Step",
    "Sums",
    "Task",
    "decode",
    "get_decoding",
    "register_decoding",
    "run_steps",
]
