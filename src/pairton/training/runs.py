"""Trains a model, or one per fold, from a recipe and files."""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pairton._common.atomic import locked, output_errors, replacing
from pairton._common.configuration import read_json
from pairton.errors import ConfigError, MissingExtraError, OutputError, PairtonWarning, TrainingError
from pairton.events import Events
from pairton.events.splits import MOST_FOLDS
from pairton.events.tags import load_table
from pairton.export import export_model
from pairton.formats import expand, iterate, stored_topology
from pairton.models.storage import (
    FOLDS,
    INFO,
    ONNX,
    WEIGHTS,
    check_folds,
    find_model,
    fold_folder,
    joined_info,
    read_folds,
    read_info,
    write_folds,
)
from pairton.network.heads import get_head
from pairton.topology import JET, Topology
from pairton.topology.vocabulary import same_alternative
from pairton.training.data import PackedEvents, check_enough, pack
from pairton.training.loop import Result, Trainer
from pairton.training.measuring import measured
from pairton.training.recipes import Recipe, parse_recipe
from pairton.training.resume_state import STATE, read_progress

__all__ = ["make_fabric", "train"]

RECIPE = "recipe.yaml"
HELD = (STATE, INFO, WEIGHTS, ONNX)  # files of a training or a model, which are never mixed with others


def train(
    recipe: Recipe,
    data: Sequence[str | Path],
    out: str | Path,
    *,
    init: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    folds: int | None = None,
    **options: Any,
) -> Result:
    """Train a recipe on files. `pairton.train` is the public form, and documents the arguments.

    With several topologies, `tth_allhad=events.h5` in `data` gives the topology of a file that does not store it.
    """
    out = Path(out)
    if resume and force:
        raise ConfigError("resume continues a training and force replaces it: give one of them")
    if init is not None and out.resolve() in ((found := find_model(init).resolve()), *found.parents):
        raise OutputError(f"{out}: holds the model to start from, which would be replaced: give another folder")
    fabric = make_fabric(recipe)
    given: dict[str, Any] = {"init": init, "resume": resume}
    if folds is None:
        if (out / FOLDS).is_file():
            raise OutputError(f"{out} has a training in folds: give --folds, or another folder")
        with _own_folder(fabric, out):
            _check_out(out, resume, force)  # not before: another run may just have ended
            with _packed(fabric, recipe, data, out, **options) as (events, _):
                return _train(fabric, recipe, events, out, **given)
    check_folds(folds)
    with _own_folder(fabric, out):
        started = _check_folds(out, folds, resume, force)
        with _packed(fabric, recipe, data, out, copies=2, **options) as (events, pack_folder):
            for k in range(max(started - 1, 0), folds):  # all folds before the last one that was started are done
                fold, folder = (k, folds), fold_folder(out, k)
                given |= {"init": _start(init, fold), "resume": k < started}
                memory = recipe.data.memory_gib * 2**30 / fabric.world_size / 4  # two splits, two copies
                own = pack_folder / f"fold{k}"
                train_events, validation = (
                    part.without(fold, own / name, memory)
                    for part, name in zip(events, ("train", "validation"), strict=True)
                )
                check_enough(train_events, validation, f"fold {k} is left out")
                with _own_folder(fabric, folder):
                    _check_out(folder, given["resume"], force)
                    result = _train(fabric, recipe, (train_events, validation), folder, **given)
                result = replace(result, fold=fold)
                shutil.rmtree(own, ignore_errors=True)
                if result.interrupted:
                    break
    if result.finished and result.leads:
        infos = [read_info(fold_folder(out, k)) for k in range(folds)]
        metrics = joined_info(out, infos).metrics
        result = replace(result, best={name: metrics[name] for name in result.best if name in metrics})
    return result


