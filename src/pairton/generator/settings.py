"""The settings that define a sample, and the seeds derived from them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pairton._common.atomic import note_input
from pairton._version import __version__
from pairton.errors import ConfigError, nearest
from pairton.generator.card import Card, load_card
from pairton.generator.hooks import Filter
from pairton.generator.pythia import MAX_SEED, LHEFile, load_processes, scan, versions
from pairton.generator.simulation import KEEP, check_topology
from pairton.topology import Topology, builtin_topologies, load_topology, parse_topology

__all__ = ["CHUNK", "MAX_CHUNKS", "Settings", "detector_rng", "make_settings", "pythia_seed"]

CHUNK = 1000  # events per run of Pythia; a job that is killed loses at most these
BATCH = 250  # events in memory, about 100 MB
MAX_CHUNKS = 30_000  # chunks per seed, and number of seeds: MAX_CHUNKS**2 is Pythia's number of seeds


@dataclass(frozen=True)
class Settings:
    """Everything that defines a sample: equal settings give equal files."""

    topology: dict[str, Any]
    lines: tuple[str, ...]  # for Pythia
    filter: Filter | None
    lhe: LHEFile | None
    card: str  # text of the card
    seed: int
    n_events: int
    keep: str
    versions: dict[str, str]
    copies: int = 1  # times that each collision passes the detector
    chunk: int = CHUNK
    batch: int = BATCH

    def __post_init__(self) -> None:
        if not 0 <= self.seed < MAX_CHUNKS:
            raise ConfigError(f"seed is {self.seed}, but must lie between 0 and {MAX_CHUNKS - 1}")
        most = MAX_CHUNKS * self.chunk
        if not 1 <= self.n_events <= most:
            raise ConfigError(
                f"n_events is {self.n_events}, but must lie between 1 and {most}: use more seeds for more"
            )
        if self.copies < 1:
            raise ConfigError(f"copies is {self.copies}, but must be 1 or more")
        if self.keep not in KEEP:
            hint = nearest(self.keep, KEEP)
            raise ConfigError(f"keep is {self.keep!r}, but must be one of {', '.join(KEEP)}{hint}")
        if self.lhe is not None and self.n_events > self.lhe.n_events:
            raise ConfigError(f"n_events is {self.n_events}, but {self.lhe.path} has {self.lhe.n_events} events")

    @property
    def n_chunks(self) -> int:
        return -(-self.n_events // self.chunk)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, equal to what JSON returns."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def source_id(self) -> int:
        """The first number of event ids: a hash of the settings that define the collisions.

        Samples that differ only in the detector, the selection, or how many events are made, copied and kept have
        the same collisions, and so the same ids: a model that was trained on one of them has seen them all.
        """
        plain = self.as_dict()
        collisions = {name: plain[name] for name in ("lines", "filter", "seed", "versions", "chunk", "batch")}
        collisions["lhe"] = None if self.lhe is None else self.lhe.sha256
        text = json.dumps(collisions, sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def build_topology(self) -> Topology:
        return parse_topology(self.topology)

    def with_sizes(self, chunk: int, batch: int) -> Settings:
        """The settings with other sizes. The events differ, since each chunk has its own seed."""
        return replace(self, chunk=chunk, batch=batch)


def make_settings(
    topology: str | Path | Topology,
    n_events: int | None,
    *,
    process: str | None = None,
    seed: int = 1,
    keep: str = "selected",
    filtered: bool = False,
    lhe: str | Path | None = None,
    card: str | Path | Card = "atlas",
    pythia: tuple[str, ...] = (),
    copies: int = 1,
) -> Settings:
    """Make settings from the arguments of `pairton.generate`.

    `process` is the name of a built-in process to simulate as background. If `topology` is the name of a
    background, such as `multijet`, the topology is `ttbar_allhad`.
    """
    processes = load_processes()
    if topology in processes.built_in and topology not in builtin_topologies() and process is None:
        topology, process = "ttbar_allhad", str(topology)
    tree = load_topology(topology)
    check_topology(tree)
    lines = processes.lines(tree, lhe is not None, pythia, process)
    file = None
    if lhe is not None:
        note_input(lhe)
        file = scan(lhe)
    if n_events is None:
        if file is None:
            raise ConfigError("-n is missing: say how many events to simulate")
        n_events = file.n_events
    return Settings(
        topology=tree.to_dict(),
        lines=lines,
        filter=processes.filter if filtered else None,
        lhe=file,
        card=(card if isinstance(card, Card) else load_card(card)).text,
        seed=seed,
        n_events=n_events,
        keep=keep,
        versions={"pairton": __version__, **versions()},
        copies=copies,
    )


def pythia_seed(seed: int, chunk: int) -> int:
    """Pythia's seed for a chunk. It differs for every pair of seed and chunk, so samples never share events.

    >>> pythia_seed(0, 0), pythia_seed(1, 0), pythia_seed(29_999, 29_999)
    (1, 30001, 900000000)
    """
    value = 1 + seed * MAX_CHUNKS + chunk
    assert 1 <= value <= MAX_SEED
    return value


def detector_rng(seed: int, chunk: int, batch: int) -> np.random.Generator:
    """Random numbers of the detector, independent of all others."""
    purpose = int.from_bytes(hashlib.sha256(b"detector").digest()[:4], "little")
    return np.random.default_rng(np.random.SeedSequence([purpose, seed, chunk, batch]))
