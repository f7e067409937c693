"""The workflow: its recipes and commands, the pages that it writes, and all of it once, small."""

import doctest
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.stats

WORKFLOW = Path(__file__).parents[2] / "workflow"
sys.path.insert(0, str(WORKFLOW))

import split  # noqa: E402
from page import comparing, reading, writing  # noqa: E402
from pairton.evaluation.evaluating import evaluate  # noqa: E402
from pairton.formats import create, read  # noqa: E402
from pairton.training import load_recipe  # noqa: E402
from plan import Plan, load_config  # noqa: E402
from results import write_docs, write_target  # noqa: E402

TARGETS = ("smoke", "pairs", "equal_steps", "hours", "long", "table1")
WRITES = ("-o", "--out", "--json", "--page", ">", "-p")
FAKE = """#!/bin/sh
# a pairton that leaves the files of each verb; a training that is to be interrupted leaves a state alone
echo "$@" >> log
verb=$1; last=
for word in "$@"; do
  case $last in -o|--out|--json) output=$word;; esac
  last=$word
done
case $verb in
  train) mkdir -p $output; touch $output/state.safetensors
         case $output in *${INTERRUPT:-nothing}*) exit 1;; esac;;
  reconstruct) mkdir -p $output;;
  *) mkdir -p $(dirname $output); touch $output;;
esac
"""


@pytest.fixture
def config(tmp_path):
    return load_config() | {"results": str(tmp_path / "made"), "hyper": "hyper.h5"}


# -- the plan ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_every_training_has_a_recipe_that_loads_with_its_budget(config, tmp_path, target):
    plan = Plan(config, target)
    for training in {each.row: each for each in plan.trainings.values()}.values():
        folder = tmp_path / "recipes"
        folder.mkdir(exist_ok=True)
        path = folder / f"{training.name}.yaml"
        path.write_text(training.recipe(folder))
        recipe, base = load_recipe(path), load_recipe(training.base)
        assert "network" in training.change or recipe.network == base.network
        if training.steps is not None:
            assert recipe.optimiser.steps == training.steps
            assert 0 < recipe.optimiser.warm_up < training.steps / 2  # the paper's would be longer than a budget
            assert recipe.run.save_every <= training.steps
        elif "optimiser" not in training.change:
            assert recipe.optimiser == base.optimiser


@pytest.mark.parametrize("target", TARGETS)
def test_commands_make_what_later_ones_read(config, target):
    plan = Plan(config | {"results": "made", "peers": list(config["known_peers"])}, target)
    made = set()
    for name, command in plan.script():
        if name == "folders":
            continue
        words = command.split()
        assert not any(word.startswith("/") for word in words)  # no place of this machine
        read_here = {word for word in words if word.startswith("made/")}
        written = {words[k + 1].rstrip(";") for k, word in enumerate(words[:-1]) if word in WRITES}
        read_here = {word.rstrip(";") for word in read_here if not word.endswith((".done", ".done;"))}
        read_here -= {words[4].rstrip(";")} if words[:4] == ["if", "!", "test", "-e"] else set()
        read_here = {word for word in read_here if "state.safetensors" not in word}
        written |= {words[-1]} if "predict.py" in command else set()
        assert read_here - written <= made, command
        made |= written
    seeds = {"smoke": 2, "pairs": 3, "equal_steps": 3, "hours": 1, "long": 1, "table1": 5}[target]
    assert max(training.seed for training in plan.trainings.values()) == seeds
    for study in plan.studies.values():
        assert study.against is None or study.against in study.rows
        assert set(study.rows) <= set(plan.settings["trainings"])


def test_rows_that_the_paper_has_are_known_by_its_numbers(config):
    for target in TARGETS:
        plan = Plan(config, target)
        published = reading.Results(plan, print).published["ablations"]
        assert all(row in published for study in plan.studies.values() if study.published for row in study.rows)


def test_the_script_of_a_target_resumes(config, tmp_path):
    """Run by a shell with commands that only leave files: what is complete is not made again."""
    (tmp_path / "pairton").write_text(FAKE)
    (tmp_path / "pairton").chmod(0o755)
    plan = Plan(config | {"results": "made", "pairton": "./pairton", "python": "true"}, "smoke")
    script = "\n".join(command for _, command in plan.script())

    def run(**environment):
        return subprocess.run(["sh", "-e"], input=script, text=True, cwd=tmp_path, env=os.environ | environment)

    assert run(INTERRUPT="steps-1").returncode == 1
    before = (tmp_path / "log").read_text().splitlines()
    assert before[-1].startswith("train")
    assert run().returncode == 0
    after = (tmp_path / "log").read_text().splitlines()[len(before) :]
    assert [line.split()[0] for line in after].count("generate") == 0
    trained = [line for line in after if line.startswith("train")]
    assert [line.endswith("--resume") for line in trained] == [True]
    assert len([line for line in after if line.startswith("evaluate")]) == len(plan.evaluated)


