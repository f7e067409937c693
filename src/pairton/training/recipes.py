"""Recipes: everything a training needs, as a few sections of YAML; a recipe may build on another with `base`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pairton._common.configuration import check_keys, configure, read_yaml
from pairton.decoding.hyper_decoding import HYPER, check_hyper
from pairton.decoding.set_tables import MAX_SUMS, exact_limit
from pairton.decoding.terms import triplet_types
from pairton.errors import ConfigError, PairtonWarning, shown
from pairton.events.head_specs import HeadSpec, parse_head
from pairton.events.inputs import Inputs
from pairton.events.nodes import MOST_OBJECTS
from pairton.events.tags import load_table
from pairton.network.config import NetworkConfig
from pairton.recipes import find_recipe
from pairton.topology import Topology, load_topology, parse_topology
from pairton.topology.mixtures import mixture
from pairton.topology.reading import load_spanet_event
from pairton.training.event_files import event_defaults

__all__ = [
    "AugmentationConfig",
    "DataConfig",
    "LossConfig",
    "OptimiserConfig",
    "Recipe",
    "RunConfig",
    "load_recipe",
    "parse_recipe",
]

EVENTS = ("complete", "partial", "all")
OUTPUTS = ("edges", "triplets", "patterns")  # of every network
RENAMED = {  # since Pairton 0.1
    "network": {"kind": "architecture"},
    "data": {"max_jets": "max_objects"},
    "loss": {"hyperedges": "triplets"},
}
MOST_DRAWS = 100
MAX_BASES = 8  # recipes that build on one another; more is a circle


@dataclass(frozen=True)
class LossConfig:
    """What is minimised: a weighted sum."""

    masked_edges: float = 1.0  # the paper's: cross-entropy of hidden edges
    event_likelihood: float = 0.0  # - log P(truth) among all assignments
    triplets: float = 0.0  # cross-entropy of triplets, with network.triplets: object_sum
    hyper: float = 0.0  # HyPER's, on hyperedges and edges, with network.triplets: hyper
    hyper_alpha: float = 0.8  # share of the hyperedges in it; HyPER's default
    likelihood_bound: int = 100_000  # sums over sets; an event with more is trained on its masked edges

    def __post_init__(self) -> None:
        weights = self.masked_edges, self.event_likelihood, self.triplets, self.hyper
        if min(weights) < 0 or sum(weights) == 0:
            raise ConfigError(f"loss has the weights {weights}, but needs one above 0 and none below")
        if not 0 <= self.hyper_alpha <= 1:
            raise ConfigError(f"loss.hyper_alpha is {self.hyper_alpha}, but must be from 0 to 1")
        if self.likelihood_bound > MAX_SUMS:
            raise ConfigError(f"loss.likelihood_bound is {self.likelihood_bound}, but must be at most {MAX_SUMS}")


@dataclass(frozen=True)
class DataConfig:
    """Which events."""

    events: str = "complete"  # complete; partial: with a particle present; all: also with nothing to find
    max_objects: int = 20  # of a kind; events with more are left out
    train_fraction: float = 0.9
    validation_fraction: float = 0.05  # the rest is for tests
    validation_events: int = 20_000  # at most
    memory_gib: float = 8.0  # larger samples are memory-mapped
    jet_radius: float | None = 0.4  # recorded in the domain of the model
    draws: int = 1  # times that an event is used for training, each with other draws of what follows
    draw_acceptance: bool = False  # cuts on jets, drawn per event: see training/draws.py
    tag_table: str | None = None  # of a tagger whose resolution is drawn per event; inputs: b_evidence, c_evidence

    def __post_init__(self) -> None:
        if self.events not in EVENTS:
            raise ConfigError(f"data.events is {shown(self.events)}, but must be one of {', '.join(EVENTS)}")
        if not 1 <= self.max_objects <= MOST_OBJECTS:
            raise ConfigError(f"data.max_objects is {self.max_objects}, but must be 1 to {MOST_OBJECTS}")
        if not 1 <= self.draws <= MOST_DRAWS:
            raise ConfigError(f"data.draws is {self.draws}, but must be 1 to {MOST_DRAWS}")
        if self.tag_table is not None:
            load_table(self.tag_table)
        if self.validation_events < 1:
            raise ConfigError(f"data.validation_events is {self.validation_events}, but must be at least 1")
        train, validation = self.train_fraction, self.validation_fraction
        if not (0 < train < 1 and 0 < validation < 1 and train + validation <= 1 + 1e-9):
            raise ConfigError(
                f"data.train_fraction {train} and data.validation_fraction {validation} must be above 0 and add "
                "up to at most 1"
            )

    @property
    def fractions(self) -> tuple[float, float, float]:
        rest = max(0.0, 1 - self.train_fraction - self.validation_fraction)
        return self.train_fraction, self.validation_fraction, rest


@dataclass(frozen=True)
class AugmentationConfig:
    """Symmetries of a collider, and of its calibration."""

    rotate: bool = False  # the event about the beam, by any angle
    reflect: bool = False  # eta -> - eta, phi -> - phi, each by chance
    energy_jitter: float = 0.0  # relative width of a common energy scale of an event's objects


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW, linear warm-up, cosine to a floor."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.01
    batch: int = 256  # events, over all processes
    accumulate: int = 1  # parts that a process's share of the batch is computed in
    epochs: float | None = None  # either epochs
    steps: int | None = None  # or steps
    warm_up: int = 0  # steps
    warm_up_start: float = 0.01  # share of the learning rate at the first step
    floor: float = 0.05  # share of the learning rate at the end
    clip: float = 1.0  # norm of the gradient
    ema: float = 0.999  # decay of the averaged weights; 0: none

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ConfigError("optimiser needs either epochs or steps: give one of them")
        for name in ("learning_rate", "batch", "accumulate", "clip", "epochs", "steps"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ConfigError(f"optimiser.{name} is {getattr(self, name)}, but must be above 0")
        for name in ("beta1", "beta2", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"optimiser.{name} is {getattr(self, name)}, but must be at least 0 and below 1")
        for name in ("weight_decay", "warm_up", "warm_up_start", "floor"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"optimiser.{name} is {getattr(self, name)}, but must be 0 or more")


@dataclass(frozen=True)
class RunConfig:
    """How and where it runs."""

    seed: int = 1
    precision: str = "32-true"  # Fabric's: 32-true, bf16-mixed, 16-mixed
    compile: bool = False  # torch.compile: minutes of compiling, then faster steps
    validate_every: int = 1000  # steps
    save_every: int = 1000  # steps
    log_every: int = 20  # steps
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1

    def __post_init__(self) -> None:
        for name in ("validate_every", "save_every", "log_every", "devices", "nodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"run.{name} is {getattr(self, name)}, but must be at least 1")
        if self.seed < 0:
            raise ConfigError(f"run.seed is {self.seed}, but must be at least 0")


SECTIONS = {
    "network": NetworkConfig,
    "loss": LossConfig,
    "data": DataConfig,
    "augmentation": AugmentationConfig,
    "optimiser": OptimiserConfig,
    "run": RunConfig,
}

KEYS = ("topology", "topologies", "stages", "selection", "inputs", "heads", *SECTIONS)


@dataclass(frozen=True)
class Recipe:
    """A training, completely described."""

    topology: Topology
    optimiser: OptimiserConfig
    network: NetworkConfig = field(default_factory=NetworkConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    run: RunConfig = field(default_factory=RunConfig)
    given_inputs: Inputs | None = None  # None: the default ones of the topology
    heads: Mapping[str, float] = field(default_factory=dict)  # further heads -> weight of their loss
    specs: Mapping[str, HeadSpec] = field(default_factory=dict)  # those of them that the recipe declares

    def __post_init__(self) -> None:
        only_edges = not self.loss.event_likelihood
        for loss, head in (("triplets", "object_sum"), ("hyper", "hyper")):
            if (getattr(self.loss, loss) > 0) != (self.network.triplets == head) and only_edges:
                raise ConfigError(
                    f"loss.{loss} is {getattr(self.loss, loss)} and network.triplets {self.network.triplets}: the "
                    f"head {head} and its loss, {loss}, go together"
                )
        if self.decoding == HYPER:
            check_hyper(self.topology)
        if self.network.triplets == "potential" and only_edges:
            raise ConfigError("network.triplets potential is trained by loss.event_likelihood alone: weigh it")
        if self.loss.event_likelihood and self.network.tokens:
            raise ConfigError(
                "loss.event_likelihood is for networks that answer in one pass: set network.tokens: false, or "
                "train a network with tokens by loss.masked_edges"
            )
        if self.network.patterns and not self.loss.event_likelihood:
            raise ConfigError("network.patterns is trained by loss.event_likelihood alone: weigh it")
        if set(self.heads) != {*self.network.heads, *self.specs}:
            raise ConfigError("heads and network.heads name different heads: give `heads` alone")
        if self.topology.alternatives:
            self._check_mixture()

    def _check_mixture(self) -> None:
        if not self.network.patterns or self.data.events == "complete":
            raise ConfigError(
                "several topologies need a network that knows missing particles: set network.patterns: true and "
                "data.events: all"
            )
        if named := [name for name, spec in self.specs.items() if not spec.of_event]:
            raise ConfigError(f"heads.{named[0]}: with several topologies, heads can be of the event alone")

    @property
    def decoding(self) -> str:
        """How a model of this recipe is meant to be decoded."""
        if self.loss.event_likelihood or self.loss.triplets:
            return "exact"
        if self.loss.hyper:
            return HYPER
        return "steps" if self.network.tokens else "one_shot"

    @property
    def max_objects(self) -> int:
        """Of a kind; events with more are left out, as are those with more than the exact sums take."""
        most = self.data.max_objects
        return min(most, exact_limit(self.topology)) if self.decoding == "exact" else most

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `parse_recipe` reads back to an equal recipe."""
        sections = {name: asdict(getattr(self, name)) for name in SECTIONS}
        sections["network"].pop("heads")
        specs = {name: {**spec.to_dict(), "weight": self.heads[name]} for name, spec in self.specs.items()}
        more = {"inputs": self.inputs.to_dict(), "heads": {**self.heads, **specs}}
        return {"topology": self.topology.to_dict(), **sections, **more}

    @property
    def inputs(self) -> Inputs:
        """What the network takes of each kind of object."""
        return self.given_inputs or Inputs.default(self.topology)

    def with_run(self, **changes: Any) -> Recipe:
        return replace(self, run=replace(self.run, **changes))


