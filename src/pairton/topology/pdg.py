"""PDG codes for the names in a topology, and the mass and charge for a code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from pairton._common.configuration import parse_yaml

if TYPE_CHECKING:
    from pairton.topology.tree import Topology

__all__ = [
    "Codes",
    "Properties",
    "codes_of",
    "pdg_codes",
    "pdg_properties",
    "properties_of",
    "systems_of",
    "unknown_names",
]

Codes = Mapping[str, Sequence[int]]


class Properties(NamedTuple):
    """Mass and charge of the particle with a PDG code."""

    code: int
    mass: float  # GeV
    charge: float  # of the particle with the positive code


@cache
def pdg_codes() -> Codes:
    """Default PDG codes, without sign, for the names in topologies.

    >>> pdg_codes()["H"]
    [25]
    """
    text = (resources.files("pairton.topology") / "pdg.yaml").read_text("utf-8")
    codes: dict[str, list[int]] = parse_yaml(text, "pdg.yaml")
    return codes


@cache
def pdg_properties() -> Mapping[int, Properties]:
    """Masses and charges by PDG code.

    >>> pdg_properties()[24].mass
    80.37
    """
    text = (resources.files("pairton.topology") / "pdg_properties.yaml").read_text("utf-8")
    raw: dict[int, dict[str, float]] = parse_yaml(text, "pdg_properties.yaml")
    return {code: Properties(code, float(row["mass"]), float(row["charge"])) for code, row in raw.items()}


def codes_of(topology: Topology) -> Codes:
    """PDG codes for the names in a topology: its own `codes`, and the defaults for all other names.

    >>> from pairton.topology import load_topology
    >>> codes_of(load_topology("ttbar_semilep"))["tl"]
    (6,)
    """
    return {**pdg_codes(), **dict(topology.codes)}


def properties_of(topology: Topology, name: str) -> Properties | None:
    """Mass and charge for a name; None unless the name stands for exactly one code, and a known one."""
    codes = codes_of(topology).get(name, ())
    return pdg_properties().get(codes[0]) if len(codes) == 1 else None


def systems_of(topology: Topology) -> dict[str, tuple[int, ...]]:
    """Systems of two or more root particles with the same PDG code: name of the system -> their indices.

    >>> from pairton.topology import load_topology
    >>> systems_of(load_topology("ttbar_semilep")), systems_of(load_topology("hh4b"))
    ({'tt': (0, 2)}, {'HH': (0, 1)})
    """
    codes = codes_of(topology)
    names = {code[0]: name for name, code in reversed([*pdg_codes().items()]) if len(code) == 1}
    found: dict[int, list[int]] = {}
    for root in topology.roots:
        root_codes = codes.get(root.type, ())
        if len(root_codes) == 1 and root_codes[0] in pdg_properties() and root_codes[0] in names:
            found.setdefault(root_codes[0], []).append(root.index)
    systems = {names[code] * len(same): tuple(same) for code, same in found.items() if len(same) > 1}
    return {name: same for name, same in systems.items() if name not in topology.types}


def unknown_names(topology: Topology) -> list[str]:
    """Names of the topology without a PDG code. They cannot be found in a generator record."""
    names = {*topology.event, *(name for _, products in topology.decays for name in products)}
    return sorted(names - set(codes_of(topology)))
