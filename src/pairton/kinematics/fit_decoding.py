"""The decoding `kinematic`: what a kinematic fit found, in the form of every other answer.

The fit compares permutations itself, so its engine gives the answer beside what was fitted. These outputs have
names that begin with `answer:`.

Shapes: B events, S slots, P particles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded, Decoding, Outputs, Task, register_decoding
from pairton.decoding.graph import MASKED

__all__ = ["KINEMATIC", "answer_outputs", "is_answer"]

KINEMATIC = "kinematic"
PREFIX = "answer:"
PARTS = ("assignment", "particle_probability", "event_probability", "exact")  # of `Decoded`


def is_answer(name: str) -> bool:
    """Whether an output is a part of the answer."""
    return name.startswith(PREFIX)


def answer_outputs(found: Decoded) -> dict[str, npt.NDArray[Any]]:
    """The answer of a fit as outputs by name: (B, S), (B, P), (B,) and (B,)."""
    return {f"{PREFIX}{name}": getattr(found, name) for name in PARTS}


def _run_kinematic(task: Task) -> Decoded:
    result = Decoded.empty(task.topology, len(task.nodes))
    n_nodes = task.nodes.mask.shape[1]
    tokens = np.full((len(task.nodes), len(task.topology.types), n_nodes, n_nodes), MASKED, dtype=np.uint8)
    outputs: Outputs = task.predict(task.nodes, tokens)
    for name in PARTS:
        getattr(result, name)[:] = outputs[f"{PREFIX}{name}"]
    return result


register_decoding(
    Decoding(KINEMATIC, "the best permutation of a kinematic fit", _run_kinematic, False, "event", only_own=True)
)
