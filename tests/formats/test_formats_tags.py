"""Taggers of files: which one is used, what its values are worth, and scores that are not there."""

import gzip
import json
import warnings
from dataclasses import replace

import awkward as ak
import numpy as np
import pytest
import yaml

import pairton
from event_files import write_events
from pairton.errors import ConfigError, EventsError, FormatError, InputError, PairtonWarning
from pairton.events.domain import Domain
from pairton.events.inputs import EVIDENCE
from pairton.events.tags import load_table, parse_table
from pairton.formats import create, iterate, open_source, read
from pairton.reconstruction.provenance import result_metadata
from pairton.reconstruction.running import reconstruct_files
from root_files import write_tree

POINTS = {"b": [0.85, 0.6], "c": [0.3, 0.05], "light": [0.05, 0.001]}
QUIET = {"settings": {"jet_id": "none"}, "topology": "ttbar_allhad"}


def nano(path, events, **scores):
    """A NanoAOD file of these jets, with columns of scores (ragged)."""
    jets = {name: getattr(events.jets, name) for name in ("pt", "eta", "phi", "mass")} | scores
    content = {f"Jet_{name}": ak.values_astype(values, np.float32) for name, values in jets.items()}
    return write_tree(path, "Events", content | {"luminosityBlock": np.ones(len(events), dtype=np.uint32)})


def bins_of(events, seed=4):
    """0, 1 or 2 points passed: tagged jets mostly two, others mostly none."""
    rng = np.random.default_rng(seed)
    tagged = np.asarray(ak.flatten(events.jets.btag)) > 0.5
    chance = rng.random(len(tagged))
    return ak.unflatten(np.where(tagged, 2 - (chance < 0.3), chance < 0.1), events.n_jets)


@pytest.fixture
def events(decays):
    return decays(60, seed=3)


@pytest.fixture
def filled(events):
    """Scores from 0 to 1 that pass none, one or both of the cuts 0.3 and 0.8."""
    return bins_of(events) * 0.4 + 0.1


# -- which tagger ------------------------------------------------------------------------------------------


def test_a_tagger_that_is_not_filled_is_passed_over_and_said(tmp_path, events, filled):
    unfilled = {"btagPNetB": filled * 0 - 1, "btagDeepFlavB": filled * 0 - 3000}
    path = nano(tmp_path / "a.root", events, **unfilled, btagCSVV2=filled)
    said = r"CSVV2 > 0.8484 are b-tagged \(table csvv2_2016\), since PNetB and DeepFlavB are not filled"
    with pytest.warns(PairtonWarning, match=said):
        found = read(path, **QUIET)
    assert found.jets.btag.tolist() == (filled > 0.8484).tolist()
    assert found.metadata["btag"] == "CSVV2:0.8484"
    for how in ({"btag": "DeepFlavB:0.3"}, {"btag": "DeepFlavB"}, {"btag": "deepjet_2017"}):
        with pytest.raises(FormatError, match=r"DeepFlavB is not filled: the first .* filled taggers: CSVV2$"):
            read(path, **QUIET, **how)


def test_no_tagger_is_filled(tmp_path, events, filled):
    path = nano(tmp_path / "a.root", events, btagPNetB=filled * 0 + 0.5, btagCSVV2=filled * np.nan)
    with pytest.raises(FormatError, match=r"none of the taggers UParTAK4B, .* or they are not filled"):
        read(path, **QUIET)
    with pytest.raises(FormatError, match=r"the first \d+ jets all have the value 0.5"):
        read(path, **QUIET, btag="PNetB:0.3")


@pytest.mark.parametrize("cut", [8, 1, -0.1])
def test_a_cut_outside_the_range_of_the_score(tmp_path, events, filled, cut):
    path = nano(tmp_path / "a.root", events, btagCSVV2=filled)
    with pytest.raises(ConfigError, match=r"goes from 0 to 1, .* choose a cut such as 0.5426, 0.8484, 0.9535"):
        read(path, **QUIET, btag=f"CSVV2:{cut}")


