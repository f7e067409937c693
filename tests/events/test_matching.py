"""Slots filled from a hard process, and quarks matched to jets."""

import awkward as ak
import numpy as np
import pytest

from pairton.events import matching
from pairton.events.matching import fill_slots, match, unknown_names
from pairton.formats.truth import GenRecord, can_search
from pairton.topology import load_topology, parse_topology


def slow_match(jets, quarks, radius):
    """The rule, word by word."""
    claims = []
    for eta, phi in quarks:
        best, nearest = -1, radius
        for k, (jet_eta, jet_phi) in enumerate(jets):
            turn = abs(phi - jet_phi) % (2 * np.pi)
            distance = np.hypot(eta - jet_eta, min(turn, 2 * np.pi - turn))
            if distance < nearest:
                best, nearest = k, distance
        claims.append(best)
    return [claim if claims.count(claim) == 1 else -1 for claim in claims]


def test_matching_is_the_rule_of_the_method(monkeypatch):
    monkeypatch.setattr(matching, "BLOCK", 7)  # more blocks than one, the last one smaller
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 9, 60)
    counts[14:21] = 0  # a block without any jet
    flat = rng.uniform(-1, 1, counts.sum()), rng.uniform(-np.pi, np.pi, counts.sum()).round(1)
    jets = ak.zip({name: ak.unflatten(values, counts) for name, values in zip(("eta", "phi"), flat, strict=True)})
    eta, phi = rng.uniform(-1, 1, (60, 4)), rng.uniform(-np.pi, np.pi, (60, 4))
    eta[rng.random((60, 4)) < 0.2] = np.nan
    found = match(jets, eta, phi, radius=0.6)
    for row in range(60):
        pairs = [(jet.eta, jet.phi) for jet in jets[row]]
        assert found[row].tolist() == slow_match(pairs, list(zip(eta[row], phi[row], strict=True)), 0.6)
    assert (found >= 0).sum() > 20
    passes = ak.unflatten(rng.random(counts.sum()) < 0.6, counts)
    few = match(jets, eta, phi, radius=0.6, passes=passes)
    kept = match(jets[passes], eta, phi, radius=0.6)
    position = ak.local_index(passes)[passes]
    for row in range(60):
        assert few[row].tolist() == [position[row][k] if k >= 0 else -1 for k in kept[row].tolist()]


def test_a_jet_beyond_the_seam_of_phi_is_near():
    jets = ak.Array({"eta": [[0.0]], "phi": [[3.1]]})
    assert match(jets, np.array([[0.0]]), np.array([[-3.1]])).tolist() == [[0]]


def test_no_events_and_no_jets():
    nothing = ak.Array({"eta": ak.Array([[]])[:0], "phi": ak.Array([[]])[:0]})
    assert match(nothing, np.zeros((0, 3)), np.zeros((0, 3))).shape == (0, 3)


def test_root_particles_are_told_from_those_inside_others():
    ttw = parse_topology(
        {"name": "ttw", "event": ["t", "t", "W"], "particles": {"t": ["W", "b"], "W": ["q", "q"]}}
    )
    #       0   1  2    3   4   5   6   7    8   9  10  11  12
    code = [24, 6, -6, -24, 24, 5, -5, 1, -2, 3, -4, 2, -1]
    parent = [-1, -1, -1, 2, 1, 1, 2, 3, 3, 4, 4, 0, 0]
    found = fill_slots(ttw, np.arange(13), np.zeros(13, dtype=int), np.array(code), np.array(parent), 1)
    names = {slot.name: entry for slot, entry in zip(ttw.slots, found[0].tolist(), strict=True)}
    assert names == {
        "t1.W.q1": 9,
        "t1.W.q2": 10,
        "t1.b": 5,
        "t2.W.q1": 7,
        "t2.W.q2": 8,
        "t2.b": 6,
        "W.q1": 11,
        "W.q2": 12,
    }


def record(code, mother, hard=None):
    codes, mothers = (np.concatenate(rows) for rows in (code, mother))
    flags = np.ones(len(codes), dtype=bool) if hard is None else np.concatenate(hard) == 1
    nowhere = np.zeros(len(codes), dtype=np.float32)
    return GenRecord(np.array([len(row) for row in code]), codes, mothers, flags, nowhere, nowhere)


def test_copies_of_a_resonance_are_passed_through_even_when_flagged():
    """H -> H -> b b, and a b that radiates: the first copies count."""
    one = record([[21, 25, 25, 5, -5, 5]], [[-1, 0, 1, 2, 2, 3]])
    hh4b = load_topology("hh4b")
    assert one.slot_entries(hh4b).tolist() == [[3, 4, -1, -1]]


def test_copies_are_found_through_copies_outside_the_hard_process():
    """H -> H -> H -> b b, where the shower's copy between the two is not flagged."""
    one = record([[25, 25, 25, 5, -5]], [[-1, 0, 1, 2, 2]], [[1, 0, 1, 1, 1]])
    assert one.slot_entries(load_topology("hh4b")).tolist() == [[3, 4, -1, -1]]


def test_a_quark_that_scatters_is_no_copy_of_the_incoming_one():
    """u d -> H u d and u d -> H c s give the same slots."""
    vbf = parse_topology({"name": "vbf", "event": ["H", "j", "j"], "particles": {"H": ["b", "b"]}})
    mother, hard = [-1, -1, 0, 1, 0, 0, 0, 4, 4], [0, 0, 0, 0, 1, 1, 1, 1, 1]
    for outgoing in ([2, 1], [4, 3]):
        one = record([[2, 1, 2, 1, 25, *outgoing, 5, -5]], [mother], [hard])
        assert one.slot_entries(vbf).tolist() == [[7, 8, 5, 6]]


