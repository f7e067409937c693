"""Every format reads what others wrote, and a round trip loses nothing."""

import json
import warnings
from pathlib import Path

import awkward as ak
import h5py
import numpy as np
import pytest

from event_files import write_events
from pairton.errors import (
    ConfigError,
    EventsError,
    FormatError,
    InputError,
    OutputError,
    PairtonWarning,
    TopologyError,
)
from pairton.events import Events
from pairton.events.objects import make_jets
from pairton.formats import create, detect, expand, iterate, open_source, read
from pairton.formats.writing import KEY, EventWriter
from pairton.topology import load_topology
from root_files import write_tree

WRITERS = {"spanet_hdf5": "a.h5", "hyper_hdf5": "a.hdf5", "flat_root": "a.root", "parquet": "a.parquet"}


def some_events(n=30, topology="ttbar_allhad", seed=1):
    rng = np.random.default_rng(seed)
    tree = load_topology(topology)
    counts = rng.integers(len(tree.slots), len(tree.slots) + 5, n)
    total = int(counts.sum())

    def ragged(values):
        return ak.unflatten(np.asarray(values, dtype=np.float32), counts)

    jets = make_jets(
        pt=ragged(rng.uniform(25, 300, total)),
        eta=ragged(rng.uniform(-2.5, 2.5, total)),
        phi=ragged(rng.uniform(-3.1, 3.1, total)),
        mass=ragged(rng.uniform(1, 30, total)),
        btag=ragged(rng.integers(0, 2, total)),
    )
    truth = np.stack([rng.permutation(int(c))[: len(tree.slots)] for c in counts])
    truth[rng.random(truth.shape) < 0.1] = -1
    ids = rng.integers(0, 2**63, (n, 2)).astype(np.uint64) * np.uint64(2) + np.uint64(1)
    columns = {
        "run": np.arange(n, dtype=np.int32),
        "matrix": rng.random((n, 3)),
        "tracks": ak.unflatten(np.arange(4 * (n // 2)), [4 if k % 2 else 0 for k in range(n)]),
    }
    return Events(jets, tree, truth, rng.normal(size=n), ids, columns, {"seed": seed, "card": "atlas"})


def assert_same(one, other, energy=1e-12):
    for name in ("pt", "eta", "phi", "btag"):
        assert one.jets[name].to_list() == other.jets[name].to_list()
    np.testing.assert_allclose(ak.flatten(one.jets.energy), ak.flatten(other.jets.energy), rtol=energy)
    for name in ("truth", "weights", "ids"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# -- round trips -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", WRITERS)
def test_round_trip_keeps_everything(tmp_path, to):
    events = some_events(topology="hh4b")
    path = write_events(events, tmp_path / WRITERS[to], to)
    assert detect(str(path)).name == to
    back = read(path)  # the topology is in the file
    assert_same(events, back, 1e-6 if to == "hyper_hdf5" else 1e-12)
    assert back.topology == events.topology
    assert back.metadata == {"seed": 1, "card": "atlas"}
    assert set(back.columns) == set(events.columns)
    for name, column in events.columns.items():
        assert ak.to_list(back.columns[name]) == ak.to_list(column)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("to", ["parquet", "spanet_hdf5", "flat_root"])
def test_very_many_equal_events_are_read_back(tmp_path, to):
    """A small file of our own was called impossible."""
    events = some_events()[np.zeros(200_000, dtype=int)]
    path = write_events(events.replace(columns={}, ids=np.zeros((200_000, 2))), tmp_path / WRITERS[to], to)
    assert sum(map(len, iterate(path))) == 200_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"btag": 0.5}, 'btag is 0.5, but must be text such as "TAGGER:CUT"'),
        ({"map": 5}, "map is 5, but must be a mapping"),
        ({"keep": "run"}, "keep is .*run.*, but must be a list of names"),
        ({"chunk": 1.5}, "chunk is 1.5, but must be a whole number"),
        ({"units": 1000}, "units is 1000, but must be"),
    ],
)
def test_wrong_options_do_not_blame_the_file(tmp_path, options, said):
    path = write_events(some_events(), tmp_path / "events.parquet")
    with pytest.raises(ConfigError, match=said):
        next(iterate(path, **options))


def test_our_own_faults_do_not_blame_the_file(tmp_path, monkeypatch):
    path = write_events(some_events(), tmp_path / "events.parquet")
    monkeypatch.delattr("pairton.formats.column_source.check_units")
    with pytest.raises(NameError):
        read(path)


