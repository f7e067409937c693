"""SPANet's event files: inputs, particles with products, permutations, regressions and classifications.

    INPUTS:
      SEQUENTIAL:
        Jets: {pt: log_normalize, eta: normalize, phi: normalize, mass: log_normalize, btag: none}
    EVENT:
      t1: [q1, q2, b]
      t2: [q1, q2, b]
    PERMUTATIONS: {EVENT: [[t1, t2]], t1: [[q1, q2]], t2: [[q1, q2]]}

`SpanetEvent` holds the content of such a file; `spanet_tree.tree_of` converts it to a topology.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import Any, Literal

import msgspec

from pairton._common.configuration import configure, read_yaml
from pairton.errors import TopologyError, nearest, shown
from pairton.topology.kinds import JET
from pairton.topology.reading import builtin_topologies

__all__ = [
    "MOMENTUM_FEATURES",
    "Feature",
    "InputGroup",
    "Product",
    "Quantity",
    "SpanetEvent",
    "is_spanet_event",
    "load_spanet_event",
    "parse_spanet_event",
]

FORMS = ("SEQUENTIAL", "GLOBAL", "RELATIVE")
LOSSES = ("gaussian", "laplacian", "log_gaussian")
WHOLE, PARTICLE = "EVENT", "PARTICLE"
JET_GROUPS = ("source", "jets", "jet", "momenta")
MET_GROUPS = ("met", "missingenergy", "missinget", "etmiss", "puppimet")
LEPTONS = {"l": "lepton", "lep": "lepton", "e": "electron", "el": "electron", "mu": "muon"} | {
    name: name for name in ("lepton", "electron", "muon", "tau", "photon")
}  # product -> kind, if the file does not name the input of the product
# features that are components of the four-momentum
MOMENTUM_FEATURES = frozenset(
    ("pt", "met", "eta", "phi", "sin_phi", "cos_phi", "sinphi", "cosphi", "mass", "m", "energy", "e")
)

Option = Literal["none", "log", "normalize", "log_normalize"]
Parts = dict[str, list[str | list[str]] | None]  # PARTICLE or a product -> names; of a regression also its loss
Quantities = dict[str, list[str | list[str] | Parts] | Parts | None]


class Sections(msgspec.Struct):
    """The plain data of an event file."""

    INPUTS: dict[str, dict[str, dict[str, Option | bool | None] | None] | None]
    EVENT: dict[str, list[str | dict[str, str]]]
    PERMUTATIONS: dict[str, list[list[str | list[str]]] | None] | None = None
    REGRESSIONS: Quantities | None = None
    CLASSIFICATIONS: Quantities | None = None


@dataclass(frozen=True)
class Feature:
    """One feature of an input, and how SPANet transforms it."""

    name: str
    log: bool = False  # x -> log(1 + x)
    normalize: bool = False  # then to mean 0 and standard deviation 1


@dataclass(frozen=True)
class InputGroup:
    """A group of INPUTS: a collection of objects, or one vector per event."""

    name: str  # "Jets"
    form: str  # SEQUENTIAL, GLOBAL, RELATIVE
    features: tuple[Feature, ...]
    kind: str  # as in a topology: "jet"

    @property
    def has_momentum(self) -> bool:
        """Whether it has a transverse momentum and a direction. A group without them has no objects."""
        names = {feature.name for feature in self.features}
        angle = "phi" in names or {"sin_phi", "cos_phi"} <= names or {"sinphi", "cosphi"} <= names
        return bool(names & {"pt", "met"}) and angle


@dataclass(frozen=True)
class Product:
    """A decay product, and the kind of its object."""

    name: str
    kind: str


@dataclass(frozen=True)
class Quantity:
    """A target of a regression or classification: of the event, of a particle or of a product."""

    owner: str  # EVENT, t1/PARTICLE, t1/b
    name: str  # signal
    loss: str | None = None  # of a regression: gaussian, laplacian, log_gaussian; None: a classification

    @property
    def path(self) -> str:
        """Its name in SPANet's files: EVENT/signal."""
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True)
class SpanetEvent:
    """The content of an event file."""

    name: str
    inputs: tuple[InputGroup, ...]  # in the order of the file
    particles: Mapping[str, tuple[Product, ...]]
    classes: Mapping[str, tuple[tuple[int, ...], ...]]  # "EVENT" or a particle -> positions that may be exchanged
    joined: bool  # targets index the objects of all inputs as one list
    regressions: tuple[Quantity, ...] = ()
    classifications: tuple[Quantity, ...] = ()

    def group(self, kind: str) -> InputGroup:
        """The input group of a kind."""
        return next(group for group in self.inputs if group.kind == kind)