def test_methods_of_a_benchmark_get_the_events_in_their_layouts(config):
    """Those whose answers are files take part if the files exist, those to train if they are asked for."""
    plan = Plan(config | {"results": "made"}, "benchmark")
    assert all((WORKFLOW / config["samples"][name]["topology"]).is_file() for name in plan.samples)
    assert not any("train" in name or "spanet" in command for name, command in plan.script())
    ttbar = plan.evaluation_command("ttbar_allhad")
    assert "$(test ! -e made/benchmark/peers/ttbar_allhad/klfitter.root || echo --assignments made/" in ttbar
    trained = Plan(config | {"results": "made", "peers": ["spanet"]}, "benchmark")
    commands = [command for name, command in trained.script() if name.endswith("/spanet")]
    assert len(commands) == 2 * 4  # train and predict
    for word in (word for command in commands for word in command.split() if word.endswith(".yaml")):
        assert (WORKFLOW / "peers" / "spanet" / Path(word).name).is_file()
    assert "made/data/benchmark_hh4b_train.h5" in commands[-2]
    assert "benchmark_hh4b_train" in dict(trained.script())


# -- what is compared --------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [comparing, reading, writing], ids=lambda module: module.__name__)
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def evaluation(name, values, deviation=0.004):
    """An evaluation in which methods have these event efficiencies, and paired differences this deviation."""

    def cells(value, half):
        return {"event": {"inclusive": {"value": value, "low": value - half, "high": value + half}}}

    pairs = [(a, b) for k, a in enumerate(values) for b in list(values)[k + 1 :]]
    raw = {
        "methods": {method: {"efficiency": cells(value, 0.01)} for method, value in values.items()},
        "differences": [
            {"first": a, "second": b, "efficiency": cells(values[a] - values[b], deviation)} for a, b in pairs
        ],
    }
    return reading.Evaluation(name, raw)


def test_an_order_is_unresolved_where_seeds_or_events_do_not_tell():
    found = evaluation("x", {"a-1": 0.60, "a-2": 0.62, "b-1": 0.63, "b-2": 0.65, "c-1": 0.61})
    a, b, c = (comparing.Row(name, name, tuple(m for m in found.methods if m[0] == name), found) for name in "abc")
    spread = 0.02 / np.sqrt(2)  # of two that are .02 apart
    # b - a: .03, deviation sqrt(.004^2 + .01^2 + .01^2), known with .000216^2 / (2 (.01^2)^2) degrees of freedom
    apart = comparing.compare(b, a, None)
    assert apart.difference == pytest.approx(0.03)
    assert apart.deviation == pytest.approx(np.sqrt(0.000216))
    assert apart.freedom == pytest.approx(0.000216**2 / 2e-8)
    assert scipy.stats.norm.sf(apart.significance) == pytest.approx(
        scipy.stats.t.sf(0.03 / apart.deviation, apart.freedom)
    )
    assert comparing.verdict(apart, expected=True) == "unresolved"  # 2.04 deviations, but of two seeds each
    pooled = comparing.pooled_spread(row.mean("event") for row in (a, b, c))
    assert pooled == (pytest.approx(spread), 2)
    assert comparing.pooled_spread([c.mean("event")]) is None
    elsewhere = comparing.Row("d", "d", ("d-1",), evaluation("y", {"d-1": 0.6}))
    assert comparing.compare(a, elsewhere, None) is None  # not evaluated together
    # two seeds against one, which takes the spread of others: known badly, and if it were known well and small
    against_one = comparing.compare(c, b, pooled)
    assert against_one.difference == pytest.approx(-0.03)
    assert against_one.deviation == pytest.approx(np.sqrt(0.004**2 + 1.5 * spread**2))
    assert comparing.verdict(against_one, expected=True) == "unresolved"
    tight = evaluation("z", {"b-1": 0.639, "b-2": 0.641, "c-1": 0.61})
    b, c = (comparing.Row(name, name, tuple(m for m in tight.methods if m[0] == name), tight) for name in "bc")
    against_one = comparing.compare(c, b, comparing.Spread(0.001, 8))
    assert comparing.verdict(against_one, expected=True) == "refuted"
    # nothing is known of seeds: the events alone
    ones = evaluation("w", {"a-1": 0.60, "b-1": 0.63})
    a, b = (comparing.Row(name, name, (f"{name}-1",), ones) for name in "ab")
    assert comparing.compare(b, a, None).significance == pytest.approx(0.03 / 0.004)
    assert comparing.verdict(comparing.Comparison(0.0, 0.0), expected=True) == "unresolved"
    assert found.difference("c-1", "a-1")["value"] == pytest.approx(0.01)


