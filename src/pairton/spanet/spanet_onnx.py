"""Networks exported by SPANet: they are recognised by their tensor names; their event file defines the features.

    {input}_data, {input}_mask                  in: features (B, N, D), in the order of the event file, and (B, N)
    {particle}_assignment_probability           out: (B, T, ..., T), one axis per product, of all sequential inputs
    {particle}_detection_probability            out: (B,)
    EVENT/{name}, {particle}/PARTICLE/{name}    out: numbers (B,), classes (B, C)

With SPANet's --output-log-transform the names have `log_probability`. The graph normalises its inputs. It takes
the logarithms of inputs only if exported with --input-log-transform, which is found out from its operators.

Shapes: B events, N objects of an input, T objects of all sequential inputs, D features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton._common.parallel import cores
from pairton.decoding import Outputs
from pairton.decoding.terms import BRANCH
from pairton.errors import ModelError
from pairton.events.domain import Domain
from pairton.events.head_specs import HeadSpec
from pairton.events.inputs import MOMENTUM, Input, Inputs
from pairton.events.nodes import MOST_OBJECTS, Nodes
from pairton.events.vectors import mass_of
from pairton.models.engines import Opened, Request
from pairton.models.onnx_file import OnnxFile, Operator, Session, open_session, read_onnx
from pairton.models.storage import ModelInfo
from pairton.spanet.spanet_event import MOMENTUM_FEATURES, InputGroup, SpanetEvent, load_spanet_event
from pairton.topology import Topology, load_topology
from pairton.topology.extras import labels_of

__all__ = ["SpanetEngine", "features_of", "has_logarithms", "is_spanet", "open_spanet", "spanet_info"]

ASSIGNMENT = ("_assignment_probability", "_assignment_log_probability")
DETECTION = ("_detection_probability", "_detection_log_probability")
LOG_ZERO = -100.0  # stands for the logarithm of a zero probability
# operators that may come between an input and the logarithm of its features
ON_THE_WAY = frozenset(
    ("Add", "Cast", "Concat", "Gather", "Identity", "Mul", "Reshape", "Slice", "Split", "Squeeze", "Transpose")
) | {"Unsqueeze"}

Arrays = dict[str, npt.NDArray[Any]]


def is_spanet(file: OnnxFile) -> bool:
    """Whether a file has the inputs and outputs of a network exported by SPANet."""
    inputs = {name.removesuffix("_data") for name in file.inputs if name.endswith("_data")}
    masks = {name.removesuffix("_mask") for name in file.inputs if name.endswith("_mask")}
    return bool(inputs) and inputs == masks and any(name.endswith(ASSIGNMENT) for name in file.outputs)


def has_logarithms(graph: tuple[Operator, ...], name: str) -> bool:
    """Whether a graph takes logarithms of an input before it uses it otherwise."""
    reached, done = {name}, False
    while not done:
        done = True
        for kind, inputs, outputs in graph:
            if reached.isdisjoint(inputs) or reached.issuperset(outputs):
                continue
            if kind == "Log":
                return True
            if kind in ON_THE_WAY:
                reached.update(outputs)
                done = False
    return False


def spanet_info(file: OnnxFile, event: SpanetEvent, topology: Topology) -> ModelInfo:
    """The info of a SPANet network, from its ONNX file and its event file; ModelError if they do not match."""
    groups = {group.name: group for group in event.inputs}
    needed = [name.removesuffix("_data") for name in file.inputs if name.endswith("_data")]
    for name in needed:
        if name not in groups:
            raise _other_event(file, event, f"it takes {name}, which is not among the INPUTS")
        if groups[name].form == "RELATIVE" or groups[name].kind not in topology.kinds:
            why = "which describes pairs" if groups[name].form == "RELATIVE" else "without pT and direction"
            raise ModelError(f"{file.path}: takes the input {name}, {why}, which Pairton does not support")
    if lacking := [name for name in groups if name not in needed]:
        raise _other_event(file, event, f"it does not take {lacking[0]}, which is among the INPUTS")
    for name in event.particles:
        if not any(f"{name}{ending}" in file.outputs for ending in ASSIGNMENT):
            raise _other_event(file, event, f"it has no output for the particle {name}")
    lacking = [_detection(p) for p in event.particles if not any(f"{p}{end}" in file.outputs for end in DETECTION)]
    outputs = {name: axes for name, axes in _outputs(event).items() if name not in lacking}
    inputs = Inputs(tuple((kind, _further(event, kind)) for kind in topology.kinds))
    return ModelInfo(topology, {"tokens": False}, Domain(), inputs, outputs, decoding="branches")


def _outputs(event: SpanetEvent) -> dict[str, tuple[str, ...]]:
    """Outputs by Pairton's names, and their axes."""
    branches = {f"{BRANCH}{name}": ("node",) * len(products) for name, products in event.particles.items()}
    return branches | {_detection(name): () for name in event.particles}


