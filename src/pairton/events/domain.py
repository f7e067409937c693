"""The domain of a model: the range of objects it was trained on, and cuts that a user chooses instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from pairton._common.configuration import configure
from pairton.errors import ConfigError, ModelError
from pairton.topology import JET, Topology
from pairton.topology.kinds import LEPTONS, collection_name, counted
from pairton.topology.selection import Cuts, Selection

__all__ = ["Bounds", "Domain", "KindDomain", "as_cuts", "describe_cuts", "parse_cuts", "used_cuts", "user_cuts"]

Bounds = Mapping[str, Mapping[str, float | None]]  # kind -> cuts on pt and abs_eta; None: no cut
CUTS = {"pt": ">", "abs_eta": "<"}  # quantity -> direction of the cut
CUT = re.compile(r"\s*(\S+?)\s*([<>])=?\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*")
SPELLINGS = {"abs(eta)": "abs_eta", "|eta|": "abs_eta"}


@dataclass(frozen=True)
class KindDomain(Cuts):
    """The range of objects of one kind that a model was trained on."""

    count: tuple[int, int] = (0, 1_000_000)  # fewest and most per event
    radius: float | None = None  # radius parameter of jets; None: unknown
    binary: tuple[str, ...] = ()  # fields that were always 0 or 1


@dataclass(frozen=True)
class Domain:
    """The range of objects that a model was trained on; its answers cannot be relied on outside it."""

    kinds: Mapping[str, KindDomain] = field(default_factory=dict)

    def __getitem__(self, kind: str) -> KindDomain:
        """The domain of a kind; without bounds if nothing is known."""
        return self.kinds.get(kind, KindDomain())

    def __str__(self) -> str:
        """Numbers of objects: 6 to 16 jets, 1 lepton."""
        bounds = {kind: dict.fromkeys(map(str, domain.count)) for kind, domain in self.kinds.items()}
        return ", ".join(counted(" to ".join(numbers), kind) for kind, numbers in bounds.items())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; None stands for infinity, which JSON does not have."""
        return {
            kind: {name: None if value == inf else value for name, value in asdict(domain).items()}
            for kind, domain in self.kinds.items()
        }

    @classmethod
    def from_dict(cls, raw: object, source: str = "domain") -> Domain:
        if isinstance(raw, Mapping):  # None stands for infinity
            raw = {kind: _without_none(part) for kind, part in raw.items()}
        return cls(configure(dict[str, KindDomain], raw, source, ModelError))

    @classmethod
    def of_selection(cls, topology: Topology) -> Domain:
        """The cuts of a topology's selection."""
        cuts = {kind: topology.selection.cuts(kind) for kind in topology.kinds}
        return cls({kind: KindDomain(cut.pt, cut.abs_eta) for kind, cut in cuts.items()})


def _without_none(part: Any) -> Any:
    return {k: v for k, v in part.items() if v is not None} if isinstance(part, Mapping) else part


def parse_cuts(text: str, option: str = "jets") -> dict[str, float | None]:
    """Read the cuts of `--jets` and `--leptons`: `pt>30,abs_eta<2.4`, or `none`.

    >>> parse_cuts("pt > 30, |eta| < 2.4"), parse_cuts("none")
    ({'pt': 30.0, 'abs_eta': 2.4}, {'pt': None, 'abs_eta': None})
    """
    if text.strip().lower() == "none":
        return dict.fromkeys(CUTS)
    cuts: dict[str, float | None] = {}
    for part in text.split(","):
        match = CUT.fullmatch(part)
        name, sign, value = match.groups() if match else (part, "", "0")
        name, number = SPELLINGS.get(name, name), float(value)
        if CUTS.get(name) != sign or name in cuts or number == inf:
            raise ConfigError(
                f"{option} {text!r}: write cuts as in pt>30,abs_eta<2.4 (pt in GeV), each at most once, or none"
            )
        cuts[name] = number
    return cuts


def user_cuts(jets: str | None, leptons: str | None, cuts: bool | Bounds = True) -> bool | Bounds:
    """The cuts that a user chose: as text for jets and leptons, or else `cuts`; False: none at all."""
    if jets is None and leptons is None:
        return cuts
    if not cuts:
        raise ConfigError("cuts on jets or leptons were given together with cuts=False: choose one")
    by_kind = {} if jets is None else {JET: parse_cuts(jets, "jets")}
    return by_kind if leptons is None else by_kind | dict.fromkeys(LEPTONS, parse_cuts(leptons, "leptons"))


def used_cuts(
    user: bool | Bounds, domain: Domain, kinds: Sequence[str], own: Selection | None = None
) -> dict[str, dict[str, float | None]]:
    """The cuts on each kind that decide which objects are used, labelled and selected; None: no cut.

    user     cuts of the user, see `user_cuts`; they replace all others
    domain   range of objects that the model was trained on
    own      selection of the decay tree, if objects must pass its cuts too

    >>> used_cuts({"jet": {"pt": 30.0}}, Domain({"jet": KindDomain(20, 4.5)}), ["jet"])
    {'jet': {'pt': 30.0, 'abs_eta': 4.5}}
    """
    if isinstance(user, Mapping) and set(kinds).isdisjoint(user):
        raise ConfigError(
            f"there are cuts on {', '.join(map(collection_name, user))}, but the events have only "
            f"{', '.join(map(collection_name, kinds))}"
        )
    result: dict[str, dict[str, float | None]] = {}
    for kind in kinds:
        trained, cuts = domain[kind], (own or Selection()).cuts(kind)
        usual = {"pt": max(trained.pt, cuts.pt), "abs_eta": min(trained.abs_eta, cuts.abs_eta)}
        asked = dict.fromkeys(CUTS) if user is False else {} if user is True else user.get(kind, {})
        result[kind] = {name: None if value == inf else value for name, value in (usual | {**asked}).items()}
    return result


def as_cuts(bounds: Bounds) -> dict[str, Cuts]:
    """Bounds as the cuts of a selection."""
    unbounded = {"pt": -inf, "abs_eta": inf}
    return {
        kind: Cuts(**unbounded | {name: value for name, value in cuts.items() if value is not None})
        for kind, cuts in bounds.items()
    }


def describe_cuts(used: Bounds, other: Bounds, pile_up: bool) -> str:
    """The cuts that were used, on one line, and how to use the `other` ones; `pile_up`: which of them are which.

    >>> print(describe_cuts({"jet": {"pt": 25, "abs_eta": 2.5}}, {"jet": {"pt": 20, "abs_eta": 4.5}}, True))
    objects used: jets pT > 25 GeV, |eta| < 2.5, as the topology says; --jets "pt>20,abs_eta<4.5" uses more
    """
    line = f"objects used: {Selection(as_cuts(used))}"
    flags = {"leptons" if kind in LEPTONS else "jets": cuts for kind, cuts in other.items() if cuts != used[kind]}
    if not flags:
        return line
    texts = {
        flag: ",".join(f"{name}{CUTS[name]}{value:g}" for name, value in cuts.items() if value) or "none"
        for flag, cuts in flags.items()
    }
    choice = " ".join(f'--{flag} "{text}"' for flag, text in texts.items())
    if pile_up:
        return f"{line}, as the topology says; {choice} uses more"
    return f"{line}, as in the training, since these events were prepared; {choice} uses those of the topology"
