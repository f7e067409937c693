"""The kinematic fit as a model: commands, columns, statuses; the same answer whatever the chunks."""

import json
import pickle
import warnings

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest

import pairton
from pairton.cli import main
from pairton.errors import ConfigError, EventsError, ModelError, PairtonWarning, TopologyError
from pairton.events import Status
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.events.vectors import cartesian, polar
from pairton.formats import create
from pairton.kinematics.fit_settings import parse_settings
from pairton.kinematics.fitting import KinematicFit
from pairton.kinematics.observed import observe
from pairton.kinematics.starts import fit as best_fit
from pairton.topology import load_topology
from pairton.topology.assignments import canonical

MOMENTUM = ("pt", "eta", "phi", "energy")
SHARP = """
transfer:
  b: [{a: 0.01, b: 0.05}]
  light: [{a: 0.01, b: 0.05}]
  lepton: [{a: 0.001}]
  met: {c: 1}
"""


@pytest.fixture(scope="module")
def sharp(tmp_path_factory):
    """Settings for events without a detector."""
    path = tmp_path_factory.mktemp("kinematic") / "sharp.yaml"
    path.write_text(SHARP)
    return path


def written(events, path, rows=None):
    """The events as a file of Pairton's layout, in pieces of some rows."""
    with create(path, events.topology, {"generator": {"card": "none"}}) as writer:
        for start in range(0, len(events), rows or len(events)):
            writer.write(events[start : start + (rows or len(events))])
    return path


@pytest.mark.parametrize("kinds", ["hh", "hl", "ll", "hhH", "hlH"])
def test_every_topology_is_reconstructed_with_fitted_momenta(tops, sharp, kinds):
    events, _ = tops(kinds, n=10)
    reco = pairton.reconstruct(events, model=str(sharp), jets="none", leptons="none")
    topology, columns = events.topology, reco.to_columns()
    right = (canonical(topology, reco.assignment) == canonical(topology, events.truth)).all(axis=1)
    assert right.mean() > 0.7
    assert np.isfinite(columns["log_likelihood"]).all()
    assert (columns["event_probability"] > 0).all()
    for particle in topology.particles:  # without a detector the fit moves little, whichever top is the first
        name = particle.name.replace(".", "_")
        if kinds != "ll" or not topology.neutrinos:
            close = np.abs(columns[f"{name}_fitted_pt"] / columns[f"{name}_pt"] - 1) < 0.1
            assert close[right].mean() > 0.7
    for root in topology.roots:
        mass = 125 if root.type == "H" else 172.5
        assert np.median(np.abs(columns[f"{root.name}_fitted_mass"][right] - mass)) < 1
    for slot in topology.slots:
        energy = reco.object(slot.name).energy
        assert columns[f"{slot.name.replace('.', '_')}_fitted_energy"] == pytest.approx(energy, rel=0.2)


def test_fitted_columns_belong_together(tops):
    """The momentum of every particle is the sum of its fitted objects and neutrinos, after all reordering."""
    events, _ = tops("ll", n=10, smear=0.1)
    reco = pairton.reconstruct(events, model="kinematic", jets="none", leptons="none")
    columns = reco.to_columns()
    swapped = 0
    for particle in events.topology.roots:
        total = np.zeros((len(events), 4))
        for slot in particle.slots:
            name = events.topology.slots[slot].name
            seen = reco.object(name)
            energy = columns[f"{name.replace('.', '_')}_fitted_energy"].astype(float)
            momentum = np.sqrt(energy**2 - (4.7**2 if name.endswith("b") else 0)) / np.cosh(seen.eta)
            total += cartesian(momentum, seen.eta, seen.phi, energy)
        nu = np.stack([columns[f"{particle.name}_nu_fitted_{axis}"] for axis in ("px", "py", "pz")], axis=1)
        total += np.concatenate([nu, np.linalg.norm(nu, axis=1, keepdims=True)], axis=1)
        found = polar(total[:, None])
        assert found["mass"][:, 0] == pytest.approx(columns[f"{particle.name}_fitted_mass"], rel=1e-3)
        assert found["pt"][:, 0] == pytest.approx(columns[f"{particle.name}_fitted_pt"], rel=1e-3, abs=0.1)
        first = canonical(events.topology, reco.assignment)[:, particle.slots[0]]
        swapped += (first != reco.assignment[:, particle.slots[0]]).sum()
    assert swapped  # else nothing was reordered in this test


