"""Evaluation and display of events with leptons and missing energy: semileptonic ttbar."""

import json
import re
from dataclasses import dataclass

import awkward as ak
import numpy as np
import pytest

import pairton
from leptonic_tops import leptonic_events
from pairton.decoding import decode
from pairton.decoding.terms import triplet_types
from pairton.errors import ConfigError
from pairton.evaluation.baselines import MassChiSquare
from pairton.events import Events
from pairton.events.acceptance import accept
from pairton.events.domain import Domain, KindDomain
from pairton.events.objects import make_met, make_objects
from pairton.events.vectors import cartesian, mass_of, polar
from pairton.formats import create
from pairton.reconstruction.momenta import particle_momenta
from pairton.reconstruction.result_columns import positions
from pairton.reconstruction.run_settings import RunSettings
from pairton.reconstruction.running import reconstruct, reconstruct_files
from pairton.report.frames import record_answer, record_event
from pairton.report.page import Display, plots_of, write_report
from pairton.report.record import kind_shapes
from pairton.topology import parse_topology

SEMILEPTONIC = parse_topology(
    {
        "name": "ttbar_semilep",
        "event": ["t", "tl"],
        "particles": {"t": ["W", "b"], "W": ["q", "q"], "tl": ["b", "l"]},
        "objects": {"l": "lepton"},
        "context": ["met"],
    }
)
SLOTS = [slot.name for slot in SEMILEPTONIC.slots]


@pytest.fixture(scope="module")
def lepton_events(decays):
    """All-hadronic events of which one quark of the second W is a lepton and the other escapes.

    The truth of a share of the leptons is another one: every event has a second, softer or harder, unlabelled.
    """

    def make(n=60, seed=0, extra=1, **more):
        events = decays(n, seed=seed, extra=extra)
        rows = np.arange(n)
        lepton, neutrino = (events.jets[rows, events.truth[:, k]] for k in (3, 4))
        gone = np.zeros((n, 6 + extra), dtype=bool)
        gone[rows[:, None], events.truth[:, [3, 4]]] = True
        kept = events.keep({"jet": ak.from_regular(ak.Array(~gone))})
        rng = np.random.default_rng(seed)
        first = rng.random(n) < 0.5  # whether the labelled lepton is stored first
        both = {
            "pt": [np.asarray(lepton.pt), rng.uniform(5, 80, n)],
            "eta": [np.asarray(lepton.eta), rng.uniform(-2, 2, n)],
            "phi": [np.asarray(lepton.phi), rng.uniform(-3, 3, n)],
            "mass": [np.full(n, 0.1), np.full(n, 0.1)],
        }
        order = np.where(first, 0, 1)[:, None] ^ np.array([[0, 1]])
        leptons = {
            name: ak.from_regular(np.take_along_axis(np.stack(columns, axis=1), order, axis=1))
            for name, columns in both.items()
        }
        truth = np.stack([*kept.truth[:, [0, 1, 2, 5]].T, np.where(first, 0, 1)], axis=1)
        places = {"t.W.q1": 0, "t.W.q2": 1, "t.b": 2, "tl.b": 3, "tl.l": 4}
        objects = {
            "jet": ak.without_field(kept.jets, "index"),
            "lepton": make_objects(**leptons),
            "met": make_met(np.asarray(neutrino.pt), np.asarray(neutrino.phi)),
        }
        return Events(objects, SEMILEPTONIC, truth=truth[:, [places[name] for name in SLOTS]], **more)

    return make


@pytest.fixture(scope="module")
def lepton_model(mass_model_type):
    """Knows the masses of W, t and of a b with its lepton."""

    @dataclass
    class LeptonModel(mass_model_type):
        def predict(self, nodes, tokens):
            momenta = np.concatenate([array[..., :4] for array in nodes.values.values()], axis=1)
            p4 = cartesian(*np.moveaxis(momenta.astype(np.float64), -1, 0))

            pair = polar(p4[:, :, None] + p4[:, None])["mass"]
            triple = polar(p4[:, :, None, None] + p4[:, None, :, None] + p4[:, None, None])["mass"]
            edges = np.zeros((len(p4), len(self.topology.types), *pair.shape[1:]), dtype=np.float32)
            edges[:, self.topology.type_index("W")] = 4 - np.minimum(((pair - 80) / 8) ** 2, 50)
            edges[:, self.topology.type_index("tl")] = 2 - np.minimum(((pair - 100) / 30) ** 2, 50)
            assert list(triplet_types(self.topology)) == ["t"]
            triplets = (-np.minimum(((triple - 170) / 15) ** 2, 50)).astype(np.float32)[:, None]
            return {"edges": self.strength * edges, "triplets": self.strength * triplets}

    return LeptonModel(SEMILEPTONIC, domain=Domain({"lepton": KindDomain(2.0)}), strength=0.3)


# -- baselines and efficiencies ----------------------------------------------------------------------------


