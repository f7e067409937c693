"""A kind of object from outside the package: photons of H -> y y, from Parquet to columns of a result."""

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest

import pairton
from pairton.events.domain import Domain
from pairton.events.inputs import Inputs
from pairton.events.matching import match_slots
from pairton.events.vectors import cartesian, pair_products
from pairton.models.storage import ModelInfo
from pairton.reconstruction.running import reconstruct_files
from pairton.topology import parse_topology
from pairton.topology.kinds import KINDS, Kind, register_kind

TOPOLOGY = """
name: hyy
event: [H]
particles: {H: [y, y]}
objects: {y: photon}
selection: {photons: {pt: 20, abs_eta: 2.5}, event: {photons: 2}}
"""


class HiggsMass:
    """An engine: the logit of a pair of photons falls with the distance of its mass from 125 GeV."""

    at_once = 1

    def __call__(self, nodes, tokens):
        products = pair_products(cartesian(*np.moveaxis(nodes.values["photon"], -1, 0)))
        return {"edges": -(((np.sqrt(2 * np.maximum(products, 0)) - 125) / 5) ** 2)[:, None].astype(np.float32)}


def write_photons(path):
    """Two photons back to back with a mass of 125 GeV, and between them one that has nothing to do with them."""
    rng = np.random.default_rng(0)
    phi = rng.uniform(-3, 0, 20)
    photons = {"pt": [[62.5, 40.0, 62.5]] * 20, "eta": [[0.0, 0.3, 0.0]] * 20}
    photons["phi"] = np.stack([phi, phi + 1.0, phi + np.pi], axis=1).tolist()
    photons["energy"] = (np.array(photons["pt"]) * np.cosh(photons["eta"])).tolist()
    ak.to_parquet(ak.Array({f"photon_{name}": values for name, values in photons.items()}), path)


def test_photons_become_a_higgs(tmp_path):
    (tmp_path / "hyy.yaml").write_text(TOPOLOGY)
    topology = pairton.load_topology(tmp_path / "hyy.yaml")
    outputs = {"edges": ("type", "node", "node")}
    info = ModelInfo(topology, {"tokens": False}, Domain(), Inputs.default(topology), outputs)
    write_photons(tmp_path / "photons.parquet")
    model = pairton.Model("higgs_mass", info, HiggsMass())
    reconstruct_files(tmp_path / "photons.parquet", tmp_path / "out.parquet", model)
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert (set(found["status"]), set(found["n_photons"])) == ({"ok"}, {3})
    assert (set(found["H_y1_photon"]), set(found["H_y2_photon"])) == ({0}, {2})
    np.testing.assert_allclose(found["H_mass"], 125, rtol=1e-4)


def test_a_kind_with_a_record_of_its_own(tmp_path):
    """Large jets: read with their substructure, and matched within a larger distance of their particle."""
    register_kind(Kind("largejet", fields=("tau21",), match_radius=0.8))
    try:
        raw = {"name": "boosted", "event": ["H"], "particles": {"H": ["f"]}, "objects": {"f": "largejet"}}
        topology = parse_topology(raw)
        jets = {"pt": [[300.0]], "eta": [[0.6]], "phi": [[0.0]], "energy": [[400.0]], "tau21": [[0.3]]}
        columns = {f"largejet_{name}": values for name, values in jets.items()}
        ak.to_parquet(ak.Array(columns), tmp_path / "large.parquet")
        events = pairton.read(tmp_path / "large.parquet", topology=topology)
        assert events.objects["largejet"].tau21.tolist() == [[pytest.approx(0.3)]]
        assert match_slots(topology, events.objects, np.array([[0.0]]), np.array([[0.0]])).tolist() == [[0]]
    finally:
        del KINDS["largejet"]
