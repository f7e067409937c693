"""Runs Pythia 8: its settings, Les Houches files, batches of events with their weights, and their records."""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton._common.configuration import read_yaml
from pairton.errors import ConfigError, InputError, MissingExtraError, nearest
from pairton.formats.files import refuse_inflated
from pairton.generator.detector import Momenta, Particles
from pairton.generator.hooks import MOST_DECAYS, MOST_TRIES, Filter, Vetoes, make_hook, split_lines
from pairton.topology import Topology

__all__ = [
    "MAX_SEED",
    "OUTGOING",
    "RESONANCE",
    "LHEFile",
    "Processes",
    "PythiaRun",
    "Record",
    "flatten",
    "load_processes",
    "scan",
    "versions",
]

MAX_SEED = 900_000_000  # Pythia's limit; 0 would mean the time of day
ALL_USED = (3, 4)  # weight strategies of Les Houches files, without sign, in which Pythia uses every event
BLOCK = re.compile(rb"\s*<(init|event)[\s>]")  # of a Les Houches file, but not <initrwgt>, <eventgroup>
MOST_LINE = 2**16  # bytes of a line of a Les Houches file that are read at once
RESONANCE, OUTGOING = 22, 23  # status codes, without sign, of the hard process
WEIGHTED = ("PhaseSpace:bias2Selection", "Enhancements:doEnhance")  # flags that give events weights


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Processes:
    """The content of `processes.yaml`."""

    pythia: tuple[str, ...]  # settings for every process
    filter: Filter
    built_in: Mapping[str, tuple[str, ...]]  # name of a topology, or of a background -> settings

    def lines(
        self, topology: Topology, lhe: bool, further: Sequence[str] = (), name: str | None = None
    ) -> tuple[str, ...]:
        """Settings of Pythia for a topology, with its own process or, with `lhe`, for Les Houches events.

        The `process` of a topology replaces the built-in one of the same name, and `name`, a built-in process,
        replaces both. `further` lines come last. For Les Houches events there is no `name`, and of the process
        only lines on particles are used, such as `25:onMode = off`: otherwise Pythia would simulate its own.
        """
        if name is not None and name not in self.built_in:
            raise ConfigError(
                f"no process {name!r}: choose one of {', '.join(self.built_in)}{nearest(name, self.built_in)}"
            )
        if lhe and name is not None:
            raise ConfigError(
                f"Pythia would simulate {name}, but with --lhe the events come from the file: leave out {name} "
                "and give the topology of these events, or leave out --lhe"
            )
        own = topology.extras.process or self.built_in.get(topology.name, ())
        process = own if name is None else self.built_in[name]
        if lhe:
            process = tuple(filter(_is_on_particle, process))
        elif not further and all(map(_is_on_particle, process)):
            raise ConfigError(
                f"Pythia has no process for {topology.name!r}: use {', '.join(self.built_in)}; or add `process:` "
                "with Pythia's lines to your topology, or --pythia LINE; or pass events of another generator with "
                "--lhe FILE"
            )
        return (*self.pythia, *process, *further)


def _is_on_particle(line: str) -> bool:
    """Whether a line of settings is on a particle: those start with a PDG code."""
    return line.lstrip()[:1].isdigit()


def load_processes() -> Processes:
    """Load the built-in settings.

    >>> from pairton.topology import load_topology
    >>> load_processes().lines(load_topology("ttbar_allhad"), lhe=False)[-1]
    '24:onIfAny = 1 2 3 4 5'
    """
    raw = read_yaml(Path(__file__).parent / "processes.yaml")
    return Processes(
        pythia=tuple(raw["pythia"]),
        filter=Filter(**raw["filter"]),
        built_in={name: tuple(lines) for name, lines in raw["processes"].items()},
    )


def versions() -> dict[str, str]:
    """The versions of Pythia and FastJet."""
    names = ("pythia8mc", "fastjet")
    try:
        return {name: version(name) for name in names}
    except PackageNotFoundError as error:
        raise MissingExtraError("generate", str(error.name)) from error


