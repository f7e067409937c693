"""The inputs of a network for a batch of events, one dense array per kind of object, and the status of events.

Shapes: B events, N objects of all kinds together, F columns of a kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.topology import JET, Layout, Topology
from pairton.topology.kinds import KINDS

__all__ = ["MOST_OBJECTS", "Nodes", "Status"]

MOST_OBJECTS = 32  # per event, of all kinds: the size of a network's index tables

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Nodes:
    """Padded arrays by kind, in the order of the topology's kinds. Nodes count the objects of all kinds in turn.

    >>> nodes = Nodes.full({"jet": np.zeros((2, 6, 5), np.float32), "met": np.zeros((2, 1, 4), np.float32)})
    >>> len(nodes), nodes.layout, nodes.mask.shape
    (2, (6, 1), (2, 7))
    """

    values: Mapping[str, npt.NDArray[np.float32]]  # kind -> (B, objects, F): pt, eta, phi, energy, further inputs
    masks: Mapping[str, Bools]  # kind -> (B, objects): False for padding
    rows: npt.NDArray[np.intp] | None = None  # (B,): rows of these events in a larger batch

    @classmethod
    def full(cls, values: Mapping[str, npt.NDArray[np.float32]]) -> Nodes:
        """Nodes without padding."""
        return cls(values, {kind: np.ones(array.shape[:2], dtype=bool) for kind, array in values.items()})

    def __len__(self) -> int:
        return len(next(iter(self.masks.values())))

    def __getitem__(self, rows: npt.NDArray[Any] | slice) -> Nodes:
        return Nodes(
            {kind: array[rows] for kind, array in self.values.items()},
            {kind: mask[rows] for kind, mask in self.masks.items()},
            None if self.rows is None else self.rows[rows],
        )

    @property
    def layout(self) -> Layout:
        """Objects of each kind, padding included."""
        return tuple(mask.shape[1] for mask in self.masks.values())

    @cached_property
    def mask(self) -> Bools:
        """(B, N): False for padding."""
        return np.concatenate(list(self.masks.values()), axis=1)

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """(B, kinds): number of objects, without padding."""
        return np.stack([mask.sum(axis=1) for mask in self.masks.values()], axis=1)

    @cached_property
    def overlaps(self) -> Bools | None:
        """(B, N, N): whether a large jet holds a jet: large first, jet second. None without them.

        >>> both = {"jet": [[[30, 0.5, 0.0, 40], [30, 2.5, 0.0, 190]]], "fatjet": [[[300, 0.0, 0.0, 320]]]}
        >>> nodes = Nodes.full({kind: np.array(values, np.float32) for kind, values in both.items()})
        >>> np.argwhere(nodes.overlaps[0]).tolist()
        [[2, 0]]
        """
        radius = np.concatenate([np.full(mask.shape[1], KINDS[kind].radius) for kind, mask in self.masks.items()])
        small = np.concatenate([np.full(mask.shape[1], kind == JET) for kind, mask in self.masks.items()])
        if not radius.any() or not small.any():
            return None
        eta, phi = (np.concatenate([a[..., k] for a in self.values.values()], axis=1) for k in (1, 2))
        d_phi = np.abs(phi[:, :, None] - phi[:, None]) % (2 * np.pi)
        distance = np.hypot(eta[:, :, None] - eta[:, None], np.minimum(d_phi, 2 * np.pi - d_phi))
        pairs = small & self.mask[:, None, :] & self.mask[:, :, None]
        return np.asarray((distance < radius[:, None]) & pairs)

    def can_fill(self, topology: Topology) -> Bools:
        """(B,): whether there are enough objects of each kind for all root particles, in some of their forms."""
        enough = [(self.counts >= np.array(need)).all(axis=1) for need in topology.complete_layouts]
        return np.asarray(np.any(enough, axis=0))

    def can_hold(self, topology: Topology, needs: Sequence[tuple[int, ...]]) -> Bools:
        """(B,): whether there are enough objects of each kind for one of `needs`, and one for some slot."""
        some = (self.counts[:, [kind in topology.object_kinds for kind in topology.kinds]] > 0).any(axis=1)
        enough = [(self.counts >= np.array(need)).all(axis=1) for need in needs]
        return np.asarray(some & np.any(enough, axis=0))

    def assignable(self, topology: Topology) -> Bools:
        """(B, N): whether a node can fill a slot; False for context and padding."""
        parts = [mask & (kind in topology.object_kinds) for kind, mask in self.masks.items()]
        return np.concatenate(parts, axis=1)


class Status(IntEnum):
    """Whether an event has an answer, and any caveat.

    Attributes:
        OK: The event has an answer.
        TOO_FEW_OBJECTS: No answer: there are fewer objects than an answer needs.
        BAD_OBJECT: No answer: an object has NaN or an unphysical momentum.
        TRUNCATED: There are more objects than are used, of a kind or in all; those of lowest pT were left out.
        OUTSIDE_DOMAIN: The model was not trained on such objects, or on so many or so few of them.
        BAD_OUTPUT: No answer: the model returned NaN or infinity, or allows no assignment.
        OUTSIDE_SELECTION: The event fails the selection of the training events, for example on b-tags.
        INCOMPLETE: There are fewer objects than slots, so some particles are missing from the answer.
        label: The name in lower case, as in files.

    Examples:
        >>> Status(3).label
        'truncated'
    """

    OK = 0
    TOO_FEW_OBJECTS = 1
    BAD_OBJECT = 2
    TRUNCATED = 3
    OUTSIDE_DOMAIN = 4
    BAD_OUTPUT = 5
    OUTSIDE_SELECTION = 6
    INCOMPLETE = 7

    @property
    def label(self) -> str:
        return self.name.lower()
