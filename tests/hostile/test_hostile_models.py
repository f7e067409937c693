"""Models that reach for other files, for all time, or are not what their config says."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onnx_makers
from onnx_makers import LARGE, LEAKS, SECRET, by_the_event, long_chain, other_format
from pairton._common.worker import Limits
from pairton.errors import ModelError, PairtonError
from pairton.events.nodes import Nodes
from pairton.models.model import load_model


def write(folder, payload):
    (folder / "inner").mkdir()
    for place in (folder, folder / "inner"):
        (place / SECRET).write_bytes(b"S" * 64)
    (folder / "inner" / "some.onnx").write_bytes(payload)
    return folder / "inner" / "some.onnx"


def predict(path, engine="onnx", isolate=False):
    return load_model(path, engine=engine, isolate=isolate).predict(
        Nodes.full({"jet": np.ones((1, 6, 5), np.float32)})
    )


@pytest.mark.parametrize("maker", LEAKS, ids=lambda maker: maker.__name__)
def test_graphs_that_name_other_files_are_refused(model_folder, tmp_path, monkeypatch, maker):
    path = write(tmp_path, maker((model_folder / "model.onnx").read_bytes()))
    monkeypatch.chdir(path.parent)
    with pytest.raises(ModelError) as caught:
        predict(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("maker", LARGE, ids=lambda maker: maker.__name__)
def test_graphs_that_ask_for_too_much_memory_are_one_line(model_folder, tmp_path, maker):
    path = write(tmp_path, maker((model_folder / "model.onnx").read_bytes()))
    with pytest.raises(ModelError, match=r"^\S*some\.onnx: .*$"):
        predict(path, isolate=Limits(memory=2**29))


def test_a_graph_that_ends_its_worker_ends_a_command_with_one_line(model_folder, source, tmp_path, bounded):
    path = write(tmp_path, by_the_event((model_folder / "model.onnx").read_bytes()))
    code, said = bounded("reconstruct", source, "-o", tmp_path / "out.parquet", "--model", path, "--isolate")
    assert code == 2
    assert "some.onnx" in said
    assert not (tmp_path / "out.parquet").exists()


def test_a_graph_that_asks_for_too_much_time_is_stopped(model_folder, tmp_path):
    path = write(tmp_path, long_chain((model_folder / "model.onnx").read_bytes()))
    with pytest.raises(ModelError, match=r"some\.onnx: stopped, since it took longer than 5 s"):
        predict(path, isolate=Limits(seconds=5))


def test_isolated_models_give_the_same_answers(model_folder):
    np.testing.assert_array_equal(predict(model_folder, isolate=True)["edges"], predict(model_folder)["edges"])
    for isolate in (False, True):
        with pytest.raises(ModelError, match=r"ONNX Runtime failed \(") as caught:
            load_model(model_folder, isolate=isolate).predict(Nodes.full({"jet": np.ones((1, 6, 3), np.float32)}))
        assert "\n" not in str(caught.value)
    assert pickle.loads(pickle.dumps(load_model(model_folder, isolate=True))).engine.isolate
    assert not load_model("ttbar_allhad", isolate=True).engine.isolate  # a model of the package is trusted


def test_a_file_that_pretends_to_be_of_the_other_format_is_read_as_onnx(model_folder, tmp_path):
    payload = other_format((model_folder / "model.onnx").read_bytes())
    assert payload[4:8] == b"ORTM"
    np.testing.assert_array_equal(predict(write(tmp_path, payload))["edges"], predict(model_folder)["edges"])


SESSION = """
import sys
from onnx_makers import LEAKS
from pairton.errors import ModelError
from pairton.models.onnx_file import open_runtime
for maker in LEAKS:
    try:
        open_runtime(maker(open(sys.argv[1], "rb").read()), maker.__name__)
    except ModelError as error:
        print(maker.__name__, "refused")
"""


def refused_sessions(model_folder, tmp_path, *first):
    path = write(tmp_path, b"")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*first, str(Path(onnx_makers.__file__).parent)])}
    command = [sys.executable, "-c", SESSION, str(model_folder / "model.onnx")]
    done = subprocess.run(command, env=environment, cwd=path.parent, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_runtime_itself_reaches_no_file(model_folder, tmp_path):
    """The folder of other files is one where there can be none."""
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
    code = "import sys; from pairton.models.model import load_model; load_model(sys.argv[1]).engine.session"
    subprocess.run([sys.executable, "-c", code, str(model_folder)], env=hidden, check=True)
    assert list(tmp_path.iterdir()) == []


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