def _detection(particle: str) -> str:
    return f"spanet_{particle}_detection_probability"


def open_spanet(file: OnnxFile, request: Request) -> Opened:
    """A SPANet network with its event file, which the user gives as the topology."""
    given = request.topology
    event = None if given is None or isinstance(given, Topology) else load_spanet_event(given)
    if event is None or given is None:
        raise ModelError(f"{file.path}: a SPANet network, which needs its event file: add --topology event.yaml")
    tree = load_topology(given)
    info = spanet_info(file, event, tree)
    engine = SpanetEngine(file.path, event, tree, info.inputs, request.threads, request.isolate)
    outputs = {**info.outputs, **{n: ("class",) * spec.is_class for n, spec in engine.heads.items()}}
    return Opened(file.path.stem, replace(info, heads=engine.heads, outputs=outputs), engine)


def _other_event(file: OnnxFile, event: SpanetEvent, why: str) -> ModelError:
    return ModelError(
        f"{file.path}: does not match the event file {event.name}: {why}; give the event file of this network"
    )


def _further(event: SpanetEvent, kind: str) -> tuple[Input, ...]:
    """The features of a kind that are not part of the four-momentum."""
    features = event.group(kind).features if any(group.kind == kind for group in event.inputs) else ()
    return tuple(Input(feature.name) for feature in features if feature.name not in MOMENTUM_FEATURES)


@dataclass(frozen=True)
class SpanetEngine:
    """Runs a SPANet network with ONNX Runtime, on the CPU, and names its outputs for the decoding `branches`."""

    path: Path
    event: SpanetEvent
    topology: Topology
    inputs: Inputs
    threads: int | None = None  # threads that call it; None: one per core
    isolate: Any = False  # whether it runs in a worker process, or `Limits` for that

    @property
    def at_once(self) -> int:
        return self.threads or cores()

    @cached_property
    def session(self) -> Session:
        return open_session(self._file, self.isolate, f"is it the network of the event file {self.event.name}?")

    @cached_property
    def _file(self) -> OnnxFile:
        return read_onnx(self.path)

    @cached_property
    def _logs_inside(self) -> frozenset[str]:
        """Inputs whose logarithms are taken inside the graph."""
        graph = self._file.operators
        return frozenset(group.name for group in self.event.inputs if has_logarithms(graph, f"{group.name}_data"))

    @property
    def _sequential(self) -> list[InputGroup]:
        """The sequential inputs, among whose objects particles are searched."""
        return [group for group in self.event.inputs if group.form != "GLOBAL"]

    @cached_property
    def width(self) -> int | None:
        """The only total number of sequential objects that the graph accepts; None: any number.

        Files exported with new versions of torch accept only the number of objects in the example event.
        """
        first, works = self._fewest[self._sequential[0].kind], []
        for n in range(first, MOST_OBJECTS + 1):
            with suppress(ModelError):
                self.session.run(self._example(n))
                works.append(n + self._others)
        if not works:
            self.session.run(self._example(first))  # raises an error with the reason
        return works[0] if len(works) == 1 else None

    @property
    def most_objects(self) -> int:
        """The largest number of objects per kind."""
        return MOST_OBJECTS if self.width is None else self.width - self._others

    @property
    def _fewest(self) -> dict[str, int]:
        """Kind -> the number of objects that an answer needs, at least one."""
        counts = zip(self.topology.kinds, self.topology.slots_per_kind, strict=True)
        return {kind: max(1, slots) for kind, slots in counts}

    @property
    def _others(self) -> int:
        """The fewest objects of all sequential inputs but the first."""
        return sum(self._fewest[group.kind] for group in self._sequential[1:])

    def _example(self, first: int) -> Arrays:
        """The inputs of an artificial event with `first` objects of the first sequential input."""
        counts = self._fewest | {self._sequential[0].kind: first}
        feeds: Arrays = {}
        for group in self.event.inputs:
            shape = 1, 1 if group.form == "GLOBAL" else counts[group.kind]
            feeds[f"{group.name}_data"] = np.ones((*shape, len(group.features)), dtype=np.float32)
            feeds[f"{group.name}_mask"] = np.ones(shape, dtype=bool)
        return feeds

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8] | None) -> Outputs:
        feeds: Arrays = {}
        objects = sum(nodes.masks[group.kind].shape[1] for group in self._sequential)
        padding = 0 if self.width is None else self.width - objects
        if padding < 0:
            return self._no_answer(nodes)
        for group in self.event.inputs:
            mask, logs = nodes.masks[group.kind], group.name not in self._logs_inside
            data = features_of(group, self.inputs.columns(group.kind), nodes.values[group.kind], mask, logs)
            added = padding if group == self._sequential[-1] else 0  # at the end, so that no object moves
            feeds[f"{group.name}_data"] = np.pad(data, [(0, 0), (0, added), (0, 0)])
            feeds[f"{group.name}_mask"] = np.pad(mask, [(0, 0), (0, added)])
        return self._renamed(self.session.run(feeds), nodes, padding)

    def _no_answer(self, nodes: Nodes) -> Outputs:
        """NaN, for events with more objects than the graph accepts."""
        events, n_nodes = nodes.mask.shape
        shapes = {name: (n_nodes,) * len(axes) for name, axes in _outputs(self.event).items()}
        shapes |= {name: (spec.width,) * spec.is_class for name, spec in self.heads.items()}
        return {name: np.full((events, *shape), np.nan, dtype=np.float32) for name, shape in shapes.items()}

    def _renamed(self, found: Arrays, nodes: Nodes, padding: int) -> Outputs:
        """Outputs by Pairton's names, with the axes of branches in the order of slots."""
        outputs: Arrays = {}
        at = np.concatenate([np.asarray(self.topology.nodes(g.kind, nodes.layout)) for g in self._sequential])
        n_nodes = nodes.mask.shape[1]
        labels = [label.split("/") for label in labels_of(self.topology, "spanet")]
        for name, products in self.event.particles.items():
            chances = _log_probability(found, name, ASSIGNMENT)
            chances = chances[(slice(None), *(slice(0, size - padding) for size in chances.shape[1:]))]
            if chances.shape != (len(nodes.mask), *(len(at),) * len(products)):
                raise ModelError(
                    f"{self.path}: the output of {name} has the shape {chances.shape}, but should have "
                    f"{len(products)} axes of {len(at)} objects: give the event file of this network"
                )
            order = [product.name for product in products]
            axes = [1 + order.index(product) for particle, product in labels if particle == name]
            dense = np.full((len(chances), *(n_nodes,) * len(products)), LOG_ZERO, dtype=np.float32)
            where: Any = (slice(None), *np.ix_(*[at] * len(products)))
            dense[where] = np.maximum(chances.transpose(0, *axes), LOG_ZERO)
            outputs[f"{BRANCH}{name}"] = dense
            if any(f"{name}{ending}" in found for ending in DETECTION):
                chance = np.exp(_log_probability(found, name, DETECTION)).reshape(len(chances))
                outputs[_detection(name)] = chance.astype(np.float32)
        for name, spec in self.heads.items():
            value = found[spec.columns[0]].astype(np.float32)
            if spec.is_class and not any(output.endswith(ASSIGNMENT[1]) for output in self._file.outputs):
                with np.errstate(divide="ignore"):
                    value = np.maximum(np.log(value), np.float32(LOG_ZERO))
            outputs[name] = value
        return outputs

    @cached_property
    def heads(self) -> dict[str, HeadSpec]:
        """Classifications and regressions of the event, by SPANet's names without EVENT/."""
        names = self.session.outputs
        found = {}
        for quantity in (*self.event.regressions, *self.event.classifications):
            if quantity.owner == "EVENT" and quantity.path in names:
                if quantity.loss is not None:
                    found[quantity.name] = HeadSpec("regression", columns=(quantity.path,), offset=0.0, scale=1.0)
                elif isinstance(classes := names[quantity.path][-1], int) and classes > 1:
                    found[quantity.name] = HeadSpec("class", columns=(quantity.path,), classes=classes)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("path", "event", "topology", "inputs", "threads", "isolate")
        }


