"""Steps that are followed: what a wrong first one leaves possible, and what is then found."""

from dataclasses import replace

import numpy as np
import pytest

from enumeration import consistent, enumerate_assignments
from event_files import write_events
from pairton.evaluation.evaluating import evaluate
from pairton.evaluation.metrics.flow import (
    StepScores,
    _own_right,
    _possible,
    recovery,
    recovery_difference,
    score_steps,
)
from pairton.evaluation.scores import matches
from pairton.events import Events
from pairton.events.acceptance import accept
from pairton.topology import Stage, load_topology

TTBAR, TTH = load_topology("ttbar_allhad"), load_topology("tth_allhad")


@pytest.mark.parametrize(("topology", "n_jets"), [(TTBAR, 6), (TTBAR, 8), (TTH, 8)], ids=["6", "8", "tth"])
def test_possible_is_the_best_of_all_assignments_that_contain_the_mistake(topology, n_jets):
    rng = np.random.default_rng(0)
    enumeration = enumerate_assignments(topology, n_jets)
    events = 40
    order = np.argsort(rng.random((2, events, n_jets)), axis=2)[:, :, : len(topology.slots)]
    truth, state = order
    firsts = topology.levels[1][rng.integers(len(topology.levels[1]), size=events)]
    for row in range(events):
        shown = [slot for p in topology.particles if firsts[row, p.index] for slot in p.slots]
        state[row, [slot for slot in range(len(topology.slots)) if slot not in shown]] = -1
    wrong = firsts & ~matches(topology, state, truth)
    assert wrong.any(axis=1).mean() > 0.5
    found = _possible(topology, state, wrong, truth)
    allowed = consistent(enumeration, state, firsts)
    for row in np.flatnonzero(wrong.any(axis=1)):
        left = enumeration.assignments[allowed[row]].astype(np.int64)
        right = matches(topology, left, np.repeat(truth[row : row + 1], len(left), axis=0))
        for name in topology.types:
            count = right[:, [p.index for p in topology.of_type(name)]].sum(axis=1)
            assert found[name][row] == count.max(), (name, truth[row], state[row])


def test_what_a_step_adds_is_held_against_the_top_whose_w_is_right():
    truth = np.tile([0, 1, 2, 3, 4, 5], (7, 1))  # q q b of both tops
    state = np.array(
        [
            [1, 0, 2, 4, 3, 5],  # all right
            [3, 4, 5, 0, 1, 2],  # the tops swapped
            [0, 1, 5, 3, 4, 2],  # both W right, b quarks swapped: none
            [0, 1, 2, 3, 6, 5],  # one W right: both b right
            [0, 1, 5, 3, 6, 2],  # one W right, b quarks swapped: none
            [0, 3, 5, 1, 4, 2],  # no W right: the b of either top is right
            [0, 3, 5, 1, 4, 6],  # and here one of the two
        ]
    )
    b = _own_right(TTBAR, state, truth)[:, [p.index for p in TTBAR.of_type("t")]]
    assert b.tolist() == [[1, 1], [1, 1], [0, 0], [1, 1], [0, 0], [1, 1], [1, 0]]
    w = _own_right(TTBAR, state, truth)[:, [p.index for p in TTBAR.of_type("W")]]
    assert w.tolist() == [[1, 1], [1, 1], [1, 1], [1, 0], [1, 0], [0, 0], [0, 0]]


def test_objects_of_two_kinds_are_not_mixed_up():
    semilep = load_topology("ttbar_semilep")
    (tl,) = semilep.of_type("tl")
    slots = [slot.name for slot in semilep.slots]
    truth = np.array([[{"t.W.q1": 2, "t.W.q2": 3, "t.b": 4, "tl.b": 1, "tl.l": 0}[name] for name in slots]])
    state = truth.copy()
    state[0, [slots.index("tl.b"), slots.index("tl.l")]] = 0, 1  # the same numbers, of other kinds
    assert not _own_right(semilep, state, truth)[0, tl.index]
    assert _own_right(semilep, truth, truth).all()


def step_scores(first, right, possible, weight=None):
    shares = np.stack([np.array(first, np.float32), np.zeros(len(first), np.float32)], axis=1)
    counts = {"W": np.array(right, np.int16)}, {"W": np.array(possible, np.int16)}
    weight = np.ones(len(first)) if weight is None else np.array(weight, float)
    return StepScores(np.ones(len(first), bool), shares, *counts, weight)


def test_recovery_by_hand():
    one = step_scores([1, 0, 0, 0, 0], [2, 1, 1, 0, 0], [2, 1, 1, 1, 0])
    two = step_scores([1, 0, 0, 0, 1], [2, 1, 0, 0, 2], [2, 1, 1, 1, 2])
    cell = recovery(one)["W"]
    assert (cell.correct, cell.total, cell.value) == (2, 3, pytest.approx(2 / 3))
    assert cell.low <= cell.value <= cell.high
    change = recovery_difference(one, two)["W"]  # of the three events in which both begin wrong
    assert change.value == pytest.approx(2 / 3 - 1 / 3)
    assert (change.only_first, change.only_second) == (1, 0)
    none = step_scores([1, 1], [2, 2], [2, 2])
    assert np.isnan(recovery(none)["W"].value)
    assert np.isnan(recovery_difference(none, none)["W"].value)


