"""Heads: further outputs of a network, beside the assignment, that a recipe declares.

    heads:
      signal: {kind: class, of: event, column: is_signal, classes: 2}
      pair_mass: {kind: regression, of: event, column: ttbar_mass}
      antitop: {kind: class, of: t, column: "{particle}_is_antitop"}

A head is a classification or a regression, of the event, of a type of particle (`of: t`) or of a product (`of:
t.b`). It has one label per event, or one per particle or product; these are its places. Labels are columns of the
events. A label is left out of the loss if it is -1 (class) or NaN (number), or if its place lacks an object.

Shapes: B events, S slots, P places of a head, K slots of a place, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from pairton._common.configuration import configure
from pairton.errors import ConfigError, TrainingError, nearest, shown
from pairton.topology import Topology

__all__ = ["EVENT", "IN_GEV", "TURNING", "HeadSpec", "Place", "labels_of", "parse_head", "places_of"]

TURNING = ("px", "py", "pz", "eta", "phi")  # components of a vector, which rotate with the event
IN_GEV = ("px", "py", "pz", "pt", "mass", "energy")  # numbers that have the energy scale of the objects
Component = Literal["none", "px", "py", "pz", "eta", "phi", "pt", "mass", "energy"]
Loss = Literal["gaussian", "laplacian", "log_gaussian"]  # squared, absolute, and logarithmic difference
EVENT = "event"
MOST_CLASSES = 1000
MISSING = -1  # label of a class that is not known


@dataclass(frozen=True)
class Place:
    """What one label of a head describes."""

    name: str  # "" for the event; "t1", "t1.b"
    slots: tuple[int, ...]  # empty for the event


@dataclass(frozen=True)
class HeadSpec:
    """One head. Settings that are None are measured on the training events."""

    kind: Literal["class", "regression"]
    of: str = EVENT  # event, a type of particle (t), or a product of one (t.b)
    columns: tuple[str, ...] = ()  # columns with the labels, one per place
    classes: Annotated[int, Meta(ge=2, le=MOST_CLASSES)] | None = None  # number of classes
    loss: Loss = "gaussian"  # of a regression
    component: Component = "none"  # of a regression: px, …, mass, if it changes with the axes or the energy scale
    offset: float | None = None  # of a regression: mean of the labels
    scale: Annotated[float, Meta(gt=0)] | None = None  # of a regression: standard deviation of the labels

    @property
    def of_event(self) -> bool:
        return self.of == EVENT

    @property
    def is_class(self) -> bool:
        return self.kind == "class"

    @property
    def width(self) -> int:
        """Number of outputs of the network per place."""
        return (self.classes or 2) if self.is_class else 1

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns of the labels, and of the px or py that they mix with when events rotate."""
        return (*self.columns, *self.partners.values())

    @property
    def partners(self) -> dict[str, str]:
        """Column of px or py -> column of the other one."""
        if self.component not in ("px", "py"):
            return {}
        other = "py" if self.component == "px" else "px"
        return {name: f"{name.removesuffix(self.component)}{other}" for name in self.columns}

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "columns": list(self.columns)}

    def resolved(self, name: str, labels: Mapping[str, npt.NDArray[Any]], largest: float = MISSING) -> HeadSpec:
        """Measure the settings that are None on the labels of the training events; `name` is for errors.

        `largest` is the largest label of all events, so that networks of different folds have the same classes.
        """
        values = np.concatenate([np.asarray(labels[column], dtype=np.float64).ravel() for column in self.columns])
        values = values[np.isfinite(values) & (not self.is_class or values != MISSING)]
        if not len(values):
            raise TrainingError(
                f"heads.{name} has no label in the training events: check {', '.join(self.columns)}"
            )
        if self.is_class:
            _check_classes(name, values)
            return self if self.classes is not None else replace(self, classes=int(max(largest, values.max())) + 1)
        seen = np.arcsinh(values / 2) if self.loss == "log_gaussian" else values
        centre, spread = seen.mean(), seen.std()
        if self.loss == "laplacian":
            centre = np.median(seen)
            spread = np.abs(seen - centre).mean()
        offset = float(centre) if self.offset is None else self.offset
        return replace(self, offset=offset, scale=self.scale or float(spread) or 1.0)


