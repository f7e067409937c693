"""Leptons as analyses take them: identified, apart from jets, with missing energy, from every format."""

from contextlib import nullcontext

import awkward as ak
import h5py
import numpy as np
import pytest
import uproot

from event_files import write_events
from pairton.errors import ConfigError, FormatError, InputError, PairtonWarning
from pairton.formats import open_source, read
from pairton.formats.flat_objects import FlatObjects
from pairton.topology import load_topology, parse_topology
from root_files import write_tree

SEMILEP = load_topology("ttbar_semilep")
HARD = 1 << 7


def delta_r(eta, phi, other_eta, other_phi):
    return float(np.hypot(eta - other_eta, (phi - other_phi + np.pi) % (2 * np.pi) - np.pi))


# -- distances ---------------------------------------------------------------------------------------------


def test_jets_near_leptons_against_brute_force():
    rng = np.random.default_rng(1)

    def some(most):
        counts = rng.integers(0, most, 200)
        size = int(counts.sum())
        momenta = {"eta": rng.uniform(-1, 1, size), "phi": rng.uniform(-3 * np.pi, 3 * np.pi, size)}
        return FlatObjects(counts, {"pt": np.ones(size), **momenta})

    jets, leptons = some(9), some(4)
    used = rng.uniform(size=len(leptons)) < 0.8
    (eta, phi), (other_eta, other_phi) = ((o.fields["eta"], o.fields["phi"]) for o in (jets, leptons))
    expected = [
        any(
            used[k] and delta_r(eta[j], phi[j], other_eta[k], other_phi[k]) < 0.7
            for k in np.flatnonzero(leptons.event == jets.event[j])
        )
        for j in range(len(jets))
    ]
    assert sum(expected) > 50
    assert jets.near(leptons, used, 0.7).tolist() == expected


# -- NanoAOD -----------------------------------------------------------------------------------------------

# Jets 0 to 4 on a line; an electron beside jet 4, a muon far from all.
NANO = {
    "Jet_pt": [[90.0, 80.0, 70.0, 60.0, 50.0]],
    "Jet_eta": [[-2.0, -1.0, 0.0, 1.0, 2.0]],
    "Jet_phi": [[0.0] * 5],
    "Jet_mass": [[9.0] * 5],
    "Jet_btagPNetB": [[0.9, 0.8, 0.7, 0.6, 0.55]],
    "Jet_jetId": [[6] * 5],
    "Electron_pt": [[40.0, 30.0]],
    "Electron_eta": [[2.0, -2.0]],
    "Electron_phi": [[0.1, 2.0]],
    "Electron_charge": [[-1, 1]],
    "Electron_cutBased": [[4, 4]],
    "Electron_mvaFall17V2Iso_WP80": [[True, False]],
    "Electron_mvaIso_WP80": [[False, True]],
    "Electron_mvaIso_WP90": [[True, True]],
    "Muon_pt": [[35.0, 28.0, 26.0]],
    "Muon_eta": [[0.0, 0.0, 1.0]],
    "Muon_phi": [[3.0, 2.0, -2.0]],
    "Muon_charge": [[-1, 1, 1]],
    "Muon_tightId": [[True, True, False]],
    "Muon_mediumId": [[True, True, True]],
    "Muon_pfRelIso04_all": [[0.1, 0.2, 0.1]],
    "PuppiMET_pt": [50.0],
    "PuppiMET_phi": [1.0],
    "MET_pt": [60.0],
    "MET_phi": [1.5],
    "PFMET_pt": [70.0],
    "PFMET_phi": [2.0],
}
VERSIONS = {
    "15": ("MET_pt", "Electron_mvaFall17V2Iso_WP80"),
    "12": ("PFMET_pt", "Electron_mvaFall17V2Iso_WP80"),
    "9": ("PFMET_pt", "Electron_mvaIso_WP80"),
    "old": ("PFMET_pt", "PuppiMET_pt", "Electron_mvaIso_WP80", "Electron_mvaFall17V2Iso_WP80"),
}
SILENT = {"electron_id": "mvaIso_WP80", "muon_id": "tightId", "overlap": "0.4"}


def nano(path, without=(), **columns):
    content = {name: values for name, values in NANO.items() if name not in without}
    return write_tree(path, "Events", content | columns)


def nano_read(path, settings=None, **options):
    how = {"btag": "PNetB:0.5", "topology": SEMILEP} | options
    return read(path, **how, settings=settings or {})


@pytest.mark.parametrize(
    ("version", "electron_id", "electrons", "met"),
    [
        ("15", "mvaIso_WP80", [False, True], 50),
        ("12", "mvaIso_WP80", [False, True], 50),
        ("9", "mvaFall17V2Iso_WP80", [True, False], 50),
        ("old", "cutBased >= 4", [True, True], 60),
    ],
)
def test_leptons_of_every_version(tmp_path, version, electron_id, electrons, met):
    path = nano(tmp_path / "nano.root", VERSIONS[version])
    with pytest.warns(PairtonWarning) as said:
        events = nano_read(path)
    (line,) = [str(warning.message) for warning in said]
    assert line.startswith(
        f"by default, leptons are electrons ({electron_id}) and muons (tightId, pfRelIso04_all < 0.15), and jets "
        "within delta R = 0.4 of a lepton above 15 GeV are not used: change this with --set electron_id=…, "
        "--set muon_id=…, --set overlap=…"
    )
    assert events.usable["lepton"].tolist() == [[*electrons, True, False, False]]
    assert events.counts["lepton"].tolist() == [5]  # none is taken out: indices refer to the file
    assert events.usable["jet"].tolist() == [[True] * 4 + [not electrons[0]]]
    assert events.objects["met"].pt.tolist() == [[met]]
    assert events.metadata["electron_id"] == electron_id
    assert events.metadata["met"] == ("PuppiMET_pt" if met == 50 else "MET_pt")


def test_further_fields_of_leptons(tmp_path):
    own = {"Electron_pdgId": [[11, -11]], "Muon_pdgId": [[13, -13, -13]]}
    path = nano(tmp_path / "nano.root", **own)
    leptons = nano_read(path, SILENT, fields={"lepton": ["charge"]}).objects["lepton"]
    assert leptons.pdgid.tolist() == [[11, -11, 13, -13, -13]]
    assert leptons.charge.tolist() == [[-1, 1, -1, 1, 1]]
    assert nano_read(path, SILENT, map={"met.pt": "MET_phi"}).objects["met"].pt.tolist() == [[1.5]]
    with pytest.raises(FormatError, match=r"no column for width .* of leptons; .*--map lepton\.width="):
        nano_read(path, SILENT, fields={"lepton": ["width"]})
    muons = parse_topology(
        SEMILEP.to_dict() | {"objects": {"l": "muon"}, "selection": {}, "invisible": {}}, "test"
    )
    own = {"electron_id": "none", "muon_id": "none", "overlap": "none"}
    assert nano_read(path, own, topology=muons).objects["muon"].charge.tolist() == [[-1, 1, 1]]


def test_what_was_chosen_is_not_called_a_default(tmp_path):
    with pytest.warns(PairtonWarning) as said:
        nano_read(nano(tmp_path / "nano.root"), {"muon_id": "mediumId", "overlap": "none"})
    (line,) = [str(warning.message) for warning in said]
    assert line == "leptons are electrons (mvaIso_WP80) and muons (mediumId): change this with --set electron_id=…"


