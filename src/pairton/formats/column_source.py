"""How events are read from columns: the same steps for all formats.

A format finds its columns when it opens a file, and then says for some rows what the objects of each kind are
(`read_kind`, flat arrays) and which of them belong to the slots (`read_truth`). The rest is here: units, tags, the
identification of leptons, jets near leptons, variations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.events import Events
from pairton.formats.base import ReadOptions, Source
from pairton.formats.column_files import Table
from pairton.formats.columns import Chosen
from pairton.formats.common import check_units, unit_scale
from pairton.formats.flat_objects import Chunk, FlatObjects, row_ids
from pairton.formats.lepton_selection import LeptonSelection
from pairton.formats.variations import Variations
from pairton.topology import JET
from pairton.topology.kinds import LEPTONS

__all__ = ["ColumnSource", "Kinds", "TableSource"]

Kinds = Mapping[str, FlatObjects]


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
        """(n, 2): source and number of each event."""
        return row_ids(self.file.source_id, rows.start, rows.stop)

    def read_weights(self, rows: Any) -> npt.NDArray[Any] | None:
        """(n,): event weights; None if there are none."""
        return None

    def read_columns(self, rows: Any) -> dict[str, Any]:
        """Further columns, which are copied to the result."""
        return {}

    def tag_jets(self, rows: Any, jets: FlatObjects, scale: float) -> None:
        """Make a btag of 0 or 1, and the evidence, of the tagger in the file."""

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
            if (passes := self.leptons.passes(kind, found.fields)) is not None:
                found.keep(passes)
            scale = unit_scale(found.fields["pt"], options.units, self.path, kind) if scale is None else scale
        assert scale is not None
        if JET in kinds:
            self.tag_jets(rows, kinds[JET], scale)
            if self.leptons.overlap.radius:
                self.leptons.remove_overlaps(kinds[JET], self.overlapping(rows, kinds), scale)
        objects = {kind: found.ragged(scale) for kind, found in kinds.items()}
        check_units(objects, self.path, options.units, self.units)
        truth = None
        if self.has_truth:
            truth, bad = self.read_truth(rows, kinds, objects)
            options.bad_labels.add(bad, options.strict, self.path, start)
        varied = self.variations.read(objects, rows, scale) if self.variations is not None else None
        return Events(
            objects,
            self.topology,
            truth,
            self.read_weights(rows),
            self.read_ids(rows),
            self.read_columns(rows),
            self.metadata,
            varied,
        )

    def close(self) -> None:
        self.file.close()


class TableSource(ColumnSource):
    """Events of a table; a kind may be merged from several collections."""

    file: Table
    objects: Mapping[str, Mapping[str, Chosen]]  # kind -> collection -> the columns of its fields
    more: Sequence[str] = ()  # further columns

    def rows(self, start: int, stop: int) -> Chunk:
        fields = [c for kind in self.objects.values() for part in kind.values() for c in chain(*part.values())]
        varied = [] if self.variations is None else self.variations.columns
        return Chunk(self.file.read([*fields, *varied, *self.more], start, stop), self.path, start, stop)
