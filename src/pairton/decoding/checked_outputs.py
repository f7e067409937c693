"""A network whose outputs are checked before a decoding sees them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pairton.decoding.chain import Predict
from pairton.decoding.terms import Outputs
from pairton.events.nodes import Nodes

__all__ = ["CheckedOutputs"]

MOST_OUTPUT = 1e30  # of a logit: sums of a thousand, over any temperature, are still numbers in single precision


class CheckedOutputs:
    """A network whose outputs are checked: every decoding would make an answer of NaN, infinity or 1e38.

    Such outputs become zero, and the events that they were given for have no answer.
    """

    def __init__(self, predict: Predict, events: int) -> None:
        self.predict = predict
        self.good = np.ones(events, dtype=bool)

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8]) -> Outputs:
        outputs = self.predict(nodes, tokens)
        if all((np.abs(array) <= MOST_OUTPUT).all() for array in outputs.values()):
            return outputs  # nearly always, without a look at the padding
        mask = nodes.mask
        pairs = mask[:, None, :, None] & mask[:, None, None, :]
        inside = {"edges": pairs, "triplets": pairs[..., None] & mask[:, None, None, None]}
        clean = {}
        for name, array in outputs.items():
            finite = np.abs(array) <= MOST_OUTPUT  # False for NaN
            wrong = ~finite & inside[name] if name in inside else ~finite  # anything may stand in the padding
            assert nodes.rows is not None
            self.good[nodes.rows[wrong.reshape(len(array), -1).any(axis=1)]] = False
            clean[name] = np.where(finite, array, np.float32(0))
        return clean
