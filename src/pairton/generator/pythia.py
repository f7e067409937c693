"""Runs Pythia 8: its settings, and batches of events with their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton._common.configuration import read_yaml
from pairton.errors import ConfigError, InputError, MissingExtraError, nearest
from pairton.generator.hooks import MOST_DECAYS, MOST_TRIES, Filter, Vetoes, make_hook, split_lines
from pairton.topology import Topology

__all__ = ["MAX_SEED", "Processes", "PythiaRun", "load_processes", "versions"]

MAX_SEED = 900_000_000  # Pythia's limit; 0 would mean the time of day
ALL_USED = (3, 4)  # weight strategies of Les Houches files, without sign, in which Pythia uses every event
WEIGHTED = ("PhaseSpace:bias2Selection", "Enhancements:doEnhance")  # flags that give events weights


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
        process = (
            topology.extras.process or self.built_in.get(topology.name, ())
            if name is None
            else self.built_in[name]
        )
        if lhe:
            process = tuple(filter(_is_on_particle, process))
        elif not further and all(map(_is_on_particle, process)):
            known = [name for name, lines in self.built_in.items() if not all(map(_is_on_particle, lines))]
            raise ConfigError(
                f"Pythia has no process for {topology.name!r}: use {', '.join(known)}; or add `process:` with "
                "Pythia's lines to your topology, or --pythia LINE; or pass events of another generator with "
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


def _pythia8() -> Any:
    try:
        import pythia8mc
    except ImportError as error:
        raise MissingExtraError("generate", "pythia8mc") from error
    return pythia8mc


def versions() -> dict[str, str]:
    """The versions of Pythia and FastJet."""
    names = ("pythia8mc", "fastjet")
    try:
        return {name: version(name) for name in names}
    except PackageNotFoundError as error:
        raise MissingExtraError("generate", str(error.name)) from error


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
        pythia8 = _pythia8()
        if not 1 <= seed <= MAX_SEED:
            raise ConfigError(f"seed {seed} of Pythia must lie between 1 and {MAX_SEED}")
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
        recorded = vetoes.any or self._weighted or self._lhe
        self._hook = make_hook(pythia8, self._pythia, vetoes) if recorded else None
        if self._hook is not None:
            self._pythia.setUserHooksPtr(self._hook)
        if not self._pythia.init():
            raise (
                InputError(f"Pythia cannot start from {lhe}: is it a Les Houches event file?")
                if lhe is not None
                else ConfigError(
                    "Pythia cannot start with these settings: check that `process:` of the topology or --pythia "
                    "switches on a process"
                )
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
