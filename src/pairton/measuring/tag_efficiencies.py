"""The efficiencies of a tagger, measured on labelled jets, as a table for `--btag`.

Shapes: J jets, K cuts, R ranges of pT.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, InputError, PairtonWarning
from pairton.events import Events
from pairton.events.domain import parse_cuts
from pairton.events.tags import FLAVOURS, TagTable, parse_table, tables_of
from pairton.formats import expand, iterate
from pairton.formats.files import Paths
from pairton.measuring import rounded_yaml
from pairton.topology import JET

__all__ = ["B_EFFICIENCIES", "Measurement", "measure", "table_text"]

B_EFFICIENCIES = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
USUAL_JETS = "pt>20,abs_eta<2.5"
PT_EDGES = (30.0, 40.0, 60.0, 100.0, 150.0, 250.0)  # GeV, possible edges between ranges of pT
LEAST = {"b": 1000, "c": 300, "light": 1000}  # jets that a range of pT needs
SOME = 20  # jets of a flavour that its efficiencies need
PASSING = 5  # light jets that must pass a cut
DISCRETE = 20  # a score with at most so many values is discrete
SENTINELS = 3  # a score up to 1 may have so many values below 0 that mean "no tag"
TAU = 15  # flavour of jets that are left out: neither b, c nor light

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Jets:
    """Labelled jets of all events, as arrays (J,)."""

    score: Floats
    flavour: Index  # 0, 1, 2: b, c, light
    pt: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.score)

    def where(self, mask: npt.NDArray[np.bool_]) -> Jets:
        return Jets(self.score[mask], self.flavour[mask], self.pt[mask], self.weight[mask])

    def counts(self) -> dict[str, int]:
        return {name: int((self.flavour == k).sum()) for k, name in enumerate(FLAVOURS)}


@dataclass(frozen=True)
class Measurement:
    """A table of efficiencies, and its errors."""

    table: TagTable
    jets: Mapping[str, int]  # number of jets of each flavour
    error: Floats  # (3, R, K): errors of the efficiencies


def measure(
    paths: Paths,
    score: str,
    *,
    cuts: Sequence[float] | None = None,
    efficiencies: Sequence[float] | None = None,
    pt: Sequence[float] | None = None,
    jets: str = USUAL_JETS,
    name: str | None = None,
    **options: Any,
) -> Measurement:
    """Measure the efficiencies of a score on the labelled jets of some files.

    paths          files with the flavour of jets: simulation in NanoAOD, PHYSLITE or Delphes files, events of
                   `pairton generate`, or files with a column that `map` declares as flavour (5 for b, 4 for c)
    score          the score: a column of jets, or the name of a tagger
    cuts           working points; by default those with these `efficiencies` of b jets
    efficiencies   efficiencies of b jets, if `cuts` are not given
    pt             edges between ranges of pT; by default as many as the number of jets allows
    jets           cuts on pt and abs_eta of jets
    name           name of the table; by default that of the score
    options        options of `pairton.iterate`

    Returns the table with its errors. Raises InputError if there are too few b jets or light jets.
    """
    field = score.removeprefix("Jet_").removeprefix("Jet.").removeprefix("jet_")
    bounds = parse_cuts(jets)
    sample, valid = _read(paths, field, bounds, options)
    files = expand(paths)
    counts = sample.counts()
    for flavour in ("b", "light"):
        if counts[flavour] < SOME:
            raise InputError(
                f"{files[0]}: only {counts[flavour]} {flavour} jets among the {len(sample)} jets with a score "
                f"that pass {jets}: measure on more simulated events"
            )
    points = _cuts(sample, cuts, efficiencies)
    edges = _edges(sample, pt)
    efficiency, error = _efficiencies(sample, points, edges)
    has_c = counts["c"] >= SOME
    if not has_c:
        message = f"there are only {counts['c']} c jets: the table has no efficiencies for them"
        warnings.warn(message, PairtonWarning, stacklevel=2)
    flavours = [flavour for flavour in FLAVOURS if flavour != "c" or has_c]
    rows = {flavour: efficiency[FLAVOURS.index(flavour)].tolist() for flavour in flavours}
    numbers = ", ".join(f"{n} {flavour}" for flavour, n in counts.items())
    sources = ", ".join(dict.fromkeys(Path(file).name for file in files[:3])) + (", …" if len(files) > 3 else "")
    raw = {
        "name": name or field,
        "field": field,
        "about": f"measured on {sources}: {numbers} jets with {jets}",
        **({"abs_eta": bounds["abs_eta"]} if bounds.get("abs_eta") is not None else {}),
        **({"range": list(valid)} if valid != (-inf, inf) else {}),
        "cuts": points.tolist(),
        **({"pt": edges.tolist()} if len(edges) else {}),
        "efficiency": rows if len(edges) else {flavour: row[0] for flavour, row in rows.items()},
    }
    return Measurement(parse_table(raw, "measured table"), counts, error)


def table_text(table: TagTable) -> str:
    """A table as YAML, with five significant digits.

    >>> raw = {"cuts": [0.5], "efficiency": {"b": [0.7], "light": [0.01]}}
    >>> print(table_text(parse_table(raw, "table.yaml")).splitlines()[-2])
      b: [0.7]
    """
    return rounded_yaml(table.to_dict(), 5)


# -- jets --------------------------------------------------------------------------------------------------


def _read(
    paths: Paths, field: str, bounds: Mapping[str, float | None], options: Mapping[str, Any]
) -> tuple[Jets, tuple[float, float]]:
    """The labelled jets with a score in all files, and the valid range of the score."""
    # this table only tells the readers which score to read
    stand_in = {"field": field, "cuts": [0.0, 1.0], "efficiency": {"b": [0.5, 0.4], "light": [0.1, 0.05]}}
    how = {"truth": False, **options, "btag": stand_in, "fields": {JET: ("flavour", field)}}
    parts = [_jets(events, field, bounds) for events in iterate(paths, **how)]
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in Jets.__dataclass_fields__)
    jets = Jets(*columns)
    tables = tables_of(field)
    valid = tables[0].range if tables else _range(jets.score)
    return jets.where(np.isfinite(jets.score) & (jets.score >= valid[0]) & (jets.score <= valid[1])), valid


def _jets(events: Events, field: str, bounds: Mapping[str, float | None]) -> Jets:
    jets = events.jets
    pt, abs_eta, score, code = (
        np.asarray(ak.flatten(values), dtype=np.float64)
        for values in (jets.pt, abs(jets.eta), jets[field], abs(jets.flavour))
    )
    used = np.asarray(ak.flatten(events.usable[JET]), dtype=bool) & np.isfinite(code) & (code != TAU)
    used &= (pt >= (bounds.get("pt") or 0.0)) & (abs_eta <= (bounds.get("abs_eta") or inf))
    weights = events.each_weight
    flavour = np.select([code == 5, code == 4], [0, 1], 2).astype(np.intp)
    return Jets(score, flavour, pt, np.repeat(weights, events.n_jets)).where(used)


def _range(score: Floats) -> tuple[float, float]:
    """The valid range: 0 to 1 for a score up to 1 with few different values below 0, which mean "no tag"."""
    below = np.unique(score[np.isfinite(score) & (score < 0)])
    top = score[np.isfinite(score)].max(initial=-inf)
    return (0.0, 1.0) if 0 < len(below) <= SENTINELS and 0 < top <= 1 else (-inf, inf)


# -- efficiencies ------------------------------------------------------------------------------------------


def _cuts(jets: Jets, cuts: Sequence[float] | None, efficiencies: Sequence[float] | None) -> Floats:
    """The working points: the given ones, between the values of a discrete score, or at quantiles of b jets."""
    if cuts is not None:
        points = np.array(cuts, dtype=np.float64)
        for cut in points:
            count = int(((jets.flavour == 2) & (jets.score > cut)).sum())
            if count < PASSING:
                message = f"only {count} light jets pass the cut {cut:g}: their efficiency is uncertain"
                warnings.warn(message, PairtonWarning, stacklevel=3)
        return points
    values = np.unique(jets.score)
    if len(values) < 2:
        raise InputError(f"every jet has the score {values[0]:g}: there is nothing to measure")
    goals = np.array(B_EFFICIENCIES if efficiencies is None else efficiencies, dtype=np.float64)
    if not len(goals) or not ((goals > 0) & (goals < 1)).all():
        raise ConfigError("efficiencies of b jets must lie between 0 and 1")
    if len(values) <= DISCRETE:
        points = (values[1:] + values[:-1]) / 2
    else:
        b = jets.where(jets.flavour == 0)
        order = np.argsort(b.score)
        passing = 1 - np.maximum.accumulate(np.cumsum(b.weight[order])) / b.weight.sum()
        at = np.searchsorted(-passing, -np.sort(goals)[::-1])
        points = np.unique(b.score[order][np.minimum(at, len(order) - 1)])
    light = np.sort(jets.score[jets.flavour == 2])
    enough = len(light) - np.searchsorted(light, points, side="right") >= PASSING
    if not enough.any():
        raise InputError("too few light jets pass any cut: measure on more events, or give cuts")
    return np.asarray(points[enough])


def _edges(jets: Jets, pt: Sequence[float] | None) -> Floats:
    """The edges between ranges of pT; by default each range has enough jets of every flavour."""
    if pt is not None:
        return np.array(pt, dtype=np.float64)
    kept: list[float] = []
    low = -inf
    for edge in PT_EDGES:
        inside = jets.where((jets.pt >= low) & (jets.pt < edge)).counts()
        rest = jets.where(jets.pt >= edge).counts()
        if all(inside[flavour] >= least and rest[flavour] >= least for flavour, least in LEAST.items()):
            kept.append(edge)
            low = edge
    return np.array(kept)


def _efficiencies(jets: Jets, cuts: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """(3, R, K): efficiencies of the cuts, and their errors; an empty bin counts as half a jet."""
    shape = (len(FLAVOURS), len(edges) + 1, len(cuts) + 1)
    span, passed = np.searchsorted(edges, jets.pt, side="right"), np.searchsorted(cuts, jets.score, side="left")
    cell = np.ravel_multi_index((jets.flavour, span, passed), shape)
    total, squares = (
        np.bincount(cell, weights=weight, minlength=int(np.prod(shape))).reshape(shape)
        for weight in (jets.weight, jets.weight**2)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.abs(squares.sum(axis=2) / total.sum(axis=2))  # (3, R): typical weight
    size = np.where(np.isfinite(size) & (size > 0), size, 1.0)
    filled = np.where(total > 0, total, 0.5 * size[..., None])
    share = filled / filled.sum(axis=2, keepdims=True)
    efficiency = np.cumsum(share[..., ::-1], axis=2)[..., ::-1][..., 1:]
    number = np.maximum(total.sum(axis=2) / size, 1.0)  # (3, R): effective number of jets
    return efficiency, np.sqrt(efficiency * (1 - efficiency) / number[..., None])
