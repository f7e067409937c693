"""Varied jets: one call, one group of columns each, the same answers as one call each."""

from __future__ import annotations

import json

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest

import pairton
from leptonic_tops import leptonic_events
from pairton.errors import ConfigError, EventsError
from pairton.events.domain import Domain, KindDomain
from pairton.events.objects import make_jets
from pairton.reconstruction.provenance import COMPLETE, read_result, result_metadata
from pairton.reconstruction.result_columns import result_columns
from pairton.reconstruction.running import reconstruct, reconstruct_files
from root_files import write_tree

FIELDS = ("pt", "eta", "phi", "energy", "btag")


def scaled(events, factor):
    """Jets with another energy scale."""
    fields = {name: events.jets[name] for name in FIELDS}
    return make_jets(**(fields | {"pt": fields["pt"] * factor, "energy": fields["energy"] * factor}))


def test_variations_are_what_separate_calls_give(decays, mass_model):
    events = decays(80, extra=2)
    up, down = scaled(events, 1.3), scaled(events, 0.6)
    reco = reconstruct(events, mass_model, variations={"up": up, "down": down})
    assert list(reco.variations) == ["up", "down"]
    for jets, found in ((up, reco.variations["up"]), (down, reco.variations["down"])):
        alone = reconstruct(events.replace(jets=jets), mass_model)
        np.testing.assert_array_equal(found.assignment, alone.assignment)
        np.testing.assert_array_equal(found.status, alone.status)
        np.testing.assert_array_equal(found.momenta["mass"], alone.momenta["mass"])
    nominal = reconstruct(events, mass_model)
    np.testing.assert_array_equal(reco.assignment, nominal.assignment)
    assert (reco.variations["down"].assignment != reco.assignment).any()


def test_a_group_of_columns_each(decays, mass_model):
    events = decays(20)
    columns = result_columns(reconstruct(events, mass_model, variations={"up": scaled(events, 1.1)}))
    plain = list(result_columns(reconstruct(events, mass_model)))
    ours = plain[plain.index("status") :]
    assert list(columns) == [*plain, *(f"{name}_up" for name in ours)]
    alone = result_columns(reconstruct(events.replace(jets=scaled(events, 1.1)), mass_model))
    np.testing.assert_array_equal(columns["t1_mass_up"], alone["t1_mass"])
    np.testing.assert_array_equal(columns["t1_W_q1_jet_up"], alone["t1_W_q1_jet"])


def test_variations_from_a_file_to_a_file(decays, mass_model, tmp_path):
    """NanoAOD to Parquet, where identification, b-tag and scale all matter; the file is read once."""
    events = decays(30, extra=2)
    jets = events.jets
    content = {f"Jet_{name}": jets[name] for name in ("pt", "eta", "phi")}
    content |= {"Jet_mass": jets.mass, "Jet_btagPNetB": jets.btag, "Jet_pt_up": jets.pt * 1.2}
    content["Jet_jetId"] = ak.values_astype(ak.where(ak.local_index(jets.pt) == 0, 0, 6), np.uint8)
    content |= {"event": np.arange(30), "run": np.ones(30, int), "luminosityBlock": np.ones(30, int)}
    path, output = write_tree(tmp_path / "nano.root", "Events", content), tmp_path / "out.parquet"
    options = {"btag": "PNetB:0.5", "variations": {"up": {"pt": "Jet_pt_up"}}}
    summary = reconstruct_files(path, output, mass_model, **options)
    assert summary.events == 30
    table = pq.read_table(output)
    slots = [name for name in table.column_names if name.endswith(("_jet", "_jet_up"))]
    assert len(slots) == 12
    chosen = np.stack([table[name].to_numpy() for name in slots])
    assert (chosen != 0).all()  # the first jet of each event failed the identification
    assert (chosen > 0).any()
    assert table["event"].to_pylist() == list(range(30))


def test_variations_that_do_not_fit(decays, mass_model):
    events = decays(5)
    with pytest.raises(EventsError, match="variation 'up': jets differ in number from the nominal ones"):
        reconstruct(events, mass_model, variations={"up": scaled(events, 1.1)[:, 1:]})


