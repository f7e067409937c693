"""What all readers share: units, labels that cannot be, columns that are missing."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError, InputError, PairtonWarning
from pairton.events.objects import UNIT_SAMPLE, mev_median
from pairton.topology import JET, Topology, collection_name
from pairton.topology.selection import TRANSVERSE

__all__ = [
    "BadLabels",
    "check_units",
    "clean_labels",
    "kind_labels_to_truth",
    "labels_from_jets",
    "labels_to_truth",
    "report_labels",
    "small",
    "unit_scale",
]

NO_OBJECT = 2**31 - 1
LEAST_MEDIAN = 0.5  # GeV, of the pT of any kind of object
SURE = 100  # events of which one has some missing energy

Ints = npt.NDArray[np.integer[Any]]


def unit_scale(pt: npt.NDArray[Any], units: str | None, path: str, kind: str = JET) -> float:
    """What to divide pT, mass and energy by. `units`: "GeV", "MeV", or None for GeV with a check of the pT."""
    if units is not None:
        return 1000.0 if units == "MeV" else 1.0
    if (median := mev_median(pt)) is not None:
        raise InputError(
            f"{path}: the median {kind} pT is {median:.0f}, which looks like MeV: give --units MeV "
            "(or --units GeV, if it is right)"
        )
    return 1.0


def check_units(objects: Mapping[str, ak.Array], path: str, fixed: str | None = None) -> None:
    """Refuse a kind of object that is in other units than the first; warn of missing energy that is always 0.

    Momenta are in GeV if the file has one unit for all: then no median is a thousand times too large or small.
    fixed: the units that all files of this format have; without them the first kind has been checked already.
    """
    reference, usual = None, 0.0
    for kind, array in objects.items():
        pt = np.asarray(ak.flatten(array.pt))[:UNIT_SAMPLE]
        if kind in TRANSVERSE and len(pt) >= SURE and not pt.any():
            warnings.warn(
                f"{path}: {kind} is 0 in each of {len(pt)} events: it may not be filled; name another column with "
                f"--map {kind}.pt=COLUMN",
                PairtonWarning,
                stacklevel=2,
            )
        pt = pt[np.isfinite(pt) & (pt > 0)]
        median = float(np.median(pt)) if len(pt) else None
        if median is None:
            continue
        wrong = mev_median(pt) is not None or median < LEAST_MEDIAN
        if reference is None:
            if wrong and fixed is not None:
                raise InputError(
                    f"{path}: the median pT of {collection_name(kind)} is {median:.3g} GeV, but files of this "
                    f"format are in {fixed}: correct the momenta in the file"
                )
            if wrong:  # the user said that these units are right: nothing to compare with
                return
            reference, usual = kind, median
        elif wrong:
            raise InputError(
                f"{path}: the median pT is {usual:.3g} GeV for {collection_name(reference)}, but {median:.3g} for "
                f"{collection_name(kind)}: one is in MeV and one in GeV; name columns of the same units with "
                f"--map {kind}.pt=COLUMN"
            )


@dataclass
class BadLabels:
    """Counts labels that cannot be, over the chunks and files of one reading, for one warning at its end."""

    labels: int = 0
    events: int = 0
    where: str = field(default="")  # the first one

    def add(self, labels: int, events: int, where: str) -> None:
        self.where = self.where or where
        self.labels += labels
        self.events += events

    def warn(self) -> None:
        if self.labels:
            warnings.warn(f"{self}: their particles count as unlabelled", PairtonWarning, stacklevel=3)

    def __str__(self) -> str:
        return (
            f"{self.labels} label{'s' * (self.labels != 1)} in {self.events} event{'s' * (self.events != 1)} "
            f"out of range, repeated or two on one object (first: {self.where})"
        )


def clean_labels(
    topology: Topology,
    truth: Ints,
    counts: Mapping[str, Ints],
    bad: npt.NDArray[np.bool_] | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Labels without those that cannot be, (n, S) int32, and the number of bad ones in each event, (n,).

    Labels are positions among the objects of the slot's kind, `counts` (n,) of each kind. Bad is what is out of
    range (below -1, or no object), what shares its object with another label, and what the caller marks in `bad`
    (n, S). A bad label unlabels the particle that decays directly to it: all objects that this particle decays to
    directly lose their label. Particles above are then incomplete by themselves; those beside and below keep
    their labels.

    >>> from pairton.topology import load_topology
    >>> ttbar, n_jets = load_topology("ttbar_allhad"), np.array([6])
    >>> truth, count = clean_labels(ttbar, np.array([[0, 9, 2, 3, 4, 5]]), {"jet": n_jets})
    >>> truth.tolist(), count.tolist()
    ([[-1, -1, 2, 3, 4, 5]], [1])
    """
    columns = np.ascontiguousarray(small(truth).T)  # (S, n)
    wrong = np.stack([columns[s.index] >= counts[s.kind].astype(np.int32) for s in topology.slots])
    wrong |= columns < -1
    if bad is not None:
        wrong |= bad.T
    distinct = columns.copy()
    for slot, column in enumerate(distinct):
        column[wrong[slot] | (column < 0)] = -1 - slot  # so that only two labels on one object are equal
    for one, other in combinations(topology.slots, 2):
        if one.kind == other.kind:
            both = distinct[one.index] == distinct[other.index]
            if both.any():
                wrong[[one.index, other.index]] |= both
    n_bad = np.count_nonzero(wrong, axis=0)
    if n_bad.any():
        columns = columns.copy()
        for particle in topology.particles:
            own = np.array(particle.own_slots, dtype=np.intp)
            (rows,) = np.nonzero(wrong[own].any(axis=0))
            columns[own[:, None], rows] = -1
    return columns.T, n_bad


