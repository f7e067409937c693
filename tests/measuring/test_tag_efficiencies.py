"""Tables measured on labelled jets give back the efficiencies that the jets were made with."""

from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot

from pairton.errors import ConfigError, InputError, PairtonWarning
from pairton.events import Events
from pairton.events.objects import make_jets
from pairton.events.tags import load_table
from pairton.formats import create
from pairton.generator.card import load_card
from pairton.measuring.tag_efficiencies import B_EFFICIENCIES, measure

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "samples"  # beside the clone, where there are any
CODES = np.array([5.0, 4.0, 0.0])


def labelled(n=4000, seed=1, weights=None):
    """Events of ten jets with the score, the binary tag and the flavour of the generator."""
    rng = np.random.default_rng(seed)
    card = load_card("atlas").btag
    shape = (n, 10)
    flavour = rng.choice(3, size=shape, p=[0.3, 0.2, 0.5])
    pt, quantile = rng.uniform(20, 200, shape), rng.random(shape)
    flat = flavour.ravel(), pt.ravel(), quantile.ravel()
    fields = {
        "pt": pt,
        "eta": rng.uniform(-2.5, 2.5, shape),
        "phi": rng.uniform(-3, 3, shape),
        "mass": np.full(shape, 5.0),
        "btag": (flat[2] < card.efficiency(flat[0], flat[1])).reshape(shape),
        "score": card.points.score(flat[0], flat[2]).reshape(shape),
        "flavour": CODES[flavour],
    }
    jets = make_jets(**{name: ak.from_regular(ak.Array(values.astype(float))) for name, values in fields.items()})
    return Events(jets, "ttbar_allhad", weights=weights)


def written(path, events):
    with create(path, events.topology) as writer:
        writer.write(events)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return written(tmp_path_factory.mktemp("tags") / "made.h5", labelled())


def assert_within_errors(measured, expected):
    """Of 3 x K numbers, none is off by more than four standard deviations."""
    pull = (measured.table.efficiencies[:, 0] - expected) / np.maximum(measured.error[:, 0], 1e-4)
    assert np.abs(pull).max() < 4
    assert np.abs(pull).max() > 0.1


@pytest.mark.parametrize("weighted", [False, True])
def test_efficiencies_of_the_card_come_back(tmp_path, made, weighted):
    table = load_table("generator_points")
    cuts = [0.15, 0.23, 0.3, 0.4]  # the score is one less the b efficiency
    if weighted:  # some negative, as from generators at next-to-leading order
        rng = np.random.default_rng(5)
        made = written(
            tmp_path / "weighted.h5", labelled(weights=rng.choice([2.0, -1.0], size=4000, p=[0.8, 0.2]))
        )
    found = measure(made, "score", cuts=cuts, pt=())
    assert_within_errors(found, table.efficiencies[:, 0])
    assert found.table.abs_eta == 2.5
    assert sum(found.jets.values()) == 40_000


def test_cuts_at_quantiles_of_b_jets(made):
    found = measure(made, "jet_score", pt=[])
    b = found.table.efficiencies[0, 0]
    np.testing.assert_allclose(b, B_EFFICIENCIES[: len(b)], atol=2e-3)
    assert 8 <= len(b) < len(B_EFFICIENCIES)  # fewer than five light jets pass the tightest
    some = measure(made, "score", efficiencies=[0.6, 0.8], pt=[])
    np.testing.assert_allclose(some.table.efficiencies[0, 0], [0.8, 0.6], atol=2e-3)


def test_tags_and_ranges_of_pt(made):
    found = measure(made, "btag")
    assert found.table.cuts == (0.5,)
    assert found.table.pt == (40, 60, 100, 150)  # ranges with a thousand jets each
    card = load_card("atlas").btag
    for k, pt in enumerate((30.0, 50.0, 80.0, 125.0, 175.0)):
        for flavour in range(3):
            expected = card.efficiency(np.array([flavour]), np.array([pt]))[0]
            assert abs(found.table.efficiencies[flavour, k, 0] - expected) < 4 * found.error[flavour, k, 0] + 0.02


