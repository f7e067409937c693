"""Files that reach for other files, declare far more than they hold, or have numbers that cannot be."""

import shutil
import struct

import awkward as ak
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

from event_files import write_events
from hdf5_makers import BOMBS, LEAKS, PT, inflating
from pairton import formats
from pairton.errors import InputError
from pairton.evaluation.answers import read_assignments
from pairton.topology import load_topology
from pairton.topology.extras import labels_of

FIELDS = ("pt", "eta", "phi", "mass", "btag")


def named(maker):
    return maker.__name__


# -- other files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolate", [False, True], ids=["here", "isolated"])
@pytest.mark.parametrize("maker", LEAKS, ids=named)
def test_content_of_other_files_is_refused(source, tmp_path, maker, isolate):
    secret = shutil.copy(source, tmp_path / "secret.h5")
    maker(source, secret)
    with pytest.raises(InputError, match=r"includes data from other files \("):
        formats.read(source, isolate=isolate)


def test_answers_of_other_files_are_refused(tmp_path):
    topology = load_topology()
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        for label in labels_of(topology, "spanet"):
            file[f"TARGETS/{label}"] = np.zeros(5, dtype=np.int64)
    with h5py.File(tmp_path / "answers.h5", "w") as file:
        file["TARGETS"] = h5py.ExternalLink("secret.h5", "TARGETS")
    assert len(read_assignments(tmp_path / "secret.h5", topology)) == 5
    with pytest.raises(InputError, match="includes data from other files"):
        read_assignments(tmp_path / "answers.h5", topology)


def test_soft_links_inside_the_file_are_followed(source):
    before = formats.read(source)
    with h5py.File(source, "r+") as file:
        file.move("INPUTS/Source/pt", "elsewhere/deep/pt")
        file["way"] = h5py.SoftLink("/elsewhere")
        file["INPUTS/Source/pt"] = h5py.SoftLink("/way/deep/pt")
    assert formats.read(source).jets.pt.tolist() == before.jets.pt.tolist()


# -- more than they hold -----------------------------------------------------------------------------------


@pytest.mark.parametrize("maker", [*BOMBS, inflating], ids=named)
def test_small_files_that_declare_too_much_are_refused_in_bounded_time_and_memory(
    source, tmp_path, model_folder, bounded, maker
):
    maker(source, None)
    assert source.stat().st_size < 2**20
    code, said = bounded("reconstruct", source, "-o", tmp_path / "out.parquet", "--model", model_folder)
    assert maker is inflating or (code == 2 and ("made to" in said or "no dataset" in said))


def parquet(folder, empty=0):
    count = 40_000_000
    ends = pa.array([0] * (empty + 1) + [count], pa.int64())
    jets = pa.LargeListArray.from_arrays(ends, pa.array(np.full(count, 50, np.float32)))
    columns = dict.fromkeys([f"jet_{name}" for name in FIELDS], jets)
    pq.write_table(pa.table(columns), folder / "bomb.parquet", compression="zstd")
    return folder / "bomb.parquet"


def parquet_among_empty_events(folder):
    return parquet(folder, empty=10_000)


def ttree(folder, rntuple=False):
    jets = ak.unflatten(np.full(20_000_000, 1, np.float32), [20_000_000])
    with uproot.recreate(folder / "bomb.root", compression=uproot.LZMA(1)) as file:
        if rntuple:
            file.mkrntuple("Events", {f"jet_{name}": jets for name in FIELDS})
        else:
            event = ak.zip(dict.fromkeys(FIELDS, jets))
            file.mktree("Events", {"jet": ak.type(event).content})
            file["Events"].extend({"jet": event})
    return folder / "bomb.root"


def rntuple(folder):
    return ttree(folder, rntuple=True)


@pytest.mark.parametrize("make", [parquet, parquet_among_empty_events, ttree, rntuple], ids=named)
def test_an_event_of_millions_of_equal_jets_is_refused(tmp_path, bounded, make):
    """A file of up to 100 kB, which would take gigabytes to read."""
    path = make(tmp_path)
    assert path.stat().st_size < 2**20
    code, said = bounded("reconstruct", path, "-o", tmp_path / "out.parquet")
    assert code == 2
    assert "made to exhaust the memory" in said


# -- odd content -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["inspect", "reconstruct", "convert"])
@pytest.mark.parametrize("kind", ["S10", "S60000", [("a", "f4")], np.dtype("V16"), h5py.ref_dtype, "c16"], ids=str)
def test_columns_that_are_no_numbers_are_one_line(source, tmp_path, refused, kind, verb):
    with h5py.File(source, "r+") as file:
        shape = file[PT].shape
        del file[PT]
        file.create_dataset(PT, shape, kind)
    more = {"inspect": [], "reconstruct": ["-o", tmp_path / "out.parquet"], "convert": [tmp_path / "out.h5"]}
    assert f"{PT} must have numbers" in refused(verb, source, *more[verb])


def test_a_negative_number_of_entries_is_refused_also_among_others(source, tmp_path, refused, decays):
    path, n = tmp_path / "bad.root", 397
    write_events(decays(n), path)
    content, said = path.read_bytes(), struct.pack(">q", n)
    assert content.count(said)
    path.write_bytes(content.replace(said, struct.pack(">q", -5)))
    for inputs in ([path], [source, path]):
        assert "declares -5 events" in refused("convert", *inputs, tmp_path / "out.h5")


def test_isolation_works_below_limits_of_the_user(source, bounded):
    """As those of a batch system, which are lower than ours."""
    assert bounded("inspect", source, "--isolate") == (0, "")
