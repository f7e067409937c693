"""Exported graphs against the decoder: as torch modules for every topology, as files for a few."""

import glob
import json
import os
import shutil
import subprocess
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from click.testing import CliRunner

import pairton
from pairton.cli import cli
from pairton.decoding import Question, decode
from pairton.decoding.patterns import exact_limit
from pairton.decoding.set_tables import set_tables
from pairton.errors import ConfigError, ModelError, PairtonError
from pairton.events.nodes import Nodes
from pairton.export import export_model, export_network
from pairton.export.set_graph import SetGraph
from pairton.export.targets.step import StepTarget
from pairton.export.targets.target import checked_limit
from pairton.export.targets.whole import ExactGraph, output_names
from pairton.models.model import load_model
from pairton.network.engine import predictor
from pairton.reconstruction.assigner import Assigner
from pairton.reconstruction.result_columns import pattern_columns
from pairton.reconstruction.run_settings import RunSettings
from pairton.topology import load_topology, parse_topology
from pairton.topology.vocabulary import mixture

TTBAR, HH4B, TTH, TTTT = (load_topology(name) for name in ("ttbar_allhad", "hh4b", "tth_allhad", "tttt_allhad"))
TTW = parse_topology({"name": "ttW", "event": ["t", "t", "W"], "particles": {"t": ["b", "W"], "W": ["q", "q"]}})
DEEP = parse_topology({"name": "deep", "event": ["H", "j"], "particles": {"H": ["W", "W"], "W": ["q", "q"]}})
THREE = parse_topology({"name": "three", "event": ["g", "g"], "particles": {"g": ["q", "q", "q"]}})
ONLY = parse_topology({"name": "only", "event": ["X", "j"], "particles": {"X": ["A"], "A": ["q", "q"]}})
TOP = {"t": ["W", "b"], "W": ["q", "q"]}
LEPTON = {"objects": {"l": "lepton"}, "context": ["met"]}
SEMI = parse_topology({"name": "semi", "event": ["t", "tl"], "particles": {**TOP, "tl": ["b", "l"]}, **LEPTON})
FIRST = parse_topology({"name": "first", "event": ["tl", "t"], "particles": {**TOP, "tl": ["l", "b"]}, **LEPTON})
ZH = parse_topology(
    {"name": "zh", "event": ["Z", "H"], "particles": {"H": ["b", "b", "b"], "Z": ["l", "l"]}, **LEPTON}
)
SINGLE = parse_topology({"name": "single", "event": ["l", "t"], "particles": TOP, **LEPTON})
MIXED = mixture([TTBAR, TTH])
CPP = Path(__file__).parents[2] / "docs" / "cpp" / "reconstruct.cpp"


def objects_of(topology, layout, events=40, missing=0, seed=0):
    """Random objects; up to `missing` of each kind are not there, in any place."""
    rng = np.random.default_rng(seed)
    values, masks = {}, {}
    for kind, count in zip(topology.kinds, layout, strict=True):
        shape = (events, count)
        pt, phi = 25 + rng.exponential(50, shape), rng.uniform(-np.pi, np.pi, shape)
        eta = rng.normal(0, 1, shape) * (kind != "met")
        columns = [pt, eta, phi, np.hypot(pt * np.cosh(eta), rng.uniform(3, 15, shape))]
        columns += [rng.random(shape) < 0.3] if kind == "jet" else []
        values[kind] = np.stack(columns, axis=2).astype(np.float32)
        masks[kind] = rng.random(shape).argsort(axis=1) >= rng.integers(0, min(missing, count) + 1, (events, 1))
    return Nodes(values, masks)


def events_of(n_jets, events=40, missing=0, seed=0):
    return objects_of(TTBAR, (n_jets,), events, missing, seed)


def feeds(nodes):
    """As the files name them, in their order."""
    return {
        name: array
        for kind in nodes.values
        for name, array in ((kind, nodes.values[kind]), (f"{kind}_mask", nodes.masks[kind]))
    }


