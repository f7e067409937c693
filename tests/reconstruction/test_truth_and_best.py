"""Truth beside the answer, and the most probable assignments."""

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest

from event_files import write_events
from leptonic_tops import leptonic_events
from pairton.errors import ConfigError, EventsError
from pairton.evaluation.scores import matches
from pairton.events import Events
from pairton.reconstruction.running import reconstruct, reconstruct_files
from pairton.topology import load_topology
from pairton.topology.assignments import aligned, present

VERDICTS = ("right", "wrong", "not_reconstructible")


def verdicts(reco):
    """(n, P)."""
    columns = reco.to_columns()
    return np.stack([columns[f"{p.name.replace('.', '_')}_truth"] for p in reco.topology.particles], axis=1)


def test_each_particle_is_right_wrong_or_not_reconstructible(decays, mass_model, tmp_path):
    """As `pairton.evaluate` counts: as many of each type are right, and as many could have been."""
    events = decays(60, extra=2)
    truth = events.truth.copy()
    truth[::3, 1] = -1
    events = events.replace(truth=truth)
    reco = reconstruct(events, mass_model, truth=True)
    found = verdicts(reco)
    right, possible = matches(reco.topology, truth, reco.assignment), present(reco.topology, truth)
    assert set(np.unique(found)) == set(VERDICTS)
    for name in reco.topology.types:
        places = [p.index for p in reco.topology.of_type(name)]
        assert ((found == "right")[:, places].sum(axis=1) == right[:, places].sum(axis=1)).all()
        assert ((found != VERDICTS[2])[:, places].sum(axis=1) == possible[:, places].sum(axis=1)).all()
    columns = reco.to_columns()
    indices = np.stack(
        [columns[f"true_{slot.name.replace('.', '_')}_jet"] for slot in reco.topology.slots], axis=1
    )
    assert np.sort(indices, axis=1).tolist() == np.sort(truth, axis=1).tolist()
    complete = (found == "right").all(axis=1)
    np.testing.assert_array_equal(indices[complete], reco.index[complete])
    write_events(events, tmp_path / "in.h5")
    for suffix in (".parquet", ".root", ".h5"):
        reconstruct_files(tmp_path / "in.h5", tmp_path / f"out{suffix}", mass_model, truth=True)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["t1_truth"].to_pylist() == columns["t1_truth"].tolist()
    assert table["true_t2_b_jet"].to_pylist() == columns["true_t2_b_jet"].tolist()


def test_truth_that_is_not_there(decays, mass_model):
    events = decays(3)
    with pytest.raises(EventsError, match="these events have no labels"):
        reconstruct(Events(events.jets), mass_model, truth=True)
    assert not any("truth" in name or "true_" in name for name in reconstruct(events, mass_model).to_columns())


@pytest.mark.parametrize(
    ("truth", "answer", "expected"),
    [
        ([0, 1, 2, 3, 4, 5], [4, 3, 5, 0, 2, 1], [4, 3, 5, 0, 1, 2]),  # a W and its top, then a quark
        ([0, 1, -1, 3, 4, 5], [3, 1, 0, 6, 7, 8], [1, 0, -1, 3, 4, 5]),
        ([0, 1, -1, 3, 4, 5], [-1] * 6, [0, 1, -1, 3, 4, 5]),
    ],
)
def test_the_order_that_agrees_best(truth, answer, expected):
    found = aligned(load_topology("ttbar_allhad"), np.array([truth]), np.array([answer]))
    assert sorted(found[0]) == sorted(expected)
    same, wanted = found[0] == answer, np.array(expected) == answer
    assert same.sum() >= wanted.sum()


def test_the_most_probable_assignments(decays, mass_model):
    """All of them, for few jets: their probabilities add up to 1, and the first is the answer."""
    events = decays(20, extra=0)
    reco = reconstruct(events, mass_model, best=100)
    columns = reco.to_columns()
    chances = columns["best_probability"]
    assert ak.num(chances).tolist() == [90] * 20  # 6! / 2! / 2! / 2!
    np.testing.assert_allclose(ak.sum(chances, axis=1), 1, rtol=1e-4)
    assert (chances[:, :-1] >= chances[:, 1:]).to_numpy().all()
    np.testing.assert_allclose(chances[:, 0], reco.event_probability, rtol=1e-5)
    names = [f"{slot.name.replace('.', '_')}_jet" for slot in reco.topology.slots]
    first = np.stack([ak.to_numpy(columns[f"best_{name}"][:, 0]) for name in names], axis=1)
    np.testing.assert_array_equal(first, reco.index)
    every = np.stack([ak.to_numpy(columns[f"best_{name}"]) for name in names], axis=2)
    assert (np.sort(every, axis=2) == np.arange(6)).all()
    few = reconstruct(events, mass_model, best=3).to_columns()
    assert few["best_probability"].tolist() == chances[:, :3].tolist()


def test_lists_of_assignments_in_files(decays, mass_model, tmp_path):
    events = decays(30, extra=2, floor=40)  # some without an answer
    write_events(events, tmp_path / "in.h5")
    expected = reconstruct(events, mass_model, best=2).to_columns()
    for suffix in (".parquet", ".root", ".h5"):
        reconstruct_files(tmp_path / "in.h5", tmp_path / f"out{suffix}", mass_model, best=2)
    table = pq.read_table(tmp_path / "out.parquet")
    for name in ("best_probability", "best_t1_b_jet"):
        assert table[name].to_pylist() == expected[name].tolist()
    assert min(map(len, table["best_t1_b_jet"].to_pylist())) == 0


def test_lists_need_sums(decays, mass_model):
    with pytest.raises(ConfigError, match=r"best.* need the exact likelihood, not the decoding steps"):
        reconstruct(decays(3), mass_model, decoding="steps", best=2)
    with pytest.raises(ConfigError, match="best is -1, but must be from 0 to 1000"):
        reconstruct(decays(3), mass_model, best=-1)


def test_leptons_have_their_own_truth():
    events, _ = leptonic_events(1, 20)
    columns = reconstruct(events, "ttbar_semilep", truth=True, best=2, btag="generator").to_columns()
    assert {"true_tl_l_lepton", "tl_truth", "best_tl_l_lepton"} <= columns.keys()
    assert (columns["true_tl_l_lepton"] == events.truth[:, events.topology.slot_index("tl.l")]).all()
