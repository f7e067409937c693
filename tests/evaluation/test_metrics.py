import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from pairton.evaluation.metrics.efficiency import spread
from pairton.evaluation.scores import differences, efficiencies, efficiency_against, matches, reweighted, score
from pairton.evaluation.statistics import MeanSpread, calibration, clopper_pearson
from pairton.topology import load_topology, parse_topology
from pairton.topology.extras import bin_names

TTBAR = load_topology("ttbar_allhad")  # slots: q q b, q q b
TRUTH = [0, 1, 2, 3, 4, 5]


def counts(truth, predicted, topology=TTBAR, n_jets=8):
    """what -> (correct, total) of one event."""
    scores = score(topology, np.array([truth]), np.array([predicted]), np.array([n_jets]))
    return {what: (int(scores.correct[what][0]), int(scores.total[what][0])) for what in scores.correct}


@pytest.mark.parametrize(
    ("predicted", "event", "t", "w"),
    [
        ([0, 1, 2, 3, 4, 5], 1, 2, 2),  # as it is
        ([3, 4, 5, 0, 1, 2], 1, 2, 2),  # tops swapped
        ([1, 0, 2, 4, 3, 5], 1, 2, 2),  # quarks swapped
        ([4, 3, 5, 1, 0, 2], 1, 2, 2),  # both
        ([0, 1, 2, 3, 6, 5], 0, 1, 1),  # one top right
        ([0, 1, 5, 3, 4, 2], 0, 0, 2),  # b jets exchanged
        ([0, 2, 1, 3, 4, 5], 0, 1, 1),  # the right three jets, the wrong one as b
        ([3, 4, 2, 0, 1, 5], 0, 0, 2),  # W exchanged between the tops
        ([0, 3, 2, 1, 4, 5], 0, 0, 0),  # quarks mixed between the W
        ([-1, -1, -1, -1, -1, -1], 0, 0, 0),  # no answer
        ([0, 1, 2, -1, -1, -1], 0, 1, 1),  # half an answer
    ],
)
def test_counted_by_hand(predicted, event, t, w):
    assert counts(TRUTH, predicted) == {"event": (event, 1), "t": (t, 2), "W": (w, 2)}


@pytest.mark.parametrize(
    ("truth", "predicted", "expected"),
    [
        ([0, 1, -1, 3, 4, 5], [0, 1, 6, 3, 4, 5], {"event": (0, 0), "t": (1, 1), "W": (2, 2)}),
        ([0, 1, -1, -1, 4, 5], [4, 5, 3, 1, 0, 2], {"event": (0, 0), "t": (0, 0), "W": (1, 1)}),
        ([0, -1, 2, 3, -1, 5], [0, 1, 2, 3, 4, 5], {"event": (0, 0), "t": (0, 0), "W": (0, 0)}),
        # what is missing on both sides is no answer: -1 never equals -1
        ([0, 1, -1, 3, 4, 5], [0, 1, -1, -1, -1, -1], {"event": (0, 0), "t": (0, 1), "W": (1, 2)}),
    ],
)
def test_partial_truth(truth, predicted, expected):
    assert counts(truth, predicted) == expected


def test_one_type_at_two_places_of_the_tree():
    topology = parse_topology(
        {"name": "ttw", "event": ["t", "W"], "particles": {"t": ["W", "b"], "W": ["q", "q"]}}
    )
    assert counts([0, 1, 2, 3, 4], [3, 4, 2, 0, 1], topology) == {"event": (0, 1), "t": (0, 1), "W": (2, 2)}
    assert counts([0, 1, 2, 3, 4], [1, 0, 2, 4, 3], topology) == {"event": (1, 1), "t": (1, 1), "W": (2, 2)}