def agree(found, wanted, atol=1e-4, offsets=0):
    """The graph gives positions among the objects of each kind, the decoder nodes."""
    indices, event, particles, *more = (np.asarray(part) for part in found)
    np.testing.assert_array_equal(indices, np.where(wanted.assignment >= 0, wanted.assignment - offsets, -1))
    np.testing.assert_allclose(event, wanted.event_probability, atol=atol)
    np.testing.assert_allclose(particles, wanted.particle_probability, atol=atol)
    if not more:
        assert np.isnan(wanted.pattern_probability).all()
        return
    patterns, complete, if_complete = more
    np.testing.assert_allclose(patterns, wanted.pattern_probability, atol=atol)
    np.testing.assert_array_equal(complete, patterns[:, 0])
    whole = (wanted.assignment >= 0).all(axis=1)
    with np.errstate(invalid="ignore"):
        expected = np.where(whole, wanted.event_probability, 0) / wanted.pattern_probability[:, 0]
    np.testing.assert_allclose(if_complete, np.where(wanted.answered, expected, np.nan), atol=10 * atol)


TOPOLOGIES = [TTBAR, HH4B, TTH, TTTT, TTW, DEEP, THREE, ONLY, SEMI, FIRST, ZH, SINGLE]


def layout_of(topology, more=0):
    needed = dict(zip(topology.kinds, topology.slots_per_kind, strict=True))
    return topology.layout({**needed, "jet": needed["jet"] + more, "met": 1})


def compare(network, topology, more, question, missing=3):
    """The graph as a torch module; some events have fewer objects than slots."""
    graph = ExactGraph(network, topology, layout_of(topology, more), temperature=1.5, question=question)
    for layout in (layout_of(topology), layout_of(topology, more)):
        nodes = objects_of(topology, layout, missing=missing)
        wanted = decode(predictor(network), topology, nodes, temperatures=[1.5], question=question)
        with torch.inference_mode():
            found = graph(*(torch.from_numpy(array) for array in feeds(nodes).values()))
        agree(found, wanted, offsets=topology.offsets(layout))
    return wanted


@pytest.mark.parametrize("patterns", [False, True], ids=["complete", "patterns"])
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_graphs_are_the_decoder(topology, patterns, small_network):
    network, _ = small_network(topology, tokens=False, patterns=patterns)
    wanted = compare(network, topology, 1 if topology is TTTT else 2, Question())
    assert (wanted.assignment < 0).any()
    assert (wanted.assignment >= 0).all(axis=1).any()


@pytest.mark.parametrize(
    "question",
    [
        Question("particles"),
        Question("particles", allow_absent=True),
        Question(allow_absent=True),
        Question(allow_absent=True, prior={"nothing": 3, "complete": 0.5}),
        Question(prior={"incomplete": 0}),
        Question("particles", prior={"complete": 0}),
    ],
    ids=["particles", "particles_absent", "absent", "prior", "if_complete", "never_complete"],
)
@pytest.mark.parametrize("topology", [TTBAR, HH4B, DEEP], ids=lambda topology: topology.name)
def test_graphs_take_the_question(topology, question, small_network):
    network, _ = small_network(topology, tokens=False, patterns=True)
    wanted = compare(network, topology, 1, question, missing=len(topology.slots))
    assert wanted.answered.any()


@pytest.mark.parametrize(
    "question",
    [
        Question(),
        Question("particles"),
        Question(allow_absent=True),
        Question("particles", allow_absent=True, prior={"tth_allhad": 2}),
    ],
    ids=["event", "particles", "absent", "prior"],
)
def test_graphs_of_a_mixture_are_the_decoder(question, small_network):
    network, _ = small_network(MIXED, tokens=False, patterns=True)
    graph = ExactGraph(network, MIXED, (9,), temperature=1.5, question=question)
    topologies = set()
    for n_jets in (4, 8, 9):
        nodes = events_of(n_jets, missing=n_jets)
        wanted = decode(predictor(network), MIXED, nodes, temperatures=[1.5], question=question)
        with torch.inference_mode():
            given = (torch.from_numpy(array) for array in feeds(nodes).values())
            found = dict(zip(output_names(network), map(np.asarray, graph(*given)), strict=True))
        np.testing.assert_array_equal(found["indices"], wanted.assignment)
        names = ["event_probability", "particle_probability", "pattern_probability", "topology_probability"]
        for name in names:
            np.testing.assert_allclose(found[name], getattr(wanted, name), atol=1e-4)
        columns = pattern_columns(MIXED, wanted)
        for name in ("complete_probability", "event_probability_if_complete"):
            np.testing.assert_allclose(found[name], columns[name], atol=1e-3)
        topologies |= set(wanted.topology_probability[wanted.answered].argmax(axis=1).tolist())
    assert len(topologies) > 1


