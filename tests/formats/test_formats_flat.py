"""Flat trees and tables, column by column."""

from contextlib import closing

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

from event_files import write_events
from pairton.errors import ConfigError, FormatError, InputError, OutputError
from pairton.formats import create, detect, open_source, parquet_files, read
from pairton.formats.root_files import open_file
from root_files import write_tree

FLAT = {
    "J_pt": ak.Array([[50.0, 40.0], [], [30.0]]),
    "J_eta": ak.Array([[0.0, 1.0], [], [2.0]]),
    "J_phi": ak.Array([[0.0, 1.0], [], [2.0]]),
    "J_m": ak.Array([[5.0, 4.0], [], [3.0]]),
    "J_score": ak.Array([[0.2, 0.9], [], [0.8]]),
    "w": ak.Array([1.0, -2.0, 3.0]),
    "evt": ak.Array([7, 8, 9]),
}
MAP = {
    "pt": "J_pt",
    "eta": "J_eta",
    "phi": "J_phi",
    "mass": "J_m",
    "btag": "J_score",
    "weight": "w",
    "number": "evt",
}


@pytest.mark.parametrize("kind", ["TTree", "RNTuple", "Parquet"])
def test_flat_columns_by_name(tmp_path, kind):
    if kind == "Parquet":
        path = tmp_path / "a.parquet"
        table = pa.table({name: ak.to_arrow(column, extensionarray=False) for name, column in FLAT.items()})
        pq.write_table(table, path, row_group_size=2)
    else:
        path = write_tree(tmp_path / "a.root", "T", FLAT, kind)
    for chunk in (1, 2, 100):
        events = read(path, map=MAP, btag="0.5", chunk=chunk, keep=["J_m"])
        assert events.jets.pt.to_list() == [[50, 40], [], [30]]
        assert events.jets.btag.to_list() == [[0, 1], [], [1]]
        assert events.weights.tolist() == [1, -2, 3]
        assert events.ids[:, 1].tolist() == [7, 8, 9]
        assert events.columns["J_m"].to_list() == FLAT["J_m"].to_list()
        np.testing.assert_allclose(events.jets.mass[0], [5, 4], rtol=1e-4)
        assert events.truth is None
    with pytest.raises(FormatError, match=r"no column for pt \(jet_pt\), .*found .*J_pt, .*--map"):
        read(path)
    with pytest.raises(ConfigError, match=r"map jett\.pt=J_pt: .*kinds jet; did you mean 'jet'"):
        read(path, map={**MAP, "jett.pt": "J_pt"})
    with pytest.raises(ConfigError, match="'usable' is not a field of objects"):
        read(path, map={**MAP, "usable": "J_pt"})
    with pytest.raises(FormatError, match="lacks X"):
        read(path, map=MAP, keep=["X"])


def test_fields_of_an_rntuple_are_listed_in_linear_time(tmp_path, monkeypatch):
    """uproot's own `keys()` is quadratic: half a minute for the two thousand fields of a NanoAOD file."""
    inner = [[{"pt": 1.0, "more": {"a": 1, "b": [1, 2]}}], []]
    with uproot.recreate(tmp_path / "a.root") as file:
        file.mkrntuple("T", ak.Array({"Jet": inner, "n": [1, 2], "x:y": [(1, 2.0), (3, 4.0)]}))
    with uproot.open(tmp_path / "a.root") as file:
        expected = file["T"].keys()
    with monkeypatch.context() as patch:
        patch.setattr(uproot.behaviors.RNTuple.HasFields, "keys", None)
        tree = open_file(str(tmp_path / "a.root")).choose()
    assert list(tree.columns) == expected
    assert "Jet.more.b" in tree
    assert tree.read(["Jet.pt"], 0, 2)["Jet.pt"].to_list() == [[1.0], []]
    tree.close()


def test_a_score_that_no_tagger_gives_is_no_tag(tmp_path):
    """The event is then a `bad_object`."""
    columns = {f"jet_{name}": [[50.0, 40.0, 30.0]] for name in ("pt", "eta", "phi", "energy")}
    pq.write_table(pa.table(columns | {"jet_btag": [[0.9, 3e38, 0.1]]}), tmp_path / "a.parquet")
    tags = read(tmp_path / "a.parquet", btag="0.5").jets.btag[0]
    assert (tags[0], tags[2], np.isnan(tags[1])) == (1, 0, True)


def test_parquet_lists_of_fixed_length_and_nulls(tmp_path):
    fixed = pa.FixedSizeListArray.from_arrays(pa.array([50.0, 40.0, 30.0, 20.0]), 2)
    columns = {f"jet_{name}": fixed for name in ("pt", "eta", "phi", "energy", "btag")}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").jets.pt.to_list() == [[50, 40], [30, 20]]
    columns["jet_eta"] = pa.array([[1.0, None], [1.0, 2.0]])
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=r"jet_eta has the type .*without missing values"):
        read(tmp_path / "a.parquet")
    columns["jet_eta"] = pa.array([[1.0, 2.0], None])
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=r"column jet_eta has missing lists \(null\), .* write empty lists"):
        read(tmp_path / "a.parquet")