def test_parameters_are_counted_from_the_header(config):
    from safetensors.numpy import save_file

    results = reading.Results(Plan(config, "pairs"), print)
    folder = results.plan.model("ordered_both-1")
    folder.mkdir(parents=True)
    save_file({"a": np.zeros((3, 4), np.float32), "b": np.zeros(5, np.float32)}, folder / "model.safetensors")
    assert results.trained("ordered_both-1").parameters == 17


def test_commands_on_the_page_have_no_places_of_a_machine(config, tmp_path):
    plan = Plan(config, "pairs")
    results = reading.Results(plan, print)
    root = plan.results.resolve()
    typed = (
        f"pairton evaluate {root}/data/test.h5 --model /elsewhere/my-model --json {root}/pairs/evaluations/a.json"
    )
    (shown,) = results.shown(typed)
    expected = "pairton evaluate results/data/test.h5 --model my-model --json results/pairs/evaluations/a.json"
    assert shown == expected
    long = writing.wrapped([expected * 5]).splitlines()[2:-1]
    assert all(len(line) < 115 for line in long)
    assert " ".join(" ".join(long).replace("\\", " ").split()) == expected * 5


# -- the page ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(decays, mass_model_type, tmp_path_factory):
    """The evaluations of the smoke target, by models that need no training."""
    folder = tmp_path_factory.mktemp("made")
    plan = Plan(load_config() | {"results": str(folder)}, "smoke")
    source = folder / "test.h5"
    with create(source, mass_model_type().topology) as writer:
        for extra in (0, 1, 2):  # so that no multiplicity bin is empty
            writer.write(decays(250, extra=extra, labelled=0.97, seed=extra))
    tiny = [mass_model_type(name=f"tiny-{k}", strength=strength) for k, strength in ((1, 1.0), (2, 0.3))]
    steps = mass_model_type(name="steps-1", takes_tokens=True, decoding="steps", strength=0.1)
    found = {
        "main": evaluate(source, tiny[:1], baselines=["chi2"]),
        "iteration": evaluate(source, [steps], decodings=["steps", "one_shot"]),
        "seeds": evaluate(source, [*tiny, steps]),
    }
    for name, result in found.items():
        path = plan.evaluation(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"command": f"pairton evaluate {name}", **result.to_dict()}))
    return plan, {name: result.to_dict() for name, result in found.items()}


def rows_of_table(page, after):
    """The rows of the first table after a text, as lists of cells."""
    lines = page[page.index(after) :].splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("|"))
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        found.append([part.strip() for part in line.strip("|").split("|")])
    return found