def test_kinds_that_overlap_are_declined():
    two = {"name": "two", "event": ["x", "y"], "particles": {"x": ["A", "l"], "A": ["e"], "y": ["l"]}}
    two, nodes = parse_topology(two), {"x.A.e": (3, 4), "x.l": (0, 3, 4, 5), "y.l": (0, 3, 4, 5)}
    with pytest.raises(ModelError, match="share some objects"):
        SetGraph(set_tables(two, tuple(nodes[slot.name] for slot in two.slots)), 6)


def whole_file(network, info, path, **options):
    export_network(network, info, path, "whole", **options)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def check_file(session, network, topology, limit):
    for n_jets in (len(topology.slots), limit):
        nodes = events_of(n_jets, missing=2, seed=5)
        wanted = decode(predictor(network), topology, nodes, decoding="exact")
        agree(session.run(None, feeds(nodes)), wanted)


def test_whole_reconstruction_in_one_file(small_network, tmp_path):
    network, info = small_network(TTBAR)
    session = whole_file(network, info, tmp_path / "whole.onnx", decoding="exact", max_objects=9)
    assert [item.name for item in session.get_inputs()] == ["jet", "jet_mask"]
    check_file(session, network, TTBAR, 9)
    # more jets than the graph is made for: the first ones; fewer than slots: no answer
    nodes = events_of(12)
    first = session.run(None, {name: array[:, :9] for name, array in feeds(nodes).items()})
    for ours, theirs in zip(session.run(None, feeds(nodes)), first, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    indices, event, particles = session.run(None, {name: array[:, :3] for name, array in feeds(nodes).items()})
    assert (indices == -1).all()
    assert np.isnan(event).all()
    assert np.isnan(particles).all()


@pytest.mark.parametrize("patterns", [False, True])
def test_a_whole_file_takes_no_events_and_no_jets(small_network, tmp_path, patterns):
    network, info = small_network(TTBAR, tokens=False, patterns=patterns)
    session = whole_file(network, info, tmp_path / "whole.onnx", decoding="exact", max_objects=8)
    given = feeds(events_of(8, events=3))
    wanted = session.run(None, given)
    for events, jets in ((0, 8), (0, 0), (3, 0)):
        found = session.run(None, {name: array[:events, :jets] for name, array in given.items()})
        assert [part.shape for part in found] == [part[:events].shape for part in wanted]
        assert (found[0] == -1).all()
        assert np.isnan(found[1]).all()


def test_a_whole_file_of_a_network_that_knows_missing_particles(small_network, tmp_path):
    network, info = small_network(TTBAR, tokens=False, patterns=True)
    info = replace(info, decoding="exact", temperatures=(1.4,))
    session = whole_file(network, info, tmp_path / "whole.onnx", max_objects=8)
    assert [item.name for item in session.get_outputs()] == [
        "indices", "event_probability", "particle_probability",
        "pattern_probability", "complete_probability", "event_probability_if_complete",
    ]  # fmt: skip
    for n_jets in (1, 5, 6, 8):
        nodes = events_of(n_jets, missing=min(2, n_jets), seed=5)
        wanted = decode(predictor(network), TTBAR, nodes, temperatures=[1.4])
        agree(session.run(None, feeds(nodes)), wanted)
        assert wanted.answered.any()
        np.testing.assert_allclose(wanted.pattern_probability[wanted.answered].sum(axis=1), 1, rtol=1e-6)
    question = Question("particles", True, {"nothing": 2.0})
    about = export_network(network, info, tmp_path / "p.onnx", "whole", max_objects=7, question=question)
    assert (about["answer"], about["allow_absent"], about["prior"]) == ("particles", True, {"nothing": 2.0})
    assert about["patterns"] == ["t_t", "t_W", "t", "W_W", "W", "nothing"]


@pytest.mark.long
@pytest.mark.parametrize("topology", [HH4B, TTH, TTTT, TTW, DEEP, THREE], ids=lambda topology: topology.name)
def test_whole_reconstruction_of_every_topology(topology, small_network, tmp_path):
    network, info = small_network(topology)
    limit = len(topology.slots) + 1
    session = whole_file(network, info, tmp_path / "whole.onnx", decoding="exact", max_objects=limit)
    check_file(session, network, topology, limit)


@pytest.mark.long
def test_whole_reconstruction_of_every_sample_event(tmp_path):
    model = load_model(engine="torch")
    export_model("ttbar_allhad", tmp_path / "whole.onnx", "whole", decoding="exact", max_objects=12)
    session = onnxruntime.InferenceSession(tmp_path / "whole.onnx", providers=["CPUExecutionProvider"])
    events = pairton.read(resources.files("pairton") / "samples" / "ttbar_allhad.h5")
    assigner = Assigner(model, RunSettings("exact"))
    used = assigner.accept(events)
    assert used.answerable.sum() > 2000
    for layout, rows in used.by_layout(used.answerable):
        nodes = used.batch(rows, layout)
        agree(session.run(None, feeds(nodes)), assigner.assign(nodes)[0], atol=3e-4)


def shapes_of(model):
    return {
        item.name: [axis.dim_param or axis.dim_value for axis in item.type.tensor_type.shape.dim]
        for item in (*model.graph.input, *model.graph.output)
    }


def test_what_a_step_file_contains(model_folder):
    model = onnx.load(model_folder / "model.onnx")
    assert model.ir_version <= 9
    assert [(item.domain, item.version) for item in model.opset_import] == [("", 18)]
    assert shapes_of(model) == {
        "jet": ["events", "jets", 5],
        "jet_mask": ["events", "jets"],
        "tokens": ["events", 2, "nodes", "nodes"],
        "edges": ["events", 2, "nodes", "nodes"],
        "triplets": ["events", 1, "nodes", "nodes", "nodes"],
    }
    about = json.loads(model.metadata_props[0].value)
    assert about["topology"] == TTBAR.to_dict()
    assert about["domain"]["jet"]["count"] == [6, 16]
    assert about["exported_by"].startswith("pairton ")
    assert b"/src/pairton/" not in model.SerializeToString()  # traces of the machine that made it


@pytest.mark.parametrize(
    "more",
    [
        {
            "architecture": "pairformer", "single_width": 16, "single_heads": 2, "single_stream": True,
            "edges_from": "both",
        },
        {
            "architecture": "transformer", "single_width": 16, "single_heads": 2, "edges_from": "single",
            "tokens": False, "triplets": "object_sum",
        },
        {"tokens": False, "triplets": "none", "triangle_attention": True},
    ],
    ids=["pairformer", "transformer", "symmetric"],
)  # fmt: skip
def test_every_kind_of_network_is_exported(more, small_network, tmp_path):
    network, info = small_network(TTBAR, **more)
    export_network(network, info, tmp_path / "step.onnx")  # compares with torch
    names = {item.name for item in onnx.load(tmp_path / "step.onnx").graph.input}
    assert ("tokens" in names) == network.config.tokens


def test_command_line(model_folder, tmp_path):
    output = tmp_path / "whole.onnx"
    options = ["--whole", "--decoding", "exact", "--max-objects", "8"]
    result = CliRunner().invoke(cli, ["export", str(model_folder), "-o", str(output), *options])
    assert result.exit_code == 0, result.output
    assert "whole reconstruction (exact, up to 8 objects) of ttbar_allhad" in result.output
    about = json.loads(onnx.load(output).metadata_props[0].value)
    assert about["slots"] == [slot.name for slot in TTBAR.slots]
    assert about["particles"] == ["t1", "t1.W", "t2", "t2.W"]
    assert (about["graph"], about["decoding"], about["max_objects"]) == ("whole", "exact", 8)


WHOLE = {"target": "whole", "decoding": "exact"}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (WHOLE | {"decoding": "beam"}, ModelError, "beam cannot be exported as one graph: choose exact"),
        (WHOLE | {"decoding": "exakt"}, ConfigError, "no decoding 'exakt'.*did you mean 'exact'"),
        (WHOLE | {"max_objects": 5}, ConfigError, "max_objects is 5, but must be from 6"),
        (WHOLE | {"max_objects": 31}, ModelError, "31 jets .* lower --max-objects to 30"),
        ({"max_objects": 8}, ConfigError, "max_objects is not an option of the export target step, but of w"),
        ({"question": Question("particles")}, ConfigError, "question is not an option of the export target step"),
        ({"target": "whole", "question": Question(allow_absent=True)}, ModelError, "knows complete events only"),
        ({"target": "hole"}, ConfigError, "no export target 'hole'.* did you mean 'whole'"),
    ],
)
def test_options_that_cannot_be_are_said_and_nothing_is_left(model_folder, tmp_path, options, kind, message):
    with pytest.raises(kind, match=message):
        export_model(model_folder, tmp_path / "whole.onnx", **options)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_said_and_nothing_is_left(model_folder, tmp_path, monkeypatch):
    output = tmp_path / "whole.onnx"
    with pytest.raises(ModelError, match=r"model.onnx is an ONNX file, which has no weights .* give the folder"):
        export_model(model_folder / "model.onnx", output)
    with pytest.raises(PairtonError, match="there is no folder"):
        export_model(model_folder, tmp_path / "nowhere" / "whole.onnx")
    monkeypatch.setattr(StepTarget, "tolerance", -1.0)
    with pytest.raises(ModelError, match=r"differs from torch .* nothing was written"):
        export_model(model_folder, output)
    assert list(tmp_path.iterdir()) == []


