"""A check of network outputs before they are decoded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pairton.decoding.chain import Predict
from pairton.decoding.terms import Outputs
from pairton.events.nodes import Nodes

__all__ = ["CheckedOutputs"]

LARGEST_LOGIT = 1e30  # sums of a thousand, over any allowed temperature, stay finite in single precision


class CheckedOutputs:
    """Runs a network and checks its outputs, since a decoding would turn even NaN or infinity into an answer.

    Bad values are replaced by zero, and `good` is False for their events, which then get no answer.
    """

    def __init__(self, predict: Predict, events: int) -> None:
        self.predict = predict
        self.good = np.ones(events, dtype=bool)

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8]) -> Outputs:
        outputs = self.predict(nodes, tokens)
        if all((np.abs(array) <= LARGEST_LOGIT).all() for array in outputs.values()):
            return outputs  # nearly always; the padding need not be looked up
        mask = nodes.mask
        pairs = mask[:, None, :, None] & mask[:, None, None, :]
        inside = {"edges": pairs, "triplets": pairs[..., None] & mask[:, None, None, None]}
        clean = {}
        for name, array in outputs.items():
            finite = np.abs(array) <= LARGEST_LOGIT  # False for NaN
            wrong = ~finite & inside[name] if name in inside else ~finite  # padding may hold any value
            assert nodes.rows is not None
            self.good[nodes.rows[wrong.reshape(len(array), -1).any(axis=1)]] = False
            clean[name] = np.where(finite, array, np.float32(0))
        return clean
