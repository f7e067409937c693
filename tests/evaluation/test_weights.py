"""Event weights: weight 2 is the event twice, equal ones change nothing, intervals know what they are worth."""

import json

import awkward as ak
import numpy as np
import pytest
from scipy.stats import binom

from event_files import write_events
from pairton.errors import EventsError, InputError, ModelError, PairtonWarning
from pairton.evaluation.baselines import MassChiSquare
from pairton.evaluation.evaluating import evaluate
from pairton.evaluation.scores import differences, score
from pairton.evaluation.statistics import (
    Difference,
    Efficiency,
    clopper_pearson,
    cuts_at_efficiency,
    effective_entries,
    weighted_quantile,
    weighted_ratio,
)
from pairton.events import Events
from pairton.report.page import write_report
from pairton.topology import load_topology

TTBAR = load_topology()
CENTRAL = {"value", "probability", "right", "difference", "error", "mean", "close", "share", "mix"}
CENTRAL |= {"purity", "efficiency", "kept", "mistaken", "cut", "true", "edges", "weights", "said"}
CURVES = {"purity", "efficiency", "kept", "mistaken", "cut", "true", "edges"}


def write(path, events):
    write_events(events, path)
    return str(path)


def central(found, path=()):
    """Path -> number, of all that is no interval, deviation or count."""
    if "area" in path and path[-1] == "error":  # a standard deviation; that of a calibration is a mean difference
        return
    if isinstance(found, dict):
        for key, value in found.items():
            yield from central(value, (*path, key))
    elif isinstance(found, list):
        for k, value in enumerate(found):
            yield from central(value, (*path, k))
    elif isinstance(found, float) and (
        path[-1] in CENTRAL or (any(key in CURVES for key in path) and not isinstance(path[-1], str))
    ):
        yield path, found


@pytest.fixture
def events(decays):
    """Events of six to ten jets, most of them complete."""
    return decays(240, extra=2, floor=18.0, labelled=0.99)


@pytest.fixture
def integers():
    return np.random.default_rng(5).choice([1.0, 2.0, 3.0], 240, p=[0.5, 0.3, 0.2])


def weighted(events, weights):
    return Events(events.jets, truth=events.truth, weights=weights)


def same_numbers(one, other):
    mine, others = dict(central(one)), dict(central(other))
    assert mine.keys() == others.keys()
    assert len(mine) > 200
    for path, value in mine.items():
        assert value == pytest.approx(others[path], rel=1e-9, abs=1e-9), path


@pytest.mark.parametrize("kind", ["masses", "missing"])
def test_weight_two_is_the_event_twice(events, integers, mass_model_type, missing_model_type, tmp_path, kind):
    """In a file, with two methods, and everything that an evaluation says."""
    make = mass_model_type if kind == "masses" else missing_model_type
    models = [make(strength=1.0), make(strength=0.2, name="weak")]
    rows = np.repeat(np.arange(240), integers.astype(int))
    once = write(tmp_path / "once.h5", weighted(events, integers))
    twice = write(tmp_path / "twice.h5", Events(events.jets[rows], truth=events.truth[rows]))
    found, counted = (evaluate(path, models, decodings=("exact",)).to_dict() for path in (once, twice))
    same_numbers(counted, found)
    assert found["events"] == 240
    assert found["weights"] == {"sum": integers.sum(), "effective": effective_entries(integers), "negative": 0}
    cell = found["efficiency"]["event"]["inclusive"]
    assert cell["correct"] <= cell["total"] == int(events.complete.sum())
    assert cell["effective"] == pytest.approx(effective_entries(integers[events.complete]))


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_equal_weights_change_nothing(events, mass_model, weight):
    plain = evaluate(events, mass_model).to_dict()
    assert "weights" not in plain
    same = evaluate(weighted(events, np.full(240, weight)), mass_model).to_dict()
    assert same["area"].pop("weight") == weight * plain["area"].pop("weight")
    for found in (plain, same):
        del found["methods"]
    assert same == plain


