"""Leptons, missing energy and further fields, through every format that has them."""

from types import SimpleNamespace

import awkward as ak
import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import uproot

from event_files import write_events
from pairton.errors import ConfigError, FormatError, OutputError
from pairton.events import Events
from pairton.events.inputs import Inputs
from pairton.events.objects import make_met, make_objects
from pairton.formats import create, detect, open_source, options_for, read, root_files
from pairton.topology import parse_topology
from root_files import write_tree

SEMILEP = parse_topology(
    {
        "name": "semilep",
        "event": ["t", "tl"],
        "particles": {"t": ["W", "b"], "W": ["q", "q"], "tl": ["b", "l"]},
        "objects": {"l": "lepton"},
        "context": ["met"],
    },
    "test",
)
WRITERS = {"spanet_hdf5": "a.h5", "flat_root": "a.root", "parquet": "a.parquet"}
APART = {"overlap": "none"}  # jets beside leptons are used


def events_with_leptons(n=20, seed=3, topology=SEMILEP):
    rng = np.random.default_rng(seed)

    def objects(low, high, **fields):
        counts = rng.integers(low, high, n)
        size = int(counts.sum())
        values = {"pt": rng.uniform(25, 300, size), "eta": rng.uniform(-2.5, 2.5, size)}
        values |= {"phi": rng.uniform(-3.1, 3.1, size), "mass": rng.uniform(1, 30, size).astype(np.float32)}
        values |= {name: rng.choice(choices, size) for name, choices in fields.items()}
        return make_objects(**{name: ak.unflatten(column, counts) for name, column in values.items()})

    jets = objects(5, 9, btag=[0, 1], width=np.linspace(0, 1, 50))
    leptons = objects(1, 3, charge=[-1, 1], flavour=[11, 13], isolation=[0.1, 0.2])
    met = make_met(rng.uniform(0, 90, n).astype(np.float32), rng.uniform(-3.1, 3.1, n))
    met = ak.with_field(met, ak.from_regular(rng.uniform(1, 9, (n, 1)).astype(np.float32)), "significance")
    truth = np.concatenate([np.argsort(rng.random((n, 5)), axis=1)[:, :4], np.zeros((n, 1), int)], axis=1)
    truth[rng.random(truth.shape) < 0.2] = -1
    return Events({"jet": jets, "lepton": leptons, "met": met}, topology, truth, rng.normal(size=n))


