"""Files of others, as a user meets them: no flag but the topology. docs/results.md has the tables."""

import json
import os
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from click.testing import CliRunner

import pairton
from pairton.cli import cli
from pairton.formats import read
from pairton.reconstruction.provenance import result_metadata
from pairton.reconstruction.running import reconstruct_files

SAMPLES = Path(os.environ.get("PAIRTON_SAMPLES", Path(__file__).parents[3] / "shared" / "data" / "samples"))
TTBAR, TTH = SAMPLES / "nanoaod_cms_ttbar_v12.root", SAMPLES / "spanet_tth_semilep.h5"

pytestmark = [
    pytest.mark.skipif(not TTBAR.exists(), reason="needs the shared samples"),
    pytest.mark.filterwarnings("ignore::pairton.errors.PairtonWarning"),
]


def found(result):
    """Particle -> how many of those that are labelled were found, and how many are labelled."""
    (method,) = result.to_dict()["methods"].values()
    inclusive = {name: bins["inclusive"] for name, bins in method["efficiency"].items()}
    return {name: (each["correct"], each["total"]) for name, each in inclusive.items()}


def test_labelled_particles_of_cms_events_are_found():
    counts = found(pairton.evaluate(TTBAR, topology="ttbar_semilep", select=True))
    assert {name: total for name, (_, total) in counts.items()} == {"event": 32, "t": 36, "tl": 53, "W": 36}
    assert counts["event"][0] >= 21  # as many as the smallest chi-square
    assert counts["t"][0] >= 25
    assert counts["tl"][0] >= 38
    assert counts["W"][0] >= 29


@pytest.mark.parametrize("select", [False, True])
def test_one_truth_however_the_tree_is_named(select):
    """A name of a topology had 32 complete events, the same name of a model 42: their cuts differ."""
    named = {"topology": "ttbar_semilep"}, {"model": "ttbar_semilep"}
    results = [pairton.evaluate(TTBAR, select=select, **how) for how in (*named, named[0] | named[1])]
    texts = [[line for line in result.summary() if "objects used" in line] for result in results]
    assert texts[0] == texts[1] == texts[2]
    cuts = "pT > 25 GeV, |eta| < 2.5"
    assert texts[0][0].startswith(f"objects used: jets {cuts}; leptons {cuts}, as the topology says; --jets ")
    one, *others = (result.to_dict() for result in results)
    assert one == others[0] == others[1]
    assert one["complete"] == 32
    assert one["cuts"]["jet"] == {"pt": 25, "abs_eta": 2.5}
    (method,) = results[0].methods
    assert method.settings.cuts == one["cuts"]


def test_the_cuts_of_the_user_decide_for_labels_too():
    loose = pairton.evaluate(TTBAR, topology="ttbar_semilep", jets="pt>20,abs_eta<4.5", leptons="pt>20").to_dict()
    assert loose["complete"] == 42
    assert loose["cuts"]["jet"] == {"pt": 20, "abs_eta": 4.5}


def test_answers_have_no_soft_or_forward_jets_of_pile_up(tmp_path):
    reconstruct_files(TTBAR, tmp_path / "out.parquet", "ttbar_semilep")
    assert result_metadata(tmp_path / "out.parquet")["cuts"]["jet"] == {"pt": 25, "abs_eta": 2.5}
    events = read(TTBAR, topology="ttbar_semilep")
    for chosen, answers in (
        (True, ak.from_parquet(tmp_path / "out.parquet")),
        (True, pairton.reconstruct(events, "ttbar_semilep").to_columns()),
        (False, pairton.reconstruct(events, "ttbar_semilep", jets="pt>20,abs_eta<4.5").to_columns()),
    ):
        names = [f"{slot.name.replace('.', '_')}_jet" for slot in events.topology.slots if slot.kind == "jet"]
        jets = ak.from_regular(np.stack([np.asarray(answers[name]) for name in names], axis=1))
        used = events.jets[jets[jets >= 0]]
        assert bool(ak.all((used.pt >= 25) & (abs(used.eta) <= 2.5))) == chosen


def test_prepared_events_keep_the_jets_of_their_author(tmp_path):
    summary = reconstruct_files(TTH, tmp_path / "out.parquet", "tth_semilep")
    assert summary.events == 1000
    assert result_metadata(tmp_path / "out.parquet")["cuts"]["jet"] == {"pt": 20, "abs_eta": 4.5}


