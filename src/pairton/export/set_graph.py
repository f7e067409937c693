"""`pairton.decoding.set_sums` as a graph that can be exported.

The tables are made for the largest number of objects. Sets are sorted as binary numbers, so those of the first
objects come first, and the graph uses the first rows and columns of each table. For this, the objects whose number
varies, such as jets, must be numbered last.

Shapes: B events, C candidates of a type, P patterns, S slots, n sets of a factor, K ways to make a set. Scores are
(C, B) per type, pattern terms (P, B). A candidate with a padded object has the score IMPOSSIBLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pairton.decoding.set_tables import Leaf, SetTables, masks_of
from pairton.errors import ModelError
from pairton.network.torch_set_sums import IMPOSSIBLE, inside, rows_of, totals_of

__all__ = ["SetGraph", "Tables", "is_possible", "log_sum"]

Scores = Mapping[str, Tensor]
Tables = dict[str, Tensor]
Lengths = npt.NDArray[np.intp]  # (most + 1,): how many candidates or sets there are of 0, 1, ... objects


class SetGraph(nn.Module):
    """Sums, marginals and best hypotheses for up to `most` objects of the variable kind, numbered from `first`."""

    def __init__(self, tables: SetTables, most: int, first: int = 0) -> None:
        super().__init__()
        tables.topology.refuse_merged("a graph of the sums")
        self.tables = tables
        self.lengths: dict[str, list[Tensor | None]] = {}  # table -> used length of each axis; None: all of it
        bounds = np.uint64(1) << np.arange(first, first + most + 1, dtype=np.uint64)
        known = tables.candidates
        count = {name: np.searchsorted(masks_of(each.objects), bounds) for name, each in known.items()}
        sets = [np.searchsorted(entry.masks, bounds) for entry in tables.entries]
        for name, each in known.items():
            self._keep(f"objects {name}", each.objects, first + np.arange(most + 1), count[name])
            for k, (child, rows) in enumerate(each.children):
                self._keep(f"child {name} {k}", rows, count[child], count[name])
            for parent, table in tables.parents[name].items():
                self._keep(f"parents {name} {parent}", table, count[parent], count[name], rows_vary=True)
        for k, entry in enumerate(tables.entries):
            if isinstance(entry, Leaf):
                self._keep(f"way {k} 0", entry.ways[0], count[entry.form], None, sets[k])
                self._keep(f"set {k}", entry.set_of, sets[k], count[entry.form])
                continue
            for side, (own, other) in enumerate(((entry.left, entry.right), (entry.right, entry.left))):
                self._keep(f"way {k} {side}", entry.ways[side], sets[own], None, sets[k])
                if not (side and entry.power):
                    partners = entry.partners[side]
                    self._keep(f"partner {k} {side}", partners.sets, sets[other], sets[own], rows_vary=True)
                    self._keep(f"union {k} {side}", partners.unions, sets[k], sets[own], rows_vary=True)

    def _keep(
        self, name: str, table: npt.NDArray[Any], bound: Lengths, *lengths: Lengths | None, rows_vary: bool = False
    ) -> None:
        """Keep a table of numbers below `bound`; with `rows_vary`, only its numbers that exist are used."""
        if table.size and table.max() >= bound[-1]:
            raise ModelError(
                f"{self.tables.topology.name} has slots whose kinds share some objects but not all, and such sums "
                "cannot be exported: give the slots kinds without common objects"
            )
        if rows_vary:
            lengths = (table[:, :1] < bound).sum(axis=0), *lengths
        self.lengths[name] = [None if length is None else torch.as_tensor(length) for length in lengths]
        self.register_buffer(name, torch.as_tensor(np.ascontiguousarray(table)).long(), persistent=False)

    def at(self, objects: Any) -> Tables:
        """The tables for a number of objects, at least that of the slots, for the methods below."""
        found = {}
        for name, lengths in self.lengths.items():
            table = self.get_buffer(name)
            for axis, length in enumerate(lengths):
                if length is not None:
                    table = table[: length[objects]] if axis == 0 else table[:, : length[objects]]
            found[name] = table
        return found

    def marginals(self, scores: Scores, terms: Tensor, at: Tables) -> tuple[Tensor, dict[str, Tensor]]:
        """Log sums (P, B), and type -> (C, B): the probability that a candidate is present."""
        tables, totals = self.tables, totals_of(self.tables, scores, at, _whole)
        values = inside(tables, totals, at, log_sum, _whole)
        last = [log_sum(values[p.entry]) if p.entry >= 0 else 0 * terms[0] for p in tables.patterns]
        sums = torch.stack(last) + terms
        weights = torch.where(is_possible(sums), terms - log_sum(sums), IMPOSSIBLE)  # per hypothesis, (P, B)
        outer: list[list[Tensor]] = [[] for _ in tables.entries]
        for pattern, weight in zip(tables.patterns, weights.unbind(dim=0), strict=True):
            if pattern.entry >= 0:
                outer[pattern.entry].append(weight + 0 * values[pattern.entry])
        highest = {}
        for k, entry in reversed(list(enumerate(tables.entries))):
            if not outer[k]:  # a lower power that is not a pattern
                continue
            outside = outer[k][0] if len(outer[k]) == 1 else log_sum(torch.stack(outer[k]))
            if isinstance(entry, Leaf):
                highest[entry.form] = totals[entry.form] + outside.index_select(0, at[f"set {k}"])
                continue
            pairs = [(entry.left, entry.right), (entry.right, entry.left)]
            for side, (own, other) in enumerate(pairs[: 1 if entry.power else 2]):
                partner, union = (at[f"{name} {k} {side}"] for name in ("partner", "union"))
                outer[own].append(log_sum(rows_of(values[other], partner) + rows_of(outside, union)))
        present: dict[str, Tensor] = {}
        for name in reversed(tables.topology.types):
            parts = [highest[name].exp()] if name in highest else []
            tables_of = {parent: at[f"parents {name} {parent}"] for parent in tables.parents[name]}
            parts += [rows_of(present[parent], table).sum(dim=0) for parent, table in tables_of.items()]
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
        slots = [torch.full_like(terms[0], -1).long()] * len(self.tables.topology.slots)  # (B,) each
        if pattern.entry < 0:
            return 0 * terms[0], torch.stack(slots, dim=1)
        value, chosen = values[pattern.entry].max(dim=0)
        places, pending = iter(pattern.placed), [(pattern.entry, chosen)]
        while pending:
            k, chosen = pending.pop(0)
            entry = self.tables.entries[k]
            factors = (
                [totals[entry.form]] if isinstance(entry, Leaf) else [values[entry.left], values[entry.right]]
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
            slots[first : first + objects.shape[1]] = objects.unbind(dim=1)
        return value, self._canonical(torch.stack(slots, dim=1))

    def _canonical(self, slots: Tensor) -> Tensor:
        """Slots (B, S) with interchangeable products in the order of `pairton.topology.assignments.canonical`."""
        columns = list(slots.unbind(dim=1))
        for group in self.tables.topology.sibling_groups:
            members = torch.stack([torch.stack([columns[s] for s in part], dim=1) for part in group], dim=1)
            key = (members < 0).sum(dim=2)  # (B, members)
            for k in range(len(group[0])):
                key = key * 33 + members[:, :, k] + 1
            order = key.argsort(dim=1)[:, :, None].expand(-1, -1, len(group[0]))
            for part, row in zip(group, members.gather(1, order).unbind(dim=1), strict=True):
                for slot, column in zip(part, row.unbind(dim=1), strict=True):
                    columns[slot] = column
        return torch.stack(columns, dim=1)


def is_possible(score: Tensor) -> Tensor:
    """Whether some hypothesis has this score, or this sum is of some."""
    return score > 0.5 * IMPOSSIBLE


def _whole(values: Tensor) -> Tensor:
    """The values as they are: the tables of a graph have no padding."""
    return values


def log_sum(values: Tensor) -> Tensor:
    """Log of the sum of exponentials along the first axis; finite for finite values."""
    top = values.amax(dim=0)
    return top + (values - top).exp().sum(dim=0).log()