def test_the_table_is_that_of_the_era_with_the_cut(tmp_path, events, filled):
    path = nano(tmp_path / "a.root", events, btagDeepFlavB=filled)
    names = {
        cut: read(path, **QUIET, btag=f"DeepFlavB:{cut}").metadata["tag_table"]["name"]
        for cut in (0.304, 0.2783, 0.3086, 0.5)
    }
    assert names == {0.304: "deepjet_2017", 0.2783: "deepjet_2018", 0.3086: "deepjet_2022", 0.5: "deepjet_2018"}
    chosen = read(path, **QUIET, btag="deepjet_2016pre")
    assert chosen.metadata["btag"] == "DeepFlavB:0.2598"
    np.testing.assert_array_equal(chosen.jets.btag, filled > 0.2598)
    assert read(path, **QUIET, btag="deepjet_2016pre:0.4").metadata["btag"] == "DeepFlavB:0.4"
    values, pt, eta = (np.asarray(ak.flatten(a)) for a in (filled, events.jets.pt, events.jets.eta))
    expected = load_table("deepjet_2016pre").evidence(values, pt, eta)
    for name, evidence in zip(EVIDENCE, expected, strict=True):
        np.testing.assert_allclose(ak.flatten(chosen.jets[name]), evidence, rtol=1e-5)


def test_jets_that_a_tagger_was_not_run_on_have_no_evidence(tmp_path, events, filled):
    some = ak.where(events.jets.pt < 60, -1.0, filled)
    found = read(nano(tmp_path / "a.root", events, btagPNetB=some), **QUIET, btag="PNetB:0.245").jets
    assert ak.all(found.b_evidence[found.pt < 60] == 0)
    assert ak.all(found.b_evidence[(found.pt > 61) & (abs(found.eta) < 2.5)] != 0)


def test_a_tagger_of_which_nothing_is_known_gives_a_tag_alone(tmp_path, events, filled):
    path = nano(tmp_path / "a.root", events, btagMine=filled, odd=filled)
    found = read(path, **QUIET, btag="Mine:0.3")
    assert not set(EVIDENCE) & set(ak.fields(found.jets))
    table = {"name": "mine", "field": "odd", "cuts": [0.3, 0.8], "efficiency": POINTS}
    found = read(path, **QUIET, btag=table)
    assert found.metadata["btag"] == "odd:0.3"
    assert found.metadata["tag_table"]["efficiency"] == POINTS


def test_a_table_of_tags_is_for_the_tag_that_a_cut_makes(tmp_path, events, filled):
    path = nano(tmp_path / "a.root", events, btagCSVV2=filled)
    with pytest.warns(PairtonWarning, match="by default, jets with CSVV2 > 0.8484"):
        found = read(path, **QUIET, btag="binary_77")
    b = np.asarray(ak.flatten(found.jets.b_evidence[abs(found.jets.eta) < 2.5]))
    assert set(np.round(b, 2)) == set(np.round(np.log([0.77 / 0.0088496, 0.23 / 0.9911504]), 2).astype(np.float32))


def test_a_table_for_another_score(tmp_path, events, filled):
    path = nano(tmp_path / "a.root", events, btagPNetB=filled, btagDeepFlavB=filled)
    with pytest.raises(ConfigError, match=r"dl1d is for DL1dv01; .* has DeepFlavB, PNetB"):
        read(path, **QUIET, btag="dl1d")


def test_files_with_different_taggers_are_refused(tmp_path, events, filled, evidence_model):
    one = nano(tmp_path / "one.root", events, btagPNetB=filled, btagDeepFlavB=filled)
    two = nano(tmp_path / "two.root", events, btagDeepFlavB=filled)
    both = [str(one), str(two)]
    for run in (
        lambda: list(iterate(both, **QUIET)),
        lambda: reconstruct_files(both, tmp_path / "parts", evidence_model, settings={"jet_id": "none"}, jobs=1),
    ):
        with (
            pytest.warns(PairtonWarning, match="by default"),
            pytest.raises(
                InputError, match=r"two.root is read with btag=DeepFlavB > 0.2783 .*PNetB > 0.245 .*--btag"
            ),
        ):
            run()
    assert sum(map(len, iterate(both, **QUIET, btag="DeepFlavB:0.2783"))) == 120


def test_open_data_of_2015(sample):
    with pytest.warns(PairtonWarning, match="CSVV2 > 0.8484 .* since DeepFlavB and DeepB are not filled"):
        found = read(sample("nanoaod_cms_opendata_2015.root"), settings={"overlap": "none"})
    assert 0 < float(ak.mean(found.jets.btag)) < 0.2
    assert ak.any(found.jets.b_evidence > 0)