# -- several kinds of objects ------------------------------------------------------------------------------


def test_a_step_file_of_several_kinds(small_network, tmp_path):
    network, info = small_network(SEMI)
    path = tmp_path / "model.onnx"
    export_network(network, info, path)
    assert shapes_of(onnx.load(path)) == {
        "jet": ["events", "jets", 5],
        "jet_mask": ["events", "jets"],
        "lepton": ["events", "leptons", 4],
        "lepton_mask": ["events", "leptons"],
        "met": ["events", "met", 4],
        "met_mask": ["events", "met"],
        "tokens": ["events", 3, "nodes", "nodes"],
        "edges": ["events", 3, "nodes", "nodes"],
        "triplets": ["events", 1, "nodes", "nodes", "nodes"],
    }
    model = load_model(path, threads=1)
    assert (model.topology, model.inputs) == (SEMI, network.inputs)
    for layout in ((4, 1, 1), (7, 3, 1), (5, 1, 0)):  # without missing energy too
        nodes = objects_of(SEMI, layout, 30, missing=1)
        tokens = np.random.default_rng(1).integers(0, 3, (30, 3, sum(layout), sum(layout)))
        tokens = np.maximum(tokens, tokens.swapaxes(2, 3)).astype(np.uint8)
        wanted = predictor(network)(nodes, tokens)
        for name, found in model.predict(nodes, tokens).items():
            np.testing.assert_allclose(found, wanted[name], atol=1e-4)