def test_files_of_one_run_agree_on_what_a_lepton_is(tmp_path):
    paths = [nano(tmp_path / f"{v}.root", VERSIONS[v]) for v in ("12", "9")]
    line = r"9\.root is read with electron_id=mvaFall17V2Iso_WP80, but .*12\.root with mvaIso_WP80: choose one"
    with pytest.warns(PairtonWarning), pytest.raises(InputError, match=line):
        nano_read(paths)
    assert len(nano_read(paths, SILENT | {"electron_id": "cutBased >= 4"})) == 2


def test_identification_and_missing_energy_by_setting(tmp_path):
    path = nano(tmp_path / "nano.root")
    all_of_them = {"electron_id": "none", "muon_id": "none", "overlap": "none"}
    events = nano_read(path, all_of_them)
    assert ak.all(events.usable["lepton"])
    assert ak.all(events.usable["jet"])
    assert events.metadata["reading"] == {"settings": all_of_them}
    loose = {"electron_id": "mvaIso_WP90, pt > 35", "muon_id": "mediumId, pfRelIso04_all < 0.15", "overlap": "0.4"}
    events = nano_read(path, loose | {"met": "PFMET"})
    assert events.usable["lepton"].tolist() == [[True, False, True, False, True]]
    assert events.objects["met"].pt.tolist() == [[70]]
    with pytest.raises(FormatError, match=r"no column for pt \(ChsMET_pt\) or|no column for pt"):
        nano_read(path, loose | {"met": "ChsMET"})
    with pytest.raises(FormatError, match=r"lacks Muon_tightID; .*did you mean 'Muon_tightId'"):
        nano_read(path, SILENT | {"muon_id": "tightID"})
    for near, used in ({"overlap": "0.2"}, False), ({"overlap": "0.05"}, True), ({"lepton_pt": "45"}, True):
        how = {"electron_id": "none", "muon_id": "none", "overlap": "0.4"} | near  # an electron of 40 GeV at 0.1
        assert nano_read(path, how).usable["jet"].tolist() == [[True] * 4 + [used]]
    muons = tuple(name for name in NANO if name.startswith("Muon"))
    with pytest.raises(FormatError, match=r"lacks Muon_pt.*needed by --set muon_id=tightId"):
        nano_read(nano(tmp_path / "without.root", muons), {"muon_id": "tightId"}, topology="ttbar_allhad")


def test_the_selection_counts_identified_leptons(tmp_path):
    """One in the first event, two in the second, none in the third, one too soft in the fourth."""
    many = {name: values * 4 for name, values in NANO.items()}
    many["Muon_tightId"] = [[True, False, False], [True, True, False], [False] * 3, [True, False, False]]
    many["Muon_pfRelIso04_all"] = [[0.1] * 3] * 4
    many["Muon_pt"] = [*many["Muon_pt"][:3], [24.0, 28.0, 26.0]]
    path = write_tree(tmp_path / "nano.root", "Events", many)
    events = nano_read(path, SILENT | {"electron_id": "pt > 1000"})
    assert ak.sum(events.passes["lepton"], axis=1).tolist() == [1, 2, 0, 0]
    assert events.selected.tolist() == [True, False, False, False]
    assert events.objects["lepton"].flavour[0].tolist() == [11, 11, 13, 13, 13]
    every = nano_read(path, SILENT | {"electron_id": "none"})
    assert every.selected.tolist() == [False, False, False, False]


def test_leptons_that_cannot_be_identified(tmp_path):
    path = nano(tmp_path / "nano.root", ("Muon_pfRelIso04_all",))
    line = r"muons cannot be identified, because the file lacks the fields of `tightId, pfRelIso04_all < 0\.15`"
    with pytest.raises(FormatError, match=line + r": give --set muon_id=CONDITIONS, or --set muon_id=none"):
        nano_read(path)
    with pytest.warns(PairtonWarning, match=line + ", so jets near them are used"):
        events = nano_read(path, {"overlap": "0.4"}, topology="ttbar_allhad")
    assert ak.all(events.usable["jet"])  # the electron beside a jet is not identified
    assert nano_read(path, SILENT | {"muon_id": "tightId"}).usable["lepton"][0].tolist()[2:] == [True, True, False]


def test_a_file_without_electrons_or_without_leptons(tmp_path):
    electrons = tuple(name for name in NANO if name.startswith("Electron"))
    muons = tuple(name for name in NANO if name.startswith("Muon"))
    path = nano(tmp_path / "muons.root", electrons)
    with pytest.warns(PairtonWarning, match=r"no column Electron_pt, so leptons are only those of Muon"):
        events = nano_read(path, {"muon_id": "none", "overlap": "none"})
    assert events.objects["lepton"].flavour.tolist() == [[13, 13, 13]]
    neither = nano(tmp_path / "none.root", (*electrons, *muons))
    with pytest.raises(FormatError, match=r"no column for pt \(Electron_pt\), .* of leptons; .*--map lepton\.pt="):
        nano_read(neither)
    assert ak.all(nano_read(neither, topology="ttbar_allhad").usable["jet"])
    nothing = tuple(f"{kind}_pt" for kind in ("PuppiMET", "MET", "PFMET"))
    with pytest.raises(FormatError, match=r"no column for pt \(PuppiMET_pt\) of met; .*--map met\.pt=COLUMN"):
        nano_read(nano(tmp_path / "no_met.root", nothing), SILENT)
    names = {f"lepton.{name}": f"Muon_{name}" for name in ("pt", "eta", "phi")}
    mapped = nano_read(path, {"muon_id": "none", "overlap": "none"}, map=names)
    assert mapped.objects["lepton"].pt.tolist() == [[35, 28, 26]]  # once, not for each collection


def test_leptons_that_are_mapped_to_one_collection_are_identified(tmp_path):
    other = {f"LowPtElectron_{name}": [[9.0]] for name in ("pt", "eta", "phi")}
    path = nano(tmp_path / "nano.root", **other)
    with pytest.warns(PairtonWarning, match=r"leptons are muons \(tightId, pfRelIso04_all < 0\.15\), and jets"):
        events = nano_read(path, map={"lepton.pt": "Muon_pt"})  # eta and phi follow
    assert events.objects["lepton"].eta.tolist() == [[0, 0, 1]]
    assert events.objects["lepton"].flavour.tolist() == [[13, 13, 13]]
    assert events.usable["lepton"].tolist() == [[True, False, False]]
    assert events.metadata["muon_id"] == "tightId, pfRelIso04_all < 0.15"
    names = {f"lepton.{name}": f"LowPtElectron_{name}" for name in ("pt", "eta", "phi")}
    with pytest.warns(PairtonWarning, match="leptons with pt=LowPtElectron_pt are not identified, because they"):
        events = nano_read(path, SILENT, map=names)
    assert events.usable["lepton"].tolist() == [[True]]
    assert not events.metadata.keys() & {"electron_id", "muon_id"}


# W -> u d~ on one side, W -> tau nu on the other, the tau to a muon, which radiates; an electron from a b.
TAU = {
    "pdgId": [21, 21, 6, -6, 24, 5, -24, -5, 2, -1, 15, -16, 15, 13, -14, 16, 13, 11],
    "genPartIdxMother": [-1, -1, 0, 0, 2, 2, 3, 3, 4, 4, 6, 6, 10, 12, 12, 12, 13, 7],
    "status": [21, 21, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 2, 1, 1, 1, 1, 1],
    "hard": [1] * 12 + [0] * 6,
    "eta": [0] * 5 + [-2.0, 0, -1.0, 0.0, 1.0, 2.5, 0, 2.5, 0.05, 0, 0, 0.3, -2.0],
    "phi": [0] * 5 + [0.0, 0, 0.0, 0.0, 0.0, 2.5, 0, 2.5, 2.95, 0, 0, 2.5, 2.0],
}


