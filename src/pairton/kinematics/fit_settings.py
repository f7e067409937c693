"""The settings of a kinematic fit, from a YAML file: masses and widths, tag rates, transfer functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pairton._common.configuration import check_keys, configure, parse_yaml, read_yaml, sensible
from pairton.errors import ConfigError, ModelError, shown
from pairton.kinematics.transfer_functions import Transfer, parse_transfer
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
STARTS = ("several", "klfitter")
EVIDENCE_TAGS, NO_TAGS = "evidence", "none"
MOST_PERMUTATIONS = 10_000
PLAIN = (
    "tags",
    "jet_mass",
    "other_jets",
    "neutrino_eta",
    "starts",
    "integrate",
    "permutations",
)  # settings of one value


@dataclass(frozen=True)
class Mass:
    """The mass of a particle and its width, GeV."""

    mass: float
    width: float
    free: bool = False  # whether the fit varies it, in common for all particles with this entry


@dataclass(frozen=True)
class TagRates:
    """How often jets are b-tagged: jets from b quarks with `efficiency`, others with 1 / `rejection`."""

    efficiency: float = 0.7
    rejection: float = 125.0


@dataclass(frozen=True)
class FitSettings:
    """Everything that a kinematic fit needs besides the topology and the events."""

    masses: Mapping[int | str, Mass | None]  # PDG code or name of a type; None: the mass is not used
    transfer: Transfer
    tags: TagRates | str = EVIDENCE_TAGS  # how b-tags enter: "evidence", fixed rates, or "none"
    jet_mass: float = 4.7  # GeV, of jets from b quarks; other jets and leptons are massless
    other_jets: float = 0.0  # the pT density of jets that are no decay products falls with this power of pT
    neutrino_eta: float = 1.2  # width of the prior of the neutrinos' eta, for two or more neutrinos
    starts: str = "several"  # starting points of the maximisation; "klfitter": the single one of KLFitter
    integrate: bool = True  # compare integrals of the likelihood around its maxima; False: the maxima
    permutations: int = 100  # permutations to fit per event, if root particles are not independent
    about: str = ""

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
        fixed = {key: mass and replace(mass, free=False) for key, mass in self.masses.items()}
        return replace(self, masses=fixed)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `parse_settings` reads back."""
        raw: dict[str, Any] = {"about": self.about} if self.about else {}
        raw["masses"] = {key: None if mass is None else _plain_mass(mass) for key, mass in self.masses.items()}
        tags = self.tags if isinstance(self.tags, str) else asdict(self.tags)
        raw |= {
            "jet_mass": self.jet_mass,
            "other_jets": self.other_jets,
            "neutrino_eta": self.neutrino_eta,
            "tags": tags,
        }
        raw |= {"starts": self.starts, "integrate": self.integrate, "permutations": self.permutations}
        return raw | {"transfer": self.transfer.to_dict()}


def _plain_mass(mass: Mass) -> dict[str, Any]:
    return {"mass": mass.mass, "width": mass.width} | ({"free": True} if mass.free else {})


def parse_settings(raw: object, source: str) -> FitSettings:
    """Settings from parsed YAML; entries that are not given are taken from the built-in settings.

    >>> parse_settings({"masses": {6: {"mass": 172.5, "width": 1.5, "free": True}}}, "fit.yaml").masses[6].free
    True
    """
    built_in = None if source == BUILT_IN else load_settings()
    given = check_keys(raw, source, FitSettings.__dataclass_fields__)
    if built_in is not None:
        given = {name: getattr(built_in, name) for name in PLAIN} | given
    with sensible(source):
        masses: dict[int | str, Mass | None] = {} if built_in is None else dict(built_in.masses)
        for key, entry in dict(given.get("masses", {})).items():
            if not (isinstance(key, int) and key > 0) and not (isinstance(key, str) and key.isidentifier()):
                raise ConfigError(
                    f"{source}.masses has {shown(key)}: give PDG codes, such as 6, or names of particles"
                )
            masses[key] = None if entry is None else configure(Mass, entry, f"{source}.masses.{key}")
        given["masses"] = masses
        if "transfer" in given or built_in is None:
            given["transfer"] = parse_transfer(given.get("transfer"), f"{source}.transfer")
        else:
            given["transfer"] = built_in.transfer
        if not isinstance(given.setdefault("tags", EVIDENCE_TAGS), str | TagRates):
            given["tags"] = configure(TagRates, given["tags"], f"{source}.tags")
    settings = configure(FitSettings, given, source)
    _check(settings, source)
    return settings


def _check(settings: FitSettings, source: str) -> None:
    for key, mass in settings.masses.items():
        if mass is not None and not (0 < mass.mass < math.inf and 0 < mass.width < math.inf):
            raise ConfigError(
                f"{source}.masses.{key}: mass and width must be above 0, not {mass.mass}, {mass.width}"
            )
    tags = settings.tags
    if isinstance(tags, str):
        if tags not in (EVIDENCE_TAGS, NO_TAGS):
            raise ConfigError(
                f"{source}.tags is {tags!r}: choose {EVIDENCE_TAGS}, {NO_TAGS}, or {{efficiency: E, rejection: R}}"
            )
    elif not 0 <= tags.efficiency <= 1 or not tags.rejection >= 1:
        raise ConfigError(
            f"{source}.tags: the efficiency must lie between 0 and 1 and the rejection be at least 1, not "
            f"{tags.efficiency} and {tags.rejection}"
        )
    for name in ("jet_mass", "neutrino_eta", "other_jets"):
        if not 0 <= getattr(settings, name) < math.inf:
            raise ConfigError(f"{source}.{name} is {getattr(settings, name)}, but must be 0 or more")
    if settings.starts not in STARTS:
        raise ConfigError(f"{source}.starts is {settings.starts!r}: choose one of {', '.join(STARTS)}")
    if not 1 <= settings.permutations <= MOST_PERMUTATIONS:
        raise ConfigError(
            f"{source}.permutations is {settings.permutations}, but must lie between 1 and {MOST_PERMUTATIONS}"
        )


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
    if "generator" in metadata or settings["transfer"] != load_settings().transfer.to_dict():
        return ""
    return (
        "the transfer functions of the kinematic fit describe the detector of Pairton's generator, and the "
        "probabilities may be far too high for these events: measure yours in your simulation with `pairton "
        "transfer`, and use the new YAML file as the model"
    )
