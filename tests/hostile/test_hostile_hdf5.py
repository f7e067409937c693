"""HDF5 files that reach for other files, or for all memory."""

import shutil

import h5py
import numpy as np
import pytest
from hdf5_makers import BOMBS, LEAKS, PT, inflating

from pairton import formats
from pairton.errors import InputError
from pairton.evaluation.answers import read_assignments
from pairton.topology import load_topology
from pairton.topology.extras import labels_of


@pytest.mark.parametrize("isolate", [False, True], ids=["here", "isolated"])
@pytest.mark.parametrize("maker", LEAKS, ids=lambda maker: maker.__name__)
def test_content_of_other_files_is_refused(source, tmp_path, maker, isolate):
    secret = shutil.copy(source, tmp_path / "secret.h5")
    maker(source, secret)
    with pytest.raises(InputError, match=r"includes data from other files \("):
        formats.read(source, isolate=isolate)


@pytest.mark.parametrize("maker", BOMBS, ids=lambda maker: maker.__name__)
def test_files_that_declare_too_much_are_refused(source, refused, maker):
    maker(source, None)
    said = refused("inspect", source)
    assert "made to" in said or "no dataset" in said


@pytest.mark.parametrize("maker", [*BOMBS, inflating], ids=lambda maker: maker.__name__)
def test_small_files_take_bounded_time_and_memory(source, tmp_path, model_folder, bounded, maker):
    maker(source, None)
    assert source.stat().st_size < 2**20
    bounded("reconstruct", source, "-o", tmp_path / "out.parquet", "--model", model_folder)


@pytest.mark.parametrize("verb", ["inspect", "reconstruct", "convert"])
@pytest.mark.parametrize("kind", ["S10", "S60000", [("a", "f4")], np.dtype("V16"), h5py.ref_dtype, "c16"], ids=str)
def test_columns_that_are_no_numbers_are_one_line(source, tmp_path, refused, kind, verb):
    with h5py.File(source, "r+") as file:
        shape = file[PT].shape
        del file[PT]
        file.create_dataset(PT, shape, kind)
    more = {"inspect": [], "reconstruct": ["-o", tmp_path / "out.parquet"], "convert": [tmp_path / "out.h5"]}
    assert f"{PT} must have numbers" in refused(verb, source, *more[verb])


def test_isolation_works_below_limits_of_the_user(source, bounded):
    """As those of a batch system, which are lower than ours."""
    assert bounded("inspect", source, "--isolate") == (0, "")


def test_soft_links_inside_the_file_are_followed(source):
    before = formats.read(source)
    with h5py.File(source, "r+") as file:
        file.move("INPUTS/Source/pt", "elsewhere/deep/pt")
        file["way"] = h5py.SoftLink("/elsewhere")
        file["INPUTS/Source/pt"] = h5py.SoftLink("/way/deep/pt")
    assert formats.read(source).jets.pt.tolist() == before.jets.pt.tolist()


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