def test_a_variation_does_not_replace_a_column(decays):
    events = decays(5)
    reco = reconstruct(events, "ttbar_allhad", variations={"if_complete": events.jets})
    with pytest.raises(ConfigError, match="two columns of the result are called event_probability_if_complete"):
        reco.to_columns()


def test_what_became_of_variations_is_counted(decays, mass_model, tmp_path):
    events = decays(30, extra=2)
    mass_model.domain = Domain({"jet": KindDomain(25.0, count=(6, 16))})
    low = scaled(events, 0.6)
    jets = {f"jet_{name}": events.jets[name] for name in ("pt", "eta", "phi", "energy", "btag")}
    path = tmp_path / "in.parquet"
    ak.to_parquet(ak.to_packed(ak.zip(jets | {"low": low.pt}, depth_limit=1)), path)
    options = {"variations": {"low": {"pt": "low"}}, "topology": "ttbar_allhad"}
    before, few = (int(ak.sum(ak.sum(each.pt >= 25, axis=1) < 6)) for each in (events.jets, low))
    assert before < few < 30
    one = reconstruct_files(path, tmp_path / "out.parquet", mass_model, **options)
    parts = reconstruct_files(path, tmp_path / "parts", mass_model, **options, jobs=1)
    again = reconstruct_files(path, tmp_path / "parts", mass_model, resume=True, **options)
    said = json.loads((tmp_path / "parts" / COMPLETE).read_text())
    written = result_metadata(tmp_path / "out.parquet")
    for found in (one.varied, parts.varied, again.varied, said["variation_status"], written["variation_status"]):
        assert found["low"]["too_few_objects"] == few
        assert sum(found["low"].values()) == 30
    assert one.status["too_few_objects"] == before


def test_varied_jets_keep_the_table_of_tags():
    """Also if they have only momenta; their own tags count, if they have any."""
    events = pairton.read("sample:ttbar_allhad", btag="delphes_cms")[:300]
    bare = {name: events.jets[name] for name in ("pt", "eta", "phi", "energy")}
    flipped = make_jets(**bare, btag=1 - events.jets.btag)
    varied = {"same": make_jets(**bare, btag=events.jets.btag), "bare": make_jets(**bare), "flipped": flipped}
    reco = reconstruct(events, variations=varied)
    for name in ("same", "bare"):
        np.testing.assert_array_equal(reco.variations[name].assignment, reco.assignment)
        np.testing.assert_array_equal(reco.variations[name].event_probability, reco.event_probability)
        np.testing.assert_array_equal(reco.variations[name].outputs["n_btags"], reco.outputs["n_btags"])
    table = events.metadata["tag_table"]
    plain = [name for name in events.jets.fields if not name.endswith("_evidence")]
    alone = reconstruct(events.replace(jets=flipped[plain]), btag=table)
    np.testing.assert_array_equal(reco.variations["flipped"].assignment, alone.assignment)
    again = reconstruct(events.replace(jets=events.jets[plain]), btag=table, variations={"same": varied["same"]})
    np.testing.assert_array_equal(again.variations["same"].event_probability, reco.event_probability)


@pytest.fixture
def leptonic(tmp_path):
    """Twenty l+jets events as a table, with jets 10 % harder, and the same in memory."""
    events, _ = leptonic_events(1, 20)
    content = {f"{kind}_{name}": values[name] for kind, values in events.objects.items() for name in values.fields}
    path = tmp_path / "in.parquet"
    ak.to_parquet(ak.to_packed(ak.zip({**content, "pt_up": events.jets.pt * 1.1}, depth_limit=1)), path)
    up = make_jets(**{name: events.jets[name] * (1.1 if name in ("pt", "energy") else 1) for name in FIELDS})
    return path, events, up


