"""Models on disk: weights as safetensors, and everything else as JSON. Loading never unpickles.

model.safetensors    the weights
model.json           everything else: `ModelInfo`
model.onnx           the network as a graph, for the default engine; its metadata contain the same JSON

A model that was trained in folds has one network per fold of events, so that no event is reconstructed by a
network trained on it. It is a folder with

folds.json           the number of folds
fold0, fold1, ...    one model each; `fold0` was trained on the events of all folds except 0

The fold of an event is a hash of its number: `pairton.events.splits.fold_of`. Data, and simulated events of other
samples, are divided in the same way; for them, any of the networks could be used.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import replacing
from pairton._common.configuration import read_json
from pairton._version import __version__
from pairton.decoding import get_decoding
from pairton.decoding.views import view_of
from pairton.errors import ConfigError, ModelError, PairtonWarning, nearest, shown
from pairton.events.domain import Domain
from pairton.events.head_specs import HeadSpec, parse_head
from pairton.events.inputs import Inputs
from pairton.events.splits import DEFAULT_FRACTIONS, MOST_FOLDS, fold_of
from pairton.topology import Topology, parse_topology
from pairton.topology.vocabulary import check_known, check_mixture, mixture, same_alternative

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = [
    "FOLDS",
    "FORMAT_VERSION",
    "INFO",
    "ONNX",
    "WEIGHTS",
    "WEIGHTS_KEY",
    "ModelInfo",
    "builtin_models",
    "by_fold",
    "check_folds",
    "find_model",
    "fold_folder",
    "joined_info",
    "parse_info",
    "read_folds",
    "read_info",
    "read_weights",
    "save_model",
    "write_folds",
]

FORMAT_VERSION = 2
WEIGHTS, INFO, ONNX = "model.safetensors", "model.json", "model.onnx"
FOLDS = "folds.json"  # in a folder with one model per fold
WEIGHTS_KEY = "weights_sha256"  # in model.json and in the metadata of model.onnx
HASH = "splitmix64 of the event number"
COMMON = "topology", "network", "decoding", "outputs"  # entries of `ModelInfo` that are equal for all folds


@dataclass(frozen=True)
class ModelInfo:
    """Everything about a model except its weights."""

    topology: Topology
    network: Mapping[str, Any]  # settings of `pairton.network.NetworkConfig`
    domain: Domain
    inputs: Inputs
    outputs: Mapping[str, tuple[str, ...]]  # name -> axes after the event axis
    decoding: str = "exact"  # the decoding that it was trained for
    temperatures: tuple[float, ...] = ()  # fitted for that decoding; empty: all 1
    data: Mapping[str, Any] = field(default_factory=dict)  # fingerprint and counts of the training events
    metrics: Mapping[str, float] = field(default_factory=dict)  # on validation events
    recipe: Mapping[str, Any] = field(default_factory=dict)
    code_version: str = __version__
    format_version: int = FORMAT_VERSION
    weights_sha256: str | None = None
    heads: Mapping[str, HeadSpec] = field(default_factory=dict)  # heads that the recipe declares

    @property
    def takes_tokens(self) -> bool:
        return bool(self.network.get("tokens", True))

    @property
    def mixture(self) -> Topology | None:
        """The mixture of its topologies, if the network was trained to say which of them an event is of."""
        return mixture(self.topology.trees) if self.recipe.get("loss", {}).get("mixture") else None

    def for_topology(self, tree: Topology, model: str) -> ModelInfo:
        """The info of a network of particles, called `model`, for events of a topology.

        ModelError if the network does not know a particle or a kind of object.
        """
        check_known(self.topology, check_mixture(tree), model)
        own = same_alternative(self.topology, tree)
        return replace(
            self,
            topology=tree if own is None else replace(tree, selection=own.selection),
            inputs=self.inputs.of(tree),
            domain=Domain({kind: self.domain[kind] for kind in tree.kinds}),
            outputs=view_of(self.topology, tree).axes(self.outputs),
        )

    @property
    def seen(self) -> dict[str, float]:
        """Sources of all events that the weights learned from -> the fraction of them that was used for training.

        A model that was started from another one has also learned from the events of that one.
        """
        own = self.recipe.get("data", {}).get("train_fraction", DEFAULT_FRACTIONS[0])
        larger = self.data.get("train_fractions", {})
        return {source: larger.get(source, own) for source in self.data.get("sources", ())}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; since JSON has no NaN, such metrics are None."""
        raw = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("topology", "domain", "inputs"):
            raw[name] = raw[name].to_dict()
        raw["heads"] = {name: spec.to_dict() for name, spec in self.heads.items()}
        raw["metrics"] = {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}
        return raw