def test_a_whole_file_of_several_kinds(small_network, tmp_path):
    network, info = small_network(SEMI)
    path = tmp_path / "whole.onnx"
    with pytest.raises(ModelError, match="steps cannot be exported as one graph: choose exact"):
        export_network(network, info, path, "whole")  # the model was trained for steps
    assert not path.exists()
    session = whole_file(network, info, path, decoding="exact", max_objects=7)
    assert [item.name for item in session.get_inputs()] == list(feeds(objects_of(SEMI, (4, 1, 1))))
    about = json.loads(onnx.load(path).metadata_props[0].value)
    assert (about["decoding"], about["max_objects"]) == ("exact", 7)
    assert about["slots"] == [slot.name for slot in SEMI.slots]
    for layout in ((4, 1, 1), (6, 1, 1), (7, 1, 1)):
        nodes = objects_of(SEMI, layout, missing=1, seed=3)
        wanted = decode(predictor(network), SEMI, nodes, decoding="exact")
        agree(session.run(None, feeds(nodes)), wanted, offsets=SEMI.offsets(layout))
    # more objects than it takes: the first ones
    wide = objects_of(SEMI, (9, 3, 1), seed=4)
    cut = about["objects"]
    assert cut == {"jet": 7, "lepton": 1, "met": 1}
    first = Nodes.full({kind: values[:, : cut[kind]] for kind, values in wide.values.items()})
    wanted = decode(predictor(network), SEMI, first, decoding="exact")
    agree(session.run(None, feeds(wide)), wanted, offsets=SEMI.offsets(first.layout))
    # no leptons: no answer
    none = objects_of(SEMI, (6, 0, 1), seed=5)
    indices, event, particles = session.run(None, feeds(none))
    assert (indices == -1).all()
    assert np.isnan(event).all()
    assert np.isnan(particles).all()