def test_the_flavour_of_nanoaod_and_jets_without_a_score(tmp_path):
    events = labelled(500)
    jets = {name: getattr(events.jets, name) for name in ("pt", "eta", "phi", "mass")}
    jets |= {
        "btagMine": ak.where(events.jets.pt < 40, -1.0, events.jets.score),
        "hadronFlavour": events.jets.flavour,
    }
    content = {f"Jet_{name}": ak.values_astype(values, np.float32) for name, values in jets.items()}
    with uproot.recreate(tmp_path / "nano.root") as file:
        file.mktree("Events", dict.fromkeys(content, "var * float32") | {"luminosityBlock": np.uint32})
        file["Events"].extend(content | {"luminosityBlock": np.ones(500, dtype=np.uint32)})
    for name in ("Mine", "btagMine", "Jet_btagMine"):
        found = measure(tmp_path / "nano.root", name, cuts=[0.15, 0.3], pt=[], settings={"jet_id": "none"})
        assert_within_errors(found, load_table("generator_points").efficiencies[:, 0, [0, 2]])
        assert found.table.range == (0.0, 1.0)
        assert sum(found.jets.values()) == int(ak.sum(events.jets.pt >= 40))


def test_what_cannot_be_measured(tmp_path, made):
    events = labelled(30)
    plain = events.replace(jets=ak.with_field(events.jets, 0 * events.jets.flavour, "flavour"))
    with pytest.raises(InputError, match=r"only 0 b jets among the 300 jets with a score that pass pt>20"):
        measure(written(tmp_path / "light.h5", plain), "score")
    with pytest.raises(InputError, match="every jet has the score 0"):
        measure(written(tmp_path / "same.h5", events.replace(jets=_with(events.jets, score=0.0))), "score")
    without = _with(events.jets, flavour=ak.where(events.jets.flavour == 4, 0, events.jets.flavour))
    with pytest.warns(PairtonWarning, match="only 0 c jets"):
        found = measure(written(tmp_path / "no_c.h5", events.replace(jets=without)), "score", cuts=[0.15], pt=[])
    assert not found.table.has_c
    with pytest.warns(PairtonWarning, match="only 0 light jets pass the cut 0.99"):
        assert measure(made, "score", cuts=[0.15, 0.99], pt=[]).table.efficiencies[2, 0, 1] > 0
    for wrong in ({"cuts": [0.3, 0.1]}, {"efficiencies": [1.5]}, {"pt": [50, 40]}, {"jets": "pt=3"}):
        with pytest.raises(ConfigError):
            measure(made, "score", **wrong)


def _with(jets, **fields):
    for name, values in fields.items():
        jets = ak.with_field(
            jets, values if isinstance(values, ak.Array) else ak.zeros_like(jets.pt) + values, name
        )
    return jets


def test_the_command_line(command, made, tmp_path, capsys):
    table = tmp_path / "mine.yaml"
    assert (
        command("measure", "tags", made, "--score", "score", "--at", "0.85,0.7", "--pt", "none", "-o", table) == 0
    )
    said = capsys.readouterr().out
    assert "0.85 ± 0.003" in said
    assert f"wrote {table}" in said
    assert command("measure", "tags", made, "--score", "score", "-o", table) == 2
    assert "exists" in capsys.readouterr().err
    assert command("list", "tags", table) == 0
    assert "mine: the score score\n  measured on made.h5" in capsys.readouterr().out
    assert command("list", "tags") == 0
    assert "deepjet_2018" in capsys.readouterr().out
    for wrong, said in (
        (["--score", "nothing"], "no column for nothing of jets"),
        (["--score", "score", "--cuts", "a"], "--cuts 'a': give numbers"),
        (["--score", "score", "--cuts", "0.1", "--at", "0.5"], "choose one"),
        (["--score", "score", "-o", tmp_path / "mine.json"], "the output must end in .yaml"),
    ):
        assert command("measure", "tags", made, *wrong) == 2
        assert said in capsys.readouterr().err


@pytest.mark.skipif(not SAMPLES.exists(), reason="needs the shared samples")
def test_real_files():
    path = SAMPLES / "nanoaod_cms_ttbar_v12.root"
    with pytest.warns(PairtonWarning, match="light jets pass the cut"):
        found = measure(path, "DeepFlavB", cuts=[0.0583, 0.3086, 0.7183], pt=[], settings={"overlap": "none"})
    np.testing.assert_allclose(
        found.table.efficiencies[0, 0], load_table("deepjet_2022").efficiencies[0, 0, :3], atol=0.04
    )
    with pytest.raises(InputError, match="0 b jets among"):  # events of another process
        measure(SAMPLES / "physlite_atlas.root", "GN2v00", settings={"overlap": "none"})
    with pytest.raises(InputError, match="too few light jets pass any cut"):
        measure(SAMPLES / "delphes_ttbar.root", "BTag", jets="none")
