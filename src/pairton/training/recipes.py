"""Recipes describe a training in a few sections of YAML. A recipe may change another one, its `base`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch.nn import ModuleDict

from pairton._common.configuration import check_keys, configure, read_yaml
from pairton.decoding.hyper_decoding import HYPER, check_hyper
from pairton.decoding.set_tables import MAX_SUMS, exact_limit
from pairton.decoding.terms import triplet_types
from pairton.errors import ConfigError, PairtonWarning, shown
from pairton.events.head_specs import TURNING, HeadSpec, parse_head
from pairton.events.inputs import Inputs
from pairton.events.nodes import MOST_OBJECTS
from pairton.events.tags import load_table
from pairton.network.config import NetworkConfig
from pairton.network.heads import HEADS
from pairton.recipes import find_recipe
from pairton.reconstruction.head_columns import DECODED, check_columns
from pairton.spanet.spanet_event import load_spanet_event
from pairton.topology import Topology, load_topology, parse_topology
from pairton.topology.mixtures import mixture
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
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
RENAMED = {  # since Pairton 0.1
    "network": {"kind": "architecture"},
    "data": {"max_jets": "max_objects"},
    "loss": {"hyperedges": "triplets"},
}
MOST_DRAWS = 100
MAX_BASES = 8  # longest chain of base recipes; a longer one is taken for a circle


@dataclass(frozen=True)
class LossConfig:
    """The loss is a sum of terms with these weights."""

    masked_edges: float = 1.0  # the paper's loss: cross-entropy of masked edges
    event_likelihood: float = 0.0  # - log P(truth) among all hypotheses
    triplets: float = 0.0  # cross-entropy of triplets, with network.triplets: object_sum
    hyper: float = 0.0  # HyPER's loss on hyperedges and edges, with network.triplets: hyper
    hyper_alpha: float = 0.8  # share of hyperedges in HyPER's loss; this is its default
    likelihood_bound: int = 100_000  # events whose likelihood needs more sums are trained on their edges

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
    """Which events are used."""

    events: str = "complete"  # complete; partial: at least one particle is present; all
    max_objects: int = 20  # events with more objects of a kind are left out
    train_fraction: float = 0.9
    validation_fraction: float = 0.05  # the remaining events are test events
    validation_events: int = 20_000  # largest number of events to validate on
    memory_gib: float = 8.0  # larger samples are memory-mapped
    jet_radius: float | None = 0.4  # stored in the domain of the model
    draws: int = 1  # how often each event is used, each time with new random cuts and tags
    draw_acceptance: bool = False  # whether cuts on jets are drawn per event: see training/draws.py
    tag_table: str | None = None  # tagger whose resolution is drawn per event, for the inputs b_ and c_evidence

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
    """Random transformations of events that do not change the answer."""

    rotate: bool = False  # rotate the event about the beam by a random angle
    reflect: bool = False  # eta -> -eta and phi -> -phi, each at random
    energy_jitter: float = 0.0  # relative width of a random energy scale, common to all objects of an event


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW, and a learning rate with a linear warm-up and a cosine to a floor."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.01
    batch: int = 256  # events per step, over all processes
    accumulate: int = 1  # number of parts in which a process computes its share of the batch
    epochs: float | None = None  # give either epochs or steps
    steps: int | None = None
    warm_up: int = 0  # steps
    warm_up_start: float = 0.01  # fraction of the learning rate at the first step
    floor: float = 0.05  # fraction of the learning rate at the last step
    clip: float = 1.0  # largest norm of the gradient
    ema: float = 0.999  # decay of the moving average of the weights; 0: no average

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
    """How and where the training runs."""

    seed: int = 1
    precision: str = "32-true"  # of Lightning Fabric: 32-true, bf16-mixed, 16-mixed; inputs are always 32 bits
    compile: bool = False  # use torch.compile, which takes minutes and then makes steps faster
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
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"run.precision is {shown(self.precision)}, but must be one of {', '.join(PRECISIONS)}"
            )


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
    """A complete description of a training."""

    topology: Topology
    optimiser: OptimiserConfig
    network: NetworkConfig = field(default_factory=NetworkConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    run: RunConfig = field(default_factory=RunConfig)
    given_inputs: Inputs | None = None  # None: the topology's default inputs
    heads: Mapping[str, float] = field(default_factory=dict)  # name of each further head -> weight of its loss
    specs: Mapping[str, HeadSpec] = field(default_factory=dict)  # the heads that the recipe declares

    def __post_init__(self) -> None:
        only_edges = not self.loss.event_likelihood
        for loss, head in (("triplets", "object_sum"), ("hyper", "hyper")):
            trained, there = getattr(self.loss, loss) > 0, self.network.triplets == head
            if (trained and not there) or (there and not trained and only_edges):
                raise ConfigError(
                    f"loss.{loss} is {getattr(self.loss, loss)} and network.triplets {self.network.triplets}: the "
                    f"head {head} and its loss, {loss}, go together"
                )
        if self.decoding == HYPER:
            check_hyper(self.topology)
        if self.network.triplets == "potential" and only_edges:
            raise ConfigError(
                "network.triplets potential is trained only by loss.event_likelihood: give that a weight above 0"
            )
        if self.loss.event_likelihood and self.network.tokens:
            raise ConfigError(
                "loss.event_likelihood is for networks that answer in one pass: set network.tokens: false, or "
                "train a network with tokens by loss.masked_edges"
            )
        if self.network.patterns and not self.loss.event_likelihood:
            raise ConfigError(
                "network.patterns is trained only by loss.event_likelihood: give that a weight above 0"
            )
        others = any((self.loss.masked_edges, self.loss.triplets, self.loss.hyper, self.heads))
        if self.data.events != "complete" and not (only_edges or others or self.network.patterns):
            raise ConfigError(
                f"data.events is {self.data.events}, but without network.patterns, loss.event_likelihood learns "
                "from complete events alone: set network.patterns: true, or data.events: complete"
            )
        if set(self.heads) != {*self.network.heads, *self.specs}:
            raise ConfigError("heads and network.heads name different heads: give `heads` alone")
        if self.topology.alternatives:
            self._check_mixture()
        self._check_components()

    def _check_mixture(self) -> None:
        if not self.network.patterns or self.data.events == "complete":
            raise ConfigError(
                "several topologies need a network that allows for missing particles: set network.patterns: true "
                "and data.events: all"
            )
        if named := [name for name, spec in self.specs.items() if not spec.of_event]:
            raise ConfigError(f"heads.{named[0]}: with several topologies, only `of: event` is possible")

    def _check_components(self) -> None:
        """Refuse a column with two components: labels are rotated and reflected once per column."""
        found: dict[str, tuple[str, str]] = {}  # column -> component, and the head that has it
        for head, spec in self.specs.items():
            for column in spec.columns:
                component, first = found.setdefault(column, (spec.component, head))
                if component != spec.component:
                    raise ConfigError(
                        f"heads.{first} and heads.{head} learn from the column {column}, but as the components "
                        f"{component} and {spec.component}: set the same `component` for both"
                    )

    @property
    def decoding(self) -> str:
        """The default decoding of a model of this recipe."""
        if self.loss.event_likelihood or self.loss.triplets:
            return "exact"
        if self.loss.hyper:
            return HYPER
        return "steps" if self.network.tokens else "one_shot"

    @property
    def max_objects(self) -> int:
        """Events with more objects of a kind than this are left out; `exact` decoding has a limit of its own."""
        most = self.data.max_objects
        limit = exact_limit(self.topology, complete_only=not self.network.patterns)
        return min(most, limit) if self.decoding == "exact" else most

    def to_dict(self) -> dict[str, Any]:
        """Plain data, from which `parse_recipe` makes an equal recipe."""
        sections = {name: asdict(getattr(self, name)) for name in SECTIONS}
        sections["network"].pop("heads")
        specs = {name: {**spec.to_dict(), "weight": self.heads[name]} for name, spec in self.specs.items()}
        more = {"inputs": self.inputs.to_dict(), "heads": {**self.heads, **specs}}
        return {"topology": self.topology.to_dict(), **sections, **more}

    @property
    def inputs(self) -> Inputs:
        """The network's inputs for each kind of object."""
        return self.given_inputs or Inputs.default(self.topology)

    def with_run(self, **changes: Any) -> Recipe:
        return replace(self, run=replace(self.run, **changes))


