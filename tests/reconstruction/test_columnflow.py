"""The example for columnflow, with stand-ins for the two names that it takes from there."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import awkward as ak
import numpy as np
import pytest

import pairton

EXAMPLE = Path(__file__).parents[2] / "docs" / "columnflow_model.py"


@pytest.fixture
def example(monkeypatch):
    names = "columnflow", "columnflow.ml", "columnflow.columnar_util"
    _, ml, util = modules = [ModuleType(name) for name in names]
    ml.MLModel = object

    def set_ak_column(events, name, values):
        group, field = name.split(".")
        known = {each: events[group][each] for each in events[group].fields} if group in events.fields else {}
        return ak.with_field(events, ak.zip({**known, field: values}, depth_limit=1), group)

    util.set_ak_column = set_ak_column
    for name, module in zip(names, modules, strict=True):
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("columnflow_model", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_columns_are_those_of_a_reconstruction(example):
    jets = pairton.read("sample:ttbar_allhad")[:20].jets
    rng = np.random.default_rng(1)
    score = ak.unflatten(
        np.where(ak.flatten(jets.btag) > 0.5, 0.9, rng.uniform(0, 0.1, ak.sum(ak.num(jets)))), ak.num(jets)
    )
    fields = {name: getattr(jets, name) for name in ("pt", "eta", "phi", "mass")}
    events = ak.zip({"event": np.arange(20), "Jet": ak.zip({**fields, "btagPNetB": score})}, depth_limit=1)
    model = example.Tops()
    assert {name.partition(".")[2] for name in model.uses() if "." in name} <= set(events.Jet.fields)
    found = model.evaluate(None, events, [model.open_model(None)] * 2, None)
    wanted = pairton.reconstruct(pairton.make_jets(**fields, btagPNetB=score), btag="pnet_2022")
    assert {f"tops.{name}" for name in found.tops.fields} == model.produces()
    assert ak.all(found.tops.jets == wanted.index)
    assert ak.to_list(found.tops.mass) == ak.to_list(wanted.t.mass)
    assert found.event.tolist() == list(range(20))