def test_a_lepton_of_a_tau_is_the_lepton_of_its_top(tmp_path):
    flags = [HARD * hard for hard in TAU["hard"]]
    record = {f"GenPart_{n}": [TAU[n]] for n in ("pdgId", "genPartIdxMother", "status", "eta", "phi")}
    record |= {"GenPart_statusFlags": [flags]}
    path = nano(tmp_path / "tau.root", **record)
    assert nano_read(path, SILENT).truth.tolist() == [[2, 3, 0, 1, 2]]  # the first muon, not the electron of the b
    direct = dict(record)
    direct["GenPart_pdgId"] = [[*TAU["pdgId"][:10], 13, -14, *TAU["pdgId"][12:]]]
    direct["GenPart_eta"] = [[*TAU["eta"][:10], 0.0, *TAU["eta"][11:]]]
    direct["GenPart_phi"] = [[*TAU["phi"][:10], 2.1, *TAU["phi"][11:]]]
    found = nano_read(nano(tmp_path / "mu.root", **direct), SILENT)
    assert found.truth.tolist() == [[2, 3, 0, 1, 3]]
    hadronic = dict(record) | {"GenPart_pdgId": [[*TAU["pdgId"][:13], 211, -14, 16, 211, 11]]}
    assert nano_read(nano(tmp_path / "had.root", **hadronic), SILENT).truth.tolist() == [[2, 3, 0, 1, -1]]


def test_the_real_file_agrees_with_loops_over_its_events(sample):
    """Leptons, jets, selection of 200 CMS events, computed without arrays of ours; 53 have a tight lepton of an
    analysis (26 GeV for muons, 30 for electrons, by cuts)."""
    path = sample("nanoaod_cms_ttbar_v12.root")
    with pytest.warns(PairtonWarning):
        events = read(path, topology=SEMILEP)
    raw = uproot.open(path)["Events"].arrays(
        [f"Muon_{n}" for n in ("pt", "eta", "phi", "tightId", "pfRelIso04_all")]
        + [f"Electron_{n}" for n in ("pt", "eta", "phi", "mvaIso_WP80", "cutBased")]
        + ["Jet_pt", "Jet_eta", "Jet_phi", "Jet_jetId", "Jet_btagPNetB", "PuppiMET_pt"],
        library="np",
    )
    tight = selected = 0
    for row in range(len(events)):
        event = {name: values[row] for name, values in raw.items()}
        electrons = zip(*(event[f"Electron_{n}"] for n in ("pt", "eta", "phi", "mvaIso_WP80")), strict=True)
        leptons = [(*momentum, bool(good)) for *momentum, good in electrons]
        muons = zip(*(event[f"Muon_{n}"] for n in ("pt", "eta", "phi", "tightId", "pfRelIso04_all")), strict=True)
        leptons += [(pt, eta, phi, good and iso < 0.15) for pt, eta, phi, good, iso in muons]
        near = [
            any(good and pt > 15 and delta_r(eta, phi, j_eta, j_phi) < 0.4 for pt, eta, phi, good in leptons)
            for j_eta, j_phi in zip(event["Jet_eta"], event["Jet_phi"], strict=True)
        ]
        usable = [bool(bits & 2) and not beside for bits, beside in zip(event["Jet_jetId"], near, strict=True)]
        assert events.usable["lepton"][row].tolist() == [good for *_, good in leptons]
        assert events.usable["jet"][row].tolist() == usable
        jets = [
            k for k, ok in enumerate(usable) if ok and event["Jet_pt"][k] >= 25 and abs(event["Jet_eta"][k]) <= 2.5
        ]
        one = sum(good and pt >= 25 and abs(eta) <= 2.5 for pt, eta, _, good in leptons) == 1
        tags = sum(event["Jet_btagPNetB"][k] > 0.245 for k in jets)
        assert events.selected[row] == (one and len(jets) >= 4 and tags >= 1)
        selected += bool(events.selected[row])
        by_cuts = sum(
            pt > 30 and cut >= 4 for pt, cut in zip(event["Electron_pt"], event["Electron_cutBased"], strict=True)
        )
        by_cuts += sum(
            pt > 26 and good and iso < 0.15
            for pt, good, iso in zip(
                event["Muon_pt"], event["Muon_tightId"], event["Muon_pfRelIso04_all"], strict=True
            )
        )
        tight += by_cuts == 1
    assert (tight, selected) == (53, 61)
    assert (events.truth >= 0).sum(axis=0).tolist() == [161, 154, 182, 177, 61]
    assert ak.flatten(events.objects["met"].pt).tolist() == raw["PuppiMET_pt"].tolist()


# -- Delphes -----------------------------------------------------------------------------------------------


def test_delphes_leptons(tmp_path):
    content = {f"Jet.{n}": NANO[f"Jet_{n.lower()}"] for n in ("PT", "Eta", "Phi", "Mass")}
    content |= {"Jet.BTag": [[1, 1, 0, 0, 0]], "MissingET.MET": [[30.0]], "MissingET.Phi": [[1.0]]}
    content |= {"PuppiMissingET.MET": [[20.0]], "PuppiMissingET.Phi": [[1.0]]}
    for name, theirs in (("PT", "pt"), ("Eta", "eta"), ("Phi", "phi"), ("Charge", "charge")):
        content |= {f"{kind}.{name}": NANO[f"{kind}_{theirs}"] for kind in ("Electron", "Muon")}
    content |= {"Electron.IsolationVar": [[0.05, 0.5]], "Muon.IsolationVar": [[0.05, 0.05, 0.5]]}
    record = {"PID": TAU["pdgId"], "M1": TAU["genPartIdxMother"], "Eta": TAU["eta"], "Phi": TAU["phi"]}
    record |= {
        "Status": [
            22 if hard and s == 22 else 23 if hard and s == 23 else s
            for hard, s in zip(TAU["hard"], TAU["status"], strict=True)
        ]
    }
    content |= {f"Particle.{name}": [values] for name, values in record.items()}
    path = write_tree(tmp_path / "delphes.root", "Delphes", content)
    with pytest.warns(PairtonWarning, match=r"electrons \(all in the file\) and muons \(all in the file\), and"):
        events = read(path, topology=SEMILEP)
    assert ak.all(events.usable["lepton"])
    assert events.usable["jet"].tolist() == [[True] * 4 + [False]]
    assert events.objects["lepton"].charge.tolist() == [[-1, 1, -1, 1, 1]]
    assert events.objects["lepton"].flavour.tolist() == [[11, 11, 13, 13, 13]]
    assert events.objects["met"].pt.tolist() == [[30]]
    assert events.truth.tolist() == [[2, 3, 0, 1, 2]]  # by way of the tau
    isolated = {"electron_id": "IsolationVar < 0.1", "muon_id": "IsolationVar < 0.1", "overlap": "none"}
    chosen = read(path, topology=SEMILEP, settings=isolated | {"met": "PuppiMissingET"})
    assert chosen.usable["lepton"].tolist() == [[True, False, True, True, False]]
    assert chosen.objects["met"].pt.tolist() == [[20]]
    with pytest.warns(PairtonWarning, match=r"jets within delta R = 0\.4 of an identified lepton above 15 GeV"):
        hadronic = read(path)  # in all-hadronic topologies as well
    assert hadronic.usable["jet"].tolist() == [[True] * 4 + [False]]


