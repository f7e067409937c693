"""Recipes describe a training in a few sections of YAML. A recipe may change another one, its `base`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from torch.nn import ModuleDict

from pairton._common.configuration import check_keys, configure, read_yaml
from pairton.decoding.patterns import exact_limit
from pairton.decoding.terms import triplet_types
from pairton.decoding.views import PRESENCE
from pairton.errors import ConfigError, PairtonWarning, shown
from pairton.events.head_specs import TURNING, HeadSpec, parse_head
from pairton.events.inputs import Inputs
from pairton.network.config import NetworkConfig
from pairton.network.heads import HEADS
from pairton.recipes import find_recipe
from pairton.reconstruction.result import check_columns
from pairton.reconstruction.result_columns import DECODED
from pairton.spanet.spanet_event import load_spanet_event
from pairton.topology import Selection, Topology, collection_name, load_topology, parse_topology
from pairton.topology.vocabulary import vocabulary
from pairton.training.augmentation import AugmentationConfig
from pairton.training.data import DataConfig
from pairton.training.event_files import event_defaults
from pairton.training.losses import LOSSES, LossConfig
from pairton.training.optimising import Count, OptimiserConfig

__all__ = ["Recipe", "RunConfig", "load_recipe", "parse_recipe"]

LIKELIHOOD = "event_likelihood"
TRAINED_BY = {  # head of network.triplets -> losses that train it
    "potential": (LIKELIHOOD,),
    "object_sum": ("triplets", LIKELIHOOD),
    "hyper": ("hyper", LIKELIHOOD),
}
MAX_BASES = 8  # longest chain of base recipes; a longer one is taken for a circle


@dataclass(frozen=True)
class RunConfig:
    """How and where the training runs."""

    seed: Annotated[int, Meta(ge=0)] = 1
    # of Lightning Fabric; inputs are always 32 bits
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    compile: bool = False  # use torch.compile, which takes minutes and then makes steps faster
    validate_every: Count = 1000  # steps
    save_every: Count = 1000  # steps
    log_every: Count = 20  # steps
    accelerator: str = "auto"
    devices: Count = 1
    nodes: Count = 1


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
    loss: LossConfig = field(default_factory=lambda: LossConfig.parse({}))
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    run: RunConfig = field(default_factory=RunConfig)
    given_inputs: Inputs | None = None  # None: the topology's default inputs
    heads: Mapping[str, float] = field(default_factory=dict)  # name of each further head -> weight of its loss
    specs: Mapping[str, HeadSpec] = field(default_factory=dict)  # the heads that the recipe declares

    def __post_init__(self) -> None:
        for name in self.loss.weights:
            LOSSES[name].check(self)
        needed = {
            "patterns": (LIKELIHOOD,) if self.network.patterns else (),
            f"triplets {self.network.triplets}": TRAINED_BY.get(self.network.triplets, ()),
        }
        for setting, losses in needed.items():
            if losses and not any(name in self.loss.weights for name in losses):
                listed = " or ".join(f"loss.{name}" for name in losses)
                raise ConfigError(f"network.{setting} is trained only by {listed}: give that a weight above 0")
        if set(self.heads) != {*self.network.heads, *self.specs}:
            raise ConfigError("heads and network.heads name different heads: give `heads` alone")
        if self.topology.alternatives:
            self._check_vocabulary()
        self._check_components()

    def _check_vocabulary(self) -> None:
        if self.network.patterns != PRESENCE or self.data.events == "complete" or self.network.tokens:
            raise ConfigError(
                "several topologies need a network that scores what is present in any of them: set "
                "network.patterns: presence, network.tokens: false and data.events: all"
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
        own = [LOSSES[name].decoding for name in LOSSES if name in self.loss.weights]
        return next(filter(None, own), "steps" if self.network.tokens else "one_shot")

    @property
    def max_objects(self) -> tuple[int, ...]:
        """For each topology: events with more objects of a kind are left out; `exact` has a limit of its own."""
        most = self.data.max_objects
        limits = [exact_limit(tree, complete_only=not self.network.patterns) for tree in self.topology.trees]
        return tuple(min(most, limit) if self.decoding == "exact" else most for limit in limits)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, from which `parse_recipe` makes an equal recipe."""
        sections = {name: asdict(getattr(self, name)) for name in SECTIONS} | {"loss": self.loss.to_dict()}
        sections["network"].pop("heads")
        specs = {name: {**spec.to_dict(), "weight": self.heads[name]} for name, spec in self.specs.items()}
        more = {"inputs": self.inputs.to_dict(), "heads": {**self.heads, **specs}}
        return {"topology": self.topology.to_dict(), **sections, **more}

    @property
    def inputs(self) -> Inputs:
        """The network's inputs for each kind of object."""
        return self.given_inputs or Inputs.default(self.topology)

    def with_run(self, **changes: Any) -> Recipe:
        return replace(self, run=configure(RunConfig, {**asdict(self.run), **changes}, "run"))


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
        topology = _vocabulary(raw, source)
    elif not isinstance(given, Mapping | str | Path | Topology):
        raise ConfigError(f"{source}: topology reads {shown(given)}, but must be a name, a file or a decay tree")
    else:
        topology = parse_topology(given, source) if isinstance(given, Mapping) else load_topology(given)
        topology = _changed(topology, raw, source)
    event = load_spanet_event(given) if isinstance(given, str | Path) else None
    if event is not None:
        raw = event_defaults(raw, event, topology)
    inputs = Inputs.parse(raw.get("inputs", {}), topology, f"{source}: inputs")
    heads, specs = _heads(raw.get("heads", {}), topology, source)
    parts: dict[str, Any] = {}
    for name, config in SECTIONS.items():
        section = raw.get(name, {})
        if name == "network" and heads and isinstance(section, Mapping):
            section = {**section, "heads": tuple(head for head in heads if head not in specs)}
        if name == "network" and isinstance(section, Mapping) and section.get("triplets") == "auto":
            possible = LIKELIHOOD in LossConfig.parse(raw.get("loss", {})).weights and triplet_types(topology)
            section = {**section, "triplets": "potential" if possible else "none"}
        parts[name] = LossConfig.parse(section) if config is LossConfig else configure(config, section, name)
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


