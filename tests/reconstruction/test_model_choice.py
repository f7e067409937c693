"""Which built-in model is used where the user names none."""

import json

import h5py
import numpy as np
import pytest

from event_files import write_events
from pairton import evaluate, read, reconstruct
from pairton.errors import ModelError, PairtonWarning
from pairton.events import Events
from pairton.formats import create
from pairton.models.model import model_for
from pairton.models.storage import find_model
from pairton.reconstruction.run import Run
from pairton.reconstruction.running import reconstruct_files
from pairton.report.page import display_event
from pairton.topology import load_topology
from pairton.topology.reading import parse_topology

NONE = (
    "there is no built-in model for the topology pairs: train one with `pairton train`, give another with --model"
)


@pytest.fixture
def pairs(tmp_path):
    """The file of a topology of which no model knows the particle."""
    path = tmp_path / "pairs.yaml"
    path.write_text("{name: pairs, event: [S, S], particles: {S: [q, q]}}")
    return path


@pytest.fixture
def of_pairs(tmp_path, decays, pairs):
    """Events of that topology, in SPANet's layout."""
    topology = load_topology(pairs)
    events = decays(40, seed=2)
    truth = np.tile(np.arange(4), (40, 1))
    writer = create(tmp_path / "in.h5", topology, {}, None)
    writer.write(Events(events.jets, topology, truth=truth))
    writer.close()
    return tmp_path / "in.h5"


def test_a_tree_under_another_name_has_the_model_of_that_tree():
    raw = load_topology("ttbar_semilep").to_dict() | {"name": "mine"}
    assert model_for(parse_topology(raw)) == "ttbar_semilep"


def test_a_topology_without_a_model_is_said_to_have_none(of_pairs, pairs, tmp_path, refused):
    with pytest.raises(ModelError, match=NONE):
        Run(of_pairs)
    said = refused("reconstruct", of_pairs, "--topology", pairs, "-o", tmp_path / "out.parquet")
    assert said.startswith(f"pairton: {NONE}")
    with pytest.raises(ModelError, match=NONE):
        evaluate(of_pairs)


def test_a_model_may_be_given_as_a_path(tmp_path):
    """As a string and as a `Path`, wherever Python takes the name of a model."""
    model, sample = find_model("iterative"), "sample:ttbar_allhad"
    events = read(sample)[:20]
    expected = reconstruct(events, str(model)).assignment
    np.testing.assert_array_equal(reconstruct(events, model).assignment, expected)
    write_events(events, tmp_path / "some.h5")
    np.testing.assert_array_equal(reconstruct(tmp_path / "some.h5", model).assignment, expected)
    with Run(tmp_path / "some.h5", model) as run:
        stream = list(run.reconstruct())
    np.testing.assert_array_equal(stream[0].assignment, expected)
    assert reconstruct_files(tmp_path / "some.h5", tmp_path / "out.h5", model).events == 20
    assert reconstruct_files(tmp_path / "some.h5", tmp_path / "out", model, jobs=1).events == 20
    assert display_event(events, 0, model).record == display_event(events, 0, str(model)).record


def test_a_baseline_needs_no_model(of_pairs, pairs):
    with pytest.warns(PairtonWarning, match=f"{NONE}.*; only random is evaluated"):
        result = evaluate(of_pairs, topology=pairs, baselines=["random"])
    assert [method.name for method in result.methods] == ["random"]


def test_a_tree_of_known_particles_is_answered_by_the_network_of_particles():
    raw = {"name": "ttw", "event": ["t", "t", "W"], "particles": {"t": ["W", "b"], "W": ["q", "q"]}}
    assert model_for(parse_topology(raw)) == "any"
    assert model_for(load_topology("zh")) == "any"


def test_labels_choose_the_model_and_it_is_said(tmp_path, run, refused):
    """SPANet's files name no topology: the model with the most of their labels is used, aloud."""
    counts = {"t": ("b", "q1", "q2"), "tl": ("b", "l")}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, field in {"pt": 50.0, "eta": 0.5, "phi": 1.0, "mass": 5.0, "btag": 1.0}.items():
            file[f"INPUTS/Jets/{name}"] = np.full((3, 5), field)
            file[f"INPUTS/Leptons/{name}"] = np.full((3, 1), field)
        file["INPUTS/Jets/MASK"] = np.ones((3, 5), bool)
        file["INPUTS/Leptons/MASK"] = np.ones((3, 1), bool)
        file["INPUTS/Met/met"], file["INPUTS/Met/phi"] = np.full(3, 40.0), np.zeros(3)
        for particle, products in counts.items():
            for k, product in enumerate(products):
                file[f"TARGETS/{particle}/{product}"] = np.full(
                    3, 0 if product == "l" else k + 3 * (particle == "tl")
                )
    with pytest.warns(PairtonWarning, match=r"a\.h5 is read as ttbar_semilep, the built-in model .*the most"):
        assert Run(tmp_path / "a.h5").model.topology.name == "ttbar_semilep"
    shown = run("inspect", tmp_path / "a.h5", "--json")  # which chooses in the same way
    assert json.loads(shown.out)["topology"] == "ttbar_semilep"
    assert "a.h5 is read as ttbar_semilep, the built-in model" in shown.err
    assert "TARGETS lacks" in refused("inspect", tmp_path / "a.h5", "--topology", "hh4b")