def small(labels: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Labels as int32: what does not fit stays out of range, and a NaN is no label."""
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
    if labels.dtype.itemsize >= 4 and labels.size and (labels.max() > NO_OBJECT or labels.min() < -NO_OBJECT):
        labels = np.clip(labels, -NO_OBJECT, NO_OBJECT)
    return labels.astype(np.int32, copy=False)


def labels_to_truth(
    topology: Topology, labels: npt.NDArray[Any], counts: Ints
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """As `kind_labels_to_truth`, of numbers on jets alone.

    >>> from pairton.topology import load_topology
    >>> labels_to_truth(load_topology("hh4b"), np.array([0, 3, 1, 2, 4]), np.array([5]))[0].tolist()
    [[2, 3, 1, 4]]
    """
    return kind_labels_to_truth(topology, {JET: labels}, {JET: counts})


def kind_labels_to_truth(
    topology: Topology, labels: Mapping[str, npt.NDArray[Any]], counts: Mapping[str, Ints]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """HyPER's numbers on objects to the object of each slot (n, S), and the number of bad ones per event (n,).

    labels   kind -> (J,): numbers on the objects of all events; slots of other kinds have no object
    counts   kind -> (n,): objects per event

    A number on two objects of a kind is bad, and so is one that means no slot; 0 and NaN are no label.
    """
    n = len(next(iter(counts.values())))
    truth = np.full((n, len(topology.slots)), -1, dtype=np.int64)
    repeated = np.zeros(truth.shape, dtype=bool)
    strange = np.zeros(n, dtype=np.int64)
    named = topology.labels("hyper")
    for kind, numbers in labels.items():
        at = np.repeat(np.arange(n), counts[kind])  # the event of each object
        position = np.arange(len(numbers)) - (np.cumsum(counts[kind]) - counts[kind])[at]
        mine = [slot.index for slot in topology.slots if slot.kind == kind]
        wanted = [int(named[slot].rpartition("-")[2]) for slot in mine]  # "2-1": label 1 of leptons
        values = np.asarray(numbers, dtype=np.float64)
        truth[:, mine], repeated[:, mine], odd = labels_from_jets(values, at, position, n, wanted)
        strange += odd
    clean, bad = clean_labels(topology, truth, counts, repeated)
    return clean, bad + strange


def labels_from_jets(
    labels: npt.NDArray[Any], at: Ints, position: Ints, n_events: int, numbers: Iterable[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Per-jet labels to per-slot jets, where a code writes on each jet which product it is.

    `labels`, `at`, `position` (J,) are the label, event and position of each jet; `numbers` the label of each
    slot. Returns truth (n, S), a mask of slots named on more than one jet, and labels of no slot per event (n,).

    >>> labels_from_jets(np.array([0, 2, 1]), np.array([0, 0, 0]), np.arange(3), 1, [1, 2])[0].tolist()
    [[2, 1]]
    """
    wanted = list(numbers)
    truth = np.full((n_events, len(wanted)), -1, dtype=np.int64)
    repeated = np.zeros(truth.shape, dtype=bool)
    known = (labels == 0) | np.isnan(labels)
    for slot, number in enumerate(wanted):
        (where,) = np.nonzero(labels == number)
        known[where] = True
        truth[at[where], slot] = position[where]
        repeated[:, slot] = np.bincount(at[where], minlength=n_events) > 1
    strange = np.bincount(at[~known], minlength=n_events)
    return truth, repeated, strange


def report_labels(
    counts: npt.NDArray[np.int64], collector: BadLabels, strict: bool, path: str, start: int
) -> None:
    """Count bad labels, or refuse them; `start` is the row of the first event."""
    (rows,) = np.nonzero(counts)
    if not len(rows):
        return
    where = f"{path}, row {start + int(rows[0])}"
    if strict:
        found = BadLabels(int(counts.sum()), len(rows), where)
        raise EventsError(f"{path}: {found}; mend them, or read without --strict to unlabel their particles")
    collector.add(int(counts.sum()), len(rows), where)