def test_weights_are_left_out_on_demand(events, integers, mass_model, tmp_path):
    plain = evaluate(events, mass_model)
    given = weighted(events, integers)
    assert evaluate(given, mass_model, use_weights=False).to_dict() == plain.to_dict()
    assert "effective number" not in plain.table()
    summary = f"240 events with truth (effective number {effective_entries(integers):.0f})"
    assert summary in evaluate(given, mass_model).table()


def test_the_command_has_a_flag_for_it(events, integers, command, capsys, tmp_path):
    path = write(tmp_path / "in.h5", weighted(events, integers))
    found = []
    for flag in ([], ["--no-weights"]):
        assert command("evaluate", path, "--json", "-", *flag) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["weights"]["sum"] == integers.sum()
    assert "weights" not in found[1]
    cells = [one["efficiency"]["event"]["inclusive"] for one in found]
    assert cells[0]["total"] == cells[1]["total"]
    assert cells[0]["value"] != cells[1]["value"] == cells[1]["correct"] / cells[1]["total"]


def test_what_cancels_counts_for_nothing_but_widens_intervals(events, mass_model):
    """A hundred further events, each with weight 1 and again with -1."""
    rows = np.concatenate([np.arange(240), np.arange(100), np.arange(100)])
    weights = np.concatenate([np.ones(340), -np.ones(100)])
    plain = evaluate(events, mass_model).to_dict()
    found = evaluate(Events(events.jets[rows], truth=events.truth[rows], weights=weights), mass_model).to_dict()
    assert found["weights"] == {"sum": 240.0, "effective": pytest.approx(240**2 / 440), "negative": 100}
    for what, cells in plain["efficiency"].items():
        cell, other = cells["inclusive"], found["efficiency"][what]["inclusive"]
        assert other["value"] == pytest.approx(cell["value"])
        assert other["high"] - other["low"] > 1.2 * (cell["high"] - cell["low"])
    for key in ("probability", "right", "difference"):
        assert found["calibration"]["event"][key] == pytest.approx(plain["calibration"]["event"][key])
    assert found["calibration"]["event"]["deviation"] > 1.2 * plain["calibration"]["event"]["deviation"]


def test_too_little_is_announced(events, mass_model):
    one_heavy = np.where(np.arange(240) == int(np.flatnonzero(events.complete)[0]), 1000.0, 1.0)
    with pytest.warns(PairtonWarning, match=r"complete events have an effective number of 1\.\d.*--no-weights"):
        evaluate(weighted(events, one_heavy), mass_model)


def test_a_weight_that_is_no_number_is_refused(events, mass_model):
    wrong = np.where(np.arange(240) == 7, np.nan, 1.0)
    with pytest.raises(InputError, match="the weight of event 0:7 is nan"):
        evaluate(weighted(events, wrong), mass_model)
    evaluate(weighted(events, wrong), mass_model, use_weights=False)
    with pytest.raises(EventsError, match=r"the weight of event 7 is 1e\+300: correct it"):
        weighted(events, np.where(np.arange(240) == 7, 1e300, 1.0))


@pytest.mark.long
def test_the_report_says_so(events, integers, mass_model, tmp_path):
    pytest.importorskip("matplotlib")
    from pairton.report import page as evaluation_page

    page = tmp_path / "page.html"
    evaluation_page.write_report(page, evaluate(weighted(events, integers), mass_model))
    text = page.read_text("utf-8")
    assert "Events are weighted" in text
    assert "weighted; effective number" in text
    evaluation_page.write_report(page, evaluate(events, mass_model))
    assert "weighted" not in page.read_text("utf-8")


# -- baselines ---------------------------------------------------------------------------------------------


