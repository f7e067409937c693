"""PHYSLITE files in miniature: TTree with dots, RNTuple with colons."""

import awkward as ak
import numpy as np
import pytest
import uproot

from pairton.errors import ConfigError, FormatError, PairtonWarning
from pairton.formats import detect, read
from root_files import write_tree

JETS, TAGS, INFO = "AnalysisJetsAuxDyn", "BTagging_AntiKt4EMPFlowAuxDyn", "EventInfoAuxDyn"
NULL = 0xFFFFFFFF

# b-tagging objects in another order than the jets; the third jet of the first event has a null link
LINKS = [[2, 0, NULL, 1], [0]]
PROBABILITIES = {"pb": [[0.1, 0.9, 0.5], [0.8]], "pc": [[0.1, 0.05, 0.1], [0.1]], "pu": [[0.8, 0.05, 0.4], [0.1]]}


def content(mark, jvt="NNJvtPass", tagger="DL1dv01"):
    jets = {
        "pt": [[30_000.0, 80_000.0, 25_000.0, 70_000.0], [50_000.0]],
        "eta": [[0.1, -0.2, 0.3, -3.0], [1.0]],
        "phi": [[0.0, 1.0, 2.0, 3.0], [-1.0]],
        "m": [[5_000.0, 6_000.0, 7_000.0, 8_000.0], [-2.0]],
    }
    made = {f"{JETS}{mark}{name}": ak.values_astype(ak.Array(values), np.float32) for name, values in jets.items()}
    links = ak.values_astype(ak.Array(LINKS), np.uint32)
    if mark == ".":
        made[f"{JETS}.btaggingLink.m_persIndex"] = links
    else:
        made[f"{JETS}:btaggingLink"] = ak.zip({"m_persKey": links * 0 + 1, "m_persIndex": links})
    for part, values in PROBABILITIES.items():
        made[f"{TAGS}{mark}{tagger}_{part}"] = ak.values_astype(ak.Array(values), np.float32)
    if jvt is not None:
        values = [[0.9, 0.1, 0.1, 0.1], [0.2]] if jvt == "Jvt" else [[1, 0, 1, 1], [1]]
        made[f"{JETS}{mark}{jvt}"] = ak.values_astype(ak.Array(values), np.float32 if jvt == "Jvt" else np.int8)
    numbers = {"runNumber": [300_000, 300_000], "lumiBlock": [4, 5], "mcChannelNumber": [410_470, 0]}
    made |= {f"{INFO}{mark}{name}": np.array(values, dtype=np.uint32) for name, values in numbers.items()}
    made[f"{INFO}{mark}eventNumber"] = np.array([11, 12], dtype=np.uint64)
    made[f"{INFO}{mark}mcEventWeights"] = ak.values_astype(ak.Array([[2.5, 1.0], [-1.5, 1.0]]), np.float32)
    return made


def write(path, made, kind="TTree"):
    if kind == "RNTuple":
        return write_tree(path, "EventData", made, kind)
    with uproot.update(write_tree(path, "CollectionTree", made)) as file:
        file.mktree("MetaData", {"n": np.int32})  # real files have more trees than one
    return path


@pytest.fixture(params=["TTree", "RNTuple"])
def lite(request, tmp_path):
    return write(tmp_path / "lite.root", content("." if request.param == "TTree" else ":"), request.param)


def load(path, **options):
    return read(path, **({"btag": "DL1dv01:0.5"} | options))


def test_gev_stored_order_and_numbers(lite):
    assert detect(str(lite)).name == "physlite"
    events = load(lite, keep=["EventInfoAuxDyn.lumiBlock"])
    np.testing.assert_allclose(events.jets.pt[0], [30, 80, 25, 70])
    np.testing.assert_allclose(events.jets.mass[0], [5, 6, 7, 8], rtol=1e-3)
    assert events.status.tolist() == [0, 0]  # a mass slightly below zero is rounding, not a bad jet
    assert events.truth is None
    assert events.weights.tolist() == [2.5, -1.5]
    # simulation by its channel, data by its run
    assert events.ids.tolist() == [[(410_470 << 32) | 4, 11], [(300_000 << 32) | 5, 12]]
    assert list(events.columns) == [
        "runNumber",
        "lumiBlock",
        "eventNumber",
        "mcChannelNumber",
        "EventInfoAuxDyn.lumiBlock",
    ]
    assert events.columns["EventInfoAuxDyn.lumiBlock"].tolist() == [4, 5]
    assert load(lite, where="EventInfoAuxDyn.lumiBlock > 4").ids[:, 1].tolist() == [12]


def test_b_tags_follow_the_link(lite):
    """D = log(pb / (0.018 pc + 0.982 pu)): by object -2.06, 2.89, 0.24 and 2.08; the null link is not tagged."""
    assert load(lite).jets.btag.tolist() == [[0, 0, 0, 1], [1]]
    assert load(lite, btag="DL1dv01:0.2").jets.btag.tolist() == [[1, 0, 0, 1], [1]]
    assert load(lite, btag="DL1dv01:-5").jets.btag.tolist() == [[1, 1, 0, 1], [1]]
    with pytest.warns(PairtonWarning, match=r"by default, jets with DL1dv01 > 2.456 are b-tagged \(table dl1d\)"):
        assert load(lite, btag=None).jets.btag.tolist() == [[0, 0, 0, 1], [0]]


