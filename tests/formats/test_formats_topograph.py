"""Topograph files in miniature."""

import h5py
import numpy as np
import pytest

from pairton.errors import ConfigError, EventsError, FormatError, InputError, PairtonWarning
from pairton.formats import detect, read

RECORD = np.dtype([(name, np.float32) for name in ("pt", "eta", "phi", "energy")] + [("is_tagged", np.int8)])
WIDTH = 16
# b1, W1j1, W1j2, b2, W2j1, W2j2 as 0 to 5
LABELS = [[3, 0, -1, 1, 2, 4, 5], [0, 1, -1, -1, 3, -1], []]


def write(path, labels=None, drop=(), scale=1):
    labels = LABELS if labels is None else labels
    jets = np.zeros((len(labels), WIDTH), dtype=RECORD)
    indices = np.full((len(labels), WIDTH), -1, dtype=np.int64)
    for row, known in enumerate(labels):
        for k, label in enumerate(known):
            pt = (100.0 - 10 * k) * scale
            jets[row, k] = (pt, 0.1 * k, 0.2 * k, pt * 1.5, k % 2)
            indices[row, k] = label
    counts = np.array([len(known) for known in labels])
    content = {"jets": jets, "jets_indices": indices, "njets": counts, "matchability": np.arange(len(labels))}
    with h5py.File(path, "w") as file:
        group = file.create_group("delphes")
        for name, values in content.items():
            if name not in drop:
                group[name] = values
    return path


def load(path, **options):
    return read(path, **options)


def test_jets_and_labels(tmp_path):
    path = write(tmp_path / "topograph.h5")
    assert detect(str(path)).name == "topograph"
    events = load(path, keep=["matchability"])
    assert events.n_jets.tolist() == [7, 6, 0]
    np.testing.assert_allclose(events.jets.energy[1], [150, 135, 120, 105, 90, 75])
    assert events.jets.btag[1].tolist() == [0, 1, 0, 1, 0, 1]
    # slots: q1, q2, b of the first top, then of the second
    assert events.truth.tolist() == [[3, 4, 1, 5, 6, 0], [1, -1, 0, -1, -1, 4], [-1] * 6]
    assert events.columns["matchability"].tolist() == [0, 1, 2]
    assert load(path, truth=False).truth is None
    assert load(path, chunk=2).truth.tolist() == events.truth.tolist()


def test_without_counts_the_padding_is_what_has_no_pt(tmp_path):
    assert load(write(tmp_path / "bare.h5", drop=("njets", "jets_indices"))).n_jets.tolist() == [7, 6, 0]


def test_labels_that_cannot_be(tmp_path):
    path = write(tmp_path / "twice.h5", [[0, 1, 1, 3, 4, 5], [0, 1, 2, 3, 4, 9]])
    with pytest.warns(PairtonWarning, match="2 labels in 2 events"):
        assert load(path).truth.tolist() == [[-1, -1, 0, 4, 5, 3], [1, 2, 0, 4, -1, 3]]
    with pytest.raises(EventsError, match="read without --strict"):
        load(path, strict=True)


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(FormatError, match="no dataset delphes/jets"):
        load(write(tmp_path / "no.h5", drop=("jets",)), format="topograph")
    with pytest.raises(InputError, match="looks like MeV"):
        load(write(tmp_path / "mev.h5", scale=1000))
    assert load(write(tmp_path / "ok.h5", scale=1000), units="MeV").jets.pt[0, 0] == 100
    with pytest.raises(ConfigError, match="remove --btag and --map"):
        load(tmp_path / "ok.h5", btag="0.5")
    with pytest.raises(ConfigError, match="topograph files cannot have variations, but up was given"):
        load(tmp_path / "ok.h5", variations={"up": {"pt": "pt"}})
    with h5py.File(tmp_path / "short.h5", "w") as file:
        file["delphes/jets"] = np.zeros((2, WIDTH), dtype=RECORD)
        file["delphes/njets"] = np.zeros(3)
    with pytest.raises(FormatError, match="columns of unequal length"):
        load(tmp_path / "short.h5")
