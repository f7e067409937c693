"""Files of one lepton plus jets in which something is wrong with a kind of object: one line in every format."""

import awkward as ak
import numpy as np
import pytest

from pairton.errors import FormatError, InputError, PairtonWarning
from pairton.formats import read
from root_files import write_tree

N = 120


def columns():
    """Jagged columns of jets and leptons, one number per event of met."""
    rng = np.random.default_rng(7)

    def objects(n, **more):
        shapes = {"pt": 30 + rng.exponential(40, (N, n)), "eta": rng.uniform(-2, 2, (N, n))}
        shapes |= {"phi": rng.uniform(-3, 3, (N, n)), "mass": np.full((N, n), 5.0)}
        return {name: ak.from_regular(ak.Array(values)) for name, values in (shapes | more).items()}

    met = {"met": ak.Array(20 + rng.exponential(30, N)), "phi": ak.Array(rng.uniform(-3, 3, N))}
    return {"jet": objects(5, btag=np.tile([1, 1, 0, 0, 0], (N, 1))), "lepton": objects(1), "met": met}


def flat(path, made):
    named = {f"{kind}_{name}": values for kind, fields in made.items() for name, values in fields.items()}
    return write_tree(path.with_suffix(".parquet"), "", named, "Parquet")


def nano(path, made):
    """NanoAOD kept as Parquet; all leptons are muons."""
    prefix = {"jet": "Jet_", "lepton": "Muon_", "met": "PuppiMET_"}
    named = {f"{prefix[kind]}{name}": values for kind, fields in made.items() for name, values in fields.items()}
    named = {
        name.replace("MET_met", "MET_pt").replace("Jet_btag", "Jet_btagPNetB"): v for name, v in named.items()
    }
    named |= {f"Electron_{name}": values[:, :0] for name, values in made.get("lepton", {}).items()}
    return write_tree(path.with_suffix(".parquet"), "", named | {"nJet": ak.num(made["jet"]["pt"])}, "Parquet")


@pytest.fixture(params=[flat, nano], ids=lambda write: write.__name__)
def load(request, tmp_path):
    """Write the columns and read them back, with no option but those that keep warnings away."""
    own = {"electron_id": "none", "muon_id": "none", "jet_id": "none"} if request.param is nano else {}
    how = {"btag": "PNetB:0.5"} if request.param is nano else {}

    def call(made):
        path = request.param(tmp_path / "events", made)
        return read(path, topology="ttbar_semilep", settings={**own, "overlap": "none"}, **how)

    call.is_nano = request.param is nano
    return call


def test_nothing_is_wrong(load):
    assert ak.all(load(columns()).counts["lepton"] == 1)


@pytest.mark.parametrize("kind", ["met", "lepton"])
def test_a_kind_is_not_in_the_file(load, kind):
    made = columns()
    del made[kind]
    with pytest.raises(
        FormatError, match=rf"no column for pt .* of {kind}s?; found .*--map {kind}\.pt="
    ) as caught:
        load(made)
    assert kind == "met" or "did you mean" not in str(caught.value)  # columns of jets or missing energy


@pytest.mark.parametrize(("kind", "size"), [("met", "met"), ("lepton", "pt")])
def test_one_kind_in_mev(load, kind, size):
    made = columns()
    made[kind][size] = made[kind][size] * 1000
    line = rf"GeV for jets, but .* so their units differ: name a column with the same units with --map {kind}\.pt="
    with pytest.raises(InputError, match=line):
        load(made)


def test_missing_energy_that_is_not_filled(load):
    made = columns()
    made["met"]["met"] = made["met"]["met"] * 0
    with pytest.warns(PairtonWarning, match="met is 0 in each of 120 events, so it may not be filled"):
        load(made)


def test_everything_in_mev(load):
    made = columns()
    for kind, name in (("jet", "pt"), ("jet", "mass"), ("lepton", "pt"), ("met", "met")):
        made[kind][name] = made[kind][name] * 1000
    # experiments have one unit, which no option changes
    line = "files of this format are in GeV" if load.is_nano else "looks like MeV: give --set units=MeV"
    with pytest.raises(InputError, match=line):
        load(made)
