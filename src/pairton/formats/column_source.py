"""How events are read from columns: the same steps for all formats.

A format finds its columns when it opens a file, and then says for some rows what the objects of each kind are
(`read_kind`, flat arrays) and which of them belong to the slots (`read_truth`). The rest is here: units, tags, the
identification of leptons, jets near leptons, variations.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, InputError, PairtonWarning
from pairton.events import Events
from pairton.events.objects import UNIT_SAMPLE, mev_median
from pairton.formats.base import ReadOptions, Source
from pairton.formats.column_files import Table
from pairton.formats.columns import Chosen
from pairton.formats.flat_objects import Chunk, FlatObjects
from pairton.formats.lepton_selection import LeptonSelection
from pairton.formats.variations import Variations
from pairton.topology import JET, collection_name
from pairton.topology.kinds import KINDS, LEPTONS

__all__ = ["ColumnSource", "Kinds", "TableSource"]

Kinds = Mapping[str, FlatObjects]
ENTRY = "entry"  # column with the number of an event in its file, with `--where`
LEAST_MEDIAN = 0.5  # GeV: a smaller median pT means wrong units
LEAST_MET = 1e-3  # GeV: a smaller median is that of events without missing energy, whatever the units
MOST_DEGREES = 360  # |phi| of more is damage, not degrees
ENOUGH = 20  # objects: the median pT of fewer, such as the missing energy of a few events, can be small by chance
ENOUGH_MET = 100  # in so many events, the missing energy cannot always be 0


class ColumnSource(Source):
    """An open file with columns of objects."""

    scale: float | None = None  # momenta are divided by it to get GeV; None: see `--set units`
    units: str | None = None  # of all files of the format, for errors
    overlap_only: Sequence[str] = ()  # kinds of leptons that are not in the topology, but remove jets
    variations: Variations | None = None

    def __init__(self, file: Any, options: ReadOptions, leptons: LeptonSelection | None = None) -> None:
        """`file`: a table, or a file; the source closes it."""
        self.file, self.path, self.options, self.topology = file, file.path, options, options.topology
        self.leptons = leptons or LeptonSelection()

    # -- defined by each format ------------------------------------------------------------------------

    def rows(self, start: int, stop: int) -> Any:
        """Read the rows [start, stop): what the methods below are called with."""
        return range(start, stop)

    @abstractmethod
    def read_kind(self, rows: Any, kind: str) -> FlatObjects:
        """The objects of a kind, in units of the file."""

    def read_truth(
        self, rows: Any, kinds: Kinds, objects: Mapping[str, ak.Array]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """(n, S): the position of the object of each slot, -1 for none; (n,): number of invalid labels.

        kinds     flat arrays of the objects
        objects   the same as ragged arrays, in GeV
        """
        raise NotImplementedError

    def read_ids(self, rows: Any) -> npt.NDArray[np.uint64]:
        """(n, 2): source and number of each event; by default the fingerprint of the file, and the row."""
        ids = np.full((rows.stop - rows.start, 2), self.file.source_id, dtype=np.uint64)
        ids[:, 1] = np.arange(rows.start, rows.stop)
        return ids

    def read_weights(self, rows: Any) -> npt.NDArray[Any] | None:
        """(n,): event weights; None if there are none."""
        return None

    def read_columns(self, rows: Any) -> dict[str, Any]:
        """Further columns, which are copied to the result."""
        return {}

    def read_named(self, rows: Any, names: Sequence[str]) -> Mapping[str, Any]:
        """The columns that `--where` names."""
        raise ConfigError(f"{self.path}: files of this format cannot be read with --where: remove it")

    def tag_jets(self, rows: Any, jets: FlatObjects, scale: float) -> None:
        """Make a btag of 0 or 1, and the evidence, of the tagger in the file."""

    def retag(self, fields: dict[str, Any]) -> None:
        """The same for varied jets: `fields` are pt and eta in GeV, and tags; they are changed in place."""

    def overlapping(self, rows: Any, kinds: Kinds) -> list[FlatObjects]:
        """The leptons that remove jets near them."""
        others = [self.read_kind(rows, kind) for kind in self.overlap_only]
        return [kinds[kind] for kind in LEPTONS if kind in kinds] + others

    # -- the same for all ------------------------------------------------------------------------------

    def read(self, start: int, stop: int) -> Events:
        options, rows = self.options, self.rows(start, stop)
        kinds: dict[str, FlatObjects] = {}
        scale = self.scale
        for kind in self.topology.kinds:
            found = kinds[kind] = self.read_kind(rows, kind)
            self.leptons.identify(kind, found)
            scale = unit_scale(found.fields["pt"], options.units, self.path, kind) if scale is None else scale
        assert scale is not None
        if JET in kinds:
            self.tag_jets(rows, kinds[JET], scale)
            if self.leptons.radius:
                self.leptons.remove_overlaps(kinds[JET], self.overlapping(rows, kinds), scale)
        objects = {kind: found.ragged(scale) for kind, found in kinds.items()}
        check_units(objects, self.path, options.units, self.units)
        truth = None
        if self.has_truth:
            truth, bad = self.read_truth(rows, kinds, objects)
            options.bad_labels.add(bad, options.strict, self.path, start)
        varied = self.variations.read(objects, rows, scale) if self.variations is not None else None
        events = Events(
            objects,
            self.topology,
            truth,
            self.read_weights(rows),
            self.read_ids(rows),
            self.read_columns(rows),
            self.metadata,
            varied,
        )
        return self._chosen(events, rows, start) if options.where.conditions else events

    def _chosen(self, events: Events, rows: Any, start: int) -> Events:
        """The events for which `--where` holds, with a column of their numbers in the file."""
        where = self.options.where
        holds = where.holds(self.read_named(rows, where.names), len(events))
        entry = np.arange(start, start + len(events))
        return events.replace(columns={**events.columns, ENTRY: entry}, variations=events.variations)[holds]

    def close(self) -> None:
        self.file.close()


class TableSource(ColumnSource):
    """Events of a table; a kind may be merged from several collections."""

    file: Table
    objects: Mapping[str, Mapping[str, Chosen]]  # kind -> collection -> the columns of its fields
    more: Sequence[str] = ()  # further columns

    def __init__(self, file: Table, options: ReadOptions, leptons: LeptonSelection | None = None) -> None:
        super().__init__(file, options, leptons)
        self._named = {name: self.kept_column(name) for name in options.where.names}
        file.require([*self._named.values()], hint=f" (needed by --where {options.where})")

    def kept_column(self, name: str) -> str:
        """The column that a name of `--keep` or `--where` means."""
        return name

    def read_named(self, rows: Chunk, names: Sequence[str]) -> Mapping[str, Any]:
        return {name: rows[self._named[name]] for name in names}

    def rows(self, start: int, stop: int) -> Chunk:
        fields = [c for kind in self.objects.values() for part in kind.values() for c in chain(*part.values())]
        varied = [] if self.variations is None else self.variations.columns
        names = [*fields, *varied, *self.more, *self._named.values()]
        return Chunk(self.file.read(names, start, stop), self.path, start, stop)


# -- units ---------------------------------------------------------------------------------------------------


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
        if KINDS[kind].transverse and len(pt) >= ENOUGH_MET and not pt.any():
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
