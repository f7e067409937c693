"""Delphes files in miniature."""

import awkward as ak
import numpy as np
import pytest

from pairton.errors import ConfigError, FormatError
from pairton.formats import detect, open_source, read
from pairton.formats.delphes import DelphesSource
from pairton.formats.flat_objects import Chunk
from root_files import write_tree

# g g -> t t~ with copies (status 44, 62), shower particles (51) and final ones (1); mothers point back.
PARTICLES = {
    "PID": [2212, 2212, 21, 21, 6, -6, 6, -6, 24, 5, -24, -5, -24, 2, -1, 3, -4, 21, 5, 211],
    "Status": [4, 4, 21, 21, 22, 22, 44, 62, 22, 23, 22, 23, 44, 23, 23, 23, 23, 51, 51, 1],
    "M1": [-1, -1, 17, 1, 2, 2, 4, 5, 6, 6, 7, 7, 10, 8, 8, 12, 12, 9, 9, 18],
    "Eta": [999.9, -999.9, 0, 0, 0, 0, 0, 0, 0, 0.5, 0, -0.5, 0, 1.0, 1.5, -1.0, -1.5, 0, 0.6, 0],
    "Phi": [0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0, 0, 2.0, 0, -1.0, -2.0, 3.1, 0.0, 0, 1.0, 0],
}
INTEGERS = ("PID", "Status", "M1", "BTag")
# b~, dbar, u, cbar, b, s
JETS = {
    "PT": [90.0, 80.0, 70.0, 60.0, 50.0, 40.0],
    "Eta": [-0.5, 1.5, 1.1, -1.5, 0.5, -1.0],
    "Phi": [2.0, -2.0, -1.0, 0.1, 1.1, -3.1],
    "Mass": [9.0, 8.0, 7.0, 6.0, 5.0, 4.0],
    "BTag": [3, 0, 2, 0, 1, 0],
}


def content(jets="Jet", n=3):
    made = {}
    for collection, columns in ((jets, JETS), ("Particle", PARTICLES)):
        for name, values in columns.items():
            kind = np.uint32 if name == "BTag" else np.int32 if name in INTEGERS else np.float32
            made[f"{collection}.{name}"] = ak.values_astype(ak.Array([values] * n), kind)
    made["Event.Weight"] = ak.values_astype(ak.Array([[0.5 + k] for k in range(n)]), np.float32)
    made["Event.Number"] = ak.values_astype(ak.Array([[k] for k in range(n)]), np.int64)
    return made


def write(path, made):
    return write_tree(path, "Delphes", made)


@pytest.fixture
def delphes(tmp_path):
    return write(tmp_path / "delphes.root", content())


def load(path, **options):
    return read(path, **options)


def test_jets_truth_and_weights(delphes):
    assert detect(str(delphes)).name == "delphes"
    events = load(delphes)
    np.testing.assert_allclose(events.jets.pt[2], JETS["PT"])
    np.testing.assert_allclose(events.jets.mass[0], JETS["Mass"], rtol=1e-3)
    # t1.W -> u (jet 2) d~ (1), b (4); t2.W -> s (5) c~ (3), b~ (0)
    assert events.truth.tolist() == [[2, 1, 4, 5, 3, 0]] * 3
    assert events.weights.tolist() == [0.5, 1.5, 2.5]
    assert events.columns["event"].tolist() == [0, 1, 2]
    assert events.ids[:, 1].tolist() == [0, 1, 2]


def test_the_record_is_read_in_blocks(delphes, monkeypatch):
    whole = load(delphes).truth
    monkeypatch.setattr(DelphesSource, "truth_rows", 2)
    assert load(delphes).truth.tolist() == whole.tolist()


def test_old_status_of_the_hard_process(tmp_path):
    """Pythia 6 marks all of it with 3, colliding partons too."""
    made = content()
    status = made["Particle.Status"]
    hard = (status == 22) | (status == 23) | (status == 21)
    made["Particle.Status"] = ak.values_astype(ak.where(hard, 3, 2), np.int32)
    assert load(write(tmp_path / "old.root", made)).truth.tolist() == [[2, 1, 4, 5, 3, 0]] * 3


