"""All events, complete or not: areas, cuts, patterns, weights, background and momenta, worked out by hand."""

from __future__ import annotations

from itertools import product

import awkward as ak
import numpy as np
import pytest

from event_files import write_events
from pairton.decoding import Decoded
from pairton.decoding.patterns import plan_of
from pairton.decoding.set_tables import true_pattern
from pairton.evaluation.evaluating import evaluate
from pairton.evaluation.evaluation import Chunk
from pairton.evaluation.metrics.candidates import Candidate
from pairton.evaluation.metrics.presence import FEWEST, Background, Seen
from pairton.evaluation.metrics.probabilities import bins_off, if_complete, probabilities
from pairton.evaluation.scores import same_hypothesis, score
from pairton.evaluation.statistics import area, calibration, clopper_pearson, cuts_at_efficiency, effective_entries
from pairton.events import Events
from pairton.events.objects import make_jets
from pairton.reconstruction.result import momenta
from pairton.reconstruction.running import reconstruct, reconstruct_files
from pairton.topology import load_topology
from pairton.topology.assignments import present

TTBAR = load_topology()


# -- areas and cuts ----------------------------------------------------------------------------------------


def test_area_is_the_share_of_ordered_pairs_by_weight():
    number = np.array([0.9, 0.5, 0.5, 0.2, 0.1])
    inside = np.array([True, True, False, False, True])
    # pairs: (.9, .5) (.9, .2) (.5, .2) in order, (.5, .5) a tie, (.1, .5) (.1, .2) not
    assert area(number, inside).value == pytest.approx(3.5 / 6)
    assert (area(number, inside).inside, area(number, inside).outside) == (3, 2)
    # weights 2, 1, 1 of the class and 1, 3 of the others, of 4 x 4 = 16
    weight = np.array([2.0, 1.0, 1.0, 3.0, 1.0])
    assert area(number, inside, weight).value == pytest.approx((2 * 1 + 2 * 3 + 1 * 3 + 0.5 * 1 * 1) / 16)
    repeated = np.repeat(np.arange(5), weight.astype(int))
    assert area(number, inside, weight).value == pytest.approx(area(number[repeated], inside[repeated]).value)
    assert np.isnan(area(number, np.ones(5, bool)).value)


def test_error_of_an_area_is_that_of_other_samples():
    rng = np.random.default_rng(1)

    def draw() -> tuple:
        inside = np.arange(400) < 150
        weight = rng.choice([0.5, 2.0], 400)
        return rng.normal(size=400) + inside, inside, weight

    values = [area(*draw()).value for _ in range(200)]
    assert area(*draw()).error == pytest.approx(np.std(values), rel=0.25)


def test_a_cut_keeps_what_counting_says():
    rng = np.random.default_rng(2)
    number, inside, weight = rng.random(300).round(2), rng.random(300) < 0.4, rng.random(300)
    kept = cuts_at_efficiency(number, inside, [0.25, 0.5, 1.0], weight)
    for k, wanted in enumerate((0.25, 0.5, 1.0)):
        above = number >= kept.cut[k]
        assert kept.efficiency[k] == pytest.approx(weight[above & inside].sum() / weight[inside].sum())
        assert kept.purity[k] == pytest.approx(weight[above & inside].sum() / weight[above].sum())
        assert kept.background_efficiency[k] == pytest.approx(
            weight[above & ~inside].sum() / weight[~inside].sum()
        )
        assert kept.kept[k] == pytest.approx(weight[above].sum() / weight.sum())
        higher = number > kept.cut[k]  # the next higher cut keeps too little
        assert weight[higher & inside].sum() / weight[inside].sum() < wanted <= kept.efficiency[k] + 1e-9
    assert cuts_at_efficiency(number, np.zeros(300, bool), [0.5]).cut == []
    assert effective_entries(np.full(7, 3.0)) == pytest.approx(7)
    assert effective_entries(np.zeros(0)) == 0


# -- calibration -------------------------------------------------------------------------------------------


