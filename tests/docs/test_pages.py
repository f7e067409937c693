"""Every command, topology and piece of Python on the pages is right: parsed always, run where it can be."""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import awkward as ak
import click
import numpy as np
import pytest
import uproot
import yaml

import pairton
from leptonic_tops import leptonic_events
from pairton.cli import cli
from pairton.errors import PairtonWarning
from pairton.models.storage import find_model
from pairton.topology import parse_topology

sys.path.insert(0, str(Path(__file__).parent))
from snippets import COMMAND, PAGES, PYTHON, ROOT, blocks

BLOCKS = [block for page in PAGES for block in blocks(page)]
SPAN = re.compile(r"`(pairton [a-z]+(?: [^`]*)?)`")  # in running text and in tables
SHOWN = [*((b.page, line) for b in BLOCKS if b.language not in PYTHON for line in b.commands)]
SHOWN += [(page.relative_to(ROOT).as_posix(), x) for page in PAGES for x in SPAN.findall(page.read_text("utf-8"))]
PAIRTON = sorted({(page, line) for page, line in SHOWN if re.match(r"(srun )?pairton [a-z]", line)})


def parse(line):
    """Parse a command by the options of the program, without running it."""
    words = shlex.split(line.replace("\\|", "|"), comments=True)
    words = words[words.index("pairton") + 1 :]
    if "…" in words or "..." in words:
        words = [word for word in words if word not in ("…", "...")]
    context, command = click.Context(cli, info_name="pairton"), cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, command, words = command.resolve_command(context, words)
        context = click.Context(command, info_name=name, parent=context)
    with suppress(click.BadOptionUsage):  # an option without its value, as in running text
        command.make_parser(context).parse_args(args=list(words))


@pytest.mark.parametrize(("page", "line"), PAIRTON, ids=lambda text: text.replace("pairton ", "")[:50])
def test_commands_on_pages_have_options_that_exist(page, line):
    parse(line)


def test_a_wrong_option_would_be_found():
    with pytest.raises(click.UsageError):
        parse("pairton reconstruct a.h5 --no-such-option 3")
    assert len(PAIRTON) > 100


def test_blocks_of_commands_are_run_or_say_why_not():
    wrong = [
        f"{block.page}:{block.line}"
        for block in BLOCKS
        if block.language in ("", "sh", "bash", "text")
        and not block.reason
        and any(COMMAND.match(line) for line in block.lines)
    ]
    assert wrong == [], "write ```console, or <!-- not run: REASON --> before ```sh"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "yaml"], ids=lambda b: f"{b.page}:{b.line}")
def test_topologies_on_pages_are_understood(block):
    raw = yaml.safe_load(block.text)
    if {"event", "particles"} <= set(raw):
        assert parse_topology(raw).slots


def write_nano(path, events, truth=True):
    """Sample events in the layout of NanoAOD: jets with tags, b quarks of their slots as flavour, a muon, MET."""
    rng = np.random.default_rng(1)
    jets = events.jets
    counts = ak.num(jets.pt)
    tag = np.asarray(ak.flatten(jets.btag))
    score = ak.unflatten(np.where(tag > 0, rng.uniform(0.3, 1, len(tag)), rng.uniform(0, 0.2, len(tag))), counts)
    columns = {name: ak.values_astype(getattr(jets, name), np.float32) for name in ("pt", "eta", "phi", "mass")}
    columns |= {f"{name}_jesUp": 1.01 * columns[name] for name in ("pt", "mass")}
    columns |= {"btagPNetB": score, "btagDeepFlavB": score}
    columns |= {"jetId": ak.values_astype(ak.full_like(jets.pt, 6), np.uint8)}
    columns |= {"hadronFlavour": ak.where(jets.btag > 0, 5, 0)}
    n = len(events)
    one = ak.unflatten(np.ones(n, np.float32), np.ones(n, int))
    muon = {"pt": 40 * one, "eta": 0 * one, "phi": one, "mass": 0.1 * one, "pfRelIso04_all": 0.05 * one}
    whole = ak.values_astype(one, np.int32)
    muon |= {"charge": whole, "pdgId": -13 * whole, "tightId": whole == 1, "mediumId": whole == 1}
    electron = {name: muon[name][muon[name] > 1e9] for name in ("pt", "eta", "phi", "mass")}
    electron |= dict.fromkeys(("charge", "pdgId", "cutBased"), whole[whole > 1])
    electron |= {f"mvaIso_WP{point}": (whole == 1)[whole > 1] for point in (80, 90)}
    lists = {"Jet": columns, "Muon": muon, "Electron": electron} | ({"GenPart": quarks(events)} if truth else {})
    tree = {"run": np.ones(n, np.uint32), "luminosityBlock": np.ones(n, np.uint32)}
    tree |= {"event": np.arange(n, dtype=np.uint64), "PV_npvs": np.full(n, 30, np.int32)}
    tree |= {"PuppiMET_pt": np.full(n, 40, np.float32), "PuppiMET_phi": np.zeros(n, np.float32)}
    tree |= {f"{name}_jesUp": tree[name] for name in ("PuppiMET_pt", "PuppiMET_phi")}
    if truth:
        tree |= {"genWeight": np.ones(n, np.float32)}
    records = {
        name: ak.zip({key: ak.to_packed(values) for key, values in of.items()}) for name, of in lists.items()
    }
    with uproot.recreate(path) as file:
        file.mktree(
            "Events",
            {name: array.type.content for name, array in records.items()}
            | {name: array.dtype for name, array in tree.items()},
        )
        file["Events"].extend(records | tree)


