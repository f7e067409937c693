"""Kinds of objects: one record for each.

A topology may name any kind (`objects: {y: photon}`). A kind that is not listed here has the defaults of `Kind`;
`register_kind` adds a record.
"""

from __future__ import annotations

from dataclasses import dataclass

from pairton._common.configuration import register

__all__ = ["FATJET", "JET", "KINDS", "LEPTONS", "Kind", "collection_name", "counted", "register_kind"]

JET = "jet"  # the default kind of a product
FATJET = "fatjet"  # large jets


@dataclass(frozen=True)
class Kind:
    """What is known of a kind of object.

    >>> KINDS["met"].transverse, KINDS["electron"].fields, KINDS["fatjet"].plural
    (True, ('charge',), 'fatjets')
    """

    name: str
    plural: str = ""  # by default the name and an s
    transverse: bool = False  # whether it lacks longitudinal momentum
    massless: bool = False  # whether it needs neither energy nor mass
    lepton: bool = False  # whether it is identified, removes jets near it, and obeys `--leptons`
    code: int | None = None  # PDG code, if a file may merge it with other leptons
    fields: tuple[str, ...] = ()  # read if a file has them
    inputs: tuple[str, ...] = ()  # fields that a network takes if its recipe does not list any
    match_radius: float = 0.4  # largest delta R of an object from its particle
    overlap: float = 0.0  # jets within this delta R of it are not used
    radius: float = 0.0  # jets within this delta R of it are parts of it: if it is used, they are not

    def __post_init__(self) -> None:
        object.__setattr__(self, "plural", self.plural or f"{self.name}s")


class _Kinds(dict[str, Kind]):
    def __missing__(self, name: str) -> Kind:
        return Kind(name)


KINDS = _Kinds()


def register_kind(kind: Kind) -> None:
    """Add a kind of object; ConfigError if there already is one of this name."""
    register(KINDS, kind.name, kind, "kind of object")


for _kind in (
    Kind(JET, fields=("btag",), inputs=("btag",)),
    Kind("lepton", lepton=True, massless=True, fields=("charge", "flavour", "pdgid"), overlap=0.4),
    Kind("electron", lepton=True, massless=True, code=11, fields=("charge",), overlap=0.4),
    Kind("muon", lepton=True, massless=True, code=13, fields=("charge",), overlap=0.4),
    Kind("tau", fields=("charge",)),
    Kind(FATJET, fields=("msoftdrop", "tau21", "tau32"), match_radius=1.0, radius=1.0),
    Kind("photon", massless=True),
    Kind("met", plural="met", transverse=True, massless=True),
):
    register_kind(_kind)

LEPTONS = tuple(name for name, kind in KINDS.items() if kind.lepton)


def collection_name(kind: str) -> str:
    """The plural of a kind."""
    return KINDS[kind].plural


def counted(number: object, kind: str) -> str:
    """A number of objects in words.

    >>> counted(1, "lepton"), counted("3 to 5", "jet")
    ('1 lepton', '3 to 5 jets')
    """
    return f"{number} {kind if str(number) == '1' else collection_name(kind)}"
