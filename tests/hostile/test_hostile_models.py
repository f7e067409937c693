"""Models that reach for other files, for all time, or are not what their config says."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_makers import LARGE, LEAKS, ODD, SECRET, SLOW, long_chain, other_format, slow_product

import pairton
from pairton.errors import ModelError, PairtonError
from pairton.events.nodes import Nodes
from pairton.models import sessions
from pairton.models.engines import load_model


def write(folder, payload):
    (folder / "inner").mkdir()
    for place in (folder, folder / "inner"):
        (place / SECRET).write_bytes(b"S" * 64)
    (folder / "inner" / "some.onnx").write_bytes(payload)
    return folder / "inner" / "some.onnx"


def predict(path, engine="onnx"):
    return load_model(path, engine=engine).predict(Nodes.full({"jet": np.ones((1, 6, 5), np.float32)}))


@pytest.mark.parametrize("maker", [*LEAKS, *ODD], ids=lambda maker: maker.__name__)
def test_hostile_graphs_are_refused(model_folder, tmp_path, monkeypatch, maker):
    path = write(tmp_path, maker((model_folder / "model.onnx").read_bytes()))
    monkeypatch.chdir(path.parent)
    with pytest.raises(ModelError) as caught:
        predict(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("maker", LARGE, ids=lambda maker: maker.__name__)
def test_graphs_that_ask_for_too_much_memory_are_refused(model_folder, source, tmp_path, bounded, maker):
    path = write(tmp_path, maker((model_folder / "model.onnx").read_bytes()))
    code, said = bounded("reconstruct", source, "-o", tmp_path / "out.parquet", "--model", path)
    assert code == 2
    assert "memory" in said or "ONNX Runtime" in said
    assert not (tmp_path / "out.parquet").exists()


def test_a_graph_that_takes_too_long_is_stopped_between_its_operators(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "STARTING", 0.1)
    path = write(tmp_path, long_chain((model_folder / "model.onnx").read_bytes(), size=600))
    for _ in range(2):  # the second time at once: nothing is left to spend
        with pytest.raises(ModelError, match=r"its answers take more than 0 s of processor time"):
            predict(path)


def test_every_event_adds_to_the_time(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "STARTING", 0.0)
    monkeypatch.setattr(sessions, "EVENT", 100.0)
    path = write(tmp_path, long_chain((model_folder / "model.onnx").read_bytes(), products=60, size=600))
    assert predict(path)["edges"].shape == (1, 2, 6, 6)


@pytest.mark.long
@pytest.mark.parametrize("maker", SLOW, ids=lambda maker: maker.__name__)
def test_graphs_that_ask_for_too_much_time_are_stopped(model_folder, source, tmp_path, bounded, maker):
    path = write(tmp_path, maker((model_folder / "model.onnx").read_bytes()))
    before = sorted(tmp_path.rglob("*"))
    code, said = bounded("reconstruct", source, "-o", tmp_path / "out.parquet", "--model", path)
    if code == 2:
        assert "processor time" in said
        assert [path for path in sorted(tmp_path.rglob("*")) if path not in before] == [tmp_path / "said.txt"]


@pytest.mark.long
def test_a_worker_that_does_not_stop_is_ended(model_folder, source, tmp_path, bounded):
    path = write(tmp_path, slow_product((model_folder / "model.onnx").read_bytes()))
    second = shutil.copy(source, tmp_path / "second.h5")
    command = ("reconstruct", source, second, "-o", tmp_path / "out", "--jobs", "2")
    said = bounded(*command, "--model", path)[1]
    assert "a worker process ended early" in said or "processor time" in said  # by how fast the machine is


def test_a_file_that_pretends_to_be_of_the_other_format_is_read_as_onnx(model_folder, tmp_path):
    payload = other_format((model_folder / "model.onnx").read_bytes())
    assert payload[4:8] == b"ORTM"
    np.testing.assert_array_equal(predict(write(tmp_path, payload))["edges"], predict(model_folder)["edges"])


SESSION = """
import os, sys
sys.path.insert(0, sys.argv[1])
from onnx_makers import LEAKS
from pairton.errors import ModelError
from pairton.models.sessions import open_trusted
for maker in LEAKS:
    try:
        open_trusted(maker(open(sys.argv[2], "rb").read()), maker.__name__)
    except ModelError as error:
        print(maker.__name__, "refused")