# Particles of Pythia 8 with the status of HepMC, as Delphes stores it: PDG code, status, mother, hard or not.
SHOWERED = {
    "a W to a muon": [(24, 22, -1, 1), (24, 52, 0, 0), (-13, 1, 1, 1), (14, 1, 1, 0)],
    "a W to a muon that radiates": [(24, 22, -1, 1), (-13, 23, 0, 1), (-13, 1, 1, 0), (22, 1, 1, 0)],
    "a W to a tau": [(24, 22, -1, 1), (-15, 2, 0, 1), (16, 1, 0, 0), (-16, 1, 1, 0)],
    "a W that radiates": [(24, 22, -1, 1), (24, 51, 0, 0), (22, 1, 0, 0), (-11, 1, 1, 1)],
    "H to photons": [(25, 22, -1, 1), (25, 62, 0, 0), (22, 1, 1, 1), (22, 23, 1, 1), (22, 1, 3, 0)],
    "u g to u and a photon": [(2, 21, -1, 0), (21, 21, -1, 0), (2, 23, 0, 1), (22, 1, 0, 1), (22, 1, 2, 0)],
    "hadrons": [(5, 23, -1, 1), (521, 2, 0, 0), (-13, 1, 1, 0), (111, 2, 1, 0), (22, 1, 3, 0), (15, 2, 1, 0)],
}


@pytest.mark.parametrize("name", SHOWERED)
def test_leptons_and_photons_that_do_not_radiate(tmp_path, name):
    """They have the status 1, or 2 if they decay, also in the hard process."""
    code, status, mother, hard = zip(*SHOWERED[name], strict=True)
    made = content(n=1)
    for column, values in (("PID", code), ("Status", status), ("M1", mother)):
        made[f"Particle.{column}"] = ak.values_astype(ak.Array([list(values)]), np.int32)
    for column in ("Eta", "Phi"):
        made[f"Particle.{column}"] = ak.zeros_like(made["Particle.PID"], dtype=np.float32)
    with open_source(write(tmp_path / "showered.root", made)) as source:
        assert isinstance(source, DelphesSource)
        record = source.record(Chunk(source.tree.read(source.record_columns(), 0, 1), source.path, 0, 1))
    assert record.hard.tolist() == [each == 1 for each in hard]


@pytest.mark.parametrize(
    ("btag", "tags"),
    [
        (None, [1, 0, 0, 0, 1, 0]),
        ("0", [1, 0, 0, 0, 1, 0]),
        ("1", [1, 0, 1, 0, 0, 0]),
        ("BTag:1", [1, 0, 1, 0, 0, 0]),
        ("Jet.BTag:1", [1, 0, 1, 0, 0, 0]),
        ("31", [0] * 6),
    ],
)
def test_which_bit_is_a_choice(delphes, btag, tags):
    assert load(delphes, btag=btag).jets.btag[0].tolist() == tags


def test_another_collection_of_jets(tmp_path):
    path = write(tmp_path / "puppi.root", content("JetPUPPI"))
    assert load(path, settings={"jets": "JetPUPPI"}).truth.tolist() == [[2, 1, 4, 5, 3, 0]] * 3
    with pytest.raises(FormatError, match=r"lacks Jet.BTag; .*with --set jets=COLLECTION"):
        load(path)


def test_without_particles_there_is_no_truth(tmp_path):
    made = {name: column for name, column in content().items() if not name.startswith(("Particle", "Event"))}
    events = load(write(tmp_path / "reco.root", made))
    assert events.truth is None
    assert events.weights is None
    assert events.columns == {}
    assert load(write(tmp_path / "all.root", content()), truth=False).truth is None


def test_bits_that_cannot_be(delphes):
    for wrong in ("BTag:32", "BTag:1.5", "BTag", "-1"):
        with pytest.raises(ConfigError, match="must be a number from 0 to 31"):
            load(delphes, btag=wrong)
