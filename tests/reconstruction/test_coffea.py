"""The coffea example of the documentation, and what it needs: models that travel light."""

from __future__ import annotations

import importlib
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot

from leptonic_tops import leptonic_events
from pairton.models.model import load_model
from pairton.reconstruction.running import reconstruct

EXAMPLE = Path(__file__).parents[2] / "docs" / "coffea_processor.py"


@pytest.fixture
def model(model_folder: Path) -> str:
    return str(model_folder / "model.onnx")


def test_a_model_pickles_small_and_its_copies_share_a_session(model: str) -> None:
    loaded = load_model(model, threads=1)
    session = loaded.engine.session
    content = pickle.dumps(loaded)
    assert len(content) < 5000
    copies = [pickle.loads(content) for _ in range(2)]
    assert "session" not in vars(copies[0].engine)  # opened on first use only
    assert copies[0].engine.session is copies[1].engine.session is session
    assert load_model(model, threads=2).engine.session is not session


def write_nano(path: Path, n: int, version: int = 12) -> ak.Array:
    """Random jets, of which some fail the identification; version 15 says so by energy fractions."""
    rng = np.random.default_rng(5)
    counts = rng.integers(4, 10, n)
    numbers = {
        name: rng.random(counts.sum()).astype(np.float32) for name in ("pt", "eta", "phi", "mass", "btagPNetB")
    }
    numbers |= {"pt": 25 + 100 * numbers["pt"], "eta": 4 * numbers["eta"] - 2, "phi": 6 * numbers["phi"] - 3}
    jets = {name: ak.unflatten(values, counts) for name, values in numbers.items()}
    jets["jetId"] = ak.unflatten((6 * (rng.random(counts.sum()) > 0.1)).astype(np.uint8), counts)
    stored = dict(jets)
    if version == 15:
        good = stored.pop("jetId") > 0
        stored |= {
            name: ak.values_astype(ak.where(good, 0.5, 1.0), np.float32) for name in ("neHEF", "neEmEF", "chHEF")
        }
        stored |= {f"{name}Multiplicity": ak.values_astype(good * 3, np.uint8) for name in ("ch", "ne")}
    with uproot.recreate(path) as file:
        fields = {name: values.layout.content.dtype for name, values in stored.items()}
        scalars = {"run": np.uint32, "luminosityBlock": np.uint32, "event": np.uint64}
        file.mktree("Events", {"Jet": f"var * {{{', '.join(f'{k}: {v}' for k, v in fields.items())}}}", **scalars})
        file["Events"].extend({"Jet": ak.zip(stored), **{k: np.arange(n, dtype=v) for k, v in scalars.items()}})
    return ak.zip(jets)


@pytest.mark.long
@pytest.mark.parametrize("version", [12, 15])
@pytest.mark.filterwarnings("ignore")  # of coffea and what it builds on
def test_the_example_runs_in_one_process_and_in_two(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    pytest.importorskip("coffea", reason="pip install coffea")
    from coffea import processor

    monkeypatch.syspath_prepend(EXAMPLE.parent)  # workers take the path over
    example: Any = importlib.import_module(EXAMPLE.stem)
    jets = write_nano(tmp_path / "nano.root", 300, version)
    files = [str(tmp_path / "nano.root")]
    one = example.run(files, model, chunksize=100)
    two = example.run(files, model, processor.FuturesExecutor(workers=2, status=False), chunksize=100)
    marked = ak.with_field(jets, (jets.jetId & 2) != 0, "usable")
    alone = reconstruct(marked, load_model(model), btag="pnet_2022")
    answered = alone.status == 0
    assert one["events"] == two["events"] == 300
    assert one["answered"] == two["answered"] == answered.sum() > 100
    masses = one["mass"].values(flow=True).sum()
    np.testing.assert_allclose(masses, ak.sum(alone.t.probability[answered]), rtol=1e-5)
    np.testing.assert_allclose(two["mass"].values(), one["mass"].values(), rtol=1e-5)
    chosen = alone.assignment[answered, alone.topology.slot_index("t1.b")]
    scores = jets.btagPNetB[answered][np.arange(answered.sum()), chosen]
    np.testing.assert_allclose(one["b_score"], ak.sum(scores), rtol=1e-5)
    assert ak.all(jets.jetId[answered][np.arange(answered.sum()), chosen] == 6)


def test_the_processor_of_lepton_and_jets(monkeypatch: pytest.MonkeyPatch) -> None:
    """On arrays as NanoEvents has them, without coffea."""
    stub = types.ModuleType("coffea.processor")
    stub.ProcessorABC = object  # type: ignore[attr-defined]
    schemas = types.ModuleType("coffea.nanoevents")
    schemas.NanoAODSchema = None  # type: ignore[attr-defined]
    package = types.ModuleType("coffea")
    package.processor = stub  # type: ignore[attr-defined]
    for name, module in (("coffea", package), ("coffea.processor", stub), ("coffea.nanoevents", schemas)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    monkeypatch.delitem(sys.modules, EXAMPLE.stem, raising=False)
    example: Any = importlib.import_module(EXAMPLE.stem)
    events, _ = leptonic_events(1, 60)
    momentum = ("pt", "eta", "phi", "mass")
    jets, leptons = ({n: getattr(events.objects[kind], n) for n in momentum} for kind in ("jet", "lepton"))
    score = ak.where(events.jets.btag > 0.5, 0.99, 0.01)
    electrons, muons = ({n: values[:, :k] for n, values in leptons.items()} for k in (0, None))
    nano = ak.zip(
        {
            "Jet": ak.zip(jets | {"btagPNetB": score, "jetId": ak.full_like(jets["pt"], 6, dtype=np.uint8)}),
            "Electron": ak.zip(electrons | {"charge": electrons["pt"], "cutBased": electrons["pt"]}),
            "Muon": ak.zip(
                muons
                | {"charge": events.objects["lepton"].charge, "pfRelIso04_all": muons["pt"] * 0}
                | {"tightId": muons["pt"] > 0}
            ),
            "PuppiMET": ak.zip({name: ak.firsts(events.objects["met"][name]) for name in ("pt", "phi")}),
        },
        depth_limit=1,
    )
    found = example.LeptonJets().process(nano)
    assert found["events"] == 60
    assert 10 < found["selected"] <= 60
    means = {
        name: np.average(found["t"].axes["mass"].centers, weights=found["t"][name, :].values())
        for name in ("nominal", "up", "down")
    }
    assert means["down"] < means["up"]
    assert found["tt"]["nominal", sum].value == pytest.approx(found["selected"], rel=0.2)  # the others: overflow
