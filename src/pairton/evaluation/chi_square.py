"""What needs no network: the assignment whose masses and b-tags fit best.

    chi2(assignment) = sum over particles ((m - m_children - mean) / width)^2
                     - 2 sum over slots log P(tag | slot) / P(tag | other jet)

m_children is the summed mass of the particles below, so that the mass of a W is not counted again in its top.
Means, widths and tag rates are fitted on truth-matched jets: two numbers a type, one a kind of slot.

Shapes: B events, N jets, S slots, C candidates of a root type, A assignments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.likelihood import Enumeration, enumerate_assignments, log_normaliser
from pairton.errors import ModelError
from pairton.events import Events
from pairton.events.objects import JET_FIELDS
from pairton.topology import Particle, Topology

__all__ = ["MassChiSquare", "invariant_mass", "pair_products"]

MIN_PARTICLES = 10  # of each type, for a mean and a width
MAX_SCORES = 4_000_000  # B x A at once: 16 MB of float32
TAG_CUT = 0.5

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MassChiSquare:
    """Fit with `MassChiSquare.fit(events)`, then `assign` jets."""

    topology: Topology
    masses: Mapping[str, tuple[float, float]]  # type -> mean and width, GeV
    tag_rates: Mapping[str, float]  # kind of slot -> share of its jets that are b-tagged
    other_tag_rate: float  # of jets without a label

    @staticmethod
    def fit(events: Events) -> MassChiSquare:
        """Means, widths and tag rates from the truth of some events."""
        topology = events.topology
        if events.truth is None:
            raise ModelError("a mass chi-square is fitted on truth-matched jets, but these events have no truth")
        jets, mask = events.dense()
        products = pair_products(jets)
        masses = {}
        for name in topology.types:
            found = []
            for particle in topology.of_type(name):
                (rows,) = np.nonzero(events.present[:, particle.index])
                found.append(_excess_mass(topology, particle, products[rows], events.truth[rows]))
            values = np.concatenate(found)
            if len(values) < MIN_PARTICLES:
                raise ModelError(
                    f"only {len(values)} particles of type {name} have all their jets labelled, and a mean and a "
                    f"width need {MIN_PARTICLES}: give more events with truth"
                )
            masses[name] = _core(values)
        tagged = jets[:, :, JET_FIELDS.index("btag")] > TAG_CUT
        rates, other = _tag_rates(topology, tagged, mask, events.truth)
        return MassChiSquare(topology, masses, rates, other)

    def assign(self, jets: Floats, jet_mask: Bools) -> tuple[npt.NDArray[np.int32], Floats]:
        """Best assignments (B, S) of jets (B, N, 5), and exp(-chi2 / 2) of each over the sum of all, (B,).

        Events with fewer jets than slots have -1 and NaN.
        """
        counts = jet_mask.sum(axis=1)
        assignment = np.full((len(jets), len(self.topology.slots)), -1, dtype=np.int32)
        probability = np.full(len(jets), np.nan)
        for n_jets in np.unique(counts[counts >= len(self.topology.slots)]):
            enumeration = enumerate_assignments(self.topology, int(n_jets))
            (rows,) = np.nonzero(counts == n_jets)
            size = max(1, MAX_SCORES // len(enumeration.assignments))
            for batch in np.split(rows, range(size, len(rows), size)):
                total = self._scores(enumeration, jets[batch, :n_jets])
                best = total.argmax(axis=1)
                assignment[batch] = enumeration.assignments[best]
                probability[batch] = np.exp(total[np.arange(len(batch)), best] - log_normaliser(total))
        return assignment, probability

    def _scores(self, enumeration: Enumeration, jets: Floats) -> Floats:
        """(B, A): -chi2 / 2."""
        products = pair_products(jets).astype(np.float32).reshape(len(jets), -1).T  # (N N, B): gathers take rows
        products = np.ascontiguousarray(products)
        tagged = jets[:, :, JET_FIELDS.index("btag")].T > TAG_CUT  # (N, B)
        per_type = {}
        for name in dict.fromkeys(enumeration.root_types):
            root = next(p for p in self.topology.roots if p.type == name)
            candidates = enumeration.candidates[name].jets.astype(np.intp)
            per_type[name] = self._candidate_scores(root, candidates, products, tagged)
        total = np.zeros((len(enumeration.assignments), len(jets)), dtype=np.float32)
        for k, name in enumerate(enumeration.root_types):
            total += per_type[name].take(enumeration.roots[:, k], axis=0)
        return total.T

    def _candidate_scores(self, root: Particle, candidates: Ints, products: Floats, tagged: Bools) -> Floats:
        """(C, B): what the root particle and those below it add."""
        topology, n_jets = self.topology, len(tagged)
        total = np.zeros((len(candidates), products.shape[1]), dtype=np.float32)
        mass: dict[int, Floats] = {}
        for particle in reversed(topology.particles):  # children before parents
            if root.index not in topology.ancestry(particle.index):
                continue
            jets = [candidates[:, slot - root.slots[0]] for slot in particle.slots]
            square = np.zeros_like(total)
            for i, first in enumerate(jets):
                for j, second in enumerate(jets[: i + 1]):
                    square += products[first * n_jets + second] * np.float32(1 if i == j else 2)
            mass[particle.index] = np.sqrt(np.maximum(square, 0))
            mean, width = self.masses[particle.type]
            below = sum(mass[child] for child in particle.children)
            total -= ((mass[particle.index] - below - np.float32(mean)) / np.float32(width)) ** 2 / 2
        for slot in root.slots:
            rate = self.tag_rates[_kind(topology, slot)]
            other = self.other_tag_rate
            gains = np.log(np.array([(1 - rate) / (1 - other), rate / other])).astype(np.float32)
            gain = gains[tagged.astype(np.intp)]  # (N, B)
            total += gain[candidates[:, slot - root.slots[0]]]
        return total


# -- masses ------------------------------------------------------------------------------------------------


def pair_products(jets: Floats) -> npt.NDArray[np.float64]:
    """(B, N, N): Minkowski products of jets (B, N, >= 4); the sum over a set of jets is its mass squared."""
    pt, eta, phi, energy = (np.asarray(jets[:, :, k], dtype=np.float64) for k in range(4))
    p4 = np.stack([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), energy], axis=2)
    return np.asarray((p4 * [-1, -1, -1, 1]) @ p4.transpose(0, 2, 1))


def invariant_mass(products: npt.NDArray[np.float64], assignment: Ints) -> npt.NDArray[np.float64]:
    """(B,): the mass of the jets of an assignment (B, any), from `pair_products`; every jet must exist."""
    rows = np.arange(len(assignment))[:, None, None]
    square = products[rows, assignment[:, :, None], assignment[:, None, :]].sum(axis=(1, 2))
    return np.asarray(np.sqrt(np.maximum(square, 0)))


def _excess_mass(
    topology: Topology, particle: Particle, products: npt.NDArray[np.float64], truth: Ints
) -> npt.NDArray[np.float64]:
    """Mass of a particle less that of the particles it decays to."""
    mass = invariant_mass(products, truth[:, list(particle.slots)])
    for child in particle.children:
        mass = mass - invariant_mass(products, truth[:, list(topology.particles[child].slots)])
    return mass


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
    for slot in range(len(topology.slots)):
        (rows,) = np.nonzero(truth[:, slot] >= 0)
        free[rows, truth[rows, slot]] = False
        found = tagged[rows, truth[rows, slot]]
        count = tags.setdefault(_kind(topology, slot), [0, 0])
        count[0] += int(found.sum())
        count[1] += len(found)
    # half a jet of each kind more: no rate is 0 or 1
    rates = {kind: (k + 0.5) / (n + 1) for kind, (k, n) in tags.items()}
    return rates, (float(tagged[free].sum()) + 0.5) / (int(free.sum()) + 1)
