import copy
import pickle
from dataclasses import replace

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
import vector

from event_files import write_events
from pairton.decoding import DECODINGS, HYPER
from pairton.errors import ConfigError, EventsError, ModelError, TopologyError
from pairton.evaluation.scores import efficiencies
from pairton.events import Events, Status
from pairton.events.acceptance import accept
from pairton.events.domain import Domain, KindDomain
from pairton.events.inputs import Inputs
from pairton.events.objects import make_jets
from pairton.reconstruction.assigner import Assigner
from pairton.reconstruction.provenance import result_metadata
from pairton.reconstruction.run_settings import RunSettings
from pairton.reconstruction.running import reconstruct
from pairton.topology import load_topology
from pairton.topology.assignments import canonical

OF_PAIRS = [name for name, one in DECODINGS.items() if one.reads == "edges" and name != HYPER]  # for any tree


def with_field(events, row, jet, **values):
    """The same events with some numbers of one jet changed."""
    fields = {}
    counts = events.n_jets
    at = int(counts[:row].sum()) + jet
    for name in ("pt", "eta", "phi", "energy", "btag"):
        flat = np.array(ak.flatten(events.jets[name]))
        if name in values:
            flat[at] = values[name]
        fields[name] = ak.unflatten(flat, counts)
    return Events(make_jets(**fields), events.topology, events.truth, events.weights, events.ids, events.columns)


def first_jets(events, row, count):
    """The same events, one of them with its first jets only."""
    keep = ak.local_index(events.jets.pt) < ak.Array(np.where(np.arange(len(events)) == row, count, 99))
    return events.keep({"jet": keep})


@pytest.mark.parametrize("decoding", OF_PAIRS)
def test_masses_find_most_of_the_decays(decays, mass_model, decoding):
    events = decays(100, extra=1)
    reco = reconstruct(events, mass_model, decoding=decoding)
    found = efficiencies(events.topology, events.truth, reco.assignment, events.n_jets)["event"]["7"]
    assert found.value > (0.85 if decoding == "exact" else 0.4)
    tags = ak.to_numpy(ak.sum(events.jets.btag > 0.5, axis=1))
    np.testing.assert_array_equal(reco.to_columns()["n_btags"], tags)
    few = np.where(tags < 2, Status.OUTSIDE_SELECTION, Status.OK)  # the model learned from events with two
    np.testing.assert_array_equal(reco.status, few)
    assert ((reco.event_probability > 0) & (reco.event_probability <= 1 + 1e-6)).all()


def test_permuted_jets_give_the_permuted_answer(decays, mass_model):
    events = decays(60)
    reco = reconstruct(events, mass_model)
    order = np.argsort(np.random.default_rng(1).random((60, 8)), axis=1)
    other = Events(events.jets[ak.from_regular(ak.Array(order))])
    again = reconstruct(other, mass_model)
    np.testing.assert_array_equal(np.take_along_axis(order, again.assignment, axis=1), reco.assignment)
    np.testing.assert_array_equal(again.event_probability, reco.event_probability)
    np.testing.assert_array_equal(again.particle_probability, reco.particle_probability)


def test_every_row_stays_and_says_why(decays, mass_model):
    events = decays(30, extra=8)  # 14 jets, more than are used
    events = first_jets(events, 3, 5)
    events = first_jets(events, 4, 0)
    events = with_field(events, 7, 2, pt=np.nan)
    events = with_field(events, 8, 1, btag=0.37)
    events = first_jets(events, 8, 9)
    events = first_jets(events, 9, 12)
    reco = reconstruct(events, mass_model)
    labels = [Status(code).label for code in reco.status[:10]]
    crowded = ["truncated"] * 3
    assert labels == [
        *crowded,
        "too_few_objects",
        "too_few_objects",
        "truncated",
        "truncated",
        "bad_object",
        "outside_domain",
        "ok" if ak.sum(events.jets.btag[9]) >= 2 else "outside_selection",
    ]
    none = np.isin(reco.status, [Status.TOO_FEW_OBJECTS, Status.BAD_OBJECT])
    assert (reco.assignment[none] == -1).all()
    assert (reco.assignment[~none] >= 0).all()
    assert np.isnan(reco.event_probability[none]).all()
    assert np.isnan(reco.particle_probability[none]).all()
    assert np.isfinite(reco.event_probability[~none]).all()
    assert np.isnan(reco.t.mass[none]).to_numpy().all()
    assert ak.num(reco.W.jets, axis=2)[7].tolist() == [0, 0]
    assert reco.used["jet"][0] == 12