# -- PHYSLITE ----------------------------------------------------------------------------------------------

ELECTRONS, MUONS, CORE = "AnalysisElectronsAuxDyn", "AnalysisMuonsAuxDyn", "MET_Core_AnalysisMETAuxDyn"
TAGS = {"pb": 0.1, "pc": 0.2, "pu": 0.3}  # of the last jet
ISOLATION = "ptvarcone30_Nonprompt_All_MaxWeightTTVA"


def physlite(path, without=()):
    """Jets: an electron's, a good one, one from pile-up, a soft one; electrons and muons, good and others."""
    jets = {
        "pt": [[50e3, 40e3, 30e3, 15e3]],
        "eta": [[0.0, 1.0, -1.0, 0.5]],
        "phi": [[0.0, np.pi / 2, np.pi, 0.0]],
    }
    content = {f"AnalysisJetsAuxDyn.{name}": values for name, values in jets.items()}
    content |= {"AnalysisJetsAuxDyn.m": [[5e3] * 4], "AnalysisJetsAuxDyn.NNJvtPass": [[1, 1, 0, 1]]}
    content |= {"AnalysisJetsAuxDyn.btaggingLink.m_persIndex": [[0, 1, 2, 3]]}
    content |= {f"BTagging_AntiKt4EMPFlowAuxDyn.DL1dv01_{p}": [[0.2, 0.3, 0.4, v]] for p, v in TAGS.items()}
    electrons = {"pt": [[60e3, 20e3]], "eta": [[0.1, 1.0]], "phi": [[0.0, 1.5]], "charge": [[1.0, -1.0]]}
    electrons |= {"DFCommonElectronsLHTight": [[1, 1]], f"{ISOLATION}LooseCone_pt1000": [[3e3, 2e3]]}
    electrons |= {"topoetcone20": [[-1e3, 0.0]]}
    content |= {f"{ELECTRONS}.{name}": values for name, values in electrons.items()}
    muons = {"pt": [[30e3, 30e3, 30e3]], "eta": [[2.0, 2.0, 2.0]], "phi": [[-np.pi / 2, 1.0, 2.0]]}
    muons |= {"charge": [[1.0] * 3], "quality": [[9, 10, 0]], f"{ISOLATION}_pt1000": [[0.0, 0.0, 2e3]]}
    muons |= {"topoetcone20": [[0.0] * 3]}
    content |= {f"{MUONS}.{name}": values for name, values in muons.items()}
    content |= {
        f"{CORE}.mpx": [[99e3, 1e3]],
        f"{CORE}.mpy": [[99e3, -2e3]],
        f"{CORE}.source": [[0x11020, 0x14020]],
    }
    content |= {"METAssoc_AnalysisMETAux.jettrkpx": [[7e3, 7e3, 500.0, 250.0, 8e3]]}
    content |= {"METAssoc_AnalysisMETAux.jettrkpy": [[7e3, 7e3, 0.0, 0.0, 8e3]]}
    return write_tree(path, "CollectionTree", {k: v for k, v in content.items() if k not in without})


def test_physlite_leptons_and_summed_missing_energy(tmp_path):
    how = {"topology": SEMILEP, "btag": "DL1dv01:0"}
    with pytest.warns(PairtonWarning) as said:
        events = read(physlite(tmp_path / "a.root"), **how)
    lines = [str(warning.message) for warning in said]
    assert any("missing energy is computed from leptons, jets and the track soft term" in line for line in lines)
    assert any(line.startswith("by default, leptons are electrons (DFCommonElectronsLHTight, ") for line in lines)
    # isolated electrons; medium, isolated muons, whatever the flags in further bits
    assert events.usable["lepton"].tolist() == [[True, False, True, False, False]]
    assert events.usable["jet"].tolist() == [[False, True, False, True]]
    np.testing.assert_allclose(events.objects["lepton"].pt[0], [60, 20, 30, 30, 30])
    # electron -60 x, muon +30 y, jet 1 -40 y, tracks of jets 2 and 3 -0.75 x, core +1 x -2 y
    x, y = -60 - 0.75 + 1, 30 - 40 - 2
    np.testing.assert_allclose(events.objects["met"].pt, [[np.hypot(x, y)]], rtol=1e-5)
    np.testing.assert_allclose(events.objects["met"].phi, [[np.arctan2(y, x)]], rtol=1e-5)
    assert events.metadata["met"].startswith("sum of leptons")


def test_physlite_without_soft_terms(tmp_path):
    silent = {"electron_id": "none", "muon_id": "none", "overlap": "none"}
    how = {"topology": SEMILEP, "btag": "DL1dv01:0", "settings": silent}
    path = physlite(tmp_path / "a.root", (f"{CORE}.mpx",))
    with pytest.raises(FormatError, match=r"missing energy cannot be computed without its soft term"):
        read(path, **how)
    names = {"met.pt": "EventInfoAuxDyn.met", "met.phi": "EventInfoAuxDyn.phi"}
    with uproot.open(path) as file:
        found = file["CollectionTree"]
        content = {name: found[name].array() for name in found.keys() if not name.startswith("n")}  # noqa: SIM118
    content |= {"EventInfoAuxDyn.met": ak.Array([30e3]), "EventInfoAuxDyn.phi": ak.Array([1.0])}
    content = {name: ak.concatenate([values] * 20) for name, values in content.items()}  # enough for a check
    mapped = read(write_tree(tmp_path / "b.root", "CollectionTree", content), **how, map=names)
    assert mapped.objects["met"].pt.tolist() == [[30]] * 20
    wrong = write_tree(
        tmp_path / "c.root", "CollectionTree", content | {"EventInfoAuxDyn.met": ak.Array([30.0] * 20)}
    )
    with pytest.raises(InputError, match=r"GeV for jets, but 0\.03 GeV for met, so their units differ"):
        read(wrong, **how, map=names)


@pytest.mark.long
def test_missing_energy_of_the_real_physlite_file(sample):
    """Z to two electrons, so none is expected; summed event by event without arrays of ours."""
    path = sample("physlite_atlas.root")
    with pytest.warns(PairtonWarning):
        events = read(path, topology=SEMILEP)
    raw = uproot.open(path)["CollectionTree"]
    core = {axis: raw[f"{CORE}.mp{axis}"].array().tolist() for axis in "xy"}
    tracks = {axis: raw[f"METAssoc_AnalysisMETAux.jettrkp{axis}"].array().tolist() for axis in "xy"}
    passed = raw["AnalysisJetsAuxDyn.NNJvtPass"].array().tolist()
    met = events.objects["met"]
    for row, (jets, leptons) in enumerate(
        zip(events.jets.tolist(), events.objects["lepton"].tolist(), strict=True)
    ):
        good = [p for p in leptons if p["usable"] and p["pt"] > 10]
        total = np.array([core["x"][row][1], core["y"][row][1]]) / 1000
        total -= sum((p["pt"] * np.array([np.cos(p["phi"]), np.sin(p["phi"])]) for p in good), np.zeros(2))
        electrons = [p for p in good if p["flavour"] == 11]
        for k, jet in enumerate(jets):
            pt, eta, phi = (jet[name] for name in ("pt", "eta", "phi"))
            if any(delta_r(eta, phi, p["eta"], p["phi"]) < 0.2 for p in electrons):
                continue
            hard = passed[row][k] and pt > (20 if abs(eta) < 2.4 else 30) and abs(eta) < 4.5
            soft = np.array([tracks["x"][row][k], tracks["y"][row][k]]) / 1000
            total -= pt * np.array([np.cos(phi), np.sin(phi)]) if hard else soft
        assert met.pt[row, 0] == pytest.approx(np.hypot(*total), rel=1e-4)
        assert np.cos(met.phi[row, 0] - np.arctan2(total[1], total[0])) == pytest.approx(1, abs=1e-6)
    assert ak.mean(met.pt) < 40  # with electrons counted as jets too it is more than 60


