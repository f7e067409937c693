"""Baselines: methods without a network, whose answer is the best of all assignments for a sum over particles.

`chi2` is the assignment whose masses and b-tags fit best:

    chi2(assignment) = sum over particles ((m - m_children - mean) / width)^2
                     - 2 sum over slots log P(tag | slot) / P(tag | other jet)

m_children is the sum of the masses of the children, so that the mass of a W is not counted again in its top. Means
and widths per type, and tag rates per kind of slot, are fitted on labelled objects, with the weights of their
events. The mass of a single leptonic top includes its neutrino, with the better of the two solutions. The masses
of two leptonic tops are those of their measured objects; missing energy is not used.

The others use no known mass. Both put as many b-tagged jets as possible into slots for b quarks. Among the
remaining assignments, `min_mass` takes the one whose root particles have the smallest sum of masses, which for two
leptonic tops is the pairing of smallest m(b l); `random` takes a random one.

Shapes: n events, B events of a batch, N nodes, S slots, C candidates of a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton._common.configuration import register
from pairton.decoding.patterns import allowed_nodes
from pairton.decoding.set_sums import best, log_normaliser, log_sums
from pairton.decoding.set_tables import SetTables, set_tables
from pairton.errors import ModelError
from pairton.evaluation.statistics import weighted_quantile, weighted_ratio
from pairton.events import Events
from pairton.events.inputs import MOMENTUM
from pairton.events.neutrinos import one_neutrino
from pairton.events.splits import uniform
from pairton.events.vectors import cartesian, pair_products, polar
from pairton.reconstruction.momenta import particle_momenta
from pairton.topology import JET, Layout, Topology
from pairton.topology.kinds import KINDS
from pairton.topology.pdg import Neutrino, codes_of

__all__ = [
    "BASELINES",
    "Baseline",
    "BestAssignment",
    "MassChiSquare",
    "MinMass",
    "RandomChoice",
    "register_baseline",
]

BATCH = 512  # events at once
TAG_CUT = 0.5  # a jet above it is b-tagged
BOTTOM = (5,)  # PDG codes of a slot for b quarks only
TAG = np.float32(1e5)  # score of a b-tag: larger than any mass in GeV
SPREAD = np.float32(1e3)  # range of random scores
MIN_PARTICLES = 10  # particles of each type that a mean and a width need

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Scores = dict[str, Floats]  # type -> (C, B): contribution of each candidate to the score


class Baseline(Protocol):
    """A way to assign objects that needs no network.

    >>> class Leading:
    ...     name = "leading"
    ...
    ...     def fit(self, events):
    ...         return self
    ...
    ...     def assign(self, events):  # the objects of highest pT, in the order of the slots
    ...         slots = len(events.topology.slots)
    ...         return np.tile(np.arange(slots), (len(events), 1)), np.full(len(events), np.nan)
    >>> register_baseline(Leading())  # now known to --baseline
    >>> del BASELINES["leading"]
    """

    @property
    def name(self) -> str: ...

    def fit(self, events: Events) -> Baseline:
        """The baseline, fitted on the truth of some events; it may have `about`, a mapping for the JSON.

        `events.weights` are ones if events have no weights, or if weights are not used.
        """

    def assign(self, events: Events) -> tuple[Ints, npt.NDArray[np.floating[Any]]]:
        """Assignments (n, S), -1 for none, and their probabilities (n,), NaN where unknown.

        `events` have only the objects that are used, in order of falling pT, and no truth.
        """


BASELINES: dict[str, Baseline] = {}


def register_baseline(baseline: Baseline) -> None:
    """Add a baseline for `pairton evaluate --baseline NAME` and `pairton.evaluate(baselines=[NAME])`."""
    register(BASELINES, baseline.name, baseline, "baseline")


class Batch(NamedTuple):
    """Events of one layout."""

    p4: Floats  # (B, N, 4)
    tagged: Bools  # (B, N)
    ids: npt.NDArray[np.uint64]  # (B, 2)
    layout: Layout


class BestAssignment:
    """A baseline; subclasses have a `name`, and `scores` for the candidates of a batch of events."""

    name: str
    has_probability: ClassVar[bool] = False  # whether exp(score) is a likelihood

    def fit(self, events: Events) -> BestAssignment:
        """The baseline itself, if there is nothing to fit."""
        return self

    def scores(self, tables: SetTables, batch: Batch) -> Scores:
        """The contributions of candidates to the score."""
        raise NotImplementedError

    def assign(self, events: Events) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """The assignments (n, S) of largest score, and their probabilities (n,): exp(score) over the sum of all.

        Events with fewer objects of a kind than slots get -1 and NaN.
        """
        topology = events.topology
        topology.refuse_merged(f"the baseline {self.name}")
        momenta_of, _, tagged = dense_nodes(events)
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
            for some in np.split(rows, range(BATCH, len(rows), BATCH)):
                scores = self.scores(
                    tables, Batch(p4[some][:, used], tagged[some][:, used], events.ids[some], kept)
                )
                found = best(tables, scores)
                assignment[some] = found.assignment[:, 0] - topology.offsets(kept)
                if self.has_probability:
                    chance = found.score[:, 0] - log_normaliser(log_sums(tables, scores))
                    probability[some] = np.exp(chance)
        return assignment, probability


def candidate_masses(tables: SetTables, p4: Floats) -> dict[str, npt.NDArray[np.float32]]:
    """Type -> (C, B): the invariant mass of each candidate, from the momenta p4 (B, N, 4) of nodes."""
    n_nodes = p4.shape[1]
    products = pair_products(p4).astype(np.float32).reshape(len(p4), -1).T  # (N N, B): indexing takes rows
    products = np.ascontiguousarray(products)
    masses = {}
    for name, known in tables.candidates.items():
        nodes = known.objects.astype(np.intp).T
        square = np.zeros((len(known.objects), len(p4)), dtype=np.float32)
        for i, first in enumerate(nodes):
            for j, second in enumerate(nodes[: i + 1]):
                square += products[first * n_nodes + second] * np.float32(1 if i == j else 2)
        masses[name] = np.sqrt(np.maximum(square, 0))
    return masses


def dense_nodes(events: Events) -> tuple[list[npt.NDArray[np.float64]], Bools, Bools]:
    """The momenta (n, N, 4) of each kind, then the mask (n, N) and the b-tags (n, N) of all nodes together."""
    momenta_of, masks, tags = [], [], []
    for kind in events.topology.kinds:
        values, mask = events.dense(kind)
        momenta_of.append(cartesian(*(values[:, :, MOMENTUM.index(name)] for name in MOMENTUM)))
        masks.append(mask)
        has = kind == JET and "btag" in ak.fields(events.jets)
        tags.append(events.dense(kind, ("btag",))[0][:, :, 0] > TAG_CUT if has else np.zeros_like(mask))
    return momenta_of, np.concatenate(masks, axis=1), np.concatenate(tags, axis=1)


def product_name(topology: Topology, slot: int) -> str:
    """The name of a slot's product in the topology: b for t1.b, q for W.q2."""
    return topology.slots[slot].name.split(".")[-1].rstrip("0123456789")