def test_crowded_events_use_their_hardest_jets(decays, mass_model):
    events = decays(40, extra=6)
    reco = reconstruct(events, mass_model, max_objects=9)
    rank = np.argsort(np.argsort(-events.jets.pt.to_numpy(), axis=1), axis=1)
    assert (reco.status == Status.TRUNCATED).all()
    assert np.take_along_axis(rank, reco.assignment, axis=1).max() == 8
    with pytest.raises(ConfigError, match="max_objects is 5, but ttbar_allhad has 6 slots for jets"):
        reconstruct(events, mass_model, max_objects=5)


def test_cuts_of_the_domain(decays, mass_model):
    events = decays(80, extra=3)
    mass_model.domain = Domain({"jet": KindDomain(40.0, 2.0, (6, 16))})
    good = (events.jets.pt > 40) & (abs(events.jets.eta) < 2.0)
    reco = reconstruct(events, mass_model)
    np.testing.assert_array_equal(reco.status == Status.TOO_FEW_OBJECTS, ak.sum(good, axis=1) < 6)
    answered = reco.status == Status.OK
    assert 10 < answered.sum() < 70
    assert good.to_numpy()[np.nonzero(answered)[0][:, None], reco.assignment[answered]].all()
    # the same as cutting beforehand; what is stored keeps its number
    before = reconstruct(events.keep({"jet": good}), mass_model)
    np.testing.assert_array_equal(before.index, reco.index)
    np.testing.assert_array_equal(before.event_probability, reco.event_probability)
    assert (before.assignment <= before.index).all()
    # and without cuts such events are marked
    all_in = reconstruct(events, mass_model, cuts=False)
    np.testing.assert_array_equal(all_in.status == Status.OUTSIDE_DOMAIN, ~ak.all(good, axis=1).to_numpy())
    assert (all_in.assignment >= 0).all()


def test_jets_that_an_experiment_rejects_are_not_used(decays, mass_model):
    events = decays(20, extra=3)
    usable = ak.from_regular(ak.Array(np.tile(np.arange(9) != 4, (20, 1))))
    reco = reconstruct(events.replace(jets=ak.with_field(events.jets, usable, "usable")), mass_model)
    assert not (reco.assignment == 4).any()
    assert (reco.used["jet"] == 8).all()


def test_records_are_four_vectors_of_their_jets(decays, mass_model):
    events = decays(25, extra=2)
    reco = reconstruct(events, mass_model)
    for k, top in enumerate(events.topology.roots):
        jets = [events.jets[np.arange(25), reco.assignment[:, slot]] for slot in top.slots]
        total = jets[0] + jets[1] + jets[2]
        for name in ("mass", "pt", "eta", "phi"):
            np.testing.assert_allclose(getattr(reco.t, name)[:, k], getattr(total, name), rtol=1e-5)
        np.testing.assert_array_equal(reco.t[:, k].jets.index, reco.assignment[:, list(top.slots)])
    np.testing.assert_allclose((reco.t[:, 0] + reco.t[:, 1]).mass, (reco["t"][:, 0] + reco.t[:, 1]).mass)
    assert reco.W[:, 0].jets.pt.to_numpy().shape == (25, 2)
    np.testing.assert_array_equal(reco.W.probability[:, 1], reco.particle_probability[:, 3])
    assert "W" in dir(reco)
    with pytest.raises(AttributeError, match="particle types are W, t"):
        _ = reco.Z
    with pytest.raises(EventsError, match="no type 'w'"):
        reco["w"]


def test_awkward_arrays_will_do(decays, mass_model):
    events = decays(10)
    jets = events.jets
    plain = ak.zip({"pt": jets.pt, "eta": jets.eta, "phi": jets.phi, "mass": jets.mass, "btag": jets.btag})
    reco = reconstruct(plain, mass_model)
    np.testing.assert_array_equal(reco.assignment, reconstruct(events, mass_model).assignment)
    with pytest.raises(EventsError, match="the model needs the fields btag of jets, which the events lack"):
        reconstruct(plain[["pt", "eta", "phi", "mass"]], mass_model)


def test_momenta_in_other_coordinates(decays, mass_model):
    """Plain records of px, py, pz, E, and what vector makes of them, which it calls x, y, z, t."""
    events = decays(10)
    jets = events.jets
    columns = {"px": jets.px, "py": jets.py, "pz": jets.pz, "E": jets.energy, "btag": jets.btag}
    polar = {"pt": jets.pt, "theta": jets.theta, "phi": jets.phi, "M": jets.mass, "btag": jets.btag}
    expected = reconstruct(events, mass_model)
    for given in (
        ak.zip(columns),
        ak.zip(columns, with_name="Momentum4D"),
        vector.zip(columns),
        vector.zip(polar),
    ):
        reco = reconstruct(given, mass_model)
        np.testing.assert_array_equal(reco.assignment, expected.assignment)
        np.testing.assert_allclose(reco.t.mass, expected.t.mass, rtol=1e-4)
    with pytest.raises(EventsError, match=r"lacks pt, eta, phi: found btag, energy, px, py"):
        reconstruct(ak.zip({name: value for name, value in columns.items() if name != "pz"}), mass_model)


