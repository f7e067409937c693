"""Files of the paper's authors in miniature."""

import h5py
import numpy as np
import pytest

from pairton.errors import ConfigError, FormatError, InputError, PairtonWarning
from pairton.formats import detect, read

NAMES = ["jet_e", "jet_pt", "jet_eta", "jet_phi", "jet_bTag"]
MATCHES = [[4, 1, 0, 2, 3, 5, 6], [1, 2, 0, 0, 4, 0], []]  # 1 b, 2 and 3 quarks of a W; 4 to 6 of the second top


def write(path, matches=MATCHES, scale=1.0, **changes):
    jets = [
        [1.5 * (100 - 10 * k), 100 - 10 * k, 0.1 * k, 0.2 * k, k % 2] for own in matches for k in range(len(own))
    ]
    jets = np.array(jets) * [scale, scale, 1, 1, 1]
    content = {
        "jets": jets,
        "jets_variables": np.array(NAMES, dtype="S"),
        "jet_match": np.array([[label] for own in matches for label in own]),
        "njet": np.array([[len(own)] for own in matches]),
        "matchability": np.arange(len(matches)),
    }
    with h5py.File(path, "w") as file:
        for name, values in (content | changes).items():
            if values is not None:
                file[name] = values
    return path


def test_jets_and_labels(tmp_path):
    path = write(tmp_path / "theirs.h5")
    assert detect(str(path)).name == "authors"
    events = read(path, keep=["matchability"])
    assert events.n_jets.tolist() == [7, 6, 0]
    np.testing.assert_allclose(events.jets.pt[1], [100, 90, 80, 70, 60, 50])
    np.testing.assert_allclose(events.jets.energy[1], [150, 135, 120, 105, 90, 75])
    assert events.jets.btag[1].tolist() == [0, 1, 0, 1, 0, 1]
    # slots: q1, q2, b of the first top, then of the second
    assert events.truth.tolist() == [[3, 4, 1, 5, 6, 0], [1, -1, 0, -1, -1, 4], [-1] * 6]
    assert events.columns["matchability"].tolist() == [0, 1, 2]
    assert read(path, chunk=2).truth.tolist() == events.truth.tolist()
    assert read(path, truth=False).truth is None
    assert read(write(tmp_path / "flat.h5", njet=np.array([7, 6, 0]))).n_jets.tolist() == [7, 6, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"njet": np.array([7, 7, 0])}, "jets has 13 rows, but njet counts 14 jets"),
        ({"njet": np.array([14, -1, 0])}, "jets has 13 rows, but njet counts 13 jets"),
        ({"jet_match": np.zeros((4, 1), int)}, "jet_match has 4 rows"),
        ({"jets_variables": np.array(NAMES[1:], dtype="S")}, "jet_e"),
        ({"jets_variables": np.array([*NAMES, "jet_m"], dtype="S")}, "jets_variables names 6 columns"),
        ({"matchability": np.arange(2)}, "columns of unequal length"),
    ],
)
def test_damaged_files(tmp_path, changes, message):
    with pytest.raises(FormatError, match=message):
        read(write(tmp_path / "wrong.h5", **changes), keep=["matchability"])


def test_units_labels_and_options(tmp_path):
    with pytest.raises(InputError, match="looks like MeV"):
        read(write(tmp_path / "mev.h5", scale=1000))
    with pytest.warns(PairtonWarning, match="2 labels in 1 event"):
        assert read(write(tmp_path / "twice.h5", [[1, 1, 2, 3, 4, 9]])).truth.tolist() == [[2, 3, -1, -1, -1, 4]]
    with pytest.raises(ConfigError, match="remove --btag and --map"):
        read(tmp_path / "twice.h5", btag="0.5")
    assert not read(write(tmp_path / "data.h5", jet_match=None)).truth
