"""Exact sums over all hypotheses of an event: normaliser, best hypotheses and probabilities of candidates.

    S(h) = sum of the scores of the present particles + term of the pattern of h
    P(h) = exp S(h) / sum over all hypotheses of exp S

This is the inside-outside algorithm over a semiring, on the tables of `pairton.decoding.set_tables`. The inside
pass sums with multiplication and addition, or finds the best hypothesis with addition and maximum. The outside
pass gives the probability of every candidate.

Sums are made in double precision, relative to the best candidate of each type. Events in which that underflows are
repeated with logarithms. Shapes: B events, C candidates of a form, P patterns, S slots, N objects. Scores are
(C, B) per form: the own score of each candidate, without those of the particles below it; -inf excludes it. Terms
are (P, B). Objects that overlap (B, N, N), a large jet and a jet inside it, are not in one hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.decoding.set_tables import Hypotheses, Leaf, SetTables, Table, masks_of
from pairton.topology.assignments import canonical

__all__ = [
    "Best",
    "best",
    "blocked_sets",
    "log_normaliser",
    "log_scores",
    "log_sums",
    "marginals",
    "probabilities",
]

MEMORY = 32_000_000  # bytes of sums held at a time; marginals and lists of best hypotheses need twice as much
CHUNK = 32_768  # terms summed at a time, so that they fit in the cache of a core
SMALLEST = 1e-250  # a smaller sum may have lost terms to underflow

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[Any]
Double = npt.NDArray[np.float64]
Scores = Mapping[str, Floats]


# -- inside and outside pass --------------------------------------------------------------------------------


class _Semiring(NamedTuple):
    zero: float
    times: np.ufunc
    plus: np.ufunc


_LINEAR = _Semiring(0.0, np.multiply, np.add)
_LOG = _Semiring(-np.inf, np.add, np.logaddexp)
_MAX = _Semiring(-np.inf, np.add, np.maximum)


def _fold(semiring: _Semiring, *factors: tuple[Table, Double]) -> Double:
    """(n + 1, B): for each set, the sum over its K ways of the products of the values that tables (K, n) index.

    The last row is zero. Sets and ways are taken in blocks, so that temporaries stay in the cache.
    """
    (ways, n), events = factors[0][0].shape, factors[0][1].shape[1]
    result = np.full((n + 1, events), semiring.zero)
    rows = max(1, CHUNK // max(1, events))
    for start in range(0, n, rows):
        block = result[start : min(start + rows, n)]
        step = max(1, rows // len(block))
        for way in range(0, ways, step):
            term: Double | None = None
            for table, values in factors:
                part = values.take(table[way : way + step, start : start + rows], axis=0)
                term = part if term is None else semiring.times(term, part, out=term)
            assert term is not None
            semiring.plus(block, term[0] if len(term) == 1 else semiring.plus.reduce(term, axis=0), out=block)
    return result


def blocked_sets(tables: SetTables, overlaps: Bools | None) -> dict[int, Bools]:
    """Entry of each pattern -> (n, B): whether a set has two objects that overlap; empty if none ever do.

    The sets of a pattern's entry hold all its objects, so that other entries need not be looked at.
    """
    if overlaps is None or not overlaps.any():
        return {}
    pairs = np.argwhere(overlaps.any(axis=0))  # (Q, 2)
    there = overlaps[:, pairs[:, 0], pairs[:, 1]].T.astype(np.float32)  # (Q, B)
    both = masks_of(pairs)
    return {
        k: np.asarray(((tables.entries[k].masks[:, None] & both) == both).astype(np.float32) @ there > 0)
        for k in {pattern.entry for pattern in tables.patterns if pattern.entry >= 0}
    }


def _inside(
    tables: SetTables,
    totals: Scores,
    semiring: _Semiring,
    blocked: Mapping[int, Bools],
    needed: Sequence[bool] | None = None,
) -> list[Double]:
    """The value of every set of objects, (n + 1, B), for each entry of the tables."""
    values: list[Double] = []
    for k, entry in enumerate(tables.entries):
        if needed is not None and not needed[k]:
            values.append(np.zeros((0, 0)))
            continue
        factors = [totals[entry.form]] if isinstance(entry, Leaf) else [values[entry.left], values[entry.right]]
        values.append(_fold(semiring, *zip(entry.ways, factors, strict=True)))
        if k in blocked:
            values[-1][:-1][blocked[k]] = semiring.zero
    return values


def _outside(
    tables: SetTables,
    inside: Sequence[Double],
    weights: Double,
    semiring: _Semiring,
    blocked: Mapping[int, Bools],
) -> dict[str, Double]:
    """Form -> (C, B): the cofactor of each candidate as a highest particle; `weights` (P, B) are of patterns."""
    outer: dict[int, Double] = {}  # cofactors of entries: (n + 1, B), or (1, B) if equal for all sets

    def add(entry: int, value: Double) -> None:
        outer[entry] = semiring.plus(outer[entry], value) if entry in outer else value

    for pattern, weight in zip(tables.patterns, weights, strict=True):
        if pattern.entry in blocked:
            few = np.where(blocked[pattern.entry], semiring.zero, weight)
            add(pattern.entry, np.concatenate([few, np.full_like(weight[None], semiring.zero)]))
        elif pattern.entry >= 0:
            add(pattern.entry, weight[None])
    result: dict[str, Double] = {}
    for k, entry in reversed(list(enumerate(tables.entries))):
        if (cofactor := outer.pop(k, None)) is None:
            continue  # a lower power that is no pattern of its own
        if isinstance(entry, Leaf):
            result[entry.form] = cofactor[entry.set_of] if len(cofactor) > 1 else cofactor
            continue
        sides = [(entry.left, entry.right), (entry.right, entry.left)]
        # the derivative of a power by its base already contains the lower powers
        for (side, other), partners in zip(sides[: 1 if entry.power else 2], entry.partners, strict=False):
            if len(cofactor) > 1:
                add(side, _fold(semiring, (partners.sets, inside[other]), (partners.unions, cofactor)))
            else:
                add(side, semiring.times(_fold(semiring, (partners.sets, inside[other])), cofactor))
    return result


# -- sums --------------------------------------------------------------------------------------------------


def log_sums(
    tables: SetTables, scores: Scores, terms: Floats | None = None, overlaps: Bools | None = None
) -> Double:
    """(P, B): log of the sum of exp S over the hypotheses of each pattern; -inf where there is none.

    >>> from pairton.decoding.patterns import allowed_nodes
    >>> from pairton.decoding.set_tables import set_tables
    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> tables = set_tables(ttbar, allowed_nodes(ttbar, 6))
    >>> zero = {name: np.zeros((len(known.objects), 1)) for name, known in tables.candidates.items()}
    >>> np.exp(log_sums(tables, zero))[:, 0].round().tolist()  # numbers of hypotheses
    [90.0, 180.0, 60.0, 45.0, 15.0, 1.0]
    """
    parts = [_summed(tables, scores, terms, overlaps, rows, False)[0] for rows in _blocks(tables, scores)]
    return np.concatenate(parts, axis=1)


def log_normaliser(sums: Floats) -> Double:
    """(B,): log of the sum over all hypotheses, from `log_sums` (P, B)."""
    return np.asarray(np.logaddexp.reduce(sums, axis=0, dtype=np.float64))


def marginals(
    tables: SetTables, scores: Scores, terms: Floats | None = None, overlaps: Bools | None = None
) -> tuple[Double, dict[str, Double]]:
    """`log_sums` (P, B), and the probability (C, B) that each candidate of a form is present in the event.

    >>> from pairton.decoding.patterns import allowed_nodes
    >>> from pairton.decoding.set_tables import set_tables
    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> tables = set_tables(hh4b, allowed_nodes(hh4b, 4))
    >>> sums, present = marginals(tables, {"H": np.zeros((6, 1))})  # 3 hypotheses H + H, 6 H, 1 nothing
    >>> present["H"][:, 0].round(6).tolist()
    [0.2, 0.2, 0.2, 0.2, 0.2, 0.2]
    """
    parts = [_summed(tables, scores, terms, overlaps, rows, True) for rows in _blocks(tables, scores)]
    present = {name: np.concatenate([found[name] for _, found in parts], axis=1) for name in tables.candidates}
    return np.concatenate([sums for sums, _ in parts], axis=1), present


def _summed(
    tables: SetTables,
    scores: Scores,
    terms: Floats | None,
    overlaps: Bools | None,
    rows: slice,
    with_present: bool,
) -> tuple[Double, dict[str, Double]]:
    """For a block of events: log sums (P, B), and on request the probability (C, B) of every candidate."""
    totals = _totals(tables, scores, rows)
    added = np.zeros((len(tables.patterns), 1)) if terms is None else terms[:, rows].astype(np.float64)
    blocked = blocked_sets(tables, None if overlaps is None else overlaps[rows])
    sums, found, lost = _solved(tables, totals, added, _LINEAR, blocked, with_present)
    if len(lost):
        few = {name: total[:, lost] for name, total in totals.items()}
        added = np.broadcast_to(added, sums.shape)[:, lost]
        blocked = {k: sets[:, lost] for k, sets in blocked.items()}
        sums[:, lost], again, _ = _solved(tables, few, added, _LOG, blocked, with_present)
        for name, values in again.items():
            found[name][:, lost] = values
    return sums, found


def _solved(
    tables: SetTables,
    totals: Scores,
    terms: Double,
    semiring: _Semiring,
    blocked: Mapping[int, Bools],
    with_present: bool,
) -> tuple[Double, dict[str, Double], npt.NDArray[np.intp]]:
    """`_summed` in linear or logarithmic numbers, and the events in which linear numbers underflow."""
    events = next(iter(totals.values())).shape[1]
    values, shift = totals, np.zeros((len(tables.patterns), events))
    if semiring is _LINEAR:
        tops = {name: total.max(axis=0) for name, total in totals.items()}
        tops = {name: np.where(np.isfinite(top), top, 0.0) for name, top in tops.items()}
        values = {name: np.exp(total - tops[name]) for name, total in totals.items()}
        for row, pattern in zip(shift, tables.patterns, strict=True):
            for name, _ in pattern.placed:
                row += tops[name]
    inside = _inside(tables, values, semiring, blocked)
    last = np.full_like(shift, 1.0 if semiring is _LINEAR else 0.0)  # (P, B); "nothing present" is one hypothesis
    for row, pattern in zip(last, tables.patterns, strict=True):
        if pattern.entry >= 0:
            row[:] = semiring.plus.reduce(inside[pattern.entry], axis=0)
    possible = [p.entry < 0 or len(tables.entries[p.entry].masks) > 0 for p in tables.patterns]
    lost = np.flatnonzero((last[possible] < SMALLEST).any(axis=0)) if semiring is _LINEAR else np.zeros(0, np.intp)
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = (np.log(last) if semiring is _LINEAR else last) + shift + terms
        if not with_present:
            return sums, {}, lost
        share = sums - log_normaliser(sums)
        weights = np.exp(share) / last if semiring is _LINEAR else share - last
    weights = np.where(np.isneginf(sums), semiring.zero, weights)
    outside = _outside(tables, inside, weights, semiring, blocked)
    return sums, _present(tables, values, outside, semiring), lost


def _present(
    tables: SetTables, values: Scores, outside: Mapping[str, Double], semiring: _Semiring
) -> dict[str, Double]:
    """Form -> (C, B): the probability that a candidate is present, as a highest particle or inside one."""
    padded = {}
    for name in reversed(list(tables.candidates)):  # parents first
        padded[name] = np.zeros(values[name].shape)
        if name in outside:
            highest = semiring.times(values[name][:-1], outside[name])
            padded[name][:-1] = highest if semiring is _LINEAR else np.exp(highest)
        for parent, table in tables.parents[name].items():
            padded[name] += _fold(_LINEAR, (table, padded[parent]))
    return {name: values[:-1] for name, values in padded.items()}


def _totals(tables: SetTables, scores: Scores, rows: slice) -> dict[str, Double]:
    """Form -> (C + 1, B), for a block of events: scores including the particles below; the last row is -inf."""
    totals: dict[str, Double] = {}
    for name, known in tables.candidates.items():
        own = scores[name][:, rows]
        total = np.full((len(own) + 1, own.shape[1]), -np.inf)
        total[:-1] = own
        for child, index in known.children:
            total[:-1] += totals[child].take(index, axis=0)
        totals[name] = total
    return totals


def _blocks(tables: SetTables, scores: Scores) -> Iterator[slice]:
    """Blocks of events whose sums fit in `MEMORY`."""
    events = next(iter(scores.values())).shape[1]
    rows = sum(len(entry.masks) for entry in tables.entries) + sum(len(values) for values in scores.values())
    size = int(np.clip(MEMORY // (8 * max(rows, 1)), 8, 512))
    for start in range(0, max(events, 1), size):
        yield slice(start, min(start + size, events))


# -- probabilities of given hypotheses ---------------------------------------------------------------------


def log_scores(tables: SetTables, scores: Scores, chosen: Hypotheses, terms: Floats | None = None) -> Double:
    """(B,): the score S of one hypothesis per event, from `set_tables.hypotheses`; -inf if impossible."""
    rows = np.arange(len(chosen.pattern))
    total = np.zeros(len(rows)) if terms is None else terms[chosen.pattern, rows].astype(np.float64)
    for name, found in chosen.candidates.items():
        if len(scores[name]):
            total += np.where(found >= 0, scores[name][found, rows], 0.0).sum(axis=0, dtype=np.float64)
    return np.where(chosen.pattern >= 0, total, -np.inf)


def probabilities(tables: SetTables, present: Scores, chosen: Hypotheses) -> Double:
    """(B, particles): the probability of each particle of one hypothesis per event; NaN where absent.

    present: from `marginals`. chosen: from `set_tables.hypotheses`.
    """
    rows = np.arange(len(chosen.pattern))
    result = np.full((len(rows), len(tables.topology.particles)), np.nan)
    for name, found in chosen.candidates.items():
        places = [particle.index for particle in tables.topology.of_type(tables.topology.forms[name].type)]
        if len(present[name]):
            result[:, places] = np.where(found >= 0, present[name][found, rows], result[:, places].T).T
    return result


# -- best hypotheses ---------------------------------------------------------------------------------------


class Best(NamedTuple):
    """The best hypotheses, in order: objects (B, k, S), score (B, k), pattern (B, k); a score of -inf: none."""

    assignment: npt.NDArray[np.int8]
    score: Double
    pattern: npt.NDArray[np.intp]


def best(
    tables: SetTables,
    scores: Scores,
    terms: Floats | None = None,
    k: int = 1,
    patterns: Sequence[int] | None = None,
    overlaps: Bools | None = None,
) -> Best:
    """The k best hypotheses of all patterns, or of some; the rest, if there are fewer, have a score of -inf.

    >>> from pairton.decoding.patterns import allowed_nodes
    >>> from pairton.decoding.set_tables import set_tables
    >>> from pairton.topology import load_topology
    >>> hh4b = load_topology("hh4b")
    >>> tables = set_tables(hh4b, allowed_nodes(hh4b, 4))  # candidates 01, 02, 12, 03, 13, 23
    >>> scores = {"H": np.array([[1.0], [0.5], [3.0], [0.0], [0.0], [-9.0]])}
    >>> ranked = best(tables, scores, k=3)
    >>> ranked.assignment[0].tolist(), ranked.score[0].tolist()  # H + H, and one H
    ([[0, 3, 1, 2], [1, 2, -1, -1], [0, 1, -1, -1]], [3.0, 3.0, 1.0])
    """
    numbers = range(len(tables.patterns)) if patterns is None else patterns
    needed, blocks = tables.needed(numbers), []
    for rows in _blocks(tables, scores):
        totals = _totals(tables, scores, rows)
        blocked = blocked_sets(tables, None if overlaps is None else overlaps[rows])
        inside = _inside(tables, totals, _MAX, blocked, needed)
        events, each = rows.stop - rows.start, []
        for number in numbers:
            values, slots = _best_of(tables, totals, inside, number, k, events)
            values += 0 if terms is None else terms[number, rows, None]
            each.append((slots, values, np.full(values.shape, number)))
        nothing = np.full((events, k, len(tables.topology.slots)), -1, dtype=np.int8)
        each.append((nothing, np.full((events, k), -np.inf), np.full((events, k), -1)))  # if there are few
        joined = [np.concatenate(parts, axis=1) for parts in zip(*each, strict=True)]
        order = _top(joined[1], k)
        blocks.append([part[np.arange(len(order))[:, None], order] for part in joined])
    return Best(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def _best_of(
    tables: SetTables, totals: Scores, inside: Sequence[Double], number: int, k: int, events: int
) -> tuple[Double, npt.NDArray[np.int8]]:
    """The best hypotheses of a pattern, at most k: scores (B, k), objects (B, k, S).

    It starts with the k best sets of objects and splits them entry by entry, keeping the k best splits each time.
    That is exact: the value of a split is that of its best hypothesis, and no two splits share a hypothesis.
    """
    pattern, topology = tables.patterns[number], tables.topology
    row = np.arange(events)[:, None, None]
    if pattern.entry < 0:
        return np.zeros((events, 1)), np.full((events, 1, len(topology.slots)), -1, dtype=np.int8)
    chosen = _top(inside[pattern.entry][:-1].T, k)  # (B, k)
    value = inside[pattern.entry][chosen, row[:, :, 0]]
    pending = [(pattern.entry, chosen)]
    leaves: list[npt.NDArray[np.intp]] = []  # candidates (B, k), in the order of pattern.placed
    while pending:
        at, sets = pending.pop(0)
        entry = tables.entries[at]
        sets = np.minimum(sets, max(len(entry.masks) - 1, 0))  # indices after the last have value -inf
        parts = [table[:, sets].transpose(1, 2, 0).astype(np.intp) for table in entry.ways]  # (B, k, K)
        if isinstance(entry, Leaf):
            options = totals[entry.form][parts[0], row]
        else:
            options = inside[entry.left][parts[0], row] + inside[entry.right][parts[1], row]
        with np.errstate(invalid="ignore"):
            options += (value - inside[at][sets, row[:, :, 0]])[:, :, None]
        width = options.shape[1] * options.shape[2]
        options = np.where(np.isnan(options), -np.inf, options).reshape(events, width)
        kept = _top(options, k)
        value = np.take_along_axis(options, kept, axis=1)
        parent = kept // max(len(entry.ways[0]), 1)
        leaves = [np.take_along_axis(leaf, parent, axis=1) for leaf in leaves]
        pending = [(other, np.take_along_axis(sets, parent, axis=1)) for other, sets in pending]
        split = [np.take_along_axis(part.reshape(events, width), kept, axis=1) for part in parts]
        if isinstance(entry, Leaf):
            leaves.append(split[0])
        else:
            pending = [(entry.left, split[0]), (entry.right, split[1]), *pending]
    slots = np.full((*value.shape, len(topology.slots)), -1, dtype=np.int8)
    for (name, first), leaf in zip(pattern.placed, leaves, strict=True):
        objects = tables.candidates[name].objects
        if len(objects):
            slots[:, :, first : first + objects.shape[1]] = objects[np.minimum(leaf, len(objects) - 1)]
    slots[np.isneginf(value)] = -1
    if len(topology.roots) == 1 and pattern.complete:
        return value, slots  # candidates are in canonical order
    return value, canonical(topology, slots.reshape(-1, slots.shape[2])).reshape(slots.shape).astype(np.int8)


def _top(values: Floats, k: int) -> npt.NDArray[np.intp]:
    """(B, at most k): columns of the largest entries of each row (B, n); ties keep their order."""
    if k == 1 and values.shape[1]:
        return np.asarray(values.argmax(axis=1)[:, None])
    return np.argsort(-values, axis=1, kind="stable")[:, :k]
