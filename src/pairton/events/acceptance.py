"""Select and order the objects of each event, in the same way for training and inference.

Objects are cut before they are checked: an object that a cut removes cannot make an event bad. Objects are ordered
by falling pT (ties by their other inputs), so that the answer does not depend on the order of the input.

Shapes: n events, K kinds, S slots, N objects of a kind, J objects of all events together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, EventsError
from pairton.events.domain import Bounds, Domain, as_cuts, used_cuts
from pairton.events.events import Events
from pairton.events.inputs import CUTS, EVIDENCE, LARGE_EVIDENCE, Inputs
from pairton.events.large_tags import with_large_evidence
from pairton.events.nodes import MOST_OBJECTS, Nodes, Status
from pairton.events.objects import is_physical
from pairton.events.tags import ensure_evidence
from pairton.topology import JET, Cuts, Layout, Topology, collection_name
from pairton.topology.vocabulary import parts_of

__all__ = ["MAX_OBJECTS", "Accepted", "accept", "check_max_objects"]

NO_CUT = 5.0  # in place of an infinite cut on |eta|
MAX_OBJECTS = 12  # used objects of a kind, those of highest pT: 83,160 assignments in all-hadronic ttbar

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Accepted:
    """The objects that are used, by falling pT."""

    topology: Topology
    nodes: Nodes  # of all events, padded
    position: Mapping[str, npt.NDArray[np.int32]]  # kind -> (n, N): position in `events.objects`, -1 for padding
    status: npt.NDArray[np.uint8]  # (n,)

    @property
    def usable(self) -> Bools:
        """(n,): events without a bad object."""
        return np.asarray(self.status != Status.BAD_OBJECT)

    @property
    def answerable(self) -> Bools:
        """(n,): events without a bad object and with enough objects: for all slots, or for one of `needs`."""
        return ~np.isin(self.status, [Status.TOO_FEW_OBJECTS, Status.BAD_OBJECT])

    def by_layout(self, rows: Bools) -> Iterator[tuple[Layout, npt.NDArray[np.intp]]]:
        """Layouts of the events of a mask (n,), the largest first, each with the rows of its events."""
        layouts, group = np.unique(self.nodes.counts[rows], axis=0, return_inverse=True)
        index = np.flatnonzero(rows)
        for k in np.argsort(-layouts.sum(axis=1), kind="stable"):
            yield tuple(layouts[k].tolist()), index[group.reshape(-1) == k]

    def batch(self, rows: Ints, layout: Layout) -> Nodes:
        """The nodes of events that have one layout, without padding."""
        pairs = zip(self.nodes.values.items(), layout, strict=True)
        return Nodes.full({kind: np.ascontiguousarray(array[rows, :count]) for (kind, array), count in pairs})

    def to_nodes(self, positions: Ints, rows: Ints, layout: Layout) -> npt.NDArray[np.intp]:
        """Convert an assignment (rows, S) from positions in `events.objects` to nodes; -1 for unused objects."""
        result = np.full(positions.shape, -1, dtype=np.intp)
        for slot in self.topology.slots:
            same = self.position[slot.kind][rows] == positions[:, slot.index, None]
            found = same.any(axis=1) & (positions[:, slot.index] >= 0)
            start = self.topology.nodes(slot.kind, layout).start
            result[:, slot.index] = np.where(found, start + same.argmax(axis=1), -1) if same.shape[1] else -1
        return result

    def to_positions(self, nodes: Ints, rows: Ints, layout: Layout) -> npt.NDArray[np.int32]:
        """The inverse of `to_nodes`."""
        result = np.full(nodes.shape, -1, dtype=np.int32)
        for slot in self.topology.slots:
            rank = nodes[:, slot.index] - self.topology.nodes(slot.kind, layout).start
            filled = nodes[:, slot.index] >= 0
            result[filled, slot.index] = self.position[slot.kind][rows[filled], rank[filled]]
        return result


def accept(
    events: Events,
    domain: Domain,
    inputs: Inputs,
    *,
    max_objects: int = MAX_OBJECTS,
    cuts: bool | Bounds = True,
    needs: Sequence[tuple[int, ...]] = (),
) -> Accepted:
    """Cut, check and order the objects of each kind, and collect the inputs of the network.

    domain        range of objects that the model was trained on: its cuts are applied, unless `cuts` is given
    max_objects   of each kind; events with more use those of highest pT
    cuts          cuts on pT and |eta| by kind, in place of the domain's; False: all objects are used
    needs         number of objects of each kind, one entry per pattern of particles: an event with enough for one
                  pattern, but not for all slots of a topology, is incomplete instead of too short
    """
    check_max_objects(events.topology, max_objects)
    topology, n = events.topology, len(events)
    bounds = as_cuts(used_cuts(cuts, domain, topology.kinds))
    values, masks, positions, ordered = {}, {}, {}, {}
    bad, strange = np.zeros((2, n), dtype=bool)
    for kind in topology.kinds:
        row = np.repeat(np.arange(n), events.counts[kind])  # (J,)
        used = events.used(kind, bounds[kind])
        features = _features(events, kind, inputs.columns(kind), used, bounds[kind])  # (J, F)
        wrong = used & ~(is_physical(features, kind) & np.isfinite(features).all(axis=1))
        bad[row[wrong]] = True
        (kept,) = np.nonzero(used & ~bad[row])
        order = kept[np.lexsort((*features[kept, :0:-1].T, -features[kept, 0], row[kept]))]
        ordered[kind] = features, row, order, np.bincount(row[order], minlength=n)  # order: by falling pT
    every_count = np.stack([count for *_, count in ordered.values()], axis=1)  # (n, K)
    counts = _limited(np.minimum(every_count, max_objects), topology.slots_per_kind)
    truncated = (counts < every_count).any(axis=1)
    for (kind, (features, row, order, every)), count in zip(ordered.items(), counts.T, strict=True):
        rank = np.arange(len(order)) - (np.cumsum(every) - every)[row[order]]
        used = rank < count[row[order]]
        order, rank = order[used], rank[used]
        at = row[order]
        width = int(count.max(initial=0))
        values[kind] = np.zeros((n, width, features.shape[1]), dtype=np.float32)
        values[kind][at, rank] = features[order]
        masks[kind] = np.arange(width) < count[:, None]
        positions[kind] = np.full((n, width), -1, dtype=np.int32)
        starts = np.cumsum(events.counts[kind]) - events.counts[kind]
        positions[kind][at, rank] = order - starts[at]
        trained = domain[kind]
        unusual = (features[order, 0] < trained.pt) | (np.abs(features[order, 1]) > trained.abs_eta)
        for field in trained.binary:
            unusual = unusual | ~np.isin(features[order, inputs.columns(kind).index(field)], (0, 1))
        strange[at[unusual]] = True
        strange |= (count < trained.count[0]) | (count > trained.count[1])
    nodes = Nodes(values, masks)
    status = np.where(strange, Status.OUTSIDE_DOMAIN, Status.OK).astype(np.uint8)
    status[truncated] = Status.TRUNCATED
    short = ~np.any([nodes.can_fill(part.topology) for part in parts_of(topology)], axis=0)
    status[short] = np.where(nodes.can_hold(topology, needs), Status.INCOMPLETE, Status.TOO_FEW_OBJECTS)[short]
    status[bad] = Status.BAD_OBJECT
    return Accepted(topology, nodes, positions, status)


def _limited(counts: Ints, slots: tuple[int, ...]) -> Ints:
    """(n, K): numbers of objects (n, K), lowered where an event has more than `MOST_OBJECTS` of all kinds.

    All kinds keep what their slots need, and the same number of further objects, if they have so many.

    >>> _limited(np.array([[31, 1, 1], [31, 9, 1], [6, 1, 1]]), (4, 1, 0)).tolist()
    [[30, 1, 1], [22, 9, 1], [6, 1, 1]]
    """
    for more in range(MOST_OBJECTS, -1, -1):
        over = counts.sum(axis=1) > MOST_OBJECTS
        if not over.any():
            break
        counts = np.where(over[:, None], np.minimum(counts, np.array(slots) + more), counts)
    return counts


def check_max_objects(topology: Topology, max_objects: int) -> None:
    """Raise ConfigError if so many objects of a kind cannot fill all slots, or are too many for a network."""
    needed = max(topology.slots_per_kind)
    kind = collection_name(topology.kinds[topology.slots_per_kind.index(needed)])
    if not needed <= max_objects <= MOST_OBJECTS:
        raise ConfigError(
            f"max_objects is {max_objects}, but {topology.name} has {needed} slots for {kind}: raise it"
            if max_objects < needed
            else f"max_objects is {max_objects}, but networks take up to {MOST_OBJECTS} objects: lower it"
        )


def _features(
    events: Events, kind: str, columns: tuple[str, ...], used: Bools, cuts: Cuts
) -> npt.NDArray[np.float32]:
    """(J, F): the inputs of the network for all objects of a kind."""
    objects = events.objects[kind]
    if kind == JET and not set(columns).isdisjoint(EVIDENCE):
        objects = ensure_evidence(events).jets
    if not set(columns).isdisjoint(LARGE_EVIDENCE):
        objects = with_large_evidence(objects, events.metadata)
    if not set(columns) <= set(ak.fields(objects)) and not set(columns).isdisjoint(CUTS):
        objects = _with_cuts(events, kind, objects, used, cuts)
    missing = [name for name in columns if name not in ak.fields(objects)]
    if missing:
        prefix = "" if kind == JET else f"{kind}."
        raise EventsError(
            f"the model needs the fields {', '.join(missing)} of {collection_name(kind)}, which the events lack: "
            f"name the column with --map {prefix}{missing[0]}=COLUMN, or pass the field to pairton.make_objects"
        )
    with np.errstate(over="ignore"):  # an overflow becomes inf, which makes a bad object
        return np.stack([np.asarray(ak.flatten(objects[name]), np.float32) for name in columns], axis=1)


def _with_cuts(events: Events, kind: str, objects: ak.Array, used: Bools, cuts: Cuts) -> ak.Array:
    """Objects with the cuts that those of their event passed.

    These are the cuts of this selection. Files often hold only objects that passed the cuts of the topology, so
    these count too, as far as no used object (J,) of the event is beyond them.
    """
    own, counts = events.topology.selection.cuts(kind), events.counts[kind]
    pt, eta = (ak.unflatten(np.asarray(ak.flatten(objects[name]), np.float64), counts) for name in ("pt", "eta"))
    mask = ak.unflatten(used, counts)
    softest = np.asarray(ak.fill_none(ak.min(pt[mask], axis=1), np.inf))
    widest = np.asarray(ak.fill_none(ak.max(abs(eta)[mask], axis=1), 0.0))
    values = {
        "cut_pt": np.clip(np.minimum(max(cuts.pt, own.pt), softest), 0, None),
        "cut_abs_eta": np.minimum(np.maximum(min(cuts.abs_eta, own.abs_eta), widest), NO_CUT),
    }
    for name, value in values.items():
        objects = ak.with_field(objects, ak.unflatten(np.repeat(value.astype(np.float32), counts), counts), name)
    return objects