# -- baselines that use no known mass ----------------------------------------------------------------------


class MinMass(BestAssignment):
    """The baseline `min_mass`."""

    name = "min_mass"

    def scores(self, tables: SetTables, batch: Batch) -> Scores:
        masses, scores = candidate_masses(tables, batch.p4), _tagged(tables, batch)
        for name in {root.type for root in tables.topology.roots}:
            scores[name] = scores[name] - masses[name]
        return scores


class RandomChoice(BestAssignment):
    """The baseline `random`: every candidate of an event gets its own score, always the same one."""

    name = "random"

    def scores(self, tables: SetTables, batch: Batch) -> Scores:
        scores, drawn = _tagged(tables, batch), 0
        for tags in scores.values():
            for candidate in range(len(tags)):
                drawn += 1
                tags[candidate] += SPREAD * uniform(batch.ids, drawn).astype(np.float32)
        return scores


def _tagged(tables: SetTables, batch: Batch) -> Scores:
    """Type -> (C, B): the score of b-tagged jets in the own slots for b quarks of each candidate."""
    topology, codes = tables.topology, codes_of(tables.topology)
    scores: Scores = {}
    for name, known in tables.candidates.items():
        particle, nodes = topology.of_type(name)[0], known.objects.astype(np.intp).T
        scores[name] = np.zeros((len(known.objects), len(batch.p4)), dtype=np.float32)
        for slot in particle.own_slots:
            if topology.slots[slot].kind == JET and tuple(codes.get(product_name(topology, slot), ())) == BOTTOM:
                scores[name] += TAG * batch.tagged.T[nodes[slot - particle.slots[0]]]
    return scores


# -- the mass chi-square -------------------------------------------------------------------------------------


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


for _baseline in (MassChiSquare(), MinMass(), RandomChoice()):
    register_baseline(_baseline)
