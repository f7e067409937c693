"""Vetoes events before and during Pythia's shower, and records event weights.

A vetoed event takes little time: Pythia stops there and draws another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

__all__ = ["MOST_DECAYS", "MOST_TRIES", "Filter", "Vetoes", "make_hook", "split_lines"]

OWN = re.compile(r"\s*Pairton:(leptons|jets|bjets|harder)\s*=\s*(\d+)\s*")
MOST_DECAYS = 10_000  # W decays drawn per event before we give up on Pairton:leptons
MOST_TRIES = 1_000_000  # vetoed events in a row (minutes) before we give up on Pairton:jets and Pairton:bjets

# Cuts of `Pairton:jets` and `Pairton:bjets`, in GeV. They are looser than a selection at 25 GeV, since jets may
# still gain energy.
SCALE = 10.0  # where the shower is interrupted; softer emissions rarely make a jet
PT_AT_SCALE = 20.0  # of jets when the shower is interrupted
PT_AT_END = 18.0  # of jets after the shower
PT_B = 10.0  # of partons when the shower is interrupted, and of b jets after it
ABS_ETA = 2.8
RADIUS = 0.4
RESONANCES = (6, 23, 24, 25)  # PDG codes
IN_DECAYS = 5  # Pythia's number for the showers in decays of resonances


@dataclass(frozen=True)
class Filter:
    """Cuts on all quarks from resonances, before the shower."""

    pt: float  # least pT in GeV
    abs_eta: float  # largest |eta|


@dataclass(frozen=True)
class Vetoes:
    """What an event must have not to be vetoed. None and zero require nothing."""

    quarks: Filter | None = None
    leptons: int | None = None  # exact number of charged leptons from W decays
    jets: int = 0  # least number of jets of partons
    bjets: int = 0  # least number of jets of partons with a b quark
    harder: int = 0  # cross sections are multiplied by this power of the transverse mass, without event weights


def split_lines(lines: Iterable[str], vetoes: Vetoes) -> tuple[list[str], Vetoes]:
    """Split off the lines that start with `Pairton:`. Return the others, and the vetoes that those lines change.

    >>> split_lines(["HardQCD:all = on", "Pairton:jets = 5", "Pairton:jets = 6"], Vetoes())
    (['HardQCD:all = on'], Vetoes(quarks=None, leptons=None, jets=6, bjets=0, harder=0))
    """
    others = []
    for line in lines:
        if own := OWN.fullmatch(line):
            vetoes = replace(vetoes, **{own[1]: int(own[2])})  # type: ignore[arg-type]  # none is a filter
        else:
            others.append(line)
    return others, vetoes


def _quarks_of_resonances(process: Any) -> list[Any]:
    """Quarks, except tops, that the resonances of a hard process decay to."""
    entries = (process[i] for i in range(process.size()))
    decayed = (q for q in entries if q.idAbs() <= 5 and q.statusAbs() == 23)
    return [q for q in decayed if process[q.mother1()].statusAbs() == 22]


def make_hook(pythia8: Any, pythia: Any, vetoes: Vetoes) -> Any:
    """Make the hook for one run of Pythia. It counts events in `tried` and `passed`, and records `weights`."""
    least = vetoes.quarks or Filter(0.0, inf)
    by_jets = vetoes.jets > 0 or vetoes.bjets > 0

    def jet_finder(pt: float) -> Any:
        # anti-kt on all partons; without FastJet, which would print a banner
        return pythia8.SlowJet(-1, RADIUS, pt, ABS_ETA, 1, 2, None, False)

    at_scale, at_end = jet_finder(PT_AT_SCALE), jet_finder(PT_B)

    class Hook(pythia8.UserHooks):  # type: ignore[misc]
        """Vetoes events as early as possible, and records the weights of the others."""

        def __init__(self) -> None:
            super().__init__()
            self.drawn = 0  # W decays of this event so far
            self.tried = 0
            self.hopeless = False  # too many vetoes: let events pass, so that Pythia returns
            self.to_come = self.b_to_come = 0  # quarks above PT_B from resonances, which decay after the shower
            self.passed: list[int] = []  # `tried` at each event that passed all vetoes
            self.weights: list[float] = []
            self.weight: Callable[[], float] = lambda: float(pythia.infoPython().weight())  # of this event

        # -- before the hard process

        def canModifySigma(self) -> bool:
            return vetoes.harder > 0

        def multiplySigmaBy(self, process: Any, space: Any, in_event: bool) -> float:
            del process, in_event
            pair = space.pTHat() ** 2 + (space.s3 + space.s4) / 2
            return float((pair if space.pTHat() else space.sHat()) ** (vetoes.harder / 2))

        # -- before the shower

        def canVetoResonanceDecays(self) -> bool:
            return vetoes.leptons is not None

        def doVetoResonanceDecays(self, process: Any) -> bool:
            products = [process[i] for i in range(process.size()) if process[process[i].mother1()].idAbs() == 24]
            charged = sum(p.idAbs() in (11, 13, 15) and p.statusAbs() == 23 for p in products)
            self.drawn += 1
            if products and charged != vetoes.leptons and self.drawn <= MOST_DECAYS:
                return True
            self.drawn = self.drawn if self.drawn > MOST_DECAYS else 0
            return False

        def canVetoProcessLevel(self) -> bool:
            return True

        def doVetoProcessLevel(self, process: Any) -> bool:
            self.tried += 1
            if vetoes.quarks is not None or by_jets:
                # A dozen entries: the shower that a veto saves takes a thousand times as long.
                quarks = _quarks_of_resonances(process)
                self.to_come = sum(q.pT() > PT_B for q in quarks)
                self.b_to_come = sum(q.pT() > PT_B and q.idAbs() == 5 for q in quarks)
                if any(q.pT() <= least.pt or abs(q.eta()) >= least.abs_eta for q in quarks):
                    return True
            if not by_jets:
                self.passed.append(self.tried)
            return False

        @property
        def tries(self) -> int:
            """Events tried since the last one that passed."""
            return self.tried - (self.passed[-1] if self.passed else 0)

        # -- in the shower, at a scale: some twenty entries

        def canVetoPT(self) -> bool:
            return by_jets

        def scaleVetoPT(self) -> float:
            return SCALE

        def doVetoPT(self, position: int, event: Any) -> bool:
            if self.hopeless or self.tries > MOST_TRIES:
                self.hopeless = True
                return False
            if position == IN_DECAYS:  # the event has passed in the shower before them
                return False
            if event.nFinal() + self.to_come < vetoes.jets:
                return True
            final = [q for q in (event[i] for i in range(5, event.size())) if q.isFinal()]
            hard = [q for q in final if q.pT() > PT_B and q.idAbs() not in RESONANCES]
            if len(hard) + self.to_come < vetoes.jets:
                return True
            if sum(q.idAbs() == 5 for q in hard) + self.b_to_come < vetoes.bjets:
                return True
            if self.to_come:  # resonances, which have not decayed yet, would be clustered as jets
                return False
            at_scale.analyze(event)
            return bool(at_scale.sizeJet() < vetoes.jets)

        # -- after the shower: hundreds of entries, but few events get here

        def canVetoPartonLevel(self) -> bool:
            return by_jets

        def doVetoPartonLevel(self, event: Any) -> bool:
            if self.hopeless:
                return False
            at_end.analyze(event)
            n = vetoes.jets
            if at_end.sizeJet() < n or (n > 0 and at_end.pT(n - 1) <= PT_AT_END):  # by falling pT
                return True
            quarks = (i for i in range(event.size() - 1, 4, -1) if event[i].idAbs() == 5 and event[i].isFinal())
            if len({at_end.jetAssignment(i) for i in quarks} - {-1}) < vetoes.bjets:
                return True
            self.passed.append(self.tried)
            return False

        def onEndEvent(self, status: Any) -> None:
            if status == pythia8.UserHooks.COMPLETE:
                self.weights.append(self.weight())

    return Hook()