def test_nanoaod_kept_as_parquet_gives_the_same_answers(tmp_path):
    """Every branch of the real file, as columns of the same name."""
    ak.to_parquet(uproot.open(TTBAR)["Events"].arrays(), tmp_path / "nano.parquet")
    pairs = [read(path, topology="ttbar_semilep") for path in (TTBAR, tmp_path / "nano.parquet")]
    one, other = (pairton.reconstruct(events) for events in pairs)
    np.testing.assert_array_equal(pairs[0].truth, pairs[1].truth)
    np.testing.assert_array_equal(one.assignment, other.assignment)
    np.testing.assert_array_equal(one.status, other.status)
    np.testing.assert_array_equal(one.event_probability, other.event_probability)


def test_no_lepton_is_a_jet_of_an_answer(tmp_path):
    """Counted with uproot alone; without the removal of jets beside leptons many answers have one."""
    names = ["Jet_eta", "Jet_phi", "Muon_pt", "Muon_eta", "Muon_phi", "Muon_tightId", "Muon_pfRelIso04_all"]
    stored = uproot.open(TTBAR)["Events"].arrays(names)
    muons = (stored.Muon_pt > 15) & stored.Muon_tightId & (stored.Muon_pfRelIso04_all < 0.15)
    with_muon = {}
    for overlap in ("0.4", "none"):
        output = tmp_path / f"{overlap}.parquet"
        reconstruct_files(TTBAR, output, "ttbar_allhad", settings={"overlap": overlap})
        assert result_metadata(output)["inputs"][0]["read_as"]["overlap"] == (0.4 if overlap == "0.4" else "none")
        answers = ak.from_parquet(output)
        chosen = [name for name in answers.fields if name.endswith("_jet")]
        with_muon[overlap] = 0
        for row, good, answer in zip(stored, muons, answers, strict=True):
            jets = [answer[name] for name in chosen if answer[name] >= 0]
            eta = row.Jet_eta.to_numpy()[jets, None] - row.Muon_eta[good].to_numpy()
            phi = row.Jet_phi.to_numpy()[jets, None] - row.Muon_phi[good].to_numpy()
            phi = (phi + np.pi) % (2 * np.pi) - np.pi
            with_muon[overlap] += bool((np.hypot(eta, phi) < 0.4).any())
    assert with_muon["0.4"] == 0
    assert with_muon["none"] > 10


@pytest.mark.long
def test_labelled_particles_of_spanet_tth_events_are_found():
    """Names of particles are found by their decays, or given; the neutrino's pz is compared with its truth."""
    result = pairton.evaluate(TTH, topology="tth_semilep", settings={"neutrino_unit": "100"})
    counts = found(result)
    assert {name: total for name, (_, total) in counts.items()} == {
        "event": 230, "t": 347, "H": 519, "tl": 621, "W": 374,
    }  # fmt: skip
    for name, chi_square in {"event": 75, "t": 129, "H": 196, "tl": 340, "W": 185}.items():
        assert counts[name][0] >= chi_square, name
    named = pairton.evaluate(TTH, topology="tth_semilep", map={"t": "ht", "tl": "lt", "H": "h"})
    assert found(named) == counts
    (neutrinos,) = (method["neutrino_pz"] for method in result.to_dict()["methods"].values())
    assert neutrinos["neutrinos"] == 1000
    assert 50 < neutrinos["resolution"]["value"] < 110  # GeV


@pytest.mark.parametrize(
    ("name", "column", "passes", "reason"),
    [
        ("nanoaod_cms_ttbar_v12.root", "Jet_jetId", lambda flag: flag & 2 == 2, "fail jet_id=tight"),
        ("physlite_atlas.root", "AnalysisJetsAuxDyn.NNJvtPass", lambda flag: flag != 0, "fail jvt (NNJvtPass)"),
    ],
)
def test_inspect_says_which_rule_rejects_jets(name, column, passes, reason):
    """Overlap with leptons was named as the only reason."""
    arguments = ["inspect", str(SAMPLES / name), "--topology", "ttbar_semilep"]
    tree = uproot.open(SAMPLES / name)["Events" if name.startswith("nano") else "CollectionTree"]
    failing = int(ak.sum(~passes(tree[column].array())))
    assert failing > 0
    counts = json.loads(CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False).stdout)
    jets = counts["objects"]["jet"]
    assert jets["rejected"][reason] == failing
    near = sum(int(n) * count for n, count in jets["counts"].items()) - jets["usable"] - failing
    shown = " ".join(CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout.split())
    assert f"{failing} {reason}, {near} within 0.4 of leptons above 15 GeV" in shown
    for kind, found in counts["objects"].items():  # every object and every event that is lost has a reason
        total, used = (sum(int(n) * count for n, count in found[what].items()) for what in ("counts", "passing"))
        reasons = sum(sum(found.get(what, {}).values()) for what in ("rejected", "cut"))
        assert total - used == reasons + (near if kind == "jet" else 0)
    assert counts["events"] - counts["selected"] == sum(counts["lost"].values())
    assert "electrons fail" in shown
