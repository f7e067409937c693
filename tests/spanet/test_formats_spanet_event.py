"""Files of SPANet read as its event file says: groups, targets through all inputs, classes, regressions."""

import h5py
import numpy as np
import pytest
import yaml

import pairton
from event_files import write_events
from pairton.errors import FormatError, PairtonWarning
from pairton.topology.extras import labels_of

MOMENTUM = {"pt": "log", "eta": "none", "phi": "none", "mass": "log"}


@pytest.fixture
def semileptonic(tmp_path):
    """Three jets beside one lepton, whose targets count from the first jet on: a path and an event file."""
    path = tmp_path / "events.h5"
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for group, width in (("AllJets", 4), ("Lep", 2)):
            file[f"INPUTS/{group}/MASK"] = np.arange(width) < np.array([[min(width, 3)]] * 3)
            for name, low in (("pt", 30), ("eta", -1), ("phi", -1), ("mass", 5)):
                file[f"INPUTS/{group}/{name}"] = rng.uniform(low, low + 2, (3, width)).astype(np.float32)
        file["TARGETS/tl/b"] = np.array([2, -1, 5])
        file["TARGETS/tl/l"] = np.array([4, 5, -1])
        file["CLASSIFICATIONS/EVENT/signal"] = np.array([1, 0, -1])
        file["REGRESSIONS/EVENT/nu_pz"] = np.array([1.5, np.nan, -3.0], dtype=np.float32)
        file["REGRESSIONS/tl/PARTICLE/mass"] = np.array([170.0, 180.0, np.nan], dtype=np.float32)
    raw = {
        "INPUTS": {"SEQUENTIAL": {"AllJets": MOMENTUM, "Lep": MOMENTUM}},
        "EVENT": {"tl": [{"b": "AllJets"}, {"l": "Lep"}]},
    }
    return path, raw


def read(path, raw, tmp_path, **options):
    event = tmp_path / "event.yaml"
    event.write_text(yaml.safe_dump(raw))
    return pairton.read(path, topology=event, fields={"alljet": (), "lep": ()}, **options)


def test_a_target_with_a_source_counts_in_it(semileptonic, tmp_path):
    path, raw = semileptonic
    with pytest.warns(PairtonWarning, match="3 labels in 3 events out of range"):  # no such lepton, no such jet
        events = read(path, raw, tmp_path)
    assert events.topology.kinds == ("alljet", "lep")
    assert events.truth.tolist() == [[-1, -1]] * 3


def test_a_target_without_a_source_counts_through_all_inputs(semileptonic, tmp_path):
    path, raw = semileptonic
    raw["INPUTS"]["SEQUENTIAL"] = {"AllJets": MOMENTUM, "Leptons": MOMENTUM}
    raw["EVENT"] = {"tl": ["b", "l"]}
    with h5py.File(path, "r+") as file:
        file.move("INPUTS/Lep", "INPUTS/Leptons")
    event = tmp_path / "event.yaml"
    event.write_text(yaml.safe_dump(raw))
    with pytest.warns(PairtonWarning, match="1 label in 1 event out of range"):  # the b of the last is a lepton
        events = pairton.read(path, topology=event, fields={"alljet": (), "lepton": ()})
    assert events.truth.tolist() == [[2, 0], [-1, 1], [-1, -1]]
    write_events(events, tmp_path / "ours.h5")
    again = pairton.read(tmp_path / "ours.h5", topology=event, fields={"alljet": (), "lepton": ()})
    assert again.truth.tolist() == events.truth.tolist()
    with h5py.File(tmp_path / "ours.h5") as file:
        assert sorted(file["INPUTS"]) == ["AllJets", "Leptons"]


def test_targets_count_inputs_without_momenta_too(semileptonic, tmp_path):
    """Calorimeter cells have no momenta, but targets of leptons count from the first jet on, past the cells."""
    path, raw = semileptonic
    raw["INPUTS"]["SEQUENTIAL"] = {"AllJets": MOMENTUM, "Cells": {"size": "none"}, "Leptons": MOMENTUM}
    raw["EVENT"] = {"tl": ["b", "l"]}
    with h5py.File(path, "r+") as file:
        file.move("INPUTS/Lep", "INPUTS/Leptons")
        file["INPUTS/Cells/MASK"] = np.ones((3, 5), dtype=bool)
        file["INPUTS/Cells/size"] = np.ones((3, 5))
        file["TARGETS/tl/b"][...] = [2, 1, -1]
        file["TARGETS/tl/l"][...] = [9, 10, -1]  # after 4 columns of jets and 5 of cells
    event = tmp_path / "event.yaml"
    event.write_text(yaml.safe_dump(raw))
    events = pairton.read(path, topology=event, fields={"alljet": (), "lepton": ()})
    assert events.truth.tolist() == [[2, 0], [1, 1], [-1, -1]]


def test_classes_and_regressions_are_columns(semileptonic, tmp_path):
    path, raw = semileptonic
    names = ["signal", "EVENT/nu_pz", "tl/PARTICLE/mass", "REGRESSIONS/EVENT/nu_pz"]
    columns = read(path, raw, tmp_path, keep=names, truth=False).columns
    assert np.asarray(columns["signal"]).tolist() == [1, 0, -1]
    np.testing.assert_array_equal(columns["EVENT/nu_pz"], np.float32([1.5, np.nan, -3.0]))
    np.testing.assert_array_equal(columns["REGRESSIONS/EVENT/nu_pz"], columns["EVENT/nu_pz"])
    np.testing.assert_array_equal(columns["tl/PARTICLE/mass"], np.float32([170, 180, np.nan]))
    with pytest.raises(FormatError, match="sgnal"):
        read(path, raw, tmp_path, keep=["sgnal"], truth=False)


def test_the_example_of_spanet(sample, tmp_path):
    path = sample("spanet_tth_semilep.h5")
    jets = dict.fromkeys(("mass", "pt", "eta", "sin_phi", "cos_phi", "qtag", "btag", "etag", "utag"), "none")
    raw = {
        "INPUTS": {
            "SEQUENTIAL": {"Momenta": jets},
            "GLOBAL": {"Met": dict.fromkeys(("met", "sin_phi", "cos_phi"), "none")},
        },
        "EVENT": {"lt": ["b"], "ht": ["b", "q1", "q2"], "h": ["b1", "b2"]},
        "PERMUTATIONS": {"ht": [["q1", "q2"]], "h": [["b1", "b2"]]},
    }
    event = tmp_path / "semi_leptonic_ttH.yaml"
    event.write_text(yaml.safe_dump(raw))
    settings = {"neutrino_unit": "100"}
    events = pairton.read(path, topology=event, keep=["signal"], settings=settings)
    assert len(events) == 1000
    assert events.topology.name == "semi_leptonic_ttH"
    with h5py.File(path) as file:
        for slot, label in zip(events.topology.slots, labels_of(events.topology, "spanet"), strict=True):
            np.testing.assert_array_equal(events.truth[:, slot.index], file[f"TARGETS/{label}"][:])
        stored = file["REGRESSIONS/EVENT/neutrino_pz"][:]
    np.testing.assert_allclose(events.columns["neutrino_pz"], 100.0 * stored)  # in GeV; kept, as it is
    raw = pairton.read(path, topology=event, keep=["REGRESSIONS/EVENT/neutrino_pz"], truth=False).columns
    np.testing.assert_array_equal(raw["REGRESSIONS/EVENT/neutrino_pz"], stored)
