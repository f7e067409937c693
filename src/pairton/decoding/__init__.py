"""Decoding: from the outputs of a network to an object in each slot, with probabilities.

It takes any callable `predict(nodes, tokens) -> outputs by name` and any topology, works on whole batches, and
needs neither torch nor ONNX. The decodings are registered by name in `pairton.decoding.decodings`.
"""

from pairton.decoding.branch_decoding import BRANCHES
from pairton.decoding.chain import Predict, Step
from pairton.decoding.decodings import (
    DECODINGS,
    Decoded,
    Decoding,
    Task,
    decode,
    get_decoding,
    register_decoding,
)
from pairton.decoding.hyper_decoding import HYPER
from pairton.decoding.question import ANSWERS, Question
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
    "Task",
    "decode",
    "get_decoding",
    "register_decoding",
]
