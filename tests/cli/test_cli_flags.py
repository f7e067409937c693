"""The set of flags is frozen: a new one is a decision, taken here, not a side effect."""

import click
import pytest
from click.testing import CliRunner

from pairton.cli import VERBS, cli

READING = {
    "--format",
    "--topology",
    "--map",
    "--tree",
    "--units",
    "--btag",
    "--keep",
    "--set",
    "--strict",
    "--isolate",
}
RUNNING = {"--beam", "--max-objects", "--no-cuts", "--threads", "--engine"}
PARTS = {"--dask", "--jobs", "--resume", "--part-rows", "--part-suffix"}

FLAGS = {
    "reconstruct": READING | RUNNING | PARTS | {"--output", "--model", "--decoding", "--chunk", "--variation"},
    "evaluate": READING
    | RUNNING
    | {
        "--model",
        "--decoding",
        "--baseline",
        "--assignments",
        "--select",
        "--mix",
        "--jet-scale",
        "--json",
        "--report",
        "--plots",
    },
    "display": READING
    | {"--event", "--output", "--model", "--decoding", "--max-objects", "--no-cuts", "--engine"},
    "inspect": READING | {"--json"},
    "convert": READING | {"--to", "--select"},
    "generate": {"-n", "--output", "--seed", "--keep", "--filter", "--lhe", "--card", "--pythia"}
    | {"--jobs", "--dask", "--resume"},
    "topologies": set(),
    "models": set(),
    "train": {"--data", "--out", "--init", "--resume", "--seed", "--devices", "--threads"},
    "export": {"--output", "--decoding", "--whole", "--max-objects"},
}


def _name(option):
    """Its first long flag: further ones are old names."""
    return next((flag for flag in option.opts if flag.startswith("--")), option.opts[0])


def command(verb):
    found = cli.get_command(click.Context(cli), verb)
    assert found is not None
    return found


def test_every_verb_is_listed():
    assert set(VERBS) == set(FLAGS)


@pytest.mark.parametrize("verb", FLAGS)
def test_flags_of_a_verb(verb):
    options = [p for p in command(verb).params if isinstance(p, click.Option)]
    assert {_name(option) for option in options} == FLAGS[verb]


@pytest.mark.parametrize("verb", FLAGS)
def test_every_verb_explains_itself_with_an_example(verb):
    text = command(verb).help
    assert text is not None
    assert f"pairton {verb}" in text
    for parameter in command(verb).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_a_verb_that_does_not_exist():
    said = CliRunner().invoke(cli, ["recontruct"])
    assert said.exit_code == 2
    assert "no command 'recontruct'; did you mean 'reconstruct'?" in said.output