def test_calibration_with_weights():
    probability = np.array([0.25, 0.25, 0.25, 0.85])
    right = np.array([True, False, False, True])
    found = calibration(probability, right, weight=np.array([1.0, 1.0, 2.0, 4.0]))
    assert found["probability"] == pytest.approx((0.25 * 4 + 0.85 * 4) / 8)
    assert found["right"] == pytest.approx(5 / 8)
    low, high = found["bins"]
    assert (low["from"], low["total"], low["correct"]) == (0.2, 3, 1)
    assert low["value"] == pytest.approx(0.25)  # 1 of 4
    assert low["difference"] == pytest.approx(0.0)
    # of 0.25 - right: -0.75 (1), 0.25 (1), 0.25 (2)
    assert low["deviation"] == pytest.approx(np.sqrt(0.75**2 + 0.25**2 + 4 * 0.25**2) / 4)
    entries = 0.25 * 0.75 / low["deviation"] ** 2  # that would have this deviation; three were counted
    assert entries > 3
    assert (low["low"], low["high"]) == pytest.approx(clopper_pearson(0.25 * 3, 3))
    assert high["difference"] == pytest.approx(-0.15)
    assert found["error"] == pytest.approx(0.15 * 4 / 8)
    once, twice = (calibration(probability, right, weight=np.full(4, w)) for w in (1.0, 2.0))
    assert once == twice == calibration(probability, right)


def test_no_weight_and_negative_weights_are_no_error():
    nothing = calibration(np.full(2, 0.5), np.array([True, False]), weight=np.array([1.0, -1.0]))
    assert (nothing["probability"], nothing["error"], nothing["bins"]) == (None, None, [])
    odd = calibration(np.full(3, 0.5), np.array([True, False, False]), weight=np.array([2.0, -1.0, 0.5]))
    assert odd["right"] == pytest.approx(2 / 1.5)
    assert odd["bins"][0]["low"] < 2 / 1.5 < odd["bins"][0]["high"]  # wide: 1.5 of weight in three events


def test_bins_that_are_off():
    def row(difference: float, deviation: float, total: int = 500) -> dict:
        return {"from": 0.0, "difference": difference, "deviation": deviation, "total": total}

    assert bins_off([row(0.029, 0.001), row(0.05, 0.03), row(0.4, 0.001, 499)])[:2] == (0, 2)
    assert bins_off([row(-0.031, 0.001), row(0.05, 0.02)])[:2] == (2, 2)
    assert bins_off([]) == (0, 0, "")


# -- patterns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ttbar_allhad", "ttbar_semilep", "tth_allhad", "hh4b", "tttt_allhad"])
def test_every_truth_has_one_pattern(name):
    topology = load_topology(name)
    slots = len(topology.slots)
    rng = np.random.default_rng(0)
    every = np.array(list(product([0, 1], repeat=slots)) if slots < 9 else rng.random((3000, slots)) < 0.8, bool)
    truth = np.where(every, np.arange(slots), -1)
    found = true_pattern(topology, truth)
    patterns = plan_of(topology).patterns
    for row, number in zip(present(topology, truth), found, strict=True):
        highest = sorted(
            p.type for p in topology.particles if row[p.index] and (p.parent < 0 or not row[p.parent])
        )
        assert sorted(kind for kind, _ in patterns[number].placed) == highest
    if slots < 9:
        assert set(found) == set(range(len(patterns)))
    assert true_pattern(topology, truth[:0]).tolist() == []


# -- a model that says what is missing ---------------------------------------------------------------------


ANSWER = np.array([[0, 1, 2, 3, 4, 5]] * 6)
TRUTH = np.array(
    [
        [0, 1, 2, 3, 4, 5],  # complete, right
        [0, 1, 2, 3, 5, 4],  # complete, wrong
        [0, 1, 2, -1, 4, 5],  # a top
        [0, 1, -1, -1, 4, 5],  # a W
        [-1] * 6,
        [-1] * 6,
    ]
)
CHANCE = np.array([0.6, 0.5, 0.3, 0.1, 0.05, 0.02])
PATTERNS = np.array(
    [
        [0.8, 0.05, 0.1, 0.02, 0.02, 0.01],
        [0.7, 0.05, 0.2, 0.02, 0.02, 0.01],
        [0.4, 0.05, 0.5, 0.01, 0.02, 0.02],
        [0.2, 0.05, 0.5, 0.05, 0.1, 0.1],
        [0.1, 0.0, 0.2, 0.0, 0.1, 0.6],
        [0.05, 0.0, 0.1, 0.0, 0.75, 0.1],
    ]
)
WEIGHT = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 1.0])