def test_flows_with_weights_are_those_of_repeated_events(decays, told):
    events = decays(120, extra=1, labelled=0.99)
    weight = np.random.default_rng(2).integers(1, 4, 120)
    rows = np.repeat(np.arange(120), weight)
    samples = events.replace(weights=weight.astype(float)), Events(events.jets[rows], truth=events.truth[rows])
    found, counted = (evaluate(sample, told, decodings=["one_shot", "steps"]) for sample in samples)
    flows = [one.result("flow", one.methods[0]) for one in (found, counted)]
    for kind in ("one_shot", "steps"):
        assert flows[0][kind] == flows[1][kind]
        shares = [flow["recovery"][kind]["W"].value for flow in flows]
        assert shares[0] == pytest.approx(shares[1])
    assert isinstance(flows[0]["steps"][0]["+"], float)
    assert isinstance(flows[1]["steps"][0]["+"], int)
    half = evaluate(
        events.replace(weights=np.full(120, 0.5)), told, decodings=["one_shot", "steps"]
    )  # equal: counts
    assert sum(half.result("flow", half.methods[0])["steps"][0].values()) == events.complete.sum()


class Told:
    """A model with mistakes, others after every step."""

    def __init__(self, model, strength):
        self.model, self.strength = model, strength

    def __call__(self, nodes, tokens):
        outputs = self.model(nodes, tokens)
        jets = nodes.values["jet"]
        known = 1 + (tokens != 2).sum(axis=(1, 2, 3), keepdims=True)
        noise = np.sin(37 * jets[:, None, :, None, 1] * jets[:, None, None, :, 1] * known).astype(np.float32)
        return {**outputs, "edges": outputs["edges"] + self.strength * noise}


@pytest.fixture
def told(mass_model):
    mass_model.takes_tokens, mass_model.strength = True, 0.02
    mass_model.predict = Told(mass_model.predict, 0.5)
    return mass_model


def test_flows_begin_alike_and_end_with_the_efficiencies(decays, told, tmp_path):
    source = tmp_path / "in.h5"
    write_events(decays(150, extra=1, labelled=0.95), source)
    result = evaluate(source, [told], decodings=["exact", "one_shot", "steps"]).to_dict()
    total = result["complete"]
    names = {kind: f"masses:{kind}" for kind in ("exact", "one_shot", "steps")}
    flow = result["methods"][names["steps"]]["flow"]
    for kind in ("one_shot", "steps"):
        method = result["methods"][names[kind]]
        assert method["flow"] == flow
        assert [sum(counts.values()) for counts in flow[kind]] == [total] * 3
        assert flow[kind][-1]["+++"] == method["efficiency"]["event"]["inclusive"]["correct"]
        assert len(flow[kind][-1]) == 12  # both b, one, none
        assert flow[kind][-1]["++~"] + flow[kind][-1]["+-~"] > 0
        for history, count in flow[kind][1].items():
            assert sum(flow[kind][2][history + last] for last in "+~-") == count
        cells = flow["recovery"][kind]
        assert list(cells) == ["t", "W"]
        assert cells["W"]["correct"] == flow[kind][1]["-+"]
        assert 0 < cells["W"]["total"] <= flow[kind][0]["-"]
    assert flow["one_shot"][0] == flow["steps"][0]
    assert flow["one_shot"][1] != flow["steps"][1]
    change = flow["recovery"]["difference"]["W"]["value"]
    shares = [flow["recovery"][kind]["W"]["value"] for kind in ("steps", "one_shot")]
    assert change == pytest.approx(shares[0] - shares[1])
    by_pair = {(d["first"], d["second"]): d for d in result["differences"]}
    paired = by_pair[names["one_shot"], names["steps"]]
    assert paired["recovery"]["W"]["value"] == pytest.approx(-change)
    event = paired["efficiency"]["event"]["inclusive"]
    assert 0 < event["p_value"] <= 1
    assert paired["efficiency"]["W"]["inclusive"]["p_value"] is None
    assert set(flow) == {"stages", "one_shot", "steps", "recovery"}
    assert "flow" not in result["methods"][names["exact"]]  # one step, the whole event
    scaled = evaluate(source, [told], decodings=["one_shot", "steps"], jet_scales=[0.8]).to_dict()
    assert scaled["methods"][names["steps"]]["flow"] == flow  # of the jets as they are
    assert (
        "flow" not in evaluate(source, [told], decodings=["steps"]).to_dict()
    )  # the other decoding is not asked for


def test_what_cannot_be_asked_is_left_out(decays, told):
    events = decays(30, extra=1, labelled=0.9)
    accepted = accept(events, told.domain, told.inputs)
    steps = score_steps(told, "steps", events, accepted, events.truth)
    np.testing.assert_array_equal(steps.counted, events.complete)
    assert not steps.shares[~steps.counted].any()
    assert not steps.lost[~steps.counted].any()


def test_events_are_followed_whatever_their_own_stages(decays, told):
    events = decays(30, extra=1, labelled=0.9)
    told.topology = replace(TTBAR, given_stages=(Stage(("W", "t"), any=True),) * 4)
    steps = score_steps(told, "steps", events, accept(events, told.domain, told.inputs), events.truth)
    assert steps.shares.shape == (30, 4)  # the events have three stages
    np.testing.assert_array_equal(steps.counted, events.complete)
    assert steps.shares.any()
