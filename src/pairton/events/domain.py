"""The objects and events that a model was made for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from pairton.errors import ConfigError, ModelError, shown
from pairton.topology import JET
from pairton.topology.selection import counted

__all__ = ["Bounds", "Domain", "KindDomain", "chosen_cuts", "cut_domain", "parse_cuts"]

Bounds = Mapping[str, Mapping[str, float | None]]  # kind -> pt and abs_eta that the user wants; None: no bound
CUTS = {"pt": ">", "abs_eta": "<"}  # what may be cut on, and on which side the objects are that are used
CUT = re.compile(r"\s*(\S+?)\s*([<>])=?\s*(\S+)\s*")
SPELLINGS = {"abs(eta)": "abs_eta", "|eta|": "abs_eta"}
LEPTONS = ("lepton", "electron", "muon")


@dataclass(frozen=True)
class KindDomain:
    """Objects of one kind that a model was trained on."""

    pt: float = 0.0  # GeV, at least
    abs_eta: float = inf  # at most
    count: tuple[int, int] = (0, 1_000_000)  # fewest and most per event
    radius: float | None = None  # of jets; None for unknown
    binary: tuple[str, ...] = ()  # fields that were only ever 0 or 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, which has no infinity."""
        abs_eta = None if self.abs_eta == inf else self.abs_eta
        rest = {"count": list(self.count), "radius": self.radius, "binary": list(self.binary)}
        return {"pt": self.pt, "abs_eta": abs_eta, **rest}


@dataclass(frozen=True)
class Domain:
    """What a model was trained on; outside it, its answers are a guess. As text: how many objects of each kind.

    >>> raw = {"jet": {"pt": 25, "abs_eta": 2.5, "count": [6, 16], "radius": 0.4, "binary": ["btag"]}}
    >>> Domain.from_dict(raw)["jet"].count
    (6, 16)
    >>> str(Domain.from_dict(raw))
    '6 to 16 jets'
    """

    kinds: Mapping[str, KindDomain] = field(default_factory=dict)

    def __getitem__(self, kind: str) -> KindDomain:
        """What is known of a kind; no bounds where nothing is."""
        return self.kinds.get(kind, KindDomain())

    def __str__(self) -> str:
        said = []
        for kind, (fewest, most) in ((kind, usual.count) for kind, usual in self.kinds.items()):
            said.append(counted(fewest if fewest == most else f"{fewest} to {most}", kind))
        return ", ".join(said)

    @property
    def has_binary(self) -> bool:
        """Whether some field, such as a b-tag, was only ever 0 or 1."""
        return any(usual.binary for usual in self.kinds.values())

    def to_dict(self) -> dict[str, Any]:
        return {kind: domain.to_dict() for kind, domain in self.kinds.items()}

    @classmethod
    def from_dict(cls, raw: object, source: str = "domain") -> Domain:
        try:
            if not isinstance(raw, Mapping):
                raise TypeError
            return cls({str(kind): _kind(part) for kind, part in raw.items()})
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ModelError(
                f"{source}: the domain is {shown(raw)}, but each kind needs pt, abs_eta and count: [fewest, most]"
            ) from None


def parse_cuts(text: str, option: str = "jets") -> dict[str, float | None]:
    """The cuts of `--jets` and `--leptons`: `pt>30,abs_eta<2.4`, or `none`.

    >>> parse_cuts("pt > 30, |eta| < 2.4"), parse_cuts("none")
    ({'pt': 30.0, 'abs_eta': 2.4}, {'pt': None, 'abs_eta': None})
    """
    if text.strip().lower() == "none":
        return dict.fromkeys(CUTS)
    found: dict[str, float | None] = {}
    for part in text.split(","):
        match = CUT.fullmatch(part)
        name, sign, value = match.groups() if match else ("", "", "")
        name = SPELLINGS.get(name, name)
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if CUTS.get(name) != sign or name in found or not 0 <= number < inf:
            raise ConfigError(
                f"{option} {text!r}: write cuts in GeV as in pt>30,abs_eta<2.4, each once, or none to use all"
            )
        found[name] = number
    return found


def chosen_cuts(jets: str | None, leptons: str | None, cuts: bool | Bounds = True) -> bool | Bounds:
    """The cuts that a user chose, by kind, in place of those of a model; True for those of the model.

    cuts: False for none on any kind of object, or cuts by kind.

    >>> chosen_cuts("pt>30", None)
    {'jet': {'pt': 30.0}}
    """
    if jets is None and leptons is None:
        return cuts
    if not cuts:
        raise ConfigError("cuts on jets or leptons, and no cuts at all (--no-cuts, cuts=False): choose one")
    found: dict[str, Mapping[str, float | None]] = {}
    if jets is not None:
        found[JET] = parse_cuts(jets, "jets")
    if leptons is not None:
        found |= dict.fromkeys(LEPTONS, parse_cuts(leptons, "leptons"))
    return found


def cut_domain(domain: Domain, cuts: bool | Bounds, kinds: Iterable[str]) -> Domain:
    """Which objects of some kinds are used: those within the bounds of pT and |eta| of this domain."""

    def of(kind: str) -> KindDomain:
        usual = domain[kind]
        chosen = dict.fromkeys(CUTS) if cuts is False else {} if cuts is True else cuts.get(kind, {})
        pt, abs_eta = chosen.get("pt", usual.pt), chosen.get("abs_eta", usual.abs_eta)
        return replace(usual, pt=-inf if pt is None else pt, abs_eta=inf if abs_eta is None else abs_eta)

    return Domain({kind: of(kind) for kind in kinds})


def _kind(raw: Mapping[str, Any]) -> KindDomain:
    low, high = raw["count"]
    abs_eta, radius = raw["abs_eta"], raw.get("radius")
    return KindDomain(
        float(raw["pt"]),
        inf if abs_eta is None else float(abs_eta),
        (int(low), int(high)),
        None if radius is None else float(radius),
        tuple(map(str, raw.get("binary", ()))),
    )