def test_another_pt_does_not_keep_the_old_energy(tmp_path):
    """`--map pt=...` for another calibration keeps the mass; if the file has no mass, name the energy too."""
    pt, eta = ak.Array([[50.0, 40.0], [30.0]]), ak.Array([[0.0, 1.0], [2.0]])
    mass = ak.Array([[5.0, 4.0], [3.0]])
    energy = np.sqrt((pt * np.cosh(eta)) ** 2 + mass**2)
    jets = {"jet_pt": pt, "jet_eta": eta, "jet_phi": eta, "jet_energy": energy, "jet_btag": eta * 0}
    columns = jets | {"jet_pt_cal": pt * 0.9, "jet_energy_cal": energy * 0.9}
    ak.to_parquet(ak.Array(columns | {"jet_mass": mass}), tmp_path / "mass.parquet")
    found = read(tmp_path / "mass.parquet", map={"pt": "jet_pt_cal"}).jets
    np.testing.assert_allclose(ak.flatten(found.mass), [5, 4, 3], rtol=1e-3)
    ak.to_parquet(ak.Array(columns), tmp_path / "energy.parquet")
    wrong = r"energy of jets belongs to jet_pt, not to jet_pt_cal: name .* --map energy=COLUMN or mass=COLUMN$"
    with pytest.raises(FormatError, match=wrong):
        read(tmp_path / "energy.parquet", map={"pt": "jet_pt_cal"})
    both = read(tmp_path / "energy.parquet", map={"pt": "jet_pt_cal", "energy": "jet_energy_cal"}).jets
    np.testing.assert_allclose(ak.flatten(both.mass), [4.5, 3.6, 2.7], rtol=1e-3)
    renamed = {"PT" if name == "jet_pt" else name: values for name, values in jets.items()}
    ak.to_parquet(ak.Array(renamed), tmp_path / "renamed.parquet")  # the only pT, so the energy belongs to it
    found = read(tmp_path / "renamed.parquet", map={"pt": "PT"}).jets
    np.testing.assert_allclose(ak.flatten(found.mass), [5, 4, 3], rtol=1e-3)


def test_a_tree_is_chosen(tmp_path):
    with uproot.recreate(tmp_path / "a.root") as file:
        for name in ("first", "second"):
            file.mktree(name, {"x": "float64"}).extend({"x": np.ones(2)})
    with pytest.raises(FormatError, match="trees first, second: choose one with --set tree"):
        read(tmp_path / "a.root")
    with pytest.raises(FormatError, match=r"no tree secnd, but first, second; did you mean 'second'"):
        read(tmp_path / "a.root", tree="secnd")
    with pytest.raises(FormatError, match=r"no column for .*found x"):
        read(tmp_path / "a.root", tree="second")


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_a_row_group_is_read_piece_by_piece(tmp_path, monkeypatch, rows):
    """Forwards, backwards and across groups; a file may be one group of any size."""
    monkeypatch.setattr("pairton.formats.parquet_files.MOST_ROWS", 3)
    jets = ak.Array([[float(k)] * (k % 3) for k in range(40)])
    table = pa.table({f"jet_{name}": jets.tolist() for name in ("pt", "eta", "mass", "btag")})
    table = table.append_column("jet_phi", pa.array((0 * jets).tolist()))
    pq.write_table(table.append_column("n", pa.array(range(40))), tmp_path / "a.parquet", row_group_size=rows)
    with open_source(tmp_path / "a.parquet", keep=["n"]) as source:
        for start, stop in [(0, 5), (5, 6), (6, 40), (2, 3), (3, 9), (39, 40), (10, 10), (0, 40)]:
            events = source.read(start, stop)
            assert np.asarray(events.columns["n"]).tolist() == list(range(start, stop))
            assert events.jets.pt.tolist() == jets[start:stop].tolist()


@pytest.mark.parametrize(("jets", "rows"), [(4, parquet_files.MOST_ROWS), (1000, 524)])
def test_pieces_of_parquet_have_fewer_rows_where_events_are_large(tmp_path, jets, rows):
    path, column = tmp_path / "a.parquet", ak.from_regular(np.full((2000, jets), 50.0))
    pq.write_table(pa.table({"J_pt": ak.to_arrow(column), "J_eta": ak.to_arrow(column)}), path)
    with closing(parquet_files.open_file(str(path))) as table:
        sizes, decode = [], table._file.iter_batches
        table._file.iter_batches = lambda size, **options: sizes.append(size) or decode(size, **options)
        found = table.read(["J_pt", "J_eta"], 300, 301)
    assert ak.count(found["J_pt"]) == jets
    assert sizes == [rows]