def test_tables_fit_simulated_ttbar_events(sample):
    """b jets of 200 real events pass the points about as often as the tables say."""
    for field, name in (("btagPNetB", "pnet_2022"), ("btagDeepFlavB", "deepjet_2022")):
        path = sample("nanoaod_cms_ttbar_v12.root")
        jets = read(path, btag=name, fields={"jet": [field, "flavour"]}, settings={"overlap": "none"}).jets
        values = ak.flatten(jets[field][(jets.pt > 30) & (abs(jets.eta) < 2.5) & (jets.flavour == 5)])
        table = load_table(name)
        share = [float(ak.mean(values > cut)) for cut in table.cuts]
        np.testing.assert_allclose(share, table.efficiencies[0, 0], atol=0.05)


@pytest.mark.parametrize("name", ["wp.json", "wp.json.gz"])
def test_working_points_of_correctionlib(tmp_path, events, filled, name):
    """In the layout of the files that CMS distributes."""
    points = {"L": 0.0499, "M": 0.2605, "T": 0.6915}
    nodes = [{"key": key, "value": value} for key, value in points.items()]
    data = {"nodetype": "category", "input": "working_point", "content": nodes}
    corrections = [
        {"name": "deepJet_wp_values", "data": {**data, "content": []}},
        {"name": "particleNet_wp_values", "data": data},
        {"name": "particleNet_comb", "data": {}},
    ]
    text = json.dumps({"schema_version": 2, "corrections": corrections}).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    path = nano(tmp_path / "a.root", events, btagPNetB=filled)
    found = read(path, **QUIET, btag=f"PNetB:{tmp_path / name}:T")
    assert found.jets.btag.tolist() == (filled > 0.6915).tolist()
    assert found.metadata["btag"] == "PNetB:0.6915"
    assert found.metadata["tag_table"]["name"] == "pnet_2022EE"  # the era with this cut
    with pytest.raises(ConfigError, match="particleNet_wp_values has no point 'XT', but L, M, T"):
        read(path, **QUIET, btag=f"btagPNetB:{tmp_path / name}:XT")
    with pytest.raises(ConfigError, match="no working points of Mine, but deepJet_wp_values, particle"):
        read(path, **QUIET, btag=f"Mine:{tmp_path / name}:M")
    (tmp_path / "odd.json").write_text('{"corrections": [{"name": "a_wp_values", "data": 5}]}')
    with pytest.raises(ConfigError, match=r"odd\.json: not a file of working points"):
        read(path, **QUIET, btag=f"Mine:{tmp_path / 'odd.json'}:M")


# -- columns of our own ------------------------------------------------------------------------------------


def stored(path, events, metadata=None, **fields):
    jets = events.jets
    for name, values in fields.items():
        jets = ak.without_field(jets, name) if values is None else ak.with_field(jets, values, name)
    with create(path, events.topology, metadata) as writer:
        writer.write(events.replace(jets=jets))
    return path


@pytest.mark.parametrize("suffix", [".h5", ".root", ".parquet"])
def test_integer_bins_with_a_table(tmp_path, events, suffix):
    bins = bins_of(events) + 2.0  # two to four of the points of tagbin
    path = stored(tmp_path / f"a{suffix}", events, tagbin=bins)
    found = read(path, btag="generator_points").jets
    np.testing.assert_array_equal(found.btag, events.jets.btag)  # the file's own
    inside = abs(found.eta) < 2.5
    np.testing.assert_allclose(ak.flatten(found.b_evidence[inside & (bins == 2)]), np.log(0.08 / 0.0256334), 1e-4)
    assert ak.all(found.b_evidence[~inside] == 0)
    assert ak.all(found.c_evidence[inside & (bins == 2)] > 1)
    # without a btag of its own the tag is that of the 77 % point
    bare = stored(tmp_path / f"bare{suffix}", events, tagbin=bins, btag=None)
    np.testing.assert_array_equal(read(bare, btag="generator_points").jets.btag, bins > 2.5)
    with pytest.raises(FormatError, match="no column for btag"):
        read(bare)


@pytest.mark.parametrize("suffix", [".h5", ".parquet"])
def test_a_cut_on_the_score_of_a_table(tmp_path, events, filled, suffix):
    """`--btag TABLE:CUT` cuts on the score of the table, not on another btag of the file."""
    path = stored(tmp_path / f"a{suffix}", events, btagDeepFlavB=filled)  # 0.1, 0.5 or 0.9
    own = read(path, btag="deepjet_2018").jets
    assert ak.all(own.btag == events.jets.btag)
    cut = read(path, btag="deepjet_2018:0.7").jets
    assert cut.btag.tolist() == (filled > 0.7).tolist()
    assert ak.all(cut.b_evidence == own.b_evidence)  # a cut does not change what scores are worth
    column = {"btag": "pt" if suffix == ".h5" else "jet_pt"}  # the user names another score
    mapped = read(path, btag="deepjet_2018:50", map=column).jets
    assert mapped.btag.tolist() == (events.jets.pt > 50).tolist()
    with pytest.raises(FormatError, match=r"no column for btag \(nonsense\)"):
        read(path, btag="nonsense:0.7")


