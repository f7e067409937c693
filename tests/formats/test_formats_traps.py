"""Files of one lepton plus jets in which something is wrong: one line or a status, in every format.

The files have 120 events of five jets, one lepton and missing energy; each trap changes one thing.
"""

import awkward as ak
import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from pairton.cli import main
from root_files import write_tree

N = 120


def columns(leptons=1):
    """Jagged columns of jets and leptons, one number per event of met; the same events at each call."""
    rng = np.random.default_rng(7)

    def objects(n, least, mean):
        values = {
            "pt": least + rng.exponential(mean, (N, n)),
            "eta": rng.uniform(-2, 2, (N, n)),
            "phi": rng.uniform(-3, 3, (N, n)),
        }
        return {name: ak.from_regular(ak.Array(each)) for name, each in values.items()}

    jets, found = objects(5, 30, 40), objects(2, 30, 30)
    jets["mass"] = jets["pt"] * 0.1
    jets["btag"] = ak.from_regular(ak.Array(np.tile([1, 1, 0, 0, 0], (N, 1))))
    found |= {"mass": found["pt"] * 0, "charge": found["pt"] * 0 + 1}
    met = {"met": ak.Array(20 + rng.exponential(30, N)), "phi": ak.Array(rng.uniform(-3, 3, N))}
    return {"jet": jets, "lepton": {name: each[:, :leptons] for name, each in found.items()}, "met": met}


def spanet(folder, made):
    path = folder / "events.h5"
    with h5py.File(path, "w") as file:
        for kind, fields in made.items():
            for name, values in fields.items():
                if kind == "met":
                    file[f"INPUTS/Met/{name}"] = values.to_numpy()
                    continue
                width = max(1, int(ak.max(ak.num(values))))
                padded = ak.fill_none(ak.pad_none(values, width), 0).to_numpy()
                file[f"INPUTS/{kind.title()}s/{name}"] = padded
                file.require_dataset(f"INPUTS/{kind.title()}s/MASK", padded.shape, bool)[...] = (
                    np.arange(width) < ak.num(values).to_numpy()[:, None]
                )
    return path


def flat(made):
    return {f"{kind}_{name}": values for kind, fields in made.items() for name, values in fields.items()}


def parquet(folder, made):
    return write_tree(folder / "events.parquet", "", flat(made), "Parquet")


def root(folder, made):
    return write_tree(folder / "events.root", "events", flat(made))


def nano(folder, made):
    """NanoAOD kept as Parquet: all leptons are muons that pass the identification."""
    named = {f"Jet_{name}": values for name, values in made["jet"].items() if name != "btag"}
    named["nJet"] = ak.num(made["jet"]["pt"])
    named["Jet_btagPNetB"] = made["jet"]["btag"] * 0.9 + 0.01
    named["Jet_jetId"] = ak.values_astype(made["jet"]["btag"] * 0 + 6, np.uint8)
    if "lepton" in made:
        muons = made["lepton"] | {"tightId": made["lepton"]["pt"] > 0, "pfRelIso04_all": made["lepton"]["pt"] * 0}
        named |= {f"Muon_{name}": values for name, values in muons.items()}
        named |= {f"Electron_{name}": values[:, :0] for name, values in made["lepton"].items()}
        named["Electron_mvaIso_WP80"] = named["Electron_pt"] > 0
    if "met" in made:
        named |= {"PuppiMET_pt": made["met"]["met"], "PuppiMET_phi": made["met"]["phi"]}
    return write_tree(folder / "nano.parquet", "", named, "Parquet")


@pytest.fixture(params=[spanet, parquet, root, nano], ids=lambda write: write.__name__)
def write(request):
    return request.param


@pytest.fixture
def run(tmp_path, capsys):
    """`pairton reconstruct` with no flag but the topology: exit code, output, lines of warnings and errors."""

    def call(path):
        with pytest.raises(SystemExit) as stop:
            main(["reconstruct", str(path), "--topology", "ttbar_semilep", "-o", str(tmp_path / "out.parquet")])
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err.splitlines()

    return call


def refused(found, tmp_path):
    """The one line of an error; nothing is written."""
    code, _, lines = found
    assert code == 2
    assert not (tmp_path / "out.parquet").exists()
    (line,) = (line for line in lines if not line.startswith("pairton: warning"))
    return line


def test_nothing_is_wrong(write, run, tmp_path):
    code, out, lines = run(write(tmp_path, columns()))
    assert code == 0, lines
    assert out.startswith("120 events (")
    result = pq.read_table(tmp_path / "out.parquet")
    answered = np.array(result["status"].to_pylist()) == "ok"
    assert answered.mean() > 0.5  # some jets are next to the lepton
    assert set(np.array(result["tl_l_lepton"])[answered]) == {0}
    assert not any("no event" in line for line in lines)


@pytest.mark.parametrize("kind", ["met", "lepton"])
def test_a_kind_is_not_in_the_file(write, run, tmp_path, kind):
    made = columns()
    del made[kind]
    line = refused(run(write(tmp_path, made)), tmp_path)
    assert f" {kind}" in line
    assert f"--map {kind}" in line
    assert kind == "met" or "did you mean" not in line  # columns of jets or missing energy


def test_no_lepton_in_any_event(write, run, tmp_path):
    code, out, lines = run(write(tmp_path, columns(leptons=0)))
    assert code == 0, lines
    assert "(120 incomplete)" in out
    assert any("the objects of a complete ttbar_semilep, 4 jets, 1 lepton:" in line for line in lines)
    result = pq.read_table(tmp_path / "out.parquet")
    assert set(result["tl_l_lepton"].to_pylist()) == set(result["tl_b_jet"].to_pylist()) == {-1}
    assert set(result["n_leptons"].to_pylist()) == {0}


def test_two_leptons_where_one_is_expected(write, run, tmp_path):
    code, out, lines = run(write(tmp_path, columns(leptons=2)))
    assert code == 0, lines
    assert " ok" not in out
    told = "no event is like those that ttbar_semilep was trained on, with 3 to 14 jets, 1 lepton, 1 met"
    assert any(told in line for line in lines)
    result = pq.read_table(tmp_path / "out.parquet")
    assert set(result["status"].to_pylist()) <= {"outside_domain", "incomplete"}
    assert set(result["n_leptons"].to_pylist()) == {2}


@pytest.mark.parametrize("kind", ["met", "lepton"])
def test_one_kind_in_mev(write, run, tmp_path, kind):
    made = columns()
    size = "met" if kind == "met" else "pt"
    made[kind][size] = made[kind][size] * 1000
    line = refused(run(write(tmp_path, made)), tmp_path)
    assert "GeV for jets, but " in line
    assert f"so their units differ: name a column with the same units with --map {kind}.pt=" in line


def test_missing_energy_that_is_not_filled(write, run, tmp_path):
    made = columns()
    made["met"]["met"] = made["met"]["met"] * 0
    code, _, lines = run(write(tmp_path, made))
    assert code == 0, lines
    assert any("met is 0 in each of 120 events, so it may not be filled" in line for line in lines)


def test_everything_in_mev(write, run, tmp_path):
    made = columns()
    for kind, name in (("jet", "pt"), ("jet", "mass"), ("lepton", "pt"), ("met", "met")):
        made[kind][name] = made[kind][name] * 1000
    line = refused(run(write(tmp_path, made)), tmp_path)
    fixed = write is nano  # experiments have one unit, which no option changes
    assert ("files of this format are in GeV" if fixed else "looks like MeV: give --set units=MeV") in line