def test_baselines_are_fitted_with_weights(events, integers, mass_model):
    rows = np.repeat(np.arange(240), integers.astype(int))
    tags = (np.random.default_rng(1).random(int(events.n_jets.sum())) < 0.4).astype(float)
    jets = ak.with_field(events.jets, ak.unflatten(tags, events.n_jets), "btag")  # any jet: no rate is 0 or 1
    plain, twice = Events(jets, truth=events.truth), Events(jets[rows], truth=events.truth[rows])
    heavy = Events(jets, truth=events.truth, weights=integers)
    fits = [MassChiSquare().fit(sample) for sample in (heavy, twice, plain)]
    for name, numbers in fits[1].masses.items():
        assert fits[0].masses[name] == pytest.approx(numbers, rel=1e-9)
        assert fits[2].masses[name] != pytest.approx(numbers, rel=1e-4)
    assert fits[0].tag_rates == pytest.approx(fits[1].tag_rates)
    assert fits[0].other_tag_rate == pytest.approx(fits[1].other_tag_rate)
    scaled = MassChiSquare().fit(Events(jets, truth=events.truth, weights=1e-6 * integers))
    assert scaled.tag_rates == pytest.approx(fits[0].tag_rates)

    found = [evaluate(sample, mass_model, baselines=["chi2"]).to_dict() for sample in (heavy, twice)]
    same_numbers(found[1]["methods"]["chi2"], found[0]["methods"]["chi2"])
    counted = evaluate(heavy, mass_model, baselines=["chi2"], use_weights=False).methods[-1]
    assert counted.about["masses"] == fits[2].masses


def test_a_baseline_is_not_fitted_on_nothing(events):
    signs = np.where(np.arange(240) % 3 == 0, 1.0, -1.0)
    with pytest.raises(ModelError, match=r"weights of the particles of type . do not add up to more than 0"):
        MassChiSquare().fit(weighted(events, signs))


# -- the numbers behind it ---------------------------------------------------------------------------------


def test_a_ratio_of_sums_by_hand():
    # two right of weight 2 and -1, one wrong of weight 3: 1 of 4; residues 2 * 0.75, -1 * 0.75, 3 * 0.25
    value, deviation = weighted_ratio(np.array([1, 1, 0]), np.ones(3), np.array([2.0, -1.0, 3.0]))
    assert value == 0.25
    assert deviation == pytest.approx(np.sqrt(1.5**2 + 0.75**2 + 0.75**2) / 4)
    assert np.isnan(weighted_ratio(np.ones(2), np.ones(2), np.array([1.0, -1.0]))).all()


def test_equal_weights_have_the_interval_of_counts():
    correct = np.arange(50) < 20
    share = Efficiency.of(correct.astype(int), np.ones(50, int), np.full(50, 0.3))
    assert share[:3] == pytest.approx((0.4, *clopper_pearson(20, 50)))
    assert share.effective == pytest.approx(50)


def test_shares_at_and_beyond_the_ends():
    ones, weight = np.ones(3, int), np.array([2.0, 1.0, 1.0])
    assert Efficiency.of(ones, ones, weight)[:3] == (1.0, *clopper_pearson(16 / 6, 16 / 6))
    assert Efficiency.of(0 * ones, ones, weight)[:3] == (0.0, *clopper_pearson(0, 16 / 6))
    beyond = Efficiency.of(np.array([1, 0]), np.ones(2, int), np.array([2.0, -1.0]))
    assert beyond.value == 2.0
    assert beyond.low < 2.0 < beyond.high
    nothing = Efficiency.of(np.array([1, 0]), np.ones(2, int), np.array([1.0, -1.0]))
    assert np.isnan(nothing.value)
    assert nothing[1:3] == (0.0, 1.0)