@pytest.fixture
def study(tmp_path, mass_model):
    """An evaluation whose only method gives the answers above."""
    rng = np.random.default_rng(3)
    jets = make_jets(
        pt=np.sort(rng.uniform(30, 100, (6, 6)))[:, ::-1],
        eta=rng.uniform(-2, 2, (6, 6)),
        phi=rng.uniform(-3, 3, (6, 6)),
        mass=np.full((6, 6), 5.0),
        btag=np.ones((6, 6)),
    )
    events = Events(jets, truth=TRUTH, weights=WEIGHT)
    result = evaluate(events, [mass_model])
    (method,) = result.methods
    whole = np.full((6, 4), 0.5), CHANCE, np.ones(6, bool), PATTERNS, np.zeros((6, 0))
    answer = Decoded(ANSWER.astype(np.int32), *whole)
    scores = score(TTBAR, TRUTH, ANSWER, np.full(6, 6))
    chunk = Chunk(events, np.arange(6), TRUTH, [method], {method.name: answer}, {method.name: scores})
    method.counts = {
        name: [found]
        for name, metric in result.metrics.items()
        if (found := metric.count(chunk, method)) is not None
    }
    result._cache.clear()
    return result


def test_areas_of_all_events(study):
    found = study.result("area", study.methods[0])
    assert found["right"].value == 1.0  # the right answer has the highest probability
    # if complete: .75, .714, .75, .5, .5, .4: one tie of weight 1 with the right one, of 6
    assert found["right_if_complete"].value == pytest.approx((6 - 0.5) / 6)
    assert found["complete"].value == 1.0
    assert (found["events"], found["answered"], found["weight"]) == (6, 6, 7.0)
    assert found["effective"] == pytest.approx(49 / 9)


def test_calibration_of_all_events(study):
    found = study.result("calibration_all", study.methods[0])
    assert set(found) == {"event", "complete", "t", "W"}
    assert found["event"]["right"] == pytest.approx(1 / 7)
    assert found["event"]["probability"] == pytest.approx(np.average(CHANCE, weights=WEIGHT))
    assert found["complete"]["right"] == pytest.approx(2 / 7)
    assert found["complete"]["probability"] == pytest.approx(np.average(PATTERNS[:, 0], weights=WEIGHT))
    # tops: both of the first, one of the second and third; Ws: two, one (3 4 is not 3 5), one, one
    assert found["t"]["right"] == pytest.approx((2 + 1 + 1) / 14)
    assert found["W"]["right"] == pytest.approx((2 + 1 + 1 + 1) / 14)
    of_complete = study.result("calibration", study.methods[0])
    assert set(of_complete) == {"event"}
    assert of_complete["event"]["probability"] == pytest.approx((0.6 / 0.8 + 0.5 / 0.7) / 2)
    limit = study.result("limit", study.methods[0])["inclusive"]
    assert limit["probability"] == pytest.approx((0.6 / 0.8 + 0.5 / 0.7) / 2)


def test_patterns_said_and_true(study):
    found = study.result("patterns", study.methods[0])
    assert found["names"] == ["t + t", "t + W", "t", "W + W", "W", "nothing"]
    events = np.zeros((6, 6), int)
    events[0, 0], events[2, 2], events[4, 2], events[5, 5], events[5, 4] = 2, 1, 1, 1, 1
    np.testing.assert_array_equal(found["events"], events)
    assert found["weights"][5, 5] == 2
    np.testing.assert_allclose(found["true"], np.array([2, 0, 1, 0, 1, 3]) / 7)
    np.testing.assert_allclose(found["probability"], (WEIGHT @ PATTERNS) / 7)


def test_purity_of_a_cut(study):
    found = study.result("purity", study.methods[0])
    assert found["event_probability"]["purity"][-1] == 1.0
    assert found["event_probability_if_complete"]["purity"][-1] == pytest.approx(0.5)
    assert found["event_probability_if_complete"]["cut"][-1] == pytest.approx(0.75)