def test_the_page_shows_the_numbers_of_the_evaluations(made, tmp_path):
    plan, found = made
    for k in (1, 2):
        folder = plan.model(f"tiny-{k}")
        folder.mkdir(parents=True)
        rows = ["step,kind,name,value", "1,train,loss,2.0", "3,validation,e_event,0.2", "6,validation,e_event,0.3"]
        (folder / "metrics.csv").write_text("\n".join(rows))
    assert reading.Results(plan, print).trained("tiny-1").learning == [(3, 0.2), (6, 0.3)]
    log = write_target(plan, tmp_path / "page")
    page = (tmp_path / "page" / "results.md").read_text()
    assert log == []
    for name in found:
        assert f"pairton evaluate {name}\n" in page  # every section names its command
    main = found["main"]["methods"]["tiny-1"]
    rows = rows_of_table(page, "| events |")[2:]
    assert [row[3] for row in rows] == [
        "tiny",
        "mass chi-square",
        "tiny in steps, steps",
        "tiny in steps, one shot",
    ]
    assert rows[0][4] == writing.cell(main["efficiency"]["event"]["inclusive"])
    (lead,) = found["main"]["differences"]
    lead = lead["efficiency"]["event"]["inclusive"]
    assert rows[1][5] == writing.signed(lead["value"], (lead["high"] - lead["low"]) / 2)
    # seeds: mean and standard deviation
    tiny = rows_of_table(page, "## Tiny networks")[2]
    pair = [found["seeds"]["methods"][f"tiny-{k}"]["efficiency"]["event"]["inclusive"]["value"] for k in (1, 2)]
    assert tiny[1:4] == ["–", "2", writing.number(np.mean(pair), np.std(pair, ddof=1))]
    assert tiny[-3:] == ["`workflow/smoke.yaml`", "–", "–"]
    cells = rows_of_table(page, "|  | jets | tiny |")[2:]  # twelve, beside the paper's
    assert [row[:2] for row in cells[:5]] == [["e_tt", n] for n in ("6", "7", "8+", "inclusive")] + [["e_t", "6"]]
    assert len(cells) == 12
    assert cells[3][2] == tiny[3]
    assert cells[3][-4:] == ["*.651*", "*.645*", "*.670*", "*.6944 ± .0003*"]
    assert "reproduced" not in page  # a word for the paper's claims
    pictures = set(re.findall(r"images/(results_\w+\.png)", page))
    assert pictures == {path.name for path in (tmp_path / "page" / "images").iterdir()}
    names = ("calibration", "flow_iteration", "learning_seeds", "main", "mass_seeds", "models")
    assert {f"results_{name}.png" for name in names} == pictures


def test_what_is_missing_is_left_out_and_said(made, tmp_path):
    shutil.copytree(made[0].results, tmp_path / "made")
    plan = Plan(load_config() | {"results": str(tmp_path / "made")}, "smoke")
    (tmp_path / "page" / "images").mkdir(parents=True)
    (tmp_path / "page" / "images" / "results_scale.png").touch()  # of the page before
    for name in ("iteration", "seeds"):
        plan.evaluation(name).unlink()
    log = write_target(plan, tmp_path / "page")
    page = (tmp_path / "page" / "results.md").read_text()
    assert [line.split("/")[-1] for line in log] == [f"{name}.json: left out" for name in ("iteration", "seeds")]
    assert "Tiny and chi-square" in page
    assert "Tiny networks, not evaluated yet" in page  # learning curves of what was trained
    assert "| recipe |" not in page
    assert not (tmp_path / "page" / "images" / "results_scale.png").exists()


def test_the_page_of_results_comes_from_small_summaries(made, tmp_path):
    plan, found = made
    with pytest.raises(SystemExit, match=r"no model 'ttbar' in shipped\.yaml: it has ttbar_allhad"):
        reading.keep_model("ttbar", plan.evaluation("main"), tmp_path / "kept")
    path = reading.keep_model("ttbar_allhad", plan.evaluation("main"), tmp_path / "kept")
    assert path.stat().st_size < 10_000
    text = "By hand.\n\n<!-- results: models/{} -->\nold\n<!-- end of results -->\n\nBy hand too.\n"
    (tmp_path / "results.md").write_text(text.format("overview") + text.format("commands"))
    log = write_docs(tmp_path, tmp_path / "kept")
    assert "no tth_semilep.json among the summaries: left out" in log
    page = (tmp_path / "results.md").read_text()
    assert "old" not in page
    assert page.count("By hand.") == page.count("By hand too.") == 2
    rows = rows_of_table(page, "| events |")[2:]
    assert [row[3] for row in rows] == ["tiny-1", "mass chi-square"]
    assert rows[0][4] == writing.cell(found["main"]["methods"]["tiny-1"]["efficiency"]["event"]["inclusive"])
    assert "```sh\npairton evaluate main\n" in page


def test_a_page_of_a_target_comes_from_its_summary(made, tmp_path):
    plan, found = made
    path = reading.keep_target(reading.Results(plan, print), tmp_path / "kept")
    assert path.stat().st_size < 30_000
    text = "<!-- results: smoke/{} -->\nold\n<!-- end of results -->\n"
    (tmp_path / "target.md").write_text(text.format("overview") + text.format("main"))
    write_docs(tmp_path, tmp_path / "kept")
    page = (tmp_path / "target.md").read_text()
    main = found["main"]["methods"]["tiny-1"]["efficiency"]["event"]
    rows = rows_of_table(page, "| events |")[2:]
    assert [row[3] for row in rows[:2]] == ["tiny", "mass chi-square"]
    assert rows[0][4] == writing.cell(main["inclusive"])
    alone = rows_of_table(page, "complete.\n")
    assert [row[0] for row in alone[2:]] == ["tiny", "mass chi-square"]
    assert alone[2][1 : len(main) + 1] == [writing.cell(each) for each in main.values()]
    assert {path.name for path in (tmp_path / "images").iterdir()} == {"target_models.png", "target_main.png"}


