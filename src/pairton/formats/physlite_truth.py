"""Truth in PHYSLITE files: containers of particles, which share the vertices that their particles come from.

No container has the whole decay of a top: it is in `TruthTop`, its W in `TruthBoson` and, with products, in
`TruthBosonsWithDecayParticles`, its b in `TruthBottom`. A particle may thus be in several containers, always with
the same momentum. The mother of a particle is the one that ends at the vertex at which it begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.formats.column_files import Table
from pairton.formats.flat_objects import Chunk
from pairton.formats.truth import GenRecord

__all__ = ["TruthContainers"]

RESONANCES = ("TruthTop", "TruthBosonsWithDecayParticles", "TruthBoson", "TruthBSMWithDecayParticles")
CONTAINERS = (
    *RESONANCES,
    *("TruthBottom", "TruthElectrons", "TruthMuons", "TruthTaus", "TruthPhotons", "TruthNeutrinos"),
)
VALUES = ("pdgId", "px", "py", "pz")
LINKS = tuple(
    (vertex, part) for vertex in ("prodVtxLink", "decayVtxLink") for part in ("m_persKey", "m_persIndex")
)
MOST_GENERATIONS = 100
NO_VERTEX = 0xFFFFFFFF  # index of a null link; its key is 0

Ints = npt.NDArray[np.int64]


class TruthContainers:
    """The containers of a file that have particles with links."""

    def __init__(self, tree: Table, mark: str) -> None:
        """`mark` separates container and variable."""
        self._columns = {}
        for container in CONTAINERS:
            begin = f"{container}AuxDyn{mark}"
            columns = [f"{begin}{name}" for name in VALUES]
            for vertex, part in LINKS:  # the names depend on the version of the file
                found = [c for c in tree.columns if c.startswith(f"{begin}{vertex}") and c.endswith(part)]
                columns += found[:1] or [""]
            if all(column in tree for column in columns):
                self._columns[container] = columns
        if not any(container in self._columns for container in RESONANCES):
            self._columns = {}

    @property
    def columns(self) -> Sequence[str]:
        return [column for columns in self._columns.values() for column in columns]

    def record(self, rows: Chunk) -> GenRecord:
        """All particles, each once, mothers first."""
        parts = [
            np.concatenate([np.asarray(ak.flatten(rows[columns[k]])) for columns in self._columns.values()])
            for k in range(len(VALUES) + len(LINKS))
        ]
        counts = [np.asarray(ak.num(rows[columns[0]])) for columns in self._columns.values()]
        event = np.concatenate([np.repeat(np.arange(len(n)), n) for n in counts])
        code, px, py, pz = (part.astype(np.float64) for part in parts[:4])
        _, first, particle = np.unique(
            np.stack([event, code, px, py, pz]), axis=1, return_index=True, return_inverse=True
        )
        particle = particle.reshape(-1)
        mother = _mothers(particle, event, [part.astype(np.int64) for part in parts[4:]])
        depth, above = np.zeros(len(first), dtype=np.int64), mother
        for _ in range(MOST_GENERATIONS):  # until there are none above, unless the links of the file form a circle
            depth += above >= 0
            above = np.where(above >= 0, mother[above], -1)
            if not (above >= 0).any():
                break
        order = np.lexsort((first, depth, event[first]))  # mothers first
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        chosen, up = first[order], mother[order]
        n_entries = np.bincount(event[first], minlength=len(counts[0]))
        begin = np.concatenate([[0], np.cumsum(n_entries)])[event[chosen]]
        local = np.where(up >= 0, place[up] - begin, -1)
        x, y, z = (values[chosen] for values in (px, py, pz))
        with np.errstate(divide="ignore", invalid="ignore"):
            eta = np.arcsinh(z / np.hypot(x, y))
        return GenRecord.of(n_entries, code[chosen].astype(np.int64), local, eta, np.arctan2(y, x))


def _mothers(particle: Ints, event: Ints, links: Sequence[Ints]) -> Ints:
    """For each particle the one that ends where it begins, -1 for none, from the links of all entries."""
    begin_key, begin_index, end_key, end_index = links
    mother = np.full(particle.max(initial=-1) + 1, -1, dtype=np.int64)
    keys = np.concatenate([begin_key, end_key])
    vertices = np.stack([np.tile(event, 2), keys, np.concatenate([begin_index, end_index])])
    _, vertex = np.unique(vertices, axis=1, return_inverse=True)
    begins, ends = np.split(vertex.reshape(-1), 2)
    ending = np.full(len(keys), -1, dtype=np.int64)  # vertex -> particle that ends there
    valid = (end_key != 0) & (end_index != NO_VERTEX)
    ending[ends[valid][::-1]] = particle[valid][::-1]
    found = np.where((begin_key != 0) & (begin_index != NO_VERTEX), ending[begins], -1)
    found[found == particle] = -1
    mother[particle[found >= 0][::-1]] = found[found >= 0][::-1]
    return mother
