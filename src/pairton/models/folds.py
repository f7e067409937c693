"""Models with one network per fold of events, so that no event is reconstructed by a network trained on it.

folds.json           the number of folds
fold0, fold1, ...    one model each; `fold0` was trained on the events of all folds except 0

The fold of an event is a hash of its number: `pairton.events.splits.fold_of`. Data, and simulated events of other
samples, are divided in the same way; for them, any of the networks could be used.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton._common.atomic import replacing
from pairton._common.configuration import read_json
from pairton.errors import ConfigError, ModelError, shown
from pairton.events.domain import Domain
from pairton.events.splits import MOST_FOLDS, fold_of
from pairton.models.storage import FOLDS, INFO, ONNX, ModelInfo

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["by_fold", "check_folds", "fold_folder", "joined_info", "read_folds", "write_folds"]

HASH = "splitmix64 of the event number"
COMMON = "topology", "network", "decoding", "outputs"  # entries of `ModelInfo` that are equal for all folds


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