def assert_same(one, other):
    assert one.topology == other.topology
    assert list(one.objects) == list(other.objects)
    for kind, objects in one.objects.items():
        assert set(objects.fields) == set(other.objects[kind].fields)
        for name in objects.fields:
            expected, found = (np.asarray(ak.flatten(array[name])) for array in (objects, other.objects[kind]))
            np.testing.assert_allclose(found, expected, rtol=1e-12 if name == "energy" else 0)
            assert one.counts[kind].tolist() == other.counts[kind].tolist()
    for name in ("truth", "weights", "ids"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# -- our own files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", WRITERS)
def test_round_trip_keeps_kinds_and_fields(tmp_path, to):
    events = events_with_leptons()
    path = write_events(events, tmp_path / WRITERS[to])
    assert_same(events, read(path))
    assert_same(events, read(path, chunk=7))
    assert_same(events, read(path, isolate=True))
    takes = Inputs.parse({"jet": ["width"], "lepton": ["charge"]}, SEMILEP)
    few = read(path, **options_for(SimpleNamespace(topology=SEMILEP, inputs=takes), {}))
    assert few.jets.fields == ["pt", "eta", "phi", "energy", "width", "btag"]  # a known one is read too
    assert few.objects["lepton"].fields == ["pt", "eta", "phi", "energy", "charge", "flavour"]
    none = read(write_events(events[:0], tmp_path / WRITERS[to]))
    assert (len(none), list(none.objects)) == (0, ["jet", "lepton", "met"])
    with create(path, SEMILEP):
        pass
    assert len(read(path)) == 0


@pytest.mark.parametrize("to", WRITERS)
def test_one_per_event_is_one_number_to_others(tmp_path, to):
    path = write_events(events_with_leptons(4), tmp_path / WRITERS[to])
    if to == "parquet":
        schema = pq.read_schema(path)
        assert str(schema.field("met_pt").type) == "float"
        assert "list" in str(schema.field("lepton_charge").type)
    elif to == "flat_root":
        with uproot.open(path) as file:
            assert file["events"]["met_phi"].array().ndim == 1
            assert {"nlepton", "lepton_isolation", "met_significance"} <= set(file["events"].keys())
    else:
        with h5py.File(path) as file:
            assert file["INPUTS/Met/met"].shape == (4,)
            assert set(file["INPUTS/Leptons"]) >= {"MASK", "charge", "flavour", "isolation", "mass"}
            assert file["TARGETS/tl/l"].shape == (4,)


@pytest.mark.parametrize("to", WRITERS)
def test_writers_refuse_kinds_that_differ(tmp_path, to):
    events = events_with_leptons(4)
    path = tmp_path / WRITERS[to]
    gone = events.keep({"met": events.objects["met"].pt > 1e9})
    with pytest.raises(OutputError, match=r"an event has 0 met, but must have one: .*event: \{met: 1\}"):
        write_events(gone, path)
    bare = events.replace(jets=ak.without_field(events.jets, "width"))
    writer = create(path, SEMILEP)
    writer.write(events)
    with pytest.raises(OutputError, match="only some inputs have width of jets"):
        writer.write(bare)
    writer.abort()
    both = Events.concatenate([events, bare])
    assert "width" not in both.jets.fields
    assert both.jets.pt.tolist() == events.jets.pt.tolist() * 2


def test_formats_of_jets_refuse_others_in_one_line(tmp_path):
    path = write_events(events_with_leptons(4), tmp_path / "a.h5")
    with pytest.raises(ConfigError, match="topograph stores only jets, but semilep needs leptons, met"):
        read(path, format="topograph", topology=SEMILEP)


# -- columns of others -------------------------------------------------------------------------------------


def flat_columns():
    lists = {"pt": [[60.0, 50.0], [40.0]], "eta": [[0.5, -0.5], [1.0]], "phi": [[0.0, 1.0], [2.0]]}
    found = {f"jet_{name}": values for name, values in lists.items()}
    found |= {"jet_mass": [[5.0, 5.0], [5.0]], "jet_btag": [[0, 1], [1]], "jw": [[0.1, 0.2], [0.3]]}
    found |= {f"el_{name}": [values[0][:1], []] for name, values in lists.items()}
    found |= {"el_charge": [[-1], []], "missing": [30.0, 0.0], "met_phi": [1.0, -1.0]}
    return {name: ak.Array(values) for name, values in found.items()}


NAMES = {f"lepton.{name}": f"el_{name}" for name in ("pt", "eta", "phi", "charge")} | {"met.pt": "missing"}


def write_parquet(path, columns):
    return write_tree(path, "", columns, "Parquet")


def write_root(path, columns):
    return write_tree(path, "events", columns)


@pytest.mark.parametrize(("name", "make"), [("a.parquet", write_parquet), ("a.root", write_root)])
def test_flat_columns_of_any_name(tmp_path, name, make):
    path = make(tmp_path / name, flat_columns())
    how = {"topology": SEMILEP, "settings": APART}
    events = read(path, **how, map={**NAMES, "width": "jw"}, fields={"lepton": ["charge"]})
    np.testing.assert_allclose(ak.flatten(events.jets.width), [0.1, 0.2, 0.3], rtol=1e-6)
    lepton, met = events.objects["lepton"], events.objects["met"]
    assert lepton.charge.tolist() == [[-1], []]
    np.testing.assert_allclose(lepton.energy[0], 60 * np.cosh(0.5), rtol=1e-6)  # massless
    assert met.pt.tolist() == met.energy.tolist() == [[30], [0]]
    assert met.eta.tolist() == [[0], [0]]
    by_prefix = read(path, **how, map={"lepton": "el", "met.pt": "missing"})
    assert by_prefix.objects["lepton"].charge.tolist() == [[-1], []]
    in_mev = read(path, **how, map=NAMES, units="MeV")
    assert in_mev.objects["met"].pt[0, 0] == pytest.approx(0.03)


def test_met_alone_and_one_lepton_per_event(tmp_path):
    columns = flat_columns()
    columns["met"] = columns.pop("missing")
    columns |= {f"lepton_{name}": ak.Array([30.0, 40.0]) for name in ("pt", "eta", "phi", "energy")}
    events = read(write_parquet(tmp_path / "a.parquet", columns), topology=SEMILEP)
    assert events.objects["met"].pt.tolist() == [[30], [0]]
    assert events.objects["lepton"].pt.tolist() == [[30], [40]]


@pytest.mark.parametrize(
    ("names", "fields", "message"),
    [
        ({"lepton": "el"}, {}, r"no column for pt \(met_pt\) of met; .*; name it with --map met\.pt=COL"),
        (NAMES, {"lepton": ["isolation"]}, r"isolation \(lepton_isolation\) of lep.*--map lepton\.isolation=COL"),
        (NAMES, {"jet": ["width"]}, r"no column for width \(jet_width\) of jets; .*--map width=COLUMN"),
        (NAMES | {"lepton.charge": "nope"}, {}, r"no column for charge \(nope\) of leptons"),
        (
            NAMES | {"lepton.phi": "two"},
            {},
            "in the same event, two has 2 leptons, but others have 1",
        ),
        ({"lepon.pt": "x"}, {}, r"map lepon\.pt=x: semilep has the kinds jet, lepton, met; did you mean"),
        ({}, {}, r"no column for pt \(lepton_pt\), .* of leptons; found .*--map lepton\.pt="),
    ],
)
def test_what_is_missing_has_its_remedy(tmp_path, names, fields, message):
    columns = {name.replace("el_", "el_" if names else "e_"): values for name, values in flat_columns().items()}
    path = write_parquet(tmp_path / "a.parquet", columns | {"two": ak.Array([[1.0, 2.0], []])})
    with pytest.raises((ConfigError, FormatError), match=message):
        read(path, topology=SEMILEP, map=names, fields=fields)


def spanet(path, **groups):
    with h5py.File(path, "w") as file:
        for group, columns in groups.items():
            for name, values in columns.items():
                file[f"{'TARGETS' if '_' in group else 'INPUTS'}/{group.replace('_', '/')}/{name}"] = values
    return path


JETS = {"MASK": np.ones((2, 4), bool), **{n: np.full((2, 4), 50.0) for n in ("pt", "eta", "phi", "mass", "btag")}}
LEPTONS = {"MASK": np.array([[True, False, True], [False, True, False]])}
LEPTONS |= {name: np.array([[10.0, 0, 30.0], [0, 20.0, 0]]) for name in ("pt", "eta", "phi", "charge")}
MET = {"met": np.array([5.0, 6.0]), "sin_phi": np.sin([1.0, 2.0]), "cos_phi": np.cos([1.0, 2.0])}


def test_spanet_groups_by_name(tmp_path):
    path = spanet(tmp_path / "a.h5", Jets=JETS, Leptons=LEPTONS, Met=MET)
    with h5py.File(path, "r+") as file:
        for slot, target in zip(("t/q1", "t/q2", "t/b", "tl/b", "tl/l"), (0, 1, 2, 3, (2, 1)), strict=True):
            file[f"TARGETS/{slot}"] = np.broadcast_to(target, 2)
    assert detect(str(path)).name == "spanet_hdf5"
    events = read(path, topology=SEMILEP)
    assert events.objects["lepton"].pt.tolist() == [[10, 30], [20]]
    assert events.stored_index["lepton"].tolist() == [[0, 2], [1]]
    np.testing.assert_allclose(ak.flatten(events.objects["met"].phi), [1, 2], rtol=1e-6)
    assert events.truth.tolist() == [
        [0, 1, 2, 3, 1],
        [0, 1, 2, 3, 0],
    ]  # a column becomes a position, lepton or jet


def test_spanet_groups_of_any_name(tmp_path):
    one_lepton = {name: np.array([10.0, 20.0]) for name in ("pt", "eta", "phi")}
    path = spanet(tmp_path / "a.h5", Hadrons=JETS, Letton=one_lepton, Miss=MET)
    with pytest.raises(FormatError, match=r"INPUTS has Hadrons, Letton, Miss: .* --map lepton=GROUP"):
        read(path, topology=SEMILEP)
    names = {"lepton": "Letton", "met": "Miss"}
    assert read(path, topology=SEMILEP, map=names).objects["lepton"].pt.tolist() == [[10], [20]]
    with pytest.raises(FormatError, match=r"INPUTS has no group Lepton, but Hadrons, .*--map lepton=GROUP"):
        read(path, topology=SEMILEP, map={**names, "lepton": "Lepton"})
    with pytest.raises(FormatError, match=r"INPUTS/Letton: no column for charge of leptons; found eta, phi, pt; "):
        read(path, topology=SEMILEP, map=names, fields={"lepton": ["charge"]})
    wide = spanet(tmp_path / "b.h5", Jets=JETS, Leptons={k: v for k, v in LEPTONS.items() if k != "MASK"}, Met=MET)
    with pytest.raises(FormatError, match=r"leptons must all have the shape \(events,\), since there is no MASK"):
        read(wide, topology=SEMILEP)


def test_a_label_counts_the_objects_of_its_kind(tmp_path):
    events = events_with_leptons(6)
    path = write_events(events, tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file["TARGETS/tl/l"][:2] = 3  # a jet, but no lepton
    with pytest.warns(match="2 labels in 2 events out of range"):
        back = read(path)
    assert (back.truth[:2, 3:] == -1).all()  # the particle of the bad label loses its own products
    assert (back.truth[:, :3] == events.truth[:, :3]).all()


# -- a file is opened once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.h5", "a.root", "a.parquet", "hyper.h5"])
def test_a_file_is_opened_once(tmp_path, name, monkeypatch):
    events = events_with_leptons(4)
    if name == "hyper.h5":
        with create(
            tmp_path / name,
            parse_topology({"name": "j", "event": ["j"], "particles": {}}, "test"),
            format="hyper_hdf5",
        ):
            pass
    else:
        write_events(events, tmp_path / name)
    opened = []

    def counted(module, function):
        original = getattr(module, function)

        def call(*arguments, **options):
            opened.append(function)
            return original(*arguments, **options)

        monkeypatch.setattr(module, function, call)

    counted(h5py, "File")
    counted(root_files.uproot, "open")
    counted(pq, "ParquetFile")
    with open_source(tmp_path / name) as source:
        list(source.chunks(2))
    assert len(opened) == 1
    model = SimpleNamespace(topology=source.topology, inputs=Inputs.default(source.topology))
    read(tmp_path / name, **options_for(model, {}))
    assert len(opened) == 2
