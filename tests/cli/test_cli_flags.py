"""The set of flags is frozen: a new one is a decision, taken here, not a side effect."""

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from pairton.cli import VERBS, cli

READING = {
    "--format",
    "--topology",
    "--map",
    "--tree",
    "--units",
    "--btag",
    "--tags",
    "--keep",
    "--set",
    "--strict",
    "--isolate",
}
ANSWER = {"--answer", "--allow-absent", "--prior"}
RUNNING = {"--beam", "--max-objects", "--jets", "--leptons", "--no-cuts", "--threads", "--engine"} | ANSWER
PARTS = {"--dask", "--jobs", "--resume", "--part-rows", "--part-suffix"}

FLAGS = {
    "reconstruct": READING
    | RUNNING
    | PARTS
    | {"--output", "--model", "--decoding", "--chunk", "--variation", "--force"},
    "evaluate": READING
    | RUNNING
    | {
        "--model",
        "--split",
        "--decoding",
        "--baseline",
        "--assignments",
        "--select",
        "--mix",
        "--no-weights",
        "--jet-scale",
        "--json",
        "--report",
        "--plots",
    },
    "display": READING
    | ANSWER
    | {
        "--event",
        "--output",
        "--model",
        "--decoding",
        "--max-objects",
        "--jets",
        "--leptons",
        "--no-cuts",
        "--engine",
    },
    "inspect": READING | {"--json"},
    "verify": set(),
    "convert": READING | {"--to", "--select", "--force"},
    "generate": {"-n", "--output", "--process", "--seed", "--keep", "--filter", "--lhe", "--card", "--pythia"}
    | {"--jobs", "--dask", "--resume", "--force"},
    "topologies": set(),
    "models": set(),
    "tags": set(),
    "transfer": READING | {"--output", "--force"},
    "train": {
        "--data",
        "--out",
        "--init",
        "--topology",
        "--resume",
        "--force",
        "--folds",
        "--seed",
        "--devices",
        "--threads",
    },
    "export": ANSWER | {"--output", "--force", "--decoding", "--whole", "--max-objects", "--like", "--topology"},
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


@pytest.mark.parametrize(
    ("typed", "begun", "offered"),
    [
        (["train"], "", {"cpu", "paper", "ablations/one_shot"}),
        (["train", "cpu", "--topology"], "t", {"ttbar_allhad", "tth_allhad", "tttt_allhad"}),
        (["reconstruct", "--model"], "", {"ttbar_allhad", "iterative", "kinematic"}),
        (["reconstruct", "--decoding"], "ex", {"exact"}),
        (["convert", "--to"], "spanet", {"spanet_hdf5"}),
        (["inspect", "--format"], "nano", {"nanoaod", "nanoaod_parquet"}),
        (["generate", "--card"], "", {"atlas"}),
        (["reconstruct", "--tags"], "deepjet", {"deepjet_2018"}),
        (["topologies"], "hh", {"hh4b"}),
    ],
)
def test_the_shell_completes_values(typed, begun, offered):
    items = ShellComplete(cli, {}, "pairton", "_PAIRTON_COMPLETE").get_completions(typed, begun)
    names = {item.value for item in items if item.type == "plain"}
    assert offered <= names
    assert all(name.startswith(begun) for name in names)
    assert any(item.type == "file" for item in items)