def test_tag_rates_are_those_of_jets_alone(lepton_events):
    events = lepton_events(300, extra=2)
    tagged = events.jets.btag * 0 + 1  # all: so is every other jet, whatever leptons there are
    fit = MassChiSquare().fit(events.replace(jets=ak.with_field(events.jets, tagged, "btag")))
    assert fit.other_tag_rate > 0.99
    untagged = events.replace(jets=ak.without_field(events.jets, "btag"))
    assert (MassChiSquare().fit(untagged).assign(untagged)[0] >= 0).all()


def test_efficiencies_of_events_hadronic_and_leptonic_tops(lepton_events, lepton_model):
    events = Events.concatenate([lepton_events(40, seed=k, extra=k) for k in range(3)])
    result = pairton.evaluate(events, lepton_model, baselines=["chi2"])
    found = result.to_dict()
    reco = reconstruct(events, lepton_model)
    at = {name: SLOTS.index(name) for name in SLOTS}
    w, b, bl, lep = [at["t.W.q1"], at["t.W.q2"]], at["t.b"], at["tl.b"], at["tl.l"]
    right_w = (np.sort(reco.assignment[:, w], axis=1) == np.sort(events.truth[:, w], axis=1)).all(axis=1)
    right_t = right_w & (reco.assignment[:, b] == events.truth[:, b])
    right_tl = (reco.assignment[:, [bl, lep]] == events.truth[:, [bl, lep]]).all(axis=1)
    by_hand = {"event": right_t & right_tl, "t": right_t, "W": right_w, "tl": right_tl}
    assert set(found["efficiency"]) == set(by_hand)
    for what, right in by_hand.items():
        cells = found["efficiency"][what]
        assert list(cells) == ["4", "5", "6+", "inclusive"]  # jets: neither leptons nor missing energy
        assert 0 < cells["inclusive"]["correct"] == right.sum() < 120
        for k, cell in enumerate(("4", "5", "6+")):
            assert (cells[cell]["correct"], cells[cell]["total"]) == (right[40 * k : 40 * (k + 1)].sum(), 40)
    baseline = found["methods"]["chi2"]["efficiency"]
    assert baseline["W"]["inclusive"]["value"] > 0.5
    assert baseline["tl"]["inclusive"]["total"] == 120
    assert "4 jets" in result.table()
    with pytest.raises(ConfigError, match="no option 'max_jets' for events in memory"):
        pairton.evaluate(events, lepton_model, max_jets=9)


def test_files_number_objects_by_kind(lepton_events, lepton_model, tmp_path):
    events = lepton_events(30)
    cut = events.keep({"lepton": events.objects["lepton"].pt > 20, "jet": events.jets.pt > 20})
    reco = reconstruct(cut, lepton_model)
    there = (reco.assignment >= 0).all(axis=1)
    assert 0 < there.sum() < 30
    stored = reco.index
    np.testing.assert_array_equal(positions(cut, stored), reco.assignment)
    kinds = [slot.kind for slot in SEMILEPTONIC.slots]
    for row in np.flatnonzero(there):
        for slot, kind in enumerate(kinds):
            original = events.objects[kind].pt[row, stored[row, slot]]
            assert cut.objects[kind].pt[row, reco.assignment[row, slot]] == original
    path = tmp_path / "in.h5"
    with create(path, SEMILEPTONIC) as writer:
        writer.write(events)
    reconstruct_files(path, tmp_path / "out.parquet", lepton_model)
    by_file = pairton.evaluate(path, assignments=[tmp_path / "out.parquet"], topology=SEMILEPTONIC).to_dict()
    assert by_file["efficiency"] == pairton.evaluate(events, lepton_model).to_dict()["efficiency"]


# -- the display -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoding", ["steps", "one_shot", "exact"])
def test_records_have_objects_of_every_kind(lepton_events, lepton_model, decoding):
    events = lepton_events(4)
    record = record_event(events, 2, lepton_model, RunSettings(decoding))
    reco = reconstruct(events, lepton_model, decoding=decoding)
    assert [item.kind for item in record.objects] == ["jet"] * 5 + ["lepton"] * 2 + ["met"]
    assert [item.short for item in record.objects[5:]] in (["l0", "l1", "met"], ["l1", "l0", "met"])
    (leptonic,) = (shown for shown in record.answer if shown.type == "tl")
    items = [record.objects[k] for k in leptonic.objects]
    slots = SEMILEPTONIC.of_type("tl")[0].slots
    assert [item.kind for item in items] == [SEMILEPTONIC.slots[s].kind for s in slots]
    assert [item.index for item in items] == reco.assignment[2, list(slots)].tolist()
    assert leptonic.mass == pytest.approx(reco.momenta["mass"][2, SEMILEPTONIC.of_type("tl")[0].index], rel=1e-3)
    true = {
        s.label: [(record.objects[k].kind, record.objects[k].index) for k in s.objects]
        for s in record.true_particles
    }
    assert true["tl"] == [(SEMILEPTONIC.slots[s].kind, events.truth[2, s]) for s in slots]
    assert record.right == all(shown.right for shown in record.answer)
    if decoding == "steps":
        nodes = accept(events[2:3], lepton_model.domain, lepton_model.inputs).nodes
        answer = decode(lepton_model.predict, SEMILEPTONIC, nodes, decoding="steps", record=True)
        for frame, step in zip(record.frames, answer.steps, strict=False):
            np.testing.assert_array_equal(frame.tokens, step.tokens[0])
    alone = record_answer(events, 2, reco.assignment[2])
    masses = [{(s.label, round(s.mass, 3)) for s in each.answer} for each in (alone, record)]
    assert masses[0] == masses[1]