def test_a_score_beside_a_table_is_not_a_tag(tmp_path, events, filled):
    path = stored(tmp_path / "a.h5", events, btagDeepFlavB=filled, btag=1 - filled)
    with pytest.raises(FormatError, match=r"btag of jets must be 0 or 1, .* deepjet_2018:CUT to cut on"):
        read(path, btag="deepjet_2018")
    assert read(path, btag="deepjet_2018:0.7").jets.btag.tolist() == (filled > 0.7).tolist()


def test_evidence_in_the_file_is_taken_as_it_is(tmp_path, events, evidence_model):
    own = events.jets.btag * 7.0 - 3
    path = stored(tmp_path / "a.h5", events, b_evidence=own, c_evidence=own * 0, btag=None)
    found = read(path, **options_for(evidence_model)).jets
    np.testing.assert_array_equal(found.b_evidence, own)
    kept = stored(tmp_path / "b.h5", events, b_evidence=own, c_evidence=own * 0)
    assert EVIDENCE[0] not in ak.fields(read(kept, btag="btag:0.5").jets)  # it is that of other tags


def options_for(model):
    from pairton.formats import options_for

    return options_for(model, {})


def test_a_column_without_values(tmp_path, events, filled):
    path = stored(tmp_path / "a.parquet", events, mine=filled * 0 - 999)
    table = parse_table(
        {"field": "mine", "range": [0, 1], "cuts": [0.5], "efficiency": {"b": [0.7], "light": [0.01]}}
    )
    with pytest.raises(FormatError, match=r"mine is not filled: none of \d+ jets has a value from 0 to 1"):
        read(path, btag=table)


def test_isolated_readers_have_the_table_too(tmp_path, events):
    path = stored(tmp_path / "a.h5", events, tagbin=bins_of(events) + 1.0)
    with open_source(path, btag="generator_points", isolate=True) as source:
        assert source.tagging == "tagbin (generator_points)"
        alone = source.read(0, 60)
    assert ak.all(alone.jets.b_evidence == read(path, btag="generator_points").jets.b_evidence)


# -- what a model gets -------------------------------------------------------------------------------------


def test_same_efficiencies_same_answers(tmp_path, events, evidence_model):
    """Three scales and two formats of one tagger: bins of 0 to 2, a score from 0 to 1, a discriminant."""
    bins = bins_of(events)
    scales = {"btagDeepFlavB": (bins * 0.4 + 0.1, [0.3, 0.7]), "btagOther": (bins * 9.0 - 12, [-8.0, 2.0])}
    answers = {}
    for field, (values, cuts) in scales.items():
        table = tmp_path / f"{field}.yaml"
        table.write_text(yaml.safe_dump({"field": field, "cuts": cuts, "efficiency": POINTS}))
        path = nano(tmp_path / f"{field}.root", events, **{field: values})
        reco = pairton.reconstruct(read(path, **QUIET, btag=table), evidence_model, cuts=False)
        answers[field] = reco.assignment, reco.event_probability
    table = parse_table({"field": "passed", "cuts": [0.5, 1.5], "efficiency": POINTS}, "bins")
    jets = ak.with_field(events.jets, bins, "passed")
    reco = pairton.reconstruct(jets, evidence_model, btag=table, cuts=False)
    for assignment, probability in answers.values():
        np.testing.assert_array_equal(assignment, reco.assignment)
        np.testing.assert_allclose(probability, reco.event_probability, rtol=1e-3)  # masses are float32 in files
    worse = parse_table({"field": "passed", "cuts": [0.5], "efficiency": {"b": [0.85], "light": [0.05]}}, "bins")
    other = pairton.reconstruct(jets, evidence_model, btag=worse, cuts=False)
    assert (other.assignment != reco.assignment).any()


