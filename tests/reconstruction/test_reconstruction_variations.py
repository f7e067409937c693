"""Varied jets: one call, one group of columns each, the same answers as one call each."""

from __future__ import annotations

import json

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
import uproot

from pairton.errors import EventsError
from pairton.events.domain import Domain, KindDomain
from pairton.events.objects import make_jets
from pairton.reconstruction.parts import COMPLETE, reconstruct_parts
from pairton.reconstruction.result_columns import result_columns
from pairton.reconstruction.running import reconstruct
from pairton.reconstruction.streaming import reconstruct_files
from pairton.reconstruction.writers import result_metadata

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
    content = {name: ak.values_astype(column, np.float32) for name, column in content.items()}
    content["Jet_jetId"] = ak.values_astype(ak.where(ak.local_index(jets.pt) == 0, 0, 6), np.uint8)
    content["event"] = np.arange(30, dtype=np.uint64)
    content |= {name: np.ones(30, dtype=np.uint32) for name in ("run", "luminosityBlock")}
    path, output = tmp_path / "nano.root", tmp_path / "out.parquet"
    with uproot.recreate(path) as file:
        kinds = {
            k: f"var * {v.layout.content.dtype}" if isinstance(v, ak.Array) else v.dtype
            for k, v in content.items()
        }
        file.mktree("Events", kinds)
        file["Events"].extend(content)
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
    parts = reconstruct_parts(path, tmp_path / "parts", mass_model, **options)
    again = reconstruct_parts(path, tmp_path / "parts", mass_model, resume=True, **options)
    said = json.loads((tmp_path / "parts" / COMPLETE).read_text())
    written = result_metadata(tmp_path / "out.parquet")
    for found in (one.varied, parts.varied, again.varied, said["variation_status"], written["variation_status"]):
        assert found["low"]["too_few_objects"] == few
        assert sum(found["low"].values()) == 30
    assert one.status["too_few_objects"] == before