def parse_info(raw: Any, source: str) -> ModelInfo:
    """The info from the JSON in a model's folder or ONNX file; `source` is named in errors."""
    for key in ("topology", "domain", "network"):
        if not isinstance(raw, Mapping) or not isinstance(raw.get(key), Mapping):
            raise ModelError(f"{source} has no {key} of the model: copy or export the model again")
    version = raw.get("format_version")
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{source}: format_version is {shown(version)}, but Pairton {__version__} reads {FORMAT_VERSION}: "
            "update Pairton, or train the model again"
        )
    try:
        topology = parse_topology(raw["topology"], source)
        inputs = Inputs.parse(raw["inputs"], topology, f"{source}: inputs")
        decoding = get_decoding(str(raw.get("decoding") or "exact"))
        heads = {
            name: parse_head(name, spec, topology, f"{source}: heads.{name}")[0]
            for name, spec in raw.get("heads", {}).items()
        }
        temperatures = tuple(map(float, raw.get("temperatures") or ()))
        metrics = {k: math.nan if v is None else float(v) for k, v in raw.get("metrics", {}).items()}
        outputs = {str(name): tuple(map(str, axes)) for name, axes in raw["outputs"].items()}
        domain = Domain.from_dict(raw["domain"], source)
        for kind in topology.kinds:
            if odd := [name for name in domain[kind].binary if name not in inputs.columns(kind)]:
                raise ConfigError(f"domain.{kind}.binary has {shown(odd[0])}, which is no input of the model")
        rest = {name: raw[name] for name in ("data", "recipe", "code_version", WEIGHTS_KEY) if name in raw}
        for name in ("data", "recipe"):
            if not isinstance(raw.get(name, {}), Mapping):
                raise ConfigError(f"{name} is {shown(raw[name])}, but must be a mapping")
        stages = decoding.n_temperatures(topology)
        if len(temperatures) not in (0, stages):
            raise ConfigError(f"has {len(temperatures)} temperatures, but {decoding.name} takes {stages}")
        about = topology, raw["network"], domain, inputs, outputs, decoding.name, temperatures
        return ModelInfo(*about, metrics=metrics, heads=heads, **rest)
    except ConfigError as error:
        raise ModelError(str(error) if source in str(error) else f"{source}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:200]
        raise ModelError(f"{source}: has a value of the wrong kind ({reason})") from None


def builtin_models() -> dict[str, Path]:
    """The built-in models: name -> folder."""
    folder = Path(str(resources.files("pairton.models")))
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return {entry.name: entry for entry in entries if (entry / INFO).is_file()}


def find_model(model: str | Path) -> Path:
    """The folder or ONNX file of a model, given as the name of a built-in model, a folder, or a file in it."""
    names = builtin_models()
    if str(model) in names:
        if (Path(model) / INFO).is_file():
            warnings.warn(
                f"{model} is both a built-in model and a folder here: the built-in model is used; write ./{model} "
                "for the folder",
                PairtonWarning,
                stacklevel=2,
            )
        return names[str(model)]
    path = Path(model)
    if path.is_file():
        if path.suffix == ".onnx":
            return path
        if path.name in (WEIGHTS, INFO, FOLDS):
            path = path.parent
    if any((path / name).is_file() for name in (INFO, ONNX, FOLDS)):
        return path
    if path.exists():
        raise ModelError(
            f"{path} is not a model: give an .onnx file, or a folder with {ONNX}, {WEIGHTS} and {INFO}"
        )
    known = ", ".join(names) or "none in this installation"
    raise ModelError(f"no model {str(model)!r}: neither built in ({known}) nor a path{nearest(str(model), names)}")


def save_model(folder: str | Path, weights: Mapping[str, npt.NDArray[Any]], info: ModelInfo) -> None:
    """Write both files; each appears when complete, and the JSON contains the hash of the weights."""
    from safetensors.numpy import save

    folder = Path(folder)
    payload = save({name: np.ascontiguousarray(array) for name, array in weights.items()})
    raw = {**info.to_dict(), WEIGHTS_KEY: hashlib.sha256(payload).hexdigest()}
    with replacing(folder / WEIGHTS) as first, replacing(folder / INFO) as second:
        first.write_bytes(payload)
        second.write_text(json.dumps(raw, indent=1) + "\n")


def read_info(model: str | Path) -> ModelInfo:
    """Everything about a model except its weights; needs no torch."""
    path = find_model(model)
    if path.is_file():
        raise ModelError(
            f"{path} is an ONNX file, which has no weights for torch: give the folder with its {WEIGHTS}"
        )
    if (path / FOLDS).is_file():
        raise ModelError(f"{path} has one network per fold of events: give one of them, such as {path}/fold0")
    return parse_info(read_json(path / INFO, ModelError), str(path / INFO))


def read_weights(folder: Path) -> bytes:
    """The content of the weights file, checked against the hash in the JSON beside it."""
    path = folder / WEIGHTS
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}): copy the model again") from None
    if hashlib.sha256(payload).hexdigest() != read_json(folder / INFO, ModelError).get(WEIGHTS_KEY):
        raise ModelError(f"{path}: not the weights that {INFO} describes: copy both files of the model again")
    return payload