def test_tags_of_which_nothing_is_known_are_said_once(events, evidence_model):
    with pytest.warns(PairtonWarning) as caught:
        reco = pairton.reconstruct(events, evidence_model)
    assert [str(w.message)[:38] for w in caught] == ["the tagger is unknown, so the efficien"]
    assert reco.events.metadata["tag_table"]["name"] == "generator"
    with pytest.warns(PairtonWarning, match="efficiencies in the table binary_70 are approximate"):
        pairton.reconstruct(events, evidence_model, btag="binary_70")
    known = ak.with_field(events.jets, events.jets.btag * 5.0, "b_evidence")
    assert ak.all(pairton.reconstruct(known, evidence_model).events.jets.c_evidence == 0)


def test_a_score_is_not_a_tag(events, evidence_model):
    jets = ak.with_field(events.jets, events.jets.btag * 0.5 + 0.2, "btag")
    with pytest.raises(EventsError, match=r"btag of jets must be 0 or 1, .* as 0\."):
        pairton.reconstruct(jets, evidence_model)
    none = ak.where(events.jets.pt < 40, -1, events.jets.btag)  # a few jets without a tag
    with pytest.warns(PairtonWarning):
        reco = pairton.reconstruct(ak.with_field(events.jets, none, "btag"), evidence_model)
    assert ak.all(reco.events.jets.b_evidence[reco.events.jets.pt < 40] == 0)


def test_generated_events_use_their_finest_tags(tmp_path, events, evidence_model):
    """No warning, and the score instead of the tag, of events whose file states the table."""
    made = {"tag_table": load_table("generator_score").to_dict()}
    score = bins_of(events) * 0.3 + 0.2
    path = stored(tmp_path / "a.h5", events, made, score=score)
    output = tmp_path / "out.parquet"
    reconstruct_files(str(path), output, evidence_model)
    said = result_metadata(output)["input_metadata"]
    assert said["tag_table"] == json.loads(json.dumps(load_table("generator_score").to_dict()))
    in_memory = pairton.reconstruct(read(path), evidence_model)
    assert in_memory.events.metadata["tag_table"]["name"] == "generator_score"
    other = {"generator": {"card": "btag: {points: {b: [0.9], c: [0.5], light: [0.1]}}"}}
    with pytest.warns(PairtonWarning, match="the tagger is unknown"):
        pairton.reconstruct(read(stored(tmp_path / "b.h5", events, other, score=score)), evidence_model)


def test_a_result_says_which_tags_it_used(tmp_path, events, filled, evidence_model):
    path = nano(tmp_path / "a.root", events, btagPNetB=filled)
    output = tmp_path / "out.parquet"
    with pytest.warns(PairtonWarning, match="pnet_2022EE are approximate"):
        reconstruct_files(str(path), output, evidence_model, **QUIET, btag="pnet_2022EE")
    said = result_metadata(output)["input_metadata"]
    assert said["btag"] == "PNetB:0.2605"
    assert said["tag_table"]["cuts"] == list(load_table("pnet_2022EE").cuts)


# -- what is said ------------------------------------------------------------------------------------------


def test_inspect_shows_the_taggers(command, tmp_path, events, filled, capsys):
    unfilled = {"btagPNetB": filled * 0 - 1, "btagPNetCvB": filled}
    path = nano(tmp_path / "a.root", events, **unfilled, btagDeepFlavB=ak.where(events.jets.pt < 40, -1, filled))
    assert command("inspect", path, "--json", "--set", "jet_id=none") == 0
    found = {tagger["name"]: tagger for tagger in json.loads(capsys.readouterr().out)["taggers"]}
    assert list(found) == ["PNetB", "DeepFlavB", "PNetCvB"]
    assert {name: (tagger["filled"], tagger["used"]) for name, tagger in found.items()} == {
        "PNetB": (False, None),
        "DeepFlavB": (True, "DeepFlavB > 0.2783 (deepjet_2018)"),
        "PNetCvB": (True, None),
    }
    first = ak.flatten(events.jets.pt)
    assert found["DeepFlavB"]["known"] == int(ak.sum(first >= 40))
    assert found["DeepFlavB"]["low"] == pytest.approx(0.1)
    assert found["PNetB"]["tables"][0] == "pnet_2022"
    assert found["DeepFlavB"]["cuts"] == list(load_table("deepjet_2018").cuts)
    assert command("inspect", path, "--json", "--set", "jet_id=none", "--btag", "deepjet_2017") == 0
    found = {tagger["name"]: tagger for tagger in json.loads(capsys.readouterr().out)["taggers"]}
    assert found["DeepFlavB"]["tables"][0] == "deepjet_2017"
    assert found["DeepFlavB"]["cuts"] == list(load_table("deepjet_2017").cuts)
    assert command("inspect", path, "--set", "jet_id=none", "--isolate") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "PNetB not filled; cuts 0.047, 0.245, 0.6734, 0.7862, 0.961 in table pnet_2022, also" in text
    assert "used: DeepFlavB > 0.2783 (deepjet_2018); filled for" in text
    assert "other scores PNetCvB" in text


