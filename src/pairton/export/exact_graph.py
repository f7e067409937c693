"""The exact likelihood as a graph: objects in, the most probable assignment with its probabilities out.

Shapes: B events, N nodes, S slots, P particles, C candidates of a root type, A assignments, R root particles.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from pairton.decoding.likelihood import enumerate_assignments, gain_terms, triplet_types
from pairton.export.graph_tables import PrefixTable, by_last, fitted
from pairton.export.step_graph import by_kind
from pairton.network.network import Network
from pairton.topology import Layout, Particle, Topology

__all__ = ["IMPOSSIBLE", "ExactGraph"]

IMPOSSIBLE = -1e30  # score of a choice with an object that is not there; finite, so that differences are


class ExactGraph(nn.Module):
    """A network and the sum over all assignments of up to as many objects as a layout has.

    The number of objects of the main kind may vary; of the other kinds the graph takes exactly those of the
    layout, padded or cut.
    """

    def __init__(self, network: Network, topology: Topology, layout: Layout, temperature: float = 1.0) -> None:
        super().__init__()
        self.network, self.topology, self.temperature, self.layout = network, topology, temperature, layout
        self.main = topology.kinds.index(topology.main_kind)
        most = layout[self.main]
        enumeration = enumerate_assignments(topology, layout)
        self.root_types = list(dict.fromkeys(enumeration.root_types))
        self.candidates = nn.ModuleDict()
        new_index = {}
        for name in self.root_types:
            nodes = enumeration.candidates[name].nodes
            main = self._columns(self._below(name)[0])
            order = by_last(nodes[:, main])
            self.candidates[name] = PrefixTable(nodes[order], len(main), most)
            new_index[name] = np.argsort(order)
        main = [slot.index for slot in topology.slots if slot.kind == topology.main_kind]
        rows = enumeration.roots[by_last(enumeration.assignments[:, main])]
        roots = [new_index[name][rows[:, k]] for k, name in enumerate(enumeration.root_types)]
        self.roots = PrefixTable(np.stack(roots, axis=1), len(main), most)

    def _columns(self, root: Particle) -> list[int]:
        """Columns of a root's candidates that are of the main kind."""
        kinds = [self.topology.slots[slot].kind for slot in root.slots]
        return [k for k, kind in enumerate(kinds) if kind == self.topology.main_kind]

    def _rows(self, name: str, count: int) -> Tensor:
        """(C, slots): nodes of the candidates of a root type, with `count` objects of the main kind."""
        root = self._below(name)[0]
        kinds = [self.topology.kinds.index(self.topology.slots[slot].kind) for slot in root.slots]
        behind = torch.tensor([kind > self.main for kind in kinds]).to(torch.long)
        return self._table(name).rows(count) + behind * (count - self.layout[self.main])

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Indices (B, S) of objects of their kind, probability of the event (B,), of its particles (B, P)."""
        kinds = self.topology.kinds
        objects, masks = by_kind(kinds, inputs)
        for k, kind in enumerate(kinds):
            fewest = self.topology.slots_per_kind[k] if k == self.main else self.layout[k]
            objects[kind], masks[kind] = fitted(objects[kind], masks[kind], fewest, self.layout[k])
        mask = torch.cat([masks[kind] for kind in kinds], dim=1)
        count = objects[kinds[self.main]].shape[1]
        batch, n_nodes = mask.shape[0], mask.shape[1]
        outputs = self.network(objects, masks, None)
        edges, triplets = outputs["edges"], outputs.get("triplets")
        absent = (1 - mask.to(edges.dtype)) * IMPOSSIBLE  # (B, N)
        tables = {name: self._rows(name, count) for name in self.root_types}
        value = {
            name: self._candidate_scores(name, tables[name], edges, triplets, n_nodes)
            + absent.index_select(1, tables[name].reshape(-1)).reshape(batch, -1, tables[name].shape[1]).sum(2).T
            for name in self.root_types
        }  # (C, B) each
        roots = self.roots.rows(count)  # (A, R)
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
        starts = [
            sum(objects[k].shape[1] for k in kinds[: kinds.index(slot.kind)]) for slot in self.topology.slots
        ]
        columns = [indices[:, slot] - start for slot, start in enumerate(starts)]
        indices = torch.where(possible[:, None], torch.stack(columns, dim=1), -1)
        return indices, event_probability, particle_probability

    def _table(self, name: str) -> PrefixTable:
        return cast(PrefixTable, self.candidates[name])

    def _below(self, type_name: str) -> tuple[Particle, list[Particle]]:
        root = next(p for p in self.topology.roots if p.type == type_name)
        return root, [p for p in self.topology.particles if root.index in self.topology.ancestry(p.index)]

    def _candidate_scores(
        self, name: str, nodes: Tensor, edges: Tensor, triplets: Tensor | None, n_nodes: int
    ) -> Tensor:
        """(C, B): summed gains and potentials of a root particle and all below it."""
        root, below = self._below(name)
        flat = edges.reshape(edges.shape[0], -1).T  # (T N N, B)
        total: Tensor | None = None
        for particle in below:
            layer = self.topology.type_index(particle.type) * n_nodes * n_nodes
            pairs, own = gain_terms(self.topology, particle)
            terms = [(1.0, i, j) for i, j in pairs] + [(-1.0, i, i) for i in own]
            for sign, i, j in terms:
                at = layer + nodes[:, i - root.slots[0]] * n_nodes + nodes[:, j - root.slots[0]]
                term = sign * flat.index_select(0, at)
                total = term if total is None else total + term
        assert total is not None
        if triplets is None:
            return total
        triplet = triplet_types(self.topology)
        flat = triplets.reshape(triplets.shape[0], -1).T
        for particle in below:
            if particle.type in triplet:
                slots = particle.slots
                if not triplet[particle.type]:
                    slots = (*self.topology.particles[particle.children[0]].slots, *particle.own_slots)
                row = torch.full_like(nodes[:, 0], list(triplet).index(particle.type))
                for slot in slots:
                    row = row * n_nodes + nodes[:, slot - root.slots[0]]
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