def test_a_file_by_its_name(decays, mass_model, tmp_path):
    events = decays(12)
    write_events(events, tmp_path / "in.h5")
    for path in (tmp_path / "in.h5", str(tmp_path / "in.h5")):
        reco = reconstruct(path, mass_model)
        np.testing.assert_array_equal(reco.assignment, reconstruct(events, mass_model).assignment)
    ok = int((ak.sum(events.jets.btag, axis=1) >= 2).to_numpy().sum())
    assert repr(reco) == f"<Reconstruction of 12 ttbar_allhad events: {ok} ok, {12 - ok} outside_selection>"
    assert repr(events) == "<Events: 12 of ttbar_allhad, 96 jets, 12 complete>"


def test_other_topologies(decays, mass_model):
    hh4b = load_topology("hh4b")
    mass_model.topology = hh4b
    events = decays(10)
    reco = reconstruct(Events(events.jets, hh4b), mass_model)
    assert reco.H.mass.to_numpy().shape == (10, 2)
    np.testing.assert_array_equal(reco.assignment.shape, (10, 4))
    with pytest.raises(ModelError, match="is for hh4b, but the events are for ttbar_allhad"):
        reconstruct(events, mass_model)


def test_nothing_in_nothing_out(decays, mass_model):
    reco = reconstruct(decays(4)[:0], mass_model)
    assert len(reco) == 0
    assert reco.t.mass.tolist() == []
    assert len(reco.W.jets) == 0


def test_order_of_jets_is_by_falling_pt_then_eta():
    jets = make_jets(
        pt=[[30.0, 50.0, 30.0, 40.0]],
        eta=[[1.0, 0.0, -1.0, 0.0]],
        phi=[[0.0] * 4],
        mass=[[5.0] * 4],
        btag=[[0] * 4],
    )
    events = Events(jets, "hh4b")
    accepted = accept(events, Domain(), Inputs.default(events.topology))
    assert accepted.position["jet"].tolist() == [[1, 3, 2, 0]]


def test_interchangeable_particles_are_in_the_order_of_pt(decays, mass_model):
    """The first top is the harder one, and brings its W along; of a W, the first quark is the harder one."""
    events = decays(60)
    reco = reconstruct(events, mass_model)
    assert (reco.t.pt[:, 0] >= reco.t.pt[:, 1]).to_numpy().all()
    columns = reco.to_columns()
    assert (columns["t1_pt"] >= columns["t2_pt"]).all()
    rank = np.argsort(np.argsort(-events.jets.pt.to_numpy(), axis=1), axis=1)
    order = np.take_along_axis(rank, reco.assignment, axis=1)
    same = canonical(events.topology, order)
    other = same[:, [3, 4, 5, 0, 1, 2]]
    swapped = (order != same).any(axis=1)
    assert 10 < swapped.sum() < 50
    np.testing.assert_array_equal(order, np.where(swapped[:, None], other, same))
    alone = Assigner(mass_model, RunSettings())  # the decoding, with the order of jets
    found = alone.assign_all(alone.accept(events), events.ids).decoded
    chances = found.particle_probability
    moved = np.where(swapped[:, None], chances[:, [2, 3, 0, 1]], chances)
    np.testing.assert_array_equal(reco.particle_probability, moved)
    np.testing.assert_array_equal(reco.particles.p4, replace(reco, solved=None).particles.p4)


def test_it_can_be_pickled_and_copied(decays, mass_model):
    reco = reconstruct(decays(5), mass_model)
    for other in (pickle.loads(pickle.dumps(reco)), copy.copy(reco), copy.deepcopy(reco)):
        np.testing.assert_array_equal(other.assignment, reco.assignment)
        np.testing.assert_array_equal(ak.to_numpy(other.t.mass), ak.to_numpy(reco.t.mass))
    with pytest.raises(AttributeError, match="particle types are W, t"):
        reco.Z  # noqa: B018


def test_temperatures_of_steps_are_those_of_other_chains_too(decays, mass_model):
    """A beam of one is steps; one top at a time shares the temperature of both together."""
    mass_model.decoding, mass_model.temperatures = "steps", (1.5, 2.0, 3.0)
    events = decays(40, extra=1)
    steps, beam = (reconstruct(events, mass_model, decoding=how) for how in (None, "beam:1"))
    np.testing.assert_allclose(beam.event_probability, steps.event_probability)
    assert Assigner(mass_model, RunSettings("one_by_one")).temperatures == (1.5, 2.0, 3.0)
    assert Assigner(mass_model, RunSettings("beam:4")).temperatures == (1.5, 2.0, 3.0)
    assert Assigner(mass_model, RunSettings("one_shot")).temperatures is None
    assert Assigner(mass_model, RunSettings("exact")).temperatures is None