@contextlib.contextmanager
def _packed(
    fabric: Any, recipe: Recipe, data: Sequence[str | Path], out: Path, copies: int = 1, **options: Any
) -> Iterator[tuple[tuple[PackedEvents, PackedEvents], Path]]:
    """The packed events of both splits, and the folder of their files, which is removed in the end.

    copies    how many copies of the events share the memory of the recipe
    """
    folder = out / "packed" / str(fabric.global_rank)
    registered = [name for head in recipe.network.heads for name in get_head(head).columns]
    declared = [name for spec in recipe.specs.values() for name in spec.needed_columns]
    columns = tuple(dict.fromkeys([*registered, *declared]))
    fields = {kind: recipe.inputs.fields(kind) for kind in recipe.inputs.kinds}
    if recipe.data.tag_table is not None:
        fields[JET] = tuple(dict.fromkeys((*fields[JET], load_table(recipe.data.tag_table).field)))
    keep = [*options.pop("keep", ()), *columns]
    paths = list(map(str, data))
    if len(recipe.topology.trees) > 1:
        files = [found for path in paths for found in _files(path, recipe.topology)]
        chunks = _events_of(files, recipe.topology, fields=fields, keep=keep, **options)
    else:
        (tree,) = recipe.topology.trees
        chunks = iterate(paths, topology=tree, fields=fields, keep=keep, **options)
    try:
        yield (
            pack(
                chunks,
                recipe.topology,
                recipe.inputs,
                folder=folder,
                config=recipe.data,
                max_objects=recipe.max_objects,
                memory=recipe.data.memory_gib * 2**30 / fabric.world_size / copies,
                columns=columns,
            ),
            folder,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # missing, or still in use by another process
            folder.parent.rmdir()


def _events_of(files: list[tuple[Topology, str]], vocabulary: Topology, **options: Any) -> Iterator[Events]:
    """The events of files of several topologies; TrainingError if a topology has no file."""
    if missing := [tree.name for tree in vocabulary.trees if tree not in [tree for tree, _ in files]]:
        raise TrainingError(f"no file has events of {missing[0]}: give files of each topology of the recipe")
    fields = options.pop("fields")
    for tree, file in files:
        own = {kind: names for kind, names in fields.items() if kind in tree.kinds}
        yield from iterate([file], topology=tree, fields=own, **options)


def _files(path: str, vocabulary: Topology) -> list[tuple[Topology, str]]:
    """The files of a path, each with the topology that is named in front of the path or stored in the file."""
    trees = {tree.name: tree for tree in vocabulary.trees}
    name, equals, rest = path.partition("=")
    if equals and name in trees:
        return [(trees[name], file) for file in expand(rest)]
    found = []
    for file in expand(path):
        stored = stored_topology(file)
        tree = same_alternative(vocabulary, stored)
        if tree is None:
            problem = "does not say which topology its events are of" if stored is None else f"is of {stored.name}"
            raise TrainingError(
                f"{file} {problem}, but the recipe is for {', '.join(trees)}: write one of them in front, as in "
                f"--data {next(iter(trees))}={file}"
            )
        found.append((tree, file))
    return found


def _train(
    fabric: Any,
    recipe: Recipe,
    events: tuple[PackedEvents, PackedEvents],
    out: Path,
    *,
    init: str | Path | None,
    resume: bool,
) -> Result:
    """Train one model on events of both splits, in all processes of `fabric`."""
    train_events, validation_events = events
    if init is not None:
        _check_init(init, train_events, recipe.data.train_fraction)
    # the first weights expect the offsets and scales of their own training
    progress = read_progress(out / STATE) if resume else None
    known = None if init is None else read_info(init).inputs
    if progress is not None:
        known = parse_recipe(progress["recipe"]).inputs
    given_recipe, recipe = recipe, measured(recipe, train_events, known)
    trainer = Trainer(recipe, train_events, validation_events, out, init=init, progress=progress)
    fabric.barrier()
    if fabric.is_global_zero and not resume:  # nothing is removed before all checks
        if train_events.fold is not None and train_events.fold[0] == 0:
            _begin_folds(out.parent, train_events.fold[1])
        _begin(out, given_recipe)
    result = trainer.run(fabric)
    if result.leads and (out / INFO).is_file():  # ready for the default engine
        export_model(out, out / ONNX)
    return result


def make_fabric(recipe: Recipe) -> Any:
    """Lightning Fabric for the devices of a recipe, with its processes launched."""
    try:
        from lightning.fabric import Fabric
    except ImportError:
        raise MissingExtraError("train", "lightning") from None
    run = recipe.run
    try:
        fabric = Fabric(
            accelerator=run.accelerator,
            devices=run.devices,
            num_nodes=run.nodes,
            precision=run.precision,
            strategy="ddp" if run.devices * run.nodes > 1 else "auto",
        )
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"run: {reason}") from None
    fabric.launch()
    return fabric