def test_chunks_threads_and_processes_change_nothing(tops, tmp_path, capsys):
    events, _ = tops("hl", n=16, smear=0.1)
    source = str(written(events, tmp_path / "events.h5"))
    how = ["--model", "kinematic", "--jets", "none", "--leptons", "none"]
    for name, more in {"a": [], "b": ["--threads", "1"]}.items():
        main_of(["reconstruct", source, "-o", str(tmp_path / f"{name}.parquet"), *how, *more])
    one, other = (pq.read_table(tmp_path / f"{name}.parquet") for name in "ab")
    assert one.equals(other)
    assert {"log_likelihood", "t_fitted_mass", "tl_nu_fitted_pz", "tl_l_fitted_energy"} <= set(one.column_names)
    said = json.loads(pq.read_metadata(tmp_path / "a.parquet").metadata[b"pairton_reconstruction"])
    assert said["decoding"] == "kinematic"
    assert said["model"]["files"].keys() == {"kinematic.yaml"}
    assert "16 events (7 ok, 9 outside_domain)" in capsys.readouterr().out
    model = pairton.load_model("kinematic", topology="ttbar_semilep")
    again = pairton.reconstruct(events, model=pickle.loads(pickle.dumps(model)), jets="none", leptons="none")
    assert again.outputs["log_likelihood"].tolist() == one["log_likelihood"].to_pylist()