# -- SPANet's layout ---------------------------------------------------------------------------------------


def spanet(path, groups, targets, **more):
    with h5py.File(path, "w") as file:
        for group, columns in groups.items():
            for name, values in columns.items():
                file[f"INPUTS/{group}/{name}"] = np.asarray(values)
        for name, values in targets.items():
            file[f"TARGETS/{name}"] = np.asarray(values)
        for name, values in more.items():
            file[f"REGRESSIONS/EVENT/{name}"] = np.asarray(values)
    return path


def padded(n, width, seed=0):
    rng = np.random.default_rng(seed)
    place = np.arange(width) / 2 - 2
    fields = {"pt": rng.uniform(30, 90, (n, width)), "eta": np.tile(place, (n, 1)), "phi": np.zeros((n, width))}
    return fields | {"mass": np.full((n, width), 5.0), "MASK": np.ones((n, width), dtype=bool)}


LABELS = {"t/q1": 0, "t/q2": 1, "t/b": 2, "tl/b": 3, "tl/l": 0}


def own(n, **changed):
    return {name: np.full(n, value) for name, value in (LABELS | changed).items()}


def test_leptons_among_the_jets(tmp_path):
    momenta = padded(3, 7) | {"btag": np.ones((3, 7))}
    momenta["etag"], momenta["utag"] = np.zeros((3, 7)), np.zeros((3, 7))
    momenta["utag"][0, 2] = momenta["etag"][1, 6] = 1
    met = {"met": [40.0] * 3, "sin_phi": [0.0] * 3, "cos_phi": [-1.0] * 3}
    targets = {"t/q1": [0] * 3, "t/q2": [1] * 3, "t/b": [3] * 3, "tl/b": [4, 4, 5], "tl/l": [2, 6, -1]}
    path = spanet(tmp_path / "a.h5", {"Momenta": momenta, "Met": met}, targets)
    events = read(path, topology=SEMILEP)
    assert events.stored_index["lepton"].tolist() == [[2], [6], []]  # columns of the shared collection
    assert events.objects["lepton"].flavour.tolist() == [[13], [11], []]
    assert events.n_jets.tolist() == [7, 7, 7]  # all keep their places
    assert ak.local_index(events.jets.pt)[~events.usable["jet"]].tolist() == [[2], [6], []]
    assert events.truth.tolist() == [[0, 1, 3, 4, 0], [0, 1, 3, 4, 0], [0, 1, 3, 5, -1]]
    np.testing.assert_allclose(events.objects["met"].phi, np.full((3, 1), np.pi), rtol=1e-6)
    assert ak.sum(events.passes["lepton"], axis=1).tolist() == [1, 1, 0]
    mapped = read(path, topology=SEMILEP, map={"jet": "Momenta", "lepton": "Momenta", "met": "Met"})
    assert mapped.objects["lepton"].tolist() == events.objects["lepton"].tolist()
    muons = parse_topology(
        SEMILEP.to_dict() | {"objects": {"l": "muon"}, "selection": {}, "invisible": {}}, "test"
    )
    assert read(path, topology=muons, truth=False).counts["muon"].tolist() == [1, 0, 0]
    with h5py.File(path, "r+") as file:
        del file["INPUTS/Momenta/etag"], file["INPUTS/Momenta/utag"]
    with pytest.raises(FormatError, match="needs leptons, but INPUTS has Met, Momenta: if one of these groups"):
        read(path, topology=SEMILEP)
    with pytest.raises(FormatError, match="INPUTS/Momenta has jets and leptons, but no etag or utag to tell them"):
        read(path, topology=SEMILEP, map={"lepton": "Momenta"})


def test_leptons_among_the_jets_of_an_all_hadronic_topology(tmp_path):
    """They are no jets, and one beside them is not used; a model that takes the flags gets all."""
    momenta = padded(1, 7) | {"btag": np.ones((1, 7)), "etag": np.eye(1, 7), "utag": np.zeros((1, 7))}
    momenta["eta"][0, 3] = momenta["eta"][0, 0] + 0.1
    path = spanet(tmp_path / "a.h5", {"Momenta": momenta}, {})
    with pytest.warns(PairtonWarning, match=r"by default, jets within delta R = 0\.4 of an identified lepton"):
        events = read(path)
    assert events.usable["jet"].tolist() == [[False, True, True, False, True, True, True]]
    every = read(path, fields={"jet": ["btag", "etag", "utag"]}, settings={"overlap": "none"})
    assert ak.all(every.usable["jet"])
    assert every.jets.etag[0, 0] == 1


def test_the_example_of_spanet_as_tth(sample):
    path = sample("spanet_tth_semilep.h5")
    with pytest.warns(PairtonWarning, match="TARGETS/ht is read as t, TARGETS/lt is read as tl, TARGETS/h is"):
        events = read(path, topology="tth_semilep", settings={"neutrino_unit": "100"})
    names = {"t": "ht", "tl": "lt", "H": "h", "jet": "Momenta", "lepton": "Momenta", "met": "Met"}
    mapped = read(path, topology="tth_semilep", map=names)
    np.testing.assert_array_equal(events.truth, mapped.truth)
    slots = {"t.W.q1": "ht/q1", "t.W.q2": "ht/q2", "t.b": "ht/b", "tl.b": "lt/b", "tl.l": "lt/l"}
    by_slot = read(path, topology="tth_semilep", map=slots | {"H.b1": "h/b1", "H.b2": "h/b2"})
    with h5py.File(path) as file:
        for slot in events.topology.slots:  # the lepton is row 0 of its event, and so 0 among the leptons
            label = {**slots, "H.b1": "h/b1", "H.b2": "h/b2"}[slot.name]
            np.testing.assert_array_equal(events.truth[:, slot.index], file[f"TARGETS/{label}"][:])
        pz = file["REGRESSIONS/EVENT/neutrino_pz"][:]
    np.testing.assert_array_equal(by_slot.truth, events.truth)
    assert events.selected.all()
    assert (events.counts["lepton"] == 1).all()
    np.testing.assert_allclose(events.columns["neutrino_pz"], 100.0 * pz)
    lepton = {name: np.asarray(events.objects["lepton"][name][:, 0]) for name in ("pt", "eta", "phi")}
    nu = np.stack([events.columns[f"neutrino_p{axis}"] for axis in "xyz"])
    p = lepton["pt"] * np.stack([np.cos(lepton["phi"]), np.sin(lepton["phi"]), np.sinh(lepton["eta"])])
    energy = np.linalg.norm(p, axis=0) + np.linalg.norm(nu, axis=0)
    mass = np.sqrt(np.maximum(energy**2 - ((p + nu) ** 2).sum(axis=0), 0))
    assert np.median(mass) == pytest.approx(80.2, abs=0.1)
    with open_source(path, topology="tth_semilep", truth=False, settings={"neutrino_unit": "100"}) as source:
        assert source.read(0, 5).columns == {}