# -- Les Houches files -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LHEFile:
    """A Les Houches file."""

    path: str
    n_events: int
    sha256: str


def scan(path: str | Path) -> LHEFile:
    """Count the events of a file, plain or gzipped, and hash its content."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: this is not a regular file: copy its content to a file first")
    digest, size, n_events = hashlib.sha256(), 0, 0
    try:
        stored = path.stat().st_size
        with _open(path) as stream:
            for line in iter(partial(stream.readline, MOST_LINE), b""):
                digest.update(line)
                size += len(line)
                refuse_inflated(str(path), size, stored)
                if match := BLOCK.match(line):  # before <init>, headers and comments may mention any tag
                    n_events = 0 if match[1] == b"init" else n_events + 1
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not n_events:
        raise InputError(f"{path} has no <event>: --lhe takes a Les Houches event file, plain or gzipped")
    return LHEFile(str(path.resolve()), n_events, digest.hexdigest())


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]


# -- a run -------------------------------------------------------------------------------------------------


class PythiaRun:
    """One run of Pythia.

    lines   settings
    quarks  cuts on quarks from resonances, before the shower
    lhe     a Les Houches file, of which the first `skip` events are skipped
    """

    def __init__(
        self,
        lines: Sequence[str],
        seed: int,
        *,
        quarks: Filter | None = None,
        lhe: Path | None = None,
        skip: int = 0,
    ) -> None:
        try:
            import pythia8mc as pythia8
        except ImportError as error:
            raise MissingExtraError("generate", "pythia8mc") from error
        self._pythia = pythia8.Pythia("", False)
        self._lhe = lhe is not None
        own = ["Print:quiet = on", "Random:setSeed = on", f"Random:seed = {seed}"]
        if lhe is not None:
            # A veto must not make Pythia read on: the next events belong to the next chunk.
            own += ["Beams:frameType = 4", "Check:abortIfVeto = on"]
            self._pythia.settings.word("Beams:LHEF", str(lhe))  # readString would stop at a space in the path
        for_pythia, vetoes = split_lines(lines, Vetoes(quarks))
        for line in (*for_pythia, *own):
            if not self._pythia.readString(line, True):
                raise ConfigError(f"Pythia does not understand {line!r}: see its manual for names and values")
        if self._lhe and self._pythia.settings.hasHardProc():
            raise ConfigError(
                "--pythia switches on a process, whose events would replace those of --lhe: leave out that line, "
                "or --lhe"
            )
        self._weighted = any(self._pythia.settings.flag(name) for name in WEIGHTED)
        if self._weighted and self._lhe:
            raise ConfigError(f"--lhe has weights of its own: leave out {' and '.join(WEIGHTED)}")
        # Pythia keeps only a pointer to the hook, so we must keep the hook alive.
        recorded = vetoes != Vetoes() or self._weighted or self._lhe
        self._hook = make_hook(pythia8, self._pythia, vetoes) if recorded else None
        if self._hook is not None:
            self._pythia.setUserHooksPtr(self._hook)
        if not self._pythia.init():
            if lhe is not None:
                raise InputError(f"Pythia cannot start from {lhe}: is it a Les Houches event file?")
            raise ConfigError(
                "Pythia cannot start with these settings: check that `process:` of the topology or --pythia "
                "switches on a process"
            )
        if self._hook is not None and self._lhe:
            events = self._pythia.getLHAupPtr()
            self._hook.weight = events.weight  # as in the file; Pythia's own has another unit, or is 1
            if abs(events.strategy()) not in ALL_USED:
                raise InputError(
                    f"{lhe} has weight strategy {events.strategy()}, in which Pythia leaves out events: write it "
                    "with unit weights (3, -3) or weighted events (4, -4)"
                )
        if skip and not self._pythia.LHAeventSkip(skip):
            raise InputError(f"{lhe}: Pythia cannot read it as far as event {skip}: an event before is damaged")

    def charge(self, code: int) -> float:
        """The charge of a PDG code, in units of the proton's."""
        return float(self._pythia.particleData.charge(code))

    def batches(self, n_events: int, size: int) -> Iterator[ak.Array]:
        """Yield `n_events` events in batches, as awkward arrays; an event that failed or was vetoed is None."""
        for first in range(0, n_events, size):
            yield self._pythia.nextBatch(min(size, n_events - first), "none")
            if self._hook is not None and self._hook.drawn > MOST_DECAYS:
                raise ConfigError(
                    f"none of {MOST_DECAYS} events has as many leptonic W decays as `Pairton:leptons` asks for: "
                    "change it, or allow such decays with `24:onIfAny`"
                )
            if self._hook is not None and self._hook.hopeless:
                raise ConfigError(
                    f"none of {MOST_TRIES} events has as many jets as `Pairton:jets` and `Pairton:bjets` ask for: "
                    "ask for fewer, or for harder collisions with `PhaseSpace:pTHatMin`"
                )

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """Weights of the events so far that did not fail; None if the process has no weights."""
        return np.array(self._hook.weights) if self._hook is not None and (self._weighted or self._lhe) else None

    @property
    def vetoed(self) -> int:
        """Number of Les Houches events that were vetoed. Vetoed events of Pythia's own processes are replaced."""
        return self._hook.tried - len(self._hook.passed) if self._hook is not None and self._lhe else 0

    def tried(self, n_events: int) -> int:
        """Number of hard processes, before any veto, that the first `n_events` events took."""
        if self._hook is None or self._lhe:
            return n_events
        passed: list[int] = self._hook.passed
        return passed[min(n_events, len(passed)) - 1] if passed else self._hook.tried


