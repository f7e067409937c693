"""Tables of tag efficiencies, what a tag is worth, and the draws of a training."""

import awkward as ak
import numpy as np
import pytest

from pairton.errors import ConfigError, EventsError
from pairton.events import Events
from pairton.events.inputs import EVIDENCE
from pairton.events.objects import make_jets
from pairton.events.tags import builtin_tables, load_table, parse_table, tables_of, with_evidence, with_table
from pairton.generator.card import load_card
from pairton.topology import load_topology, parse_topology
from pairton.training.draws import draw_acceptance, draw_tags

TWO = {"cuts": [0.3, 0.8], "efficiency": {"b": [0.9, 0.6], "c": [0.3, 0.1], "light": [0.1, 0.01]}}


def worth(table, values):
    return np.stack(table.evidence(np.array(values), np.full(len(values), 50.0), np.zeros(len(values))))


def test_evidence_is_the_ratio_of_the_shares_in_a_bin():
    b, c = worth(parse_table(TWO), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(b, np.log([0.1 / 0.9, 0.3 / 0.09, 0.6 / 0.01]))
    np.testing.assert_allclose(c, np.log([0.7 / 0.9, 0.2 / 0.09, 0.1 / 0.01]))


def test_only_efficiencies_matter_not_the_scale():
    other = parse_table({**TWO, "cuts": [-4.0, 11.0]})
    np.testing.assert_array_equal(worth(parse_table(TWO), [0.1, 0.5, 0.9]), worth(other, [-9.0, 0.0, 12.0]))


def test_fewer_cuts_are_the_table_of_those_cuts():
    full = parse_table(TWO)
    tight = parse_table({"cuts": [0.8], "efficiency": {"b": [0.6], "c": [0.1], "light": [0.01]}})
    values = np.array([0.1, 0.5, 0.9])
    kept = np.tile([False, True], (3, 1))
    found = np.stack(full.of_bins(full.bins(values, np.zeros(3)), np.full(3, 50.0), kept))
    np.testing.assert_allclose(found, worth(tight, values.tolist()))
    nothing = full.of_bins(full.bins(values, np.zeros(3)), np.full(3, 50.0), np.zeros((3, 2), dtype=bool))
    np.testing.assert_allclose(nothing, 0, atol=1e-12)


def test_without_a_tag_or_a_c_column_nothing_is_known():
    table = parse_table({**TWO, "abs_eta": 2.5})
    b, c = table.evidence(np.array([0.9, np.nan, 0.9]), np.full(3, 50.0), np.array([2.6, 0.0, -2.4]))
    assert (b[:2] == 0).all()
    assert (c[:2] == 0).all()
    assert b[2] > 0
    rows = {name: row for name, row in TWO["efficiency"].items() if name != "c"}
    assert (worth(parse_table({**TWO, "efficiency": rows}), [0.1, 0.9])[1] == 0).all()


def test_ranges_of_pt():
    table = parse_table({"cuts": [0.5], "pt": [40], "efficiency": {"b": [[0.5], [0.8]], "light": [0.1]}})
    b, _ = table.evidence(np.array([1.0, 1.0]), np.array([39.0, 40.0]), np.zeros(2))
    np.testing.assert_allclose(b, np.log([5.0, 8.0]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cuts": [0.8, 0.3]}, "rising"),
        ({"cuts": [0.3, float("nan")]}, "rising"),
        ({"cuts": [0.3]}, "1 numbers"),
        ({"efficiency": {"b": [0.6, 0.9], "light": [0.1, 0.01]}}, "fall"),
        ({"efficiency": {"b": [0.9, 0.6], "light": [0.1, 0.0]}}, "between 0 and 1"),
        ({"efficiency": {"b": [0.9, 0.6]}}, "light"),
        ({"efficiencies": {}}, "did you mean"),
        ({"pt": [40, 30]}, "rising"),
        ({"abs_eta": -1}, "abs_eta"),
        ({"cuts": "many"}, "table.cuts is 'many', but must be a list of rising numbers"),
        ({"range": [0.5, 1.0]}, "within"),
        ({"range": [0.0]}, "table.range is"),
        ({"efficiency": {"b": [[0.9, 0.6], [0.8]], "light": [0.1, 0.01]}}, "2 numbers, one per cut"),
        ({"tag_point": 3}, "tag_point is 3"),
    ],
)
def test_a_wrong_table_is_one_line(change, said):
    with pytest.raises(ConfigError, match=said):
        parse_table({**TWO, **change})


def test_a_value_outside_the_range_is_no_tag():
    table = parse_table({**TWO, "range": [0, 1]})
    b, c = worth(table, [-3000.0, -1.0, 1.1, 0.0, 1.0])
    assert (b[:3] == 0).all()
    assert (c[:3] == 0).all()
    np.testing.assert_allclose(b[3:], np.log([0.1 / 0.9, 60.0]))


def test_a_btag_from_a_table_needs_a_value_inside_the_range():
    """As in files: 999 passes the cut, but says nothing."""
    scores = [[999.0, 0.9, 0.1], [], [np.nan, -1.0, 0.5]]
    zero = ak.zeros_like(ak.Array(scores))
    jets = make_jets(pt=zero + 50, eta=zero, phi=zero, mass=zero + 5, score=scores)
    table = parse_table({**TWO, "name": "two", "field": "score", "range": [0, 1], "tag_point": 1})
    found = with_table(Events(jets, "hh4b"), table).jets
    assert found.btag.tolist() == [[0, 1, 0], [], [0, 0, 1]]
    assert found.b_evidence[0, 0] == 0


def test_events_that_were_read_with_a_table_take_it_again():
    """Readers keep its evidence, not the scores, so another table cannot be used."""
    scores = [[0.9, 0.1]]
    zero = ak.zeros_like(ak.Array(scores))
    table, other = (parse_table({**TWO, "name": name, "field": "score"}) for name in ("two", "other"))
    jets = make_jets(pt=zero + 50, eta=zero, phi=zero, mass=zero + 5, score=scores)
    read = with_table(Events(jets, "hh4b"), table)
    read = read.replace(jets=ak.without_field(read.jets, "score"))
    assert with_table(read, table).jets.b_evidence.tolist() == read.jets.b_evidence.tolist()
    with pytest.raises(EventsError, match="the table other needs the field score of jets"):
        with_table(read, other)


@pytest.mark.parametrize("name", builtin_tables())
def test_values_are_worth_what_their_bins_are(name):
    table = load_table(name)
    rng = np.random.default_rng(0)
    values = rng.uniform(table.cuts[0] - 2, table.cuts[-1] + 2, 300)
    pt, eta = rng.uniform(15, 700, 300), rng.uniform(-4, 4, 300)
    np.testing.assert_array_equal(table.evidence(values, pt, eta), table.of_bins(table.bins(values, eta), pt))


def test_the_cut_that_makes_a_tag():
    assert parse_table(TWO).tag_cut == 0.3  # 90 % of b jets is nearer to 77 % than 60 % is
    assert parse_table({**TWO, "tag_point": 2}).tag_cut == 0.8
    assert load_table("gn2v01").tag_cut == 0.828


def test_eras_of_a_tagger_differ_in_cuts_alone():
    tables = tables_of("btagDeepFlavB")
    assert tables[0].name == "deepjet_2018"
    assert {len(table.cuts) for table in tables} == {3, 5}
    assert len({tuple(table.cuts) for table in tables}) == len(tables)
    for table in tables[1:]:
        n = min(len(table.cuts), 3)
        np.testing.assert_array_equal(table.efficiencies[..., :n], tables[0].efficiencies[..., :n])


def test_a_table_that_is_not_there_is_one_line():
    with pytest.raises(ConfigError, match="did you mean 'upart_2024'"):
        load_table("upart2024")
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_table("nowhere.yaml")


@pytest.mark.parametrize("name", builtin_tables())
def test_built_in_tables_come_back_from_their_plain_data(name):
    table = load_table(name)
    again = parse_table(table.to_dict(), name)
    np.testing.assert_array_equal(again.efficiencies, table.efficiencies)
    assert again.about
    assert (again.field, again.abs_eta, again.has_c) == (table.field, table.abs_eta, table.has_c)


def test_tables_of_the_generator_are_its_card():
    card = load_card("atlas").btag
    binary = load_table("generator")
    middles = np.concatenate([[22.5], (np.array(binary.pt[1:]) + binary.pt[:-1]) / 2, [600.0]])
    for k in range(3):
        expected = card.efficiency(np.full(len(middles), k), middles)
        np.testing.assert_allclose(binary.efficiencies[k, :, 0], expected, rtol=1e-4)
        points = load_table("generator_points").efficiencies[k, 0]
        np.testing.assert_allclose(points, card.working_points[k], rtol=1e-4)
        score = load_table("generator_score")
        cuts = card.points.score(np.full(len(score.cuts), k), score.efficiencies[k, 0])  # which this share exceeds
        np.testing.assert_allclose(cuts, score.cuts, atol=1e-4)


def jets_with_scores(n=400):
    rng = np.random.default_rng(3)
    shape = (n, 8)
    score = rng.random(shape)
    fields = {
        "pt": rng.uniform(20, 90, shape),
        "eta": rng.uniform(-4.5, 4.5, shape),
        "phi": rng.uniform(-3, 3, shape),
    }
    fields |= {"mass": np.full(shape, 5.0), "score": score, "btag": score > 0.3}
    topology = load_topology("ttbar_allhad")
    loose = {**topology.to_dict(), "selection": {"jets": {"pt": 20, "abs_eta": 4.5}, "event": {"jets": 5}}}
    return Events(
        make_jets(**{k: ak.Array(v.astype(float).tolist()) for k, v in fields.items()}), parse_topology(loose)
    )


def test_drawn_tags_are_those_of_some_of_the_cuts():
    events = jets_with_scores()
    table = load_table("generator_score")
    drawn = draw_tags(events, table, np.random.default_rng(1)).jets
    kinds = np.array([len(np.unique(event)) for event in np.round(drawn.b_evidence.to_numpy(), 5).tolist()])
    assert (kinds == 1).any() or (kinds == 2).any()  # one cut
    assert kinds.max() > 4  # nearly all of them
    assert (drawn.b_evidence.to_numpy()[np.abs(drawn.eta.to_numpy()) > 2.5] == 0).all()
    binary = with_evidence(events.jets).b_evidence.to_numpy()
    same = np.isclose(drawn.b_evidence.to_numpy(), binary).all(axis=1).mean()
    assert 0.2 < same < 0.4
    again = draw_tags(events, table, np.random.default_rng(1)).jets
    assert ak.all(again.b_evidence == drawn.b_evidence)
    assert set(EVIDENCE) <= set(ak.fields(drawn))


def test_drawn_cuts_lie_between_the_selection_and_the_tightest():
    events = jets_with_scores(2000)
    drawn = draw_acceptance(events, np.random.default_rng(1))
    pt, abs_eta, used = drawn.jets.pt.to_numpy(), abs(drawn.jets.eta.to_numpy()), drawn.jets.usable.to_numpy()
    assert used[(pt > 30) & (abs_eta < 2.4)].all()
    standard = (used == ((pt >= 25) & (abs_eta <= 2.5))).all(axis=1).mean()
    everything = used.all(axis=1).mean()
    assert 0.35 < standard < 0.7
    assert 0.15 < everything < 0.3
