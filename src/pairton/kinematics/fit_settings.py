"""The settings of a kinematic fit, from a YAML file: masses and widths, tag rates, transfer functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from pairton._common.configuration import configure, parse_yaml, read_yaml
from pairton.errors import ModelError
from pairton.kinematics.transfer_functions import NotNegative, Positive, Transfer, parse_transfer
from pairton.topology import Topology
from pairton.topology.pdg import codes_of

__all__ = [
    "BUILT_IN",
    "EVIDENCE_TAGS",
    "NO_TAGS",
    "FitSettings",
    "Mass",
    "TagRates",
    "load_settings",
    "parse_settings",
    "transfer_caveat",
]

BUILT_IN = "kinematic"  # name of the built-in settings
EVIDENCE_TAGS, NO_TAGS = "evidence", "none"

Code = Annotated[int, Meta(gt=0, description="a PDG code, such as 6,")]
Name = Annotated[str, Meta(pattern=r"^[^\W\d]\w*$", description="the name of a particle")]


class Mass(Struct, frozen=True, omit_defaults=True):
    """The mass of a particle and its width, GeV."""

    mass: Positive
    width: Positive
    free: bool = False  # whether the fit varies it, in common for all particles with this entry


class TagRates(Struct, frozen=True):
    """How often jets are b-tagged: jets from b quarks with `efficiency`, others with 1 / `rejection`."""

    efficiency: Annotated[float, Meta(ge=0, le=1)] = 0.7
    rejection: Annotated[float, Meta(ge=1)] = 125.0


class FitSettings(Struct, frozen=True, kw_only=True):
    """Everything that a kinematic fit needs besides the topology and the events."""

    about: str = ""
    masses: dict[Code | Name, Mass | None]  # PDG code or name of a type; None: the mass is not used
    jet_mass: NotNegative = 4.7  # GeV, of jets from b quarks; other jets and leptons are massless
    other_jets: NotNegative = 0.0  # the pT density of jets that are no decay products falls with this power of pT
    neutrino_eta: NotNegative = 1.2  # width of the prior of the neutrinos' eta, for two or more neutrinos
    tags: TagRates | Literal["evidence", "none"] = "evidence"  # how b-tags enter
    starts: Literal["several", "klfitter"] = "several"  # of the maximisation; "klfitter": its single one
    integrate: bool = True  # compare integrals of the likelihood around its maxima; False: the maxima
    permutations: Annotated[int, Meta(ge=1, le=10_000)] = 100  # to fit per event, if roots are not independent
    transfer: Transfer

    def mass_of(self, topology: Topology, type_name: str) -> tuple[int | str, Mass | None]:
        """The entry of a type, its name or its PDG code, and its mass; None if it is not to be used."""
        codes = tuple(codes_of(topology).get(type_name, ()))
        keys: list[int | str] = [type_name, *(codes if len(codes) == 1 else ())]
        for key in keys:
            if key in self.masses:
                return key, self.masses[key]
        raise ModelError(
            f"a kinematic fit needs the mass of {type_name} of {topology.name}: give its PDG code under `codes:` "
            f"of the topology, or add it to `masses:` of the settings, as in {type_name}: "
            f"{{mass: 125, width: 2}}, or {type_name}: null to ignore the mass"
        )

    def with_fixed_masses(self) -> FitSettings:
        """The same settings without free masses."""
        return replace(self, masses={key: mass and replace(mass, free=False) for key, mass in self.masses.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `parse_settings` reads back."""
        plain: dict[str, Any] = to_builtins(self)
        return {name: value for name, value in plain.items() if value or name != "about"}


def parse_settings(raw: object, source: str) -> FitSettings:
    """Settings from parsed YAML; entries that are not given are taken from the built-in settings.

    >>> parse_settings({"masses": {6: {"mass": 172.5, "width": 1.5, "free": True}}}, "fit.yaml").masses[6].free
    True
    """
    if isinstance(raw, Mapping):
        known = {} if source == BUILT_IN else load_settings().to_dict() | {"about": ""}
        raw = {**known, **raw}
        if "masses" in known and isinstance(raw["masses"], Mapping):
            raw["masses"] = {**known["masses"], **raw["masses"]}
        if "transfer" in raw:
            raw["transfer"] = to_builtins(parse_transfer(raw["transfer"], f"{source}.transfer"))
    return configure(FitSettings, raw, source)


@cache
def _built_in() -> FitSettings:
    text = (resources.files("pairton.kinematics") / f"{BUILT_IN}.yaml").read_text("utf-8")
    return parse_settings(parse_yaml(text, BUILT_IN), BUILT_IN)


def load_settings(name: str | Path = BUILT_IN) -> FitSettings:
    """The built-in settings, or those of a YAML file.

    >>> load_settings().masses[24]
    Mass(mass=80.4, width=2.1, free=False)
    """
    return _built_in() if str(name) == BUILT_IN else parse_settings(read_yaml(name), str(name))


def transfer_caveat(settings: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """A warning if settings (as plain data) have the built-in transfer functions, and events another detector.

    >>> transfer_caveat(load_settings().to_dict(), {"generator": {"seed": 1}})
    ''
    """
    if "generator" in metadata or settings["transfer"] != load_settings().to_dict()["transfer"]:
        return ""
    return (
        "the transfer functions of the kinematic fit describe the detector of Pairton's generator, and the "
        "probabilities may be far too high for these events: measure yours in your simulation with `pairton "
        "measure transfer`, and use the new YAML file as the model"
    )