@contextlib.contextmanager
def _own_folder(fabric: Any, out: Path) -> Iterator[None]:
    """Create and lock a folder, for all processes of `fabric`. It is removed in the end if it is still empty."""
    if not fabric.is_global_zero:
        fabric.barrier()
        yield
        return
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    with output_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        with locked(out):
            fabric.barrier()
            yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            for folder in missing:
                folder.rmdir()


def _check_folds(out: Path, folds: int, resume: bool, force: bool) -> int:
    """Return how many folds were started before. Raise an error if the folder cannot be used."""
    if any((out / name).exists() for name in HELD):
        raise OutputError(f"{out} has a training without folds in it: give another folder")
    begun = [k for k in range(MOST_FOLDS) if (fold_folder(out, k) / STATE).exists()]
    if resume and not begun:
        raise OutputError(f"{out}: no state of a fold to resume from: start without --resume")
    if resume and (before := read_json(out / FOLDS, TrainingError).get("folds")) != folds:
        raise TrainingError(f"{out} was started with {before} folds, not {folds}: resume with --folds {before}")
    if not resume:
        for k in range(MOST_FOLDS):
            _check_out(fold_folder(out, k), resume, force)
    return max(begun) + 1 if resume else 0


def _begin_folds(out: Path, folds: int) -> None:
    """Remove all folds of an earlier training, so that old and new ones are never mixed."""
    for k in range(MOST_FOLDS):
        _remove_model(fold_folder(out, k))
    write_folds(out, folds)


def _start(init: str | Path | None, fold: tuple[int, int]) -> str | Path | None:
    """The model that the training of a fold starts from: the same fold of `init`, if that has folds."""
    if init is None or not (path := find_model(init) / FOLDS).is_file():
        return init
    if (found := read_folds(path.parent)) != fold[1]:
        raise TrainingError(f"{init} has {found} folds: start {fold[1]} folds from a model with as many")
    return fold_folder(path.parent, fold[0])


def _check_init(init: str | Path, events: PackedEvents, train_fraction: float) -> None:
    """Warn if the model to start from may have been trained on events that this training leaves out."""
    info = read_info(init)
    used = [fraction for source, fraction in info.seen.items() if int(source, 16) in events.sources]
    if used and events.fold is not None and (info.data.get("fold"), info.data.get("folds")) != events.fold:
        warnings.warn(
            f"{init} was trained on events of the same files: it may have seen those of the fold that is left "
            "out; start from a model in the same folds",
            PairtonWarning,
            stacklevel=2,
        )
    if used and max(used) > train_fraction:
        warnings.warn(
            f"{init} was trained on a fraction {max(used):g} of the events of the same files, but "
            f"data.train_fraction is {train_fraction:g}: it has seen validation and test events; set "
            f"data.train_fraction to {max(used):g} or more",
            PairtonWarning,
            stacklevel=2,
        )


def _check_out(out: Path, resume: bool, force: bool) -> None:
    """Raise OutputError if a folder does not hold what is to be resumed, or holds what would be replaced."""
    if resume:
        if not (out / STATE).exists():
            raise OutputError(f"{out / STATE}: no state to resume from: start without --resume")
    elif not force and (out / STATE).exists():
        raise OutputError(
            f"{out} already holds a training: continue it with --resume, or start again with --force"
        )
    elif not force and any((out / name).exists() for name in HELD):
        raise OutputError(f"{out} already holds a model: give another folder, or replace it with --force")


def _begin(out: Path, recipe: Recipe) -> None:
    """Remove an earlier training, and write the recipe of the new one."""
    _remove_model(out)
    with replacing(out / RECIPE) as temporary:
        temporary.write_text(yaml.safe_dump(json.loads(json.dumps(recipe.to_dict())), sort_keys=False))


def _remove_model(folder: Path) -> None:
    with output_errors(folder):
        for name in HELD:
            (folder / name).unlink(missing_ok=True)
