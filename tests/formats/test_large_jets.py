"""Large jets in files of experiments and in flat tables: mass, substructure, and evidence from their taggers."""

from contextlib import closing

import awkward as ak
import numpy as np
import pytest
from matplotlib.patches import Ellipse

from event_files import write_events
from pairton import formats
from pairton.errors import ConfigError
from pairton.evaluation.plots import new_figure
from pairton.events import Events
from pairton.events.inputs import LARGE_EVIDENCE
from pairton.events.large_tags import large_tables, large_tag_caveat, with_large_evidence
from pairton.events.objects import make_jets, make_objects
from pairton.formats.base import ReadOptions
from pairton.formats.delphes import DelphesSource
from pairton.formats.parquet_files import ParquetTable
from pairton.generator.card import load_card
from pairton.report.picture import draw_plane
from pairton.report.record import SeenEvent
from pairton.topology import load_topology
from root_files import write_tree

HH = load_topology("hh4b_boosted")
NO_RULES = {"overlap": "none", "jet_id": "none"}


def ragged(columns, counts):
    return {name: ak.unflatten(np.array(values, np.float32), counts) for name, values in columns.items()}


SMALL = {"pt": [90, 80, 70], "eta": [0.5, 1.5, -1], "phi": [2, -2, 0], "mass": [9, 8, 7]}


def small_jets(prefix, counts, names=str):
    """Columns of jets; `names`: the name of a field in the file."""
    return {f"{prefix}{names(name)}": column for name, column in ragged(SMALL, counts).items()}


def test_nanoaod_has_ratios_and_scores(tmp_path):
    large = {"pt": [300, 250], "eta": [0.1, 1], "phi": [0, 1], "mass": [120, 80], "msoftdrop": [110, 75]}
    large |= {"tau1": [0.4, 0], "tau2": [0.1, 0], "tau3": [0.05, 0], "particleNetWithMass_HbbvsQCD": [0.995, 0.1]}
    made = (
        small_jets("Jet_", [2, 0, 1])
        | {"run": np.ones(3), "nJet": np.array([2, 0, 1])}
        | {f"FatJet_{name}": column for name, column in ragged(large, [1, 0, 1]).items()}
    )
    events = formats.read(
        write_tree(tmp_path / "nano.root", "Events", made), topology=HH, btag="none", settings=NO_RULES
    )
    found = events.objects["fatjet"]
    assert found.tau21.tolist() == [[0.25], [], [0.0]]
    assert found.tau32.tolist() == [[0.5], [], [0.0]]
    assert found.msoftdrop.tolist() == [[110.0], [], [75.0]]
    evidence = with_large_evidence(found, events.metadata)
    assert (evidence.hbb_evidence[0, 0] > 5) & (evidence.hbb_evidence[2, 0] < -1)
    assert ak.all(evidence.top_evidence == 0)
    assert "particlenet_run3) are an example" in large_tag_caveat(events, "fatjet")


def test_physlite_is_in_gev_and_has_a_discriminant(tmp_path):
    large = {"pt": [3e5, 2.5e5], "eta": [0.1, 1], "phi": [0, 1], "m": [1.2e5, 8e4]}
    large |= {"Tau1_wta": [0.4, 0], "Tau2_wta": [0.1, 0], "Tau3_wta": [0.05, 0]}
    large |= {
        "GN2Xv01_phbb": [0.9, 0.1],
        "GN2Xv01_phcc": [0, 0.1],
        "GN2Xv01_ptop": [0, 0.1],
        "GN2Xv01_pqcd": [0.1, 0.7],
    }
    made = small_jets("AnalysisJetsAuxDyn.", [2, 1], lambda name: name.replace("mass", "m")) | {
        f"AnalysisLargeRJetsAuxDyn.{name}": column for name, column in ragged(large, [1, 1]).items()
    }
    path = write_tree(tmp_path / "lite.root", "CollectionTree", made)
    events = formats.read(path, topology=HH, btag="none", settings={"overlap": "none", "jvt": "none"})
    found = events.objects["fatjet"]
    np.testing.assert_allclose(ak.flatten(found.msoftdrop), [120, 80], rtol=1e-6)
    np.testing.assert_allclose(ak.flatten(found.tau21), [0.25, 0], rtol=1e-6)
    expected = np.log([0.9 / 0.073, 0.1 / (0.002 + 0.025 + 0.511)])
    np.testing.assert_allclose(ak.flatten(found.gn2x_hbb), expected, rtol=1e-5)


