"""Leptons and missing energy of the generator, on hand-made records and through Pythia."""

import awkward as ak
import numpy as np
import pytest
from msgspec.structs import replace

from event_files import write_events
from pairton import formats
from pairton.errors import ConfigError
from pairton.events import Events
from pairton.events.vectors import polar
from pairton.generator.card import load_card
from pairton.generator.leptons import MeasuredLeptons, find_leptons, near_jets, prompt
from pairton.generator.production import produce, run_chunk
from pairton.generator.pythia import PythiaRun, flatten, load_processes
from pairton.generator.settings import make_settings
from pairton.generator.simulation import measure, slot_entries, true_neutrinos
from pairton.reconstruction.momenta import particle_momenta
from pairton.topology import load_topology
from pythia_records import make_record

pytest.importorskip("pythia8mc")
pytest.importorskip("fastjet")


def record(rows):
    """One event, from (code, status, mother, px, py, pz)."""
    return make_record([(0, *row) for row in rows])


def charge(code):
    return {11: -1.0, 13: -1.0, -11: 1.0, -13: 1.0, 211: 1.0}.get(code, 0.0)


@pytest.fixture(scope="module")
def card():
    return load_card("atlas")


def test_leptons_are_prompt_through_copies_and_taus_only():
    rows = [
        (24, -22, -1, 0, 0, 0),
        (-11, -23, 0, 0, 0, 0),
        (-11, -51, 1, 0, 0, 0),
        (-11, 1, 2, 50, 0, 0),  # 3: the electron, after radiation
        (22, -51, 2, 0, 0, 0),
        (11, 51, 4, 5, 0, 0),  # 5: from its photon
        (-24, -22, -1, 0, 0, 0),
        (15, -23, 6, 0, 0, 0),
        (13, 91, 7, 0, 30, 0),  # 8: from a tau of the hard process
        (5, -23, -1, 0, 0, 0),
        (511, -83, 9, 0, 0, 0),
        (13, 91, 10, 0, 0, 9),  # 11: from a B
        (15, -91, 10, 0, 0, 0),
        (13, 91, 12, 0, 0, 9),  # 13: from a tau of a B
        (211, 83, 9, 0, 0, 9),
    ]
    stable = np.flatnonzero(np.array([row[1] for row in rows]) > 0)
    assert stable[prompt(record(rows))].tolist() == [3, 8]


def test_the_lepton_of_a_tau_is_that_of_its_top():
    rows = [
        (6, -22, -1, 0, 0, 0),
        (-6, -22, -1, 0, 0, 0),
        (24, -22, 0, 0, 0, 0),
        (5, -23, 0, 1, 0, 0),  # 3
        (-24, -22, 1, 0, 0, 0),
        (-5, -23, 1, 2, 0, 0),  # 5
        (2, -23, 2, 3, 0, 0),  # 6
        (-1, -23, 2, 4, 0, 0),  # 7
        (15, -23, 4, 0, 0, 0),
        (-16, 23, 4, 0, 0, 0),
        (15, -51, 8, 0, 0, 0),
        (13, -91, 10, 0, 30, 0),  # 11
        (13, 51, 11, 0, 30, 0),
        (-11, 91, 5, 0, 30, 0),  # from the b
    ]
    assert slot_entries(record(rows), load_topology("ttbar_semilep")).tolist() == [[6, 7, 3, 5, 11]]


def shot(n, code, pt, eta):
    """n events with one lepton each."""
    return make_record([(k, code, 23, -1, pt, 0, pt * np.sinh(eta)) for k in range(n)]).stable(charge)


@pytest.mark.parametrize("code", [11, -13])
def test_efficiency_and_resolution_are_those_of_the_card(card, code):
    n = 40_000
    particles = shot(n, code, 40.0, 1.0)
    found, gone = find_leptons(particles, np.ones(n, bool), card.leptons, np.random.default_rng(1))
    assert len(found.event) / n == pytest.approx(0.9, abs=0.006)
    assert (found.pt / 40).mean() == pytest.approx(1.0, abs=0.001)
    assert (found.pt / 40).std() == pytest.approx(0.02, rel=0.03)
    assert np.arcsinh(found.pz / found.pt) == pytest.approx(1.0)
    assert set(found.charge) == {charge(code)}
    assert set(found.flavour) == {abs(code)}
    assert gone.mean() == pytest.approx(1.0 if abs(code) == 13 else 0.9, abs=0.006)  # a missed muon is lost


@pytest.mark.parametrize(("pt", "eta"), [(9.0, 0.0), (40.0, 2.6)])
def test_leptons_beyond_the_card_are_left_to_the_jets(card, pt, eta):
    found, gone = find_leptons(shot(50, 13, pt, eta), np.ones(50, bool), card.leptons, np.random.default_rng(1))
    assert not len(found.event)
    assert not gone.any()