def load_recipe(name: str | Path, topology: str | Path | None = None) -> Recipe:
    """Load a built-in recipe by name, or one from a YAML file; `topology` replaces that of the recipe.

    >>> load_recipe("cpu").network.triplets, load_recipe("cpu", topology="hh4b").network.triplets
    ('potential', 'none')
    """
    raw = _read(find_recipe(name), 0)
    return parse_recipe(raw if topology is None else _merged(raw, {"topology": topology}), str(name))


def parse_recipe(raw: Mapping[str, Any], source: str = "recipe") -> Recipe:
    """Make a recipe from plain data. Raise ConfigError for unknown keys and wrong values."""
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
            possible = trained and triplet_types(topology)
            section = {**section, "triplets": "potential" if possible else "none"}
        parts[name] = configure(config, section, name)
    recipe = Recipe(topology=topology, given_inputs=inputs, heads=heads, specs=specs, **parts)
    _warn_of_components(recipe)
    return recipe


def _warn_of_components(recipe: Recipe) -> None:
    """Warn of a head that the network cannot learn, since its features do not rotate with the event."""
    turning = {name: spec.component for name, spec in recipe.specs.items() if spec.component in TURNING}
    if turning and recipe.network.architecture == "symmetric":
        name, component = next(iter(turning.items()))
        warnings.warn(
            f"heads.{name} learns no more than a constant: {component} changes when an event is rotated or "
            "reflected, but the features of network.architecture symmetric do not: take pairformer, or leave out "
            "the head",
            PairtonWarning,
            stacklevel=3,
        )
    unclear = [name for name, spec in recipe.specs.items() if spec.component == "none" and not spec.is_class]
    if unclear and recipe.augmentation.energy_jitter:
        warnings.warn(
            f"the labels of heads.{unclear[0]} are not scaled with the objects by augmentation.energy_jitter: if "
            "they are in GeV, set its component to energy",
            PairtonWarning,
            stacklevel=3,
        )