def load_recipe(name: str | Path, topology: str | Path | None = None) -> Recipe:
    """A recipe by its built-in name, or from a YAML file, with those it is based on; for another `topology`.

    >>> load_recipe("cpu").network.triplets, load_recipe("cpu", topology="hh4b").network.triplets
    ('potential', 'none')
    """
    raw = _read(find_recipe(name), 0)
    return parse_recipe(raw if topology is None else _merged(raw, {"topology": topology}), str(name))


def parse_recipe(raw: Mapping[str, Any], source: str = "recipe") -> Recipe:
    """A recipe from what YAML or JSON gave; an unknown key is an error that suggests the nearest name."""
    check_keys(raw, source, KEYS)
    check_keys(raw, source, KEYS, ["optimiser"] if "topologies" in raw else ["topology", "optimiser"])
    given = raw.get("topology")
    if "topologies" in raw:
        topology = _mixture(raw["topologies"], given, source)
    elif not isinstance(given, Mapping | str | Path | Topology):
        raise ConfigError(f"{source}: topology reads {shown(given)}, but must be a name, a file or a decay tree")
    else:
        topology = parse_topology(given, source) if isinstance(given, Mapping) else load_topology(given)
    event = load_spanet_event(given) if isinstance(given, str | Path) else None
    if event is not None:
        raw = event_defaults(raw, event, topology)
    for part in ("stages", "selection"):
        if raw.get(part) is not None:
            topology = parse_topology({**topology.to_dict(), part: raw[part]}, f"{source}: {part}")
    inputs = Inputs.parse(raw.get("inputs", {}), topology, f"{source}: inputs")
    heads, specs = _heads(raw.get("heads", {}), topology, source)
    parts: dict[str, Any] = {}
    for name, config in SECTIONS.items():
        section = _renamed(name, raw.get(name, {}))
        if name == "network" and heads and isinstance(section, Mapping):
            section = {**section, "heads": tuple(head for head in heads if head not in specs)}
        if name == "network" and isinstance(section, Mapping) and section.get("triplets") == "auto":
            trained = configure(LossConfig, raw.get("loss", {}), "loss").event_likelihood
            fits = trained and triplet_types(topology)  # what the tree and the loss allow
            section = {**section, "triplets": "potential" if fits else "none"}
        parts[name] = configure(config, section, name)
    return Recipe(topology=topology, given_inputs=inputs, heads=heads, specs=specs, **parts)