@pytest.mark.parametrize("decoding", OF_PAIRS)
@pytest.mark.parametrize("what", ["edges", "triplets"])
def test_a_network_without_an_answer_costs_its_event_alone(decays, mass_model, decoding, what):
    """NaN would be taken for an answer, or in a beam for that of the next event."""
    events, predict = decays(4), mass_model.predict
    whole = reconstruct(events, mass_model, decoding=decoding)
    hardest = float(ak.max(events.jets.pt[1]))  # by which the event is known, whatever the batch

    def broken(nodes, tokens):
        outputs = predict(nodes, tokens)
        outputs[what][nodes.values["jet"][:, 0, 0] == np.float32(hardest)] = np.nan
        return outputs

    mass_model.predict = broken
    reco = reconstruct(events, mass_model, decoding=decoding)
    assert [Status(code).label for code in reco.status] == ["ok", "bad_output", "ok", "ok"]
    assert (reco.assignment[1] == -1).all()
    assert np.isnan(reco.event_probability[1])
    assert not reco.exact[1]
    np.testing.assert_array_equal(reco.assignment[[0, 2, 3]], whole.assignment[[0, 2, 3]])
    np.testing.assert_array_equal(reco.event_probability[[0, 2, 3]], whole.event_probability[[0, 2, 3]])


def test_arrays_in_mev_are_refused(decays, mass_model):
    jets = decays(20).jets
    fields = {name: jets[name] for name in ("pt", "eta", "phi", "energy", "btag")}
    reconstruct(ak.zip(fields), mass_model)
    with pytest.raises(EventsError, match="looks like MeV: divide"):
        reconstruct(ak.zip(fields | {"pt": 1000 * jets.pt, "energy": 1000 * jets.energy}), mass_model)


def test_the_object_of_a_slot_and_columns_for_a_table(decays, mass_model, tmp_path):
    events = first_jets(decays(12), 3, 5)
    reco = reconstruct(events, mass_model)
    b = reco.object("t1.b")
    slot = reco.topology.slot_index("t1.b")
    assert b[3] is None
    assert ak.to_list(b.index) == [None if k < 0 else k for k in reco.index[:, slot].tolist()]
    whole = b + reco.object("t1.W.q1") + reco.object("t1.W.q2")
    np.testing.assert_allclose(ak.fill_none(whole.mass, np.nan), reco.t[:, 0].mass, rtol=1e-5)
    reco.save(tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    columns = reco.to_columns()
    assert table.column_names == list(columns)
    np.testing.assert_array_equal(table["t1_mass"].to_numpy(), columns["t1_mass"])
    said = result_metadata(tmp_path / "out.parquet")
    assert (said["decoding"], said["max_objects"], said["events"]) == ("exact", 12, 12)
    with pytest.raises(TopologyError, match=r"no slot 't1\.c'"):
        reco.object("t1.c")


@pytest.mark.parametrize(
    "complete", [2, -150, -2000]
)  # the last two are nothing in single precision, and in double
def test_a_model_that_knows_missing_particles_says_what_is_there(decays, mass_model_type, complete):
    class Patterns(mass_model_type):
        @property
        def info(self):
            return replace(super().info, outputs={**super().info.outputs, "patterns": ("pattern",)})

        def predict(self, nodes, tokens):
            terms = np.tile(np.array([complete, 1, 0, 0, 0, 3], np.float32), (len(nodes), 1))
            return {**super().predict(nodes, tokens), "patterns": terms}

    events = decays(30, extra=1)
    alone, reco = reconstruct(events, mass_model_type()), reconstruct(events, Patterns())
    columns = reco.to_columns()
    names = [f"pattern_{name}" for name in ("t_t", "t_W", "t", "W_W", "W", "nothing")]
    np.testing.assert_allclose(sum(columns[name] for name in names), 1, rtol=1e-5)
    np.testing.assert_array_equal(columns["complete_probability"], columns["pattern_t_t"])
    np.testing.assert_array_equal(reco.assignment, alone.assignment)
    if complete > -2000:
        np.testing.assert_allclose(columns["event_probability_if_complete"], alone.event_probability, rtol=1e-4)
    else:
        assert np.isnan(columns["event_probability_if_complete"]).all()
    assert (reco.event_probability <= alone.event_probability + 1e-6).all()
    assert not any(name in alone.to_columns() for name in (*names, "complete_probability"))
    assert "complete_probability" not in reconstruct(events, Patterns(), decoding="one_shot").to_columns()
