"""A file format from outside the package: one HDF5 dataset of jets, padded with zeros."""

import awkward as ak
import h5py
import numpy as np
import pytest

import pairton
from pairton.formats import ADDED, REGISTRY, register_format
from pairton.formats.base import Format
from pairton.formats.column_source import ColumnSource
from pairton.formats.flat_objects import FlatObjects, Padded


class PaddedJets(Format):
    name = "padded"
    description = "one dataset padded_jets: (events, jets, 5) with pt, eta, phi, mass, btag"
    suffixes = (".h5",)
    jets_only = prepared = True

    def recognises(self, file):
        return file.is_dataset("padded_jets")

    def open(self, file, options):
        return PaddedSource(file, options)


class PaddedSource(ColumnSource):
    has_truth, metadata = False, {}

    def __init__(self, file, options):
        super().__init__(file, options)
        self.data = file.dataset("padded_jets")
        self.n_events = len(self.data)

    def read_kind(self, rows, kind):
        values = self.file.read(self.data, rows.start, rows.stop)
        jets = Padded(values[:, :, 0] > 0)
        fields = {name: jets.take(values[:, :, k]) for k, name in enumerate(("pt", "eta", "phi", "mass", "btag"))}
        return FlatObjects(jets.counts, fields, jets)


@pytest.fixture
def registered():
    register_format(PaddedJets(), "HDF5")
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
