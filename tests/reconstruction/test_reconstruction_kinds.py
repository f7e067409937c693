"""Objects of several kinds: which are used, in which order, and what a result says of them."""

from dataclasses import dataclass, replace

import awkward as ak
import numpy as np
import pytest

from leptonic_tops import leptonic_events
from pairton.errors import EventsError
from pairton.events import Events, Status
from pairton.events.acceptance import accept
from pairton.events.domain import Domain, KindDomain
from pairton.events.inputs import Inputs
from pairton.events.objects import make_met, make_objects
from pairton.models.model import Model
from pairton.reconstruction.running import reconstruct
from pairton.reconstruction.writers import create_result
from pairton.topology import parse_topology
from pairton.training.data import DataConfig, pack

torch = pytest.importorskip("torch")

SEMILEP = parse_topology(
    {
        "name": "semilep",
        "event": ["t", "tl"],
        "particles": {"t": ["W", "b"], "W": ["q", "q"], "tl": ["b", "l"]},
        "objects": {"l": "lepton"},
        "context": ["met"],
        "selection": {"jets": {"pt": 25, "abs_eta": 2.5}, "leptons": {"pt": 20}},
    }
)
JETS, LEPTONS = 5, 2


def lepton_events(n=12, seed=0, **changes):
    """Five jets, two leptons and missing energy each, in no order; changes are jet_pt={(row, k): value}."""
    rng = np.random.default_rng(seed)
    objects = {}
    for kind, count, name in (("jet", JETS, "btag"), ("lepton", LEPTONS, "charge")):
        shape = (n, count)
        fields = {"pt": rng.uniform(30, 200, shape), "eta": rng.uniform(-2, 2, shape)}
        fields |= {"phi": rng.uniform(-3, 3, shape), name: rng.integers(0, 2, shape).astype(float)}
        fields["energy"] = fields["pt"] * np.cosh(fields["eta"]) + 5
        for key, values in changes.items():
            changed, _, field = key.partition("_")
            for at, value in values.items():
                if changed == kind:
                    fields[field][at] = value
        objects[kind] = make_objects(**{field: ak.from_regular(ak.Array(v)) for field, v in fields.items()})
    objects["met"] = make_met(rng.uniform(5, 80, n), rng.uniform(-3, 3, n))
    chosen = [rng.permuted(np.tile(np.arange(count), (n, 1)), axis=1) for count in (JETS, LEPTONS)]
    jets, leptons = (iter(order.T) for order in chosen)
    truth = np.stack([next(leptons if slot.kind == "lepton" else jets) for slot in SEMILEP.slots], axis=1)
    return Events(objects, SEMILEP, truth)


@dataclass
class Engine:
    """A network made here."""

    network: object
    at_once: int = 1

    def __call__(self, nodes, tokens):
        from pairton.network.engine import predictor

        return predictor(self.network)(nodes, tokens)


@pytest.fixture(scope="module")
def model(small_network):
    network, info = small_network(SEMILEP, tokens=False)
    kinds = {"jet": KindDomain(25.0, 2.5, (4, 8)), "lepton": KindDomain(20.0, 2.5, (1, 3)), "met": KindDomain()}
    return Model("semilep", replace(info, domain=Domain(kinds), decoding="exact"), Engine(network))


def labels(reco):
    return [Status(code).label for code in reco.status]


def test_objects_are_cut_first_and_judged_then(model):
    """What the cuts remove cannot spoil an event, whatever else is wrong with it."""
    below = {(0, 1): 10.0, (1, 2): -999.0}
    events = lepton_events(
        6,
        jet_pt=below | {(2, 0): np.nan},
        jet_energy={(0, 1): np.nan, (1, 2): -999.0},
        jet_eta={(1, 2): -999.0},
        jet_phi={(1, 2): -999.0, (3, 0): np.nan},
        lepton_pt={(4, 1): 5.0, (5, 0): np.nan},
        lepton_phi={(4, 1): np.nan},
    )
    reco = reconstruct(events, model)
    assert labels(reco) == ["ok", "ok", "bad_object", "bad_object", "ok", "bad_object"]
    assert (reco.assignment[[2, 3, 5]] == -1).all()
    assert (reco.used["jet"][:2] == JETS - 1).all()
    assert reco.used["lepton"].tolist()[4] == 1
    uncut = reconstruct(events, model, cuts=False)
    assert labels(uncut) == ["bad_object"] * 6


