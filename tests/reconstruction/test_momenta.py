"""Momenta of particles with neutrinos, top or antitop, and the order of interchangeable particles."""

import awkward as ak
import numpy as np
import pytest

from event_files import write_events
from leptonic_tops import TOP, leptonic_events
from pairton.events.vectors import polar
from pairton.formats import read
from pairton.reconstruction.momenta import particle_momenta, signed_codes
from pairton.reconstruction.result import Reconstruction
from pairton.topology import load_topology, parse_topology
from pairton.topology.assignments import ranked


def answered(events, assignment=None):
    """A reconstruction that gives the truth."""
    n, topology = len(events), events.topology
    return Reconstruction(
        events,
        events.truth if assignment is None else np.asarray(assignment, dtype=np.int32),
        np.zeros(n, dtype=np.uint8),
        np.ones(n),
        np.ones((n, len(topology.particles))),
        np.ones(n, dtype=bool),
        {kind: events.counts[kind] for kind in topology.kinds},
    )


def test_a_leptonic_top_has_its_neutrino():
    events, neutrinos = leptonic_events(1)
    reco = answered(events)
    columns = reco.to_columns()
    real = columns["neutrino_solutions"] == 2
    assert set(columns["neutrino_solutions"]) <= {0, 2}
    assert real.mean() > 0.9  # masses of floats: a double root may become complex
    assert np.abs(columns["tl_mass"][real] - TOP).max() < 0.5
    assert np.abs(columns["tl_nu_pz"] - neutrinos[:, 0, 2])[real].max() < 1
    assert np.allclose(columns["tl_nu_pt"], np.hypot(*neutrinos[:, 0, :2].T), rtol=1e-4)
    other = columns["tl_nu_pz_other"]
    assert (np.abs(other - columns["tl_nu_pz"]) > 1).mean() > 0.5
    assert (other == columns["tl_nu_pz"])[~real].all()
    b, lepton = reco.object("tl.b"), reco.object("tl.l")
    assert np.allclose((b + lepton).mass, columns["tl_visible_mass"], rtol=1e-3)
    assert np.allclose(reco.tl.visible.mass[:, 0], columns["tl_visible_mass"], rtol=1e-5)
    assert np.allclose(reco.tl.neutrino.pz[:, 0], columns["tl_nu_pz"], rtol=1e-4, atol=1e-3)
    whole = reco.tl.visible[:, 0] + reco.tl.neutrino[:, 0]
    assert np.allclose(whole.mass, reco.tl.mass[:, 0], rtol=1e-5)
    both = reco.t[:, 0] + reco.tl[:, 0]
    assert np.allclose(both.mass, reco.tt.mass, rtol=1e-5)
    assert np.allclose(reco.tt.pt, columns["tt_pt"], rtol=1e-5)
    assert "tt" in dir(reco)


def test_two_leptonic_tops_have_their_neutrinos():
    events, neutrinos = leptonic_events(2)
    columns = answered(events).to_columns()
    solved = columns["neutrino_solutions"] > 0
    assert solved.mean() > 0.95
    found = particle_momenta(events, events.truth).neutrinos
    away = np.abs(found.p4[:, 1:, :, :3] - neutrinos[:, None, :, :3]).max(axis=(2, 3))
    assert (np.nanmin(away[solved], axis=1) < 2).mean() > 0.95  # one of the solutions is the truth
    met = neutrinos[:, :, :2].sum(axis=1)
    assert np.abs(found.p4[:, 1, :, :2].sum(axis=1) - met)[solved].max() < 0.1
    for k, name in enumerate(("tl1", "tl2")):
        # a mean over smeared measurements: the mass is near that of the top, but not exactly
        assert np.abs(np.median(columns[f"{name}_mass"][solved]) - TOP) < 8
        assert (columns[f"{name}_visible_mass"] < 160).all()
        assert np.allclose(columns[f"{name}_nu_pz"], found.used[:, k, 2], rtol=1e-4, atol=1e-2)
        assert np.allclose(columns[f"{name}_nu_pz_other"], found.p4[:, 1, k, 2], rtol=1e-4, atol=1e-2)


