"""A file format from outside the package: one HDF5 dataset of jets, padded with zeros."""

import awkward as ak
import h5py
import numpy as np
import pytest

import pairton
from pairton.events import Events
from pairton.formats import ADDED, REGISTRY, register_format
from pairton.formats.base import Format, Source


class Padded(Format):
    name = "padded"
    description = "one dataset padded_jets: (events, jets, 5) with pt, eta, phi, mass, btag"
    suffixes = (".h5",)
    jets_only = True

    def recognises(self, file):
        return file.is_dataset("padded_jets")

    def open(self, file, options):
        return PaddedSource(file, options)


class PaddedSource(Source):
    has_truth, metadata = False, {}

    def __init__(self, file, options):
        self.path, self.file, self.topology = file.path, file, options.topology
        self.data = file.dataset("padded_jets")
        self.n_events = len(self.data)

    def read(self, start, stop):
        values = self.file.read(self.data, start, stop)
        there = values[:, :, 0] > 0
        columns = dict(zip(("pt", "eta", "phi", "mass", "btag"), values[there].T, strict=True))
        jets = {name: ak.unflatten(column, there.sum(axis=1)) for name, column in columns.items()}
        ids = np.stack([np.full(stop - start, self.file.source_id, np.uint64), np.arange(start, stop)], axis=1)
        return Events(pairton.make_jets(**jets), self.topology, ids=ids)

    def close(self):
        self.file.close()


@pytest.fixture
def registered():
    register_format(Padded(), "HDF5")
    yield
    del REGISTRY["padded"], ADDED["padded"]


def test_a_format_is_recognised_and_reconstructed(registered, decays, mass_model, tmp_path):
    events = decays(50, floor=20)
    values = np.zeros((50, 8, 5), np.float32)
    for k, name in enumerate(("pt", "eta", "phi", "mass", "btag")):
        column = getattr(events.jets, name)
        values[:, :, k] = ak.fill_none(ak.pad_none(column, 8), 0)
    with h5py.File(tmp_path / "padded.h5", "w") as file:
        file["padded_jets"] = values
    read = pairton.read(tmp_path / "padded.h5")
    assert read.n_jets.tolist() == events.n_jets.tolist()
    reco, wanted = (pairton.reconstruct(some, mass_model) for some in (read, events))
    assert reco.assignment.tolist() == wanted.assignment.tolist()