def load_spanet_event(path: str | Path) -> SpanetEvent | None:
    """The content of a SPANet event file; None if the path is not one, for example the name of a topology."""
    if str(path) in builtin_topologies() or not os.path.isfile(path):
        return None
    raw = read_yaml(path, TopologyError)
    return parse_spanet_event(raw, Path(path).stem, str(path)) if is_spanet_event(raw) else None


def is_spanet_event(raw: object) -> bool:
    """Whether plain data are an event file of SPANet rather than a topology of Pairton."""
    return isinstance(raw, Mapping) and "EVENT" in raw and "INPUTS" in raw


def parse_spanet_event(raw: Mapping[str, Any], name: str, source: str) -> SpanetEvent:
    """Read plain data of an event file; `name` becomes the name of the topology, `source` is named in errors."""
    sections = configure(Sections, raw, source, TopologyError)
    for form in sections.INPUTS:
        _one_of(form, FORMS, f"{source}: INPUTS lists")
    inputs = _inputs(sections, source)
    several = [group for group in inputs if group.form != "GLOBAL"]
    if not several:
        raise TopologyError(f"{source}: INPUTS has no SEQUENTIAL input: add the one that has the jets")
    particles: dict[str, tuple[Product, ...]] = {}
    joined = False
    for particle, products in sections.EVENT.items():
        found = [_product(entry, several, f"{source}: EVENT: {particle}") for entry in products]
        names = [product.name for product, _ in found]
        if odd := [name for name in (particle, *names) if not name.isidentifier()]:
            raise TopologyError(
                f"{source}: EVENT: read {shown(odd[0])}, but a name may only have letters, digits and _: rename it"
            )
        if not names or len(set(names)) < len(names):
            raise TopologyError(f"{source}: EVENT: {particle} reads {names}, but must list each product once")
        joined |= len(several) > 1 and any(unspecified for _, unspecified in found)
        particles[particle] = tuple(product for product, _ in found)
    if not particles:
        raise TopologyError(f"{source}: EVENT has no particle: add one, for example t1: [q1, q2, b]")
    return SpanetEvent(
        name,
        inputs,
        particles,
        _permutations(sections.PERMUTATIONS or {}, particles, f"{source}: PERMUTATIONS"),
        joined,
        _quantities(sections.REGRESSIONS or {}, particles, f"{source}: REGRESSIONS", LOSSES),
        _quantities(sections.CLASSIFICATIONS or {}, particles, f"{source}: CLASSIFICATIONS"),
    )


def _one_of(name: object, allowed: Sequence[str], where: str) -> None:
    """Raise TopologyError if a name is not among the allowed ones; `where` it stands, in words."""
    if name not in allowed:
        hint = nearest(str(name), allowed)
        raise TopologyError(f"{where} {shown(name)}, but there are {', '.join(allowed)}{hint}")


# -- INPUTS and EVENT --------------------------------------------------------------------------------------


def _inputs(sections: Sections, source: str) -> tuple[InputGroup, ...]:
    groups = [
        InputGroup(name, form, tuple(starmap(_feature, (features or {}).items())), _kind(name))
        for form, members in sections.INPUTS.items()
        for name, features in (members or {}).items()
    ]
    several = [k for k, group in enumerate(groups) if group.form != "GLOBAL"]
    if len(several) == 1:  # the only collection has the jets, whatever its name
        groups[several[0]] = replace(groups[several[0]], kind=JET)
    for attribute in ("name", "kind"):
        values = [getattr(group, attribute) for group in groups]
        if twice := [value for value in values if values.count(value) > 1]:
            names = ", ".join(group.name for group in groups if getattr(group, attribute) == twice[0])
            raise TopologyError(
                f"{source}: INPUTS has two groups with the {attribute} {twice[0]} ({names}): rename one"
            )
    return tuple(groups)


def _kind(name: str) -> str:
    """The kind of an input group: jet, met, or else its name in lower case, in the singular."""
    plain = name.lower().replace("_", "")
    if plain in JET_GROUPS:
        return JET
    return "met" if plain in MET_GROUPS else plain[:-1] if plain.endswith("s") and len(plain) > 2 else plain