def test_how_many_objects_are_the_default():
    assert checked_limit(SEMI, None) == 12 <= exact_limit(SEMI)
    crowded = parse_topology({"name": "six", "event": ["t"] * 6, "particles": TOP})
    with pytest.raises(ModelError, match="lower --max-objects to"):
        checked_limit(crowded, None)


# -- other runtimes ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_oldest_runtime_runs_it(small_network, tmp_path):
    """In an environment of its own, named by PAIRTON_OLD_RUNTIME: a Python with onnxruntime 1.17."""
    python = os.environ.get("PAIRTON_OLD_RUNTIME")
    if python is None:
        pytest.skip("PAIRTON_OLD_RUNTIME names no Python with onnxruntime 1.17")
    network, info = small_network(TTBAR)
    session = whole_file(network, info, tmp_path / "whole.onnx", decoding="exact", max_objects=8)
    nodes = events_of(8, missing=1)
    np.savez(tmp_path / "in.npz", **feeds(nodes))
    code = f"""
import numpy as np, onnxruntime
assert onnxruntime.__version__.startswith("1.17."), onnxruntime.__version__
session = onnxruntime.InferenceSession({str(tmp_path / "whole.onnx")!r}, providers=["CPUExecutionProvider"])
found = session.run(None, dict(np.load({str(tmp_path / "in.npz")!r})))
np.savez({str(tmp_path / "out.npz")!r}, *found)
"""
    subprocess.run([python, "-c", code], check=True)
    theirs = np.load(tmp_path / "out.npz")
    for k, ours in enumerate(session.run(None, feeds(nodes))):
        np.testing.assert_allclose(theirs[f"arr_{k}"], ours, atol=1e-6)


def headers():
    places = [os.environ.get("ONNXRUNTIME_INCLUDE"), "/usr/include/onnxruntime", "/usr/local/include/onnxruntime"]
    return next((place for place in places if place and (Path(place) / "onnxruntime_cxx_api.h").is_file()), None)


@pytest.mark.long
@pytest.mark.parametrize("few", [None, 5])
def test_the_cpp_program_gives_the_same_answer(few, small_network, tmp_path):
    compiler, include = shutil.which("g++"), headers()
    libraries = glob.glob(str(Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime.so.*"))
    if compiler is None or include is None or not libraries:
        pytest.skip(
            "no g++, no headers of ONNX Runtime (set ONNXRUNTIME_INCLUDE), or no shared library in its wheel"
        )
    network, info = small_network(TTBAR, tokens=False, patterns=True)
    session = whole_file(network, info, tmp_path / "whole.onnx", decoding="exact", max_objects=9)
    (tmp_path / "libonnxruntime.so.1").symlink_to(libraries[0])
    build = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-isystem", include, str(CPP)]
    build += [str(tmp_path / "libonnxruntime.so.1"), f"-Wl,-rpath,{tmp_path}", "-o", str(tmp_path / "reconstruct")]
    subprocess.run(build, check=True)
    nodes = events_of(8)
    nodes = Nodes.full({"jet": nodes.values["jet"][:, : 8 if few is None else few]})
    text = "\n".join(" ".join(repr(float(value)) for value in event.ravel()) for event in nodes.values["jet"])
    command = [str(tmp_path / "reconstruct"), str(tmp_path / "whole.onnx")]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    rows = np.array([line.split() for line in result.stdout.splitlines()], dtype=float)
    wanted = np.concatenate([part.reshape(len(nodes), -1) for part in session.run(None, feeds(nodes))], axis=1)
    assert rows.shape == wanted.shape == (40, 6 + 1 + 4 + 6 + 1 + 1)
    np.testing.assert_array_equal(rows[:, :6], wanted[:, :6])
    np.testing.assert_allclose(rows[:, 6:], wanted[:, 6:], rtol=1e-4)
    assert subprocess.run(command, input="1 2 3", capture_output=True, text=True).returncode == 2
