"""What needs no network: the assignment whose masses and b-tags fit best.

    chi2(assignment) = sum over particles ((m - m_children - mean) / width)^2
                     - 2 sum over slots log P(tag | slot) / P(tag | other jet)

m_children is the summed mass of the particles below, so that the mass of a W is not counted again in its top.
Means, widths and tag rates are fitted on labelled objects: two numbers per type, one per kind of slot. Missing
energy is not used.

Shapes: B events, N nodes, S slots, C candidates of a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding.set_sums import best, log_normaliser, log_sums
from pairton.decoding.set_tables import SetTables, allowed_nodes, set_tables
from pairton.errors import ModelError
from pairton.evaluation.registry import register_baseline
from pairton.events import Events
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import cartesian, pair_products
from pairton.reconstruction.result import momenta
from pairton.topology import JET, Topology

__all__ = ["MassChiSquare"]

MIN_PARTICLES = 10  # of each type, for a mean and a width
BATCH = 512  # events at once
TAG_CUT = 0.5

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MassChiSquare:
    """The baseline `chi2`: `MassChiSquare().fit(events)`, then `assign` other events."""

    masses: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # type -> mean and width, GeV
    tag_rates: Mapping[str, float] = field(default_factory=dict)  # kind of slot -> share of its jets with a b-tag
    other_tag_rate: float = 0.5  # of jets without a label
    name: str = "chi2"

    @property
    def about(self) -> dict[str, Any]:
        return {"masses": dict(self.masses), "tag_rates": dict(self.tag_rates)}

    def fit(self, events: Events) -> MassChiSquare:
        """Means, widths and tag rates from the truth of some events."""
        topology = events.topology
        if events.truth is None:
            raise ModelError("a mass chi-square is fitted on labelled objects, but these events have no truth")
        mass = momenta(events, events.truth)["mass"]  # (n, P), NaN where a particle lacks an object
        masses = {}
        for name in topology.types:
            same = topology.of_type(name)
            excess = np.stack([mass[:, p.index] - mass[:, list(p.children)].sum(axis=1) for p in same])
            values = excess[np.isfinite(excess)]
            if len(values) < MIN_PARTICLES:
                raise ModelError(
                    f"only {len(values)} particles of type {name} have all their objects labelled, and a mean and "
                    f"a width need {MIN_PARTICLES}: give more events with truth"
                )
            masses[name] = _core(values)
        nodes, mask, tagged = _dense(events)
        layout = tuple(part.shape[1] for part in nodes)
        truth = np.where(events.truth >= 0, events.truth + topology.offsets(layout), -1)
        mask &= np.isin(np.arange(mask.shape[1]), topology.nodes(JET, layout))  # nothing else has a tag
        return MassChiSquare(masses, *_tag_rates(topology, tagged, mask, truth))

    def assign(self, events: Events) -> tuple[npt.NDArray[np.int32], Floats]:
        """Best assignments (n, S), and exp(-chi2 / 2) of each over the sum of all, (n,).

        Events with fewer objects of a kind than slots have -1 and NaN.
        """
        topology = events.topology
        momenta_of, _, tagged = _dense(events)
        p4 = np.concatenate(momenta_of, axis=1)
        widths = tuple(part.shape[1] for part in momenta_of)
        counts = np.stack([events.counts[kind] for kind in topology.kinds], axis=1)
        assignment = np.full((len(events), len(topology.slots)), -1, dtype=np.int32)
        probability = np.full(len(events), np.nan)
        for layout in np.unique(counts, axis=0):
            if (layout < topology.slots_per_kind).any():
                continue
            kept = tuple(layout.tolist())
            tables = set_tables(topology, allowed_nodes(topology, kept), complete_only=True)
            used = np.concatenate([sum(widths[:k]) + np.arange(n) for k, n in enumerate(kept)])  # without padding
            (rows,) = np.nonzero((counts == layout).all(axis=1))
            for batch in np.split(rows, range(BATCH, len(rows), BATCH)):
                scores = self._scores(tables, p4[batch][:, used], tagged[batch][:, used])
                found = best(tables, scores).overall()
                assignment[batch] = found.assignment[:, 0] - topology.offsets(kept)
                chance = found.score[:, 0] - log_normaliser(log_sums(tables, scores))
                probability[batch] = np.exp(chance)
        return assignment, probability

    def _scores(self, tables: SetTables, p4: Floats, tagged: Bools) -> dict[str, Floats]:
        """Type -> (C, B): what a candidate adds to -chi2 / 2, of nodes p4 (B, N, 4) and their tags (B, N)."""
        topology, n_nodes = tables.topology, p4.shape[1]
        products = pair_products(p4).astype(np.float32).reshape(len(p4), -1).T  # (N N, B): gathers take rows
        products = np.ascontiguousarray(products)
        scores: dict[str, Floats] = {}
        masses: dict[str, Floats] = {}
        for name, known in tables.candidates.items():  # children before parents
            particle, nodes = topology.of_type(name)[0], known.objects.astype(np.intp).T
            square = np.zeros((len(known.objects), len(p4)), dtype=np.float32)
            for i, first in enumerate(nodes):
                for j, second in enumerate(nodes[: i + 1]):
                    square += products[first * n_nodes + second] * np.float32(1 if i == j else 2)
            masses[name] = np.sqrt(np.maximum(square, 0))
            mean, width = self.masses[name]
            below = sum(masses[child][rows] for child, rows in known.children)
            scores[name] = -(((masses[name] - below - np.float32(mean)) / np.float32(width)) ** 2) / 2
            for slot in particle.own_slots:
                if topology.slots[slot].kind == JET:
                    rate, other = self.tag_rates[_kind(topology, slot)], self.other_tag_rate
                    gains = np.log(np.array([(1 - rate) / (1 - other), rate / other])).astype(np.float32)
                    scores[name] += gains[tagged.T.astype(np.intp)][nodes[slot - particle.slots[0]]]
        return scores


def _dense(events: Events) -> tuple[list[npt.NDArray[np.float64]], Bools, Bools]:
    """Momenta (n, N, 4) of each kind, and of all nodes together the mask and the b-tags (n, N)."""
    momenta_of, masks, tags = [], [], []
    for kind in events.topology.kinds:
        values, mask = events.dense(kind)
        momenta_of.append(cartesian(*(values[:, :, MOMENTUM.index(name)] for name in MOMENTUM)))
        masks.append(mask)
        has = kind == JET and "btag" in ak.fields(events.jets)
        tags.append(events.dense(kind, ("btag",))[0][:, :, 0] > TAG_CUT if has else np.zeros_like(mask))
    return momenta_of, np.concatenate(masks, axis=1), np.concatenate(tags, axis=1)


def _core(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Mean and width of a normal distribution fitted to the core, within two widths: tails do not count.

    >>> mean, width = _core(np.concatenate([np.random.default_rng(0).normal(80, 8, 9000), np.full(1000, 500.0)]))
    >>> round(mean), round(width)
    (80, 8)
    """
    low, mean, high = np.quantile(values, [0.16, 0.5, 0.84])
    width = max((high - low) / 2, 1e-3)
    for _ in range(20):
        inside = values[np.abs(values - mean) <= 2 * width]
        mean = inside.mean()
        width = max(inside.std() / 0.8796, 1e-3)  # of a normal distribution cut at two widths
    return float(mean), float(width)


