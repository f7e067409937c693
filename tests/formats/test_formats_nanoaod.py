"""NanoAOD files in miniature, as TTree and RNTuple."""

import awkward as ak
import numpy as np
import pytest

from event_files import write_events
from pairton.errors import ConfigError, FormatError, PairtonWarning
from pairton.formats import detect, open_source, read
from root_files import write_tree

HARD = 1 << 7
TAG = "PNetB:0.5"

# Quarks of a t tbar pair on a grid: W+ -> c s~, b, W- -> d u~, b~, and where they fly.
TTBAR = {
    "pdgId": [21, 21, 6, -6, 6, -6, 24, 5, -24, -5, 24, 4, -3, 1, -2],
    "genPartIdxMother": [-1, -1, 0, 0, 2, 3, 4, 4, 5, 5, 6, 10, 10, 8, 8],
    "status": [21, 21, 22, 22, 62, 62, 22, 23, 22, 23, 52, 23, 23, 23, 23],
    "statusFlags": [HARD] * 4 + [0, 0] + [HARD] * 4 + [0] + [HARD] * 4,
    "eta": [0.0] * 7 + [0.5, 0.0, -0.5, 0.0, 1.0, 1.5, -1.0, -1.5],
    "phi": [0.0] * 7 + [1.0, 0.0, 2.0, 0.0, -1.0, -2.0, 3.1, 0.0],
}
LEPTONIC = TTBAR | {"pdgId": [*TTBAR["pdgId"][:13], 11, -12]}
DRELL_YAN = {
    "pdgId": [2, -2, 23, 13, -13],
    "genPartIdxMother": [-1, -1, 0, 2, 2],
    "status": [21, 21, 22, 23, 23],
    "statusFlags": [HARD] * 5,
    "eta": [0.0] * 5,
    "phi": [0.0] * 5,
}
# b~, s~, soft jet beside c, c, u~, b, d across the seam of phi
JETS = {
    "pt": [90.0, 80.0, 15.5, 70.0, 60.0, 50.0, 40.0],
    "eta": [-0.5, 1.5, 1.0, 1.1, -1.5, 0.5, -1.0],
    "phi": [2.0, -2.0, -1.0, -1.0, 0.1, 1.1, -3.1],
    "mass": [9.0, 8.0, 1.0, 7.0, 6.0, 5.0, 4.0],
    "btagPNetB": [0.9, 0.1, -1.0, 0.2, 0.1, 0.6, 0.3],
    "btagDeepFlavB": [0.3, 0.1, 0.0, 0.0, 0.0, 0.2, 0.0],
    "jetId": [6, 6, 6, 6, 6, 6, 2],
}
ONE = {name: values[:1] for name, values in JETS.items()}
TYPES = {"jetId": np.uint8, "pdgId": np.int32, "genPartIdxMother": np.int16, "statusFlags": np.uint16}


def columns(jets=None, records=None):
    jets = [JETS, JETS, ONE] if jets is None else jets
    records = [TTBAR, LEPTONIC, DRELL_YAN] if records is None else records
    n = len(jets)
    made = {
        "run": np.full(n, 1, dtype=np.uint32),
        "luminosityBlock": np.full(n, 7, dtype=np.uint32),
        "event": np.arange(100, 100 + n, dtype=np.uint64),
        "genWeight": np.linspace(1, -1, n, dtype=np.float32),
        "PV_npvs": np.arange(n, dtype=np.int32),
    }
    for prefix, rows in (("Jet", jets), ("GenPart", records)):
        for name in rows[0] if rows else ():
            kind = TYPES.get(name, np.int32 if name == "status" else np.float32)
            made[f"{prefix}_{name}"] = ak.values_astype(ak.Array([row[name] for row in rows]), kind)
    return made


def write(path, content, kind="TTree"):
    return write_tree(path, "Events", content, kind)


@pytest.fixture(params=["TTree", "RNTuple", "Parquet"])
def nano(request, tmp_path):
    return write(tmp_path / "nano.root", columns(), request.param)


def load(path, **options):
    return read(path, **({"btag": TAG} | options))