def test_phi_in_degrees_is_said(tmp_path):
    events = some_events()
    jets = ak.with_field(events.jets, np.degrees(events.jets.phi), "phi")
    path = write_events(events.replace(jets=jets), tmp_path / "events.parquet")
    with pytest.raises(InputError, match=r"the median .phi. of jets is .*, which looks like degrees"):
        read(path)


@pytest.mark.parametrize("to", WRITERS)
def test_chunks_are_the_same_rows(tmp_path, to):
    path = write_events(some_events(), tmp_path / WRITERS[to], to)
    whole = read(path)
    for chunk in (1, 7, 30, 1000):
        parts = list(iterate(path, chunk=chunk))
        assert [len(part) for part in parts][:-1] == [min(chunk, 30)] * (len(parts) - 1)
        assert_same(whole, Events.concatenate(parts))
        assert (
            ak.to_list(ak.concatenate([p.columns["tracks"] for p in parts])) == whole.columns["tracks"].to_list()
        )
    with open_source(path) as source:
        window = list(source.chunks(8, 5, 19))
    assert [len(part) for part in window] == [3, 8, 3]
    assert_same(whole[5:19], Events.concatenate(window))


@pytest.mark.parametrize("to", WRITERS)
def test_batches_of_any_width(tmp_path, to, monkeypatch):
    """The padded layouts grow when later events have more jets."""
    monkeypatch.setattr(EventWriter, "batch", 4)
    events = some_events(23)
    order = np.argsort(events.n_jets, kind="stable")
    path = tmp_path / WRITERS[to]
    with create(path, events.topology, {}, to) as writer:
        for start in range(0, 23, 3):
            writer.write(events[order[start : start + 3]])
    assert_same(events[order], read(path), 1e-6)


@pytest.mark.parametrize("to", WRITERS)
def test_no_events_and_no_truth(tmp_path, to):
    full = some_events()
    bare = Events(full.jets, full.topology, ids=full.ids)
    assert read(write_events(bare, tmp_path / WRITERS[to], to)).truth is None
    none = read(write_events(full[:0], tmp_path / WRITERS[to], to))
    assert len(none) == 0
    assert none.truth is not None
    with create(tmp_path / WRITERS[to], full.topology, {}, to):
        pass
    assert len(read(tmp_path / WRITERS[to])) == 0


def test_values_that_are_no_jets_survive(tmp_path):
    jets = make_jets(pt=[[np.nan, 50.0]], eta=[[0.0, np.inf]], phi=[[0.0, 1.0]], mass=[[1.0, 1.0]], btag=[[0, 1]])
    events = Events(jets, "hh4b")
    for to, name in WRITERS.items():
        back = read(write_events(events, tmp_path / name, to))
        assert back.n_jets.tolist() == [2]
        assert back.status.tolist() == [2]


def test_selected_events_keep_their_ids_and_split(tmp_path):
    events = some_events(200)
    chosen = events.select()
    assert 0 < len(chosen) < 200
    back = read(write_events(chosen, tmp_path / "a.h5"))
    by_id = {tuple(row): split for row, split in zip(events.ids.tolist(), events.in_split("train"), strict=True)}
    assert back.in_split("train").tolist() == [by_id[tuple(row)] for row in back.ids.tolist()]


# -- layouts as others write and read them -----------------------------------------------------------------


def spanet_file(path, columns, targets=None):
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file[f"INPUTS/{name}"] = values
        for name, values in (targets or {}).items():
            file[f"TARGETS/{name}"] = values
    return path


HOLES = {
    "Jets/MASK": np.array([[True, False, True, True, True], [True, True, False, False, False]]),
    "Jets/pt": np.array([[90, 9, 80, 0, 60], [50, 40, 0, 0, 0]], np.float32),
    "Jets/eta": np.zeros((2, 5), np.float32),
    "Jets/sin_phi": np.sin([[0.5, 0, 3.0, -3.0, 1.0], [2.0, -1.0, 0, 0, 0]]),
    "Jets/cos_phi": np.cos([[0.5, 0, 3.0, -3.0, 1.0], [2.0, -1.0, 0, 0, 0]]),
    "Jets/energy": np.full((2, 5), 100.0),
    "Jets/btag": np.ones((2, 5), np.float32),
    "Met/met": np.ones(2, np.float32),
}
HH4B = ("H1/b1", "H1/b2", "H2/b1", "H2/b2")


