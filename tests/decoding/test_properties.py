"""Properties of any events, states and answers, searched for a counterexample by hypothesis.

Those of decoding, likelihood and metrics that need a slow transcription are in the tests of these modules.
"""

import awkward as ak
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pairton.decoding.graph import adjacency
from pairton.evaluation.scores import efficiencies
from pairton.events import SPLITS, Events, Status
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.events.inputs import Inputs
from pairton.events.objects import make_jets
from pairton.reconstruction.assigner import windows
from pairton.topology import load_topology
from pairton.topology.assignments import canonical
from pairton.topology.extras import bin_names

TOPOLOGIES = tuple(load_topology(name) for name in ("ttbar_allhad", "hh4b", "tth_allhad"))
quick = settings(max_examples=25, deadline=None)
topologies = st.sampled_from(TOPOLOGIES)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def events(draw, most=6, strange=True):
    """Any events: no jets, many jets, equal jets, and numbers that no detector gives."""
    topology = draw(topologies)
    counts = draw(st.lists(st.integers(0, len(topology.slots) + 3), max_size=most))
    counts = np.array(counts, dtype=np.int64)
    total = int(counts.sum())
    odd = st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e30, 1e39]) if strange else st.nothing()

    def column(low, high):
        usual = st.floats(low, high, width=32)
        return draw(arrays.arrays(np.float64, total, elements=usual | odd, fill=st.just((low + high) / 2)))

    parts = {"pt": column(1, 512), "eta": column(-4, 4), "phi": column(-3, 3), "mass": column(0, 32)}
    parts["btag"] = draw(arrays.arrays(np.float64, total, elements=st.sampled_from([0.0, 1.0])))
    with np.errstate(all="ignore"):
        jets = make_jets(**{name: ak.unflatten(values, counts) for name, values in parts.items()})
    rng = np.random.default_rng(draw(seeds))
    truth = np.full((len(counts), len(topology.slots)), -1)
    for row, n in enumerate(counts):
        order = rng.permutation(max(n, len(topology.slots)))[: len(topology.slots)]
        truth[row] = np.where((order < n) & (rng.random(len(order)) < 0.8), order, -1)
    weights = rng.normal(size=len(counts))
    return Events(jets, topology, truth, weights, columns={"run": np.arange(len(counts))})


def listed(one):
    return [ak.to_list(one.jets), one.truth.tolist(), one.weights.tolist(), one.ids.tolist(), one.status.tolist()]


# -- events ------------------------------------------------------------------------------------------------


@quick
@given(events(), st.data())
def test_events_cut_anywhere_and_joined_are_the_same(found, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(found)), max_size=3)))
    parts = [found[a:b] for a, b in zip([0, *cuts], [*cuts, len(found)], strict=True)]
    assert str(listed(Events.concatenate(parts))) == str(listed(found))  # as text: NaN equals NaN
    size = data.draw(st.integers(1, 7))
    cut = list(windows(parts, size))
    assert [len(window) for window in cut[:-1]] == [size] * (len(cut) - 1)
    assert str(listed(Events.concatenate(cut))) == str(listed(found))


@quick
@given(events(), seeds)
def test_every_event_is_in_one_split(found, seed):
    member = np.array([found.in_split(name) for name in SPLITS])
    assert (member.sum(axis=0) == 1).all()
    order = np.random.default_rng(seed).permutation(len(found))
    for name, row in zip(SPLITS, member, strict=True):
        np.testing.assert_array_equal(found[order].in_split(name), row[order])


@quick
@given(events())
def test_preparation_orders_jets_and_says_where_they_were(found):
    inputs = Inputs.default(found.topology)
    accepted = accept(found, Domain(), inputs, max_objects=len(found.topology.slots) + 1)
    assert len(accepted.status) == len(found)
    for row in np.flatnonzero(accepted.answerable):
        n = accepted.nodes.counts[row, 0]
        jets, position = accepted.nodes.values["jet"][row, :n], accepted.position["jet"][row, :n]
        assert (np.diff(jets[:, 0]) <= 0).all()
        assert np.isfinite(jets).all()
        assert len(set(position.tolist())) == n
        np.testing.assert_array_equal(jets[:, 0], np.asarray(found.jets.pt[row])[position])
    assert (accepted.status[found.status == Status.BAD_OBJECT] == Status.BAD_OBJECT).all()


# -- graph -------------------------------------------------------------------------------------------------


def assignments(topology, n, seed, missing=0.2, extra=2):
    rng = np.random.default_rng(seed)
    slots = len(topology.slots)
    found = np.array([rng.permutation(slots + extra)[:slots] for _ in range(n)])
    return np.where(rng.random(found.shape) < missing, -1, found), np.ones((n, slots + extra), dtype=bool)


@quick
@given(topologies, seeds, st.data())
def test_interchangeable_products_are_one_graph(topology, seed, data):
    given_, mask = assignments(topology, 5, seed)
    moved = given_[:, list(data.draw(st.sampled_from([list(row) for row in topology.symmetries])))]
    np.testing.assert_array_equal(canonical(topology, moved), canonical(topology, given_))
    np.testing.assert_array_equal(canonical(topology, canonical(topology, given_)), canonical(topology, given_))
    for one, other in zip(adjacency(topology, given_, mask), adjacency(topology, moved, mask), strict=True):
        np.testing.assert_array_equal(one, other)


@quick
@given(topologies, seeds)
def test_matrices_are_symmetric_and_follow_the_jets(topology, seed):
    given_, mask = assignments(topology, 5, seed)
    edges, known = adjacency(topology, given_, mask)
    np.testing.assert_array_equal(edges, edges.swapaxes(2, 3))
    np.testing.assert_array_equal(known, known.swapaxes(2, 3))
    order = np.random.default_rng(seed).permutation(mask.shape[1])
    place = np.argsort(order)
    moved, _ = adjacency(topology, np.where(given_ >= 0, place[given_], -1), mask)
    np.testing.assert_array_equal(moved, edges[:, :, order][:, :, :, order])


# -- metrics -----------------------------------------------------------------------------------------------


@quick
@given(topologies, seeds, st.data())
def test_efficiencies_count_what_is_right(topology, seed, data):
    truth, mask = assignments(topology, 12, seed, missing=0.1)
    n_jets = mask.sum(axis=1)
    symmetry = list(data.draw(st.sampled_from([list(row) for row in topology.symmetries])))
    other, _ = assignments(topology, 12, seed + 1, missing=0)
    perfect = np.where(truth >= 0, truth, 99)[:, symmetry]  # jets that have no label: anything
    for what, cells in efficiencies(topology, truth, perfect, n_jets).items():
        for cell in cells.values():
            assert cell.correct == cell.total, what
    for cells in efficiencies(topology, truth, other, n_jets).values():
        assert sum(cells[name].total for name in bin_names(topology)) == cells["inclusive"].total
        assert all(0 <= cell.correct <= cell.total for cell in cells.values())
