"""Sums over sets as a graph: equal to numpy for every number of jets, as a torch module and as a file."""

import io

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from pairton.decoding import set_sums
from pairton.decoding.patterns import allowed_nodes
from pairton.decoding.set_tables import set_tables
from pairton.errors import ModelError
from pairton.export.set_graph import SetGraph
from pairton.network.torch_set_sums import IMPOSSIBLE
from pairton.topology import load_topology, parse_topology


def made(name, event, **particles):
    return parse_topology({"name": name, "event": event, "particles": particles})


TTBAR, TTH, HH4B = (load_topology(name) for name in ("ttbar_allhad", "tth_allhad", "hh4b"))
DEEP = made("deep", ["H", "j"], H=["W", "W"], W=["q", "q"])
LJETS = made("ljets", ["t", "tl"], t=["W", "b"], W=["q", "q"], tl=["L", "b"], L=["l"])


def drawn(tables, events, seed=0):
    rng = np.random.default_rng(seed)
    scores = {
        n: rng.normal(size=(len(c.objects), events)).astype(np.float32) for n, c in tables.candidates.items()
    }
    return scores, rng.normal(size=(len(tables.patterns), events)).astype(np.float32)


def leptons_first(n_jets, n_leptons=2):
    nodes = tuple(range(n_leptons, n_leptons + n_jets)), tuple(range(n_leptons))
    return tuple(nodes[slot.name.endswith(".l")] for slot in LJETS.slots)


def agree(tables, scores, terms, sums, present, value, slots):
    wanted, chances = set_sums.marginals(tables, scores, terms)
    ranked = [set_sums.best(tables, scores, terms, patterns=[k]) for k in range(len(tables.patterns))]
    possible = np.isfinite(wanted)
    np.testing.assert_allclose(sums[possible], wanted[possible], rtol=1e-4, atol=1e-4)
    for name, values in chances.items():
        np.testing.assert_allclose(present[name], values, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        value[possible], np.stack([one.score[:, 0] for one in ranked])[possible], rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(slots[possible], np.stack([one.assignment[:, 0] for one in ranked])[possible])


@pytest.mark.parametrize("topology", [TTBAR, TTH, HH4B, DEEP], ids=lambda topology: topology.name)
def test_tables_for_the_most_jets_serve_fewer(topology):
    least = len(topology.slots)
    graph = SetGraph(set_tables(topology, allowed_nodes(topology, least + 2)), least + 2)
    for n_jets in (least, least + 1, least + 2):
        tables = set_tables(topology, allowed_nodes(topology, n_jets))
        scores, terms = drawn(tables, 5)
        given, c = {name: torch.tensor(values) for name, values in scores.items()}, torch.tensor(terms)
        at = graph.at(n_jets)
        sums, present = graph.marginals(given, c, at)
        value, slots = graph.best(given, c, at)
        agree(
            tables,
            scores,
            terms,
            *(x.numpy() if isinstance(x, torch.Tensor) else x for x in (sums, present, value, slots)),
        )


def test_kinds_of_a_fixed_number_come_first():
    graph = SetGraph(set_tables(LJETS, leptons_first(8)), 8, first=2)
    for n_jets in (6, 8):
        tables = set_tables(LJETS, leptons_first(n_jets))
        scores, terms = drawn(tables, 3)
        given, c = {name: torch.tensor(values) for name, values in scores.items()}, torch.tensor(terms)
        agree(
            tables,
            scores,
            terms,
            *graph.marginals(given, c, graph.at(n_jets)),
            *graph.best(given, c, graph.at(n_jets)),
        )


def test_missing_objects_are_impossible_candidates():
    tables, fewer = (set_tables(TTBAR, allowed_nodes(TTBAR, n)) for n in (7, 5))
    scores, terms = drawn(tables, 3)
    kept = {name: scores[name][: len(known.objects)] for name, known in fewer.candidates.items()}
    for name, known in tables.candidates.items():
        scores[name][known.objects.max(axis=1) >= 5] = IMPOSSIBLE
    given, c = {name: torch.tensor(values) for name, values in scores.items()}, torch.tensor(terms)
    graph = SetGraph(tables, 7)
    sums, present = graph.marginals(given, c, graph.at(7))
    first = {name: values[: len(kept[name])] for name, values in present.items()}
    agree(fewer, kept, terms, sums.numpy(), first, *(part.numpy() for part in graph.best(given, c, graph.at(7))))
    assert all(values[len(kept[name]) :].max() == 0 for name, values in present.items())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("topology", [TTBAR, HH4B], ids=lambda topology: topology.name)
def test_a_file_takes_any_number_of_jets_and_events(topology):
    least = len(topology.slots)
    most = set_tables(topology, allowed_nodes(topology, least + 2))
    names = list(most.candidates)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.sets = SetGraph(most, least + 2)

        def forward(self, jets, terms, *scores):
            given, at = dict(zip(names, scores, strict=True)), self.sets.at(jets.shape[1])
            sums, present = self.sets.marginals(given, terms, at)
            return (sums, *(present[name] for name in names), *self.sets.best(given, terms, at))

    def inputs(n_jets, events):
        tables = set_tables(topology, allowed_nodes(topology, n_jets))
        scores, terms = drawn(tables, events)
        return tables, scores, {"jets": np.zeros((events, n_jets), np.float32), "terms": terms} | scores

    _, _, example = inputs(least + 1, 3)
    stream = io.BytesIO()
    torch.onnx.export(
        Whole().eval(),
        tuple(torch.from_numpy(array) for array in example.values()),
        stream,
        dynamo=False,
        opset_version=18,
        input_names=list(example),
        dynamic_axes={name: {0: f"{name}_rows", 1: "events"} for name in names}
        | {"jets": {0: "events", 1: "jets"}, "terms": {1: "events"}},
    )
    session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
    for n_jets, events in ((least, 2), (least + 2, 7)):
        tables, scores, feed = inputs(n_jets, events)
        sums, *present, value, slots = session.run(None, feed)
        agree(tables, scores, feed["terms"], sums, dict(zip(names, present, strict=True)), value, slots)


def test_kinds_that_overlap_are_declined():
    two = made("two", ["x", "y"], x=["A", "l"], A=["e"], y=["l"])
    nodes = {"x.A.e": (3, 4), "x.l": (0, 3, 4, 5), "y.l": (0, 3, 4, 5)}
    with pytest.raises(ModelError, match="share some objects"):
        SetGraph(set_tables(two, tuple(nodes[slot.name] for slot in two.slots)), 6)