def test_a_lepton_near_a_jet_is_part_of_it(card):
    """Alone the electron is an object and no jet; with a pion at 0.3 both are one jet; momentum is conserved."""
    sure = replace(card, leptons=replace(card.leptons, efficiency=1.0, resolution=1e-9))
    electron = (11, 23, -1, 50.0, 0.0, 0.0)
    near, far = ((211, 83, -1, 60 * np.cos(phi), 60 * np.sin(phi), 0.0) for phi in (0.3, 2.0))
    apart = measure(record([electron, far]), charge, sure, np.random.default_rng(3))
    assert apart["lepton"].flavour.tolist() == [[11]]
    assert apart["electron"].charge.tolist() == [[-1]]
    assert ak.num(apart["muon"]).tolist() == [0]
    assert ak.num(apart["jet"]).tolist() == [1]
    assert abs(apart["jet"].phi[0, 0] - 2.0) < 0.2
    merged = measure(record([electron, near]), charge, sure, np.random.default_rng(3))
    assert ak.num(merged["lepton"]).tolist() == [0]
    assert ak.num(merged["jet"]).tolist() == [1]
    assert merged["jet"].pt[0, 0] > 80
    assert merged["met"].pt[0, 0] == pytest.approx(merged["jet"].pt[0, 0], rel=1e-3)  # which balances it


def test_jets_are_looked_for_in_the_leptons_own_event():
    zeros, ones = np.zeros(2), np.ones(2)
    leptons = MeasuredLeptons(np.array([0, 2]), ones, zeros, zeros, ones, ones, np.array([11, 11]))
    jets = ak.zip({"eta": [[1.0], [0.0], [2.0, 0.1]], "phi": [[0.0], [0.0], [0.0, 0.1]]})
    assert near_jets(leptons, jets, 0.4).tolist() == [False, True]


# -- through Pythia ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made():
    names = {"ttbar_semilep": 500, "ttbar_dilep": 250, "tth_semilep": 250}
    return {name: run_chunk(make_settings(name, n, seed=4, keep="all"), 0, n)[0] for name, n in names.items()}


def test_charge_is_conserved_and_one_w_is_leptonic():
    run = PythiaRun(load_processes().lines(load_topology("ttbar_semilep"), False), 7)
    rows = flatten(next(run.batches(60, 60)))
    stable = rows.stable(run.charge)
    assert np.bincount(stable.event, stable.charge) == pytest.approx(2.0)  # two protons
    code, hard = np.abs(rows.code), np.abs(rows.status) == 23
    leptons = hard & ((code == 11) | (code == 13))
    assert np.bincount(rows.event[leptons], minlength=60).tolist() == [1] * 60
    assert not np.any(hard & (code == 15))
    assert 10 < (rows.code[leptons] > 0).sum() < 50  # both charges
    assert 10 < (code[leptons] == 11).sum() < 50
    assert run.tried(60) == 60  # decays that are drawn anew are no events


def test_impossible_numbers_of_leptons_end_in_an_error(monkeypatch):
    monkeypatch.setattr("pairton.generator.pythia.MOST_DECAYS", 20)
    lines = ("24:onMode = off", "24:onIfAny = 1 2 3 4 5")
    with pytest.raises(ConfigError, match="as many leptonic W decays as"):
        run_chunk(make_settings("ttbar_semilep", 5, pythia=lines).with_sizes(5, 5), 0, 5)


def test_truth_follows_the_decay_mode(made):
    """Masses of what the slots of t and tl were matched to."""
    events = made["ttbar_semilep"]
    mass = polar(particle_momenta(events, events.truth).visible)["mass"]
    found = {p.name: mass[:, p.index][events.present[:, p.index]] for p in events.topology.particles}
    assert all(len(values) > 100 for values in found.values())
    assert 72 < np.median(found["t.W"]) < 88
    assert 155 < np.median(found["t"]) < 180
    assert np.mean(found["tl"] < 160) > 0.93  # 153 GeV before the detector
    assert 80 < np.median(found["tl"]) < 120


@pytest.mark.parametrize("name", ["ttbar_semilep", "ttbar_dilep", "tth_semilep"])
def test_slots_are_filled_and_leptons_isolated(made, name):
    events = made[name]
    filled = {s.name: (events.truth[:, s.index] >= 0).mean() for s in events.topology.slots}
    assert min(filled.values()) > 0.5, filled
    assert 0.5 < filled["tl.l" if "tl.l" in filled else "tl1.l"] < 0.9
    pairs = ak.cartesian({"l": events.objects["lepton"], "j": events.jets})
    dphi = np.abs(pairs.l.phi - pairs.j.phi)
    distance = np.hypot(pairs.l.eta - pairs.j.eta, np.minimum(dphi, 2 * np.pi - dphi))
    assert ak.min(distance) > 0.3999
    assert ak.num(events.objects["met"]).tolist() == [1] * len(events)


def test_the_first_of_two_leptonic_tops_is_the_top(made):
    events = made["ttbar_dilep"]
    charges = ak.fill_none(ak.pad_none(events.objects["lepton"].charge, 2), 0).to_numpy()
    for slot, sign in (("tl1.l", 1), ("tl2.l", -1)):
        truth = events.truth[:, events.topology.slot_index(slot)]
        assert np.all(charges[truth >= 0, truth[truth >= 0]] == sign)