def _mixture(raw: object, topology: object, source: str) -> Topology:
    """One topology for the several that a recipe lists."""
    if topology is not None:
        raise ConfigError(f"{source}: has both topology and topologies: give one of them")
    if not isinstance(raw, list) or len(raw) < 2 or not all(isinstance(name, str) for name in raw):
        raise ConfigError(f"{source}: topologies reads {shown(raw)}, but must list two or more names or files")
    return mixture([load_topology(name) for name in raw])


def _heads(raw: object, topology: Topology, source: str) -> tuple[dict[str, float], dict[str, HeadSpec]]:
    """The weights of all heads, and those that are declared: a mapping instead of the weight alone."""
    if not isinstance(raw, Mapping) or not all(
        isinstance(entry, Mapping) or (isinstance(entry, int | float) and entry > 0) for entry in raw.values()
    ):
        raise ConfigError(
            f"{source}: heads is {shown(raw)}, but must map names to weights above 0, or to what the head is: "
            "{kind: class, of: event, column: signal}"
        )
    weights: dict[str, float] = {}
    specs: dict[str, HeadSpec] = {}
    for name, entry in raw.items():
        if isinstance(entry, Mapping):
            where = f"{source}: heads.{name}"
            if name in OUTPUTS:
                raise ConfigError(f"{where}: {name} is an output of the network already: rename the head")
            specs[str(name)], weights[str(name)] = parse_head(str(name), entry, topology, where)
        else:
            weights[str(name)] = float(entry)
    return weights, specs