def test_without_missing_energy_or_an_answer_there_is_no_neutrino():
    events, _ = leptonic_events(1, 5)
    met = events.objects["met"]
    met = ak.concatenate([met[:1], met[1:2, :0], met[2:]])
    assignment = events.truth.copy()
    assignment[2] = -1
    assignment[3, 4] = -1  # no lepton
    assignment[4, 3] = -1  # no b
    reco = answered(events.replace(objects={**events.objects, "met": met}), assignment)
    columns = reco.to_columns()
    assert columns["neutrino_solutions"].tolist()[1:] == [-1, -1, -1, -1]
    for name in ("tl_mass", "tl_nu_pz", "tl_nu_pz_other", "tl_nu_eta", "tt_mass"):
        assert np.isfinite(columns[name]).tolist() == [True, False, False, False, False]
    assert np.isfinite(columns["tl_visible_mass"]).tolist() == [True, True, False, False, False]
    assert columns["tl_pdgid"].tolist() == [6, 6, 0, 0, 6]
    assert columns["t_pdgid"].tolist() == [-6, -6, 0, 0, -6]


def test_a_w_in_the_tree_gives_the_same_neutrino():
    tree = {
        "name": "explicit",
        "event": ["t", "tl"],
        "particles": {"t": ["W", "b"], "W": ["q", "q"], "tl": ["b", "Wl"], "Wl": ["l"]},
        "objects": {"l": "lepton"},
        "context": ["met"],
        "codes": {"tl": [6], "Wl": [24]},
        "invisible": {"Wl": ["l", "nu"]},
    }
    events, _ = leptonic_events(1)
    other, _ = leptonic_events(1, topology=parse_topology(tree))
    one, two = answered(events).to_columns(), answered(other).to_columns()
    assert np.array_equal(one["tl_nu_pz"], two["tl_Wl_nu_pz"])
    assert np.array_equal(one["tl_mass"], two["tl_mass"])
    assert np.array_equal(one["tl_visible_mass"], two["tl_visible_mass"])
    real = two["neutrino_solutions"] == 2
    assert np.abs(two["tl_Wl_mass"] - 80.37)[real].max() < 0.1
    assert two["tl_pdgid"].tolist() == one["tl_pdgid"].tolist()


def test_only_the_mass_of_a_w_takes_the_smaller_pz():
    tree = {"name": "w", "event": ["W", "j", "j", "j", "j"], "particles": {"W": ["l"]}, "objects": {"l": "lepton"}}
    topology = parse_topology({**tree, "context": ["met"], "invisible": {"W": ["l", "nu"]}})
    events, _ = leptonic_events(1)
    alone = events.replace(topology=topology, truth=events.truth[:, [4, 0, 1, 2, 3]])
    columns = answered(alone).to_columns()
    assert (np.abs(columns["W_nu_pz"]) <= np.abs(columns["W_nu_pz_other"])).all()
    assert set(columns["W_pdgid"].tolist()) == {24}


# -- top or antitop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leptonic", "charges", "codes"),
    [
        (1, [1], [-6, 6]),
        (1, [-1], [6, -6]),
        (1, [0], [0, 0]),
        (1, [np.nan], [0, 0]),
        (2, [-1, 1], [-6, 6]),
        (2, [1, 0], [6, -6]),
        (2, [1, 1], [0, 0]),  # of two positive leptons one is not from these tops
    ],
)
def test_the_charge_tells_top_from_antitop(leptonic, charges, codes):
    events, _ = leptonic_events(leptonic, 1)
    leptons = ak.with_field(events.objects["lepton"], ak.Array([charges]), "charge")
    events = events.replace(objects={**events.objects, "lepton": leptons})
    roots = [particle.index for particle in events.topology.roots]
    assert signed_codes(events, events.truth)[0, roots].tolist() == codes