def test_true_neutrinos_are_those_of_their_top():
    rows = [
        (6, -22, -1, 0, 0, 0),
        (-6, -22, -1, 0, 0, 0),
        (6, -62, 0, 8, 9, 12),  # 2: after radiation
        (-6, -62, 1, 3, 4, 0),  # 3
        (24, -22, 2, 0, 0, 0),
        (5, -23, 2, 1, 0, 0),
        (-24, -22, 3, 0, 0, 0),
        (-5, -23, 3, 2, 0, 0),
        (14, 23, 6, 1, 2, 3),  # 8: a muon antineutrino
        (13, 23, 6, 30, 0, 0),
        (15, -23, 4, 20, 0, 0),  # 10
        (16, 23, 4, 4, 5, 6),
        (16, 91, 10, 7, 7, 7),  # from the tau
        (-13, 91, 10, 9, 0, 0),
    ]
    one, topology = record(rows), load_topology("ttbar_dilep")
    columns = true_neutrinos(one, topology, slot_entries(one, topology))
    assert [columns[f"tl1_neutrino_{name}"][0] for name in ("px", "py", "pz")] == [4, 5, 6]
    assert [columns[f"tl2_neutrino_{name}"][0] for name in ("px", "py", "pz")] == [1, 2, 3]
    assert [columns[f"neutrino_{name}"][0] for name in ("px", "py", "pz")] == [5, 7, 9]
    assert [columns[f"tl{k}_true_pt"][0] for k in (1, 2)] == pytest.approx([np.hypot(8, 9), 5])
    total = np.array([getattr(one, name)[[2, 3]].sum() for name in ("energy", "px", "py", "pz")])
    assert columns["tt_true_mass"][0] == pytest.approx(np.sqrt(total[0] ** 2 - (total[1:] ** 2).sum()))


def test_missing_energy_follows_the_neutrino(made):
    events = made["ttbar_semilep"]
    met = events.objects["met"][:, 0]
    px, py = (met.pt * f(met.phi) for f in (np.cos, np.sin))
    off = np.asarray(px) - events.columns["neutrino_px"], np.asarray(py) - events.columns["neutrino_py"]
    heard = ak.num(events.objects["lepton"]).to_numpy() == 1
    assert abs(np.median(off, axis=1)).max() < 4
    assert 14 < np.median(np.hypot(*off)[heard]) < 27  # GeV; 20 in a large sample
    assert np.corrcoef(events.columns["neutrino_px"][heard], px.to_numpy()[heard])[0, 1] > 0.8


def test_jets_beyond_the_selection_are_stored(made):
    jets = made["ttbar_semilep"].jets
    assert 20 < ak.min(jets.pt) < 21
    assert 4 < ak.max(abs(jets.eta)) < 4.5
    assert ak.all(jets.btag[abs(jets.eta) > 2.5] == 0)


def test_matched_objects_have_the_energy_of_their_parton(made):
    events = made["ttbar_semilep"]
    jets, leptons = events.jets, events.objects["lepton"]
    matched = [(events.truth[:, s.index] >= 0).sum() for s in events.topology.slots if s.kind == "jet"]
    assert ak.sum(jets.true_energy > 0) == sum(matched)  # no jet belongs to two quarks
    rows = np.flatnonzero(events.truth[:, 4] >= 0)
    true = leptons.true_energy[rows, events.truth[rows, 4]].to_numpy()
    assert leptons.energy[rows, events.truth[rows, 4]].to_numpy() / true == pytest.approx(1, abs=0.5)
    rows = np.flatnonzero((events.truth[:, :4] >= 0).all(axis=1))
    of_w = [jets[rows, events.truth[rows, slot]] for slot in (0, 1)]
    ratio = np.concatenate([(jet.energy / jet.true_energy).to_numpy() for jet in of_w])
    assert abs(np.median(ratio) - 1) < 0.1


def test_every_format_keeps_all_kinds_and_fields(tmp_path):
    settings = make_settings("ttbar_semilep", 12, seed=2, keep="all").with_sizes(6, 6)
    assert produce(settings, tmp_path / "out.h5").kept == 12
    same = Events.concatenate([run_chunk(settings, k, 6)[0] for k in range(2)])
    write_events(same, tmp_path / "out.root")
    write_events(same, tmp_path / "out.parquet")
    for suffix in (".h5", ".root", ".parquet"):
        check_same(formats.read(tmp_path / f"out{suffix}", topology="ttbar_semilep"), same)


def check_same(back, same):
    assert back.truth.tolist() == same.truth.tolist()
    momenta = {f"{name}neutrino_p{axis}" for name in ("", "tl_") for axis in "xyz"}
    assert set(back.columns) == {*momenta, "t_true_pt", "tl_true_pt", "tt_true_mass"}
    assert {"btag", "score", "tagbin", "flavour"} <= set(ak.fields(back.jets))
    assert {"charge", "flavour"} <= set(ak.fields(back.objects["lepton"]))
    for kind, objects in same.objects.items():
        for name in ak.fields(objects):
            mine, theirs = (np.asarray(ak.flatten(e.objects[kind][name])) for e in (same, back))
            assert theirs == pytest.approx(mine, rel=1e-5), (kind, name)
