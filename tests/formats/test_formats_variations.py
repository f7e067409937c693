"""Varied jets on the command line and in flat tables; settings."""

import json
import warnings

import awkward as ak
import click
import numpy as np
import pytest
from click.testing import CliRunner

from event_files import write_events
from pairton.cli import cli
from pairton.cli.options import reading_options
from pairton.errors import ConfigError, FormatError
from pairton.formats import read
from pairton.formats.variations import parse_settings, parse_variations


@pytest.fixture
def table(tmp_path):
    pt = ak.Array([[50.0, 40.0], [], [30.0]])
    columns = {"jet_pt": pt, "jet_eta": pt * 0, "jet_phi": pt * 0, "jet_mass": pt * 0.1, "jet_btag": pt * 0}
    columns |= {"pt_up": pt * 2, "mass_up": pt * 0.3, "short": pt[:, :1]}
    path = tmp_path / "table.parquet"
    ak.to_parquet(ak.zip(columns, depth_limit=1), path)
    return path


def test_flat_tables_have_variations(table):
    events = read(table, topology="hh4b", variations={"up": {"pt": "pt_up", "mass": "mass_up"}}, chunk=2)
    up = events.varied("up").jets
    assert up.pt.tolist() == [[100, 80], [], [60]]
    np.testing.assert_allclose(ak.flatten(up.mass), [15, 12, 9], rtol=1e-3)
    assert events.jets.pt.tolist() == [[50, 40], [], [30]]
    in_mev = read(table, topology="hh4b", units="MeV", variations={"up": {"pt": "pt_up"}})
    np.testing.assert_allclose(ak.flatten(in_mev.varied("up").jets.pt), [0.1, 0.08, 0.06], rtol=1e-6)


def test_columns_of_a_variation_must_be_there_and_fit(table):
    with pytest.raises(FormatError, match="pt_down"):
        read(table, topology="hh4b", variations={"down": {"pt": "pt_down"}})
    with pytest.raises(FormatError, match="columns of unequal length"):
        read(table, topology="hh4b", variations={"down": {"pt": "short"}})