def test_jets_truth_and_numbers(nano):
    assert detect(str(nano)).name == ("nanoaod" if nano.suffix == ".root" else "nanoaod_parquet")
    events = load(nano, keep=["PV_npvs"])
    assert events.n_jets.tolist() == [7, 7, 1]
    np.testing.assert_allclose(events.jets.pt[0], JETS["pt"])
    np.testing.assert_allclose(events.jets.mass[1], JETS["mass"], rtol=1e-3)
    assert events.jets.btag[0].tolist() == [1, 0, 0, 0, 0, 1, 0]
    # slots: t1.W.q1 (c), t1.W.q2 (s~), t1.b, t2.W.q1 (d), t2.W.q2 (u~), t2.b; the soft jet does not take the c
    assert events.truth.tolist() == [[3, 1, 5, 6, 4, 0], [3, 1, 5, -1, -1, 0], [-1] * 6]
    assert events.weights.tolist() == [1, 0, -1]
    assert events.ids.tolist() == [[(1 << 32) | 7, 100 + k] for k in range(3)]
    assert {name: list(values) for name, values in events.columns.items()} == {
        "run": [1, 1, 1],
        "luminosityBlock": [7, 7, 7],
        "event": [100, 101, 102],
        "PV_npvs": [0, 1, 2],
    }


def test_chunks_are_slices_of_the_whole(nano):
    whole, parts = load(nano), load(nano, chunk=2)
    assert parts.truth.tolist() == whole.truth.tolist()
    assert parts.jets.tolist() == whole.jets.tolist()
    assert parts.ids.tolist() == whole.ids.tolist()


def test_truth_of_tth(tmp_path):
    """The Higgs boson decays to two b quarks, which the tops do not take."""
    extra = {"pdgId": [25, 25, 5, -5], "genPartIdxMother": [0, 15, 16, 16], "status": [22, 62, 23, 23]}
    extra |= {"statusFlags": [HARD, 0, HARD, HARD], "eta": [0, 0, 2.0, -2.0], "phi": [0, 0, 2.5, -2.5]}
    event = {name: [*values, *extra[name]] for name, values in TTBAR.items()}
    more = {"pt": [35, 30], "eta": [-2.0, 2.0], "phi": [-2.5, 2.5], "mass": [3, 3], "jetId": [6, 6]}
    jets = {name: [*values, *more.get(name, [0.0, 0.0])] for name, values in JETS.items()}
    path = write(tmp_path / "tth.root", columns([jets], [event]))
    events = load(path, topology="tth_allhad")
    assert events.truth.tolist() == [[3, 1, 5, 6, 4, 0, 8, 7]]
    assert load(path).truth.tolist() == [[3, 1, 5, 6, 4, 0]]  # as a ttbar event it is one, too


def test_incoming_partons_are_no_products(tmp_path):
    """A quark at the root of a topology is an outgoing one, with or without a status column."""
    single = {
        "pdgId": [2, 21, 6, 1, 24, 5, 3, -4],
        "genPartIdxMother": [-1, -1, 0, 0, 2, 2, 4, 4],
        "status": [21, 21, 22, 23, 22, 23, 23, 23],
        "statusFlags": [HARD] * 8,
        "eta": [0.5, 0, 0, -0.5, 0, 0.5, 1.5, 1.0],
        "phi": [1.0, 0, 0, 2.0, 0, 1.0, -2.0, -1.0],
    }
    topology = tmp_path / "single_top.yaml"
    topology.write_text("name: single_top\nevent: [t, q]\nparticles: {t: [W, b], W: [q, q]}\n")
    content = columns([JETS], [single])
    with_status = load(write(tmp_path / "a.root", content), topology=topology)
    without = load(
        write(tmp_path / "b.root", {k: v for k, v in content.items() if k != "GenPart_status"}), topology=topology
    )
    # W -> s c~: the quark comes first. Without cuts the soft jet is the nearest to the c~.
    assert with_status.truth.tolist() == without.truth.tolist() == [[1, 2, 5, 0]]


# -- which jets may be used --------------------------------------------------------------------------------


