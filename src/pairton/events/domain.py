"""The domain of a model: the range of objects it was trained on, and cuts that a user chooses instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from pairton._common.configuration import configure
from pairton.errors import ConfigError, ModelError
from pairton.topology import JET
from pairton.topology.kinds import LEPTONS, collection_name, counted
from pairton.topology.selection import Cuts, Selection

__all__ = [
    "Bounds",
    "Domain",
    "KindDomain",
    "as_cuts",
    "chosen_cuts",
    "cut_domain",
    "describe_cuts",
    "parse_cuts",
    "used_cuts",
]

Bounds = Mapping[str, Mapping[str, float | None]]  # kind -> cuts on pt and abs_eta; None: no cut
CUTS = {"pt": ">", "abs_eta": "<"}  # quantity -> direction of the cut
CUT = re.compile(r"\s*(\S+?)\s*([<>])=?\s*(\S+)\s*")
SPELLINGS = {"abs(eta)": "abs_eta", "|eta|": "abs_eta"}


@dataclass(frozen=True)
class KindDomain(Cuts):
    """The range of objects of one kind that a model was trained on."""

    count: tuple[int, int] = (0, 1_000_000)  # fewest and most per event
    radius: float | None = None  # radius parameter of jets; None: unknown
    binary: tuple[str, ...] = ()  # fields that were always 0 or 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; None stands for infinity, which JSON does not have."""
        abs_eta = None if self.abs_eta == inf else self.abs_eta
        rest = {"count": list(self.count), "radius": self.radius, "binary": list(self.binary)}
        return {"pt": self.pt, "abs_eta": abs_eta, **rest}


@dataclass(frozen=True)
class Domain:
    """The range of objects that a model was trained on; its answers cannot be relied on outside it.

    >>> raw = {"jet": {"pt": 25, "abs_eta": 2.5, "count": [6, 16], "radius": 0.4, "binary": ["btag"]}}
    >>> Domain.from_dict(raw)["jet"].count
    (6, 16)
    >>> str(Domain.from_dict(raw))
    '6 to 16 jets'
    """

    kinds: Mapping[str, KindDomain] = field(default_factory=dict)

    def __getitem__(self, kind: str) -> KindDomain:
        """The domain of a kind; without bounds if nothing is known."""
        return self.kinds.get(kind, KindDomain())

    def __str__(self) -> str:
        parts = []
        for kind, domain in self.kinds.items():
            fewest, most = domain.count
            parts.append(counted(fewest if fewest == most else f"{fewest} to {most}", kind))
        return ", ".join(parts)

    @property
    def has_binary(self) -> bool:
        """Whether some field, such as a b-tag, was always 0 or 1."""
        return any(domain.binary for domain in self.kinds.values())

    def to_dict(self) -> dict[str, Any]:
        return {kind: domain.to_dict() for kind, domain in self.kinds.items()}

    @classmethod
    def from_dict(cls, raw: object, source: str = "domain") -> Domain:
        if isinstance(raw, Mapping):  # None stands for infinity
            raw = {kind: _without_none(part) for kind, part in raw.items()}
        return cls(configure(dict[str, KindDomain], raw, source, ModelError))


def _without_none(part: Any) -> Any:
    return {k: v for k, v in part.items() if v is not None} if isinstance(part, Mapping) else part