def test_no_lepton_or_two_where_one_is_expected(model):
    """Two leptons have an answer with a caveat, none has no answer; what is not usable is no lepton."""
    cuts = SEMILEP.to_dict()["selection"] | {"event": {"leptons": [1, 1]}}
    one = parse_topology(SEMILEP.to_dict() | {"selection": cuts}, "test")
    events = lepton_events(4, lepton_pt={(1, 0): 5.0, (2, 0): 5.0, (2, 1): 5.0}).replace(topology=one)
    usable = [[True, True], [True, True], [True, True], [False, True]]
    leptons = ak.with_field(events.objects["lepton"], ak.Array(usable), "usable")
    events = events.replace(objects={**events.objects, "lepton": leptons})
    reco = reconstruct(events, replace(model, info=replace(model.info, topology=one)))
    assert labels(reco) == ["outside_selection", "ok", "too_few_objects", "ok"]
    assert reco.index[:, 4].tolist()[1:] == [1, -1, 1]
    assert reco.to_columns()["n_leptons"].tolist() == [2, 1, 0, 1]


def test_columns_of_a_result(model, tmp_path):
    events = lepton_events(lepton_pt={(3, 0): 5.0, (3, 1): 5.0, (4, 1): 5.0})
    reco = reconstruct(events, model)
    columns = reco.to_columns()
    assert [name for name in columns if name.endswith(("_jet", "_lepton"))] == [
        "t_W_q1_jet", "t_W_q2_jet", "t_b_jet", "tl_b_jet", "tl_l_lepton",
    ]  # fmt: skip
    assert columns["n_jets"].tolist() == [JETS] * 12
    assert columns["n_leptons"].tolist() == [2, 2, 2, 0, 1, *[2] * 7]
    assert columns["n_met"].tolist() == [1] * 12
    assert columns["exact"].tolist() == [row != 3 for row in range(12)]
    assert columns["status"][3] == "too_few_objects"
    assert columns["tl_l_lepton"][[3, 4]].tolist() == [-1, 0]
    answered = np.arange(12) != 3
    lepton, b = reco.object("tl.l"), reco.object("tl.b")
    np.testing.assert_array_equal(lepton.index[answered], columns["tl_l_lepton"][answered])
    np.testing.assert_allclose((lepton + b).mass[answered], columns["tl_mass"][answered], rtol=1e-4)
    assert ak.num(reco.tl.objects, axis=2)[:, 0].tolist() == [2 * bool(here) for here in answered]
    for suffix in (".parquet", ".root", ".h5"):
        with create_result(tmp_path / f"out{suffix}", SEMILEP, {}) as writer:
            writer.write(reco)


def test_objects_of_a_particle_have_a_kind_and_those_of_a_w_are_jets(model):
    reco = reconstruct(lepton_events(lepton_pt={(3, 0): 5.0, (3, 1): 5.0}), model)
    assert reco.W.jets.index.tolist() == reco.W.objects.index.tolist()
    assert reco.W.jets.index[0, 0].tolist() == reco.index[0, :2].tolist()
    assert reco.tl.objects.kind.tolist() == [[["jet", "lepton"] if row != 3 else []] for row in range(12)]
    assert reco.tl.objects.index[0, 0].tolist() == reco.index[0, 3:].tolist()
    assert reco.tl.jets.index[0].tolist() == [[reco.index[0, 3]]]
    assert reco.tl.leptons.index[0].tolist() == [[reco.index[0, 4]]]
    assert reco.tl.leptons.pt[0].tolist() == [[reco.object("tl.l").pt[0]]]
    assert set(ak.flatten(reco.W.objects.kind, axis=None)) == {"jet"}
    assert "leptons" not in ak.fields(reco.W)


def test_arrays_in_memory_need_what_files_need():
    """Leptons without a mass; missing energy as pt and phi, one record per event, as in coffea."""
    events, _ = leptonic_events(1, 20)
    given = {kind: array[ak.fields(array)] for kind, array in events.objects.items()}
    given["lepton"] = given["lepton"][["pt", "eta", "phi", "charge"]]
    met = given["met"][["pt", "phi"]]
    expected = reconstruct(events.replace(truth=None), "ttbar_semilep", btag="generator")
    for form in (met, met[:, 0], ak.to_regular(met)):
        reco = reconstruct({**given, "met": form}, "ttbar_semilep", btag="generator")
        np.testing.assert_array_equal(reco.assignment, expected.assignment)
        np.testing.assert_allclose(reco.tl.mass, expected.tl.mass, rtol=1e-3)
    with pytest.raises(EventsError, match="the met array lacks phi: found eta, pt"):
        reconstruct({**given, "met": ak.zip({"pt": met.pt, "eta": met.pt})}, "ttbar_semilep")
    with pytest.raises(EventsError, match="the jet array lacks energy or mass"):
        reconstruct({**given, "jet": given["jet"][["pt", "eta", "phi", "btag"]]}, "ttbar_semilep")


