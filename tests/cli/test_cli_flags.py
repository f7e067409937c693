"""The set of flags is frozen: a new one is a decision, taken here, not a side effect."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import pairton
from pairton import errors
from pairton.cli import VERBS, cli, main
from pairton.cli.options import GROUPS
from pairton.export.targets import TARGETS
from pairton.formats.base import ReadOptions

READING = {"--topology", "--map", "--btag", "--where", "--set", "--isolate"}
RUNNING = {
    "--model",
    "--decoding",
    "--max-objects",
    "--jets",
    "--leptons",
    "--answer",
    "--threads",
    "--engine",
    "--prior",
}
SIMULATED = READING - {"--btag"} | {"--strict", "--output", "--force"}

FLAGS = {
    "reconstruct": READING
    | RUNNING
    | {"--keep", "--variation", "--jobs", "--resume", "--output", "--force", "--best", "--truth", "--per-file"},
    "evaluate": READING
    | RUNNING
    | {"--strict", "--split", "--baseline", "--assignments", "--select", "--mix", "--no-weights", "--jet-scale"}
    | {"--full", "--json", "--report", "--plots"},
    "display": READING | RUNNING | {"--event", "--output"},
    "inspect": READING | {"--strict", "--json", "--verify"},
    "convert": READING | {"--keep", "--variation", "--strict", "--to", "--select", "--force"},
    "generate": {"-n", "--output", "--process", "--seed", "--keep", "--filter", "--lhe", "--card", "--pythia"}
    | {"--copies", "--jobs", "--resume", "--force"},
    "train": {"--data", "--out", "--init", "--topology", "--resume", "--force", "--folds", "--seed", "--devices"}
    | {"--threads"},
    "export": {
        "--answer",
        "--prior",
        "--output",
        "--force",
        "--decoding",
        "--whole",
        "--max-objects",
        "--like",
        "--topology",
    },
    "list models": set(),
    "list topologies": set(),
    "list tags": set(),
    "list recipes": set(),
    "measure tags": SIMULATED | {"--score", "--cuts", "--at", "--pt", "--jets"},
    "measure transfer": SIMULATED | {"--btag"},
    "measure prior": SIMULATED | {"--btag", "--model", "--of", "--reference"},
}


def _name(option):
    """Its first long flag: further ones are old names."""
    return next((flag for flag in option.opts if flag.startswith("--")), option.opts[0])


def command(verb):
    found = cli
    for word in verb.split():
        found = found.get_command(click.Context(found), word)
        assert found is not None
    return found


def test_every_verb_is_listed():
    assert set(VERBS) == {verb.split()[0] for verb in FLAGS}
    assert len(VERBS) == 10
    for verb in ("list", "measure"):
        assert {f"{verb} {below}" for below in command(verb).commands} <= set(FLAGS)


@pytest.mark.parametrize("verb", FLAGS)
def test_flags_of_a_verb(verb):
    options = [p for p in command(verb).params if isinstance(p, click.Option)]
    assert {_name(option) for option in options} == FLAGS[verb]
    assert len(options) <= (27 if verb in ("evaluate", "reconstruct") else 20)
    assert all(getattr(option, "group", None) in GROUPS for option in options)


@pytest.mark.parametrize("verb", FLAGS)
def test_every_verb_explains_itself_with_an_example(verb):
    text = command(verb).help
    assert text is not None
    assert f"pairton {verb}" in text
    for parameter in command(verb).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_help_shows_the_options_in_groups():
    said = CliRunner().invoke(cli, ["reconstruct", "--help"]).output
    places = [said.index(f"\n{group}:\n") for group in GROUPS]
    assert places == sorted(places)
    assert said.index("--map") < places[1] < said.index("--decoding") < places[2] < said.index("--threads")


def test_a_verb_that_does_not_exist():
    said = CliRunner().invoke(cli, ["recontruct"])
    assert said.exit_code == 2
    assert "no command 'recontruct'; did you mean 'reconstruct'?" in said.output


@pytest.mark.parametrize("words", [["--topology", "ttbar_allhad"], ["--btag", "pnet_2022"], ["-o", "out.h5"]])
def test_an_option_with_one_value_is_given_once(words):
    """The last one used to win without a word."""
    said = CliRunner().invoke(cli, ["reconstruct", "events.h5", *words, *words])
    assert said.exit_code == 2
    assert "is given 2 times: give it once" in said.output
    said = CliRunner().invoke(cli, ["reconstruct", "no.h5", "--keep", "a", "--keep", "b", "--force", "--force"])
    assert "times" not in said.output


@pytest.mark.parametrize(
    ("typed", "begun", "offered"),
    [
        (["train"], "", {"cpu", "paper", "ablations/one_shot"}),
        (["train", "cpu", "--topology"], "t", {"ttbar_allhad", "tth_allhad", "tttt_allhad"}),
        (["reconstruct", "--model"], "", {"ttbar_allhad", "iterative", "kinematic"}),
        (["reconstruct", "--decoding"], "ex", {"exact"}),
        (["convert", "--to"], "spanet", {"spanet_hdf5"}),
        (["generate", "--card"], "", {"atlas"}),
        (["reconstruct", "--btag"], "deepjet", {"deepjet_2018"}),
        (["list", "topologies"], "hh", {"hh4b"}),
    ],
)
def test_the_shell_completes_values(typed, begun, offered):
    items = ShellComplete(cli, {}, "pairton", "_PAIRTON_COMPLETE").get_completions(typed, begun)
    names = {item.value for item in items if item.type == "plain"}
    assert offered <= names
    assert all(name.startswith(begun) for name in names)
    assert any(item.type == "file" for item in items)


def test_messages_name_arguments_in_python_and_flags_on_the_command_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(errors, "_flags", False)
    events = pairton.read("sample:ttbar_allhad")[:3]
    for call, said in (
        (
            lambda: pairton.reconstruct(events, btag="pnet_2022"),
            "btag pnet_2022 or map btagPNetB=COLUMN, or",
        ),
        (lambda: pairton.reconstruct(events, decoding="hyper", prior={"nothing": 2}), "or use decoding exact"),
        (lambda: pairton.generate("ttbar_allhad", tmp_path / "x.h5"), "n_events is missing"),
    ):
        with pytest.raises(errors.PairtonError) as caught:
            call()
        assert said in str(caught.value)
        assert "--" not in str(caught.value)
    with pytest.raises(SystemExit):
        main(["reconstruct", "sample:ttbar_allhad", "--decoding", "hyper", "--prior", "nothing=2"])
    assert "or use --decoding exact" in capsys.readouterr().err
    assert "give btag TABLE" in str(errors.PairtonWarning("give --btag TABLE"))


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("with --set tree=x, or", "with tree=x, or"),
        ("lower --max-objects to 12: --keep x1,", "lower max_objects to 12: keep x1,"),
        ("--set targets=a,b (or --set overlap=none)", "settings targets=a,b (or settings overlap=none)"),
        ("start without --resume, with --no-weights", "start without resume, with use_weights=False"),
        ("run `pairton export a --whole` or a--b", "run `pairton export a --whole` or a--b"),
    ],
)
def test_flags_as_arguments(flags, arguments):
    assert errors.in_python(flags) == arguments


def test_every_flag_in_a_message_is_an_argument_in_python():
    functions = [getattr(pairton, name) for name in pairton.__all__ if name[0].islower()]
    known = {field.name for field in fields(ReadOptions)} | {"like", "reference"}  # of verbs
    for function in (*functions, *TARGETS.values()):
        known |= set(inspect.signature(function).parameters)
    source = Path(pairton.__file__).parent
    unknown = set()
    for path in source.rglob("*.py"):
        if source / "cli" in path.parents or path.name == "errors.py":
            continue
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                flags = [found[1] for found in errors.FLAG.finditer(node.value) if found[1]]
                unknown |= {flag for flag in flags if errors.in_python(f"--{flag}").partition("=")[0] not in known}
    assert unknown == set()