def _feature(name: str, option: str | bool | None) -> Feature:
    text = option if isinstance(option, str) else "normalize" if option else "none"
    return Feature(name, "log" in text, "normalize" in text)


def _product(entry: str | dict[str, str], several: list[InputGroup], source: str) -> tuple[Product, bool]:
    """A product, and whether the file does not specify its input."""
    if isinstance(entry, str):
        wanted = LEPTONS.get(entry.rstrip("0123456789").lower())
        kinds = [group.kind for group in several]
        if wanted in ("electron", "muon") and wanted not in kinds:
            wanted = "lepton"
        first = JET if JET in kinds else kinds[0]
        return Product(entry, wanted if wanted in kinds and wanted is not None else first), True
    if len(entry) != 1:
        raise TopologyError(f"{source} has the product {shown(entry)}, but needs a name, or `name: Input`")
    ((name, group),) = entry.items()
    by_name = {known.name: known.kind for known in several}
    _one_of(group, [*by_name], f"{source}: {name} has the input")
    return Product(name, by_name[group]), False


# -- PERMUTATIONS ------------------------------------------------------------------------------------------


def _permutations(
    given: Mapping[str, list[list[Any]] | None], particles: Mapping[str, tuple[Product, ...]], source: str
) -> dict[str, tuple[tuple[int, ...], ...]]:
    for key in given:
        _one_of(key, [WHOLE, *particles], f"{source} lists")
    names = {WHOLE: list(particles)} | {p: [product.name for product in each] for p, each in particles.items()}
    return {owner: _classes(given.get(owner) or [], names[owner], f"{source}: {owner}") for owner in names}


def _classes(entries: list[list[Any]], names: list[str], source: str) -> tuple[tuple[int, ...], ...]:
    """Positions of names in classes of interchangeable ones, in order, from lists of interchangeable names."""
    together = {name: [name] for name in names}
    for entry in entries:
        same = entry[0] if len(entry) == 1 and isinstance(entry[0], list) else entry  # [[t1, t2]]: one exchange
        if any(isinstance(name, list) for name in same) or (same is not entry and len(same) != 2):
            raise TopologyError(
                f"{source} lists {shown(entry)}, which exchanges several at once, but only lists of names that "
                "may be exchanged with each other are possible, as in [[q1, q2]]"
            )
        for name in same:
            _one_of(name, names, f"{source} lists")
        if len(set(same)) < len(same):
            raise TopologyError(f"{source}: {shown(same)} lists a name twice: list each once")
        joined = [name for name in names if any(name in together[other] for other in same)]
        together |= dict.fromkeys(joined, joined)
    return tuple(dict.fromkeys(tuple(names.index(name) for name in together[each]) for each in names))


# -- REGRESSIONS and CLASSIFICATIONS -----------------------------------------------------------------------


def _quantities(
    given: Quantities, particles: Mapping[str, tuple[Product, ...]], source: str, losses: Sequence[str] = ()
) -> tuple[Quantity, ...]:
    """`losses`: those that an entry may have."""
    found = []
    for key, value in given.items():
        _one_of(key, [WHOLE, *particles], f"{source} lists")
        listed = [value] if isinstance(value, dict) else value or []
        if key == WHOLE:
            found += [_quantity(entry, WHOLE, losses, source) for entry in listed]
            continue
        known = [PARTICLE, *(product.name for product in particles[key])]
        for parts in listed:  # SPANet's documentation has a list of mappings with one key each
            for part, entries in parts.items() if isinstance(parts, dict) else [(parts, [])]:
                _one_of(part, known, f"{source}: {key} lists")
                found += [_quantity(entry, f"{key}/{part}", losses, source) for entry in entries or []]
    return tuple(found)


def _quantity(entry: str | list[str] | Parts, owner: str, losses: Sequence[str], source: str) -> Quantity:
    name, *loss = [entry] if isinstance(entry, str) else list(entry) if losses else [""]
    if not name.isidentifier() or len(loss) > 1 or not set(loss) <= set(losses):
        forms = f"a name, or [name, {' | '.join(losses)}]" if losses else "a name"
        raise TopologyError(f"{source}: read {shown(entry)}, but each entry must be {forms}")
    return Quantity(owner, name, (loss or ["gaussian"])[0] if losses else None)