def test_fields_of_records_in_parquet(tmp_path):
    """As `ak.to_parquet` writes an array with `events.Jet.pt`."""
    jets = ak.zip({name.removeprefix("J_"): FLAT[name] for name in ("J_pt", "J_eta", "J_phi", "J_m", "J_score")})
    path = tmp_path / "records.parquet"
    content = ak.zip({"Jet": jets, "about": ak.zip({"weight": FLAT["w"]}), "evt": FLAT["evt"]}, depth_limit=1)
    ak.to_parquet(content, path, row_group_size=2)
    names = {ours: f"Jet.{theirs.removeprefix('J_')}" for ours, theirs in MAP.items() if theirs.startswith("J_")}
    names |= {"weight": "about.weight", "number": "evt"}
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({k: ak.to_arrow(v, extensionarray=False) for k, v in FLAT.items()}), plain)
    for chunk in (1, 2, 100):
        found, wanted = (
            read(file, map=given, chunk=chunk, btag="0.5") for file, given in ((path, names), (plain, MAP))
        )
        for name in ("pt", "eta", "phi", "energy", "btag"):
            assert found.jets[name].to_list() == wanted.jets[name].to_list()
        np.testing.assert_array_equal(found.weights, wanted.weights)
        np.testing.assert_array_equal(found.ids[:, 1], wanted.ids[:, 1])
    with pytest.raises(FormatError, match=r"no column for pt \(Jet\.ptt\).*did you mean 'Jet\.pt'"):
        read(path, map={**names, "pt": "Jet.ptt"})


def test_records_of_lists_lists_in_records_and_names_with_dots(tmp_path):
    jets = [{"pt": 50.0, "c": [1, 2], "p4": {"pt": 7.0}}, {"pt": 40.0, "c": [], "p4": {"pt": 8.0}}]
    columns = {
        "Jet": pa.array([jets, [], jets[:1]]),
        "J": pa.array([{"pt": [50.0, 40.0]}, {"pt": []}, {"pt": [30.0]}]),
        "flat.pt": pa.array([[5.0, 4.0], [], [3.0]]),
        "flat": pa.array([[{"pt": 1.0}, {"pt": 2.0}], [], [{"pt": 3.0}]]),
        "gone": pa.array([[{"pt": 1.0}], None, []]),
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=2)
    table = parquet_files.open_file(str(path))
    names = ("Jet.pt", "Jet.c", "J.pt", "flat.pt", "gone.pt")
    found = table.read(names, 0, 3)
    table.close()
    assert found["Jet.pt"].to_list() == [[50, 40], [], [50]]  # and not that of Jet.p4
    assert found["Jet.c"].to_list() == [[[1, 2], []], [], [[1, 2]]]
    assert found["J.pt"].to_list() == [[50, 40], [], [30]]
    assert found["flat.pt"].to_list() == [[5, 4], [], [3]]  # a column of that name goes first
    assert found["gone.pt"].to_list() == [[1], None, []]


def test_patterns_of_kept_columns(tmp_path):
    jets = {f"jet_{name}": ak.Array([[50.0], [40.0]]) for name in ("pt", "eta", "phi", "mass", "btag")}
    flags = {name: np.arange(2) + k for k, name in enumerate(["HLT_a", "HLT_b", "L1_a", "run"])}
    ak.to_parquet(ak.Array(jets | flags), tmp_path / "a.parquet")
    events = read(tmp_path / "a.parquet", keep=["HLT_*", "?un", "HLT_b"])
    assert list(events.columns) == ["HLT_a", "HLT_b", "run"]
    write_events(events, tmp_path / "b.h5")
    assert list(read(tmp_path / "b.h5", keep=["HLT_?"]).columns) == ["HLT_a", "HLT_b", "run"]
    with pytest.raises(FormatError, match=r"lacks X\*"):
        read(tmp_path / "a.parquet", keep=["X*"])


def test_the_hint_comes_before_the_columns(tmp_path):
    """Also if the file has so many that the column is not among the first."""
    jets = {f"jet_{name}": ak.Array([[50.0]]) for name in ("pt", "eta", "phi", "mass", "btag")}
    others = {f"HLT_{k}": np.zeros(1, bool) for k in range(1100)}
    path = tmp_path / "a.parquet"
    ak.to_parquet(ak.Array(jets | others | {"genWeight": np.ones(1)}), path)
    with pytest.raises(FormatError, match=r"lacks genWeigth; did you mean 'genWeight'\? it has "):
        read(path, keep=["genWeigth"])
    with (
        closing(parquet_files.open_file(str(path))) as table,
        pytest.raises(FormatError, match=r"lacks genWeigth; did you mean 'genWeight'\? it has "),
    ):
        table.require(["genWeigth"])


