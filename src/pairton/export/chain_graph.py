"""The reverse process unrolled as a graph: what `pairton.decoding` does in numpy, without loops over data.

Nothing is indexed by what was found: a particle found is compared with all jets or places at once, so that the
same nodes serve every event, also where events diverge.

Shapes: B events, N jets, T types, S slots, P particles, K particles of a type, L slots of one, X candidates of a
step, J choices of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pairton.decoding.candidates import Kind, StepTable, own_choices, step_table
from pairton.decoding.graph import EDGE, MASKED, NO_EDGE, known_ancestry
from pairton.errors import ModelError
from pairton.export.exact_graph import IMPOSSIBLE
from pairton.export.tables import PrefixTable, by_last_jet, fitted
from pairton.topology import Stage, Topology

__all__ = ["ChainGraph"]

_NONE, _UNKNOWN = -1, -2  # as in pairton.decoding.graph


@dataclass
class Found:
    """Particles of one type, in the order in which they were found."""

    jets: Tensor  # (B, K, L), -1 where not found
    count: Tensor  # (B,)
    taken: Tensor  # (B, K) bool: has a parent
    probability: Tensor  # (B, K)


class StageTable(nn.Module):
    """The choices of a stage for every jet count: candidates of each type, and which of them go together."""

    def __init__(self, topology: Topology, stage: Stage, max_jets: int) -> None:
        super().__init__()
        step = step_table(topology, stage, max_jets)
        if step is None:
            raise ModelError(
                f"the stage {stage} has too many joint choices at {max_jets} jets for one graph: lower --max-jets"
            )
        self.kinds = step.kinds
        self.own = nn.ModuleList()  # of each type: (C, own jets)
        order = []
        for kind in step.kinds:
            table = own_choices(kind.own_names, max_jets)
            order.append(by_last_jet(table))
            self.own.append(PrefixTable(table[order[-1]], len(kind.own), max_jets))
        self.members = [int(k) for k in step.kind[step.choices[0]]]  # type of each particle that is revealed
        self.joint: PrefixTable | None = None
        if len(self.members) > 1:
            self.joint = PrefixTable(*self._joint(step, [np.argsort(rows) for rows in order]), max_jets)

    def _joint(self, step: StepTable, new: list[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], int]:
        """(J, 2 M): rows of children and of own jets, for each particle; and how many jets a choice uses."""
        columns, jets = [], []
        for k, picked in zip(self.members, step.choices.T, strict=True):
            columns += [step.children[picked], new[k][step.own[picked]]]
            jets.append(own_choices(step.kinds[k].own_names, step.n_free)[step.own[picked]])
        used = np.concatenate(jets, axis=1)
        return np.stack(columns, axis=1)[by_last_jet(used)], used.shape[1]


class ChainGraph(nn.Module):
    """A network and the stages of a topology; with `refresh` it is asked again before each of them."""

    def __init__(
        self, network: nn.Module, topology: Topology, max_jets: int, temperatures: list[float], refresh: bool
    ) -> None:
        super().__init__()
        self.network, self.topology, self.temperatures, self.refresh = network, topology, temperatures, refresh
        self.max_jets = max_jets
        self.stages = nn.ModuleList(StageTable(topology, stage, max_jets) for stage in topology.stages)

    def forward(self, jets: Tensor, jet_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Indices (B, S), probability of the chain (B,), of its particles (B, P)."""
        jets, jet_mask = fitted(jets, jet_mask, len(self.topology.slots), self.max_jets)
        number = torch.arange(jets.shape[1], device=jets.device)
        possible = jet_mask.to(torch.long).sum(dim=1) >= len(self.topology.slots)
        free = (
            jet_mask | ~possible[:, None]
        )  # an event with too few jets is answered with anything, then discarded
        found = self._nothing(jets)
        chain = torch.ones_like(jets[:, 0, 0])
        edges, triplets = self.network(jets, jet_mask, None)
        for k, (stage, temperature) in enumerate(zip(self.stages, self.temperatures, strict=True)):
            if k and self.refresh:
                edges, triplets = self.network(jets, jet_mask, self._tokens(found, number, jet_mask))
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

    def _nothing(self, jets: Tensor) -> dict[str, Found]:
        found = {}
        zero = torch.zeros_like(jets[:, 0, 0])
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
        """Reveal the best choice; its probability (B,), and the jets still free."""
        n_jets = edges.shape[-1]
        own = [table.rows(n_jets) for table in stage.own if isinstance(table, PrefixTable)]
        gain = [
            self._gains(kind, table, found, free, edges, triplets)
            for kind, table in zip(stage.kinds, own, strict=True)
        ]  # (B, Q, C) of each type
        choices = None if stage.joint is None else stage.joint.rows(n_jets)  # (J, 2 M)
        if choices is None:
            total = torch.cat([part.reshape(part.shape[0], -1) for part in gain], dim=1)
        else:
            total = self._joint_gain(stage.members, gain, choices)
        total = total / temperature
        top, choice = total.max(dim=1)
        probability = 1 / torch.exp(total - top[:, None]).sum(dim=1)
        if choices is None:
            offset = torch.zeros_like(choice)
            for kind, table, part in zip(stage.kinds, own, gain, strict=True):
                size = part.shape[1] * part.shape[2]
                mine = (choice >= offset) & (choice < offset + size)
                pick = torch.where(mine, choice - offset, torch.zeros_like(choice))
                free = self._reveal(kind, table, pick, mine, found, found, free, probability, number)
                offset = offset + size
            return probability, free
        row = choices.index_select(0, choice)  # (B, 2 M)
        before, everyone = dict(found), choice >= 0
        for m, k in enumerate(stage.members):
            pick = row[:, 2 * m] * own[k].shape[0] + row[:, 2 * m + 1]
            free = self._reveal(stage.kinds[k], own[k], pick, everyone, before, found, free, probability, number)
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
        kind: Kind,
        own: Tensor,
        found: dict[str, Found],
        free: Tensor,
        edges: Tensor,
        triplets: Tensor | None,
    ) -> Tensor:
        """(B, Q, C): gain of every choice of children and own jets; IMPOSSIBLE or less where it cannot be made."""
        batch, n_jets = edges.shape[0], edges.shape[-1]
        logits = edges[:, kind.layer]  # (B, N, N)
        flat = logits.reshape(batch, -1)
        absent = (1 - free.to(edges.dtype)) * IMPOSSIBLE
        value = torch.zeros_like(flat[:, :1])
        for i in range(len(kind.own)):
            for j in range(i):
                value = value + flat.index_select(1, own[:, j] * n_jets + own[:, i])
            value = value - flat.index_select(1, own[:, i] * (n_jets + 1)) + absent.index_select(1, own[:, i])
        more = (found[kind.name].count >= kind.count).to(edges.dtype) * IMPOSSIBLE
        value = value + more[:, None]
        result = []
        for choice in kind.child_choices:
            total = value
            members: list[Tensor] = []  # (B, N) of 0 and 1, for each child
            slots: dict[int, Tensor] = {}
            for (child, positions), which in zip(kind.children, choice, strict=True):
                same = found[child]
                there = (same.count > which) & ~same.taken[:, which]
                total = total + ((1 - there.to(edges.dtype)) * IMPOSSIBLE)[:, None]
                number = torch.arange(n_jets, device=edges.device)
                each = (same.jets[:, which, :, None] == number).to(edges.dtype)  # (B, L, N)
                inside = each.sum(dim=1)
                around = (logits * inside[:, :, None]).sum(dim=1)  # (B, N)
                for other in members:
                    total = total + (around * other).sum(dim=1, keepdim=True)
                for i in range(len(kind.own)):
                    total = total + around.index_select(1, own[:, i])
                members.append(inside)
                slots |= {p: each[:, k] for k, p in enumerate(positions)}
            if kind.potential >= 0 and triplets is not None:
                total = total + self._potential(kind, own, slots, triplets[:, kind.potential])
            result.append(total)
        return torch.stack(result, dim=1)

    def _potential(self, kind: Kind, own: Tensor, slots: dict[int, Tensor], triplets: Tensor) -> Tensor:
        """(B, C): potentials (B, N, N, N) at the children's jets, given as 0 and 1, and at the own ones."""
        n_jets = triplets.shape[-1]
        row = torch.zeros_like(own.sum(dim=1))  # (C,)
        axis = 1
        for position in kind.potential_order:
            if position in slots:  # a sum in which one entry counts
                shape = [1] * triplets.dim()
                shape[0], shape[axis] = -1, n_jets
                triplets = (triplets * slots[position].reshape(shape)).sum(dim=axis)
            else:
                row = row * n_jets + own[:, kind.own.index(position)]
                axis += 1
        return triplets.reshape(triplets.shape[0], -1).index_select(1, row)

    def _reveal(
        self,
        kind: Kind,
        own: Tensor,
        pick: Tensor,
        mine: Tensor,
        pool: dict[str, Found],
        found: dict[str, Found],
        free: Tensor,
        probability: Tensor,
        number: Tensor,
    ) -> Tensor:
        """Add candidate `pick` (B,), with children from `pool`, where `mine` (B,) says so; the jets still free."""
        child_row = pick // own.shape[0]
        jets = own.index_select(0, pick % own.shape[0])  # (B, own)
        columns: dict[int, Tensor] = {p: jets[:, i] for i, p in enumerate(kind.own)}
        weight = probability
        for c, (child, positions) in enumerate(kind.children):
            same = pool[child]
            table = torch.tensor([row[c] for row in kind.child_choices], device=own.device)
            which = table.index_select(0, child_row)  # (B,)
            hot = which[:, None] == torch.arange(same.taken.shape[1], device=own.device)  # (B, K)
            weight = weight * (hot.to(weight.dtype) * same.probability).sum(dim=1)
            inside = (hot[:, :, None].to(torch.long) * same.jets).sum(dim=1)  # (B, L)
            columns |= {p: inside[:, k] for k, p in enumerate(positions)}
            now = found[child]
            found[child] = Found(now.jets, now.count, now.taken | (hot & mine[:, None]), now.probability)
        particle = torch.stack([columns[p] for p in range(kind.width)], dim=1)  # (B, L)
        same = found[kind.name]
        here = torch.arange(same.taken.shape[1], device=own.device) == same.count[:, None]
        here = here & mine[:, None]  # (B, K)
        found[kind.name] = Found(
            torch.where(here[:, :, None], particle[:, None], same.jets),
            same.count + mine.to(torch.long),
            same.taken,
            torch.where(here, weight[:, None], same.probability),
        )
        used = (jets[:, :, None] == number).to(torch.long).sum(dim=1) > 0  # (B, N)
        return free & ~(used & mine[:, None])

    # -- states --------------------------------------------------------------------------------------------

    def _place(self, found: dict[str, Found]) -> tuple[list[Tensor], list[Tensor]]:
        """Jet of each slot (B,), -1 for none, and whether each particle is revealed (B,), as State.place does."""
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
            jets = (match[..., None].to(torch.long) * (same.jets + 1)[:, None]).sum(dim=2) - 1  # (B, K, L)
            shown = match.any(dim=2)
            for k, place in enumerate(places):
                for i, slot in enumerate(place.slots):
                    slots[slot] = torch.where(shown[:, k], jets[:, k, i], slots[slot])
                for other in topology.particles:
                    if place.index in topology.ancestry(other.index):
                        revealed[other.index] = revealed[other.index] | shown[:, k]
        return slots, revealed

    def _tokens(self, found: dict[str, Found], number: Tensor, jet_mask: Tensor) -> Tensor:
        """(B, T, N, N): `pairton.decoding.graph.visible_tokens` of the state."""
        topology = self.topology
        slots, revealed = self._place(found)
        at = [(slot[:, None] == number) for slot in slots]  # (B, N) each
        matrices = []
        diagonal = number[:, None] == number
        for name in topology.types:
            rank = {p.index: k for k, p in enumerate(topology.of_type(name))}
            member = torch.full_like(jet_mask, _UNKNOWN, dtype=torch.long)
            in_complete = torch.zeros_like(jet_mask)
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
            pairs = jet_mask[:, :, None] & jet_mask[:, None, :]
            matrices.append(torch.where(pairs, tokens, MASKED))
        return torch.stack(matrices, dim=1)

    def _answer(self, found: dict[str, Found]) -> tuple[Tensor, Tensor]:
        """Slots (B, S) in canonical order, and the probability of the particle at each place (B, P)."""
        slots = list(self._place(found)[0])
        for siblings in self.topology.sibling_groups:
            members = torch.stack([torch.stack([slots[s] for s in group], dim=1) for group in siblings], dim=1)
            smallest = members[:, :, 0]  # jets of siblings are disjoint: the first slot tells them apart
            rank = (smallest[:, :, None] > smallest[:, None]).to(torch.long).sum(dim=2)  # (B, members)
            for k, group in enumerate(siblings):
                pick = (rank == k).to(torch.long)  # (B, members)
                for i, slot in enumerate(group):
                    slots[slot] = (pick * members[:, :, i]).sum(dim=1)
        probabilities = []
        for particle in self.topology.particles:
            same = found[particle.type]
            # a particle is known by its jets, in whatever order they were found
            here = torch.stack([slots[s] for s in particle.slots], dim=1)  # (B, L)
            match = (here[:, None, :, None] == same.jets[:, :, None, :]).any(dim=3).all(dim=2)  # (B, K)
            probabilities.append((match.to(same.probability.dtype) * same.probability).sum(dim=1))
        return torch.stack(slots, dim=1), torch.stack(probabilities, dim=1)
