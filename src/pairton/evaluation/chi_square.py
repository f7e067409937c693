"""What needs no network: the assignment whose masses and b-tags fit best.

    chi2(assignment) = sum over particles ((m - m_children - mean) / width)^2
                     - 2 sum over slots log P(tag | slot) / P(tag | other jet)

m_children is the summed mass of the particles below, so that the mass of a W is not counted again in its top.
Means, widths and tag rates are fitted on labelled objects: two numbers per type, one per kind of slot. Missing
energy is not used.

Shapes: B events, N nodes, S slots, C candidates of a root type, A assignments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding.likelihood import Enumeration, enumerate_assignments, log_normaliser
from pairton.errors import ModelError
from pairton.evaluation.registry import register_baseline
from pairton.events import Events
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import cartesian, pair_products
from pairton.reconstruction.result import momenta
from pairton.topology import JET, Particle, Topology

__all__ = ["MassChiSquare"]

MIN_PARTICLES = 10  # of each type, for a mean and a width
MAX_SCORES = 4_000_000  # B x A at once: 16 MB of float32
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
            enumeration = enumerate_assignments(topology, tuple(layout.tolist()))
            used = np.concatenate(
                [sum(widths[:k]) + np.arange(n) for k, n in enumerate(layout)]
            )  # without padding
            (rows,) = np.nonzero((counts == layout).all(axis=1))
            size = max(1, MAX_SCORES // len(enumeration.assignments))
            for batch in np.split(rows, range(size, len(rows), size)):
                total = self._scores(topology, enumeration, p4[batch][:, used], tagged[batch][:, used])
                best = total.argmax(axis=1)
                assignment[batch] = enumeration.assignments[best] - topology.offsets(enumeration.layout)
                probability[batch] = np.exp(total[np.arange(len(batch)), best] - log_normaliser(total))
        return assignment, probability

    def _scores(self, topology: Topology, enumeration: Enumeration, p4: Floats, tagged: Bools) -> Floats:
        """(B, A): -chi2 / 2, of nodes p4 (B, N, 4) and their tags (B, N)."""
        products = pair_products(p4).astype(np.float32).reshape(len(p4), -1).T  # (N N, B): gathers take rows
        products = np.ascontiguousarray(products)
        per_type = {}
        for name in dict.fromkeys(enumeration.root_types):
            root = next(p for p in topology.roots if p.type == name)
            candidates = enumeration.candidates[name].nodes.astype(np.intp)
            per_type[name] = self._candidate_scores(topology, root, candidates, products, tagged.T)
        total = np.zeros((len(enumeration.assignments), len(p4)), dtype=np.float32)
        for k, name in enumerate(enumeration.root_types):
            total += per_type[name].take(enumeration.roots[:, k], axis=0)
        return total.T

    def _candidate_scores(
        self, topology: Topology, root: Particle, candidates: Ints, products: Floats, tagged: Bools
    ) -> Floats:
        """(C, B): what the root particle and those below it add."""
        n_nodes = len(tagged)
        total = np.zeros((len(candidates), products.shape[1]), dtype=np.float32)
        mass: dict[int, Floats] = {}
        for particle in reversed(topology.particles):  # children before parents
            if root.index not in topology.ancestry(particle.index):
                continue
            nodes = [candidates[:, slot - root.slots[0]] for slot in particle.slots]
            square = np.zeros_like(total)
            for i, first in enumerate(nodes):
                for j, second in enumerate(nodes[: i + 1]):
                    square += products[first * n_nodes + second] * np.float32(1 if i == j else 2)
            mass[particle.index] = np.sqrt(np.maximum(square, 0))
            mean, width = self.masses[particle.type]
            below = sum(mass[child] for child in particle.children)
            total -= ((mass[particle.index] - below - np.float32(mean)) / np.float32(width)) ** 2 / 2
        for slot in root.slots:
            if topology.slots[slot].kind != JET:
                continue
            rate = self.tag_rates[_kind(topology, slot)]
            other = self.other_tag_rate
            gains = np.log(np.array([(1 - rate) / (1 - other), rate / other])).astype(np.float32)
            gain = gains[tagged.astype(np.intp)]  # (N, B)
            total += gain[candidates[:, slot - root.slots[0]]]
        return total


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