# -- b-tags ------------------------------------------------------------------------------------------------


def _kind(topology: Topology, slot: int) -> str:
    """Slots that stand for the same product share a tag rate: W.q, t.b."""
    particle = topology.particles[topology.slots[slot].particle]
    return f"{particle.type}.{topology.slots[slot].name.split('.')[-1].rstrip('0123456789')}"


def _tag_rates(topology: Topology, tagged: Bools, mask: Bools, truth: Ints) -> tuple[dict[str, float], float]:
    tags: dict[str, list[int]] = {}
    free = mask & (truth >= 0).all(axis=1, keepdims=True)  # only there is a jet without a label surely another one
    for slot in (slot.index for slot in topology.slots if slot.kind == JET):
        (rows,) = np.nonzero(truth[:, slot] >= 0)
        free[rows, truth[rows, slot]] = False
        found = tagged[rows, truth[rows, slot]]
        count = tags.setdefault(_kind(topology, slot), [0, 0])
        count[0] += int(found.sum())
        count[1] += len(found)
    # half a jet of each kind more: no rate is 0 or 1
    rates = {kind: (k + 0.5) / (n + 1) for kind, (k, n) in tags.items()}
    return rates, (float(tagged[free].sum()) + 0.5) / (int(free.sum()) + 1)


register_baseline(MassChiSquare())
