"""Models of several networks, one for each fold of events: each answers for events that it was not trained on.

folds.json           how many folds there are
fold0, fold1, ...    a model each; that of `fold0` was trained on the events of all folds but 0

The fold of an event is a hash of its number: `pairton.events.splits.fold_of`. Events of data, and simulated events
of other samples, are divided in the same way; any of the networks may answer for them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import replacing
from pairton._common.configuration import read_json
from pairton.decoding import Outputs
from pairton.errors import ConfigError, ModelError, shown
from pairton.events.domain import Domain
from pairton.events.nodes import Nodes
from pairton.events.splits import MOST_FOLDS, fold_of
from pairton.models.storage import FOLDS, INFO, ONNX, ModelInfo

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["FoldsEngine", "by_fold", "check_folds", "fold_folder", "joined_info", "read_folds", "write_folds"]

HASH = "splitmix64 of the event number"


def check_folds(folds: int) -> int:
    """The number of folds, if there can be so many."""
    if not 2 <= folds <= MOST_FOLDS:
        raise ConfigError(f"folds is {folds}, but must be from 2 to {MOST_FOLDS}")
    return folds


def fold_folder(folder: Path, fold: int) -> Path:
    """Where the model of a fold is."""
    return folder / f"fold{fold}"


def write_folds(folder: Path, folds: int) -> None:
    """Say that a folder has a model for each of so many folds."""
    with replacing(folder / FOLDS) as temporary:
        temporary.write_text(json.dumps({"folds": folds, "hash": HASH}) + "\n")


def read_folds(folder: Path) -> int:
    """How many folds a folder has."""
    raw = read_json(folder / FOLDS, ModelError)
    folds = raw.get("folds")
    if not isinstance(folds, int) or isinstance(folds, bool) or not 2 <= folds <= MOST_FOLDS:
        raise ModelError(f"{folder / FOLDS}: folds is {shown(folds)}, but must be from 2 to {MOST_FOLDS}")
    if raw.get("hash") != HASH:
        raise ModelError(f"{folder / FOLDS}: divided by {shown(raw.get('hash'))}, but Pairton knows {HASH}")
    done = [k for k in range(folds) if any((fold_folder(folder, k) / name).is_file() for name in (INFO, ONNX))]
    if len(done) < folds:
        raise ModelError(f"{folder}: has {len(done)} of {folds} folds: continue the training with --resume")
    return folds


def by_fold(model: Model, ids: npt.NDArray[np.uint64]) -> Iterator[tuple[Model, npt.NDArray[np.bool_]]]:
    """Each network with the events (n,) that it answers for; a model without folds answers for all of them."""
    members: Sequence[Model] = getattr(model, "folds", ())
    if not members:
        yield model, np.ones(len(ids), dtype=bool)
        return
    fold = fold_of(ids, len(members))
    for k, member in enumerate(members):
        yield member, fold == k


@dataclass(frozen=True)
class FoldsEngine:
    """Stands where a model has its engine: the networks of the folds are asked, never all of them at once."""

    path: Path
    at_once: int

    def __call__(self, nodes: Nodes, tokens: npt.NDArray[np.uint8] | None) -> Outputs:
        raise ModelError(f"{self.path}: which of its networks answers depends on the event: ask `by_fold`")


def joined_info(folder: Path, infos: Sequence[ModelInfo]) -> ModelInfo:
    """What is known of all folds together; an error where they are not folds of one training."""
    first, folds = infos[0], len(infos)
    for k, info in enumerate(infos):
        said = info.data.get("fold"), info.data.get("folds")
        if said != (k, folds):
            trained = "without folds" if said == (None, None) else f"for fold {said[0]} of {said[1]}"
            raise ModelError(
                f"{fold_folder(folder, k)}: trained {trained}, but is in the place of fold {k} of {folds}: copy "
                "the whole folder of the training"
            )
        if any(_kind(info)[name] != value for name, value in _kind(first).items()):
            different = next(name for name, value in _kind(first).items() if _kind(info)[name] != value)
            raise ModelError(
                f"{fold_folder(folder, k)}: has another {different} than fold 0: copy the whole folder of the "
                "training"
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


def _kind(info: ModelInfo) -> dict[str, Any]:
    """What the networks of all folds have in common."""
    columns = {kind: info.inputs.columns(kind) for kind in info.inputs.kinds}
    return {
        "topology": info.topology,
        "network": dict(info.network),
        "decoding": info.decoding,
        "inputs": columns,
        "outputs": dict(info.outputs),
        "heads": list(info.heads),
    }