# -- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record(Momenta):
    """The entries of Pythia's record of all events of a batch, concatenated."""

    code: Ints  # PDG
    status: Ints  # Pythia's, positive for stable particles
    mother: Ints  # entry of the (first) mother, -1 for none
    vertex: Floats  # (stable particles, 3): production points, m
    n_events: int

    def __len__(self) -> int:
        return self.n_events

    def stable(self, charge: Callable[[int], float]) -> Particles:
        """The stable particles. `charge` returns the charge of a PDG code."""
        keep = np.flatnonzero(self.status > 0)
        codes, where = np.unique(self.code[keep], return_inverse=True)
        charges = np.array([charge(int(code)) for code in codes], dtype=np.float64)
        columns = {name: getattr(self, name)[keep] for name in ("event", "px", "py", "pz", "energy", "code")}
        x, y, z = self.vertex.T
        return Particles(**columns, charge=charges[where], x=x, y=y, z=z)


def flatten(batch: ak.Array) -> Record:
    """The record of a batch from Pythia's `nextBatch`, without failed events."""
    if ak.all(ak.is_none(batch)):  # its fields have no names then
        none, real = np.zeros(0, dtype=np.int64), np.zeros(0)
        return Record(none, real, real, real, real, none, none, none, np.zeros((0, 3)), 0)
    particles = batch[~ak.is_none(batch)].prt
    counts = np.asarray(ak.num(particles, axis=1), dtype=np.int64)
    event = np.repeat(np.arange(len(counts)), counts)
    flat = ak.flatten(particles, axis=1)
    status, mother = (np.asarray(flat[name], dtype=np.int64) for name in ("status", "mother1"))
    produced: Any = flat.vProd[status > 0]  # None at the origin
    vertex = [np.asarray(ak.fill_none(produced[name], 0.0)) / 1000 for name in ("px", "py", "pz")]  # from mm
    px, py, pz, energy = (np.asarray(flat.p[name]) for name in ("px", "py", "pz", "e"))
    return Record(
        event,
        px,
        py,
        pz,
        energy,
        code=np.asarray(flat.id, dtype=np.int64),
        status=status,
        mother=np.where(mother > 0, mother + (np.cumsum(counts) - counts)[event], -1),
        vertex=np.stack(vertex, axis=1),
        n_events=len(counts),
    )