def test_the_share_of_tagged_jets_is_said(command, tmp_path, events, capsys):
    path = stored(tmp_path / "a.h5", events)
    share = 100 * float(ak.mean(events.jets.btag))
    assert command("reconstruct", path, "-o", tmp_path / "out.parquet") == 0
    assert f"{share:.1f} % of jets b-tagged" in capsys.readouterr().out
    said = result_metadata(tmp_path / "out.parquet")
    assert said["btagged_jets"] == int(ak.sum(events.jets.btag))
    assert said["jets"] == int(events.n_jets.sum())
    for again in ([], ["--resume"]):
        assert command("reconstruct", path, "-o", tmp_path / "parts", "--jobs", 1, *again) == 0
        assert f"{share:.1f} % of jets b-tagged" in capsys.readouterr().out


@pytest.mark.parametrize("value", [0, 1])
def test_no_tags_and_nothing_but_tags_are_warned_of(events, mass_model, value):
    jets = ak.with_field(events.jets, ak.zeros_like(events.jets.btag) + value, "btag")
    word = "every one" if value else "none"
    for run in (pairton.reconstruct, pairton.evaluate):
        with pytest.warns(PairtonWarning, match=f"{word} of 480 jets has a b-tag"):
            run(events.replace(jets=jets), mass_model)


def test_padding_of_minus_999_is_no_jet(tmp_path, events, evidence_model, mass_model):
    """Jets that are padding are cut away before anything is judged, whatever is in their other fields."""
    table = {name: getattr(events.jets, name) for name in ("pt", "eta", "phi", "mass", "btag")}
    padded = {f"jet_{name}": ak.fill_none(ak.pad_none(v, 12), -999.0) for name, v in table.items()}
    ak.to_parquet(ak.Array(padded), tmp_path / "padded.parquet")
    for model in (evidence_model, mass_model):
        bounded = replace(model, domain=Domain({"jet": replace(model.domain["jet"], pt=5.0, abs_eta=10.0)}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PairtonWarning)
            found = pairton.reconstruct(tmp_path / "padded.parquet", bounded, jets="pt>5,abs_eta<10")
            expected = pairton.reconstruct(events, bounded, jets="pt>5,abs_eta<10")
        np.testing.assert_array_equal(found.assignment, expected.assignment)
        assert (found.status == expected.status).all()
        assert (found.status == 0).any()


# -- without tags ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nano.root", "a.root", "a.parquet", "a.h5"])
@pytest.mark.parametrize("tags", [False, True])
def test_without_tags(tmp_path, events, name, tags):
    """`--btag none` needs no tags in the file, ignores those that are there, and warns of nothing."""
    score = {"btagDeepFlavB": events.jets.btag} if tags else {}
    path = tmp_path / name
    if name == "nano.root":
        nano(path, events, **score)
    else:
        jets = events.jets if tags else events.jets[[n for n in ak.fields(events.jets) if n != "btag"]]
        write_events(events.replace(jets=ak.with_name(jets, "Momentum4D")), path)
    how = {"btag": "none"} | (QUIET if name == "nano.root" else {})
    found = read(path, **how)
    assert "btag" not in ak.fields(found.jets)
    assert all(not ak.any(found.jets[field]) for field in EVIDENCE)
    assert found.metadata["btag"] == "none"
    assert found.selected.any()  # the topology asks for two tags, which nobody can count
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reco = pairton.reconstruct(found)
    assert (reco.assignment >= 0).any()


@pytest.mark.parametrize("name", ["delphes_ttbar.root", "physlite_atlas.root", "nanoaod_cms_ttbar_v12.root"])
@pytest.mark.filterwarnings("ignore::pairton.errors.PairtonWarning")
def test_real_files_without_tags(sample, name):
    with open_source(sample(name), btag="none", topology="ttbar_allhad") as source:
        assert source.tagging == source.metadata["btag"] == "none"
        found = source.read(0, 5)
    assert "btag" not in ak.fields(found.jets)
    assert not ak.any(found.jets.b_evidence)