def slow_matches(topology, truth, predicted):
    """Every permitted renaming of a particle's jets, one by one."""

    def forms(particle, jets):
        below = [
            tuple(jets[s] for s in g[list(particle.slots)])
            for g in topology.symmetries
            if set(g[list(particle.slots)]) == set(particle.slots)
        ]
        return {form for form in below if -1 not in form}

    return [
        any(forms(p, truth) & forms(q, predicted) for q in topology.of_type(p.type)) for p in topology.particles
    ]


@pytest.mark.parametrize("name", ["ttbar_allhad", "hh4b", "tth_allhad"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_matches_agree_with_a_slow_comparison(name, data):
    topology = load_topology(name)
    n = len(topology.slots)
    rows = st.lists(st.permutations(range(n)), min_size=3, max_size=3)
    truth, predicted = np.array(data.draw(rows)), np.array(data.draw(rows))
    predicted[0] = truth[0][data.draw(st.sampled_from([list(g) for g in topology.symmetries]))]
    truth[1, data.draw(st.integers(0, n - 1))] = -1
    found = matches(topology, truth, predicted)
    np.testing.assert_array_equal(
        found, [slow_matches(topology, *pair) for pair in zip(truth, predicted, strict=True)]
    )
    assert found[0].all()


def random_scores(n=3000, seed=0, quality=0.6):
    rng = np.random.default_rng(seed)
    n_jets = rng.integers(5, 11, n)
    truth = np.array([rng.permutation(6) for _ in range(n)])
    truth[rng.random((n, 6)) < 0.08] = -1
    wrong = np.array([rng.permutation(6) for _ in range(n)])
    predicted = np.where((rng.random(n) < quality)[:, None], truth, wrong)
    return truth, predicted, n_jets, score(TTBAR, truth, predicted, n_jets)


def test_bins_add_up_to_inclusive():
    truth, predicted, n_jets, scores = random_scores()
    result = efficiencies(TTBAR, truth, predicted, n_jets)
    assert list(result) == ["event", "t", "W"]
    short = scores[scores.bins < 0].efficiencies()
    for what, cells in result.items():
        assert list(cells) == ["6", "7", "8+", "inclusive"]
        parts = [cells[name] for name in bin_names(TTBAR)] + [short[what]["inclusive"]]
        assert sum(c.total for c in parts) == cells["inclusive"].total
        assert sum(c.correct for c in parts) == cells["inclusive"].correct
        for cell in cells.values():
            assert cell.value == cell.correct / cell.total
            assert cell.low < cell.value < cell.high


def test_nothing_to_count_is_said_so():
    result = efficiencies(TTBAR, np.zeros((0, 6), int), np.zeros((0, 6), int), np.zeros(0, int))
    nothing = {"value": None, "low": 0.0, "high": 1.0, "correct": 0, "total": 0, "effective": 0.0}
    assert result["W"]["7"].to_dict() == nothing


def test_clopper_pearson_has_its_tails():
    low, high = clopper_pearson(37, 50, confidence=0.9)
    assert binom.sf(36, 50, low) == pytest.approx(0.05)
    assert binom.cdf(37, 50, high) == pytest.approx(0.05)
    assert clopper_pearson(0, 5)[0] == 0
    assert clopper_pearson(5, 5)[1] == 1


def test_particles_of_one_event_go_together():
    # both or none right in each event: the interval of a binomial over events, not over particles
    right = np.arange(400) % 2 == 0
    truth = np.tile(TRUTH, (400, 1))
    predicted = np.where(right[:, None], truth, [[0, 3, 2, 1, 4, 5]])
    cell = efficiencies(TTBAR, truth, predicted, np.full(400, 6))["W"]["6"]
    assert (cell.correct, cell.total) == (400, 800)
    assert (cell.high - cell.low) / 2 == pytest.approx(np.sqrt(0.25 / 400), rel=0.1)


def test_reweighting_to_the_same_mix_changes_nothing_and_to_one_bin_gives_it():
    *_, scores = random_scores()
    inside = scores[scores.bins >= 0]
    mix = [int(inside.total["event"][inside.bins == k].sum()) for k in range(3)]
    plain = inside.efficiencies()
    for what, cell in reweighted(scores, mix).items():
        assert cell.value == pytest.approx(plain[what]["inclusive"].value)
        assert cell.low < cell.value < cell.high
    for what, cell in reweighted(scores, [0, 1, 0]).items():
        assert cell.value == pytest.approx(plain[what]["7"].value)
    by_hand = sum(m * plain["event"][b].value for m, b in zip((0.36, 0.30, 0.34), bin_names(TTBAR), strict=True))
    assert reweighted(scores, (36, 30, 34))["event"].value == pytest.approx(by_hand)
    assert np.isnan(reweighted(scores[scores.bins == 0], (36, 30, 34))["event"].value)


def test_efficiency_against_a_variable():
    *_, scores = random_scores()
    variable = np.random.default_rng(1).uniform(300, 900, len(scores))
    edges = [300, 400, 500, 900]
    cells = efficiency_against(scores, variable, edges)
    for k, cell in enumerate(cells):
        inside = (variable >= edges[k]) & (variable < edges[k + 1])
        assert (cell.correct, cell.total) == scores[inside].efficiencies()["event"]["inclusive"][3:5]
    assert sum(cell.total for cell in cells) == scores.total["event"].sum()


def test_differences_are_paired():
    truth, predicted, n_jets, first = random_scores()
    same = differences(first, first)["event"]["inclusive"]
    assert same == (0.0, 0.0, 0.0, 0, 0, 1.0)
    changed = predicted.copy()
    (rows,) = np.nonzero(first.correct["event"])
    changed[rows[:10]] = [0, 3, 2, 1, 4, 5]
    changed[rows[:10], 0] = -1  # whatever the truth is
    difference = differences(first, score(TTBAR, truth, changed, n_jets))
    whole = difference["event"]["inclusive"]
    total = int(first.total["event"].sum())
    assert whole[0] == pytest.approx(10 / total)
    assert (whole.only_first, whole.only_second) == (10, 0)
    assert whole.p_value == pytest.approx(2 / 2**10)  # McNemar: ten tosses of one side
    assert np.isnan(difference["W"]["inclusive"].p_value)
    # the same events fail in both, so the interval is that of ten, not of all
    assert (whole.high - whole.low) / 2 == pytest.approx(np.sqrt(10) / total, rel=0.15)


def test_calibration():
    rng = np.random.default_rng(0)
    probability = rng.random(20000)
    right = rng.random(20000) < probability
    probability[:100] = np.nan  # without an answer
    good = calibration(probability, right)
    assert good["total"] == 19900
    assert good["error"] < 0.02
    assert len(good["bins"]) == 10
    bad = calibration(np.full(10, 0.95), np.arange(10) < 5)
    assert bad["error"] == pytest.approx(0.45)
    assert [(row["correct"], row["total"]) for row in bad["bins"]] == [(5, 10)]
    assert calibration(np.zeros(0), np.zeros(0, bool))["bins"] == []


def test_spread_over_models():
    tables = [random_scores(quality=q)[3].efficiencies() for q in (0.5, 0.6, 0.7)]
    values = [each["t"]["7"].value for each in tables]
    assert spread(tables)["t"]["7"] == MeanSpread(np.mean(values), np.std(values, ddof=1), 3)


def test_all_or_none_right_is_as_sure_as_the_number_of_events():
    """Two particles of an event are not two events."""
    truth = np.tile(TRUTH, (3, 1))
    every = efficiencies(TTBAR, truth, truth, np.full(3, 6))["W"]["6"]
    none = efficiencies(TTBAR, truth, np.full_like(truth, -1), np.full(3, 6))["W"]["6"]
    assert (every.correct, every.total, none.correct) == (6, 6, 0)
    assert (every.low, every.high) == clopper_pearson(3, 3)
    assert (none.low, none.high) == clopper_pearson(0, 3)