def test_identification_by_bits(tmp_path):
    bits = JETS | {"jetId": [6, 2, 0, 4, 6, 7, 1]}
    path = write(tmp_path / "nano.root", columns([bits], [TTBAR]))
    assert load(path).usable["jet"].tolist() == [[True, True, False, False, True, True, False]]
    veto = load(path, settings={"jet_id": "tight_lepton_veto"})
    assert veto.usable["jet"].tolist() == [[True, False, False, False, True, True, False]]
    assert load(path, settings={"jet_id": "none"}).usable["jet"].tolist() == [[True] * 7]
    # the quark of a jet that is not usable has none; its place in the collection is kept
    assert load(path).truth.tolist() == [[-1, 1, 5, -1, 4, 0]]
    assert load(path).n_jets.tolist() == [7]


def test_identification_recomputed_in_version_15(tmp_path):
    """One jet a cut: passes; neHEF; neEmEF; chHEF; no charged; one constituent; a sum of bytes beyond 255."""
    names = ("neHEF", "neEmEF", "chHEF", "chMultiplicity", "neMultiplicity", "muEF", "chEmEF")
    rows = [
        (0.1, 0.1, 0.5, 5, 5, 0.9, 0.0),
        (0.995, 0.1, 0.5, 5, 5, 0.0, 0.0),
        (0.1, 0.95, 0.5, 5, 5, 0.0, 0.0),
        (0.1, 0.1, 0.005, 5, 5, 0.0, 0.0),
        (0.1, 0.1, 0.5, 0, 5, 0.0, 0.0),
        (0.1, 0.1, 0.5, 1, 0, 0.0, 0.0),
        (0.1, 0.1, 0.5, 255, 2, 0.0, 0.0),
    ]
    jets = {name: values for name, values in JETS.items() if name != "jetId"}
    jets |= {name: [row[k] for row in rows] for k, name in enumerate(names)}
    content = columns([jets], [TTBAR])
    for name in ("chMultiplicity", "neMultiplicity"):
        content[f"Jet_{name}"] = ak.values_astype(content[f"Jet_{name}"], np.uint8)
    path = write(tmp_path / "nano.root", content)
    assert load(path).usable["jet"].tolist() == [[True, False, False, False, False, False, True]]
    veto = load(path, settings={"jet_id": "tight_lepton_veto"})
    assert veto.usable["jet"].tolist() == [[False] * 6 + [True]]
    edges = {"eta": [2.65, -2.65, 2.8, 2.8, 4.0, 4.0, 4.0], "neHEF": [0.95, 0.5, 0.5, 0.995, 0.995, 0.1, 0.1]}
    edges |= {"neEmEF": [0.1, 0.95, 0.99, 0.1, 0.3, 0.5, 0.3], "neMultiplicity": [5, 5, 5, 5, 2, 5, 1]}
    forward = write(tmp_path / "forward.root", columns([jets | edges], [TTBAR]))
    assert load(forward).usable["jet"].tolist() == [[False, True, True, False, True, False, False]]


def test_no_identification_is_said(tmp_path):
    content = {name: values for name, values in columns().items() if name != "Jet_jetId"}
    path = write(tmp_path / "nano.root", content)
    with pytest.warns(PairtonWarning, match="no jet identification: the file has neither Jet_jetId nor"):
        assert ak.all(load(path).usable["jet"])
    assert ak.all(load(path, settings={"jet_id": "none"}).usable["jet"])  # asked for: no warning


def test_pile_up_identification_below_50_gev(tmp_path):
    jets = JETS | {"puId": [0, 0, 1, 7, 0, 0, 4]}
    content = columns([jets], [TTBAR])
    content["Jet_puId"] = ak.values_astype(content["Jet_puId"], np.int32)
    path = write(tmp_path / "nano.root", content)
    assert load(path).usable["jet"].tolist() == [[True, True, True, True, True, False, True]]  # the one of 50 GeV
    assert ak.all(load(path, settings={"pu_id": "none"}).usable["jet"])


# -- b-tags ------------------------------------------------------------------------------------------------