def quarks(events):
    """Two tops and their decays, each quark where its jet is; beyond all jets where it has none."""
    eta, phi = (np.full((len(events), 6), 9.0), np.zeros((len(events), 6)))
    for slot in range(6):
        at = events.truth[:, slot]
        for values, name in ((eta, "eta"), (phi, "phi")):
            picked = ak.to_numpy(ak.firsts(events.jets[name][ak.from_regular(np.maximum(at, 0)[:, None])]))
            values[:, slot] = np.where(at >= 0, picked, values[:, slot])
    codes = [6, -6, 24, -24, 2, -1, 5, 1, -2, -5]  # t, tbar, W+, W-, then the quarks of the slots
    mothers = [-1, -1, 0, 1, 2, 2, 0, 3, 3, 1]
    n, zero = len(events), np.zeros((len(events), 4))
    rows = {
        "pdgId": np.tile(np.int32(codes), (n, 1)),
        "genPartIdxMother": np.tile(np.int16(mothers), (n, 1)),
        "statusFlags": np.full((n, 10), 1 << 7 | 1 << 8 | 1 << 13, np.uint16),
        "status": np.full((n, 10), 22, np.int32),
        "eta": np.concatenate([zero, eta], axis=1).astype(np.float32),
        "phi": np.concatenate([zero, phi], axis=1).astype(np.float32),
    }
    return {name: ak.from_regular(values) for name, values in rows.items()}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Files with the names that pages use."""
    folder = tmp_path_factory.mktemp("inputs")
    events = pairton.read("sample:ttbar_allhad")[:300]
    for name in ("events.h5", "test.h5", "stranger.h5", "events.root", "stranger.root", "more.root"):
        with pairton.formats.create(folder / name, events.topology, events.metadata) as writer:
            writer.write(events)
    write_nano(folder / "nano.root", events)
    write_nano(folder / "data.root", events, truth=False)
    (folder / "data").mkdir()
    (folder / "data" / "some.h5").symlink_to(folder / "events.h5")
    programs = folder / "programs"
    programs.mkdir()
    for name, module in (("pairton", "-m pairton"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (programs / name).chmod(0o755)
    return folder


DRIVER = """
import doctest, json, subprocess, sys
shared = {"__name__": "page"}
for place, language, text in json.load(open(sys.argv[1])):
    print("==", place, flush=True)
    if text.startswith(">>>"):
        examples = doctest.DocTestParser().get_doctest(text + "\\n", shared, place, place, 0)
        assert not doctest.DocTestRunner().run(examples, clear_globs=False).failed
    elif language == "python":
        exec(compile(text, place, "exec"), shared)
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)
"""


def run_page(page, inputs, folder):
    for path in inputs.iterdir():
        (folder / path.name).symlink_to(path)
    todo = [b for b in BLOCKS if b.page == page and b.runs]
    steps = [
        (f"{b.page}:{b.line}", b.language, b.text if b.language in PYTHON else "\n".join(b.commands)) for b in todo
    ]
    (folder / "steps.json").write_text(json.dumps(steps))
    environment = {**os.environ, "PATH": f"{inputs / 'programs'}:{os.environ['PATH']}", "MPLBACKEND": "Agg"}
    return subprocess.run(
        [sys.executable, "-c", DRIVER, "steps.json"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=3600,
    )  # fmt: skip


RUN = sorted({block.page for block in BLOCKS if block.runs})


@pytest.mark.parametrize(
    "page", [page if page == "README.md" else pytest.param(page, marks=pytest.mark.long) for page in RUN]
)
def test_pages_run_as_printed(page, inputs, tmp_path):
    done = run_page(page, inputs, tmp_path)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]


JETS_OF_W = [block for block in BLOCKS if block.runs and re.search(r"reco\.W\b.*\.jets", block.text)]


def test_examples_with_the_jets_of_a_w_are_on_the_pages():
    assert {"README.md", "docs/reconstruct.md"} <= {block.page for block in JETS_OF_W}


@pytest.mark.parametrize("block", JETS_OF_W, ids=lambda block: f"{block.page}:{block.line}")
@pytest.mark.parametrize("model", ["ttbar_semilep", find_model("ttbar_semilep")], ids=["name", "path"])
def test_examples_with_the_jets_of_a_w_run_for_leptonic_tops(block, model, tmp_path, monkeypatch):
    """The same lines with other events and a model, given by its name or as a `Path`."""
    events, _ = leptonic_events(1, 20)
    with pairton.formats.create(tmp_path / "leptons.h5", events.topology, {}) as writer:
        writer.write(events)
    text = re.sub(r'"(sample:\w+|\w+\.root)"', '"leptons.h5"', block.text).replace('"t1.b"', '"t.b"')
    text, calls = re.subn(r'(pairton\.reconstruct\((?:\w+|"[^"]*"))(?:, "\w+")?', r"\1, model", text)
    assert calls
    monkeypatch.chdir(tmp_path)
    names = {"model": model, "pairton": pairton}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PairtonWarning)  # of the tags, which are not those of a table
        exec(compile(text.replace('btag="pnet_2022"', 'btag="generator"'), block.page, "exec"), names)
    reco = names["reco"]
    assert reco.topology.name == "ttbar_semilep"
    assert reco.W[:, 0].jets.index.tolist() == [[k for k in row if k >= 0] for row in reco.index[:, :2].tolist()]


@pytest.mark.parametrize("page", [p for p in PAGES if p.is_relative_to(ROOT / "docs")], ids=lambda p: p.name)
def test_a_page_says_at_once_whom_it_is_for(page):
    first = page.read_text("utf-8").partition("\n")[2].strip().partition("\n\n")[0]
    assert re.search(r"^(For|You)\b", first), first[:200]


def test_every_command_is_mentioned_on_a_page():
    text = " ".join(line for _, line in PAIRTON)
    context = click.Context(cli, info_name="pairton")
    assert [name for name in cli.list_commands(context) if f"pairton {name}" not in text] == []


FUNCTIONS = [name for name in pairton.__all__ if inspect.isfunction(getattr(pairton, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_say_what_they_take_give_and_refuse_with_an_example(name):
    text = inspect.getdoc(getattr(pairton, name))
    assert [part for part in ("Args:", "Raises:", "Examples:", ">>> ") if part not in text] == []
    assert "Returns:" in text or "Yields:" in text
    given = inspect.signature(getattr(pairton, name)).parameters
    assert [argument for argument in given if not re.search(rf"^    (\*\*)?{argument}: ", text, re.M)] == []


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs/reference/api.md").read_text("utf-8")
    wanted = [name for name in pairton.__all__ if not name.startswith("_")]
    assert [name for name in wanted if f"::: pairton.{name}\n" not in page] == []


@pytest.mark.parametrize(("page", "least"), [("CONTRIBUTING.md", 30), ("docs/method.md", 10)])
def test_tables_name_modules_and_functions_that_exist(page, least):
    guide = (ROOT / page).read_text("utf-8")
    rows = [row for row in guide.splitlines() if row.startswith("| ")]
    modules = {name for row in rows for name in re.findall(r"`((?:\w+/)*\w+\.py)`", row) if "/" in name}
    assert len(modules) > least
    assert [name for name in modules if not (ROOT / "src/pairton" / name).is_file()] == []
    for module, names in re.findall(r"`((?:\w+/)+\w+\.py)`: ((?:`[\w.]+`(?:, )?)+)", guide):
        text = (ROOT / "src/pairton" / module).read_text("utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            assert re.search(rf"^ *(class|def) {name.split('.')[-1]}\b", text, re.M), (module, name)
