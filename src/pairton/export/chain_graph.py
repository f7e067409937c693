"""The reverse process unrolled as a graph: what `pairton.decoding` does in numpy, without loops over data.

Nothing is indexed by what was found: a particle found is compared with all nodes or places at once, so that the
same nodes serve every event, also where events diverge.

Shapes: B events, N nodes, T types, S slots, P particles, K particles of a type, L slots of one, X candidates of a
step, J choices of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pairton.decoding.candidates import Decay, StepTable, own_choices, step_table
from pairton.decoding.graph import EDGE, MASKED, NO_EDGE, known_ancestry
from pairton.errors import ModelError
from pairton.export.exact_graph import IMPOSSIBLE
from pairton.export.tables import PrefixTable, by_last, fitted
from pairton.topology import Stage, Topology

__all__ = ["ChainGraph"]

_NONE, _UNKNOWN = -1, -2  # as in pairton.decoding.graph


@dataclass
class Found:
    """Particles of one type, in the order in which they were found."""

    nodes: Tensor  # (B, K, L), -1 where not found
    count: Tensor  # (B,)
    taken: Tensor  # (B, K) bool: has a parent
    probability: Tensor  # (B, K)


class StageTable(nn.Module):
    """The choices of a stage for any number of objects: candidates of each type, and which of them go together."""

    def __init__(self, topology: Topology, stage: Stage, max_objects: int) -> None:
        super().__init__()
        step = step_table(topology, stage, max_objects)
        if step is None:
            raise ModelError(
                f"the stage {stage} has too many joint choices at {max_objects} objects for one graph: lower "
                "--max-objects"
            )
        self.decays = step.decays
        self.own = nn.ModuleList()  # of each type: (C, own objects)
        order = []
        for decay in step.decays:
            table = own_choices(decay.own_names, max_objects)
            order.append(by_last(table))
            self.own.append(PrefixTable(table[order[-1]], len(decay.own), max_objects))
        self.members = [int(k) for k in step.decay[step.choices[0]]]  # type of each particle that is revealed
        self.joint: PrefixTable | None = None
        if len(self.members) > 1:
            self.joint = PrefixTable(*self._joint(step, [np.argsort(rows) for rows in order]), max_objects)

    def _joint(self, step: StepTable, new: list[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], int]:
        """(J, 2 M): rows of children and of own objects, for each particle; and how many objects a choice uses."""
        columns, nodes = [], []
        for k, picked in zip(self.members, step.choices.T, strict=True):
            columns += [step.children[picked], new[k][step.own[picked]]]
            nodes.append(own_choices(step.decays[k].own_names, step.n_free)[step.own[picked]])
        used = np.concatenate(nodes, axis=1)
        return np.stack(columns, axis=1)[by_last(used)], used.shape[1]


class ChainGraph(nn.Module):
    """A network and the stages of a topology; with `refresh` it is asked again before each of them."""

    def __init__(
        self, network: nn.Module, topology: Topology, max_objects: int, temperatures: list[float], refresh: bool
    ) -> None:
        super().__init__()
        self.network, self.topology, self.temperatures, self.refresh = network, topology, temperatures, refresh
        self.max_objects = max_objects
        self.stages = nn.ModuleList(StageTable(topology, stage, max_objects) for stage in topology.stages)

    def forward(self, objects: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Indices (B, S), probability of the chain (B,), of its particles (B, P)."""
        objects, mask = fitted(objects, mask, len(self.topology.slots), self.max_objects)
        number = torch.arange(objects.shape[1], device=objects.device)
        possible = mask.to(torch.long).sum(dim=1) >= len(self.topology.slots)
        free = mask | ~possible[:, None]  # an event with too few objects is answered with anything, then discarded
        found = self._nothing(objects)
        chain = torch.ones_like(objects[:, 0, 0])
        edges, triplets = self._ask(objects, mask, None)
        for k, (stage, temperature) in enumerate(zip(self.stages, self.temperatures, strict=True)):
            if k and self.refresh:
                edges, triplets = self._ask(objects, mask, self._tokens(found, number, mask))
            assert isinstance(stage, StageTable)
            probability, free = self._step(stage, found, free, edges, triplets, temperature, number)
            chain = chain * probability
        indices, particles = self._answer(found)
        nothing = torch.full_like(chain, torch.nan)
        return (
            torch.where(possible[:, None], indices, -1),
            torch.where(possible, chain, nothing),
            torch.where(possible[:, None], particles, nothing[:, None]),
        )

    def _ask(self, objects: Tensor, mask: Tensor, tokens: Tensor | None) -> tuple[Tensor, Tensor | None]:
        (kind,) = self.topology.kinds
        outputs = self.network({kind: objects}, {kind: mask}, tokens)
        return outputs["edges"], outputs.get("triplets")

    def _nothing(self, objects: Tensor) -> dict[str, Found]:
        found = {}
        zero = torch.zeros_like(objects[:, 0, 0])
        for name in self.topology.types:
            same = self.topology.of_type(name)
            flags = zero[:, None].repeat(1, len(same))
            empty = (flags[:, :, None].repeat(1, 1, len(same[0].slots)) - 1).to(torch.long)
            found[name] = Found(empty, zero.to(torch.long), flags > 0, flags + 1)
        return found

    # -- one step ------------------------------------------------------------------------------------------

    def _step(
        self,
        stage: StageTable,
        found: dict[str, Found],
        free: Tensor,
        edges: Tensor,
        triplets: Tensor | None,
        temperature: float,
        number: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Reveal the best choice; its probability (B,), and the nodes still free."""
        n_nodes = edges.shape[-1]
        own = [table.rows(n_nodes) for table in stage.own if isinstance(table, PrefixTable)]
        gain = [
            self._gains(decay, table, found, free, edges, triplets)
            for decay, table in zip(stage.decays, own, strict=True)
        ]  # (B, Q, C) of each type
        choices = None if stage.joint is None else stage.joint.rows(n_nodes)  # (J, 2 M)
        if choices is None:
            total = torch.cat([part.reshape(part.shape[0], -1) for part in gain], dim=1)
        else:
            total = self._joint_gain(stage.members, gain, choices)
        total = total / temperature
        top, choice = total.max(dim=1)
        probability = 1 / torch.exp(total - top[:, None]).sum(dim=1)
        if choices is None:
            offset = torch.zeros_like(choice)
            for decay, table, part in zip(stage.decays, own, gain, strict=True):
                size = part.shape[1] * part.shape[2]
                mine = (choice >= offset) & (choice < offset + size)
                pick = torch.where(mine, choice - offset, torch.zeros_like(choice))
                free = self._reveal(decay, table, pick, mine, found, found, free, probability, number)
                offset = offset + size
            return probability, free
        row = choices.index_select(0, choice)  # (B, 2 M)
        before, everyone = dict(found), choice >= 0
        for m, k in enumerate(stage.members):
            pick = row[:, 2 * m] * own[k].shape[0] + row[:, 2 * m + 1]
            free = self._reveal(stage.decays[k], own[k], pick, everyone, before, found, free, probability, number)
        return probability, free

    def _joint_gain(self, members: list[int], gain: list[Tensor], choices: Tensor) -> Tensor:
        """(B, J): summed over the particles of a choice."""
        terms = []
        for m, k in enumerate(members):
            at = choices[:, 2 * m] * gain[k].shape[2] + choices[:, 2 * m + 1]
            terms.append(gain[k].reshape(gain[k].shape[0], -1).index_select(1, at))
        return torch.stack(terms).sum(dim=0)

    def _gains(
        self,
        decay: Decay,
        own: Tensor,
        found: dict[str, Found],
        free: Tensor,
        edges: Tensor,
        triplets: Tensor | None,
    ) -> Tensor:
        """(B, Q, C): gain of every choice of children and own objects; IMPOSSIBLE or less where there is none."""
        batch, n_nodes = edges.shape[0], edges.shape[-1]
        logits = edges[:, decay.layer]  # (B, N, N)
        flat = logits.reshape(batch, -1)
        absent = (1 - free.to(edges.dtype)) * IMPOSSIBLE
        value = torch.zeros_like(flat[:, :1])
        for i in range(len(decay.own)):
            for j in range(i):
                value = value + flat.index_select(1, own[:, j] * n_nodes + own[:, i])
            value = value - flat.index_select(1, own[:, i] * (n_nodes + 1)) + absent.index_select(1, own[:, i])
        more = (found[decay.name].count >= decay.count).to(edges.dtype) * IMPOSSIBLE
        value = value + more[:, None]
        result = []
        for choice in decay.child_choices:
            total = value
            members: list[Tensor] = []  # (B, N) of 0 and 1, for each child
            slots: dict[int, Tensor] = {}
            for (child, positions), which in zip(decay.children, choice, strict=True):
                same = found[child]
                there = (same.count > which) & ~same.taken[:, which]
                total = total + ((1 - there.to(edges.dtype)) * IMPOSSIBLE)[:, None]
                number = torch.arange(n_nodes, device=edges.device)
                each = (same.nodes[:, which, :, None] == number).to(edges.dtype)  # (B, L, N)
                inside = each.sum(dim=1)
                around = (logits * inside[:, :, None]).sum(dim=1)  # (B, N)
                for other in members:
                    total = total + (around * other).sum(dim=1, keepdim=True)
                for i in range(len(decay.own)):
                    total = total + around.index_select(1, own[:, i])
                members.append(inside)
                slots |= {p: each[:, k] for k, p in enumerate(positions)}
            if decay.potential >= 0 and triplets is not None:
                total = total + self._potential(decay, own, slots, triplets[:, decay.potential])
            result.append(total)
        return torch.stack(result, dim=1)

    def _potential(self, decay: Decay, own: Tensor, slots: dict[int, Tensor], triplets: Tensor) -> Tensor:
        """(B, C): potentials (B, N, N, N) at the children's nodes, given as 0 and 1, and at the own ones."""
        n_nodes = triplets.shape[-1]
        row = torch.zeros_like(own.sum(dim=1))  # (C,)
        axis = 1
        for position in decay.potential_order:
            if position in slots:  # a sum in which one entry counts
                shape = [1] * triplets.dim()
                shape[0], shape[axis] = -1, n_nodes
                triplets = (triplets * slots[position].reshape(shape)).sum(dim=axis)
            else:
                row = row * n_nodes + own[:, decay.own.index(position)]
                axis += 1
        return triplets.reshape(triplets.shape[0], -1).index_select(1, row)

    def _reveal(
        self,
        decay: Decay,
        own: Tensor,
        pick: Tensor,
        mine: Tensor,
        pool: dict[str, Found],
        found: dict[str, Found],
        free: Tensor,
        probability: Tensor,
        number: Tensor,
    ) -> Tensor:
        """Add candidate `pick` (B,), with children from `pool`, where `mine` (B,) is set; the nodes still free."""
        child_row = pick // own.shape[0]
        nodes = own.index_select(0, pick % own.shape[0])  # (B, own)
        columns: dict[int, Tensor] = {p: nodes[:, i] for i, p in enumerate(decay.own)}
        weight = probability
        for c, (child, positions) in enumerate(decay.children):
            same = pool[child]
            table = torch.tensor([row[c] for row in decay.child_choices], device=own.device)
            which = table.index_select(0, child_row)  # (B,)
            hot = which[:, None] == torch.arange(same.taken.shape[1], device=own.device)  # (B, K)
            weight = weight * (hot.to(weight.dtype) * same.probability).sum(dim=1)
            inside = (hot[:, :, None].to(torch.long) * same.nodes).sum(dim=1)  # (B, L)
            columns |= {p: inside[:, k] for k, p in enumerate(positions)}
            now = found[child]
            found[child] = Found(now.nodes, now.count, now.taken | (hot & mine[:, None]), now.probability)
        particle = torch.stack([columns[p] for p in range(decay.width)], dim=1)  # (B, L)
        same = found[decay.name]
        here = torch.arange(same.taken.shape[1], device=own.device) == same.count[:, None]
        here = here & mine[:, None]  # (B, K)
        found[decay.name] = Found(
            torch.where(here[:, :, None], particle[:, None], same.nodes),
            same.count + mine.to(torch.long),
            same.taken,
            torch.where(here, weight[:, None], same.probability),
        )
        used = (nodes[:, :, None] == number).to(torch.long).sum(dim=1) > 0  # (B, N)
        return free & ~(used & mine[:, None])

    # -- states --------------------------------------------------------------------------------------------

    def _place(self, found: dict[str, Found]) -> tuple[list[Tensor], list[Tensor]]:
        """Node of each slot (B,), -1 for none, and whether each particle is revealed (B,), as State.place does."""
        topology = self.topology
        some = found[topology.types[0]].count
        slots = [torch.full_like(some, -1) for _ in topology.slots]
        revealed = [torch.zeros_like(some) > 0 for _ in topology.particles]
        for name in reversed(topology.types):
            same = found[name]
            places = topology.of_type(name)
            index = torch.arange(len(places), device=some.device)
            there = (index < same.count[:, None]) & ~same.taken  # (B, K)
            open_places = ~torch.stack([revealed[p.index] for p in places], dim=1)
            rank_found = there.to(torch.long).cumsum(dim=1)
            rank_place = open_places.to(torch.long).cumsum(dim=1)
            match = (rank_place[:, :, None] == rank_found[:, None]) & there[:, None] & open_places[:, :, None]
            nodes = (match[..., None].to(torch.long) * (same.nodes + 1)[:, None]).sum(dim=2) - 1  # (B, K, L)
            shown = match.any(dim=2)
            for k, place in enumerate(places):
                for i, slot in enumerate(place.slots):
                    slots[slot] = torch.where(shown[:, k], nodes[:, k, i], slots[slot])
                for other in topology.particles:
                    if place.index in topology.ancestry(other.index):
                        revealed[other.index] = revealed[other.index] | shown[:, k]
        return slots, revealed

    def _tokens(self, found: dict[str, Found], number: Tensor, mask: Tensor) -> Tensor:
        """(B, T, N, N): `pairton.decoding.graph.visible_tokens` of the state."""
        topology = self.topology
        slots, revealed = self._place(found)
        at = [(slot[:, None] == number) for slot in slots]  # (B, N) each
        matrices = []
        diagonal = number[:, None] == number
        for name in topology.types:
            rank = {p.index: k for k, p in enumerate(topology.of_type(name))}
            member = torch.full_like(mask, _UNKNOWN, dtype=torch.long)
            in_complete = torch.zeros_like(mask)
            for particle in topology.particles:
                shown = revealed[particle.index]
                if particle.parent >= 0:
                    shown = shown & ~revealed[particle.parent]
                for slot in particle.slots:
                    chain, open_types = known_ancestry(topology, topology.slots[slot].particle, particle)
                    inside = next((index for index in chain if index in rank), None)
                    here = at[slot] & shown[:, None]
                    if inside is not None:
                        member = torch.where(here, rank[inside], member)
                        in_complete = in_complete | (here & revealed[inside][:, None])
                    elif name not in open_types:
                        member = torch.where(here, _NONE, member)
            done = torch.stack([revealed[index] for index in rank], dim=1).all(dim=1)
            member = torch.where(done[:, None] & (member == _UNKNOWN), _NONE, member)
            row, column = member[:, :, None], member[:, None, :]
            same = (row == column) & (row >= 0)
            known = (row != _UNKNOWN) & (column != _UNKNOWN)
            excluded = (row == _NONE) | (column == _NONE) | in_complete[:, :, None] | in_complete[:, None, :]
            tokens = torch.where(same, EDGE, torch.where(known | excluded, NO_EDGE, MASKED))
            own = torch.where(member == _UNKNOWN, MASKED, (member == _NONE).to(torch.long))
            tokens = torch.where(diagonal, own[:, :, None], tokens)
            pairs = mask[:, :, None] & mask[:, None, :]
            matrices.append(torch.where(pairs, tokens, MASKED))
        return torch.stack(matrices, dim=1)

    def _answer(self, found: dict[str, Found]) -> tuple[Tensor, Tensor]:
        """Slots (B, S) in canonical order, and the probability of the particle at each place (B, P)."""
        slots = list(self._place(found)[0])
        for siblings in self.topology.sibling_groups:
            members = torch.stack([torch.stack([slots[s] for s in group], dim=1) for group in siblings], dim=1)
            smallest = members[:, :, 0]  # nodes of siblings are disjoint: the first slot tells them apart
            rank = (smallest[:, :, None] > smallest[:, None]).to(torch.long).sum(dim=2)  # (B, members)
            for k, group in enumerate(siblings):
                pick = (rank == k).to(torch.long)  # (B, members)
                for i, slot in enumerate(group):
                    slots[slot] = (pick * members[:, :, i]).sum(dim=1)
        probabilities = []
        for particle in self.topology.particles:
            same = found[particle.type]
            # a particle is known by its nodes, in whatever order they were found
            here = torch.stack([slots[s] for s in particle.slots], dim=1)  # (B, L)
            match = (here[:, None, :, None] == same.nodes[:, :, None, :]).any(dim=3).all(dim=2)  # (B, K)
            probabilities.append((match.to(same.probability.dtype) * same.probability).sum(dim=1))
        return torch.stack(slots, dim=1), torch.stack(probabilities, dim=1)
