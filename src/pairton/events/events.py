"""Events: ragged objects by kind, with optional truth and weights and permanent ids; one row per event.

Units are GeV and radians. Objects keep the order of the input, so that their positions refer to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError, nearest
from pairton.events.event_checks import (
    check_parts,
    check_shapes,
    check_truth,
    check_variations,
    joined_column,
    joined_objects,
)
from pairton.events.inputs import MOMENTUM
from pairton.events.nodes import Status
from pairton.events.objects import check_fields, is_cut, is_physical
from pairton.events.splits import DEFAULT_FRACTIONS, uniform
from pairton.topology import JET, Topology, collection_name, load_topology
from pairton.topology.assignments import present
from pairton.topology.selection import Cuts

__all__ = ["SPLITS", "Events", "Objects"]

SPLITS = ("train", "validation", "test")

Objects = Mapping[str, ak.Array]  # kind -> ragged array of Momentum4D: pt, eta, phi, energy, further fields


class Events:
    """Measured events: objects by kind, and optionally truth, weights and ids. One row per event.

    Args:
        objects: Kind ("jet", "lepton", "met", ...) -> array from `pairton.make_objects`; or jets alone.
        topology: The decay tree of the events: a name, a file or a `Topology`.
        truth: (n, slots): the position of each slot's object among the objects of its kind, -1 for none. If a
            particle is merged, its other slots are -1.
        weights: (n,): one weight per event.
        ids: (n, 2): source and number of each event; by default 0 and the row.
        columns: Further arrays of length n, which are copied to results.
        metadata: Information on all events, as plain data.
        variations: Objects with systematic variations: name of the variation -> objects by kind.

    Raises:
        EventsError: Lengths do not agree, a four-momentum is incomplete, or truth is out of range.

    Examples:
        >>> from pairton.events.objects import make_jets
        >>> jets = make_jets(pt=[[50.0, 40.0], []], eta=[[0.1, -2.0], []], phi=[[0.0, 3.0], []],
        ...                  mass=[[5.0, 4.0], []], btag=[[1, 0], []])
        >>> events = Events(jets, topology="hh4b")
        >>> len(events), events.n_jets.tolist(), events.selected.tolist()
        (2, [2, 0], [False, False])
        >>> events[1:].ids.tolist()
        [[0, 1]]
    """

    objects: Objects  # in the order of the topology's kinds
    topology: Topology
    truth: npt.NDArray[np.int32] | None  # (n, S)
    weights: npt.NDArray[np.float64] | None  # (n,)
    ids: npt.NDArray[np.uint64]  # (n, 2)
    columns: Mapping[str, Any]
    metadata: Mapping[str, Any]
    variations: Mapping[str, Objects]

    def __init__(
        self,
        objects: Objects | ak.Array,
        topology: Topology | str | Path = "ttbar_allhad",
        truth: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
        ids: npt.ArrayLike | None = None,
        columns: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        variations: Mapping[str, Objects | ak.Array] | None = None,
    ) -> None:
        self.topology = load_topology(topology)
        found = _by_kind(objects)
        if missing := [kind for kind in self.topology.kinds if kind not in found]:
            raise EventsError(
                f"{self.topology.name} needs {', '.join(map(collection_name, missing))}, but the events have "
                f"{', '.join(map(collection_name, found)) or 'no objects'}: add them, or choose another topology"
            )
        self.objects = {kind: found[kind] for kind in self.topology.kinds}
        for kind, array in self.objects.items():
            check_fields(collection_name(kind), array)
        n = len(self)
        if ids is None:
            ids = np.stack([np.zeros(n, np.uint64), np.arange(n, dtype=np.uint64)], axis=1)
        self.truth = None if truth is None else np.asarray(truth, dtype=np.int32)
        self.weights = None if weights is None else np.asarray(weights, dtype=np.float64)
        self.ids = np.asarray(ids, dtype=np.uint64)
        self.columns = dict(columns or {})
        self.metadata = dict(metadata or {})
        self.variations = {name: _by_kind(varied) for name, varied in (variations or {}).items()}
        check_shapes(self)
        if self.truth is not None:
            check_truth(self, self.truth)
        check_variations(self)

    # -- rows ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(next(iter(self.objects.values())))

    def __repr__(self) -> str:
        truth = "" if self.truth is None else f", {int(self.complete.sum())} complete"
        counts = ", ".join(f"{int(self.counts[kind].sum())} {collection_name(kind)}" for kind in self.objects)
        return f"<Events: {len(self)} of {self.topology.name}, {counts}{truth}>"

    def __getitem__(self, where: slice | npt.NDArray[Any] | Sequence[int]) -> Events:
        if isinstance(where, list):
            where = np.asarray(where, dtype=None if where else np.intp)  # a list of booleans becomes a mask
        if not isinstance(where, slice | np.ndarray):
            raise EventsError(f"events[{where!r}] is not possible: use a slice, a mask or a list of rows")
        return self._unchecked(
            **self._mapped(lambda _, array: array[where]),
            truth=None if self.truth is None else self.truth[where],
            weights=None if self.weights is None else self.weights[where],
            ids=self.ids[where],
            columns={name: column[where] for name, column in self.columns.items()},
        )

    def replace(self, **changes: Any) -> Events:
        """Make a copy with other arguments of `Events`, or with `jets=` to change the jets alone.

        New objects drop the variations, unless `variations=` is given too.

        Examples:
            >>> from pairton.events.objects import make_jets
            >>> jets = make_jets(**{name: [[50.0]] for name in ("pt", "eta", "phi", "mass", "btag")})
            >>> Events(jets, "hh4b").replace(weights=[2.0]).weights.tolist()
            [2.0]
        """
        if "jets" in changes:
            changes["objects"] = {**self.objects, JET: changes.pop("jets")}
        if "objects" in changes:
            changes.setdefault("variations", None)
        if unknown := changes.keys() - set(_STATE):
            raise EventsError(f"events have no {sorted(unknown)[0]!r}: choose from jets, {', '.join(_STATE)}")
        return Events(**{name: getattr(self, name) for name in _STATE} | changes)

    def _unchecked(self, **changes: Any) -> Events:
        """Like `replace`, without checks."""
        copy = object.__new__(Events)
        for name in _STATE:
            setattr(copy, name, changes[name] if name in changes else getattr(self, name))
        return copy

    def _mapped(self, change: Callable[[str, ak.Array], ak.Array]) -> dict[str, Any]:
        """`objects` and `variations` after a change of the array of each kind."""

        def apply(objects: Objects) -> Objects:
            return {kind: change(kind, array) for kind, array in objects.items()}

        varied = {name: apply(objects) for name, objects in self.variations.items()}
        return {"objects": apply(self.objects), "variations": varied}

    @staticmethod
    def concatenate(parts: Sequence[Events]) -> Events:
        """Join events of one topology.

        Columns, and fields of objects, are kept if all parts have them.
        Truth, weights and variations must be in all parts or in none, else EventsError is raised.

        Examples:
            >>> import pairton
            >>> events = pairton.read("sample:ttbar_allhad")
            >>> len(Events.concatenate([events[:10], events[20:]])) - len(events)
            -10
        """
        check_parts(parts)
        first = parts[0]
        if len(parts) == 1:
            return first
        shared = [name for name in first.columns if all(name in part.columns for part in parts)]
        variations = {}
        for name, objects in first.variations.items():
            varied = [part.varied(name) for part in parts]
            variations[name] = {kind: joined_objects(kind, varied) for kind in objects}
        return first._unchecked(
            objects={kind: joined_objects(kind, parts) for kind in first.objects},
            truth=None if first.truth is None else np.concatenate([p.truth for p in parts if p.truth is not None]),
            weights=None if first.weights is None else np.concatenate([p.weights for p in parts]),
            ids=np.concatenate([part.ids for part in parts]),
            columns={name: joined_column(name, [part.columns[name] for part in parts]) for name in shared},
            variations=variations,
        )

    def varied(self, name: str) -> Events:
        """The events with the objects of a variation; kinds and fields that it does not have are nominal.

        Examples:
            >>> from pairton.events.objects import make_jets
            >>> jets, up = (make_jets(pt=[[pt]], eta=[[0]], phi=[[0]], mass=[[5]]) for pt in (50.0, 52.0))
            >>> Events(jets, "hh4b", variations={"jes_up": {"jet": up}}).varied("jes_up").jets.pt.tolist()
            [[52.0]]
        """
        if name not in self.variations:
            known = ", ".join(self.variations) or "none"
            raise EventsError(f"no variation {name!r}: the events have {known}{nearest(name, self.variations)}")
        objects = dict(self.objects)
        for kind, varied in self.variations[name].items():
            for field in ak.fields(self.objects[kind]):
                if field not in ak.fields(varied):
                    varied = ak.with_field(varied, self.objects[kind][field], field)
            objects[kind] = varied
        return self._unchecked(objects=objects, variations={})

    # -- what is in them -----------------------------------------------------------------------------------

    @property
    def jets(self) -> ak.Array:
        """`objects["jet"]`."""
        return self.objects[JET]

    @property
    def pile_up(self) -> bool:
        """Whether jets from pile-up are possible: the events are neither prepared for a network nor in memory."""
        return bool(self.metadata.get("pile_up"))

    @cached_property
    def counts(self) -> dict[str, npt.NDArray[np.int64]]:
        """Kind -> (n,): number of objects per event."""
        return {k: np.asarray(ak.num(array, axis=1), dtype=np.int64) for k, array in self.objects.items()}

    @property
    def n_jets(self) -> npt.NDArray[np.int64]:
        """(n,): number of jets per event."""
        return self.counts[JET]

    @property
    def each_weight(self) -> npt.NDArray[np.float64]:
        """(n,): the weights; ones if the events have none."""
        return np.ones(len(self)) if self.weights is None else self.weights

    @cached_property
    def stored_index(self) -> dict[str, ak.Array]:
        """Kind -> the position of each object in its event in the input file."""
        return self._marks("index", lambda array: ak.local_index(array.pt, axis=1))

    @cached_property
    def usable(self) -> dict[str, ak.Array]:
        """Kind -> whether each object passed its identification; all did if the reader does not say."""
        return self._marks("usable", lambda array: ak.ones_like(array.pt, dtype=bool))

    def _marks(self, name: str, default: Callable[[ak.Array], ak.Array]) -> dict[str, ak.Array]:
        objects = self.objects.items()
        return {kind: array[name] if name in ak.fields(array) else default(array) for kind, array in objects}

    def momenta(self, kind: str) -> npt.NDArray[np.float32]:
        """(J, 4): pt, eta, phi and energy of all objects of a kind."""
        with np.errstate(over="ignore"):  # an overflow becomes inf, which makes a bad object
            return np.stack([np.asarray(ak.flatten(self.objects[kind][n]), np.float32) for n in MOMENTUM], axis=1)

    def used(self, kind: str, cuts: Cuts) -> npt.NDArray[np.bool_]:
        """(J,): which objects of a kind are used: they are usable, and the cuts do not remove them."""
        usable = np.asarray(ak.flatten(self.usable[kind]), dtype=bool)
        return usable & ~is_cut(self.momenta(kind), kind, cuts)

    @cached_property
    def passes(self) -> dict[str, ak.Array]:
        """Kind -> whether each object is used with the cuts of the topology."""
        cuts = self.topology.selection.cuts
        return {kind: ak.unflatten(self.used(kind, cuts(kind)), self.counts[kind]) for kind in self.objects}

    @cached_property
    def status(self) -> npt.NDArray[np.uint8]:
        """(n,): BAD_OBJECT if a used object has NaN or an unphysical momentum; else OK."""
        bad = np.zeros(len(self), dtype=bool)
        for kind, passes in self.passes.items():
            wrong = np.asarray(ak.flatten(passes), dtype=bool) & ~is_physical(self.momenta(kind), kind)
            bad[np.repeat(np.arange(len(self)), self.counts[kind])[wrong]] = True
        return np.where(bad, Status.BAD_OBJECT, Status.OK).astype(np.uint8)

    @cached_property
    def failures(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Reason -> (n,): events that fail the selection of the topology, or have a bad object."""
        selection, btags = self.topology.selection, None
        if selection.btags and self.metadata.get("btag") != "none":  # read without tags
            if "btag" not in ak.fields(self.jets):
                raise EventsError("the selection counts b-tags: name the column of btag with --map btag=COLUMN")
            btags = np.asarray(ak.sum(self.passes[JET] & (self.jets.btag > 0.5), axis=1))
        counts = {kind: np.asarray(ak.sum(passes, axis=1)) for kind, passes in self.passes.items()}
        return {"bad objects": self.status != Status.OK, **selection.failures(counts, btags)}

    @cached_property
    def selected(self) -> npt.NDArray[np.bool_]:
        """(n,): events that pass the selection of the topology and have no bad object."""
        return np.asarray(~np.logical_or.reduce([*self.failures.values()]))

    @cached_property
    def present(self) -> npt.NDArray[np.bool_]:
        """(n, P): whether all products of a particle have an object in the truth; False without truth."""
        if self.truth is None:
            return np.zeros((len(self), len(self.topology.particles)), dtype=bool)
        return present(self.topology, self.truth)

    @cached_property
    def complete(self) -> npt.NDArray[np.bool_]:
        """(n,): events in which all root particles are present, resolved or merged."""
        return np.asarray(self.present[:, [root.index for root in self.topology.roots]].all(axis=1))

    # -- choices -------------------------------------------------------------------------------------------

    def select(self) -> Events:
        """Apply the selection of the topology to objects and events.

        Truth refers to the remaining objects; `stored_index` refers to the input file.

        Examples:
            >>> import pairton
            >>> events = pairton.read("sample:ttbar_allhad")
            >>> len(events.select()) == int(events.selected.sum())
            True
        """
        return self.keep(self.passes)[self.selected]

    def keep(self, masks: Mapping[str, ak.Array]) -> Events:
        """Keep the objects for which a mask by kind is True; other kinds keep all objects.

        Slots of the truth whose object was removed become empty (-1).

        Examples:
            >>> from pairton.events.objects import make_jets
            >>> jets = make_jets(pt=[[50.0, 20.0]], eta=[[0, 0]], phi=[[0, 1]], mass=[[5, 5]])
            >>> Events(jets, "hh4b").keep({"jet": jets.pt > 30}).n_jets.tolist()
            [1]
        """
        kept = self
        for kind, passes in masks.items():
            if not bool(ak.all(passes, axis=None)):
                kept = kept._keep_kind(kind, passes)
        return kept

    def _keep_kind(self, kind: str, passes: ak.Array) -> Events:
        truth = self.truth
        if truth is not None:
            flat = np.asarray(ak.flatten(passes), dtype=bool)
            before = np.concatenate([[0], np.cumsum(flat)])  # kept objects before each one
            starts = (np.cumsum(self.counts[kind]) - self.counts[kind])[:, None]
            filled = np.array([slot.kind == kind for slot in self.topology.slots]) & (truth >= 0)
            at = np.where(filled, starts + truth, 0)
            if len(flat):
                moved = np.where(flat[at], before[at] - before[starts], -1)
                truth = np.where(filled, moved, truth).astype(np.int32)
        marked = ak.with_field(self.objects[kind], self.stored_index[kind], "index")
        marked = self._unchecked(objects={**self.objects, kind: marked}, truth=truth)
        return marked._unchecked(**marked._mapped(lambda k, array: array[passes] if k == kind else array))

    def in_split(
        self, name: str, fractions: Sequence[float] = DEFAULT_FRACTIONS, seed: int = 0
    ) -> npt.NDArray[np.bool_]:
        """(n,): which events are in a split: `train`, `validation` or `test`.

        A hash of the id decides, so that neither the order nor the number of events matters. Another seed gives
        independent splits. EventsError is raised if the fractions of the three splits do not add up to one.

        Examples:
            >>> from pairton.events.objects import make_jets
            >>> jets = make_jets(**{name: [[50.0]] * 1000 for name in ("pt", "eta", "phi", "mass", "btag")})
            >>> events = Events(jets, "hh4b")
            >>> [int(events.in_split(name).sum()) for name in SPLITS]
            [893, 59, 48]
        """
        if name not in SPLITS:
            raise EventsError(f"no split {name!r}: choose one of {', '.join(SPLITS)}")
        if len(fractions) != len(SPLITS) or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
            raise EventsError(f"fractions is {tuple(fractions)}, but must be three numbers that add up to 1")
        edges = np.cumsum(fractions)[:-1]
        return np.asarray(np.searchsorted(edges, uniform(self.ids, seed), side="right") == SPLITS.index(name))

    def dense(
        self, kind: str = JET, columns: Sequence[str] = MOMENTUM
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Fields of objects (n, N, columns), padded with zeros, and a mask (n, N) that is False for padding.

        Examples:
            >>> import pairton
            >>> values, mask = pairton.read("sample:ttbar_allhad")[:3].dense()
            >>> values.shape[:2] == mask.shape
            True
        """
        counts = self.counts[kind]
        mask = np.arange(int(counts.max(initial=0))) < counts[:, None]
        dense = np.zeros((*mask.shape, len(columns)), dtype=np.float32)
        for k, name in enumerate(columns):
            dense[:, :, k][mask] = np.asarray(ak.flatten(self.objects[kind][name]), dtype=np.float32)
        return dense, mask


_STATE = tuple(Events.__annotations__)


def _by_kind(objects: Objects | ak.Array) -> dict[str, ak.Array]:
    return dict(objects) if isinstance(objects, Mapping) else {JET: objects}