def _mixture(raw: object, topology: object, source: str) -> Topology:
    """The mixture of the topologies that a recipe lists."""
    if topology is not None:
        raise ConfigError(f"{source}: has both topology and topologies: give one of them")
    if not isinstance(raw, list) or len(raw) < 2 or not all(isinstance(name, str) for name in raw):
        raise ConfigError(f"{source}: topologies reads {shown(raw)}, but must list two or more names or files")
    return mixture([load_topology(name) for name in raw])


def _heads(raw: object, topology: Topology, source: str) -> tuple[dict[str, float], dict[str, HeadSpec]]:
    """The weights of all heads, and the specs of those that a recipe declares by a mapping instead of a weight."""
    if not isinstance(raw, Mapping) or not all(
        isinstance(entry, Mapping) or (isinstance(entry, int | float) and entry > 0) for entry in raw.values()
    ):
        raise ConfigError(
            f"{source}: heads is {shown(raw)}, but must map names to weights above 0, or to a description such as "
            "{kind: class, of: event, column: signal}"
        )
    weights: dict[str, float] = {}
    specs: dict[str, HeadSpec] = {}
    for name, entry in raw.items():
        where = f"{source}: heads.{name}"
        if name in LossConfig.__dataclass_fields__ or name == "loss" or str(name).startswith("e_"):
            raise ConfigError(f"{where}: {name} is the name of a loss or an efficiency: rename the head")
        if hasattr(ModuleDict, str(name)) or name == "training":  # torch keeps heads as attributes of this class
            raise ConfigError(f"{where}: {name} is a name that torch needs for itself: rename the head")
        if name in DECODED:
            raise ConfigError(f"{where}: {name} is an output of the network already: rename the head")
        if isinstance(entry, Mapping):
            specs[str(name)], weights[str(name)] = parse_head(str(name), entry, topology, where)
        else:
            weights[str(name)] = float(entry)
    axes = {name: HEADS[name].axes if name in HEADS else () for name in weights if name not in specs}
    check_columns(topology, specs, {k: axes[k] for k in axes if "node" not in axes[k]}, f"{source}: ")
    return weights, specs


def _renamed(section: str, raw: object) -> object:
    """The settings of a section, with names of Pairton 0.1 replaced by the present ones."""
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
    """`base`, changed by `over`. `steps` and `epochs` replace each other, as do `topology` and `topologies`."""
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
