"""The decoding of HyPER (arXiv:2402.10149): the best hyperedges one after the other, then the best edge in each.

A hyperedge is a set of three objects. The most probable one is the first particle, the best one that shares no
object with it is the second, and so on: a greedy search, in which no choice is reconsidered. In each hyperedge,
the pair with the best edge is the child of two objects, such as the W of a top.

The probabilities are those of hyperedges and edges, as the network gives them. They are not mutually exclusive, so
their product, P(event), is a score and not a probability.

Shapes: B events, N nodes, E hyperedges.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.decodings import Decoded, Decoding, Task, register_decoding, whole_event
from pairton.decoding.graph import masked_tokens
from pairton.decoding.terms import triplet_types
from pairton.errors import ConfigError, ModelError
from pairton.topology import Topology
from pairton.topology.assignments import canonical

__all__ = ["HYPER", "check_hyper"]

HYPER = "hyper"
SYMMETRIC = ("hyper", "object_sum")  # kinds of `network.triplets` that do not depend on the order of objects
PAIRS = ((0, 1, 2), (0, 2, 1), (1, 2, 0))  # positions in a hyperedge: a pair, and the remaining object

Floats = npt.NDArray[np.float64]


def check_hyper(topology: Topology) -> None:
    """Raise ConfigError unless every root decays to a particle of two objects and a third object."""
    types = {root.type for root in topology.roots}
    if len(types) > 1 or triplet_types(topology) != dict.fromkeys(types, False):
        raise ConfigError(
            f"HyPER's decoding needs roots that all decay like t: [W, b], W: [q, q], but {topology.name} has "
            "others: use the decoding exact"
        )


def _check_model(model: Any) -> None:
    triplets = str(model.info.network.get("triplets", "none"))
    if triplets not in SYMMETRIC:
        raise ModelError(
            f"{model.name} has no score for sets of three objects (its network.triplets is {triplets}), which "
            "HyPER's decoding needs: use the decoding exact"
        )


def _run_hyper(task: Task) -> Decoded:
    topology, nodes = task.topology, task.nodes
    check_hyper(topology)
    tokens = masked_tokens(topology, len(nodes), nodes.mask.shape[1])
    outputs = task.predict(nodes, tokens)
    if "triplets" not in outputs:
        raise ModelError("HyPER's decoding needs a network that scores triplets: train one with network.triplets")
    pair = topology.particles[topology.roots[0].children[0]].type
    jets = list(topology.nodes(topology.main_kind, nodes.layout))
    three = np.array(list(combinations(jets, 3)), dtype=np.intp).reshape(-1, 3)  # (E, 3)
    scores = outputs["triplets"][:, 0][:, three[:, 0], three[:, 1], three[:, 2]].astype(np.float64)  # (B, E)
    scores[~nodes.mask[:, three].all(axis=2)] = -np.inf
    edges = outputs["edges"][:, topology.type_index(pair)].astype(np.float64)
    shared = (three[:, None, :, None] == three[None, :, None, :]).any(axis=(2, 3))  # (E, E)
    result = Decoded.empty(topology, len(nodes))
    rows, total = np.arange(len(nodes)), np.zeros(len(nodes))
    chosen: dict[tuple[int, ...], Floats] = {}  # slots -> log probability of their objects
    for root in topology.roots:
        best = scores.argmax(axis=1)
        members = three[best]  # (B, 3)
        inside = np.stack([edges[rows, members[:, i], members[:, j]] for i, j, _ in PAIRS], axis=1)
        places = np.array(PAIRS)[inside.argmax(axis=1)]  # (B, 3): the pair, then the third object
        child = topology.particles[root.children[0]]
        result.assignment[:, [*child.slots, *root.own_slots]] = np.take_along_axis(members, places, axis=1)
        chosen[root.slots] = -np.logaddexp(0, -scores[rows, best])
        chosen[child.slots] = -np.logaddexp(0, -inside.max(axis=1))
        total += chosen[root.slots] + chosen[child.slots]
        scores[shared[best]] = -np.inf
    answer = np.array(canonical(topology, result.assignment))
    for particle in topology.particles:  # canonical order may move objects; probabilities follow
        members = np.sort(answer[:, list(particle.slots)], axis=1)
        for slots, chance in chosen.items():
            if len(slots) == members.shape[1]:
                same = (np.sort(result.assignment[:, list(slots)], axis=1) == members).all(axis=1)
                result.particle_probability[same, particle.index] = np.exp(chance[same])
    result.assignment[:] = answer
    result.event_probability[:] = np.exp(total)
    if task.record:
        one = answer[:, None], result.event_probability[:, None]
        result.steps.append(whole_event(topology, tokens, outputs["edges"], *one))
    return result


register_decoding(
    Decoding(
        HYPER,
        "as HyPER does: the best triplets in turn, then the best pair in each",
        _run_hyper,
        check=_check_model,
    )
)
