"""What the scripts here share: SPANet's model and events, as installed, in batches without useless padding."""

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
EVENT = "event.yaml"  # under this name beside the weights; train.py takes any file


def fail(message: str) -> NoReturn:
    """Leave as `pairton` does for a mistake of the user: one line, exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def use_threads(threads: int) -> None:
    if not 1 <= threads <= numba.config.NUMBA_NUM_THREADS:
        fail(f"--threads {threads}: this machine allows 1 to {numba.config.NUMBA_NUM_THREADS}")
    torch.set_num_threads(threads)
    numba.set_num_threads(threads)


def check_events(path: Path, event_info: Path = HERE / EVENT) -> None:
    """SPANet names a missing dataset only from deep inside."""
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
    """The datasets that an event file asks for."""
    found = []
    for kind, groups in event["INPUTS"].items():
        for group, features in groups.items():
            found += [f"INPUTS/{group}/{name}" for name in [*features, *(["MASK"] * (kind != "GLOBAL"))]]
    return found + [f"TARGETS/{particle}/{name}" for particle, names in event["EVENT"].items() for name in names]


def make_model(options: Options, events: Path, event_info: Path = HERE / EVENT) -> JetReconstructionModel:
    """SPANet's model; it takes its events and their statistics from a file."""
    options.event_info_file, options.training_file = str(event_info), str(events)
    # messages of the package must not mix with what we print; a model without a Trainer has nowhere to log to
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = JetReconstructionModel(options)
    model.log = lambda *_, **__: None
    return model


def all_events(model: JetReconstructionModel) -> JetReconstructionDataset:
    """Every event of the model's file, in its order: the model itself sets some aside for validation."""
    with contextlib.redirect_stdout(sys.stderr):
        return model.dataset(model.options.training_file, model.event_info)


def load_model(folder: Path, events: Path) -> JetReconstructionModel:
    """A model of `train.py`, its datasets read from a file of events."""
    for name in ("options.json", "weights.pt", EVENT):
        if not (folder / name).is_file():
            fail(f"{folder}: no {name} in it; give the folder that train.py wrote")
    options = Options.load(str(folder / "options.json"))
    model = make_model(options, events, folder / EVENT)
    model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    return model.eval()


def take(dataset: JetReconstructionDataset, rows: Any) -> Batch:
    """Events by index, the padding of every collection cut to the longest of them."""
    batch = dataset[rows]
    sources = []
    for source in batch.sources:
        longest = max(1, int(source.mask.sum(1).max()))
        sources.append(Source(source.data[:, :longest], source.mask[:, :longest]))
    return batch._replace(sources=tuple(sources))


def by_jet_count(dataset: JetReconstructionDataset, batch: int, rng: np.random.Generator | None) -> Iterator[Any]:
    """Indices of batches of (nearly) one jet count; shuffled with a generator, in order of jet count without."""
    order = np.arange(len(dataset)) if rng is None else rng.permutation(len(dataset))
    order = order[np.argsort(dataset.num_vectors.numpy()[order], kind="stable")]
    batches = np.array_split(order, max(1, -(-len(order) // batch)))
    for i in range(len(batches)) if rng is None else rng.permutation(len(batches)):
        yield torch.from_numpy(batches[i])


def write(path: Path, content: Any) -> None:
    """Under its name when it is complete, or not at all."""
    part = path.with_name(f".{path.name}.part")
    if path.suffix == ".pt":
        torch.save(content, part)
    else:
        part.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(part, path)