def test_targets_that_do_not_decay_alike_are_refused(tmp_path):
    groups = {"Jets": padded(2, 6) | {"btag": np.ones((2, 6))}}
    targets = {f"{p}/{b}": [k, k] for k, (p, b) in enumerate((p, b) for p in ("x", "y") for b in ("b1", "b2"))}
    path = spanet(tmp_path / "a.h5", groups, targets)
    with pytest.warns(PairtonWarning, match="TARGETS/x is read as H1, TARGETS/y is read as H2"):
        assert read(path, topology="hh4b").truth.tolist() == [[0, 1, 2, 3]] * 2
    other = parse_topology(
        {"name": "zh", "event": ["Z", "H"], "particles": {"Z": ["b", "b"], "H": ["b", "b"]}}, "t"
    )
    with pytest.raises(FormatError, match=r"TARGETS lacks Z/b1, .*; it has x/b1, .*--map Z=PARTICLE"):
        read(path, topology=other)
    assert read(path, topology=other, map={"Z": "y", "H": "x"}).truth.tolist() == [[2, 3, 0, 1]] * 2
    with pytest.raises(FormatError, match="TARGETS lacks q/b1, q/b2 of zh"):
        read(path, topology=other, map={"Z": "y", "H": "q"})


def test_targets_that_count_through_all_groups(tmp_path):
    n = 200
    jets, leptons = padded(n, 6) | {"btag": np.ones((n, 6))}, padded(n, 2, 1)
    leptons["eta"] = leptons["eta"] + 3.1
    groups = {"Jets": jets, "Leptons": leptons, "Met": {"met": np.full(n, 40.0), "phi": np.zeros(n)}}
    expected = [[0, 1, 2, 3, 1]] * n
    each = spanet(tmp_path / "own.h5", groups, own(n, **{"tl/l": 1}))
    assert read(each, topology=SEMILEP).truth.tolist() == expected
    behind = spanet(tmp_path / "behind.h5", groups, own(n, **{"tl/l": 7}))
    assert read(behind, topology=SEMILEP, settings={"targets": "Jets,Leptons"}).truth.tolist() == expected
    for settings in ({}, {"targets": "own"}):
        with pytest.warns(PairtonWarning, match=f"{n} labels in {n} events out of range"):
            assert (read(behind, topology=SEMILEP, settings=settings).truth[:, 4] == -1).all()
    first = {"t/q1": 2, "t/q2": 3, "t/b": 4, "tl/b": 5, "tl/l": 1}
    before = spanet(tmp_path / "before.h5", groups, own(n, **first))
    assert read(before, topology=SEMILEP, settings={"targets": "Leptons,Jets"}).truth.tolist() == expected
    with pytest.raises(ConfigError, match="set targets=Jets,Lepton: there is no group Lepton, but Jets"):
        read(behind, topology=SEMILEP, settings={"targets": "Jets,Lepton"})


def test_neutrinos_in_gev(tmp_path):
    nu = {f"neutrino_p{axis}": np.arange(6.0) + k for k, axis in enumerate("xyz")}
    met = {"met": np.full(6, 50.0), "phi": np.zeros(6)}
    groups = {"Jets": padded(6, 6) | {"btag": np.ones((6, 6))}, "Leptons": padded(6, 1), "Met": met}
    path = spanet(tmp_path / "a.h5", groups, own(6), **nu)
    how = {"topology": SEMILEP, "settings": {"overlap": "none"}}
    assert not read(path, **how).columns
    assert read(path, **how, keep=["neutrino_pz"]).columns["neutrino_pz"].tolist() == nu["neutrino_pz"].tolist()
    columns = read(path, topology=SEMILEP, settings={"overlap": "none", "neutrino_unit": "100"}).columns
    assert {name: column.tolist() for name, column in columns.items()} == {
        n: (100 * c).tolist() for n, c in nu.items()
    }
    with pytest.raises(ConfigError, match="set neutrino_unit=MeV: give a number of GeV, for example 100"):
        read(path, topology=SEMILEP, settings={"neutrino_unit": "MeV"})


def test_weights_in_a_column_of_their_own(tmp_path):
    """Weights of shape (n, 1) are weights of shape (n,); wider ones are refused."""
    groups = {"Jets": padded(3, 6) | {"btag": np.ones((3, 6))}}
    more = {"w": np.array([[1.0], [2.0], [3.0]]), "wide": np.ones((3, 2))}
    path = spanet(tmp_path / "a.h5", groups, {}, **more)
    found = read(path, topology="hh4b", map={"weight": "REGRESSIONS/EVENT/w"}).weights
    assert found.tolist() == [1, 2, 3]
    with pytest.raises(FormatError, match=r"the weight .*wide has the shape \(3, 2\), but must have one number"):
        read(path, topology="hh4b", map={"weight": "REGRESSIONS/EVENT/wide"})


# -- HyPER's layout ----------------------------------------------------------------------------------------


def test_hyper_with_leptons_and_missing_energy(tmp_path):
    n = 4
    jets = padded(n, 6) | {"btag": np.ones((n, 6))}
    leptons = padded(n, 1, 1) | {"eta": np.full((n, 1), 2.4), "charge": [[1], [-1], [1], [-1]]}
    groups = {"Jets": jets, "Leptons": leptons, "Met": {"met": np.arange(40.0, 44), "phi": np.arange(4.0)}}
    events = read(spanet(tmp_path / "a.h5", groups, own(n)), topology=SEMILEP)
    write_events(events, tmp_path / "hyper.h5", "hyper_hdf5")
    with h5py.File(tmp_path / "hyper.h5") as file:
        assert sorted(file["INPUTS"]) == ["GLOBAL", "JET", "LEPTON", "MET"]
        record = file["INPUTS/MET"][1, 0]
        assert [float(record[name]) for name in ("e", "eta", "phi", "pt")] == [41, 0, 1, 41]
        assert file["INPUTS/LEPTON"].dtype == file["INPUTS/JET"].dtype  # HyPER's nodes have the same features
        assert file["LABELS/JET"][0, :6].tolist() == [2, 3, 1, 4, 0, 0]
        assert file["LABELS/LEPTON"][:].tolist() == [[5]] * n
    back = read(tmp_path / "hyper.h5")
    np.testing.assert_array_equal(back.truth, events.truth)
    assert back.objects["lepton"].fields == events.objects["lepton"].fields
    assert back.objects["lepton"].charge.tolist() == events.objects["lepton"].charge.tolist()
    np.testing.assert_allclose(back.objects["met"].pt, events.objects["met"].pt)
    numbers = {"hyper": ["1-2", "1-3", "1-1", "1-4", "2-1"]}  # type of node and label
    pairs = parse_topology(SEMILEP.to_dict() | {"labels": numbers}, "test")
    with h5py.File(tmp_path / "hyper.h5", "r+") as file:
        file["LABELS/LEPTON"][...] = 1
        file["INPUTS/MET"][2] = np.full((), np.nan, dtype=file["INPUTS/MET"].dtype)
    found = read(tmp_path / "hyper.h5", topology=pairs)
    np.testing.assert_array_equal(found.truth, events.truth)
    assert found.counts["met"].tolist() == [1] * n  # no missing energy is a bad object, not none
    assert found.status.tolist() == [0, 0, 2, 0]
    with h5py.File(tmp_path / "hyper.h5", "r+") as file:
        del file["LABELS/LEPTON"]
    with pytest.warns(PairtonWarning, match="no dataset LABELS/LEPTON, so all leptons are treated as unlabelled"):
        assert read(tmp_path / "hyper.h5").truth.tolist() == [[0, 1, 2, 3, -1]] * n
    with h5py.File(tmp_path / "hyper.h5", "r+") as file:
        del file["INPUTS/MET"]
    with pytest.raises(FormatError, match=r"no dataset INPUTS/MET for the met of .*; INPUTS has GLOBAL, JET"):
        read(tmp_path / "hyper.h5", topology=SEMILEP)
    allhad = read(tmp_path / "hyper.h5", topology="hh4b", truth=False, settings={"overlap": "0.4"})
    assert allhad.usable["jet"].tolist() == [[True] * 6] * n  # eta up to 0.5


