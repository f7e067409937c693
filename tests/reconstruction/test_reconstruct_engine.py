"""The whole road with ONNX Runtime, on a small network made here: no torch, no shipped weights."""

import json

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper, numpy_helper

from pairton import formats
from pairton.events.domain import Domain, KindDomain
from pairton.events.inputs import Inputs
from pairton.models.engines import METADATA_KEY
from pairton.models.model import load_model
from pairton.models.storage import ModelInfo
from pairton.reconstruction.running import reconstruct, reconstruct_files
from pairton.topology import load_topology

WIDTH = 48


def small_network(path, seed=0):
    """edges = h A h^T for each type, h = tanh(jets W): symmetric logits that depend on every jet."""
    rng = np.random.default_rng(seed)
    topology = load_topology()
    scale = np.diag([0.02, 1.0, 1.0, 0.01, 1.0])
    mix = rng.normal(size=(len(topology.types), 1, WIDTH, WIDTH)) / np.sqrt(WIDTH)
    constants = {
        "W": scale @ rng.normal(size=(5, WIDTH)),
        "A": (mix + mix.transpose(0, 1, 3, 2)).reshape(1, len(topology.types), WIDTH, WIDTH),
    }
    axes = numpy_helper.from_array(np.array([1], dtype=np.int64), "one")
    nodes = [
        helper.make_node("MatMul", ["jet", "W"], ["linear"]),
        helper.make_node("Tanh", ["linear"], ["hidden"]),
        helper.make_node("Unsqueeze", ["hidden", "one"], ["rows"]),  # (B, 1, N, WIDTH)
        helper.make_node("Transpose", ["rows"], ["columns"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["rows", "A"], ["mixed"]),  # (B, T, N, WIDTH)
        helper.make_node("MatMul", ["mixed", "columns"], ["edges"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info("jet", TensorProto.FLOAT, ["B", "N", 5]),
            helper.make_tensor_value_info("jet_mask", TensorProto.BOOL, ["B", "N"]),
        ],
        [helper.make_tensor_value_info("edges", TensorProto.FLOAT, ["B", len(topology.types), "N", "N"])],
        [axes, *(numpy_helper.from_array(c.astype(np.float32), name) for name, c in constants.items())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    domain = Domain({"jet": KindDomain(20.0, 4.0, (6, 12))})
    outputs = {"edges": ("type", "node", "node")}
    about = ModelInfo(topology, {"tokens": False}, domain, Inputs.default(topology), outputs).to_dict()
    model.metadata_props.add(key=METADATA_KEY, value=json.dumps(about))
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return small_network(tmp_path_factory.mktemp("model") / "small.onnx")


def test_chunks_and_threads_change_nothing(decays, network, tmp_path, monkeypatch):
    monkeypatch.setattr("pairton.reconstruction.assigner.windows.__defaults__", (128,))
    events = decays(400, extra=3, floor=15)
    source = tmp_path / "in.h5"
    with formats.create(source, events.topology) as writer:
        writer.write(events)
    tables = []
    for threads, chunk in ((1, 1), (1, 7), (1, 100_000), (2, 7), (2, 100_000)):
        target = tmp_path / f"out{threads}_{chunk}.parquet"
        model = load_model(network, threads=threads)
        reconstruct_files(source, target, model, chunk=chunk)
        tables.append({name: column.to_numpy() for name, column in zip_columns(pq.read_table(target))})
    first = tables[0]
    assert set(first["status"]) >= {"ok", "too_few_objects"}
    assert (first["t1_b_jet"] >= 0).sum() > 300
    for table in tables[1:]:
        for name, column in table.items():
            if name.endswith("_jet") or name in ("status", "event_number"):
                np.testing.assert_array_equal(column, first[name], err_msg=name)
            elif name.endswith("_probability"):
                np.testing.assert_allclose(column, first[name], atol=1e-5, err_msg=name)


def zip_columns(table):
    return zip(table.column_names, table.columns, strict=True)


def test_memory_and_file_agree(decays, network, tmp_path):
    events = decays(50, extra=2)
    with formats.create(tmp_path / "in.h5", events.topology) as writer:
        writer.write(events)
    reconstruct_files(tmp_path / "in.h5", tmp_path / "out.parquet", str(network))
    table = pq.read_table(tmp_path / "out.parquet")
    reco = reconstruct(events, str(network))
    np.testing.assert_array_equal(table["t2_W_q1_jet"].to_numpy(), reco.index[:, 3])
    np.testing.assert_allclose(table["event_probability"].to_numpy(), reco.event_probability, rtol=1e-5)