def _changed(topology: Topology, raw: Mapping[str, Any], source: str) -> Topology:
    """A topology with the stages and the selection of a recipe."""
    for part in ("stages", "selection"):
        if raw.get(part) is not None:
            topology = parse_topology({**topology.to_dict(), part: raw[part]}, f"{source}: {part}")
    return topology


def _vocabulary(raw: Mapping[str, Any], source: str) -> Topology:
    """The vocabulary of the topologies that a recipe lists, with its selection as far as they have the kinds."""
    listed, selection = raw["topologies"], raw.get("selection")
    if "topology" in raw:
        raise ConfigError(f"{source}: has both topology and topologies: give one of them")
    if not isinstance(listed, list) or not listed or not all(isinstance(each, str | Mapping) for each in listed):
        raise ConfigError(f"{source}: topologies reads {shown(listed)}, but must list names, files or decay trees")
    trees = [load_topology(each) if isinstance(each, str) else parse_topology(each, source) for each in listed]
    union = vocabulary(trees)
    if selection is not None:
        Selection.parse(selection, union.kinds)  # with errors for all
        trees = [_changed(tree, {"selection": _of_kinds(selection, tree, union)}, source) for tree in trees]
    if raw.get("stages") is not None:
        raise ConfigError(f"{source}: stages are for one topology: leave them out")
    return vocabulary(trees)


def _of_kinds(selection: Mapping[str, Any], tree: Topology, union: Topology) -> dict[str, Any]:
    others = {collection_name(kind) for kind in union.kinds if kind not in tree.kinds}
    event = {name: count for name, count in (selection.get("event") or {}).items() if name not in others}
    return {**{name: cuts for name, cuts in selection.items() if name not in others}, "event": event}


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
        if name in LOSSES or name == "loss" or str(name).startswith("e_"):
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
