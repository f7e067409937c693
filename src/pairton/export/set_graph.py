"""`pairton.decoding.set_sums` as a graph that can be exported.

The tables are made for the largest number of nodes. Sets are sorted as binary numbers, so sets of the first nodes
come first, and the graph uses the first rows and columns of each table. How many is a polynomial in the number of
nodes. For this, the objects whose number varies, such as jets, must be numbered last.

Shapes: B events, C candidates of a type, P patterns, S slots, n sets of a factor, K ways to make a set. Scores are
(C, B) per type, pattern terms (P, B). A candidate with a padded object has the score IMPOSSIBLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import perm
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pairton.decoding.set_tables import Leaf, SetTables
from pairton.errors import ModelError
from pairton.network.torch_set_sums import IMPOSSIBLE, inside, rows_of, totals_of

__all__ = ["SetGraph", "Tables", "log_sum"]

Scores = Mapping[str, Tensor]
Tables = dict[str, Tensor]


class _Axis(NamedTuple):
    """An axis with one entry per choice of `chosen` objects, when `taken` others are already used."""

    chosen: int
    taken: int = 0


class _Slice(nn.Module):
    """The part of an index table for a number of nodes. Axes of fixed length are None."""

    table: Tensor

    def __init__(self, table: npt.NDArray[Any], axes: tuple[_Axis | None, ...], most: int) -> None:
        super().__init__()
        self.axes, self.lengths = axes, table.shape
        self.full = [perm(most - axis.taken, axis.chosen) if axis else 1 for axis in axes]
        self.register_buffer("table", torch.as_tensor(np.ascontiguousarray(table)).long(), persistent=False)

    def forward(self, nodes: Any) -> Tensor:
        table = self.table
        for k, axis in enumerate(self.axes):
            if axis is not None:
                length: Any = self.lengths[k]
                for j in range(axis.chosen):
                    length = length * (nodes - axis.taken - j)
                length = length // self.full[k]
                table = table[:length] if k == 0 else table[:, :length]
        return table


class SetGraph(nn.Module):
    """Sums, marginals and best hypotheses for up to `most` objects of the variable kind, numbered from `first`."""

    def __init__(self, tables: SetTables, most: int, first: int = 0) -> None:
        super().__init__()
        self.tables, self.most, self.slices = tables, most, nn.ModuleDict()
        size = {name: int((known.objects[0] >= first).sum()) for name, known in tables.candidates.items()}
        for name, known in tables.candidates.items():
            self._keep(f"objects {name}", known.objects, (_Axis(size[name]), None), first + most)
            for k, (child, rows) in enumerate(known.children):
                self._keep(f"child {name} {k}", rows, (_Axis(size[name]),), len(tables.candidates[child].objects))
            for parent, table in tables.parents[name].items():
                axes = _Axis(size[parent] - size[name], size[name]), _Axis(size[name])
                self._keep(f"parents {name} {parent}", table, axes, len(tables.candidates[parent].objects))
        count = [(int(entry.masks[0]) >> first).bit_count() for entry in tables.entries]
        sets = [len(entry.masks) for entry in tables.entries]
        for k, entry in enumerate(tables.entries):
            if isinstance(entry, Leaf):
                self._keep(f"way {k} 0", entry.ways[0], (None, _Axis(count[k])), len(entry.set_of))
                self._keep(f"set {k}", entry.set_of, (_Axis(count[k]),), sets[k])
                continue
            one, two = entry.left, entry.right
            for side, (own, other) in enumerate(((one, two), (two, one))):
                self._keep(f"way {k} {side}", entry.ways[side], (None, _Axis(count[k])), sets[own])
                if side and entry.power:
                    continue
                partners = entry.partners[side]
                axes = _Axis(count[other], count[own]), _Axis(count[own])
                self._keep(f"partner {k} {side}", partners.sets, axes, sets[other])
                self._keep(f"union {k} {side}", partners.unions, axes, sets[k])

    def _keep(self, name: str, table: npt.NDArray[Any], axes: tuple[_Axis | None, ...], bound: int) -> None:
        if table.size and table.max() >= bound:
            raise ModelError(
                f"{self.tables.topology.name} has slots whose kinds share some objects but not all, and such sums "
                "cannot be exported: give the slots kinds without common objects"
            )
        self.slices[name] = _Slice(table, axes, self.most)

    def at(self, nodes: Any) -> Tables:
        """The tables for a number of nodes, which must be at least the number of slots, for the methods below."""
        return {name: table(nodes) for name, table in self.slices.items()}

    def marginals(self, scores: Scores, terms: Tensor, at: Tables) -> tuple[Tensor, dict[str, Tensor]]:
        """Log sums (P, B), and type -> (C, B): the probability that a candidate is present."""
        totals = totals_of(self.tables, scores, at, _whole)
        values = inside(self.tables, totals, at, log_sum, _whole)
        last = torch.stack(
            [log_sum(values[p.entry]) if p.entry >= 0 else 0 * terms[0] for p in self.tables.patterns]
        )
        sums = last + terms
        weights = torch.where(sums > 0.5 * IMPOSSIBLE, terms - log_sum(sums), IMPOSSIBLE)  # per hypothesis, (P, B)
        outer: list[list[Tensor]] = [[] for _ in self.tables.entries]
        for k, pattern in enumerate(self.tables.patterns):
            if pattern.entry >= 0:
                outer[pattern.entry].append(weights[k] + 0 * values[pattern.entry])
        highest = {}
        for k, entry in reversed(list(enumerate(self.tables.entries))):
            if not outer[k]:  # a lower power that is not a pattern
                continue
            outside = outer[k][0] if len(outer[k]) == 1 else log_sum(torch.stack(outer[k]))
            if isinstance(entry, Leaf):
                highest[entry.type] = totals[entry.type] + outside.index_select(0, at[f"set {k}"])
                continue
            pairs = [(entry.left, entry.right), (entry.right, entry.left)]
            for side, (own, other) in enumerate(pairs[: 1 if entry.power else 2]):
                partner, union = (at[f"{name} {k} {side}"] for name in ("partner", "union"))
                outer[own].append(log_sum(rows_of(values[other], partner) + rows_of(outside, union)))
        present: dict[str, Tensor] = {}
        for name in reversed(self.tables.topology.types):
            parts = [highest[name].exp()] if name in highest else []
            parents = self.tables.parents[name]
            parts += [rows_of(present[other], at[f"parents {name} {other}"]).sum(dim=0) for other in parents]
            present[name] = torch.stack(parts).sum(dim=0)
        return sums, present

    def best(self, scores: Scores, terms: Tensor, at: Tables) -> tuple[Tensor, Tensor]:
        """The best hypothesis of each pattern: score (P, B), objects (P, B, S), -1 for absent particles."""
        totals = totals_of(self.tables, scores, at, _whole)
        values = inside(self.tables, totals, at, lambda rows: rows.amax(dim=0), _whole)
        found = [self._best_of(k, totals, values, terms, at) for k in range(len(self.tables.patterns))]
        return torch.stack([value for value, _ in found]) + terms, torch.stack([slots for _, slots in found])

    def _best_of(
        self, number: int, totals: Scores, values: list[Tensor], terms: Tensor, at: Tables
    ) -> tuple[Tensor, Tensor]:
        pattern = self.tables.patterns[number]
        absent = torch.full_like(terms[0], -1).long()  # (B,)
        slots = [absent] * len(self.tables.topology.slots)
        if pattern.entry < 0:
            return 0 * terms[0], torch.stack(slots, dim=1)
        value, chosen = values[pattern.entry].max(dim=0)
        places = iter(pattern.placed)
        pending = [(pattern.entry, chosen)]
        while pending:
            k, chosen = pending.pop(0)
            entry = self.tables.entries[k]
            factors = (
                [totals[entry.type]] if isinstance(entry, Leaf) else [values[entry.left], values[entry.right]]
            )
            ways = [at[f"way {k} {side}"].index_select(1, chosen) for side in range(len(factors))]
            worth = torch.stack([f.gather(0, way) for f, way in zip(factors, ways, strict=True)]).sum(dim=0)
            way = worth.argmax(dim=0, keepdim=True)  # (1, B)
            taken = [table.gather(0, way)[0] for table in ways]
            if not isinstance(entry, Leaf):
                pending = [(entry.left, taken[0]), (entry.right, taken[1]), *pending]
                continue
            name, first = next(places)
            objects = at[f"objects {name}"].index_select(0, taken[0])  # (B, slots)
            for j in range(objects.shape[1]):
                slots[first + j] = objects[:, j]
        return value, self._canonical(torch.stack(slots, dim=1))

    def _canonical(self, slots: Tensor) -> Tensor:
        """Slots (B, S) with interchangeable products in the order of `pairton.topology.assignments.canonical`."""
        columns = list(slots.unbind(dim=1))
        for group in self.tables.topology.sibling_groups:
            members = torch.stack([torch.stack([columns[s] for s in part], dim=1) for part in group], dim=1)
            key = (members < 0).sum(dim=2)  # (B, members)
            for k in range(len(group[0])):
                key = key * 33 + members[:, :, k] + 1
            order = key.argsort(dim=1)
            for place, part in enumerate(group):
                row = order[:, place, None, None].expand(-1, 1, len(part))
                for slot, column in zip(part, members.gather(1, row)[:, 0].unbind(dim=1), strict=True):
                    columns[slot] = column
        return torch.stack(columns, dim=1)


def _whole(values: Tensor) -> Tensor:
    """The values as they are: the tables of a graph have no padding."""
    return values


def log_sum(values: Tensor) -> Tensor:
    """Log of the sum of exponentials along the first axis; finite for finite values."""
    top = values.amax(dim=0)
    return top + (values - top).exp().sum(dim=0).log()
