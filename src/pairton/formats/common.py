"""Checks that all readers share: units of momenta, and labels of the truth."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError, InputError, PairtonWarning
from pairton.events.objects import UNIT_SAMPLE, mev_median
from pairton.topology import JET, Topology, collection_name
from pairton.topology.extras import labels_of
from pairton.topology.kinds import KINDS

__all__ = [
    "BadLabels",
    "check_units",
    "clean_labels",
    "labels_to_truth",
    "small",
    "unit_scale",
]

NO_OBJECT = 2**31 - 1
LEAST_MEDIAN = 0.5  # GeV: a smaller median pT means wrong units
LEAST_MET = 1e-3  # GeV: a smaller median is that of events without missing energy, whatever the units
MOST_DEGREES = 360  # |phi| of more is damage, not degrees
ENOUGH = 20  # objects: the median pT of fewer, such as the missing energy of a few events, can be small by chance
SURE = 100  # in so many events, the missing energy cannot always be 0

Ints = npt.NDArray[np.integer[Any]]


def unit_scale(pt: npt.NDArray[Any], units: str | None, path: str, kind: str = JET) -> float:
    """The number to divide pT, mass and energy by. `units`: "GeV", "MeV", or None for GeV with a check of pT."""
    if units is not None:
        return 1000.0 if units == "MeV" else 1.0
    if (median := mev_median(pt)) is not None:
        raise InputError(
            f"{path}: the median {kind} pT is {median:.0f}, which looks like MeV: give --set units=MeV "
            "(or --set units=GeV, if it really is GeV)"
        )
    return 1.0


def check_units(
    objects: Mapping[str, ak.Array], path: str, units: str | None = None, fixed: str | None = None
) -> None:
    """Raise InputError if kinds of objects have different units; warn if the missing energy is always 0.

    The median pT of every kind must be plausible in GeV, and the median |phi| in radians. units: those that the
    user gave; fixed: those that all files of the format have.
    """
    reference, usual = None, 0.0
    for kind, array in objects.items():
        phi = np.abs(np.asarray(ak.flatten(array["phi"]))[:UNIT_SAMPLE])
        if len(phi) >= ENOUGH and 2 * np.pi < (median_phi := float(np.median(phi))) <= MOST_DEGREES:
            raise InputError(
                f"{path}: the median |phi| of {collection_name(kind)} is {median_phi:.3g}, which looks like "
                "degrees: write the file again with phi in radians"
            )
        pt = np.asarray(ak.flatten(array["pt"]))[:UNIT_SAMPLE]
        if KINDS[kind].transverse and len(pt) >= SURE and not pt.any():
            warnings.warn(
                f"{path}: {kind} is 0 in each of {len(pt)} events, so it may not be filled: name another column "
                f"with --map {kind}.pt=COLUMN",
                PairtonWarning,
                stacklevel=2,
            )
        pt = pt[np.isfinite(pt) & (pt > 0)]
        median = float(np.median(pt)) if len(pt) else None
        if median is None or (KINDS[kind].transverse and median < LEAST_MET):
            continue
        wrong = mev_median(pt) is not None or (median < LEAST_MEDIAN and len(pt) >= ENOUGH)
        if reference is None:
            if wrong and fixed is not None:
                raise InputError(
                    f"{path}: the median pT of {collection_name(kind)} is {median:.3g} GeV, which is not "
                    f"plausible; files of this format are in {fixed}: correct the momenta in the file"
                )
            if wrong:
                unit_scale(pt, units, path, kind)  # the kinds before it have no objects to find the units from
                return  # the user gave these units, so there is nothing to compare with
            reference, usual = kind, median
        elif wrong:
            raise InputError(
                f"{path}: the median pT is {usual:.3g} GeV for {collection_name(reference)}, but {median:.3g} GeV "
                f"for {collection_name(kind)}, so their units differ: name a column with the same units with "
                f"--map {kind}.pt=COLUMN"
            )


@dataclass
class BadLabels:
    """Counts invalid labels over all chunks and files that are read, for one warning at the end."""

    labels: int = 0
    events: int = 0
    where: str = field(default="")  # file and row of the first one

    def add(self, counts: npt.NDArray[np.int64], strict: bool, path: str, start: int) -> None:
        """Add invalid labels per event, or raise EventsError if `strict`; `start`: row of the first event."""
        (rows,) = np.nonzero(counts)
        if not len(rows):
            return
        new = BadLabels(int(counts.sum()), len(rows), f"{path}, row {start + int(rows[0])}")
        if strict:
            raise EventsError(
                f"{path}: {new}: correct them, or read without --strict to treat their particles as unlabelled"
            )
        self.where = self.where or new.where
        self.labels += new.labels
        self.events += new.events

    def warn(self) -> None:
        if self.labels:
            warnings.warn(f"{self}: their particles are treated as unlabelled", PairtonWarning, stacklevel=3)

    def __str__(self) -> str:
        return (
            f"{self.labels} label{'s' * (self.labels != 1)} in {self.events} event{'s' * (self.events != 1)} "
            f"out of range, repeated, or on the same object as another (first: {self.where})"
        )


def clean_labels(
    topology: Topology,
    truth: Ints,
    counts: Mapping[str, Ints],
    bad: npt.NDArray[np.bool_] | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Remove invalid labels. Return the labels (n, S) as int32, and the number of invalid ones per event (n,).

    Labels are positions among the `counts` (n,) objects of the slot's kind. A label is invalid if it is below -1
    or beyond the last object, if another label has the same object, or if `bad` (n, S) marks it. An invalid label
    also removes the labels of its siblings: all slots that the same particle decays to directly. Particles above
    are then incomplete; those beside and below keep their labels.

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
        column[wrong[slot] | (column < 0)] = -1 - slot  # so that only labels on the same object are equal
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
    """Labels as int32: numbers that do not fit stay out of range, and NaN becomes -1."""
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
    if labels.dtype.itemsize >= 4 and labels.size and (labels.max() > NO_OBJECT or labels.min() < -NO_OBJECT):
        labels = np.clip(labels, -NO_OBJECT, NO_OBJECT)
    return labels.astype(np.int32, copy=False)


def labels_to_truth(
    topology: Topology, labels: Mapping[str, npt.NDArray[Any]], counts: Mapping[str, Ints]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Convert HyPER's labels of objects to truth (n, S), and count invalid labels per event (n,).

    labels   kind -> (J,): labels of the objects of all events; slots of other kinds stay empty
    counts   kind -> (n,): objects per event

    0 and NaN mean no label. A label is invalid if two objects of a kind have it, or if it belongs to no slot.

    >>> from pairton.topology import load_topology
    >>> labels = {"jet": np.array([0, 3, 1, 2, 4])}
    >>> labels_to_truth(load_topology("hh4b"), labels, {"jet": np.array([5])})[0].tolist()
    [[2, 3, 1, 4]]
    """
    n = len(next(iter(counts.values())))
    truth = np.full((n, len(topology.slots)), -1, dtype=np.int64)
    repeated = np.zeros(truth.shape, dtype=bool)
    unknown = np.zeros(n, dtype=np.int64)
    names = labels_of(topology, "hyper")
    for kind, numbers in labels.items():
        at = np.repeat(np.arange(n), counts[kind])  # the event of each object
        position = np.arange(len(numbers)) - (np.cumsum(counts[kind]) - counts[kind])[at]
        values = np.asarray(numbers, dtype=np.float64)
        known = (values == 0) | np.isnan(values)
        for slot in (slot.index for slot in topology.slots if slot.kind == kind):
            (where,) = np.nonzero(values == int(names[slot].rpartition("-")[2]))  # "2-1": label 1 of leptons
            known[where] = True
            truth[at[where], slot] = position[where]
            repeated[:, slot] = np.bincount(at[where], minlength=n) > 1
        unknown += np.bincount(at[~known], minlength=n)
    clean, bad = clean_labels(topology, truth, counts, repeated)
    return clean, bad + unknown
