"""Inputs of a network for each kind of object: its four-momentum, and the fields that a recipe lists.

    inputs:
      jet: [btag]
      lepton: [charge, {field: isolation, transform: log}]

A model stores its inputs, readers of files provide the fields, and the network transforms a field x to
(f(x) - offset) / scale.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from pairton._common.configuration import check_keys, configure
from pairton.errors import ConfigError
from pairton.topology import Topology
from pairton.topology.kinds import KINDS

__all__ = ["COMPUTED", "CUTS", "EVIDENCE", "LARGE_EVIDENCE", "MOMENTUM", "Input", "Inputs"]

MOMENTUM = ("pt", "eta", "phi", "energy")  # GeV and radians
# log: log(1 + x), for x >= 0; normalize: to mean 0 and standard deviation 1 in the training events
Transform = Literal["none", "log", "normalize", "log_normalize"]
EVIDENCE = ("b_evidence", "c_evidence")  # fields of jets, computed in `pairton.events.tags`
LARGE_EVIDENCE = ("top_evidence", "wz_evidence", "hbb_evidence")  # of large jets: `pairton.events.large_tags`
CUTS = (
    "cut_pt",
    "cut_abs_eta",
)  # fields of any kind, the cuts that its objects passed: `pairton.events.acceptance`
COMPUTED = (*EVIDENCE, *LARGE_EVIDENCE, *CUTS)


@dataclass(frozen=True)
class Input:
    """One field of an object, and how the network transforms it."""

    field: str
    transform: Transform = "none"
    offset: float = 0.0
    scale: float = 1.0

    @property
    def measures(self) -> bool:
        """Whether offset and scale are measured on the training events."""
        return self.transform.endswith("normalize")


@dataclass(frozen=True)
class Inputs:
    """The inputs of each kind, in the order of the topology's kinds.

    >>> from pairton.topology import load_topology
    >>> inputs = Inputs.parse({"jet": ["btag", {"field": "width", "transform": "log"}]}, load_topology("hh4b"))
    >>> inputs.columns("jet")
    ('pt', 'eta', 'phi', 'energy', 'btag', 'width')
    """

    by_kind: tuple[tuple[str, tuple[Input, ...]], ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind, _ in self.by_kind)

    def __getitem__(self, kind: str) -> tuple[Input, ...]:
        return dict(self.by_kind)[kind]

    def fields(self, kind: str) -> tuple[str, ...]:
        """The fields beyond the four-momentum."""
        return tuple(item.field for item in self[kind])

    def of(self, topology: Topology) -> Inputs:
        """The inputs of the kinds of a topology."""
        return Inputs(tuple((kind, self[kind]) for kind in topology.kinds))

    def columns(self, kind: str) -> tuple[str, ...]:
        """The columns of an object in the input of the network."""
        return (*MOMENTUM, *self.fields(kind))

    def to_dict(self) -> dict[str, list[Any]]:
        return {
            kind: [item.field if item == Input(item.field) else asdict(item) for item in items]
            for kind, items in self.by_kind
        }

    @classmethod
    def default(cls, topology: Topology) -> Inputs:
        return cls.parse({}, topology)

    @classmethod
    def parse(cls, raw: object, topology: Topology, source: str = "inputs") -> Inputs:
        """Read plain data, as from YAML or JSON; kinds that are not listed get their default fields."""
        given = check_keys(raw, source, topology.kinds)
        given = {kind: given.get(kind, KINDS[kind].inputs) for kind in topology.kinds}
        return cls(tuple((kind, _parse_kind(items, f"{source}.{kind}")) for kind, items in given.items()))


def _parse_kind(raw: object, source: str) -> tuple[Input, ...]:
    if isinstance(raw, list | tuple):
        raw = [{"field": entry} if isinstance(entry, str) else entry for entry in raw]
    items = configure(list[Input], raw, source)
    for k, item in enumerate(items):
        if not 0 < abs(item.scale) < float("inf"):
            raise ConfigError(f"{source}.{item.field} has the scale {item.scale:g}, but must not be 0 or infinite")
        if item.field in MOMENTUM or item.field in [other.field for other in items[:k]]:
            raise ConfigError(f"{source} lists {item.field}, which is an input already: remove it")
    return tuple(items)