@pytest.mark.parametrize("negative", [0.0, 0.15])
@pytest.mark.parametrize("share", [0.15, 0.5, 0.9])
def test_intervals_cover_the_truth(share, negative):
    """Of two particles per event, which tend to be right together, with weights that depend on what is right."""
    rng = np.random.default_rng(11)
    samples, n = 400, 300
    covered = 0
    for _ in range(samples):
        first = rng.random(n) < share
        second = np.where(rng.random(n) < 0.5, first, rng.random(n) < share)
        weight = rng.choice([0.5, 1.0, 3.0], n) * np.where(rng.random(n) < negative, -1.0, 1.0)
        found = Efficiency.of(first.astype(int) + second, np.full(n, 2), weight)
        covered += found.low <= share <= found.high
    assert 0.6827 * samples - 3 * 10 < covered < 0.6827 * samples + 4 * 10


def test_differences_and_their_test_with_weights():
    rng = np.random.default_rng(3)
    base, other = rng.random(4000) < 0.6, rng.random(4000) < 0.6
    weight = rng.choice([1.0, 2.0], 4000)
    truth = np.tile(np.arange(6), (4000, 1))
    wrong = truth[:, [0, 2, 1, 3, 4, 5]]
    answers = [np.where(right[:, None], truth, wrong) for right in (base, other)]
    one, two = (score(TTBAR, truth, answer, np.full(4000, 7), weight) for answer in answers)
    found = differences(one, two)["event"]["inclusive"]
    assert found.value == pytest.approx(np.average(base, weights=weight) - np.average(other, weights=weight))
    change = base.astype(int) - other
    spread = np.std([np.average(change[r], weights=weight[r]) for r in rng.integers(4000, size=(400, 4000))])
    assert (found.high - found.low) / 2 == pytest.approx(spread, rel=0.12)
    assert (found.only_first, found.only_second) == (int((change > 0).sum()), int((change < 0).sum()))
    plain = Difference.of(change, np.ones(4000, int), test=True)
    assert plain.p_value == pytest.approx(min(1, 2 * binom.cdf(min(plain[3:5]), sum(plain[3:5]), 0.5)))
    assert 0 < found.p_value <= 1


def test_weighted_quantiles_are_those_of_repeated_values():
    rng = np.random.default_rng(8)
    values, counts = rng.normal(size=200), rng.integers(1, 4, 200)
    shares = np.array([0.16, 0.5, 0.84])
    repeated = np.sort(np.repeat(values, counts))
    expected = repeated[np.ceil(shares * counts.sum()).astype(int) - 1]
    assert weighted_quantile(values, shares, counts.astype(float)) == pytest.approx(expected)
    assert np.isnan(weighted_quantile(values, shares, -counts.astype(float))).all()


@pytest.mark.filterwarnings("ignore:.*effective number")
@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_weights_without_a_positive_sum_give_no_number_but_a_table(decays, mass_model, weight, tmp_path):
    events = decays(30, seed=2).replace(weights=np.full(30, weight))
    result = evaluate(events, mass_model)
    assert "masses" in result.table()
    write_report(tmp_path / "page.html", result, command="")


@pytest.mark.filterwarnings("ignore:.*effective number")
def test_a_page_of_negative_weights_is_drawn(decays, missing_model, tmp_path):
    events = decays(60, seed=3, labelled=0.8)
    signed = events.replace(weights=np.where(np.arange(60) % 3, 1.0, -1.0))
    write_report(tmp_path / "page.html", evaluate(signed, missing_model), command="")


def test_the_highest_cut_that_keeps_a_share_with_negative_weights():
    """By trying every cut: shares do not rise steadily if some weights are negative."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        number, inside = rng.random(40).round(2), rng.random(40) < 0.5
        weight = np.where(rng.random(40) < 0.2, -1.0, 1.0)
        if weight[inside].sum() <= 0:
            continue
        asked = [0.9, 0.5, 0.1]
        shares = {cut: weight[inside & (number >= cut)].sum() / weight[inside].sum() for cut in np.unique(number)}
        expected = [max(cut for cut, share in shares.items() if share >= least - 1e-12) for least in asked]
        assert cuts_at_efficiency(number, inside, asked, weight).cut == expected
