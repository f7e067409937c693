"""EDM4hep files in miniature, as podio writes them."""

import awkward as ak
import numpy as np
import pytest
import uproot

from pairton.errors import FormatError
from pairton.formats import detect, read
from pairton.topology import parse_topology
from root_files import write_tree

# e+ e- -> W W, the second W to a muon; copies of both W, and of the first quark, which radiates
CODE = [11, -11, -24, 24, -24, 24, 3, -4, 13, -14, 3, 21]
PARENTS = [[], [], [0, 1], [0, 1], [2], [3], [4], [4], [5], [5], [6], [6]]
STATUS = [4, 4, 22, 22, 44, 44, 23, 23, 1, 1, 51, 51]
# eta and phi; the quark goes elsewhere after it radiated
DIRECTION = [(0, 0)] * 6 + [(0.5, 1.0), (-1.0, 3.0), (0.0, -2.0), (2.0, 0.0), (1.5, 1.0), (0.0, 1.5)]
JETS = [(50.0, 0.5, 1.1), (40.0, -1.0, -3.1), (30.0, 1.5, 1.0)]  # the last one is after the radiation
SEMILEP = {
    "name": "ww",
    "event": ["W", "Wl"],
    "particles": {"W": ["q", "q"], "Wl": ["l"]},
    "objects": {"l": "muon"},
    "codes": {"Wl": [24]},
}


def momenta(prefix, rows):
    pt, eta, phi = (np.array(values, dtype=np.float64) for values in zip(*rows, strict=True))
    energy = np.hypot(pt * np.cosh(eta), 5.0)
    found = {"x": pt * np.cos(phi), "y": pt * np.sin(phi), "z": pt * np.sinh(eta)}
    columns = {f"{prefix}.momentum.{axis}": [values.tolist()] for axis, values in found.items()}
    return columns | {f"{prefix}.energy": [energy.tolist()], f"{prefix}.charge": [np.sign(eta).tolist()]}


def write(path, **changed):
    ends = np.cumsum([len(up) for up in PARENTS])
    columns = momenta("Jet", JETS)
    columns |= momenta("ReconstructedParticles", [(9.0, 0.0, 0.0), (35.0, 0.1, -2.0)])
    columns |= momenta("Particle", [(40.0, *direction) for direction in DIRECTION])
    columns |= {"Particle.PDG": [CODE], "Particle.generatorStatus": [STATUS], "Muon_objIdx.index": [[1]]}
    columns |= {
        "Particle.parents_begin": [(ends - [len(up) for up in PARENTS]).tolist()],
        "Particle.parents_end": [ends.tolist()],
        "_Particle_parents.index": [[up for each in PARENTS for up in each]],
        # identifiers of two particles without parameters, then of two jets with two parameters each
        "ParticleIDs.parameters_begin": [[0, 0, 0, 2]],
        "ParticleIDs.parameters_end": [[0, 0, 2, 4]],
        "_ParticleIDs_parameters": [[2.0, 7.0, 1.0, 7.0]],
        "_ParticleIDs_particle.index": [[0, 1, 2, 0]],
        "Muon_IsolationVar": [[0.3]],
        "EventHeader.eventNumber": [[17]],
        "EventHeader.weight": [[0.5]],
    }
    content = {name: ak.Array(values) for name, values in (columns | changed).items() if values is not None}
    return write_tree(path, "events", content)


def test_jets_leptons_tags_and_truth(tmp_path):
    path = write(tmp_path / "a.root")
    assert detect(str(path)).name == "edm4hep"
    events = read(path, topology="ww_allhad")
    for name, values in zip(("pt", "eta", "phi"), zip(*JETS, strict=True), strict=True):
        np.testing.assert_allclose(events.jets[name][0], values, rtol=1e-6)
    np.testing.assert_allclose(events.jets.mass[0], [5, 5, 5], rtol=1e-4)
    assert events.jets.btag.tolist() == [[1, 0, 0]]
    assert read(path, topology="ww_allhad", btag="1").jets.btag.tolist() == [[0, 0, 1]]
    assert events.weights.tolist() == [0.5]
    assert events.columns["event"].tolist() == [17]
    assert events.truth.tolist() == [[-1, -1, 0, 1]]  # W- is the second W; the first has no quarks


@pytest.mark.parametrize(("truth", "expected"), [("hard", [0, 1, 0]), ("last", [2, 1, 0])])
def test_truth_before_and_after_radiation(tmp_path, truth, expected):
    topology = parse_topology(SEMILEP, "test")
    events = read(
        write(tmp_path / "a.root"),
        topology=topology,
        settings={"truth": truth, "overlap": "none", "muon_id": "none"},
    )
    assert events.objects["muon"].pt[0].tolist() == [pytest.approx(35)]
    assert events.truth.tolist() == [expected]


def test_what_a_file_lacks(tmp_path):
    plain = write(tmp_path / "b.root", **dict.fromkeys(["_ParticleIDs_parameters", "Particle.PDG"]))
    events = read(plain, topology="ww_allhad")
    assert events.truth is None
    assert events.metadata["btag"] == "none"
    with pytest.raises(FormatError, match=r"lacks Jet\.tag"):
        read(plain, topology="ww_allhad", btag="0")
    with pytest.raises(FormatError, match=r"lacks Jet\.Jet"):
        read(write(tmp_path / "c.root"), topology="ww_allhad", btag="Jet:0")
    both = write(tmp_path / "d.root", **{"Electron_objIdx.index": [[0]], "MissingET.momentum.x": [[3.0]]})
    own = {"electron_id": "none", "muon_id": "none", "overlap": "none"}
    with pytest.raises(FormatError, match=r"no column for pt \(MissingET\.pt\)"):
        read(both, topology="ttbar_semilep", settings=own)


def test_the_sample_agrees_with_loops_over_its_particles(sample):
    """Ten events of e+ e- -> W W at 240 GeV: the quarks of each W, without arrays of ours."""
    path = sample("edm4hep_ww.root")
    events = read(path, topology="ww_allhad", settings={"overlap": "none"})
    assert (len(events), int(events.n_jets.sum())) == (10, 26)
    raw = uproot.open(path)["events"].arrays(
        ["Particle.PDG", "Particle.parents_begin", "_Particle_parents.index", "Particle.parents_end"]
        + [f"Particle.momentum.{axis}" for axis in "xyz"],
        library="np",
    )
    labelled = 0
    for row in range(10):
        event = {name: values[row] for name, values in raw.items()}
        code = event["Particle.PDG"]
        hadronic = {24: [], -24: []}
        for k in range(len(code)):
            if event["Particle.parents_begin"][k] == event["Particle.parents_end"][k] or abs(code[k]) > 5:
                continue
            mother = event["_Particle_parents.index"][event["Particle.parents_begin"][k]]
            if abs(code[mother]) == 24:
                x, y, z = (event[f"Particle.momentum.{axis}"][k] for axis in "xyz")
                hadronic[int(code[mother])].append((np.arcsinh(z / np.hypot(x, y)), np.arctan2(y, x)))
        for first, quarks in zip((0, 2), (hadronic[24], hadronic[-24]), strict=True):
            for label in events.truth[row, first : first + 2]:
                if label >= 0:
                    eta, phi = events.jets.eta[row, label], events.jets.phi[row, label]
                    near = [np.hypot(eta - a, (phi - b + np.pi) % (2 * np.pi) - np.pi) for a, b in quarks]
                    assert min(near) < 0.4
                    labelled += 1
    assert labelled == 16