@pytest.mark.parametrize(("name", "content"), [("a.lhe.gz", b"\x1f\x8b"), ("a.txt", b"<LesHouchesEvents>\n")])
def test_les_houches_events_are_for_the_generator(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="`pairton generate TOPOLOGY --lhe FILE"):
        read(tmp_path / name)


# -- TopCPToolkit ------------------------------------------------------------------------------------------


def topcptoolkit(**changed):
    """Two events in the layout of its ntuples, in MeV; flags are bytes, directions have no suffix."""
    columns = {
        "jet_pt_NOSYS": [[90e3, 60e3, 45e3, 30e3], [50e3]],
        "jet_eta": [[0.0, 0.5, 1.0, 1.5], [0.0]],
        "jet_phi": [[0.0, 1.0, 2.0, 3.0], [0.0]],
        "jet_e_NOSYS": [[95e3, 80e3, 80e3, 80e3], [60e3]],
        "jet_GN2v01_FixedCutBEff_70_select": [[1, 0, 0, 0], [0]],
        "jet_GN2v01_FixedCutBEff_77_select": [[1, 1, 0, 0], [0]],
        "el_pt_NOSYS": [[40e3, 30e3], []],
        "el_e_NOSYS": [[60e3, 50e3], []],
        "el_eta": [[-1.0, 0.0], []],
        "el_phi": [[-1.0, 0.02], []],
        "el_charge": [[-1.0, 1.0], []],
        "el_select_tight_NOSYS": [[1, 0], []],
        "mu_pt_NOSYS": [[], [35e3]],
        "mu_e_NOSYS": [[], [70e3]],
        "mu_eta": [[], [1.0]],
        "mu_phi": [[], [2.0]],
        "mu_charge": [[], [1.0]],
        "mu_select_tight_NOSYS": [[], [1]],
        "met_met_NOSYS": [25e3, 70e3],
        "met_phi_NOSYS": [1.0, 2.0],
        "weight_mc_NOSYS": [2.0, -1.0],
        "eventNumber": np.array([11, 12], dtype=np.uint64),
        "runNumber": np.array([7, 7], dtype=np.uint32),
        "mcChannelNumber": np.array([410470, 410470], dtype=np.uint32),
        "jet_pt_JET_up": [[99e3, 66e3, 50e3, 33e3], [55e3]],
    }
    made = {name: ak.Array(values) for name, values in (columns | changed).items() if values is not None}
    return {name: ak.values_astype(v, np.int8) if "_select" in name else v for name, v in made.items()}


def test_ntuples_of_topcptoolkit(tmp_path):
    path = write_tree(tmp_path / "a.root", "reco", topcptoolkit())
    assert detect(str(path)).name == "topcptoolkit"
    events = read(path, topology="ttbar_semilep")
    assert events.jets.pt.tolist() == [[90, 60, 45, 30], [50]]
    assert events.jets.btag.tolist() == [[1, 1, 0, 0], [0]]
    leptons = events.objects["lepton"]
    assert (leptons.pt.tolist(), leptons.flavour.tolist()) == ([[40, 30], [35]], [[11, 11], [13]])
    assert events.usable["lepton"].tolist() == [[True, False], [True]]  # tight ones
    assert ak.all(events.usable["jet"])  # overlaps were removed before
    assert events.objects["met"].pt.tolist() == [[25], [70]]
    assert events.weights.tolist() == [2, -1]
    assert events.ids.tolist() == [[410470, 11], [410470, 12]]
    own = {"settings": {"lepton_id": "none"}, "btag": "jet_GN2v01_FixedCutBEff_70_select:0.5", "units": "GeV"}
    chosen = read(path, topology="ttbar_semilep", **own)
    assert ak.all(chosen.usable["lepton"])
    assert chosen.jets.btag[0].tolist() == [1, 0, 0, 0]
    assert chosen.jets.pt[0, 0] == 90e3
    up = {"variations": {"up": {"pt": "jet_pt_JET_up"}}, "btag": "none"}
    assert read(path, **up).varied("up").jets.pt[0].tolist() == [99, 66, 50, 33]


def test_ntuples_of_topcptoolkit_with_fewer_columns(tmp_path):
    names = ("el_select_tight_NOSYS", "mcChannelNumber", "weight_mc_NOSYS")
    path = write_tree(tmp_path / "a.root", "reco", topcptoolkit(**dict.fromkeys(names)))
    events = read(path, topology="ttbar_semilep")
    assert ak.all(events.usable["lepton"])
    assert events.weights is None
    assert events.ids[:, 0].tolist() == [7, 7]
    with pytest.raises(OutputError, match="can only be read"):
        create(tmp_path / "b.root", events.topology, {}, "topcptoolkit")