def _renamed(section: str, raw: object) -> object:
    """The settings of a section under today's names; recipes of Pairton 0.1 have others for some."""
    if not isinstance(raw, Mapping):
        return raw
    if section == "data" and isinstance(raw.get("partial"), bool):
        warnings.warn("data.partial is now data.events: change the recipe", PairtonWarning, stacklevel=2)
        events = "partial" if raw["partial"] else "complete"
        raw = {"events": events, **{name: value for name, value in raw.items() if name != "partial"}}
    for old, new in RENAMED.get(section, {}).items():
        if old in raw and new not in raw:
            warnings.warn(
                f"{section}.{old} is now called {section}.{new}: change the recipe", PairtonWarning, stacklevel=2
            )
            raw = {new if name == old else name: value for name, value in raw.items()}
    return raw


def _read(path: Path, depth: int) -> dict[str, Any]:
    if depth > MAX_BASES:
        raise ConfigError(f"{path}: more than {MAX_BASES} recipes build on one another: is `base` a circle?")
    raw = check_keys(read_yaml(path), str(path), ["base", *KEYS])
    base = raw.pop("base", None)
    if base is None:
        return raw
    return _merged(_read(find_recipe(str(base), path.parent), depth + 1), raw)


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Sections are merged setting by setting; `steps` replaces `epochs` and `topology` `topologies`, and back."""
    result = dict(base)
    for one, other in (("topology", "topologies"), ("topologies", "topology")):
        if one in over:
            result.pop(other, None)
    for key, value in over.items():
        if key in SECTIONS and isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            result[key] = {**base[key], **value}
            for one, other in (("steps", "epochs"), ("epochs", "steps")):
                if key == "optimiser" and one in value and other not in value:
                    result[key].pop(other, None)
        else:
            result[key] = value
    return result