def test_hyper_with_integer_fields(tmp_path):
    """Padding has no momentum; an integer cannot be NaN."""
    made = np.zeros((2, 3), [("e", "f4"), ("eta", "f4"), ("phi", "f4"), ("pt", "f4"), ("btag", "i4")])
    for name, value in (("e", 60.0), ("eta", 0.5), ("phi", 1.0), ("pt", 50.0), ("btag", 1)):
        made[name] = value
    for name in ("e", "eta", "phi", "pt"):
        made[name][:, 2] = np.nan
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["INPUTS/JET"] = made
    assert read(tmp_path / "a.h5", topology="hh4b").jets.btag.tolist() == [[1, 1], [1, 1]]


# -- flat tables -------------------------------------------------------------------------------------------


def flat(path, **changed):
    """A home-made tree: the lepton is jet 1 as well; the first of two leptons is not isolated."""
    columns = {"jet_pt": [[50.0, 40.0, 35.0, 30.0]] * 120, "jet_eta": [[0.0, 1.0, -1.0, 2.0]] * 120}
    columns |= {
        "jet_phi": [[0.0, 1.0, 2.0, 3.0]] * 120,
        "jet_mass": [[5.0] * 4] * 120,
        "jet_btag": [[1] * 4] * 120,
    }
    columns |= {"lep_pt": [[60.0, 40.0]] * 120, "lep_eta": [[0.1, 1.1]] * 120, "lep_phi": [[0.1, 1.1]] * 120}
    columns |= {"lep_isolation": [[0.5, 0.01]] * 120, "met": [30.0] * 120, "met_phi": [1.0] * 120}
    return write_tree(path, "events", columns | changed)


def test_flat_tables_keep_leptons_and_jets_apart(tmp_path):
    path = flat(tmp_path / "a.root")
    how = {"topology": SEMILEP, "map": {"lepton": "lep"}}
    with pytest.warns(PairtonWarning, match=r"by default, jets within delta R = 0\.4 of an identified lepton"):
        events = read(path, **how)
    assert events.usable["jet"][0].tolist() == [False, False, True, True]
    assert (events.metadata["overlap"], events.metadata["lepton_pt"]) == (0.4, 15)
    isolated = read(path, **how, settings={"lepton_id": "isolation < 0.1", "overlap": "0.4"})
    assert isolated.usable["lepton"][0].tolist() == [False, True]
    assert isolated.usable["jet"][0].tolist() == [True, False, True, True]  # only good leptons remove jets
    assert isolated.metadata["lepton_id"] == "isolation < 0.1"
    with pytest.raises(FormatError, match=r"no column for tight \(lep_tight\) of leptons"):
        read(path, **how, settings={"lepton_id": "tight"})
    with pytest.raises(ConfigError, match=r"set muon_id=…: ttbar_semilep has the kinds jet, lepton, met, but no"):
        read(path, **how, settings={"muon_id": "tight"})
    ours = {f"lepton_{name}": ak.Array([[40.0 if name == "pt" else 1.0]] * 120) for name in ("pt", "eta", "phi")}
    named = flat(tmp_path / "b.root", **ours)
    with pytest.warns(
        PairtonWarning, match=r"jets within delta R = 0\.4 of an identified lepton"
    ):  # in all-hadronic topologies as well
        hadronic = read(named, topology="hh4b")
    assert hadronic.usable["jet"][0].tolist() == [True, False, True, True]
    write_events(events, tmp_path / "ours.parquet")
    assert ak.all(read(tmp_path / "ours.parquet").usable["jet"])


