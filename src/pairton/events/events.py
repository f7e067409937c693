"""Events: ragged jets with an optional truth, weights and permanent ids, one row for every event of the input.

Units are GeV and radians. Jets stay as they are stored, in their order, so that an index refers to the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError, nearest
from pairton.events.objects import JET_FIELDS
from pairton.topology import Topology, load_topology
from pairton.topology.assignments import present

__all__ = ["SPLITS", "Events", "Status"]

SPLITS = ("train", "validation", "test")
DENSE_FEATURES = len(JET_FIELDS)

# A float32 energy is rounded in its 24th bit; files that store four rounded numbers may be off by several.
ENERGY_TOLERANCE = 1e-4
MOST_ENERGY = 1e8  # GeV, of a jet: far above any collider, and its square is still a number to the network


class Status(IntEnum):
    """Why an event has no answer, or one with a caveat."""

    OK = 0
    TOO_FEW_JETS = 1
    BAD_JET = 2
    TRUNCATED = 3  # more jets than --max-jets: the softest were left out
    OUTSIDE_DOMAIN = 4

    @property
    def label(self) -> str:
        return self.name.lower()


class Events:
    """One row for every event of the input.

    >>> from pairton.events.objects import make_jets
    >>> jets = make_jets(pt=[[50.0, 40.0], []], eta=[[0.1, -2.0], []], phi=[[0.0, 3.0], []],
    ...                  mass=[[5.0, 4.0], []], btag=[[1, 0], []])
    >>> events = Events(jets, topology="hh4b")
    >>> len(events), events.n_jets.tolist(), events.selected.tolist()
    (2, [2, 0], [False, False])
    >>> events[1:].ids.tolist()
    [[0, 1]]
    """

    jets: ak.Array  # var * Momentum4D[pt, eta, phi, energy, btag]; perhaps `index` (not the position), `usable`
    topology: Topology
    truth: npt.NDArray[np.int32] | None  # (n, S): position in `jets`, -1 where a product has no jet
    weights: npt.NDArray[np.float64] | None  # (n,)
    ids: npt.NDArray[np.uint64]  # (n, 2): source and number, permanent
    columns: Mapping[str, Any]  # further arrays of length n, carried along
    metadata: Mapping[str, Any]
    variations: Mapping[str, ak.Array]  # the same jets calibrated otherwise, by the name of the variation

    def __init__(
        self,
        jets: ak.Array,
        topology: Topology | str | Path = "ttbar_allhad",
        truth: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
        ids: npt.ArrayLike | None = None,
        columns: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        variations: Mapping[str, ak.Array] | None = None,
    ) -> None:
        _check_fields("jets", jets)
        n = len(jets)
        if ids is None:
            ids = np.stack([np.zeros(n, np.uint64), np.arange(n, dtype=np.uint64)], axis=1)
        self.jets = jets
        self.topology = load_topology(topology)
        self.truth = None if truth is None else np.asarray(truth, dtype=np.int32)
        self.weights = None if weights is None else np.asarray(weights, dtype=np.float64)
        self.ids = np.asarray(ids, dtype=np.uint64)
        self.columns = dict(columns or {})
        self.metadata = dict(metadata or {})
        self.variations = dict(variations or {})
        self._check_shapes(n)
        self._check_variations()

    def _check_shapes(self, n: int) -> None:
        lengths = {name: len(column) for name, column in self.columns.items()} | {"ids": len(self.ids)}
        if self.weights is not None:
            lengths["weights"] = len(self.weights)
        if self.truth is not None:
            lengths["truth"] = len(self.truth)
            if self.truth.shape[1:] != (len(self.topology.slots),):
                raise EventsError(
                    f"truth has the shape {self.truth.shape}, but {self.topology.name} has "
                    f"{len(self.topology.slots)} slots: give one column each, or the right topology"
                )
        for name, length in lengths.items():
            if length != n:
                raise EventsError(
                    f"{name} has {length} rows, but there are jets of {n} events: lengths must agree"
                )
        if self.truth is not None:
            wrong = ((self.truth < -1) | (self.truth >= self.n_jets[:, None])).any(axis=1)
            if wrong.any():
                row = int(wrong.argmax())
                raise EventsError(
                    f"truth of event {row} is {self.truth[row].tolist()}, but it has {self.n_jets[row]} jets: "
                    "give positions of jets, from 0, and -1 for none"
                )
            ordered = np.sort(self.truth, axis=1)
            twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
            if twice.any():
                row = int(twice.argmax())
                raise EventsError(
                    f"truth of event {row} is {self.truth[row].tolist()}, with one jet in two slots: "
                    "give -1 to both"
                )

    def _check_variations(self) -> None:
        for name, jets in self.variations.items():
            _check_fields(f"variation {name!r}: jets", jets)
            same_rows = len(jets) == len(self)
            if not same_rows or not np.array_equal(np.asarray(ak.num(jets, axis=1)), self.n_jets):
                raise EventsError(
                    f"variation {name!r} has other jets than the nominal ones: "
                    "give the same events and jets in the same order, with other momenta"
                )

    # -- rows ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.jets)

    def __repr__(self) -> str:
        truth = "" if self.truth is None else f", {int(self.complete.sum())} fully reconstructible"
        return f"<Events: {len(self)} of {self.topology.name}, {int(self.n_jets.sum())} jets{truth}>"

    def __getitem__(self, where: slice | npt.NDArray[Any] | Sequence[int]) -> Events:
        if isinstance(where, list):
            where = np.asarray(where, dtype=None if where else np.intp)  # a mask stays one
        if not isinstance(where, slice | np.ndarray):
            raise EventsError(f"events[{where!r}]: index with a slice, a mask or a list of rows")
        return Events(
            self.jets[where],
            self.topology,
            None if self.truth is None else self.truth[where],
            None if self.weights is None else self.weights[where],
            self.ids[where],
            {name: column[where] for name, column in self.columns.items()},
            self.metadata,
            {name: jets[where] for name, jets in self.variations.items()},
        )

    @staticmethod
    def concatenate(parts: Sequence[Events]) -> Events:
        """One after the other. Truth, weights, variations: in all parts or in none; columns in all are kept."""
        if not parts:
            raise EventsError("nothing to concatenate: give at least one Events")
        first = parts[0]
        if any(part.topology != first.topology for part in parts):
            names = ", ".join(dict.fromkeys(part.topology.name for part in parts))
            raise EventsError(f"events of different topologies ({names}) do not concatenate: read them with one")
        if len(parts) == 1:
            return first
        for name in ("truth", "weights"):
            with_it = sum(getattr(part, name) is not None for part in parts)
            if with_it not in (0, len(parts)):
                raise EventsError(f"{with_it} of {len(parts)} parts have {name}: all or none must, drop or add it")
        if any(set(part.variations) != set(first.variations) for part in parts):
            names = ", ".join(sorted({name for part in parts for name in part.variations}))
            raise EventsError(f"only some parts have the variations {names}: all or none must, drop or add them")
        shared = [name for name in first.columns if all(name in part.columns for part in parts)]
        if any("index" in ak.fields(part.jets) for part in parts):
            parts = [part._with_field("index", part.stored_index) for part in parts]
        if any("usable" in ak.fields(part.jets) for part in parts):
            parts = [part._with_field("usable", part.usable) for part in parts]
        return Events(
            _as_momenta(ak.concatenate([part.jets for part in parts])),
            first.topology,
            None if first.truth is None else np.concatenate([p.truth for p in parts if p.truth is not None]),
            None if first.weights is None else np.concatenate([p.weights for p in parts if p.weights is not None]),
            np.concatenate([part.ids for part in parts]),
            {name: ak.concatenate([part.columns[name] for part in parts]) for name in shared},
            first.metadata,
            {
                name: _as_momenta(ak.concatenate([part.variations[name] for part in parts]))
                for name in first.variations
            },
        )

    def _with_field(self, name: str, values: ak.Array) -> Events:
        if name in ak.fields(self.jets):
            return self
        return self.with_jets(ak.with_field(self.jets, values, name), self.variations)

    def with_jets(self, jets: ak.Array, variations: Mapping[str, ak.Array] | None = None) -> Events:
        """The same events with other jets in the same positions: another calibration, say."""
        return Events(
            jets, self.topology, self.truth, self.weights, self.ids, self.columns, self.metadata, variations
        )

    def varied(self, name: str) -> Events:
        """The same events with the jets of a variation; what it does not say is as in the nominal ones."""
        if name not in self.variations:
            known = ", ".join(self.variations) or "none"
            raise EventsError(f"no variation {name!r}: there are {known}{nearest(name, self.variations)}")
        jets = self.variations[name]
        for field in ("index", "usable"):
            if field in ak.fields(self.jets) and field not in ak.fields(jets):
                jets = ak.with_field(jets, self.jets[field], field)
        return self.with_jets(jets)

    # -- what is in them -----------------------------------------------------------------------------------

    @cached_property
    def n_jets(self) -> npt.NDArray[np.int64]:
        return np.asarray(ak.num(self.jets, axis=1), dtype=np.int64)

    @cached_property
    def stored_index(self) -> ak.Array:
        """The number of each jet in the input file."""
        return self.jets.index if "index" in ak.fields(self.jets) else ak.local_index(self.jets.pt, axis=1)

    @cached_property
    def usable(self) -> ak.Array:
        """Jets that passed the identification of their experiment; all, where the file or its reader says none."""
        return self.jets.usable if "usable" in ak.fields(self.jets) else ak.ones_like(self.jets.pt, dtype=bool)

    @cached_property
    def status(self) -> npt.NDArray[np.uint8]:
        """OK, or BAD_JET where a usable jet has a NaN, an infinity, pT <= 0, or an impossible energy."""
        flat = {name: np.asarray(ak.flatten(self.jets[name])) for name in JET_FIELDS}
        with np.errstate(over="ignore", invalid="ignore"):
            momentum = flat["pt"].astype(np.float64) * np.cosh(flat["eta"].astype(np.float64))
            good = (flat["pt"] > 0) & (flat["energy"] >= momentum * (1 - ENERGY_TOLERANCE))
            good &= (flat["energy"] <= MOST_ENERGY) & np.isfinite(momentum)
            for values in flat.values():
                good &= np.isfinite(values.astype(np.float32))  # as the network gets them
        if "usable" in ak.fields(self.jets):
            good |= ~np.asarray(ak.flatten(self.usable), dtype=bool)
        row = np.repeat(np.arange(len(self)), self.n_jets)
        bad = np.bincount(row[~good], minlength=len(self)) > 0
        return np.where(bad, Status.BAD_JET, Status.OK).astype(np.uint8)

    @cached_property
    def jet_passes(self) -> ak.Array:
        """Usable jets within the selection of the topology; its edges belong to it, since files round."""
        cuts = self.topology.selection
        return self.usable & (self.jets.pt >= cuts.pt) & (abs(self.jets.eta) <= cuts.abs_eta)

    @cached_property
    def n_passing(self) -> npt.NDArray[np.int64]:
        """Jets of each event within the selection: what an analysis calls its multiplicity."""
        return np.asarray(ak.sum(self.jet_passes, axis=1), dtype=np.int64)

    @cached_property
    def selected(self) -> npt.NDArray[np.bool_]:
        """Events that pass the selection of the topology, on the jets that do; never one with a bad jet."""
        cuts = self.topology.selection
        tags = np.asarray(ak.sum(self.jet_passes & (self.jets.btag > 0.5), axis=1))
        return np.asarray((self.n_passing >= cuts.jets) & (tags >= cuts.btags) & (self.status == Status.OK))

    @cached_property
    def present(self) -> npt.NDArray[np.bool_]:
        """(n, P): particles whose every jet is labelled; all False without truth."""
        if self.truth is None:
            return np.zeros((len(self), len(self.topology.particles)), dtype=bool)
        return present(self.topology, self.truth)

    @cached_property
    def complete(self) -> npt.NDArray[np.bool_]:
        return np.asarray(np.all(self.present, axis=1))

    # -- choices -------------------------------------------------------------------------------------------

    def select(self) -> Events:
        """Jets and events that pass the selection; truth and `stored_index` follow the jets."""
        return self.keep_jets(self.jet_passes)[self.selected]

    def keep_jets(self, passes: ak.Array) -> Events:
        """Only the jets of a mask; a product whose jet is gone has none."""
        if bool(ak.all(passes, axis=None)):
            return self
        jets = ak.with_field(self.jets, self.stored_index, "index")[passes]
        truth = self.truth
        if truth is not None:
            flat = np.asarray(ak.flatten(passes), dtype=bool)
            rank = np.cumsum(flat) - 1
            starts = np.concatenate([[0], np.cumsum(self.n_jets)])[:-1]
            before = np.concatenate([[0], np.cumsum(flat)])[starts]  # kept jets of all earlier events
            at = np.where(truth >= 0, starts[:, None] + truth, 0)
            if len(flat):
                truth = np.where((truth >= 0) & flat[at], rank[at] - before[:, None], -1).astype(np.int32)
        variations = {name: other[passes] for name, other in self.variations.items()}
        return Events(jets, self.topology, truth, self.weights, self.ids, self.columns, self.metadata, variations)

    def in_split(
        self, name: str, fractions: Sequence[float] = (0.9, 0.05, 0.05), seed: int = 0
    ) -> npt.NDArray[np.bool_]:
        """Events of a split, by a hash of their ids: no reordering, chunking or selection moves an event.

        >>> from pairton.events.objects import make_jets
        >>> jets = make_jets(**{name: [[50.0]] * 1000 for name in ("pt", "eta", "phi", "mass", "btag")})
        >>> events = Events(jets, "hh4b")
        >>> [int(events.in_split(name).sum()) for name in SPLITS]
        [893, 59, 48]
        """
        if name not in SPLITS:
            raise EventsError(f"no split {name!r}: choose one of {', '.join(SPLITS)}")
        if len(fractions) != len(SPLITS) or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
            raise EventsError(f"fractions {tuple(fractions)} must be {len(SPLITS)} numbers that add up to one")
        edges = np.concatenate([[0.0], np.cumsum(fractions)])
        edges[-1] = np.inf
        k = SPLITS.index(name)
        u = _uniform(self.ids, seed)
        return np.asarray((u >= edges[k]) & (u < edges[k + 1]))

    def dense(self, n_jets: int | None = None) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """(n, N, 5) jets in the order of JET_FIELDS, zero-padded, and the (n, N) mask of real ones.

        Events with more than `n_jets` jets keep their first ones; callers order and cut before.
        """
        width = int(self.n_jets.max(initial=0)) if n_jets is None else n_jets
        counts = np.minimum(self.n_jets, width)
        mask = np.arange(width) < counts[:, None]
        dense = np.zeros((len(self), width, DENSE_FEATURES), dtype=np.float32)
        jets = self.jets if bool((self.n_jets <= width).all()) else self.jets[:, :width]
        for k, name in enumerate(JET_FIELDS):
            dense[:, :, k][mask] = np.asarray(ak.flatten(jets[name]), dtype=np.float32)
        return dense, mask


def _check_fields(what: str, jets: ak.Array) -> None:
    missing = [name for name in JET_FIELDS if name not in ak.fields(jets)]
    if missing:
        raise EventsError(
            f"{what} lack {', '.join(missing)}: found {', '.join(ak.fields(jets)) or 'no fields'}; "
            "build them with pairton.make_jets"
        )


def _as_momenta(jets: ak.Array) -> ak.Array:
    return ak.with_name(jets, "Momentum4D")


def _uniform(ids: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each (source, number): splitmix64, chained over the words."""
    state = np.full(len(ids), (seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64, dtype=np.uint64)
    for word in ids.T:
        state = state + word + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) / 2**53
