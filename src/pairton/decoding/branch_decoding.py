"""The decoding `branches`, for networks with one output per particle, as SPANet has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pairton.decoding.branches import branch_sums, is_branch
from pairton.decoding.decodings import LISTED, Decoded, Decoding, Task, register_decoding, unpacked, whole_event
from pairton.decoding.graph import masked_tokens
from pairton.decoding.terms import Outputs

__all__ = ["BRANCHES"]

BRANCHES = "branches"


def _run_branches(task: Task) -> Decoded:
    topology, nodes = task.topology, task.nodes
    result = Decoded.empty(topology, len(nodes))
    tokens = masked_tokens(topology, len(nodes), nodes.mask.shape[1])
    outputs = {name: array for name, array in task.predict(nodes, tokens).items() if is_branch(name)}
    listed = np.full((len(nodes), LISTED, len(topology.slots)), -1, dtype=np.int16)
    chances = np.zeros((len(nodes), LISTED))
    edges = np.zeros(tokens.shape, dtype=np.float32)
    layouts, group = np.unique(nodes.counts, axis=0, return_inverse=True)
    for k, layout in enumerate(layouts):
        (same,) = np.nonzero(group.reshape(-1) == k)
        order = np.argsort(~nodes.mask[same], axis=1, kind="stable")[:, : layout.sum()]
        part: Outputs = {name: _packed(array[same], order) for name, array in outputs.items()}
        sums = branch_sums(topology, tuple(layout.tolist()), part, task.temperatures[0])
        few, scores = sums.best(LISTED if task.record else 1)
        found = few[:, 0]
        assignments = sums.plan.assigned(unpacked(few, order))  # (B, k, S)
        result.assignment[same] = assignments[:, 0]
        result.event_probability[same] = sums.probability(found)
        result.particle_probability[same] = sums.particle_probability(found)
        if task.record:
            listed[same, : few.shape[1]] = assignments
            chances[same, : few.shape[1]] = np.exp(scores - sums.log_total[:, None])
            at = same[:, None, None, None], np.arange(tokens.shape[1])[:, None, None]
            edges[(*at, order[:, None, :, None], order[:, None, None, :])] = sums.edges(topology, order.shape[1])
    result.exact[:] = True
    if task.record:
        first = np.zeros(len(nodes), dtype=np.intp)
        shown: Outputs = {"edges": edges}
        result.steps.append(whole_event(topology, tokens, shown, listed, chances, first, result.assignment))
    return result


def _packed(array: npt.NDArray[np.float32], order: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    """(B, n, ..., n): the entries of (B, N, ..., N) for the nodes in `order` (B, n), along every axis."""
    if order.shape[1] == array.shape[1]:
        return array
    axes = array.ndim - 1
    rows = np.arange(len(array)).reshape(-1, *(1,) * axes)
    at = tuple(order.reshape(len(order), *(-1 if j == k else 1 for j in range(axes))) for k in range(axes))
    return np.asarray(array[(rows, *at)])


register_decoding(
    Decoding(
        BRANCHES,
        "the most probable assignment, from networks of SPANet",
        _run_branches,
        False,
        "event",
        only_own=True,
    )
)
