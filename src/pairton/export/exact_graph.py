"""The exact likelihood as a graph: objects in, the most probable assignment with its probabilities out.

Shapes: B events, N nodes, S slots, P particles, C candidates of a type.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pairton.decoding.set_tables import set_tables
from pairton.decoding.terms import gain_terms, triplet_slots, triplet_types
from pairton.export.set_graph import SetGraph
from pairton.export.step_graph import by_kind
from pairton.network.network import Network
from pairton.network.torch_set_sums import IMPOSSIBLE
from pairton.topology import Layout, Particle, Topology

__all__ = ["ExactGraph", "fitted"]


def fitted(objects: Tensor, mask: Tensor, fewest: int, most: int) -> tuple[Tensor, Tensor]:
    """The first `most` objects (B, N, F), padded to at least `fewest`; (B, N) says which are there.

    >>> [part.shape[1] for n in (2, 5, 9) for part in fitted(torch.ones(1, n, 5), torch.ones(1, n) > 0, 4, 6)]
    [4, 4, 5, 5, 6, 6]
    """
    count = torch.clamp(torch.as_tensor(objects.shape[1]), min=fewest, max=most)
    missing = objects.new_zeros(objects.shape[0], fewest, objects.shape[2])
    objects = torch.cat([objects, missing], dim=1)[:, :count]
    mask = torch.cat([mask, missing[:, :, 0] > 0], dim=1)[:, :count]
    return objects, mask


class ExactGraph(nn.Module):
    """A network and the sums over the hypotheses of up to as many objects as a layout has.

    The number of objects of the main kind may vary; of other kinds the graph takes those of the layout, padded or
    cut. Inside, objects of the main kind are numbered last: tables for fewer of them are parts of larger ones.
    """

    def __init__(self, network: Network, topology: Topology, layout: Layout, temperature: float = 1.0) -> None:
        super().__init__()
        self.network, self.topology, self.temperature, self.layout = network, topology, temperature, layout
        self.main = topology.kinds.index(topology.main_kind)
        fixed = {kind: n for k, (kind, n) in enumerate(zip(topology.kinds, layout, strict=True)) if k != self.main}
        self.first = sum(fixed.values())
        nodes, start = {}, 0
        for kind, count in fixed.items():
            nodes[kind] = range(start, start + count)
            start += count
        nodes[topology.main_kind] = range(start, start + layout[self.main])
        self.has_patterns = "patterns" in network.outputs
        allowed = tuple(tuple(nodes[slot.kind]) for slot in topology.slots)
        self.starts = [nodes[slot.kind].start for slot in topology.slots]  # to count objects from 0 in their kind
        self.sums = SetGraph(set_tables(topology, allowed, not self.has_patterns), layout[self.main], self.first)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Indices (B, S) of objects of their kind, probability of the event (B,), of its particles (B, P)."""
        kinds = self.topology.kinds
        objects, masks = by_kind(kinds, inputs)
        for k, kind in enumerate(kinds):
            fewest = self.topology.slots_per_kind[k] if k == self.main else self.layout[k]
            objects[kind], masks[kind] = fitted(objects[kind], masks[kind], fewest, self.layout[k])
        outputs = self.network(objects, masks, None)
        # (N,): the node of the network that each node of the tables is
        count = objects[kinds[self.main]].shape[1]
        every = torch.arange(sum(objects[kind].shape[1] for kind in kinds))
        before = sum(self.layout[: self.main])
        node = torch.cat([every[:before], every[before + count :], every[before : before + count]])
        at = self.sums.at(count)
        mask = torch.cat([masks[kind] for kind in kinds], dim=1).index_select(1, node)
        scores = self._scores(outputs, at, node, mask)
        terms = (
            outputs["patterns"].T / self.temperature if self.has_patterns else 0 * outputs["edges"][:, 0, 0, :1].T
        )
        sums, present = self.sums.marginals(scores, terms, at)
        score, slots = self.sums.best(scores, terms, at)
        score, slots = score[0], slots[0]  # of the complete pattern
        top = sums.amax(dim=0)
        total = top + (sums - top).exp().sum(dim=0).log()
        particles = [self._probability(p, slots, present[p.type], at) for p in self.topology.particles]
        possible = score > 0.5 * IMPOSSIBLE
        nothing = torch.full_like(total, torch.nan)
        columns = [slots[:, slot] - start for slot, start in enumerate(self.starts)]
        return (
            torch.where(possible[:, None], torch.stack(columns, dim=1), -1),
            torch.where(possible, (score - total).exp(), nothing),
            torch.where(possible[:, None], torch.stack(particles, dim=1), nothing[:, None]),
        )

    def _scores(
        self, outputs: dict[str, Tensor], at: dict[str, Tensor], node: Tensor, mask: Tensor
    ) -> dict[str, Tensor]:
        """Type -> (C, B): own gains and potentials; IMPOSSIBLE where an object is not there."""
        edges, n_nodes = outputs["edges"], mask.shape[1]
        flat = edges.reshape(edges.shape[0], -1).T  # (T N N, B)
        absent = (1 - mask.to(edges.dtype)).T * IMPOSSIBLE  # (N, B)
        triplets = triplet_types(self.topology) if "triplets" in outputs else {}
        scores = {}
        for name in self.topology.types:
            particle = self.topology.of_type(name)[0]
            table = at[f"objects {name}"]  # (C, slots)
            place = {slot: node.index_select(0, table[:, k]) for k, slot in enumerate(particle.slots)}
            layer = self.topology.type_index(name) * n_nodes * n_nodes
            pairs, own = gain_terms(self.topology, particle)
            terms = [flat.index_select(0, layer + place[i] * n_nodes + place[j]) for i, j in pairs]
            terms += [-flat.index_select(0, layer + place[i] * (n_nodes + 1)) for i in own]
            if name in triplets:
                potentials = outputs["triplets"].reshape(edges.shape[0], -1).T
                row = torch.full_like(table[:, 0], list(triplets).index(name))
                for slot in triplet_slots(self.topology, particle):
                    row = row * n_nodes + place[slot]
                terms.append(potentials.index_select(0, row))
            scores[name] = torch.stack([absent.index_select(0, slot) for slot in table.T]).sum(dim=0)
            if terms:  # an only child adds nothing
                scores[name] = scores[name] + torch.stack(terms).sum(dim=0) / self.temperature
        return scores

    def _probability(self, particle: Particle, slots: Tensor, present: Tensor, at: dict[str, Tensor]) -> Tensor:
        """(B,): the probability of the particle that an assignment (B, S) has at its place."""
        mine = slots[:, list(particle.slots)]  # (B, slots)
        same = (at[f"objects {particle.type}"][:, None] == mine[None]).all(dim=2)  # (C, B)
        return (same.to(present.dtype) * present).sum(dim=0)