# -- folds -------------------------------------------------------------------------------------------------


def check_folds(folds: int) -> int:
    """Return the number of folds, or raise ConfigError if it is not allowed."""
    if not 2 <= folds <= MOST_FOLDS:
        raise ConfigError(f"folds is {folds}, but must be from 2 to {MOST_FOLDS}")
    return folds


def fold_folder(folder: Path, fold: int) -> Path:
    """The folder of the model of a fold."""
    return folder / f"fold{fold}"


def write_folds(folder: Path, folds: int) -> None:
    """Write the file that declares a folder to hold one model per fold."""
    with replacing(folder / FOLDS) as temporary:
        temporary.write_text(json.dumps({"folds": folds, "hash": HASH}) + "\n")


def read_folds(folder: Path) -> int:
    """The number of folds in a folder; ModelError if folds are missing."""
    raw = read_json(folder / FOLDS, ModelError)
    folds = raw.get("folds")
    if not isinstance(folds, int) or isinstance(folds, bool) or not 2 <= folds <= MOST_FOLDS:
        raise ModelError(f"{folder / FOLDS}: folds is {shown(folds)}, but must be from 2 to {MOST_FOLDS}")
    done = [k for k in range(folds) if any((fold_folder(folder, k) / name).is_file() for name in (INFO, ONNX))]
    if len(done) < folds:
        raise ModelError(f"{folder}: has {len(done)} of {folds} folds: continue the training with --resume")
    return folds


def by_fold(model: Model, ids: npt.NDArray[np.uint64]) -> Iterator[tuple[Model, npt.NDArray[np.bool_]]]:
    """Each network with a mask (n,) of the events it is used for; a model without folds is used for all."""
    members: Sequence[Model] = getattr(model, "folds", ())
    if not members:
        yield model, np.ones(len(ids), dtype=bool)
        return
    fold = fold_of(ids, len(members))
    for k, member in enumerate(members):
        yield member, fold == k


def joined_info(folder: Path, infos: Sequence[ModelInfo]) -> ModelInfo:
    """The common info of all folds; ModelError if they are not the folds of one training."""
    first, folds = infos[0], len(infos)
    for k, info in enumerate(infos):
        trained_for = info.data.get("fold"), info.data.get("folds")
        if trained_for != (k, folds):
            how = "without folds" if trained_for == (None, None) else "for fold {} of {}".format(*trained_for)
            raise ModelError(
                f"{fold_folder(folder, k)}: trained {how}, but is in the place of fold {k} of {folds}: copy the "
                "whole folder of the training"
            )
        own = _common(info)
        if different := [name for name, value in _common(first).items() if own[name] != value]:
            raise ModelError(
                f"{fold_folder(folder, k)}: has another {different[0]} than fold 0: copy the whole folder of the "
                "training, or train all folds again"
            )
    kinds = {}
    for kind, domain in first.domain.kinds.items():
        every = [info.domain[kind] for info in infos]
        count = min(each.count[0] for each in every), max(each.count[1] for each in every)
        binary = tuple(name for name in domain.binary if all(name in each.binary for each in every))
        kinds[kind] = replace(domain, count=count, binary=binary)
    names = [name for name in first.metrics if all(name in info.metrics for info in infos)]
    means = {name: math.fsum(info.metrics[name] for info in infos) / folds for name in names}
    data: dict[str, Any] = {
        "folds": folds,
        "training_events": [info.data.get("training_events") for info in infos],
        "sources": sorted({source for info in infos for source in info.data.get("sources", ())}),
    }
    hashes = [info.weights_sha256 for info in infos]
    joined = hashlib.sha256("".join(map(str, hashes)).encode()).hexdigest() if all(hashes) else None
    about: dict[str, Any] = {"domain": Domain(kinds), "metrics": means, "data": data}
    return replace(first, **about, temperatures=(), weights_sha256=joined)


def _common(info: ModelInfo) -> dict[str, Any]:
    """The entries that must agree between all folds."""
    classes = [spec.classes for spec in info.heads.values()]
    return {name: getattr(info, name) for name in COMMON} | {"number of classes": classes}
