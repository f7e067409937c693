"""The baseline `chi2`: the assignment whose masses and b-tags fit best.

    chi2(assignment) = sum over particles ((m - m_children - mean) / width)^2
                     - 2 sum over slots log P(tag | slot) / P(tag | other jet)

m_children is the sum of the masses of the children, so that the mass of a W is not counted again in its top. Means
and widths per type, and tag rates per kind of slot, are fitted on labelled objects, with the weights of their
events. The mass of a single leptonic top includes its neutrino, with the better of the two solutions. The masses
of two leptonic tops are those of their measured objects; missing energy is not used.

Shapes: n events, B events of a batch, N nodes, S slots, C candidates of a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pairton.decoding.set_tables import SetTables
from pairton.errors import ModelError
from pairton.evaluation.baselines.best_assignment import (
    Batch,
    BestAssignment,
    Scores,
    candidate_masses,
    dense_nodes,
    product_name,
)
from pairton.evaluation.statistics import weighted_quantile, weighted_ratio
from pairton.events import Events
from pairton.events.neutrinos import one_neutrino
from pairton.events.vectors import polar
from pairton.reconstruction.momenta import particle_momenta
from pairton.topology import JET, Topology
from pairton.topology.kinds import KINDS
from pairton.topology.pdg import Neutrino

__all__ = ["MassChiSquare"]

MIN_PARTICLES = 10  # particles of each type that a mean and a width need

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MassChiSquare(BestAssignment):
    """The baseline `chi2`: `MassChiSquare().fit(events)`, then `assign` other events."""

    masses: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # type -> mean and width, GeV
    tag_rates: Mapping[str, float] = field(default_factory=dict)  # kind of slot -> share of b-tagged jets
    other_tag_rate: float = 0.5  # share of b-tagged jets among those that are in no slot
    name: str = "chi2"
    has_probability: ClassVar[bool] = True

    @property
    def about(self) -> dict[str, Any]:
        return {"masses": dict(self.masses), "tag_rates": dict(self.tag_rates)}

    def fit(self, events: Events) -> MassChiSquare:
        """Fit means, widths and tag rates to the truth of some events, with their weights."""
        topology = events.topology
        if events.truth is None:
            raise ModelError(
                "the baseline chi2 is fitted on labelled objects, but these events have no truth: give labelled "
                "events"
            )
        particles = particle_momenta(events, events.truth)
        mass = polar(particles.visible)["mass"]  # (n, P), NaN where a particle lacks an object
        solved = polar(particles.p4)["mass"]
        masses = {}
        weight = events.each_weight
        for name in topology.types:
            same = topology.of_type(name)
            whole = mass if _neutrino(topology, name) is None else solved
            excess = np.stack([whole[:, p.index] - mass[:, list(p.children)].sum(axis=1) for p in same])
            known = np.isfinite(excess)
            values = excess[known]
            if len(values) < MIN_PARTICLES:
                raise ModelError(
                    f"only {len(values)} particles of type {name} have all their objects labelled, but a mean and "
                    f"a width need {MIN_PARTICLES}: give more events with truth"
                )
            masses[name] = _core(values, np.broadcast_to(weight, excess.shape)[known])
            if np.isnan(masses[name]).any():
                raise ModelError(
                    f"the weights of the particles of type {name} do not add up to more than 0, but a mean and a "
                    "width need that: give more events with truth, or use no weights"
                )
        nodes, mask, tagged = dense_nodes(events)
        layout = tuple(part.shape[1] for part in nodes)
        truth = np.where(events.truth >= 0, events.truth + topology.offsets(layout), -1)
        mask &= np.isin(np.arange(mask.shape[1]), topology.nodes(JET, layout))  # other kinds have no tags
        return MassChiSquare(masses, *_tag_rates(topology, tagged, mask, truth, weight))

    def scores(self, tables: SetTables, batch: Batch) -> Scores:
        """The contributions of candidates to -chi2 / 2."""
        topology = tables.topology
        scores: Scores = {}
        masses = candidate_masses(tables, batch.p4)
        for name, known in tables.candidates.items():
            particle, nodes = topology.of_type(name)[0], known.objects.astype(np.intp).T
            mean, width = (np.float32(value) for value in self.masses[name])
            below = sum(masses[child][rows] for child, rows in known.children)
            away = np.abs(masses[name] - below - mean)
            if (neutrino := _neutrino(topology, name)) is not None:
                both = _with_neutrino(neutrino, nodes, batch, topology) - below - mean  # (2, C, B)
                away = np.nan_to_num(np.abs(both).min(axis=0), nan=0.0)  # 0 without missing energy
            scores[name] = -((away / width) ** 2) / 2
            for slot in particle.own_slots:
                if topology.slots[slot].kind == JET:
                    rate, other = self.tag_rates[_kind(topology, slot)], self.other_tag_rate
                    gains = np.log(np.array([(1 - rate) / (1 - other), rate / other])).astype(np.float32)
                    scores[name] += gains[batch.tagged.T.astype(np.intp)][nodes[slot - particle.slots[0]]]
        return scores


def _neutrino(topology: Topology, type_name: str) -> Neutrino | None:
    """The neutrino of a type, if it is the only one in the event: then the mass of the W determines it."""
    if len(topology.neutrinos) != 1:
        return None
    (neutrino,) = topology.neutrinos
    return neutrino if topology.of_type(type_name)[0].index == neutrino.mother else None


def _with_neutrino(
    neutrino: Neutrino, nodes: npt.NDArray[np.intp], batch: Batch, topology: Topology
) -> npt.NDArray[np.float32]:
    """(2, C, B): the masses of candidates with objects (slots, C), for both solutions for the neutrino."""
    met = next(kind for kind in topology.context if KINDS[kind].transverse)
    seen = topology.nodes(met, batch.layout)
    missing = batch.p4[:, seen.start, None, :2] if len(seen) else np.full((len(batch.p4), 1, 2), np.nan)
    first = topology.particles[neutrino.mother].slots[0]
    lepton = batch.p4[:, nodes[[slot - first for slot in neutrino.lepton]]].sum(axis=1)  # (B, C, 4)
    found = one_neutrino(lepton, missing, neutrino.mass).p4  # (B, C, 2, 4)
    total = batch.p4[:, nodes].sum(axis=1)[:, :, None] + found
    return polar(total)["mass"].transpose(2, 1, 0).astype(np.float32)


def _core(values: Floats, weight: Floats) -> tuple[float, float]:
    """Mean and width of a normal distribution, fitted to the core within two widths.

    NaN if the weights of the core do not add up to more than 0.

    >>> values = np.concatenate([np.random.default_rng(0).normal(80, 8, 9000), np.full(1000, 500.0)])
    >>> mean, width = _core(values, np.ones(10_000))
    >>> round(mean), round(width)
    (80, 8)
    """
    low, mean, high = weighted_quantile(values, [0.16, 0.5, 0.84], weight)
    width = max((high - low) / 2, 1e-3)
    for _ in range(20):
        inside = np.abs(values - mean) <= 2 * width
        total = weight[inside].sum()
        if not total > 0:
            return np.nan, np.nan
        mean = weight[inside] @ values[inside] / total
        variance = weight[inside] @ (values[inside] - mean) ** 2 / total  # may be negative for negative weights
        width = max(
            np.sqrt(max(variance, 0.0)) / 0.8796, 1e-3
        )  # the width of a normal distribution that is cut at two widths
    return float(mean), float(width)


# -- b-tags ------------------------------------------------------------------------------------------------


def _kind(topology: Topology, slot: int) -> str:
    """The kind of a slot, such as W.q or t.b; slots of one kind share a tag rate."""
    return f"{topology.particles[topology.slots[slot].particle].type}.{product_name(topology, slot)}"


def _tag_rates(
    topology: Topology, tagged: Bools, mask: Bools, truth: Ints, weight: Floats
) -> tuple[dict[str, float], float]:
    """The tag rate of each kind of slot, and of jets that are in no slot."""
    tags: dict[str, list[Bools]] = {}
    weights: dict[str, list[Floats]] = {}
    free = mask & (truth >= 0).all(axis=1, keepdims=True)  # in incomplete events any jet may be a product
    for slot in (slot.index for slot in topology.slots if slot.kind == JET):
        (rows,) = np.nonzero(truth[:, slot] >= 0)
        free[rows, truth[rows, slot]] = False
        tags.setdefault(_kind(topology, slot), []).append(tagged[rows, truth[rows, slot]])
        weights.setdefault(_kind(topology, slot), []).append(weight[rows])
    rates = {kind: _rate(np.concatenate(tags[kind]), np.concatenate(weights[kind])) for kind in tags}
    return rates, _rate(tagged[free], weight[np.nonzero(free)[0]])


def _rate(tagged: Bools, weight: Floats) -> float:
    """The share of tagged jets, kept half a jet away from 0 and 1."""
    least = 0.5 / (len(tagged) + 1)
    share, _ = weighted_ratio(tagged, np.ones(len(tagged)), weight)
    return float(np.clip(share, least, 1 - least)) if np.isfinite(share) else 0.5
