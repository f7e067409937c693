"""From a recipe and files to a trained model in a folder."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pairton._common.atomic import locked, output_errors, replacing
from pairton.errors import ConfigError, MissingExtraError, OutputError
from pairton.events.mixed_events import TOPOLOGY
from pairton.events.tags import load_table
from pairton.export import export_model
from pairton.formats import iterate
from pairton.models.storage import INFO, ONNX, find_model
from pairton.network.heads import get_head
from pairton.topology import JET
from pairton.training.data import pack
from pairton.training.loop import Result, Trainer
from pairton.training.measuring import measured
from pairton.training.mixed_files import iterate_mixed
from pairton.training.recipes import Recipe
from pairton.training.resume_state import STATE

__all__ = ["make_fabric", "train"]

RECIPE = "recipe.yaml"


def train(
    recipe: Recipe,
    data: Sequence[str | Path],
    out: str | Path,
    *,
    init: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    **options: Any,
) -> Result:
    """Train `recipe` on files; `out` then holds the best model, the state to resume from, and the logs.

    data: paths; for a recipe with several topologies, `tth_allhad=events.h5` says which one a file is of, unless
    the file says so. init: a model to start from. force: begin anew in a folder that has a training. options: how
    to read the files, as for `pairton.iterate`.
    """
    out = Path(out)
    if init is not None and find_model(init).resolve() == out.resolve():
        raise OutputError(f"{out}: this is the model to start from, which would be replaced: give another folder")
    fabric = make_fabric(recipe)
    if fabric.is_global_zero:
        _prepare(out, recipe, resume, force)
    fabric.barrier()
    folder = out / "packed" / str(fabric.global_rank)
    registered = [name for head in recipe.network.heads for name in get_head(head).columns]
    declared = [name for spec in recipe.specs.values() for name in spec.needed_columns]
    columns = tuple(dict.fromkeys([*registered, *declared]))
    fields = {kind: recipe.inputs.fields(kind) for kind in recipe.inputs.kinds}
    if recipe.data.tag_table is not None:
        fields[JET] = tuple(dict.fromkeys((*fields[JET], load_table(recipe.data.tag_table).field)))
    keep = [*options.pop("keep", ()), *columns]
    paths = list(map(str, data))
    if recipe.topology.alternatives:
        chunks = iterate_mixed(paths, recipe.topology, fields=fields, keep=keep, **options)
        columns += (TOPOLOGY,)
    else:
        chunks = iterate(paths, topology=recipe.topology, fields=fields, keep=keep, **options)
    with locked(out) if fabric.is_global_zero else contextlib.nullcontext():
        try:
            train_events, validation_events = pack(
                chunks,
                recipe.topology,
                recipe.inputs,
                folder=folder,
                config=recipe.data,
                max_objects=recipe.max_objects,
                memory=recipe.data.memory_gib * 2**30 / fabric.world_size,
                columns=columns,
            )
            recipe = measured(recipe, train_events)
            result = Trainer(recipe, train_events, validation_events, out, init=init, resume=resume).run(fabric)
            if result.leads and (out / INFO).is_file():  # ready for the default engine
                export_model(out, out / ONNX)
            return result
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # not there, or another process's files still are
                folder.parent.rmdir()


def make_fabric(recipe: Recipe) -> Any:
    """Lightning Fabric for the devices of a recipe, its processes launched."""
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
            precision=run.precision,  # type: ignore[arg-type]
            strategy="ddp" if run.devices * run.nodes > 1 else "auto",
        )
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"run: {reason}") from None
    fabric.launch()
    return fabric


def _prepare(out: Path, recipe: Recipe, resume: bool, force: bool) -> None:
    if not (resume or force) and (out / STATE).exists():
        raise OutputError(f"{out} has a training in it: continue with --resume, or begin anew with --force")
    if resume and not (out / STATE).exists():
        raise OutputError(f"{out / STATE}: no state to resume from: start without --resume")
    with output_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        if force and not resume:
            (out / STATE).unlink(missing_ok=True)
    if resume and (out / RECIPE).exists():
        return  # it is that of this training, or the training is refused
    with replacing(out / RECIPE) as temporary:
        temporary.write_text(yaml.safe_dump(json.loads(json.dumps(recipe.to_dict())), sort_keys=False))
