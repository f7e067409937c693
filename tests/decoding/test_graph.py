"""The drawn matrices use 1-based jets as the paper does; rows are strings, one character an entry; `.`: masked."""

import itertools

import numpy as np
import pytest

from enumeration import enumerate_assignments
from pairton.decoding.graph import adjacency, visible_tokens
from pairton.topology import builtin_topologies, load_topology, parse_topology
from pairton.topology.assignments import canonical, present

TTBAR = load_topology("ttbar_allhad")
TTH = load_topology("tth_allhad")
# tops 1,4,7 and 2,3,6; b jets 7 and 3: slots are q, q, b of each top
PAPER = np.array([[1, 4, 7, 2, 6, 3]]) - 1
EIGHT = np.ones((1, 8), dtype=bool)


def drawn(*rows):
    return np.array([[{"0": 0, "1": 1, ".": 2}[c] for c in row.replace(" ", "")] for row in rows], dtype=np.uint8)


def reveal(topology, *names):
    known = [p.name for p in topology.particles]
    assert set(names) <= set(known)
    return np.array([[name in names for name in known]])


def tokens(topology, assignment, *names, n_jets=8):
    mask = np.ones((1, n_jets), dtype=bool)
    matrices = visible_tokens(topology, assignment, reveal(topology, *names), mask)[0]
    return dict(zip(topology.types, matrices, strict=True))


def test_paper_example_adjacency():
    edges, known = adjacency(TTBAR, PAPER, EIGHT)
    assert known.all()
    np.testing.assert_array_equal(
        edges[0, TTBAR.type_index("W")],
        drawn("00010000", "00000100", "00100000", "10000000", "00001000", "01000000", "00000010", "00000001"),
    )
    np.testing.assert_array_equal(
        edges[0, TTBAR.type_index("t")],
        drawn("00010010", "00100100", "01000100", "10000010", "00001000", "01100000", "10010000", "00000001"),
    )


def test_paper_example_one_w_revealed():
    seen = tokens(TTBAR, PAPER, "t1.W")  # jets 1 and 4
    np.testing.assert_array_equal(
        seen["W"],
        drawn("00010000", "0..0....", "0..0....", "10000000", "0..0....", "0..0....", "0..0....", "0..0...."),
    )
    np.testing.assert_array_equal(
        seen["t"],
        drawn("0..1....", "........", "........", "1..0....", "........", "........", "........", "........"),
    )


def test_paper_example_both_w_revealed():
    seen = tokens(TTBAR, PAPER, "t1.W", "t2.W")  # jets 1, 4 and 2, 6
    edges, _ = adjacency(TTBAR, PAPER, EIGHT)
    np.testing.assert_array_equal(seen["W"], edges[0, TTBAR.type_index("W")])
    np.testing.assert_array_equal(
        seen["t"],
        drawn("00.1.0..", "00.0.1..", "........", "10.0.0..", "........", "01.0.0..", "........", "........"),
    )


def test_four_step_level_one_top_revealed():
    seen = tokens(TTBAR, PAPER, "t1.W", "t2.W", "t1")  # jets 1, 4, 7 complete; 2, 6 in the other top
    np.testing.assert_array_equal(
        seen["t"],
        drawn("00010010", "00.0.10.", "0..0..0.", "10000010", "0..0..0.", "01.0.00.", "10010000", "0..0..0."),
    )


def test_w_that_may_or_may_not_come_from_a_top():
    ttw = parse_topology(
        {"name": "ttw", "event": ["t", "t", "W"], "particles": {"t": ["W", "b"], "W": ["q", "q"]}}
    )
    truth = np.arange(8)[None]  # t1: 0 1 2, t2: 3 4 5, W: 6 7
    for name in ("t1.W", "W"):  # the matrices must not tell which kind of W was found
        assert (tokens(ttw, truth, name)["t"] == 2).all()
    seen = tokens(ttw, truth, "t1.W", "t2.W", "W", "t1", "t2")
    np.testing.assert_array_equal(seen["t"], adjacency(ttw, truth, EIGHT)[0][0, ttw.type_index("t")])


RESOLVED = [name for name in builtin_topologies() if not load_topology(name).merged]  # others have no tokens


@pytest.mark.parametrize("name", RESOLVED)
def test_tokens_agree_with_truth_and_only_grow(name):
    topology = load_topology(name)
    rng = np.random.default_rng(7)
    layout = topology.layout(
        {kind: n + 2 for kind, n in zip(topology.kinds, topology.slots_per_kind, strict=True)}
    )
    truth = np.zeros((20, len(topology.slots)), dtype=int)
    for kind in topology.object_kinds:
        places = [slot.index for slot in topology.slots if slot.kind == kind]
        truth[:, places] = [rng.permutation(topology.nodes(kind, layout))[: len(places)] for _ in range(20)]
    mask = np.ones((20, sum(layout)), dtype=bool)
    edges, _ = adjacency(topology, truth, mask)
    before = np.full(edges.shape, 2)
    order = sorted(topology.particles, key=lambda p: topology.height(p.type))
    revealed = np.zeros((20, len(order)), dtype=bool)
    for particle in order:
        revealed[:, particle.index] = True
        now = visible_tokens(topology, truth, revealed, mask)
        assert ((now == 2) | (now == edges)).all()
        assert ((before == 2) | (now == before)).all()
        np.testing.assert_array_equal(now, now.transpose(0, 1, 3, 2))
        before = now
    np.testing.assert_array_equal(before, edges)