def _log_probability(found: Arrays, name: str, endings: tuple[str, str]) -> npt.NDArray[np.float32]:
    """The log probability of a particle, whether the graph gives it or the probability."""
    if f"{name}{endings[1]}" in found:
        return np.asarray(found[f"{name}{endings[1]}"], dtype=np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.asarray(found[f"{name}{endings[0]}"], dtype=np.float32))


def features_of(
    group: InputGroup,
    columns: Sequence[str],
    values: npt.NDArray[np.float32],
    mask: npt.NDArray[np.bool_],
    logs: bool = True,
) -> npt.NDArray[np.float32]:
    """(B, N, D): the features of an event file, from columns of objects (B, N, columns); zero in the padding.

    logs: take the logarithms that the event file requests
    """
    pt, eta, phi, energy = (values[..., k].astype(np.float64) for k in range(len(MOMENTUM)))
    mass = mass_of(pt, eta, energy)
    known = {"pt": pt, "met": pt, "eta": eta, "phi": phi, "energy": energy, "e": energy, "mass": mass, "m": mass}
    known |= {"sin_phi": np.sin(phi), "cos_phi": np.cos(phi), "sinphi": np.sin(phi), "cosphi": np.cos(phi)}
    result = np.zeros((*mask.shape, len(group.features)), dtype=np.float32)
    for k, feature in enumerate(group.features):
        column: Any = known.get(feature.name)
        if column is None:
            column = values[..., columns.index(feature.name)]
        if feature.log and logs:
            with np.errstate(invalid="ignore", divide="ignore"):
                column = np.log(column + 1)
        result[..., k] = np.where(mask, column, 0)
    return result