def test_the_newest_tagger_is_the_default_and_said(nano):
    with pytest.warns(PairtonWarning, match=r"jets with PNetB > 0.245 are b-tagged \(table pnet_2022\)"):
        events = load(nano, btag=None)
    assert events.jets.btag[0].tolist() == [1, 0, 0, 0, 0, 1, 1]
    with pytest.warns(PairtonWarning, match="DeepFlavB > 0.2783"):
        events = load(nano, btag="DeepFlavB")
    assert events.jets.btag[0].tolist() == [1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["DeepFlavB", "btagDeepFlavB", "Jet_btagDeepFlavB"])
def test_a_tagger_by_any_of_its_names(nano, name):
    assert load(nano, btag=f"{name}:0.15").jets.btag[0].tolist() == [1, 0, 0, 0, 0, 1, 0]


def test_a_file_without_taggers(tmp_path):
    content = {name: values for name, values in columns().items() if "btag" not in name}
    with pytest.raises(FormatError, match=r"none of the taggers UParTAK4B, .* it has no scores: give"):
        load(write(tmp_path / "none.root", content), btag=None)


MISTAKES = [
    ({"btag": "PNet:0.5"}, ConfigError, "no tagger 'PNet'; .* has DeepFlavB, PNetB; did you mean 'PNetB'"),
    ({"btag": "PNetB:tight"}, ConfigError, "the cut 'tight' must be a number"),
    ({"btag": "0.5"}, ConfigError, r"--btag 0.5 is a cut without a tagger.*--btag PNetB:0.5"),
    ({"keep": ["HLT_Something"]}, FormatError, "lacks HLT_Something"),
    ({"units": "MeV"}, ConfigError, "these files are in GeV"),
    ({"map": {"pz": "Jet_pz"}}, FormatError, r"no column for pz \(Jet_pz\) of jets; .*--map pz=COLUMN"),
    ({"map": {"weight": "genWeight"}}, ConfigError, r"map weight=genWeight: nanoaod.* allows only fields of obj"),
    ({"map": {"btag": "Jet_btagPNetB"}}, ConfigError, "with --btag TAGGER:CUT"),
    ({"variations": {"up": {"pt": "Jet_pt_up"}}}, FormatError, r"lacks Jet_pt_up; .*for the variation up"),
]
SETTINGS = {
    "jetid=tight": r"nanoaod.* has no setting 'jetid'; did you mean 'jet_id'",
    "jet_id=loose": "set jet_id=loose: choose one of tight, tight_lepton_veto, none",
    "lepton_pt=soft": "set lepton_pt=soft: give a number such as 15",
}
for odd in ("tight ID", "iso <", "iso << 3", "f(x)", "iso < 'few'", "", "x[0]", "pt > " * 1000):
    SETTINGS[f"muon_id={odd}"] = r"set muon_id=.*not understood: write conditions on columns of the file, such"
for odd in ("near", "-1", "nan", "10"):
    SETTINGS[f"overlap={odd}"] = f"set overlap={odd}: give a number such as 0.4, or none"
MISTAKES += [({"settings": dict([key.split("=", 1)])}, ConfigError, line) for key, line in SETTINGS.items()]


@pytest.mark.parametrize(("options", "error", "message"), MISTAKES)
def test_mistakes_are_one_line(nano, options, error, message):
    with pytest.raises(error, match=message):
        load(nano, **options)


# -- files that are different ------------------------------------------------------------------------------


def test_data_have_no_truth_and_no_weights(tmp_path):
    content = {k: v for k, v in columns().items() if not k.startswith(("GenPart", "genWeight"))}
    events = load(write(tmp_path / "data.root", content))
    assert events.truth is None
    assert events.weights is None
    assert len(events) == 3


def test_an_empty_tree(tmp_path):
    content = {name: values[:0] for name, values in columns().items()}
    events = load(write(tmp_path / "empty.root", content))
    assert len(events) == 0
    assert events.truth.shape == (0, 6)
    assert events.select().n_jets.tolist() == []


