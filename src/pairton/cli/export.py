"""`pairton export`: write a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pairton._common.atomic import refuse_existing
from pairton.cli.options import (
    INPUT,
    OUTPUT,
    PHYSICS,
    GroupedCommand,
    answer_options,
    completing,
    force_option,
    option,
)
from pairton.errors import ConfigError

__all__ = ["export"]


@click.command(cls=GroupedCommand, short_help="Write a model as an ONNX file.")
@click.argument("model", shell_complete=completing("model"))
@option(
    OUTPUT,
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="File to write, with the suffix .onnx.",
)
@force_option
@option(
    OUTPUT,
    "--whole",
    is_flag=True,
    help="Export the whole reconstruction, from objects to indices and probabilities. [the network alone]",
)
@option(
    PHYSICS,
    "--max-objects",
    type=int,
    help="With --whole: largest number of objects of the kind that most slots have (jets).",
)
@option(PHYSICS, "--decoding", help="With --whole: exact, which works for any model. [the model's]")
@option(
    OUTPUT,
    "--like",
    type=click.Choice(["spanet"]),
    help="Use the inputs and outputs of a network that SPANet exports.",
)
@option(
    INPUT,
    "--topology",
    metavar="NAME|FILE",
    help="With --whole: decay tree, of a model that was trained on several. With --like spanet: event file that "
    "describes the inputs. [inputs without preprocessing]",
)
@answer_options
def export(
    model: str,
    output: Path,
    force: bool,
    whole: bool,
    max_objects: int | None,
    decoding: str | None,
    like: str | None,
    topology: str | None,
    **question: Any,
) -> None:
    """Write MODEL (built-in, or a folder) as a self-contained ONNX file, or one file per fold.

    A Lightning checkpoint (.ckpt) of the paper's authors becomes a model folder.

    \b
    Example: pairton export ttbar_allhad --whole -o reconstruct.onnx
             pairton export my-model --like spanet --topology event.yaml -o net.onnx
             pairton export best.ckpt -o their-model/model.onnx
    """
    from pairton.decoding import Question
    from pairton.export import export_model, fold_files

    if output.suffix != ".onnx":
        raise ConfigError(f"{output}: the output must end in .onnx")
    if like is not None and whole:
        raise ConfigError("--like spanet exports probabilities, not answers: leave out --whole")
    asked = Question(**question)
    given = {"max_objects": max_objects, "decoding": decoding, "topology": topology}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not asked.is_default:
        options["question"] = asked
    files = fold_files(model, output)
    for _, file in files:
        refuse_existing(file, force)
    for network, file in files:
        about = export_model(network, file, like or ("whole" if whole else "step"), **options)
        if like is not None:
            inputs = ", ".join(f"{name} ({', '.join(features)})" for name, features in about["features"].items())
            what = f"like SPANet, up to {about['max_objects']} objects; inputs: {inputs}"
        else:
            decoded = f"whole reconstruction ({about.get('decoding')}, up to {about.get('max_objects')} objects)"
            size = f"{file.stat().st_size / 1e6:.1f} MB"
            what = f"{decoded if whole else 'one step'} of {about['topology']['name']}, {size}"
        data = about.get("data", {})
        fold = f"; for events of fold {data['fold']} of {data['folds']}" if "fold" in data else ""
        click.echo(f"{file}: {what}{fold}")