def test_without_a_charge_the_code_tells_or_nothing():
    events, _ = leptonic_events(1, 3)
    leptons = ak.without_field(events.objects["lepton"], "charge")
    nothing = events.replace(objects={**events.objects, "lepton": leptons})
    assert not signed_codes(nothing, nothing.truth).any()
    coded = ak.with_field(leptons, ak.Array([[-13], [11], [0]]), "pdgid")
    events = events.replace(objects={**events.objects, "lepton": coded})
    assert answered(events).tl.pdgid[:, 0].tolist() == [6, -6, 0]


@pytest.mark.parametrize("suffix", [".h5", ".root", ".parquet"])
def test_charges_are_read_whatever_the_model_takes(suffix, tmp_path):
    events, _ = leptonic_events(1, 5)
    path = tmp_path / f"events{suffix}"
    write_events(events, path)
    found = read(str(path), fields={"jet": ["btag"], "lepton": [], "met": []})
    assert signed_codes(found, found.truth)[:, 2].tolist() == [6] * 5


def test_jets_alone_have_no_sign(decays):
    columns = answered(decays(5)).to_columns()
    assert not [name for name in columns if "pdgid" in name or "nu_" in name or "neutrino" in name]
    assert "tt_mass" in columns


# -- order -------------------------------------------------------------------------------------------------


def test_what_is_below_a_particle_goes_with_it():
    topology = parse_topology(
        {"name": "x", "event": ["X", "X"], "particles": {"X": ["Y", "Y"], "Y": ["j", "j"]}}
    )  # X1, X1.Y1, X1.Y2, X2, X2.Y1, X2.Y2
    values = np.array([[1.0, 5, 6, 2, 8, 7], [1, 5, 5, 1, 5, 5], [np.nan, np.nan, 3, 0, 2, 9]])
    slots, particles = ranked(topology, values)
    assert particles.tolist() == [[3, 4, 5, 0, 2, 1], [0, 1, 2, 3, 4, 5], [3, 5, 4, 0, 2, 1]]
    assert slots.tolist() == [[4, 5, 6, 7, 2, 3, 0, 1], [0, 1, 2, 3, 4, 5, 6, 7], [6, 7, 4, 5, 2, 3, 0, 1]]


def test_absent_particles_are_ordered_by_what_is_below_them():
    """t1, t1.W, t2, t2.W: of two lone W the harder one is first; a whole top comes before any of them."""
    nan = np.nan
    values = np.array([[nan, 60.0, nan, 90.0], [nan, 90, nan, 60], [nan, 500, 40, 30], [nan, nan, nan, 20]])
    _, particles = ranked(load_topology("ttbar_allhad"), values)
    assert particles.tolist() == [[2, 3, 0, 1], [0, 1, 2, 3], [2, 3, 0, 1], [2, 3, 0, 1]]


def test_particles_of_several_types_stay_apart():
    topology = load_topology("tth_allhad")
    falling = np.arange(len(topology.particles))[None].astype(float)
    slots, particles = ranked(topology, falling)
    assert particles.tolist() == [[2, 3, 0, 1, 4]]
    assert slots.tolist() == [[3, 4, 5, 0, 1, 2, 6, 7]]


def test_exchanged_particles_take_their_neutrinos_along():
    events, _ = leptonic_events(2, 40)
    found = particle_momenta(events, events.truth)
    slots, particles = ranked(events.topology, polar(found.p4)["pt"])
    again = particle_momenta(events, np.take_along_axis(events.truth, slots, axis=1))
    moved = found.exchanged(particles)
    assert 5 < (particles[:, 0] == 1).sum() < 35
    assert np.array_equal(moved.visible, again.visible)
    assert np.allclose(moved.p4, again.p4, rtol=1e-5, atol=1e-3, equal_nan=True)
    assert np.array_equal(moved.neutrinos.solutions, again.neutrinos.solutions)


def test_momenta_of_jets_are_their_sums(decays):
    events = decays(20)
    found = particle_momenta(events, events.truth)
    assert np.array_equal(found.p4, found.visible)
    top = events.jets[np.arange(20)[:, None], events.truth[:, :3]]
    assert np.allclose(polar(found.p4)["mass"][:, 0], ak.sum(top, axis=1).mass, rtol=1e-3)
    assert found.neutrinos.solutions.tolist() == [-1] * 20