def slow_tokens(member, complete_of, n):
    """METHOD.md's rule, entry by entry: member[i] is a particle, None for none, '?' for unknown."""
    out = np.full((n, n), 2)
    for i, j in itertools.product(range(n), range(n)):
        a, b = member[i], member[j]
        if i == j:
            if a != "?":
                out[i, j] = 1 if a is None else 0
        elif a not in ("?", None) and a == b:
            out[i, j] = 1
        elif (
            (a != "?" and b != "?")
            or a is None
            or b is None
            or (a != "?" and complete_of[a])
            or (b != "?" and complete_of[b])
        ):
            out[i, j] = 0
    return out


@pytest.mark.parametrize(
    "names", ["", "H", "t1.W", "H t1.W", "t2.W H", "t1.W t2.W H", "t1.W t2.W t2", "tl", "tl t.W"]
)
def test_tokens_against_a_slow_transcription(names):
    topology = load_topology("ttbar_semilep") if "tl" in names else TTH
    layout = (6, 2, 1) if "tl" in names else (10,)
    truth = np.zeros((1, len(topology.slots)), dtype=int)
    for kind in topology.object_kinds:
        places = [slot.index for slot in topology.slots if slot.kind == kind]
        truth[0, places] = np.random.default_rng(3).permutation(topology.nodes(kind, layout))[: len(places)]
    shown = {s for p in topology.particles if p.name in names.split() for s in p.slots}
    for type_name, matrix in tokens(topology, truth, *names.split(), n_jets=sum(layout)).items():
        same = topology.of_type(type_name)
        done = {p.name: p.name in names.split() for p in same}
        member = ["?"] * sum(layout)
        for s in shown:
            inside = [p.name for p in same if s in p.slots]
            member[truth[0, s]] = inside[0] if inside else None
        if all(done.values()):
            member = [None if m == "?" else m for m in member]
        np.testing.assert_array_equal(matrix, slow_tokens(member, done, sum(layout)))


def test_padding_is_never_visible_nor_known():
    mask = EIGHT.copy()
    mask[0, 7] = False
    seen = visible_tokens(TTBAR, PAPER, np.ones((1, 4), dtype=bool), mask)
    assert (seen[0, :, 7, :] == 2).all()
    assert (seen[0, :, :, 7] == 2).all()
    edges, known = adjacency(TTBAR, PAPER, mask)
    assert not known[0, :, 7, :].any()
    assert not edges[0, :, 7, :].any()


def test_partly_labelled_events_know_only_their_labelled_jets():
    partial = PAPER.copy()
    partial[0, 5] = -1  # the b of the second top, jet 3
    edges, known = adjacency(TTBAR, partial, EIGHT)
    labelled = np.array([1, 1, 0, 1, 0, 1, 1, 0], dtype=bool)
    np.testing.assert_array_equal(known[0, 0], labelled[:, None] & labelled[None, :])
    full, _ = adjacency(TTBAR, PAPER, EIGHT)
    np.testing.assert_array_equal(edges[known], full[known])
    np.testing.assert_array_equal(present(TTBAR, partial), [[True, True, False, True]])


@pytest.mark.parametrize("name", ["ttbar_allhad", "tth_allhad", "tttt_allhad", "hh4b"])
def test_canonical_identifies_exactly_the_symmetric_assignments(name):
    topology = load_topology(name)
    rng = np.random.default_rng(1)
    some = rng.permutation(len(topology.slots) + 3)[: len(topology.slots)]
    same = canonical(topology, some[topology.symmetries])
    assert len(np.unique(same, axis=0)) == 1
    if topology.n_symmetries <= 16:  # every permutation falls in a class of exactly that size
        everything = np.array(list(itertools.permutations(range(min(6, len(topology.slots))))))
        if everything.shape[1] == len(topology.slots):
            _, counts = np.unique(canonical(topology, everything), axis=0, return_counts=True)
            assert set(counts) == {topology.n_symmetries}


def shape(topology, assignment, particle):
    """A particle by its jets, and by those of the particles in it: places of equal particles do not matter."""
    own = frozenset(int(assignment[slot]) for slot in particle.own_slots)
    below = (topology.particles[child] for child in particle.children)
    return particle.type, own, frozenset(shape(topology, assignment, child) for child in below)


def tree(event, **particles):
    return parse_topology({"name": "tree", "event": list(event), "particles": particles})


@pytest.mark.parametrize(
    "topology",
    [
        TTBAR,
        tree("tW", t=["W", "b"], W=["q", "q"]),
        tree("H", H=["W", "W"], W=["q", "q"]),
        tree("HH", H=["W", "W"], W=["q", "q"]),  # found W: of one H or of two
        tree("XX", X=["Z", "H"], Z=["q", "q"], H=["b", "b"]),
        tree("XX", X=["Y", "j"], Y=["Z", "b"], Z=["q"]),
    ],
    ids=["ttbar", "tW", "H to WW", "HH to 4W", "XX to ZHZH", "a chain"],
)
def test_what_is_visible_is_so_in_every_event_in_which_the_same_was_found(topology):
    n_jets = len(topology.slots)
    every = enumerate_assignments(topology, n_jets).assignments.astype(np.int64)
    mask = np.ones((1, n_jets), dtype=bool)
    edges, _ = adjacency(topology, every, np.repeat(mask, len(every), axis=0))
    shapes = [{shape(topology, row, particle) for particle in topology.particles} for row in every]
    told = 0
    for row in every[:: max(1, len(every) // 5)]:
        for state in np.concatenate(topology.levels):
            revealed = [p for p in topology.particles if state[p.index]]
            found = {shape(topology, row, particle) for particle in revealed}
            same = np.array([found <= other for other in shapes])
            seen = visible_tokens(topology, row[None], state[None], mask)[0]
            told += (seen != 2).sum()
            assert (edges[same] == seen)[:, seen != 2].all()
    assert told > 50
