"""Truth: labels of objects in a file, and particles of a generator record that objects are matched to."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError, PairtonWarning
from pairton.events.events import Objects
from pairton.events.matching import (
    codes_of,
    fill_slots,
    from_taus,
    is_one_of,
    match_slots,
    pdg_codes,
    unknown_names,
)
from pairton.topology import JET, Topology
from pairton.topology.extras import labels_of

__all__ = ["TRUTH_SETTINGS", "BadLabels", "GenRecord", "can_search", "clean_labels", "labels_to_truth", "small"]

Ints = npt.NDArray[np.int64]
NO_OBJECT = 2**31 - 1
RESONANCES = (6, 7, 8, 23, 24, 25, 32, 33, 34, 35, 36, 37)  # PDG codes
TRUTH_SETTINGS = {
    "truth": "hard (default: objects are matched to particles of the hard process) or last (to these particles "
    "after they radiated)"
}
BLOCK = 8192  # events searched at once, so that their entries nearly fit in the cache


# -- labels in a file --------------------------------------------------------------------------------------


@dataclass
class BadLabels:
    """Counts invalid labels over all chunks and files that are read, for one warning at the end."""

    labels: int = 0
    events: int = 0
    where: str = ""  # file and row of the first one

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
    truth: npt.NDArray[Any],
    counts: Mapping[str, npt.NDArray[Any]],
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
    topology: Topology, labels: Mapping[str, npt.NDArray[Any]], counts: Mapping[str, npt.NDArray[Any]]
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


# -- a generator record --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GenRecord:
    """A generator record: flat arrays over the entries (particles) of all events."""

    counts: Ints  # (n,): entries per event
    code: npt.NDArray[Any]  # PDG code
    mother: npt.NDArray[Any]  # position among the entries of the event; numbers out of range mean none
    hard: npt.NDArray[np.bool_]  # whether it is in the hard process; False for incoming partons
    eta: npt.NDArray[Any]
    phi: npt.NDArray[Any]

    @classmethod
    def of(cls, counts: Ints, code: Ints, mother: Ints, eta: Any, phi: Any, hard: Any = False) -> GenRecord:
        """A record whose hard process are resonances, what they decay to, and further entries (`hard`)."""
        record = cls(counts, code, mother, is_one_of(code, RESONANCES) | hard, eta, phi)
        up = record.mothers(np.arange(len(code)))
        product = (up >= 0) & is_one_of(code[up], RESONANCES) if len(code) else record.hard
        return replace(record, hard=record.hard | product)

    def truth(
        self, topology: Topology, objects: Objects, passes: Objects | None = None, last: bool = False
    ) -> npt.NDArray[np.int32]:
        """(n, S): the position of each slot's object, among the objects that pass; -1 for none.

        last: match particles as they are after they radiated, not as in the hard process
        """
        eta, phi = (np.full((len(self.counts), len(topology.slots)), np.nan, np.float32) for _ in range(2))
        for start in range(0, len(self.counts), BLOCK):
            stop = min(start + BLOCK, len(self.counts))
            part = self._part(slice(start, stop), slice(self._first[start], self._first[stop]))
            entries = part.slot_entries(topology)
            entries = part.last_copies(entries) if last else entries
            row, slot = np.nonzero(entries >= 0)
            eta[start + row, slot] = part.eta[entries[row, slot]]
            phi[start + row, slot] = part.phi[entries[row, slot]]
        return match_slots(topology, objects, eta, phi, passes=passes)

    def _part(self, rows: slice, entries: slice) -> GenRecord:
        columns = (self.code, self.mother, self.hard, self.eta, self.phi)
        return GenRecord(self.counts[rows], *(column[entries] for column in columns))

    def slot_entries(self, topology: Topology) -> Ints:
        """(n, S): the entry of each slot's quark or lepton, -1 for none.

        Electrons and muons from a tau of the hard process count as part of the hard process.
        """
        with_leptons = any(slot.kind != JET for slot in topology.slots)
        hard = self.hard | from_taus(self.code, self.hard, self.mothers) if with_leptons else self.hard
        return replace(self, hard=hard)._fill(topology)

    def last_copies(self, entries: Ints) -> Ints:
        """Follow entries, -1 for none, through copies of themselves: particles of the same code below them."""
        every = np.arange(len(self.code) + 1)
        below, up = every - (every == len(self.code)), self.mothers(every[:-1])  # the last one is for -1
        below[-1] = -1
        (copies,) = np.nonzero((up >= 0) & (up < every[:-1]) & (self.code[up] == self.code) if len(up) else up)
        below[up[copies]] = copies
        while not np.array_equal(entries, lower := below[entries]):
            entries = lower
        return entries

    def _fill(self, topology: Topology) -> Ints:
        chosen, event, parent = self._tree(topology)
        return fill_slots(topology, chosen, event, self.code[chosen], parent, len(self.counts))

    def _tree(self, topology: Topology) -> tuple[Ints, Ints, Ints]:
        """Entries of the hard process without copies, their events, and the resonance each comes from, or -1.

        A parton shower copies a resonance when it recoils, and some records mark the copies as hard too. The
        resonance is given by its first copy.
        """
        codes = codes_of(topology)
        wanted = [c for name in topology.types if name in dict(topology.decays) for c in codes[name]]
        hard = np.flatnonzero(self.hard)
        chosen = hard[~self.is_copy(hard)]
        parent = self.mothers(chosen)
        climbing = np.flatnonzero(parent >= 0)
        while len(climbing):
            current = parent[climbing]
            found = self.hard[current] & is_one_of(self.code[current], wanted)
            found[found] = ~self.is_copy(current[found])
            climbing, current = climbing[~found], current[~found]
            up = self.mothers(current)
            parent[climbing] = np.where(up < current, up, -1)  # mothers come first, except for beam particles
            climbing = climbing[parent[climbing] >= 0]
        return chosen, self._event(chosen), parent

    @cached_property
    def _first(self) -> Ints:
        """(n + 1,): the first entry of each event."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    def _event(self, entries: Ints) -> Ints:
        return np.searchsorted(self._first, entries, side="right") - 1

    def mothers(self, entries: Ints) -> Ints:
        """The entries of their first mothers, -1 for none."""
        event, local = self._event(entries), self.mother[entries].astype(np.int64)
        valid = (local >= 0) & (local < self.counts[event])
        return np.where(valid, local + self._first[event], -1)

    def is_copy(self, entries: Ints) -> npt.NDArray[np.bool_]:
        """Whether each entry is a copy of one in the hard process: mothers of the same code lead to it.

        A quark that scatters has the code of an incoming parton, which is not in the hard process: it is no copy.
        """
        found = np.zeros(len(entries), dtype=bool)
        at, current = np.arange(len(entries)), entries
        while len(at):
            up = self.mothers(current)
            same = (up >= 0) & (up < current) & (self.code[up] == self.code[current])  # mothers come first
            at, current = at[same], up[same]
            hard = self.hard[current]
            found[at[hard]] = True
            at, current = at[~hard], current[~hard]
        return found


def can_search(topology: Topology, path: str) -> bool:
    """Whether all names of the topology have PDG codes; warns if not."""
    unknown = unknown_names(topology)
    if unknown:
        warnings.warn(
            f"{path}: truth is not read, because {', '.join(unknown)} of {topology.name} has no PDG code: add it "
            f"under `codes:` of the topology, or use the names {', '.join(pdg_codes())}",
            PairtonWarning,
            stacklevel=3,
        )
    return not unknown