def _check_classes(name: str, labels: npt.NDArray[np.float64]) -> None:
    wrong = labels[(labels < 0) | (labels != np.floor(labels))]
    if len(wrong):
        raise TrainingError(
            f"heads.{name} has the label {wrong[0]:g}, but classes are whole numbers from 0, or {MISSING} for a "
            "missing label: change the column, or set kind: regression"
        )
    if len(found := np.unique(labels)) < 2:
        raise TrainingError(
            f"heads.{name} has only the class {found[0]:g} in the training events: give files with events of each "
            f"class; classes count from 0, and {MISSING} means a missing label"
        )


def places_of(topology: Topology, of: str) -> tuple[Place, ...]:
    """The places of a head.

    >>> from pairton.topology import load_topology
    >>> ttbar = load_topology("ttbar_allhad")
    >>> [place.name for place in places_of(ttbar, "t")], places_of(ttbar, "t.b")[1]
    (['t1', 't2'], Place(name='t2.b', slots=(5,)))
    """
    if of == EVENT:
        return (Place("", ()),)
    if of in topology.types:
        return tuple(Place(particle.name, particle.slots) for particle in topology.of_type(of))
    found = tuple(Place(s.name, (s.index,)) for s in topology.slots if f".{s.path}".endswith(f".{of}"))
    if not found or "." not in of:
        known = [EVENT, *topology.types, *dict.fromkeys(slot.path for slot in topology.slots)]
        raise ConfigError(f"of is {shown(of)}, but must be one of {', '.join(known)}{nearest(of, known)}")
    return found


@dataclass(frozen=True)
class _Entry(HeadSpec):
    """A head as a recipe declares it."""

    column: str | list[str] | None = None  # {particle} is replaced by the name of each place
    weight: Annotated[float, Meta(gt=0, description="a number above 0")] = 1.0  # of the loss


def parse_head(name: str, raw: object, topology: Topology, source: str) -> tuple[HeadSpec, float]:
    """Read a head of a recipe or a model; return it with the weight of its loss."""
    entry = configure(_Entry, raw, source)
    if not name.isidentifier():
        raise ConfigError(f"{source}: the name of a head may only have letters, digits and _: rename it")
    try:
        places = places_of(topology, entry.of)
        columns = entry.columns or tuple(_columns(name, entry.column, places))
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    if len(columns) != len(places):
        listed = ", ".join(place.name or EVENT for place in places)
        raise ConfigError(f"{source}: read {len(columns)} columns, but need one for each of {listed}")
    settings = {field.name: getattr(entry, field.name) for field in fields(HeadSpec)} | {"columns": columns}
    if not entry.is_class and isinstance(raw, Mapping) and "component" not in raw:
        last = name.rsplit("_", 1)[-1]  # px for neutrino_px
        settings["component"] = last if last in get_args(Component) else "none"
    return HeadSpec(**settings), entry.weight


def _columns(name: str, column: str | list[str] | None, places: Sequence[Place]) -> list[str]:
    if isinstance(column, list):
        return column
    template = column or (name if not places[0].name else f"{{particle}}_{name}")
    if len(places) > 1 and "{particle}" not in template:
        raise ConfigError(
            f"column is {template!r}, but must contain {{particle}}, or be a list of {len(places)} names"
        )
    return [template.replace("{particle}", place.name.replace(".", "_")) for place in places]


def labels_of(
    spec: HeadSpec, columns: Mapping[str, npt.NDArray[Any]], topology: Topology, truth: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """The targets of a head: `labels` (B, P), `counted` (B, P) and `slots` (B, P, K), the nodes of each place.

    truth: (B, S), nodes, -1 for none. `counted` is True for labels that are known and whose place has all objects.
    """
    places = places_of(topology, spec.of)
    labels = np.stack([np.asarray(columns[name], dtype=np.float32) for name in spec.columns], axis=1)
    counted = np.isfinite(labels) & (not spec.is_class or labels >= 0)
    if spec.is_class and spec.classes is not None and (labels[counted] >= spec.classes).any():
        raise TrainingError(
            f"{', '.join(spec.columns)} has the class {labels[counted].max():g}, but the {spec.classes} classes "
            f"are 0 to {spec.classes - 1}"
        )
    slots = np.stack([truth[:, list(place.slots)] for place in places], axis=1).astype(np.int64)
    counted &= (slots >= 0).all(axis=2)
    labels = np.where(counted, labels, 0).astype(np.float32)
    return {"labels": labels, "counted": counted, "slots": np.maximum(slots, 0)}