def test_tables_say_it(study):
    text = study.table(200)
    assert "answer right" in text
    assert "event complete" in text
    assert "1.000 ± 0.000" in text
    assert "area of the probability if complete: 0.917" in text
    assert "true, against most probable" in text


# -- background --------------------------------------------------------------------------------------------


def seen(**changes) -> Seen:
    """40 events of signal, 40 of background."""
    n = 80
    background = np.arange(n) >= 40
    values = {
        "source": background.astype(np.uint64),
        "labelled": ~background & (np.arange(n) % 2 == 0),
        "signal": np.full(n, np.nan),
        "weight": np.where(background, 0.5, 1.0),
        "something": np.where(background, 0.2, 0.9) + 0.001 * (np.arange(n) % 40),
        "complete": np.full(n, 0.5),
    }
    return Seen(**values | changes)


def test_background_is_a_source_without_labels():
    found = seen()
    assert found.background().tolist() == [False] * 40 + [True] * 40
    few = seen(source=np.where(np.arange(80) < 80 - FEWEST + 1, 0, 1).astype(np.uint64))
    assert not few.background().any()  # too few to tell
    blocks = seen(source=np.repeat(np.arange(3, dtype=np.uint64), (70, 5, 5)), labelled=np.zeros(80, dtype=bool))
    assert blocks.background().all()  # nothing is labelled at all: no signal, however few events a source has
    column = seen(signal=(np.arange(80) % 2).astype(float))
    np.testing.assert_array_equal(column.background(), np.arange(80) % 2 == 0)


def test_signal_against_background_and_a_peak_that_a_cut_makes(study):
    # background at 100 and 300 GeV, of which the ten that look most like signal are at 170
    mass = np.where(np.arange(80)[:, None] % 2 == 0, 100.0, 300.0) * np.ones((1, 2))
    mass[:40], mass[70:] = 170.0, 170.0
    something = np.where(np.arange(80) < 40, 0.5, 0.1)
    something[70:] = 0.5  # ties with signal
    method = study.methods[0]
    tops = [particle.index for particle in TTBAR.of_type("t")]
    every, right = np.full((80, 4), 80.0), np.repeat(np.arange(80)[:, None] < 40, 4, axis=1)
    every[:, tops] = mass
    method.counts["background"] = [background := seen(something=something)]
    method.counts["candidates"] = [Candidate(every, right, np.ones(80, bool), background.weight)]
    study._cache.clear()
    found = study.result("background", method)
    assert found["signal"] == {"events": 40, "weight": 40.0, "effective": pytest.approx(40)}
    assert found["background"] == {"events": 40, "weight": 20.0, "effective": pytest.approx(40)}
    assert found["area"]["something"].value == pytest.approx(0.75 + 0.25 / 2)
    assert found["area"]["complete"].value == 0.5
    assert found["cut"]["something"] == 0.5
    assert found["curve"]["something"]["background"][49] == pytest.approx(0.25)
    peak = found["mass"]["t"]
    assert peak["window"] == [170.0, 170.0]
    assert (peak["signal"]["share"], peak["before"]["share"], peak["after"]["share"]) == (1.0, 0.25, 1.0)
    assert peak["before"]["median"] == 170.0
    assert peak["before"]["width"] == 100.0
    assert peak["after"]["width"] == 0.0
    assert peak["before"]["weights"].sum() == pytest.approx(40.0)  # two candidates of each event
    assert "share of background kept at signal efficiencies" in study.table(200)


def test_there_is_no_background_in_labelled_files(study):
    assert study.result("background", study.methods[0]) is None
    method = study.methods[0]
    method.counts["background"] = [seen(source=np.zeros(80, np.uint64))]
    study._cache.clear()
    assert study.result("background", method) is None
    assert Background.name in study.metrics


# -- files -------------------------------------------------------------------------------------------------