def test_missing_energy_follows_the_objects(leptonic, tmp_path, run):
    """By the opposite of the sum of the shifts of jets above 15 GeV, in memory, in files and in parts."""
    path, events, up = leptonic
    hard = events.jets.pt > 15
    px, py = (ak.sum(0.1 * (events.jets.pt * turn(events.jets.phi))[hard], axis=1) for turn in (np.cos, np.sin))
    met = ak.firsts(events.objects["met"])
    px, py = met.pt * np.cos(met.phi) - px, met.pt * np.sin(met.phi) - py
    reco = reconstruct(events, variations={"up": up}, btag="generator")
    moved = ak.firsts(reco.variations["up"].events.objects["met"])
    np.testing.assert_allclose(moved.pt, np.hypot(px, py), rtol=1e-4)
    np.testing.assert_allclose(moved.phi, np.arctan2(py, px), rtol=1e-3, atol=1e-4)
    assert (reco.variations["up"].tl.neutrino.pt != reco.tl.neutrino.pt).to_numpy().any()
    reco.save(tmp_path / "memory.parquet")
    words = ["reconstruct", str(path), "--model", "ttbar_semilep", "--btag", "generator", "--set", "overlap=none"]
    for more in (["-o", tmp_path / "file.parquet"], ["-o", tmp_path / "parts", "--jobs", "1"]):
        run(*words, "--variation", "up:pt=pt_up", *more)
    assert read_result(tmp_path / "memory.parquet")["moved_met"] == ["up"]
    how = {"btag": "generator", "settings": {"overlap": "none"}}
    again = reconstruct(path, "ttbar_semilep", variations={"up": {"pt": "pt_up"}}, **how)
    expected = again.to_columns()["tl_nu_pt_up"]
    np.testing.assert_allclose(expected, reco.to_columns()["tl_nu_pt_up"], rtol=1e-4)
    for written in ("file.parquet", "parts"):
        assert read_result(tmp_path / written)["moved_met"] == ["up"]
        np.testing.assert_allclose(pq.read_table(tmp_path / written)["tl_nu_pt_up"], expected, rtol=1e-4)


def test_missing_energy_of_a_variation_is_used_as_it_is(leptonic, tmp_path, run):
    path, events, up = leptonic
    still = {"jet": up, "met": events.objects["met"]}
    alone = reconstruct(events, variations={"up": still}, btag="generator").variations["up"]
    assert alone.events.objects["met"].pt.tolist() == events.objects["met"].pt.tolist()
    words = ["reconstruct", path, "--model", "ttbar_semilep", "--btag", "generator", "--set", "overlap=none"]
    run(*words, "-o", tmp_path / "a.parquet", "--variation", "up:pt=pt_up,met=nominal")
    assert "moved_met" not in read_result(tmp_path / "a.parquet")
    given = {"up": {"jet.pt": "pt_up", "met": "nominal"}}
    how = {"btag": "generator", "settings": {"overlap": "none"}}
    expected = reconstruct(path, "ttbar_semilep", variations=given, **how).to_columns()["tl_mass_up"]
    np.testing.assert_allclose(pq.read_table(tmp_path / "a.parquet")["tl_mass_up"], expected, rtol=1e-4)


def test_only_events_whose_objects_change_are_computed_again(decays, mass_model):
    events = decays(50, extra=2)
    reconstruct(events, mass_model)
    nominal = list(mass_model.calls)
    mass_model.calls.clear()
    factor = np.where(np.arange(50) < 5, 1.3, 1.0)
    some = reconstruct(events, mass_model, variations={"up": scaled(events, factor), "same": events.jets})
    assert mass_model.calls[: len(nominal)] == nominal
    assert sum(shape[0] for shape in mass_model.calls[len(nominal) :]) == 5
    up, alone = some.variations["up"], reconstruct(events.replace(jets=scaled(events, factor)), mass_model)
    np.testing.assert_array_equal(up.assignment, alone.assignment)
    np.testing.assert_array_equal(up.event_probability, alone.event_probability)
    np.testing.assert_array_equal(up.momenta["mass"], alone.momenta["mass"])
    np.testing.assert_array_equal(some.variations["same"].event_probability, some.event_probability)