def test_studies_come_from_the_summary_of_a_target(made, tmp_path):
    """What is kept of a target gives the same tables and figures as its folder of results."""
    plan, _ = made
    write_target(plan, tmp_path / "page")
    whole = (tmp_path / "page" / "results.md").read_text()
    path = reading.keep_target(reading.Results(plan, print), tmp_path / "kept")
    assert path.stat().st_size < 30_000
    (tmp_path / "studies").mkdir()
    parts = "".join(
        f"<!-- results: smoke/{name} -->\n<!-- end of results -->\n" for name in ("seeds", "iteration")
    )
    (tmp_path / "studies" / "tiny.md").write_text(parts)
    write_docs(tmp_path, tmp_path / "kept")
    page = (tmp_path / "studies" / "tiny.md").read_text()
    tables = [block for block in page.split("\n\n") if block.startswith("| ")]
    assert all(block in whole for block in tables[:2])
    steps = rows_of_table(page, "complete.\n")[2:]
    assert [row[0] for row in steps] == ["tiny in steps, steps", "tiny in steps, one shot"]
    assert {path.name for path in (tmp_path / "studies" / "images").iterdir()} >= {"tiny_flow_iteration.png"}
    (tmp_path / "studies" / "tiny.md").write_text(parts.replace("seeds", "nothing"))
    with pytest.raises(SystemExit, match=r"tiny\.md has a part smoke/nothing: known are models/overview"):
        write_docs(tmp_path, tmp_path / "kept")


def test_the_pages_in_the_repository_are_what_the_summaries_give(tmp_path):
    docs = WORKFLOW.parent / "docs"
    pages = [docs / "results.md", docs / "benchmark.md", *docs.glob("studies/*.md")]
    for path in pages:
        copy = tmp_path / path.relative_to(docs)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    assert all(line.endswith(": left out") for line in write_docs(tmp_path))
    for path in pages:
        assert (tmp_path / path.relative_to(docs)).read_text() == path.read_text()


# -- splits ------------------------------------------------------------------------------------------------


def test_splits_are_those_of_training(decays, tmp_path):
    events = decays(400, ids=np.stack([np.full(400, 7), np.arange(400)], axis=1))
    with create(tmp_path / "all.h5", events.topology) as writer:
        writer.write(events)
    counts = {
        name: split.split([str(tmp_path / "all.h5")], names, str(tmp_path / f"{name}.h5"))
        for name, names in {"test": ["test"], "rest": ["train", "validation"]}.items()
    }
    test, rest = (read(tmp_path / f"{name}.h5") for name in ("test", "rest"))
    assert counts == {"test": len(test), "rest": len(rest)}
    assert len(test) + len(rest) == 400
    assert test.in_split("test").all()
    assert not rest.in_split("test").any()
    assert np.array_equal(test.truth, events[events.in_split("test")].truth)


# -- all of it, small --------------------------------------------------------------------------------------


@pytest.mark.long
def test_smoke(tmp_path):
    """Generation, trainings, answers, evaluations and the page; a second run makes nothing again."""
    tools = Path(sys.executable).parent
    command = [sys.executable, str(WORKFLOW / "plan.py"), "smoke"]
    command += ["--set", f"pairton={tools / 'pairton'}", "--set", f"python={sys.executable}"]
    made = []
    for _ in range(2):
        script = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        run = subprocess.run(["sh", "-e"], input=script, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        made.append([path.stat().st_mtime_ns for path in sorted((tmp_path / "results" / "data").iterdir())])
    assert made[0] == made[1]
    page = (tmp_path / "results" / "smoke" / "page" / "results.md").read_text()
    with h5py.File(tmp_path / "results" / "data" / "smoke_test.h5") as file:
        events = len(file["TARGETS/t1/q1"])
    assert f"{events} events" in page
    assert "## Tiny networks" in page
    for name in ("flow_iteration", "learning_seeds", "models"):
        assert (tmp_path / "results" / "smoke" / "page" / "images" / f"results_{name}.png").is_file()