def test_spanet_mask_with_holes(tmp_path):
    """Jets keep their column as index; targets, which are columns, become positions. Zeros do not count."""
    targets = dict(zip(HH4B, ([4, 0], [2, 1], [0, -1], [3, -1]), strict=True))
    events = read(spanet_file(tmp_path / "a.h5", HOLES, targets), topology="hh4b")
    assert events.jets.pt.to_list() == [[90, 80, 0, 60], [50, 40]]
    assert events.stored_index["jet"].to_list() == [[0, 2, 3, 4], [0, 1]]
    assert events.truth.tolist() == [[3, 1, 0, 2], [0, 1, -1, -1]]
    np.testing.assert_allclose(ak.flatten(events.jets.phi), [0.5, 3.0, -3.0, 1.0, 2.0, -1.0], rtol=1e-6)
    assert set(ak.flatten(events.jets.energy)) == {100.0}


def test_spanet_target_on_padding_is_a_bad_label(tmp_path):
    targets = dict(zip(HH4B, ([1, 0], [2, 1], [0, 2], [3, -1]), strict=True))  # column 1 is a hole, 2 is padding
    path = spanet_file(tmp_path / "a.h5", HOLES, targets)
    with pytest.warns(PairtonWarning, match=r"2 labels in 2 events .*a\.h5, row 0") as seen:
        events = read(path, topology="hh4b", chunk=1)
    assert len(seen) == 1
    assert events.truth.tolist() == [[-1, -1, 0, 2], [0, 1, -1, -1]]
    with pytest.raises(EventsError, match=r"row 0.*--strict"):
        read(path, topology="hh4b", strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(path, topology="hh4b", truth=False).truth is None


def test_spanet_targets_of_other_events(tmp_path):
    """With truth an error; without, as `reconstruct` reads, one is told."""
    path = spanet_file(tmp_path / "a.h5", HOLES, {"H/b1": [1, 0]})
    with pytest.raises(FormatError, match=r"TARGETS lacks t1/q1.* it has H/b1: choose the topology of these"):
        read(path, topology="ttbar_allhad")
    with pytest.warns(PairtonWarning, match="it has H/b1: check that these events are of ttbar_allhad"):
        assert read(path, topology="ttbar_allhad", truth=False).truth is None


def test_spanet_layout_that_is_written(tmp_path):
    events = some_events()
    with h5py.File(write_events(events, tmp_path / "a.h5")) as file:
        inputs = file["INPUTS/Source"]
        width = int(events.n_jets.max())
        assert {name: (data.shape, data.dtype.str) for name, data in inputs.items()} == {
            "MASK": ((30, width), "|b1"),
            **dict.fromkeys(("pt", "eta", "phi", "mass", "btag"), ((30, width), "<f4")),
        }
        assert inputs["MASK"][:].sum(1).tolist() == events.n_jets.tolist()
        assert not inputs["pt"][:][~inputs["MASK"][:]].any()
        assert file["TARGETS/t2/b"].dtype == np.int64
        np.testing.assert_array_equal(file["TARGETS/t2/b"][:], events.truth[:, events.topology.slot_index("t2.b")])


def test_hyper_layout(tmp_path):
    """As HyPER's own files: records, NaN padding, a number on each jet, b first."""
    record = np.dtype([(name, np.float32) for name in ("e", "eta", "phi", "pt", "btag")])
    jets = np.full((2, 20), np.nan, dtype=record)
    labels = np.full((2, 20), np.nan, dtype=np.float32)
    for row, count in enumerate((6, 7)):
        for name in record.names or ():
            jets[name][row, :count] = 0.0
        jets["pt"][row, :count] = jets["e"][row, :count] = np.arange(90, 90 - count, -1)
    labels[0, :6] = [4, 3, 1, 2, 5, 6]
    labels[1, :7] = [0, 1, 0, 2, 0, 6, 5]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["INPUTS/JET"], file["LABELS/JET"] = jets, labels
    events = read(tmp_path / "a.h5")
    assert [slot.name for slot in events.topology.slots[:3]] == ["t1.W.q1", "t1.W.q2", "t1.b"]
    assert events.truth.tolist() == [[3, 1, 2, 4, 5, 0], [3, -1, 1, 6, 5, -1]]
    assert events.n_jets.tolist() == [6, 7]

    with h5py.File(write_events(events, tmp_path / "b.h5", "hyper_hdf5")) as file:
        np.testing.assert_array_equal(file["LABELS/JET"][:], labels)
        assert file["INPUTS/JET"].dtype == record
        for name in record.names or ():
            np.testing.assert_array_equal(file["INPUTS/JET"][:][name], jets[name])
        assert file["INPUTS/GLOBAL"][:].tolist() == [[(6, 0)], [(7, 0)]]
        assert file["METADATA/FullyMatched"][:].tolist() == [1, 0]


def hyper_root(path, labels):
    count = [len(row) for row in labels]
    lists = {
        f"jet_{name}": ak.Array([[value] * n for n in count])
        for name, value in {"pt": 50.0, "eta": 0.5, "phi": 1.0, "e": 70.0, "m": 3.0, "bTag": 1}.items()
    }
    return write_tree(path, "Delphes", {**lists, "jet_truthmatch": ak.Array(labels), "njet": np.array(count)})


def test_hyper_root(tmp_path):
    path = hyper_root(tmp_path / "a.root", [[4, 3, 1, 2, 5, 6], [0, 1, 2, 3, 0, 0, 9], [1, 1, 2, 3, 4, 5, 6]])
    assert detect(str(path)).name == "hyper_root"
    with pytest.warns(PairtonWarning, match="2 labels in 2 events"):  # a 9, and a 1 on two jets
        events = read(path)
    assert events.truth.tolist() == [[3, 1, 2, 4, 5, 0], [2, 3, 1, -1, -1, -1], [2, 3, -1, 5, 6, 4]]
    assert events.jets.energy.to_list()[0] == [70.0] * 6
    assert read(path, truth=False, keep=["njet"]).columns["njet"].tolist() == [6, 7, 7]


def test_flat_energy_that_is_asked_for(tmp_path):
    events = some_events(5)
    path = write_events(events, tmp_path / "a.parquet")
    by_mass = read(path, map={"mass": "jet_eta"})  # a nonsense mass, but the one asked for
    assert by_mass.jets.energy.to_list() != events.jets.energy.to_list()
    with pytest.raises(FormatError, match=r"truth_t1_W_q1.*truth of hh4b|H1_b1.*--topology"):
        read(path, topology="hh4b")


# -- ids, files, URLs --------------------------------------------------------------------------------------


def test_ids_come_from_the_content(tmp_path):
    """A copy under another name has the same ids; rows count; a number of events does not matter."""
    path = spanet_file(tmp_path / "a.h5", HOLES)
    copy = tmp_path / "b.h5"
    copy.write_bytes(path.read_bytes())
    assert read(path).ids.tolist() == read(copy).ids.tolist()
    assert read(path, chunk=1).ids[:, 1].tolist() == [0, 1]
    other = spanet_file(tmp_path / "c.h5", {**HOLES, "Met/met": np.zeros(2, np.float32)})
    assert read(other).ids[0, 0] != read(path).ids[0, 0]
    roots = [hyper_root(tmp_path / name, [[0]]) for name in ("a.root", "b.root")]  # same content, two UUIDs
    assert read(roots[0]).ids[0, 0] != read(roots[1]).ids[0, 0]


def test_several_files(tmp_path, monkeypatch):
    events = some_events(12)
    parts = [write_events(events[k * 4 : k * 4 + 4], tmp_path / f"part{k}.h5") for k in range(3)]
    (tmp_path / "list.txt").write_text("# both\npart0.h5\n\npart[12].h5  # a glob\n")
    for paths in (parts, str(tmp_path / "part*.h5"), f"@{tmp_path / 'list.txt'}"):
        assert_same(read(paths), events)
    assert [len(part) for part in iterate(parts, chunk=3)] == [3, 1] * 3
    assert_same(read(f"file://{parts[0]}"), events[:4])
    (tmp_path / "odd[1].h5").write_bytes(parts[0].read_bytes())
    assert_same(read(tmp_path / "odd[1].h5"), events[:4])  # a name that only looks like a glob


def test_a_list_may_have_a_byte_order_mark_comments_and_names_with_a_hash(tmp_path):
    for name in ("run#1.h5", "b.h5"):
        write_events(some_events(2, seed=len(name)), tmp_path / name)
    (tmp_path / "list.txt").write_bytes("\ufeffrun#1.h5  # the first\n# run#2.h5\nb.h5\t#last\n".encode())
    assert [Path(path).name for path in expand(f"@{tmp_path / 'list.txt'}")] == ["run#1.h5", "b.h5"]


@pytest.mark.parametrize("to", WRITERS)
def test_remote_files(tmp_path, to, monkeypatch):
    import fsspec

    monkeypatch.setenv("PAIRTON_SCHEMES", "davs, memory")
    events = some_events(6)
    path = write_events(events, tmp_path / WRITERS[to], to)
    memory = fsspec.filesystem("memory")
    try:
        memory.pipe(f"/far/{path.name}", path.read_bytes())
        assert_same(read(f"memory://far/{path.name}"), events, 1e-6)
        assert_same(read("memory://far/a*"), events, 1e-6)
    finally:
        memory.rm("/far", recursive=True)


def test_a_host_that_does_not_answer_is_one_line(monkeypatch):
    import fsspec

    def fail(url, *_, **__):
        raise FileNotFoundError(url) from OSError("Name or service not known")

    monkeypatch.setattr(fsspec, "open", fail)
    with pytest.raises(InputError, match=r"no such file \(Name or service not known\): check the address"):
        read("https://nowhere.invalid/events.h5")


# -- units, names, refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("to", WRITERS)
def test_mev_is_divided_when_said(tmp_path, to):
    events = some_events()
    mev = ak.with_field(events.jets, events.jets.pt * 1000, "pt")
    mev = ak.with_field(mev, events.jets.energy * 1000, "energy")
    path = write_events(events.replace(jets=ak.with_name(mev, "Momentum4D")), tmp_path / WRITERS[to], to)
    with pytest.raises(Exception, match="looks like MeV: give --set units=MeV"):
        read(path)
    back = read(path, units="MeV")
    for name in ("pt", "energy"):
        np.testing.assert_allclose(ak.flatten(back.jets[name]), ak.flatten(events.jets[name]), rtol=1e-6)
    assert float(read(path, units="gev").jets.pt[0, 0]) > 20_000
    with pytest.raises(ConfigError, match="choose GeV or MeV"):
        read(path, units="TeV")


def test_names_that_do_not_exist(tmp_path):
    path = write_events(some_events(3), tmp_path / "a.h5")
    with pytest.raises(ConfigError, match=r"no format 'spanet'.*did you mean 'spanet_hdf5'"):
        read(path, format="spanet")
    with pytest.raises(ConfigError, match="no option 'strickt'"):
        read(path, strickt=True)
    with pytest.raises(ConfigError, match="chunk is 0"):
        read(path, chunk=0)


def test_writers_refuse_what_they_cannot_keep(tmp_path):
    events = some_events(4)
    for to, name in WRITERS.items():
        path = tmp_path / name
        texts = Events(events.jets, events.topology, columns={"who": ak.Array(["a", "b", "c", "d"])})
        with pytest.raises(OutputError, match="column who has the type"):
            write_events(texts, path, to)
        unlike = Events(events.jets, events.topology, None, events.weights, None, events.columns)
        for other, said in (
            (unlike, "only some inputs have truth: write them to separate files"),
            (some_events(2, "hh4b"), "events of hh4b"),
        ):
            writer = create(path, events.topology, {}, to)
            writer.write(events)
            with pytest.raises(OutputError, match=said):
                writer.write(other)
            writer.abort()
    for name in ("a.root", "a.parquet"):
        clash = Events(events.jets, events.topology, columns={"jet_pt": np.arange(4)})
        with pytest.raises(OutputError, match="column jet_pt has the same name as a column of this format"):
            write_events(clash, tmp_path / name)
    with pytest.raises(OutputError, match="can only be read"):
        create(tmp_path / "b.root", events.topology, {}, "hyper_root")
    with pytest.raises(ConfigError, match=r"suffix says HDF5, but parquet is Parquet: end the name in \.parquet"):
        create(tmp_path / "b.h5", events.topology, {}, "parquet")
    with pytest.raises(ConfigError, match="unknown suffix"):
        create(tmp_path / "b.txt", events.topology)
    assert not list(tmp_path.iterdir())


def test_a_stored_tree_that_is_no_longer_allowed_does_not_lock_the_file(tmp_path):
    path = tmp_path / "old.h5"
    write_events(read("sample:ttbar_allhad")[:5], path)
    with h5py.File(path, "r+") as file:
        said = json.loads(file.attrs[KEY])
        said["topology"]["particles"] = {"t": ["q1", "q2", "b"]}
        file.attrs[KEY] = json.dumps(said)
    with pytest.raises(TopologyError, match=r"give them one name.*or read this file with --topology"):
        read(path)
    assert len(read(path, topology="ttbar_allhad")) == 5