def test_missing_branches_are_named(tmp_path):
    content = {name: values for name, values in columns().items() if name not in ("Jet_phi", "Jet_mass")}
    path = write(tmp_path / "lacks.root", content)
    assert detect(str(path)).name == "nanoaod"
    with pytest.raises(FormatError, match=r"no column for phi \(Jet_phi\), mass \(Jet_mass\) or .* found"):
        load(path)


def test_without_event_numbers_ids_come_from_file_and_row(tmp_path):
    content = {name: values for name, values in columns().items() if name != "event"}
    events = load(write(tmp_path / "skim.root", content))
    assert events.ids[:, 1].tolist() == [0, 1, 2]
    assert events.ids[0, 0] == events.ids[2, 0] != 0
    assert events.columns == {}


# -- variations --------------------------------------------------------------------------------------------


def test_varied_jets_are_read_with_the_nominal_ones(tmp_path):
    content = columns()
    content["Jet_pt_up"], content["Jet_mass_up"] = content["Jet_pt"] * 1.5, content["Jet_mass"] * 2
    content["Jet_pt_down"] = content["Jet_pt"] * 0.5
    path = write(tmp_path / "nano.root", content)
    wanted = {"up": {"pt": "Jet_pt_up", "mass": "Jet_mass_up"}, "down": {"pt": "Jet_pt_down"}}
    with open_source(path, btag=TAG, variations=wanted) as source:
        events = source.read(0, 3)
    assert list(events.variations) == ["up", "down"]
    up, down = events.varied("up").jets, events.varied("down").jets
    np.testing.assert_allclose(ak.flatten(up.pt), ak.flatten(events.jets.pt) * 1.5, rtol=1e-6)
    np.testing.assert_allclose(ak.flatten(up.mass), ak.flatten(events.jets.mass) * 2, rtol=1e-3)
    # without a mass of its own the whole four-vector is scaled
    np.testing.assert_allclose(ak.flatten(down.energy), ak.flatten(events.jets.energy) * 0.5, rtol=1e-6)
    assert down.btag.tolist() == events.jets.btag.tolist()


def test_parquet_of_other_columns_is_flat(tmp_path):
    """Our own results carry `luminosityBlock` along, and somebody's table may have a column `nJet`."""
    events = load(write(tmp_path / "nano.root", columns()))
    write_events(events, tmp_path / "own.parquet")
    assert detect(str(tmp_path / "own.parquet")).name == "parquet"
    flat = {f"jet_{name}": columns()[f"Jet_{name}"] for name in ("pt", "eta", "phi", "mass")}
    flat |= {"jet_btag": flat["jet_pt"] > 50, "nJet": np.array([7, 7, 1])}
    path = write(tmp_path / "flat.root", flat, "Parquet")
    assert detect(str(path)).name == "parquet"
    assert len(read(path)) == 3


def test_jets_of_another_collection_are_named(tmp_path):
    content = columns()
    for name in JETS:
        del content[f"Jet_{name}"]
    soft = [{name: values[1:] for name, values in JETS.items()}] * 2 + [ONE]
    content |= {name.replace("Jet_", "ScoutingPFJet_"): v for name, v in columns(soft).items() if "Jet_" in name}
    content["ScoutingPFJet_m"] = content.pop("ScoutingPFJet_mass")
    content["ScoutingPFJet_particleNet_prob_b"] = content.pop("ScoutingPFJet_btagPNetB")
    for kind in ("TTree", "Parquet"):
        path = write(tmp_path / "scouting.root", content, kind)
        with pytest.raises(FormatError, match=r"lacks Jet_pt.*--set jets=COLLECTION"):
            load(path)
        events = load(path, btag="particleNet_prob_b:0.5", settings={"jets": "ScoutingPFJet"})
        assert events.jets.pt[0].tolist() == JETS["pt"][1:]
        assert events.jets.btag[0].tolist() == [0, 0, 0, 0, 1, 0]
        assert events.truth[0].tolist() == [2, 0, 4, 5, 3, -1]
        assert events.jets.usable[0].tolist() == [True] * 6
        with pytest.warns(PairtonWarning, match="DeepFlavB > "):
            load(path, btag=None, settings={"jets": "ScoutingPFJet"})