def test_conditions_hold_for_numbers_as_in_the_file(tmp_path):
    """A file in MeV: neither the conditions nor the ratio of two fields change with the units of momenta."""
    momenta = {"jet_pt": [[50e3] * 4] * 120, "jet_mass": [[5e3] * 4] * 120, "met": [30e3] * 120}
    leptons = {"lep_pt": [[60e3, 40e3]] * 120, "lep_mass": [[100.0, 0.5]] * 120, "lep_cone": [[9e3, 2e3]] * 120}
    table = flat(tmp_path / "a.root", **momenta, **leptons)
    jets = padded(4, 6) | {"btag": np.ones((4, 6))}
    groups = {
        "Jets": jets | {"pt": jets["pt"] * 1e3, "mass": jets["mass"] * 1e3},
        "Leptons": {name.removeprefix("lep_"): values[:4] for name, values in leptons.items()}
        | {name: np.full((4, 2), 2.4) for name in ("eta", "phi")}
        | {"MASK": np.ones((4, 2), dtype=bool)},
        "Met": {"met": np.full(4, 30e3), "phi": np.zeros(4)},
    }
    columns = spanet(tmp_path / "a.h5", groups, {})
    records = tmp_path / "hyper.h5"
    with h5py.File(records, "w") as file:
        for name, group in (("JET", "Jets"), ("LEPTON", "Leptons"), ("MET", "Met")):
            fields = {"pt" if key == "met" else key: values for key, values in groups[group].items()}
            made = np.zeros((4, np.asarray(groups[group]["phi"]).size // 4), [(key, "f4") for key in fields])
            for key, values in fields.items():
                made[key] = np.reshape(values, made.shape)
            file[f"INPUTS/{name}"] = made
    for path, names in ((table, {"lepton": "lep"}), (columns, {}), (records, {})):
        for text, passes in (
            ("cone / pt < 0.1", [False, True]),
            ("pt > 50000", [True, False]),
            ("mass < 1", [False, True]),
        ):
            how = {"lepton_id": text, "overlap": "none"}
            found = read(path, topology=SEMILEP, map=names, units="MeV", settings=how)
            assert found.usable["lepton"][0].tolist() == passes
            np.testing.assert_allclose(found.objects["lepton"].pt[0], [60, 40])


GEV = {
    "jet_pt": [[50.0] * 4] * 120,
    "jet_mass": [[5.0] * 4] * 120,
    "lep_pt": [[60.0] * 2] * 120,
    "met": [30.0] * 120,
}
MEV = {name: (1000 * np.array(values)).tolist() for name, values in GEV.items()}


@pytest.mark.parametrize(
    ("changed", "units", "line"),
    [
        ({"met": MEV["met"]}, "", r"GeV for jets, but .*met, so their units differ: .* --map met\.pt="),
        ({"lep_pt": MEV["lep_pt"]}, "", r"GeV for jets, but .*leptons, so their units .*--map lepton\.pt="),
        (MEV | {"met": GEV["met"]}, "MeV", r"the median pT is 50 GeV for jets, but 0\.03 GeV for met, so their"),
        (MEV, "", "looks like MeV: give --set units=MeV"),
    ],
)
def test_units_that_differ(tmp_path, changed, units, line):
    how = {"topology": SEMILEP, "map": {"lepton": "lep"}, "settings": {"overlap": "none"}}
    with pytest.raises(InputError, match=line):
        read(flat(tmp_path / "a.root", **changed), **how, **({"units": units} if units else {}))


def test_an_experiment_has_one_unit(tmp_path):
    names = {"Jet_pt", "Jet_mass", "Electron_pt", "Muon_pt", "PuppiMET_pt"}
    mev = {name: ak.Array(values * 120) for name, values in NANO.items()}
    mev |= {name: 1000 * mev[name] for name in names}
    with pytest.raises(InputError, match="files of this format are in GeV"):
        nano_read(write_tree(tmp_path / "nano.root", "Events", mev), SILENT)


@pytest.mark.parametrize(
    ("met", "chunk"),
    [([np.nan] * 119 + [30.0], 1000), ([1e-4] * 120, 1000), ([30.0] * 119 + [0.3], 17), ([0.0] * 120, 1000)],
    ids=["no number", "without a detector", "a last chunk of one event", "not filled"],
)
def test_odd_missing_energy_is_no_matter_of_units(tmp_path, met, chunk):
    how = {"topology": SEMILEP, "map": {"lepton": "lep"}, "settings": {"overlap": "none"}, "chunk": chunk}
    said = r"met is 0 in each of 120 events, so it may not be filled"
    with nullcontext() if any(met) else pytest.warns(PairtonWarning, match=said):
        events = read(flat(tmp_path / "a.root", met=met), **how)
    np.testing.assert_allclose(events.objects["met"].pt[:, 0], met)
    assert events.status.tolist() == [2 * int(np.isnan(value)) for value in met]


def test_units_are_found_from_the_first_kind_with_objects(tmp_path):
    """Leptons come first in this topology, but the file has none."""
    raw = {"name": "first", "event": ["tl", "H"], "particles": {"tl": ["l", "b"], "H": ["b", "b"]}}
    lepton_first = parse_topology(raw | {"objects": {"l": "lepton"}, "codes": {"tl": [6]}}, "test")
    assert lepton_first.kinds[0] == "lepton"
    none = {f"lepton_{name}": ak.Array([[]] * 120) for name in ("pt", "eta", "phi")}
    columns = {name: ak.values_astype(values, np.float64) for name, values in none.items()}
    mev = flat(tmp_path / "a.root", **columns, jet_pt=[[50e3] * 4] * 120, jet_mass=[[5e3] * 4] * 120)
    with pytest.raises(InputError, match="the median jet pT is 50000, which looks like MeV: give --set units=MeV"):
        read(mev, topology=lepton_first)
    assert ak.all(read(mev, topology=lepton_first, units="MeV").jets.pt == 50)
    assert ak.all(read(mev, topology=lepton_first, units="GeV").jets.pt == 50e3)


# -- flat tables with electrons and muons ------------------------------------------------------------------


def flat_leptons(path, suffix="", **more):
    """A table with electrons and muons of their own; eta, phi and charges have no suffix."""
    columns = {
        f"jet_pt{suffix}": [[60.0, 50.0, 40.0, 30.0]] * 3,
        "jet_eta": [[0.0, 0.5, 1.0, 1.5]] * 3,
        "jet_phi": [[0.0, 1.0, 2.0, 3.0]] * 3,
        f"jet_e{suffix}": [[70.0, 70.0, 70.0, 80.0]] * 3,
        "jet_btag": [[1, 0, 1, 0]] * 3,
        f"el_pt{suffix}": [[45.0], [], [55.0, 25.0]],
        "el_eta": [[-1.0], [], [-1.1, -2.0]],
        "el_phi": [[-1.0], [], [-1.1, -2.0]],
        "el_charge": [[-1], [], [1, -1]],
        f"el_e{suffix}": [[90.0], [], [90.0, 99.0]],
        f"mu_pt{suffix}": [[35.0], [65.0], []],
        "mu_eta": [[-2.0], [-2.1], []],
        "mu_phi": [[-2.0], [-2.1], []],
        "mu_charge": [[1], [1], []],
        f"met_met{suffix}": [30.0, 40.0, 50.0],
        f"met_phi{suffix}": [0.0, 1.0, 2.0],
        **more,
    }
    return write_tree(path, "reco", columns)


@pytest.mark.parametrize("names", [{}, {"electron": "el", "muon": "mu"}, {"muon": "mu"}])
@pytest.mark.parametrize("suffix", ["", "_CAL"])
def test_electrons_and_muons_of_flat_tables_are_leptons(tmp_path, suffix, names):
    more = {"jet_pt": [[1.0, 1.0, 1.0, 1.0]] * 3} if suffix else {}  # the suffix is preferred
    path = flat_leptons(tmp_path / "a.root", suffix, **more)
    settings = {"suffix": suffix} if suffix else {}
    events = read(path, topology=SEMILEP, map=names, settings=settings)
    leptons = events.objects["lepton"]
    assert leptons.pt.to_list() == [[45, 35], [65], [55, 25]]
    assert leptons.eta.to_list() == [[-1, -2], [pytest.approx(-2.1)], [pytest.approx(-1.1), -2]]
    assert leptons.charge.to_list() == [[-1, 1], [1], [1, -1]]
    assert leptons.flavour.to_list() == [[11, 13], [13], [11, 11]]
    assert events.objects["met"].pt.to_list() == [[30], [40], [50]]
    assert events.jets.pt[0].to_list() == [60, 50, 40, 30]
    write_events(events, tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet").objects["lepton"].flavour.to_list() == leptons.flavour.to_list()


def test_leptons_of_one_flavour_are_said_and_other_names_found(tmp_path):
    path = flat_leptons(tmp_path / "a.root")
    for names in ({"lepton": "el"}, {"lepton.pt": "el_pt", "lepton": "el"}):
        with pytest.warns(PairtonWarning, match=r"leptons are el_… alone, .*--map electron=el,muon=mu$"):
            assert read(path, topology=SEMILEP, map=names).objects["lepton"].pt[2].to_list() == [55, 25]
    with pytest.raises(ConfigError, match="map lepton=el,muon=mu: give lepton, or electron and muon"):
        read(path, topology=SEMILEP, map={"lepton": "el", "muon": "mu"})
    with pytest.raises(FormatError, match=r"no column for pt \(muons_pt\)"):
        read(path, topology=SEMILEP, map={"muon": "muons"})
    with pytest.raises(ConfigError, match=r"set suffix=_SYS: .*a\.root has no column that ends so, but "):
        read(path, topology=SEMILEP, settings={"suffix": "_SYS"})
    write_events(read(path, topology=SEMILEP), tmp_path / "b.h5")
    with pytest.raises(ConfigError, match="map electron=el: spanet_hdf5 allows only fields of objects"):
        read(tmp_path / "b.h5", map={"electron": "el"}, topology=SEMILEP)


def test_identification_of_merged_leptons(tmp_path):
    iso = {"el_iso": [[0.5], [], [0.1, 0.1]], "mu_iso": [[0.1], [0.5], []]}
    path = flat_leptons(tmp_path / "a.root", **iso)
    events = read(path, topology=SEMILEP, settings={"lepton_id": "iso < 0.2"})
    assert events.usable["lepton"].to_list() == [[False, True], [False], [True, True]]
