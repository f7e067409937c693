"""Inputs of a network for each kind of object: its four-momentum, and the fields that a recipe lists.

    inputs:
      jet: [btag]
      lepton: [charge, {field: isolation, transform: log}]

A model stores its inputs, readers of files provide the fields, and the network transforms a field x to
(f(x) - offset) / scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pairton.errors import ConfigError, nearest, shown
from pairton.topology import Topology
from pairton.topology.kinds import KINDS

__all__ = ["EVIDENCE", "MOMENTUM", "TRANSFORMS", "Input", "Inputs"]

MOMENTUM = ("pt", "eta", "phi", "energy")  # GeV and radians
# log: log(1 + x), for x >= 0; normalize: to mean 0 and standard deviation 1 in the training events
TRANSFORMS = ("none", "log", "normalize", "log_normalize")
EVIDENCE = ("b_evidence", "c_evidence")  # fields of jets, computed in `pairton.events.tags`


@dataclass(frozen=True)
class Input:
    """One field of an object, and how the network transforms it."""

    field: str
    transform: str = "none"
    offset: float = 0.0
    scale: float = 1.0

    @property
    def measures(self) -> bool:
        """Whether offset and scale are measured on the training events."""
        return self.transform.endswith("normalize")

    def to_dict(self) -> dict[str, Any] | str:
        """Plain data as in a recipe: the name alone if the field is not transformed."""
        if self == Input(self.field):
            return self.field
        return asdict(self)


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

    def columns(self, kind: str) -> tuple[str, ...]:
        """The columns of an object in the input of the network."""
        return (*MOMENTUM, *self.fields(kind))

    def to_dict(self) -> dict[str, list[Any]]:
        return {kind: [item.to_dict() for item in items] for kind, items in self.by_kind}

    @classmethod
    def default(cls, topology: Topology) -> Inputs:
        """The four-momentum of all kinds, and the b-tag of jets."""
        return cls.parse({}, topology)

    @classmethod
    def parse(cls, raw: object, topology: Topology, source: str = "inputs") -> Inputs:
        """Read plain data, as from YAML or JSON; kinds that are not listed get their default fields."""
        if not isinstance(raw, Mapping):
            raise ConfigError(f"{source} is {shown(raw)}, but must map kinds of objects to lists of fields")
        for kind in raw:
            if kind not in topology.kinds:
                known = ", ".join(topology.kinds)
                raise ConfigError(
                    f"{source} lists {shown(kind)}, but the kinds of {topology.name} are {known}"
                    f"{nearest(str(kind), topology.kinds)}"
                )
        given = {kind: raw.get(kind, KINDS[kind].inputs) for kind in topology.kinds}
        return cls(tuple((kind, _parse_kind(items, f"{source}.{kind}")) for kind, items in given.items()))


def _parse_kind(raw: object, source: str) -> tuple[Input, ...]:
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise ConfigError(f"{source} is {shown(raw)}, but must be a list of fields, as in [btag]")
    items: list[Input] = []
    for entry in raw:
        settings = {"field": entry} if isinstance(entry, str) else entry
        if not isinstance(settings, Mapping) or not isinstance(settings.get("field"), str):
            raise ConfigError(
                f"{source} has {shown(entry)}, but each entry must be a name, or {{field: NAME, transform: log}}"
            )
        for key in settings:
            if key not in Input.__dataclass_fields__:
                hint = nearest(str(key), Input.__dataclass_fields__)
                hint = hint or f": it has {', '.join(Input.__dataclass_fields__)}"
                raise ConfigError(f"{source}.{settings['field']} has no setting {shown(key)}{hint}")
        try:
            numbers = {key: float(settings[key]) for key in ("offset", "scale") if key in settings}
        except (TypeError, ValueError):
            raise ConfigError(f"{source}.{settings['field']}: offset and scale must be numbers") from None
        item = Input(str(settings["field"]), str(settings.get("transform", "none")), **numbers)
        if item.transform not in TRANSFORMS:
            known = ", ".join(TRANSFORMS)
            raise ConfigError(f"{source}.{item.field} has the transform {shown(item.transform)}: choose {known}")
        if not 0 < abs(item.scale) < float("inf"):
            raise ConfigError(f"{source}.{item.field} has the scale {item.scale:g}, but must not be 0 or infinite")
        if item.field in MOMENTUM or item.field in [other.field for other in items]:
            raise ConfigError(
                f"{source} lists {item.field}, which is an input already (pt, eta, phi and energy always are): "
                "remove it"
            )
        items.append(item)
    return tuple(items)