def main_of(arguments):
    """Run a command to its end."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code in (0, None), arguments


def test_the_detector_of_the_generator_is_not_assumed_in_silence(tops, sharp, tmp_path):
    events, _ = tops("hl", n=4)
    with pytest.warns(PairtonWarning, match="describe the detector of Pairton's generator.*`pairton measure"):
        pairton.reconstruct(events, model="kinematic", jets="none", leptons="none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the tagger is unknown")
        pairton.reconstruct(events, model=str(sharp), jets="none", leptons="none")
        generated = pairton.read(written(events, tmp_path / "events.h5"))
        pairton.reconstruct(generated, model="kinematic", jets="none", leptons="none")


def test_the_baseline_is_the_model(tops, tmp_path, capsys):
    events, _ = tops("hl", n=20, smear=0.1)
    source = str(written(events, tmp_path / "events.h5"))
    both = ["--model", "kinematic", "--baseline", "kinematic"]
    main_of(["evaluate", source, *both, "--json", "-"])
    methods = json.loads(capsys.readouterr().out)["methods"]
    both = [methods[name]["efficiency"]["event"]["inclusive"] for name in ("kinematic", "kinematic#2")]
    assert both[0]["value"] > 0.3
    assert methods["kinematic#2"]["method"]["baseline"] == "kinematic"
    assert both[0] == both[1]


def test_events_that_cannot_be_fitted_have_a_status(tops, tmp_path):
    events, _ = tops("hl", n=6)
    jets = events.jets
    pt = ak.to_list(jets.pt)
    pt[1][0] = float("nan")
    fewer = ak.Array([[True, True, True, False]] + [[True] * 4] * 5)
    jets = ak.with_field(jets, ak.Array(pt), "pt")[fewer]
    met = events.objects["met"][ak.Array([[True], [True], [False], [True], [True], [True]])]
    strict = tmp_path / "strict.yaml"
    strict.write_text("tags: {efficiency: 1.0, rejection: 100}")
    tags = ak.Array([[1] * 3, [1] * 4, [1] * 4, [0] * 4, [1] * 4, [1, 1, 1, 0]])
    objects = {**events.objects, "jet": ak.with_field(jets, tags, "btag"), "met": met}
    changed = events.replace(objects=objects, truth=None)
    reco = pairton.reconstruct(changed, model=str(strict), jets="none", leptons="none")
    expected = [Status.TOO_FEW_OBJECTS, Status.BAD_OBJECT, Status.BAD_OUTPUT, Status.BAD_OUTPUT]
    assert reco.status[:4].tolist() == expected
    for name in ("log_likelihood", "t_fitted_pt", "event_probability"):
        column = reco.to_columns()[name]
        assert np.isnan(column[:4]).all()
        assert np.isfinite(column[4:]).all()
    assert (reco.assignment[:4] == -1).all()
    assert (reco.assignment[4:] >= 0).all()


@pytest.mark.parametrize("kinds", ["hh", "hl", "ll", "hlH"])
def test_several_starts_are_never_below_that_of_klfitter(tops, kinds):
    """From any permutation of any event, with free and with fixed masses."""
    events, _ = tops(kinds, n=6, smear=0.3)
    free = {"masses": {6: {"mass": 172.5, "width": 1.5, "free": True}}}
    gains = []
    for settings in (parse_settings({}, "test"), parse_settings(free, "test")):
        fit = KinematicFit(events.topology, settings)
        accepted = accept(events, Domain(), fit.inputs)
        ((layout, rows),) = accepted.by_layout(accepted.answerable)
        nodes = accepted.batch(rows, layout)
        slots = accepted.to_nodes(events.truth[rows], rows, layout)
        objects = np.stack([slots, np.roll(slots, 1, axis=1)]) if kinds == "hh" else slots[None]
        problem = observe(nodes, fit.inputs, settings).problem(fit.whole, settings, objects.transpose(0, 2, 1))
        (_, one), (_, several) = best_fit(problem, False), best_fit(problem, True)
        assert (several >= one).all()
        gains += (several - one).tolist()
    assert max(gains) > 0.01


def test_what_cannot_be_is_one_line(tops, tmp_path, capsys):
    events, _ = tops("hl", n=3)
    with pytest.raises(ConfigError, match="takes the decoding kinematic only"):
        pairton.reconstruct(events, model="kinematic", decoding="exact")
    with pytest.raises(ConfigError, match="no network that torch"):
        pairton.load_model("kinematic", engine="torch")
    with pytest.raises(ConfigError, match="no decoding 'kinematic'"):
        pairton.reconstruct(tops("hh", n=3)[0], decoding="kinematic")
    with pytest.raises(ModelError, match="needs the mass of X"):
        pairton.load_model("kinematic", topology=topology_of_x())
    with pytest.raises(ModelError, match="for ttbar_allhad, but the events are for ttbar_semilep"):
        pairton.reconstruct(events, model=pairton.load_model("kinematic"))
    with pytest.raises((ConfigError, EventsError, TopologyError)):
        pairton.load_model(tmp_path / "absent.yaml")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("transfer: {b: 3}")
    with pytest.raises(SystemExit) as end:
        main(["reconstruct", str(written(events, tmp_path / "e.h5")), "--model", str(wrong)])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "transfer" in said


def topology_of_x():
    """Of a particle that nobody knows."""
    from pairton.topology import parse_topology

    return parse_topology({"name": "x", "event": ["X"], "particles": {"X": ["j", "j"]}})


def test_an_event_is_drawn(tops, tmp_path):
    events, _ = tops("hl", n=2)
    source, page = written(events, tmp_path / "e.h5"), tmp_path / "event.html"
    main_of(["display", str(source), "--model", "kinematic", "--event", "1", "-o", str(page)])
    assert "kinematic" in page.read_text()
    assert load_topology("ttbar_semilep").name in page.read_text()
