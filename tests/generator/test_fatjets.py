"""Large jets of the generator: clustering, grooming, taggers, and the truth of merged particles."""

from dataclasses import replace

import awkward as ak
import numpy as np
import pytest
from msgspec.structs import replace as changed

from pairton.errors import ConfigError
from pairton.generator.card import load_card
from pairton.generator.detector import Momenta
from pairton.generator.fatjets import CLASSES, CODES, classes, find_fatjets, scores
from pairton.generator.pythia import PythiaRun, Record, flatten, load_processes
from pairton.generator.simulation import simulate, slot_entries
from pairton.topology import load_topology

pytest.importorskip("pythia8mc")
pytest.importorskip("fastjet")

CARD = load_card("atlas")
HARD = ("PhaseSpace:pTHatMin = 600.", "35:mMin = 1500.")  # most particles are merged


def hard_collisions(name, n=60):
    topology = load_topology(name)
    further = HARD[:1] if "top" in name else HARD[1:]
    run = PythiaRun(load_processes().lines(topology, False, further), 11)
    return flatten(next(run.batches(n, n))), run.charge, topology


@pytest.fixture(scope="module")
def tops():
    return hard_collisions("ttbar_allhad_boosted")


def simulated(collisions, card=CARD, seed=2, **change):
    record, charge, topology = collisions
    return simulate(record, charge, replace(topology, **change), card, np.random.default_rng(seed))


def test_hard_tops_are_large_jets_of_the_mass_of_a_top(tops):
    events = simulated(tops)
    merged = [particle.merged_slot for particle in events.topology.roots]
    truth = events.truth[:, merged]
    assert (truth >= 0).mean() > 0.5
    large = events.objects["fatjet"]
    rows, column = np.nonzero(truth >= 0)
    at = ak.Array(truth[rows, column])[:, None]
    matched = large[rows][ak.local_index(large.pt[rows]) == at]
    value = {name: np.asarray(ak.flatten(matched[name])) for name in ak.fields(large)}
    assert (value["flavour"] == 6).all()
    assert 150 < np.median(value["msoftdrop"]) < 190
    mass = np.sqrt(value["energy"] ** 2 - (value["pt"] * np.cosh(value["eta"])) ** 2)
    assert (value["msoftdrop"] <= mass * (1 + 1e-3)).all()
    assert np.median(value["true_energy"] / value["energy"]) == pytest.approx(1, abs=0.08)
    assert (value["tau32"] >= 0).all()
    assert (value["tau32"] <= 1.2).all()
    particle = events.topology.roots[column[0]]
    inside = [slot for slot in particle.span if slot != particle.merged_slot]
    assert (events.truth[rows[0], inside] == -1).all()  # also no jet that fails the cuts


def test_large_jets_change_nothing_else(tops):
    record, charge, topology = tops
    plain = simulate(record, charge, load_topology("ttbar_allhad"), CARD, np.random.default_rng(2))
    events = simulated(tops)
    for name in ("pt", "eta", "btag", "score"):
        assert ak.all(plain.jets[name] == events.jets[name])
    assert (slot_entries(record, topology)[:, [s.index for s in topology.slots if s.merged]] == -1).all()


def test_the_card_says_how_large(tops):
    small = changed(CARD, fatjets=changed(CARD.fatjets, radius=0.8, pt=400.0))
    wide, narrow = (simulated(tops, card).objects["fatjet"] for card in (CARD, small))
    assert ak.min(narrow.pt) > 400
    assert ak.sum(narrow.pt > 500) <= ak.sum(wide.pt > 500)
    with pytest.raises(ConfigError, match="the card atlas has no large jets: add `fatjets`"):
        simulated(tops, changed(CARD, fatjets=None))


def record_of(rows):
    """One event: (PDG code, status, mother, eta, phi) of massless entries of 100 GeV."""
    code, status, mother, eta, phi = np.array(rows, dtype=np.float64).T
    momenta = 100 * np.cos(phi), 100 * np.sin(phi), 100 * np.sinh(eta), 100 * np.cosh(eta)
    ints = (values.astype(np.int64) for values in (0 * code, code, status, mother))
    event, *rest = ints
    return Record(event, *momenta, *rest, vertex=np.zeros((0, 3)), n_events=1)


TOP = [(6, -22, -1, 0, 0), (24, -22, 0, 0, 0), (5, 23, 0, 0.1, 0), (1, 23, 1, 0.2, 0), (-2, 23, 1, 0.3, 0)]
JETS = ak.zip({"eta": [[0.0, 3.0]], "phi": [[0.0, 0.0]]})


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (TOP, ["top", "other"]),
        ([*TOP[:2], (5, 23, 0, 2.9, 0), *TOP[3:]], ["wz", "other"]),  # the b quark is in the other jet
        ([*TOP[:4], (-2, 23, 1, 2.9, 0)], ["other", "other"]),
        ([*TOP[:3], (-11, 23, 1, 0.2, 0), (12, 23, 1, 0.3, 0)], ["other", "other"]),  # leptonic
        ([(25, -62, -1, 0, 0), (25, -22, -1, 3, 0), (5, 23, 1, 3, 0.4), (-5, 23, 1, 3, -0.4)], ["other", "hbb"]),
        ([(25, -22, -1, 3, 0), (25, -62, 0, 3, 0), (5, 23, 1, 3, 1.1), (-5, 23, 1, 3, 0)], ["other", "other"]),
    ],
)
def test_a_large_jet_is_the_heaviest_particle_that_it_holds(rows, expected):
    assert [CLASSES[k] for k in classes(JETS, record_of(rows), 1.0)] == expected


def test_taggers_pass_as_often_as_the_card_says():
    many = 20_000
    jets = ak.zip({"eta": [[0.0]] * many, "phi": [[0.0]] * many})
    one = record_of(TOP)
    columns = {name: np.tile(getattr(one, name), many) for name in ("px", "py", "pz", "energy", "code", "status")}
    first = np.repeat(np.arange(many) * len(TOP), len(TOP))
    mother = np.where(np.tile(one.mother, many) < 0, -1, np.tile(one.mother, many) + first)
    record = Record(
        np.repeat(np.arange(many), len(TOP)), **columns, mother=mother, vertex=np.zeros((0, 3)), n_events=many
    )
    found = scores(jets, record, CARD.fatjets, np.random.default_rng(1))
    assert set(np.asarray(ak.flatten(found["flavour"]))) == {CODES[0]}
    for name in ("top", "wz", "hbb"):
        points = getattr(CARD.fatjets.taggers, name)
        for signal, share in zip(getattr(points, name), points.top, strict=True):
            passed = np.mean(np.asarray(ak.flatten(found[f"{name}_score"])) > 1 - signal)
            assert passed == pytest.approx(share, abs=5 * np.sqrt(share / many))


def test_no_large_jet_is_no_error():
    none = np.zeros(0)
    found = find_fatjets(Momenta(none.astype(np.int64), none, none, none, none), 3, CARD.fatjets, CARD.jets)
    assert ak.num(found).tolist() == [0, 0, 0]
    assert {"msoftdrop", "tau21", "tau32"} <= set(ak.fields(found))