def test_files_with_and_without_weights_are_mixed(decays, mass_model, tmp_path):
    paths = []
    for name, weights, truth in (("signal", None, True), ("background", np.full(30, 0.5), False)):
        events = decays(30, extra=1)
        labels = events.truth if truth else np.full_like(events.truth, -1)
        paths.append(str(tmp_path / f"{name}.h5"))
        write_events(Events(events.jets, truth=labels, weights=weights), tmp_path / f"{name}.h5")
    result = evaluate(paths, [mass_model]).to_dict()
    right = result["efficiency"]["event"]["inclusive"]["correct"]
    assert result["calibration_all"]["event"]["right"] == pytest.approx(right / (30 + 15))
    assert result["area"]["weight"] == pytest.approx(45)


def test_answers_of_a_file_say_what_is_missing(missing_model, decays, tmp_path):
    events = decays(50, extra=1, labelled=0.9)
    source = str(tmp_path / "events.h5")
    write_events(events, tmp_path / "events.h5")
    reconstruct_files([source], str(tmp_path / "answers.parquet"), missing_model)
    by_model = evaluate(source, [missing_model]).to_dict()
    by_file = evaluate(source, assignments=[tmp_path / "answers.parquet"]).to_dict()
    assert by_file["patterns"] == by_model["patterns"] | {
        "probability": pytest.approx(by_model["patterns"]["probability"], abs=1e-5)
    }
    assert by_file["area"]["complete"]["value"] == pytest.approx(by_model["area"]["complete"]["value"], abs=1e-3)
    reco = reconstruct(events, missing_model)
    assert by_model["calibration_all"]["complete"]["probability"] == pytest.approx(
        np.nanmean(reco.outputs["complete_probability"]), abs=1e-5
    )


def test_an_answer_that_leaves_particles_out_is_judged_by_what_is_there(decays, missing_model):
    whole = decays(30, extra=0)
    kept = np.ones((30, 6), dtype=bool)
    kept[np.arange(15), whole.truth[:15, 5]] = False  # the b of the second top is missing
    events = whole.keep({"jet": ak.from_regular(ak.Array(kept))})
    result = evaluate(events, [missing_model], allow_absent=True)
    reco = reconstruct(events, missing_model, allow_absent=True)
    left_out = (reco.assignment < 0).any(axis=1) & np.isfinite(reco.event_probability)
    assert 0 < left_out.sum() < len(events)
    known = probabilities(result, result.methods[0])
    right = same_hypothesis(TTBAR, events.truth, reco.assignment)
    np.testing.assert_array_equal(known["event"].right, right)
    assert (right & left_out).any()
    assert (if_complete(result, result.methods[0]).probability[left_out] == 0).all()
    of_all = result.to_dict()["calibration_all"]["event"]
    assert of_all["right"] == pytest.approx(right.mean())
    assert of_all["probability"] == pytest.approx(reco.event_probability.mean(), rel=1e-5)


# -- momenta -----------------------------------------------------------------------------------------------


def test_momenta_of_right_answers_are_those_of_the_truth(study):
    found = study.result("resolution", study.methods[0])
    assert set(found) == {"pT(t1)", "pT(t2)", "m(tt)"}
    assert all(row["total"] == 2 for row in found.values())  # complete events
    # the first is right; in the second, jets of one top are exchanged, which changes no momentum
    assert found["m(tt)"]["deviation"] == pytest.approx(0, abs=1e-6)
    assert found["pT(t1)"]["close"] == 1.0


def test_momenta_of_wrong_answers(decays, mass_model):
    events = decays(200, extra=2)
    result = evaluate(events, [mass_model])
    found = result.result("resolution", result.methods[0])
    reco = reconstruct(events, mass_model)
    true = events.truth
    known = events.complete & (reco.assignment >= 0).all(axis=1)
    said = np.sort(reco.momenta["pt"][known][:, [0, 2]], axis=1)
    wanted = np.sort(momenta(events, true)["pt"][known][:, [0, 2]], axis=1)
    away = said[:, 1] / wanted[:, 1] - 1
    assert found["pT(t1)"]["mean"] == pytest.approx(away.mean(), abs=1e-9)
    assert found["pT(t1)"]["deviation"] == pytest.approx(away.std())
    assert 0 < found["pT(t1)"]["close"] < 1