"""


def refused_sessions(model_folder, tmp_path, *first):
    path = write(tmp_path, b"")
    environment = {"PYTHONPATH": os.pathsep.join([*first, str(Path(pairton.__file__).parents[1])])}
    command = [sys.executable, "-c", SESSION, str(Path(__file__).parent), str(model_folder / "model.onnx")]
    done = subprocess.run(
        command, env=os.environ | environment, cwd=path.parent, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_runtime_itself_reaches_no_file(model_folder, tmp_path):
    """Even where our own reader is passed by: the folder of other files is one where there can be none."""
    assert refused_sessions(model_folder, tmp_path) == [f"{maker.__name__} refused" for maker in LEAKS]


@pytest.mark.long
def test_the_oldest_allowed_runtime_reaches_no_file(model_folder, tmp_path):
    runtime = os.environ.get("PAIRTON_FLOOR_RUNTIME")
    if runtime is None:
        pytest.skip("PAIRTON_FLOOR_RUNTIME names no folder with onnxruntime 1.24.3")
    assert refused_sessions(model_folder, tmp_path, runtime) == [f"{maker.__name__} refused" for maker in LEAKS]


def test_the_runtime_keeps_no_records_of_use(model_folder, tmp_path):
    """It would make a data base in the user's cache."""
    hidden = {name: value for name, value in os.environ.items() if name not in ("CI", "ORT_DISABLE_TELEMETRY")}
    hidden |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    code = "import sys; from pairton.models.engines import load_model; load_model(sys.argv[1]).engine.session"
    subprocess.run([sys.executable, "-c", code, str(model_folder)], env=hidden, check=True)
    assert list(tmp_path.iterdir()) == []


def test_an_output_of_another_shape_is_one_line(model_folder, tmp_path):
    model = onnx.load(model_folder / "model.onnx")
    edges = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["inner_edges" if name == edges else name for name in node.output]
        node.input[:] = ["inner_edges" if name == edges else name for name in node.input]
    model.graph.node.append(onnx.helper.make_node("Transpose", ["inner_edges"], [edges], perm=[1, 0, 2, 3]))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    with pytest.raises(ModelError, match=r"edges of the shape \(1, 2, 6, 6\) in float32, but has \(2, 1,"):
        predict(write(tmp_path, model.SerializeToString()))


def test_a_failure_of_the_runtime_is_one_line(model_folder):
    model = load_model(model_folder)
    with pytest.raises(ModelError, match=r"ONNX Runtime failed \(") as caught:
        model.predict(Nodes.full({"jet": np.ones((1, 6, 3), np.float32)}))
    assert "\n" not in str(caught.value)


def change_folder(folder, weights, **network):
    """Other weights and settings, with the hash that makes them belong together."""
    (folder / "model.safetensors").write_bytes(weights)
    raw = json.loads((folder / "model.json").read_text())
    raw["network"] |= network
    raw["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    (folder / "model.json").write_text(json.dumps(raw))


@pytest.mark.parametrize("network", [{}, {"pair_width": 4096, "blocks": 64}, {"blocks": 10**9}, {"pair_heads": 3}])
@pytest.mark.parametrize("cut", [None, 100, 9, 0])
def test_weights_that_do_not_fit_the_config_are_one_line(model_folder, tmp_path, network, cut):
    shutil.copytree(model_folder, tmp_path / "model")
    (tmp_path / "model" / "model.onnx").unlink()
    change_folder(tmp_path / "model", (model_folder / "model.safetensors").read_bytes()[:cut], **network)
    if not network and cut is None:
        predict(tmp_path / "model", "torch")
        return
    with pytest.raises(PairtonError, match=r"do not fit the network|must be") as caught:
        predict(tmp_path / "model", "torch")
    assert "\n" not in str(caught.value)


@pytest.mark.long
def test_a_thousand_mutants_of_a_model_run_or_are_refused(model_folder, tmp_path):
    payload = (model_folder / "model.onnx").read_bytes()
    rng = np.random.default_rng(0)
    path = write(tmp_path, payload)
    for _ in range(1000):
        mutant = bytearray(payload)
        for at in rng.integers(0, len(mutant), rng.integers(1, 20)):
            mutant[at] = rng.integers(256)
        path.write_bytes(mutant[: rng.integers(len(mutant))] if rng.random() < 0.2 else mutant)
        with contextlib.suppress(PairtonError):
            predict(path)