def parse_cuts(text: str, option: str = "jets") -> dict[str, float | None]:
    """Read the cuts of `--jets` and `--leptons`: `pt>30,abs_eta<2.4`, or `none`.

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
                f"{option} {text!r}: write cuts as in pt>30,abs_eta<2.4 (pt in GeV), each at most once, or none"
            )
        found[name] = number
    return found


def chosen_cuts(jets: str | None, leptons: str | None, cuts: bool | Bounds = True) -> bool | Bounds:
    """The cuts that a user chose, by kind; True to use the cuts of the model.

    jets, leptons: cuts as text, see `parse_cuts`; cuts: cuts by kind, or False for no cuts at all.

    >>> chosen_cuts("pt>30", None)
    {'jet': {'pt': 30.0}}
    """
    if jets is None and leptons is None:
        return cuts
    if not cuts:
        raise ConfigError("cuts on jets or leptons were given together with cuts=False: choose one")
    found: dict[str, Mapping[str, float | None]] = {}
    if jets is not None:
        found[JET] = parse_cuts(jets, "jets")
    if leptons is not None:
        found |= dict.fromkeys(LEPTONS, parse_cuts(leptons, "leptons"))
    return found


def used_cuts(
    given: bool | Bounds, domain: Domain, kinds: Sequence[str], own: Selection | None = None
) -> dict[str, dict[str, float | None]]:
    """The cuts on each kind that decide which objects are used, labelled and selected; None: no cut.

    given    cuts of the user, see `chosen_cuts`; they replace all others
    domain   range of objects that the model was trained on
    own      selection of the decay tree, if objects must pass its cuts too

    >>> used_cuts({"jet": {"pt": 30.0}}, Domain({"jet": KindDomain(20, 4.5)}), ["jet"])
    {'jet': {'pt': 30.0, 'abs_eta': 4.5}}
    >>> used_cuts(True, Domain({"jet": KindDomain(20, 4.5)}), ["jet"], Selection({"jet": Cuts(25, 2.5)}))
    {'jet': {'pt': 25, 'abs_eta': 2.5}}
    """
    if isinstance(given, Mapping) and set(kinds).isdisjoint(given):
        raise ConfigError(
            f"there are cuts on {', '.join(map(collection_name, given))}, but the events have only "
            f"{', '.join(map(collection_name, kinds))}"
        )
    result: dict[str, dict[str, float | None]] = {}
    for kind in kinds:
        trained, cuts = domain[kind], (own or Selection()).cuts(kind)
        usual = {"pt": max(trained.pt, cuts.pt), "abs_eta": min(trained.abs_eta, cuts.abs_eta)}
        chosen = dict.fromkeys(CUTS) if given is False else {} if given is True else given.get(kind, {})
        result[kind] = {name: None if value == inf else value for name, value in (usual | {**chosen}).items()}
    return result


def as_cuts(bounds: Bounds) -> dict[str, Cuts]:
    """Bounds as the cuts of a selection.

    >>> str(Selection(as_cuts({"jet": {"pt": 25.0, "abs_eta": None}})))
    'jets pT > 25 GeV'
    """

    def cuts(pt: float | None, abs_eta: float | None) -> Cuts:
        return Cuts(-inf if pt is None else pt, inf if abs_eta is None else abs_eta)

    return {kind: cuts(bound.get("pt"), bound.get("abs_eta")) for kind, bound in bounds.items()}


def describe_cuts(used: Bounds, other: Bounds, pile_up: bool) -> str:
    """The cuts that were used, on one line, and how to use the `other` ones; `pile_up`: which of them are which.

    >>> print(describe_cuts({"jet": {"pt": 25, "abs_eta": 2.5}}, {"jet": {"pt": 20, "abs_eta": 4.5}}, True))
    objects used: jets pT > 25 GeV, |eta| < 2.5, as the topology says; --jets "pt>20,abs_eta<4.5" uses more
    """
    line = f"objects used: {Selection(as_cuts(used))}"
    flags = {"leptons" if kind in LEPTONS else "jets": other[kind] for kind in other if other[kind] != used[kind]}
    if not flags:
        return line

    def text(cuts: Mapping[str, float | None]) -> str:
        return ",".join(f"{name}{CUTS[name]}{value:g}" for name, value in cuts.items() if value) or "none"

    choice = " ".join(f'--{option} "{text(cuts)}"' for option, cuts in flags.items())
    if pile_up:
        return f"{line}, as the topology says; {choice} uses more"
    return f"{line}, as in the training, since these events were prepared; {choice} uses those of the topology"


def cut_domain(domain: Domain, cuts: bool | Bounds, kinds: Iterable[str]) -> Domain:
    """The domain with the cuts on pT and |eta| of `used_cuts`."""
    used = as_cuts(used_cuts(cuts, domain, tuple(kinds)))
    return Domain({k: replace(domain[k], pt=each.pt, abs_eta=each.abs_eta) for k, each in used.items()})