def test_the_order_of_objects_does_not_matter(model):
    events = lepton_events()
    reco = reconstruct(events, model)
    turned = {kind: array[:, ::-1] for kind, array in events.objects.items()}
    again = reconstruct(Events(turned, SEMILEP), model)
    last = np.array([(LEPTONS if slot.kind == "lepton" else JETS) - 1 for slot in SEMILEP.slots])
    np.testing.assert_array_equal(last - again.assignment, reco.assignment)
    np.testing.assert_array_equal(again.event_probability, reco.event_probability)


def test_exact_says_whether_all_hypotheses_were_summed(model):
    events = lepton_events(jet_pt={(0, 0): 10.0, (5, 2): 10.0})
    reco = reconstruct(events, model)
    assert (reco.status == Status.OK).all()
    assert reco.exact.all()
    assert not reconstruct(events, model, decoding="one_shot").exact.any()


def test_training_and_inference_use_the_same_objects_in_the_same_order(model, tmp_path):
    events = lepton_events(
        300,
        jet_pt={(k, k % JETS): 10.0 for k in range(0, 300, 7)},
        jet_eta={(k, 1): 3.0 for k in range(0, 300, 5)},
    )
    inputs = Inputs.default(SEMILEP)
    train, _ = pack([events], SEMILEP, inputs, folder=tmp_path, config=DataConfig(events="partial"))
    accepted = accept(events, model.domain, inputs)
    assert {key.layout[0] for key in train.groups} >= {JETS, JETS - 1}
    for (_, layout), group in train.groups.items():
        rows = group.ids[:, 1].astype(int)
        same = accepted.batch(rows, layout)
        assert (accepted.nodes.counts[rows] == layout).all()
        for kind, values in same.values.items():
            np.testing.assert_array_equal(group.objects[kind], values)
        np.testing.assert_array_equal(group.truth, accepted.to_nodes(events.truth[rows], rows, layout))


def test_events_with_more_objects_than_a_network_takes_are_not_trained_on(tmp_path):
    many = lepton_events(60)
    crowd = {
        kind: ak.concatenate([array] * times, axis=1)
        for (kind, array), times in zip(many.objects.items(), (4, 7, 1), strict=True)
    }  # 20 jets and 14 leptons
    events = Events.concatenate([many, Events(crowd, SEMILEP, many.truth, ids=many.ids + np.uint64(1000))])
    train, validation = pack([events], SEMILEP, Inputs.default(SEMILEP), folder=tmp_path)
    assert {key.layout for key in train.groups} == {(JETS, LEPTONS, 1)}
    assert len(train) + len(validation) <= 60


@pytest.mark.parametrize("decoding", ["one_shot", "exact"])
def test_an_event_with_more_objects_than_a_network_takes_is_truncated(decoding):
    """The network counts all kinds: 31 jets, a lepton and missing energy are too many."""
    one, _ = leptonic_events(1, 3)
    jets = ak.concatenate([one.jets] * 8, axis=1)
    for k, n_leptons in ((31, 1), (16, 16), (31, 31)):
        leptons = ak.concatenate([one.objects["lepton"]] * n_leptons, axis=1)
        events = one.replace(objects={**one.objects, "jet": jets[:, :k], "lepton": leptons}, truth=None)
        settings = {"decoding": decoding, "cuts": False, "btag": "generator", "max_objects": 32}
        reco = reconstruct(events, "ttbar_semilep", **settings)
        assert labels(reco) == ["truncated"] * 3
        assert (sum(reco.used.values()) <= 32).all()
        assert (reco.used["met"] == 1).all()
        assert np.isfinite(reco.event_probability).all()


def test_twelve_objects_of_five_kinds_are_too_many():
    """The default of 12 counts each kind: five kinds would have 60 objects."""
    products = {"l": "electron", "g": "photon", "a": "tau", "m": "muon"}
    raw = {"name": "five", "event": ["t", "X"], "particles": {"t": ["b", "l"], "X": ["g", "a", "m"]}}
    topology = parse_topology(raw | {"objects": products})
    rng = np.random.default_rng(0)
    names = ("pt", "eta", "phi", "mass", "btag", "charge")
    columns = {name: ak.from_regular(rng.uniform(0.1, 1, (3, 12))) for name in names}
    columns["pt"] = 100 * columns["pt"] + 30
    events = Events(dict.fromkeys(topology.kinds, make_objects(**columns)), topology)
    accepted = accept(
        events, Domain({kind: KindDomain(0.0, 5.0, (1, 12)) for kind in topology.kinds}), Inputs.default(topology)
    )
    assert accepted.nodes.counts.tolist() == [[6] * 5] * 3
    assert (accepted.status == Status.TRUNCATED).all()


def test_a_kind_that_is_missing_is_named(model):
    with pytest.raises(EventsError, match="semilep needs leptons, met"):
        reconstruct(lepton_events().jets, model)
    assert len(reconstruct(dict(lepton_events().objects), model)) == 12
