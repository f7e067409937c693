"""Tags of large jets as evidence: log likelihood ratios of a top, a W or Z, and an H to bb, against other jets.

Each ratio comes from one score and from a table of its efficiencies, as for b-tags (`pairton.events.tags`). The
fields of the jets tell which table is meant. Zero means no information.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from pairton._common.configuration import configure, read_yaml
from pairton.events.events import Events
from pairton.events.inputs import LARGE_EVIDENCE
from pairton.events.tags import Efficiency, Row, TagTable

__all__ = [
    "LargeTagTable",
    "large_tables",
    "large_tag_caveat",
    "score_fields",
    "table_for",
    "with_large_evidence",
]

TABLES = Path(__file__).parent / "large_tag_tables"
KEY = "large_tag_table"  # in metadata


class Score(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A score, and the shares of jets that pass cuts on it."""

    field: str
    cuts: tuple[float, ...]
    pt: tuple[float, ...] = ()  # edges between the ranges of pT, GeV
    signal: Row
    other: Row

    def table(self, name: str) -> TagTable:
        """The same as a table of b-tags, with signal for b."""
        efficiency = Efficiency(b=self.signal, light=self.other)
        return TagTable(name=name, field=self.field, cuts=self.cuts, pt=self.pt, efficiency=efficiency)


class LargeTagTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The taggers of large jets of one kind of file.

    >>> table = large_tables()["generator"]
    >>> found = table.evidence({"hbb_score": np.array([0.9, 0.0])}, np.array([400.0, 400.0]))
    >>> [round(float(each), 2) for each in found["hbb_evidence"]], found["top_evidence"].tolist()
    ([4.79, -2.17], [0.0, 0.0])
    """

    name: str
    about: str = ""
    measured: bool = True  # False: an example; users should measure their own
    top: Score | None = None
    wz: Score | None = None
    hbb: Score | None = None

    def __post_init__(self) -> None:
        for score in self.scores.values():
            score.table(self.name)  # checks the numbers

    @property
    def scores(self) -> dict[str, Score]:
        """Evidence -> its score."""
        every = zip(LARGE_EVIDENCE, (self.top, self.wz, self.hbb), strict=True)
        return {name: score for name, score in every if score is not None}

    def evidence(
        self, fields: Mapping[str, npt.NDArray[Any]], pt: npt.NDArray[Any]
    ) -> dict[str, npt.NDArray[np.float32]]:
        """The evidence of jets (J,); zero where a score is not there."""
        found = {name: np.zeros(len(pt), dtype=np.float32) for name in LARGE_EVIDENCE}
        for name, score in self.scores.items():
            if score.field in fields:
                ratio, _ = score.table(self.name).evidence(fields[score.field], pt, np.zeros(len(pt)))
                found[name] = ratio.astype(np.float32)
        return found


@cache
def large_tables() -> dict[str, LargeTagTable]:
    """The built-in tables by name."""
    return {path.stem: _parse(read_yaml(path), path.stem) for path in sorted(TABLES.glob("*.yaml"))}


def _parse(raw: Any, name: str) -> LargeTagTable:
    return configure(LargeTagTable, {"name": name, **raw}, name)


def score_fields() -> tuple[str, ...]:
    """The scores that have a built-in table."""
    fields = [score.field for table in large_tables().values() for score in table.scores.values()]
    return tuple(dict.fromkeys(fields))


def table_for(fields: Iterable[str], metadata: Mapping[str, Any]) -> LargeTagTable | None:
    """The table that metadata state, or else the built-in one with most of the fields; None if none has any."""
    if KEY in metadata:
        return _parse(dict(metadata[KEY]), KEY)
    here = set(fields)
    shared = {name: sum(s.field in here for s in table.scores.values()) for name, table in large_tables().items()}
    best = max(shared, key=shared.__getitem__)
    return large_tables()[best] if shared[best] else None


def with_large_evidence(jets: ak.Array, metadata: Mapping[str, Any]) -> ak.Array:
    """Add top_evidence, wz_evidence and hbb_evidence to large jets, unless they have them already."""
    have = ak.fields(jets)
    if set(LARGE_EVIDENCE) <= set(have):
        return jets
    counts, pt = ak.num(jets, axis=1), np.asarray(ak.flatten(jets.pt), dtype=np.float64)
    table = table_for(have, metadata) or LargeTagTable(name="none")
    scores = [score.field for score in table.scores.values() if score.field in have]
    fields = {name: np.asarray(ak.flatten(jets[name]), dtype=np.float64) for name in scores}
    for name, values in table.evidence(fields, pt).items():
        if name not in have:
            jets = ak.with_field(jets, ak.unflatten(values, counts), name)
    return jets


def large_tag_caveat(events: Events, kind: str) -> str:
    """A warning if the tagger of large jets is unknown, or its efficiencies are an example; empty otherwise."""
    have = ak.fields(events.objects[kind])
    if not set(LARGE_EVIDENCE).isdisjoint(have):
        return ""
    table = table_for(have, events.metadata)
    if table is None:
        return (
            f"large jets have no score of a known tagger, so none is used: name scores with --map "
            f"{kind}.hbb_score=COLUMN, or state a table in the metadata of the events ({KEY})"
        )
    if table.measured:
        return ""
    return (
        f"the efficiencies of the taggers of large jets ({table.name}) are an example: measure them in your "
        f"simulation, and state the table in the metadata of the events ({KEY})"
    )
