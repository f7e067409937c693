"""Functions that the scripts here share: SPANet's model, and events in batches with little padding."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import h5py
import numba
import numpy as np
import torch
import yaml

# spanet 2.1 uses names that numpy has dropped
for name, kind in {"object": object, "int": int}.items():
    if name not in vars(np):
        setattr(np, name, kind)

from spanet import JetReconstructionModel, Options  # noqa: E402
from spanet.dataset.jet_reconstruction_dataset import JetReconstructionDataset  # noqa: E402
from spanet.dataset.types import Batch, Source  # noqa: E402

__all__ = [
    "EVENT",
    "HERE",
    "all_events",
    "by_jet_count",
    "check_events",
    "fail",
    "load_model",
    "make_model",
    "needed",
    "take",
    "use_threads",
    "write",
]

HERE = Path(__file__).resolve().parent
EVENT = "event.yaml"  # name of the event file in a model's folder


def fail(message: str) -> NoReturn:
    """Print one line and exit with code 2, as `pairton` does for a user's mistake."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def use_threads(threads: int) -> None:
    if not 1 <= threads <= numba.config.NUMBA_NUM_THREADS:
        fail(f"--threads {threads}: this machine allows 1 to {numba.config.NUMBA_NUM_THREADS}")
    torch.set_num_threads(threads)
    numba.set_num_threads(threads)


def check_events(path: Path, event_info: Path = HERE / EVENT) -> None:
    """Fail early if a file lacks datasets of the event file; SPANet's own error would be a traceback."""
    if not path.is_file():
        fail(f"{path}: no such file; check the name and the folder")
    try:
        with h5py.File(path) as file:
            missing = [name for name in needed(yaml.safe_load(event_info.read_text())) if name not in file]
    except OSError as error:
        fail(f"{path}: cannot be read as HDF5 ({error})")
    if missing:
        fail(f"{path}: lacks {', '.join(missing)}; make one with `pairton convert` or prepare.py: see README.md")


def needed(event: dict[str, Any]) -> list[str]:
    """The datasets that an event file requires."""
    found = []
    for kind, groups in event["INPUTS"].items():
        for group, features in groups.items():
            found += [f"INPUTS/{group}/{name}" for name in [*features, *(["MASK"] * (kind != "GLOBAL"))]]
    return found + [f"TARGETS/{particle}/{name}" for particle, names in event["EVENT"].items() for name in names]


def make_model(options: Options, events: Path, event_info: Path = HERE / EVENT) -> JetReconstructionModel:
    """SPANet's model, which reads its events and their statistics from a file."""
    options.event_info_file, options.training_file = str(event_info), str(events)
    # keep messages of the package off stdout; without a Trainer, the model cannot log
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = JetReconstructionModel(options)
    model.log = lambda *_, **__: None
    return model


def all_events(model: JetReconstructionModel) -> JetReconstructionDataset:
    """All events of the model's file, in order. The model's own datasets are split for validation."""
    with contextlib.redirect_stdout(sys.stderr):
        return model.dataset(model.options.training_file, model.event_info)


def load_model(folder: Path, events: Path) -> JetReconstructionModel:
    """Load a model of `train.py`, with datasets from a file of events."""
    for name in ("options.json", "weights.pt", EVENT):
        if not (folder / name).is_file():
            fail(f"{folder}: no {name} in it; give the folder that train.py wrote")
    options = Options.load(str(folder / "options.json"))
    model = make_model(options, events, folder / EVENT)
    model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    return model.eval()


def take(dataset: JetReconstructionDataset, rows: Any) -> Batch:
    """Events by index, with the padding of every collection cut to the longest of these events."""
    batch = dataset[rows]
    sources = []
    for source in batch.sources:
        longest = max(1, int(source.mask.sum(1).max()))
        sources.append(Source(source.data[:, :longest], source.mask[:, :longest]))
    return batch._replace(sources=tuple(sources))


def by_jet_count(dataset: JetReconstructionDataset, batch: int, rng: np.random.Generator | None) -> Iterator[Any]:
    """Yield the indices of batches of events with (nearly) the same jet count; shuffled if `rng` is given."""
    order = np.arange(len(dataset)) if rng is None else rng.permutation(len(dataset))
    order = order[np.argsort(dataset.num_vectors.numpy()[order], kind="stable")]
    batches = np.array_split(order, max(1, -(-len(order) // batch)))
    for i in range(len(batches)) if rng is None else rng.permutation(len(batches)):
        yield torch.from_numpy(batches[i])


def write(path: Path, content: Any) -> None:
    """Write a file under a temporary name, and rename it when it is complete."""
    part = path.with_name(f".{path.name}.part")
    if path.suffix == ".pt":
        torch.save(content, part)
    else:
        part.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(part, path)
