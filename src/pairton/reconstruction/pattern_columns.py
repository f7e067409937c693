"""Columns of a result for missing particles and for several topologies.

    complete_probability, event_probability_if_complete, pattern_<particles>   if the model knows missing particles
    topology_<name>                                                            P(topology), for a mixture

Shapes: n events.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded
from pairton.decoding.patterns import plan_of
from pairton.topology import Topology
from pairton.topology.mixtures import parts_of

__all__ = ["pattern_columns", "topology_columns"]

Columns = dict[str, npt.NDArray[Any]]


def pattern_columns(topology: Topology, found: Decoded) -> Columns:
    """The columns of a model that knows missing particles; `topology` is that of the answers."""
    patterns = plan_of(topology).patterns
    chances = found.pattern_probability  # (n, patterns), float64: P(complete) may be tiny
    complete = chances[:, [k for k, pattern in enumerate(patterns) if pattern.complete]].sum(axis=1)
    filled = np.stack([(found.assignment[:, part.slots] >= 0).all(axis=1) for part in parts_of(topology)])
    answered_in = found.topology_probability.argmax(axis=1) if topology.alternatives else 0
    whole = ~found.answered | filled[answered_in, np.arange(len(complete))]
    with np.errstate(invalid="ignore"):  # an incomplete answer is wrong if the event is complete
        if_complete = (np.where(whole, found.event_probability, 0) / complete).astype(np.float32)
    columns: Columns = {
        "complete_probability": complete.astype(np.float32),
        "event_probability_if_complete": if_complete,
    }
    for pattern, chance in zip(patterns, chances.T, strict=True):
        columns[f"pattern_{pattern.key}"] = chance.astype(np.float32)
    return columns


def topology_columns(topology: Topology, found: Decoded) -> Columns:
    """The probability of each topology of a mixture; no columns for a model of one topology."""
    names = [f"topology_{name}" for name, _ in topology.alternatives]
    return dict(zip(names, found.topology_probability.astype(np.float32).T, strict=True))