def test_a_leptonic_w_leaves_its_slots_empty():
    code = [[6, -6, 24, 5, -24, -5, -11, 12, 3, -4], [6, -6, 24, 5, -24, -5, 1, -2, 13, -14]]
    mother = [[-1, -1, 0, 0, 1, 1, 2, 2, 4, 4]] * 2
    found = record(code, mother).slot_entries(load_topology("ttbar_allhad"))
    assert found.tolist() == [[-1, -1, 3, 8, 9, 5], [16, 17, 13, -1, -1, 15]]


def test_quarks_outside_the_hard_process_are_not_taken():
    """A gluon that splits inside a decay gives quarks below the W, but not of it."""
    code = [[25, 5, -5, 21, 5, -5]]
    mother = [[-1, 0, 0, 1, 3, 3]]
    hard = [[1, 1, 1, 0, 0, 0]]
    assert record(code, mother, hard).slot_entries(load_topology("hh4b")).tolist() == [[1, 2, -1, -1]]


def test_mothers_out_of_range_count_as_none():
    found = record([[25, 5, -5]], [[900, 0, -7]]).slot_entries(load_topology("hh4b"))
    assert found.tolist() == [[1, -1, -1, -1]]


def test_names_without_a_code_are_reported():
    odd = parse_topology({"name": "odd", "event": ["X"], "particles": {"X": ["b", "b"]}})
    assert unknown_names(odd) == ["X"]
    with pytest.warns(UserWarning, match="truth is not read, because X of odd has no PDG code"):
        assert not can_search(odd, "file.root")


@pytest.mark.parametrize("sign", [1, -1], ids=["top", "antitop"])
def test_an_entry_that_two_names_allow_fills_one_slot(sign):
    # t-channel: t, b and a light quark at the root; j allows a b too, and must leave it to the slot b
    topology = parse_topology(
        {"name": "single", "event": ["t", "j", "b"], "particles": {"t": ["W", "b"], "W": ["q", "q"]}}
    )
    entry, event = np.arange(10, 17), np.zeros(7, dtype=int)
    code = sign * np.array([6, -5, 1, 24, 5, 2, -1])
    parent = np.array([-1, -1, -1, 10, 10, 13, 13])
    (slots,) = fill_slots(topology, entry, event, code, parent, 1)
    named = dict(zip([slot.name for slot in topology.slots], slots.tolist(), strict=True))
    assert (named["t.b"], named["b"], named["j"]) == (14, 11, 12)
    assert {named["t.W.q1"], named["t.W.q2"]} == {15, 16}


#             0  1   2   3  4    5   6   7   8   9
LEPTON_JETS = [6, -6, 24, 5, -24, -5]
MOTHERS = [-1, -1, 0, 0, 1, 1, 2, 2, 4, 4]
QUARKS, ANTIQUARKS, ELECTRON, MUON, TAU = [2, -1], [1, -2], [-11, 12], [13, -14], [15, -16]


@pytest.mark.parametrize(
    ("products", "expected"),
    [
        (QUARKS + MUON, [6, 7, 3, 5, 8]),  # t: W.q1, W.q2, b; tl: b, l
        (ELECTRON + ANTIQUARKS, [8, 9, 5, 3, 6]),
        (QUARKS + TAU, [6, 7, 3, 5, -1]),  # a tau is no lepton to measure, but its top is the leptonic one
        ([-15, 16, 3, -4], [8, 9, 5, 3, -1]),
        (ELECTRON + TAU, [-1, -1, 5, 3, 6]),  # none is hadronic: the electron's top is the leptonic one
        ([-15, 16, 13, -14], [-1, -1, 3, 5, 8]),
    ],
)
def test_tops_are_told_apart_by_their_decay(products, expected):
    """Also through the W that `tl: [b, l]` does not name, whatever the order of the names."""
    semilep = load_topology("ttbar_semilep")
    one = record([LEPTON_JETS + products], [MOTHERS])
    assert one.slot_entries(semilep).tolist() == [expected]
    turned = parse_topology({**semilep.to_dict(), "event": ["tl", "t"]})
    assert one.slot_entries(turned).tolist() == [expected[3:] + expected[:3]]
    # a record of resonances as a showered event has it, without the search for parents
    parent = np.array(MOTHERS)
    code = np.array(LEPTON_JETS + products)
    assert fill_slots(semilep, np.arange(10), np.zeros(10, int), code, parent, 1).tolist() == [expected]


def test_one_hadronic_top_is_the_hadronic_one():
    top = parse_topology({"name": "one", "event": ["t"], "particles": {"t": ["W", "b"], "W": ["q", "q"]}})
    rows = record([LEPTON_JETS + QUARKS + MUON, LEPTON_JETS + ELECTRON + ANTIQUARKS], [MOTHERS] * 2)
    assert rows.slot_entries(top).tolist() == [[6, 7, 3], [18, 19, 15]]


def test_equal_tops_come_particle_first():
    code = [-6, 6, -24, -5, 24, 5, *MUON, *ELECTRON]
    assert record([code], [MOTHERS]).slot_entries(load_topology("ttbar_dilep")).tolist() == [[5, 8, 3, 6]]