@pytest.mark.parametrize(("kind", "mark"), [("TTree", "."), ("RNTuple", ":")])
def test_a_link_with_the_key_0_is_null(tmp_path, kind, mark):
    """Its position may be 0, as if it pointed to the first object."""
    made = content(mark)
    index, key = (ak.values_astype(ak.Array(v), np.uint32) for v in ([[2, 0, 0, 1], [0]], [[7, 7, 0, 7], [7]]))
    if mark == ".":
        made |= {f"{JETS}.btaggingLink.m_persIndex": index, f"{JETS}.btaggingLink.m_persKey": key}
    else:
        made[f"{JETS}:btaggingLink"] = ak.zip({"m_persKey": key, "m_persIndex": index})
    path = write(tmp_path / "null.root", made, kind)
    assert load(path, btag="DL1dv01:-5").jets.btag.tolist() == [[1, 1, 0, 1], [1]]
    if mark == ".":
        made[f"{JETS}.btaggingLink.m_persKey"] = key[:, :1]
        path = write(tmp_path / "short.root", made, kind)
        with pytest.raises(FormatError, match="m_persKey and the jets have different lengths"):
            load(path)


def test_fractions_are_of_the_tagger_or_given(tmp_path):
    made = content(".", tagger="GN2v01")
    made[f"{TAGS}.GN2v01_ptau"] = made[f"{TAGS}.GN2v01_pu"] * 0 + np.float32(0.9)
    path = write(tmp_path / "gn2.root", made)
    # third object: log(0.5 / (0.2 x 0.1 + 0.01 x 0.9 + 0.79 x 0.4)) = 0.37
    for cut, tagged in ((0.36, 1), (0.38, 0)):
        assert load(path, btag=f"GN2v01:{cut}").jets.btag[0, 0] == tagged
    # all charm: log(0.5 / 0.1) = 1.61
    for cut, tagged in ((1.6, 1), (1.62, 0)):
        assert load(path, btag=f"GN2v01:{cut}", settings={"fractions": "1"}).jets.btag[0, 0] == tagged
    with pytest.raises(ConfigError, match=r"set fractions=0\.8,0\.3: write CHARM or CHARM,TAU"):
        load(path, btag="GN2v01:0", settings={"fractions": "0.8,0.3"})
    odd = write(tmp_path / "odd.root", content(".", tagger="New"))
    with pytest.raises(ConfigError, match="the fractions of New are not known: give --set fractions="):
        load(odd, btag="New:0")
    assert load(odd, btag="New:0", settings={"fractions": "0.018"}).jets.btag.tolist() == [[1, 0, 0, 1], [1]]


def test_jet_vertex_tag(lite, tmp_path):
    assert load(lite).usable["jet"].tolist() == [[True, False, True, True], [True]]
    assert ak.all(load(lite, settings={"jvt": "none"}).usable["jet"])
    # the number: not asked of jets above 60 GeV or beyond 2.4
    number = load(write(tmp_path / "number.root", content(".", "Jvt")))
    assert number.usable["jet"].tolist() == [[True, True, False, True], [False]]
    with pytest.warns(PairtonWarning, match=r"no jet vertex tag \(NNJvtPass"):
        assert ak.all(load(write(tmp_path / "none.root", content(".", None))).usable["jet"])


def test_data_without_weights(tmp_path):
    made = content(".")
    made[f"{INFO}.mcEventWeights"] = ak.values_astype(ak.Array([[1.0], [1.0]])[:, :0], np.float32)
    assert load(write(tmp_path / "empty.root", made)).weights is None
    del made[f"{INFO}.mcEventWeights"]
    assert load(write(tmp_path / "absent.root", made)).weights is None


def test_what_is_missing_is_named(tmp_path):
    made = content(".")
    del made[f"{JETS}.m"]
    with pytest.raises(FormatError, match=r"tree CollectionTree: no column for mass \(AnalysisJetsAuxDyn\.m\)"):
        load(write(tmp_path / "mass.root", made))
    made = content(".")
    del made[f"{JETS}.btaggingLink.m_persIndex"]
    with pytest.raises(FormatError, match=r"lacks AnalysisJetsAuxDyn\.btaggingLink\.m_persIndex"):
        load(write(tmp_path / "link.root", made))
    with pytest.raises(ConfigError, match=r"no tagger 'GN3'; .* has DL1dv01"):
        load(write(tmp_path / "whole.root", content(".")), btag="GN3:1")
    with pytest.raises(ConfigError, match="these files are in MeV"):
        load(tmp_path / "whole.root", units="GeV")


def test_varied_jets_in_gev(tmp_path):
    made = content(".")
    made[f"{JETS}.pt_up"] = made[f"{JETS}.pt"] * np.float32(1.1)
    events = load(write(tmp_path / "varied.root", made), variations={"up": {"pt": f"{JETS}.pt_up"}})
    np.testing.assert_allclose(events.variations["up"]["jet"].pt[0], [33, 88, 27.5, 77], rtol=1e-6)


