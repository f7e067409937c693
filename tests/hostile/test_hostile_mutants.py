"""Structured mutants of what a model, a recipe, a topology and a detector card say: an answer or one line.

Each mutant changes a few places of a good one to values that people do not write.
"""

import copy
import json
import math

import numpy as np
import onnx
import pytest

from pairton._common.configuration import parse_yaml
from pairton.errors import PairtonError
from pairton.events.nodes import Nodes
from pairton.formats.writing import Stored
from pairton.generator.card import CARDS, parse_card
from pairton.models.engines import METADATA_KEY
from pairton.models.model import load_model
from pairton.topology import load_topology, parse_topology
from pairton.topology.extras import labels_of

ODD = [
    None,
    True,
    0,
    -1,
    10**18,
    10**400,
    1e308,
    -0.0,
    math.nan,
    math.inf,
    "",
    "nan",
    "9" * 400,
    "\x1b[31m\n",
    "2024-01-01",
    [],
    {},
    [[]],
    [None],
    {"": None},
    [[[[[[[["deep"]]]]]]]],
    list(range(1000)),
    {str(k): k for k in range(1000)},
]


NUMBERS = [0, -1, 1, 2, 3, 7, 1000, 2**31 - 1, 2**31, 2**40, 2**62, -(2**63)]  # sizes, axes and indices


def places(value, path=()):
    """Every place in plain data."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def mutant(good, rng):
    """The same data with one to three places changed, removed or renamed."""
    raw = copy.deepcopy(good)
    for _ in range(rng.integers(1, 4)):
        every = list(places(raw))
        path = every[rng.integers(len(every))]
        if not path:
            if rng.random() < 0.1:
                raw = copy.deepcopy(ODD[rng.integers(len(ODD))])
            continue
        holder = raw
        for key in path[:-1]:
            holder = holder[key]
        deed = rng.random()
        if deed < 0.15 and isinstance(holder, dict):
            del holder[path[-1]]
        elif deed < 0.25 and isinstance(holder, dict):
            holder["odd\x1b" * rng.integers(1, 3)] = holder.pop(path[-1])
        else:
            holder[path[-1]] = copy.deepcopy(ODD[rng.integers(len(ODD))])
    return raw


def survive(good, n, use, mutant=mutant):
    """`use` of every mutant gives an answer or an error of one short line; some of each."""
    rng, refused = np.random.default_rng(1), 0
    for k in range(n):
        raw = mutant(good, rng)
        try:
            use(raw)
        except PairtonError as error:
            refused += 1
            if "\n" in str(error) or len(str(error)) > 3000:
                pytest.fail(f"mutant {k}: not one short line: {str(error)[:500]}")
    assert refused
    return refused


def topology_use(raw):
    found = parse_topology(raw)
    found.to_dict(), found.levels, labels_of(found, "hyper"), found.tree(), str(found.selection)


def check_topologies(n, *_):
    for name in ("ttbar_allhad", "tth_allhad"):
        survive(load_topology(name).to_dict(), n, topology_use)


def check_cards(n, *_):
    good = parse_yaml((CARDS / "atlas.yaml").read_text(), "atlas")
    survive(good, n, lambda raw: parse_card(json.dumps(raw)))


def check_recipes(n, *_):
    pytest.importorskip("torch")
    from pairton.training import parse_recipe

    base = {"topology": "ttbar_allhad", "optimiser": {"steps": 10}}
    survive(parse_recipe(base).to_dict(), n, parse_recipe)


@pytest.mark.parametrize(
    "raw", [odd for odd in ODD if not isinstance(odd, dict)], ids=lambda odd: type(odd).__name__
)
def test_a_recipe_that_is_no_mapping_is_one_line(raw):
    pytest.importorskip("torch")
    from pairton.training import parse_recipe

    with pytest.raises(PairtonError, match=r"recipe is .*, but must be a mapping"):
        parse_recipe(raw)


def check_folders(n, model_folder, tmp_path):
    good = json.loads((model_folder / "model.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((model_folder / "model.safetensors").read_bytes())

    def use(raw):
        (tmp_path / "model.json").write_text(json.dumps(raw))
        model = load_model(tmp_path, engine="torch")
        model.predict(Nodes.full({"jet": np.ones((1, 7, 5), np.float32)}))

    survive(good, n, use)


def check_metadata(n, model_folder, tmp_path):
    model = onnx.load(model_folder / "model.onnx")
    good = json.loads({entry.key: entry.value for entry in model.metadata_props}[METADATA_KEY])

    def use(raw):
        del model.metadata_props[:]
        model.metadata_props.add(key=METADATA_KEY, value=json.dumps(raw))
        (tmp_path / "some.onnx").write_bytes(model.SerializeToString())
        load_model(tmp_path / "some.onnx").predict(Nodes.full({"jet": np.ones((1, 7, 5), np.float32)}))

    survive(good, n, use)


def check_stored(n, model_folder, tmp_path):
    good = json.loads(Stored(load_topology(), {"a": [1, {"b": 2}]}, ("run",)).to_json())
    survive(good, n, lambda raw: Stored.from_json(json.dumps(raw), "x.h5", tree=True))


def graph_mutant(model, rng):
    """The graph with one to three operators, connections, attributes or weights changed."""
    kinds = sorted({node.op_type for node in model.graph.node})
    mutated = onnx.ModelProto()
    mutated.CopyFrom(model)
    graph = mutated.graph
    for _ in range(rng.integers(1, 4)):
        node = graph.node[rng.integers(len(graph.node))]
        deed = rng.integers(6)
        if deed == 0:
            node.op_type = kinds[rng.integers(len(kinds))]
        elif deed == 1 and node.input:
            other = graph.node[rng.integers(len(graph.node))]
            node.input[rng.integers(len(node.input))] = other.output[0]
        elif deed == 2:
            graph.node.remove(node)
        elif deed == 3:
            for attribute in node.attribute:
                attribute.i, attribute.f = NUMBERS[rng.integers(len(NUMBERS))], math.inf
                attribute.ints[:] = [NUMBERS[rng.integers(len(NUMBERS))] for _ in attribute.ints]
        elif deed == 4:
            constants = [one for one in graph.node if one.op_type == "Constant"]
            tensor = constants[rng.integers(len(constants))].attribute[0].t
            whole = tensor.data_type == onnx.TensorProto.INT64
            value = np.full(
                tuple(tensor.dims), NUMBERS[rng.integers(len(NUMBERS))], np.int64 if whole else np.float32
            )
            tensor.CopyFrom(onnx.numpy_helper.from_array(value))
        else:
            tensor = graph.initializer[rng.integers(len(graph.initializer))]
            tensor.dims[:] = [NUMBERS[rng.integers(len(NUMBERS))] for _ in tensor.dims]
    return mutated.SerializeToString()


def check_graphs(n, model_folder, tmp_path):
    """Many of them in a worker process, since the runtime crashes on a few graphs."""
    n, isolate = min(n, 250), n > 40
    model = onnx.load(model_folder / "model.onnx")

    def use(payload):
        (tmp_path / "some.onnx").write_bytes(payload)
        model = load_model(tmp_path / "some.onnx", isolate=isolate)
        model.predict(Nodes.full({"jet": np.ones((3, 7, 5), np.float32)}))

    assert survive(model, n, use, graph_mutant) < n


CHECKS = [check_topologies, check_cards, check_recipes, check_folders, check_metadata, check_stored, check_graphs]


@pytest.mark.parametrize("n", [40, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_mutants_are_an_answer_or_one_line(check, n, model_folder, tmp_path):
    check(n, model_folder, tmp_path)
