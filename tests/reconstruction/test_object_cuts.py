"""A user's cuts on jets and leptons: in place of the model's, recorded, and said where they take labels away."""

import json

import awkward as ak
import numpy as np
import pytest

import pairton
from event_files import write_events
from pairton.errors import ConfigError
from pairton.events import Status
from pairton.events.domain import Domain, KindDomain, as_cuts, parse_cuts, used_cuts, user_cuts
from pairton.formats import create
from pairton.reconstruction.provenance import result_metadata
from pairton.topology import Cuts


@pytest.fixture
def model(mass_model_type):
    return mass_model_type(
        domain=Domain({"jet": KindDomain(pt=20.0, abs_eta=4.5, count=(6, 16), binary=("btag",))})
    )


def used_jets(events, pt, abs_eta):
    return ak.sum((events.jets.pt >= pt) & (abs(events.jets.eta) <= abs_eta), axis=1).tolist()


def test_cuts_replace_those_of_the_model(decays, model):
    events = decays(100, extra=4)
    for jets, pt, abs_eta in (
        (None, 20, 4.5),
        ("pt>30,abs_eta<2.4", 30, 2.4),
        ("pt > 30", 30, 4.5),  # the other one stays
        ("|eta|<=2.0", 20, 2.0),
        ("pt>10", 10, 4.5),  # looser than the model's
        ("none", 0, np.inf),
    ):
        found = pairton.reconstruct(events, model, jets=jets)
        assert found.used["jet"].tolist() == np.minimum(used_jets(events, pt, abs_eta), 12).tolist(), jets
    tight = pairton.reconstruct(events, model, jets="pt>30,abs_eta<2.4")
    same = events.keep({"jet": (events.jets.pt >= 30) & (abs(events.jets.eta) <= 2.4)})
    np.testing.assert_array_equal(tight.index, pairton.reconstruct(same, model).index)


def test_jets_beyond_the_domain_are_used_and_said(decays, model):
    events = decays(100, extra=4)
    found = pairton.reconstruct(events, model, jets="none")
    soft = ak.to_numpy(ak.any((events.jets.pt < 20) | (abs(events.jets.eta) > 4.5), axis=1))
    assert soft.any()
    assert (found.status[soft] != Status.OK).all()
    assert (found.status[~soft] == Status.OK).any()


@pytest.mark.parametrize(
    "text", ["pt", "pt>", "pt<30", "mass>3", "pt>30,pt>40", "eta<2", "pt>30,", "pt>x", "pt>-1", "", "3<pt<5"]
)
def test_cuts_that_cannot_be(text):
    with pytest.raises(ConfigError, match=r"write cuts as in pt>30,abs_eta<2\.4 \(pt in GeV\)"):
        parse_cuts(text)


def test_cuts_for_objects_that_are_not_there(decays, model):
    with pytest.raises(ConfigError, match="cuts on leptons, electrons, muons, but the events have only jets"):
        pairton.reconstruct(decays(5), model, leptons="pt>30")
    with pytest.raises(ConfigError, match="choose one"):
        pairton.reconstruct(decays(5), model, jets="pt>30", cuts=False)
    domain = Domain({"lepton": KindDomain(pt=25.0, abs_eta=2.5)})
    used = as_cuts(used_cuts(user_cuts(None, "pt>30"), domain, ["jet", "lepton"]))
    assert used == {"jet": Cuts(), "lepton": Cuts(30.0, 2.5)}


def test_the_command_line(command, tmp_path, decays, capsys):
    events = decays(50)
    write_events(events, tmp_path / "in.h5")
    out = tmp_path / "out.parquet"
    assert command("reconstruct", tmp_path / "in.h5", "-o", out, "--jets", "pt>30,abs_eta<2.4") == 0
    assert result_metadata(out)["cuts"] == {"jet": {"pt": 30.0, "abs_eta": 2.4}}
    assert command("reconstruct", tmp_path / "in.h5", "-o", out, "--force", "--jets", "none") == 0
    assert json.loads(json.dumps(result_metadata(out)["cuts"])) == {"jet": {"pt": None, "abs_eta": None}}
    numbers = tmp_path / "numbers.json"
    assert command("evaluate", tmp_path / "in.h5", "--jets", "pt>40", "--json", numbers) == 0
    assert "labelled objects fail the given cuts" in capsys.readouterr().err
    assert command("display", tmp_path / "in.h5", "--jets", "pt>500", "-o", tmp_path / "event.html") == 0
    assert "0 of 8 jets can be used (pT > 500 GeV)" in capsys.readouterr().out
    assert command("evaluate", tmp_path / "in.h5", "--jets", "pt=40") == 2


def test_a_result_without_any_answer_is_warned_of(command, decays, tmp_path, capsys):
    """Momenta of a file in GeV, divided by a thousand: no jet passes the cuts of a model."""
    source = tmp_path / "in.h5"
    with create(source, decays(40).topology) as writer:
        writer.write(decays(40))
    cut = ["--jets", "pt>25"]
    assert command("reconstruct", source, "-o", tmp_path / "out.parquet", "--set", "units=MeV", *cut) == 0
    said = capsys.readouterr()
    assert "40 events (40 too_few_objects)" in said.out
    assert "no event has an answer: are units, cuts and topology right?" in said.err