def test_leptons_and_missing_energy_are_drawn_with_marks_of_their_own(lepton_events, lepton_model, tmp_path):
    record = record_event(lepton_events(2), 1, lepton_model, RunSettings("steps"))
    data = record.to_dict()
    assert kind_shapes(record.topology) == {"jet": "circle", "lepton": "triangle", "met": "arrow"}
    assert data["short"] == [item.short for item in record.objects]
    assert [item["btag"] is None for item in data["objects"]] == [False] * 5 + [True] * 3
    shown = Display(record)
    axes = shown.figure().subfigs[0].axes[0]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"lepton", "met", "b-tagged"} < set(legend)
    corners = [len(points.get_paths()[0].vertices) for points in axes.collections]
    assert len(set(corners[:5])) == 1
    assert corners[0] != corners[5] == corners[6]  # circle, triangle
    assert len(corners) == 7
    said = {text.get_text() for text in axes.texts}
    met = record.objects[7]
    assert {"l0", "l1", f"met  {met.pt:.0f} GeV"} < said
    (arrow,) = [text for text in axes.texts if text.arrow_patch is not None]
    assert arrow.xy[1] == pytest.approx(met.phi)
    shown.save(tmp_path / "event.svg")
    shown.save(tmp_path / "event.html")
    embedded = re.search(r'id="record">(.*?)</script>', (tmp_path / "event.html").read_text(), re.DOTALL)[1]
    (drawn,) = json.loads(embedded)
    assert drawn.pop("plane").count("pd-object") >= 8
    assert drawn == json.loads(json.dumps(data))


def test_the_report_of_events_with_leptons(lepton_events, lepton_model, tmp_path):
    events = Events.concatenate([lepton_events(40, seed=k, extra=k) for k in range(3)])
    result = pairton.evaluate(events, lepton_model)
    plots = {plot.name: plot for plot in plots_of(result)}
    assert {"efficiency_jets", "mass_t", "mass_tl", "mass_W"} <= set(plots)
    assert [row["jets"] for row in plots["efficiency_jets"].rows] == [4, 5, 6]
    write_report(tmp_path / "page.html", result)
    text = (tmp_path / "page.html").read_text()
    records = json.loads(re.search(r'id="records">(.*?)</script>', text, re.DOTALL)[1])
    assert all({item["kind"] for item in record["objects"]} == {"jet", "lepton", "met"} for record in records)
    assert "4 jets" in text


def test_an_object_has_the_mass_of_its_four_momentum(lepton_events, lepton_model):
    events = lepton_events(1)
    record = record_event(events, 0, lepton_model)
    for item in record.objects:
        source = events.objects[item.kind][0, item.index]
        assert item.mass == pytest.approx(float(mass_of(source.pt, source.eta, source.energy)), abs=1e-3)


def test_the_mass_of_a_leptonic_top_is_shown_with_its_neutrino():
    events, _ = leptonic_events(1, 20)
    row = int(np.flatnonzero(particle_momenta(events, events.truth).neutrinos.solutions == 2)[0])
    shown = {s.label: s for s in record_answer(events, row, events.truth[row]).answer}
    assert shown["tl"].neutrino
    assert not shown["t"].neutrino
    assert shown["tl"].mass == pytest.approx(172.5, abs=0.5)
    blind = events.replace(objects={**events.objects, "met": events.objects["met"][:, :0]})
    alone = {s.label: s for s in record_answer(blind, row, events.truth[row]).answer}["tl"]
    assert not alone.neutrino
    visible = particle_momenta(events, events.truth).visible[row, 2]
    assert alone.mass == pytest.approx(polar(visible)["mass"], abs=0.1)


def test_two_leptonic_tops_share_the_missing_energy():
    events, _ = leptonic_events(2, 20)
    found = particle_momenta(events, events.truth)
    row = int(np.flatnonzero(found.neutrinos.solutions > 0)[0])
    record = record_answer(events, row, events.truth[row])
    order = np.argsort(-polar(found.p4)["pt"][row])
    assert [s.mass for s in record.answer] == pytest.approx(polar(found.p4)["mass"][row][order], abs=0.1)
    assert [s.label for s in record.answer] == ["tl1", "tl2"]
    leptons = [record.objects[s.objects[1]].index for s in record.answer]
    assert leptons == order.tolist()  # as in results, the harder top first