def test_delphes_has_five_values_of_n_subjettiness(tmp_path):
    made = small_jets("Jet.", [2, 1], lambda name: {"pt": "PT"}.get(name, name.title()))
    large = ragged({"PT": [300, 250], "Eta": [0.1, 1], "Phi": [0, 1], "Mass": [120, 80]}, [1, 1])
    made |= {f"FatJet.{name}": column for name, column in large.items()}
    made["FatJet.Tau[5]"] = ak.Array([[[0.4, 0.1, 0.05, 0, 0]], [[0.0] * 5]])
    path = write_tree(tmp_path / "delphes.parquet", "Delphes", made, "Parquet")
    with closing(ParquetTable(str(path))) as table:  # uproot writes no lists of arrays
        events = DelphesSource(table, ReadOptions.parse(HH, btag="none")).read(0, 2)
    assert events.objects["fatjet"].tau21.tolist() == [[0.25], [0.0]]


def large_events(**scores):
    momentum = {"pt": [[300.0], [400.0]], "eta": [[0.0], [1.0]], "phi": [[0.0], [1.0]], "mass": [[120.0], [90.0]]}
    four = {"pt": 40.0, "eta": 0.0, "phi": 2.0, "energy": 41.0, "btag": 1.0}
    jets = make_jets(**{name: [[value] * 4] * 2 for name, value in four.items()})
    objects = {"jet": jets, "fatjet": make_objects(**momentum, msoftdrop=[[110.0], [80.0]], **scores)}
    return Events(objects, HH, np.array([[-1, -1, 0, 0, 1, -1]] * 2))


@pytest.mark.parametrize("suffix", ["h5", "parquet", "root"])
def test_what_is_written_is_read(tmp_path, suffix):
    events = large_events(hbb_score=[[0.9], [0.2]], tau21=[[0.3], [0.6]])
    path = write_events(events, tmp_path / f"large.{suffix}")
    again = formats.read(path, topology=HH)
    assert again.truth.tolist() == events.truth.tolist()
    for name in ("msoftdrop", "tau21", "hbb_score"):
        np.testing.assert_allclose(
            ak.flatten(again.objects["fatjet"][name]), ak.flatten(events.objects["fatjet"][name]), rtol=1e-6
        )


def test_the_display_draws_them_with_their_radius():
    one = large_events()[:1]
    parts = one.objects["fatjet"]
    one = one.replace(objects={**one.objects, "fatjet": ak.with_field(parts, ak.full_like(parts.phi, 3.0), "phi")})
    seen = SeenEvent.of(one, {"jet": np.arange(4), "fatjet": np.arange(1)}, 0, "file", HH)
    answer = seen.shown(np.array([-1, -1, 4, -1, -1, -1]))
    axes = new_figure(4, 4).subplots()
    draw_plane(axes, seen.record("exact", "model", "ok", answer, 0.9, ()), answer)
    circles = [patch for patch in axes.patches if isinstance(patch, Ellipse)]
    assert {(circle.width, circle.height) for circle in circles} == {(2.0, 2.0)}
    assert len(circles) == 4  # the jet and the particle that it is, on both sides of the seam of phi
    assert "H1 120" in [text.get_text() for text in axes.texts]


def test_evidence_is_that_of_the_card_or_of_a_stated_table():
    table, card = large_tables()["generator"], load_card("atlas").fatjets.taggers
    for name, score in (("top", table.top), ("wz", table.wz), ("hbb", table.hbb)):
        assert score.signal == getattr(getattr(card, name), name)
        assert score.other == getattr(card, name).other
    events = large_events(hbb_score=[[0.9], [0.2]])
    found = with_large_evidence(events.objects["fatjet"], {})
    np.testing.assert_allclose(ak.flatten(found.hbb_evidence), np.log([0.3 / 0.0025, 0.15 / 0.032]), rtol=1e-5)
    own = {"name": "mine", "hbb": {"field": "msoftdrop", "cuts": [100], "signal": [0.8], "other": [0.1]}}
    found = with_large_evidence(events.objects["fatjet"], {"large_tag_table": own})
    np.testing.assert_allclose(ak.flatten(found.hbb_evidence), np.log([8, 0.2 / 0.9]), rtol=1e-5)
    assert large_tag_caveat(events, "fatjet") == ""
    assert set(LARGE_EVIDENCE) <= set(ak.fields(found))
    assert "no score of a known tagger" in large_tag_caveat(large_events(), "fatjet")
    assert ak.all(with_large_evidence(large_events().objects["fatjet"], {}).hbb_evidence == 0)
    with pytest.raises(ConfigError, match="efficiencies must lie between 0 and 1"):
        with_large_evidence(
            events.objects["fatjet"], {"large_tag_table": {**own, "hbb": own["hbb"] | {"other": [1.5]}}}
        )
