"""A further input of a network: the width of jets, from a column of the file to the model that stores it."""

import json

import awkward as ak
import numpy as np
import pytest

import pairton
from event_files import write_events
from pairton.errors import PairtonError

pytest.importorskip("lightning.fabric")


def recipe(small_recipe):
    return small_recipe | {"inputs": {"jet": ["btag", {"field": "width", "transform": "log", "scale": 0.1}]}}


def test_a_field_of_jets_becomes_an_input(decays, small_recipe, tmp_path):
    from pairton.training import parse_recipe, train

    events = decays(200)
    width = ak.unflatten(np.random.default_rng(0).exponential(0.1, int(events.n_jets.sum())), events.n_jets)
    wide = write_events(events.replace(jets=ak.with_field(events.jets, width, "width")), tmp_path / "wide.h5")
    train(parse_recipe(recipe(small_recipe)), [wide], tmp_path / "model")
    stored = json.loads((tmp_path / "model" / "model.json").read_text())["inputs"]["jet"]
    assert stored == ["btag", {"field": "width", "transform": "log", "offset": 0.0, "scale": 0.1}]

    reco = pairton.reconstruct(wide, str(tmp_path / "model"))
    other = pairton.read(wide)
    other = other.replace(jets=ak.with_field(other.jets, other.jets.width + 1, "width"))
    assert (pairton.reconstruct(other, str(tmp_path / "model")).event_probability != reco.event_probability).all()

    narrow = write_events(events, tmp_path / "narrow.h5")
    with pytest.raises(PairtonError, match="width") as error:
        pairton.reconstruct(narrow, str(tmp_path / "model"))
    assert "\n" not in str(error.value)
