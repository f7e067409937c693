"""The decoding `kinematic`: the answer of a kinematic fit, in the form of all other answers.

The fit compares permutations itself, so its engine returns the answer together with the fitted quantities, as
outputs whose names begin with `answer:`.

Shapes: B events, S slots, P particles.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from pairton.decoding import Decoded, Decoding, Outputs, Task, register_decoding
from pairton.decoding.graph import masked_tokens

__all__ = ["KINEMATIC", "answer_outputs", "is_answer"]

KINEMATIC = "kinematic"
PREFIX = "answer:"
PARTS = ("assignment", "particle_probability", "event_probability", "exact")  # fields of `Decoded`


def is_answer(name: str) -> bool:
    """Whether an output is part of the answer."""
    return name.startswith(PREFIX)


def answer_outputs(found: Decoded) -> dict[str, npt.NDArray[Any]]:
    """The answer of a fit as outputs by name: (B, S), (B, P), (B,) and (B,)."""
    return {f"{PREFIX}{name}": getattr(found, name) for name in PARTS}


def _run_kinematic(task: Task) -> Decoded:
    result = Decoded.empty(task.topology, len(task.nodes))
    tokens = masked_tokens(task.topology, len(task.nodes), task.nodes.mask.shape[1])
    outputs: Outputs = task.predict(task.nodes, tokens)
    for name in PARTS:
        getattr(result, name)[:] = outputs[f"{PREFIX}{name}"]
    return result


register_decoding(
    Decoding(KINEMATIC, "the best permutation of a kinematic fit", _run_kinematic, False, "event", only_own=True)
)