# -- truth -------------------------------------------------------------------------------------------------

# t -> W+ b, t~ -> W- b~; W+ -> c s~, W- -> mu nu. Vertices: key and index; those of TruthBosonsWithDecayParticles
# are of another container. The W are in two containers, and the first b radiates.
VERTICES = 487_304_629, 1_234
TRUTH = {  # container -> PDG code, eta, phi, vertex where it begins, vertex where it ends
    "TruthTop": [(6, 0, 0, None, (0, 1)), (6, 0, 0.1, (0, 1), (0, 2)), (-6, 0, 0.2, None, (0, 3))],
    "TruthBoson": [(24, 0, 0.3, (0, 2), None), (-24, 0, 0.4, (0, 3), None)],
    "TruthBosonsWithDecayParticles": [
        (24, 0, 0.3, None, (1, 7)),
        (4, 0.5, 1.0, (1, 7), None),
        (-3, -0.5, 2.0, (1, 7), None),
        (-24, 0, 0.4, None, (1, 8)),
        (13, 1.0, 3.0, (1, 8), None),
    ],
    "TruthBottom": [
        (5, -3.0, 3.0, (0, 2), (0, 9)),
        (5, 0.0, -1.5, (0, 9), None),
        (-5, 1.5, -2.5, (0, 3), None),
        (5, 0.0, 0.0, None, None),
    ],
    "TruthMuons": [(13, 1.0, 3.0, (1, 8), None)],
}
REST = [(0.5, 1.0), (-0.5, 2.0), (0.0, -1.5), (1.5, -2.5)]  # c, s~, b after radiation, b~


def with_truth(mark, kind, without=()):
    """One event with these particles, whose muon is isolated; a second event without particles."""
    made = {name: column for name, column in content(mark).items() if not name.startswith((JETS, TAGS))}
    jets = {"pt": [50e3] * 4, "eta": [eta for eta, _ in REST], "phi": [phi for _, phi in REST], "m": [5e3] * 4}
    made |= {f"{JETS}{mark}{name}": ak.Array([values, values[:1]]) for name, values in jets.items()}
    muons = {"pt": [40e3], "eta": [1.0], "phi": [3.0], "charge": [-1.0]}
    made |= {f"AnalysisMuonsAuxDyn{mark}{name}": ak.Array([v, []]) for name, v in muons.items()}
    made |= {f"AnalysisElectronsAuxDyn{mark}{name}": ak.Array([v, v])[:, :0] for name, v in muons.items()}
    for container, particles in TRUTH.items():
        if container in without:
            continue
        code, eta, phi, *ends = zip(*particles, strict=True)
        values = {"pdgId": code, "px": 9e3 * np.cos(phi), "py": 9e3 * np.sin(phi), "pz": 9e3 * np.sinh(eta)}
        for name, numbers in values.items():
            made[f"{container}AuxDyn{mark}{name}"] = ak.Array([list(numbers), []])
        for name, vertices in zip(("prodVtxLink", "decayVtxLink"), ends, strict=True):
            keys = [0 if at is None else VERTICES[at[0]] for at in vertices]
            index = [NULL if at is None else at[1] for at in vertices]
            links = [ak.values_astype(ak.Array([each, []]), np.uint32) for each in (keys, index)]
            place = f"{container}AuxDyn{mark}{name}"
            if kind == "RNTuple":
                made[place] = ak.zip(dict(zip(("m_persKey", "m_persIndex"), links, strict=True)))
            else:
                made |= {f"{place}.m_persKey": links[0], f"{place}.m_persIndex": links[1]}
    return made


@pytest.mark.parametrize(("kind", "mark"), [("TTree", "."), ("RNTuple", ":")])
def test_truth_of_tops_from_several_containers(tmp_path, kind, mark):
    path = write(tmp_path / "truth.root", with_truth(mark, kind), kind)
    own = {"jvt": "none", "electron_id": "none", "muon_id": "none", "overlap": "none"}
    names = {"met.pt": f"{INFO}{mark}lumiBlock", "met.phi": f"{INFO}{mark}lumiBlock"}
    how = {"topology": "ttbar_semilep", "btag": "none", "map": names}
    for truth, b in (("hard", -1), ("last", 2)):
        found = read(path, settings=own | {"truth": truth}, **how)
        # slots: t.W.q1, t.W.q2, t.b, tl.b, tl.l; the b of the hard process is far from its jet
        assert found.truth.tolist() == [[0, 1, b, 3, 0], [-1] * 5]
    bosons = write(tmp_path / "bosons.root", with_truth(mark, kind, ["TruthTop", "TruthBoson"]), kind)
    found = read(bosons, topology="ww_allhad", btag="none", settings=own)
    assert found.truth[0].tolist() == [0, 1, -1, -1]
    without = with_truth(mark, kind, ["TruthTop", "TruthBoson", "TruthBosonsWithDecayParticles"])
    assert read(write(tmp_path / "no.root", without, kind), settings=own, **how).truth is None
