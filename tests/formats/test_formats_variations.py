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
from pairton.errors import ConfigError, FormatError, PairtonWarning
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


def test_what_the_command_line_gives():
    found = parse_variations(["up:pt=a,mass=b", "down:pt=c"])
    assert found == {"up": {"pt": "a", "mass": "b"}, "down": {"pt": "c"}}
    for wrong in ("up", "up:", ":pt=a", "up:pt", "up:pt=", "a b:pt=c"):
        with pytest.raises(ConfigError, match="write NAME:pt=COLUMN,mass=COLUMN"):
            parse_variations([wrong])
    with pytest.raises(ConfigError, match="'up' is given twice"):
        parse_variations(["up:pt=a", "up:pt=b"])
    with pytest.raises(ConfigError, match="'phi' cannot vary"):
        parse_variations(["up:pt=a,phi=b"])
    with pytest.raises(ConfigError, match="no column for pt"):
        parse_variations(["up:mass=b"])
    assert parse_settings(["a=1", "b = x=y"]) == {"a": "1", "b": "x=y"}
    for wrong in ("a", "a=", "=1"):
        with pytest.raises(ConfigError, match="write KEY=VALUE"):
            parse_settings([wrong])


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
def test_a_column_that_is_no_pt_of_these_jets_is_warned_of(table, factor):
    content = ak.from_parquet(table)
    path = table.with_name("wrong.parquet")
    ak.to_parquet(ak.with_field(content, content.jet_pt * factor, "pt_wrong"), path)
    with pytest.warns(
        PairtonWarning, match="variation up: pT differs from the nominal one by more than a factor of 2"
    ):
        read(path, topology="hh4b", variations={"up": {"pt": "pt_wrong"}})


def test_a_wrong_column_is_warned_of_once_a_file(table):
    content = ak.from_parquet(table)
    path = table.with_name("wrong.parquet")
    ak.to_parquet(ak.with_field(content, content.jet_pt * 50, "pt_wrong"), path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        read(path, topology="hh4b", variations={"up": {"pt": "pt_wrong"}}, chunk=1)
    assert len([each for each in said if "variation up" in str(each.message)]) == 1