def test_what_the_command_line_gives(tmp_path):
    found = parse_variations(["up:pt=a,mass=b", "down: jet.pt=c, met=nominal"])
    assert found == {"up": {"pt": "a", "mass": "b"}, "down": {"jet.pt": "c", "met": "nominal"}}
    (tmp_path / "systs.yaml").write_text("up: {pt: a}\n'jes_{sys}': {pt: 'a_{sys}', sys: [x, y]}\n")
    both = parse_variations([tmp_path / "systs.yaml", "down:pt=c"])
    assert both == {"up": {"pt": "a"}, "jes_{sys}": {"pt": "a_{sys}", "sys": ["x", "y"]}, "down": {"pt": "c"}}
    (tmp_path / "list.yaml").write_text("[1]")
    for wrong, said in (
        ("up:", "write it as in jesUp:pt"),
        (":pt=a", "write it as in jesUp:pt"),
        ("up:pt", "write it as in jesUp:pt"),
        ("a b:pt=c", "write it as in jesUp:pt"),
        ("nanoaodd", "did you mean 'nanoaod'"),
        ("up:jte.pt=a", "no kind of object 'jte'; did you mean 'jet'"),
        ("up:pt=a,sys=x", "sys is a list of names"),
        ("{sys}:sys=x", "it names no column"),
        (str(tmp_path / "list.yaml"), "must map names of variations"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_variations([wrong])
    with pytest.raises(ConfigError, match="'up' is given twice"):
        parse_variations(["up:pt=a", "up:pt=b"])
    assert parse_settings(["a=1", "b = x=y"]) == {"a": "1", "b": "x=y"}
    for wrong in ("a", "a=", "=1"):
        with pytest.raises(ConfigError, match="write KEY=VALUE"):
            parse_settings([wrong])


@pytest.fixture
def leptons_and_met(tmp_path):
    """Two events in TopCPToolkit's way to name systematic variations: a column only for what varies."""
    columns = {"jet_pt": [[50.0, 40.0], [30.0]], "el_pt": [[20.0], []], "mu_pt": [[10.0], [5.0]]}
    for name in ("jet", "el", "mu"):
        columns |= {f"{name}_{field}": ak.zeros_like(ak.Array(columns[f"{name}_pt"])) for field in ("eta", "phi")}
    columns |= {"jet_e": [[60.0, 45.0], [33.0]], "jet_btag": [[1, 0], [0]], "met_met": [7.0, 9.0]}
    columns |= {"met_phi": [1.0, 2.0], "jet_pt_JES__1up": [[60.0, 44.0], [33.0]], "met_met_JES__1up": [8.0, 9.5]}
    columns |= {"met_phi_JES__1up": [1.5, 2.0], "el_pt_EG__1up": [[22.0], []], "jet_pt_NOSYS": [[0.0, 0.0], [0.0]]}
    columns |= {"jet_btag_up": [[0, 1], [1]], "mu_up": [[11.0], [6.0]]}
    path = tmp_path / "top.parquet"
    ak.to_parquet(ak.zip({k: ak.Array(v) for k, v in columns.items()}, depth_limit=1), path)
    names = {"energy": "jet_e", "met.pt": "met_met", "met.phi": "met_phi", "electron": "el", "muon": "mu"}
    return {"paths": path, "topology": "ttbar_semilep", "map": names, "settings": {"overlap": "none"}}


def test_every_kind_may_vary(leptons_and_met):
    events = read(**leptons_and_met, variations="topcptoolkit")
    assert {name: list(kinds) for name, kinds in events.variations.items()} == {
        "JES__1up": ["jet", "met"],
        "EG__1up": ["lepton"],
    }
    jes, eg = events.varied("JES__1up").objects, events.varied("EG__1up").objects
    assert jes["jet"].pt.tolist() == [[60, 44], [33]]
    np.testing.assert_allclose(ak.flatten(jes["jet"].energy), [72, 49.5, 36.3])  # scaled, without a column
    assert jes["met"].pt.tolist() == jes["met"].energy.tolist() == [[8], [9.5]]
    assert jes["met"].phi.tolist() == [[1.5], [2]]
    assert jes["lepton"].pt.tolist() == [[20, 10], [5]]
    assert eg["lepton"].pt.tolist() == eg["lepton"].energy.tolist() == [[22, 10], [5]]
    given = {"up": {"jet.btag": "jet_btag_up", "muon.pt": "mu_up", "met": "nominal", "tau.pt": "none"}}
    up = read(**leptons_and_met, variations=given).varied("up").objects
    assert up["jet"].btag.tolist() == [[0, 1], [1]]
    assert up["lepton"].pt.tolist() == [[20, 11], [6]]
    assert list(read(**leptons_and_met, variations=given).variations["up"]) == ["jet", "lepton", "met"]


def test_a_template_names_many(leptons_and_met):
    given = {"{sys}": {"pt": "jet_pt_{sys}", "met.pt": "met_met_{sys}", "sys": ["JES__1up"]}}
    assert list(read(**leptons_and_met, variations=given).variations) == ["JES__1up"]
    given["{sys}"]["sys"] = ["EG__1up"]  # one that is asked for must have all columns
    with pytest.raises(FormatError, match="jet_pt_EG__1up"):
        read(**leptons_and_met, variations=given)
    with pytest.raises(ConfigError, match=r"the file has no column such as Jet_pt_\{sys\}"):
        read(**leptons_and_met, variations="nanoaod")
    with pytest.raises(ConfigError, match="met has only the fields pt, eta, phi, energy"):
        read(**leptons_and_met, variations={"up": {"met.sum": "met_met"}})
    with pytest.raises(FormatError, match="mu_pt has 2 electrons, but there are 1"):
        read(**leptons_and_met, variations={"up": {"electron.pt": "mu_pt"}})


def test_a_converted_file_keeps_variations(table):
    given = {"variations": {"up": {"pt": "pt_up", "mass": "mass_up"}}, "topology": "hh4b"}
    events, path = read(table, **given), table.with_name("converted.parquet")
    write_events(events, path)
    back = read(path, variations={"up": {"pt": "jet_pt_up", "mass": "jet_mass_up"}})
    assert back.varied("up").jets.pt.tolist() == events.varied("up").jets.pt.tolist()
    energies = (np.asarray(ak.flatten(each.varied("up").jets.energy)) for each in (events, back))
    np.testing.assert_allclose(*energies, rtol=1e-6)
    assert back.jets.pt.tolist() == events.jets.pt.tolist()
    arguments = [str(table), str(path), "--force", "--topology", "hh4b", "--variation", "up:pt=pt_up"]
    assert CliRunner().invoke(cli, ["convert", *arguments]).exit_code == 0
    assert read(path).jets["pt_up"].tolist() == events.varied("up").jets.pt.tolist()


def test_settings_and_variations_reach_the_reader(table):
    @click.command()
    @reading_options(variations=True)
    def show(reading):
        click.echo(json.dumps({name: reading.get(name) for name in ("settings", "variations")}))

    arguments = ["--set", "leptons=15", "--variation", "up:pt=pt_up,mass=mass_up", "--variation", "down:pt=b"]
    found = json.loads(CliRunner().invoke(show, arguments).output)
    assert found["settings"] == {"leptons": "15"}
    assert found["variations"] == {"up": {"pt": "pt_up", "mass": "mass_up"}, "down": {"pt": "b"}}
    assert json.loads(CliRunner().invoke(show, []).output) == {"settings": None, "variations": None}
    refused = CliRunner().invoke(cli, ["inspect", str(table), "--topology", "hh4b", "--set", "leptons=15"])
    assert isinstance(refused.exception, ConfigError)
    assert "parquet has no setting 'leptons'" in str(refused.exception)


@pytest.mark.parametrize("factor", [1000.0, 0.02, np.nan])
def test_a_column_that_is_no_pt_of_these_jets_is_warned_of_once_a_file(table, factor):
    content = ak.from_parquet(table)
    path = table.with_name("wrong.parquet")
    ak.to_parquet(ak.with_field(content, content.jet_pt * factor, "pt_wrong"), path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        read(path, topology="hh4b", variations={"up": {"pt": "pt_wrong"}}, chunk=1)
    assert [str(each.message)[:62] for each in said if "variation" in str(each.message)] == [
        "variation up: pT differs from the nominal one by more than a f"
    ]
