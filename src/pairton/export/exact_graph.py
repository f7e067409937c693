"""The exact likelihood as a graph: jets in, the most probable assignment with its probabilities out.

Shapes: B events, N jets, S slots, P particles, C candidates of a root type, A assignments, R root particles.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from pairton.decoding.likelihood import enumerate_assignments, gain_terms, triplet_types
from pairton.export.tables import PrefixTable, by_last_jet, fitted
from pairton.topology import Particle, Topology

__all__ = ["IMPOSSIBLE", "ExactGraph"]

IMPOSSIBLE = -1e30  # score of a choice with a jet that is not there; finite, so that differences are


class ExactGraph(nn.Module):
    """A network and the sum over all assignments of up to `max_jets` jets."""

    def __init__(self, network: nn.Module, topology: Topology, max_jets: int, temperature: float = 1.0) -> None:
        super().__init__()
        self.network, self.topology, self.temperature = network, topology, temperature
        self.max_jets = max_jets
        enumeration = enumerate_assignments(topology, max_jets)
        self.root_types = list(dict.fromkeys(enumeration.root_types))
        self.candidates = nn.ModuleDict()
        new_index = {}
        for name in self.root_types:
            jets = enumeration.candidates[name].jets
            order = by_last_jet(jets)
            self.candidates[name] = PrefixTable(jets[order], jets.shape[1], max_jets)
            new_index[name] = np.argsort(order)
        rows = enumeration.roots[by_last_jet(enumeration.assignments)]
        roots = [new_index[name][rows[:, k]] for k, name in enumerate(enumeration.root_types)]
        self.roots = PrefixTable(np.stack(roots, axis=1), len(topology.slots), max_jets)

    def forward(self, jets: Tensor, jet_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Indices (B, S), probability of the event (B,), of its particles (B, P)."""
        jets, jet_mask = fitted(jets, jet_mask, len(self.topology.slots), self.max_jets)
        batch, n_jets = jets.shape[0], jets.shape[1]
        edges, triplets = self.network(jets, jet_mask, None)
        absent = (1 - jet_mask.to(edges.dtype)) * IMPOSSIBLE  # (B, N)
        tables = {name: self._table(name).rows(n_jets) for name in self.root_types}
        value = {
            name: self._candidate_scores(name, tables[name], edges, triplets, n_jets)
            + absent.index_select(1, tables[name].reshape(-1)).reshape(batch, -1, tables[name].shape[1]).sum(2).T
            for name in self.root_types
        }  # (C, B) each
        roots = self.roots.rows(n_jets)  # (A, R)
        types = [root.type for root in self.topology.roots]
        score = value[types[0]].index_select(0, roots[:, 0])  # (A, B)
        for k, name in enumerate(types[1:], start=1):
            score = score + value[name].index_select(0, roots[:, k])
        score = score / self.temperature
        top, best = score.max(dim=0)
        weight = torch.exp(score - top)
        total = weight.sum(dim=0)  # (B,)
        chosen = roots.index_select(0, best)  # (B, R)
        indices = torch.cat([tables[name].index_select(0, chosen[:, k]) for k, name in enumerate(types)], dim=1)

        shares = {name: torch.zeros_like(value[name]) for name in self.root_types}  # marginals of candidates
        for k, name in enumerate(types):
            shares[name] = shares[name].scatter_add(0, roots[:, k : k + 1].expand_as(weight), weight)
        particles = [self._weight_of(p, indices, tables, shares) / total for p in self.topology.particles]
        possible = top > 0.5 * IMPOSSIBLE
        nothing = torch.full_like(total, torch.nan)
        event_probability = torch.where(possible, 1 / total, nothing)
        particle_probability = torch.where(possible[:, None], torch.stack(particles, dim=1), nothing[:, None])
        return torch.where(possible[:, None], indices, -1), event_probability, particle_probability

    def _table(self, name: str) -> PrefixTable:
        return cast(PrefixTable, self.candidates[name])

    def _below(self, type_name: str) -> tuple[Particle, list[Particle]]:
        root = next(p for p in self.topology.roots if p.type == type_name)
        return root, [p for p in self.topology.particles if root.index in self.topology.ancestry(p.index)]

    def _candidate_scores(
        self, name: str, jets: Tensor, edges: Tensor, triplets: Tensor | None, n_jets: int
    ) -> Tensor:
        """(C, B): summed gains and potentials of a root particle and all below it."""
        root, below = self._below(name)
        flat = edges.reshape(edges.shape[0], -1).T  # (T N N, B)
        total: Tensor | None = None
        for particle in below:
            layer = self.topology.type_index(particle.type) * n_jets * n_jets
            pairs, own = gain_terms(self.topology, particle)
            terms = [(1.0, i, j) for i, j in pairs] + [(-1.0, i, i) for i in own]
            for sign, i, j in terms:
                at = layer + jets[:, i - root.slots[0]] * n_jets + jets[:, j - root.slots[0]]
                term = sign * flat.index_select(0, at)
                total = term if total is None else total + term
        assert total is not None
        if triplets is None:
            return total
        kinds = triplet_types(self.topology)
        flat = triplets.reshape(triplets.shape[0], -1).T
        for particle in below:
            if particle.type in kinds:
                slots = particle.slots
                if not kinds[particle.type]:
                    slots = (*self.topology.particles[particle.children[0]].slots, *particle.own_slots)
                row = torch.full_like(jets[:, 0], list(kinds).index(particle.type))
                for slot in slots:
                    row = row * n_jets + jets[:, slot - root.slots[0]]
                total = total + flat.index_select(0, row)
        return total

    def _weight_of(
        self, particle: Particle, indices: Tensor, tables: dict[str, Tensor], shares: dict[str, Tensor]
    ) -> Tensor:
        """(B,): summed weight of the assignments that contain this particle, wherever they have it."""
        mine = indices[:, list(particle.slots)]  # (B, slots)
        result = torch.zeros_like(shares[self.root_types[0]][0])
        for name in self.root_types:
            root, below = self._below(name)
            for place in below:
                if place.type == particle.type:
                    theirs = tables[name][:, [slot - root.slots[0] for slot in place.slots]]  # (C, slots)
                    same = (theirs[:, None] == mine[None]).all(dim=2).to(result.dtype)  # (C, B)
                    result = result + (same * shares[name]).sum(dim=0)
        return result
