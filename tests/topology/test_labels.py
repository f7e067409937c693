"""Labels and padding as files have them, made those of events."""

import numpy as np
import pytest

from pairton.formats.flat_objects import Padded
from pairton.formats.truth import clean_labels
from pairton.topology import load_topology, parse_topology


def test_a_bad_label_unlabels_the_smallest_particle():
    topology = load_topology("ttbar_allhad")  # slots: t1 q1 q2 b, t2 q1 q2 b
    truth = np.array(
        [
            [0, 1, 2, 3, 4, 5],  # fine
            [9, 1, 2, 3, 4, 5],  # q1 of the first W out of range: this W
            [0, 1, -5, 3, 4, 5],  # its b: only that label, the W below is well known
            [0, 1, 2, 3, 4, 2],  # one jet for both b
            [0, 0, 2, 3, 4, 5],  # one jet twice in a W
            [-1, -1, -1, -1, -1, -1],
        ]
    )
    clean, counts = clean_labels(topology, truth, {"jet": np.full(6, 8)})
    assert clean.tolist() == [
        [0, 1, 2, 3, 4, 5],
        [-1, -1, 2, 3, 4, 5],
        [0, 1, -1, 3, 4, 5],
        [0, 1, -1, 3, 4, -1],
        [-1, -1, 2, 3, 4, 5],
        [-1] * 6,
    ]
    assert counts.tolist() == [0, 1, 1, 2, 2, 0]


@pytest.mark.parametrize("label", [2**32, -(2**32), 2**63 - 1, 1e30, -1e30])
def test_labels_that_do_not_fit_do_not_wrap_around(label):
    topology = load_topology("hh4b")
    clean, counts = clean_labels(topology, np.array([[label, 1, 2, 3]]), {"jet": np.array([4])})
    assert clean.tolist() == [[-1, -1, 2, 3]]
    assert counts.tolist() == [1]


@pytest.mark.parametrize("name", ["ttbar_allhad", "tth_allhad"])
def test_labels_against_plain_loops(name):
    topology = load_topology(name)
    rng = np.random.default_rng(5)
    n_jets = rng.integers(4, 12, 300)
    truth = rng.integers(-1, 12, (300, len(topology.slots)))
    truth[rng.random(truth.shape) < 0.02] = -2
    clean, counts = clean_labels(topology, truth, {"jet": n_jets})
    for row, labels in enumerate(truth.tolist()):
        bad = {
            slot
            for slot, jet in enumerate(labels)
            if jet < -1 or jet >= n_jets[row] or (jet >= 0 and labels.count(jet) > 1)
        }
        lost = {own for slot in bad for own in topology.particles[topology.slots[slot].particle].own_slots}
        assert clean[row].tolist() == [-1 if slot in lost else jet for slot, jet in enumerate(labels)]
        assert counts[row] == len(bad)


def test_holes_against_plain_loops():
    rng = np.random.default_rng(6)
    for width in (0, 1, 2, 5):
        for _ in range(50):
            mask = rng.random((3, width)) < 0.7
            rows = Padded(mask)
            assert rows.holes == any(sorted(row, reverse=True) != row for row in mask.tolist())
            values = rng.random(mask.shape)
            assert rows.take(values).tolist() == [v for row, m in zip(values, mask, strict=True) for v in row[m]]
            columns = rng.integers(-1, width + 2, (3, 4))
            for row, (of, to) in enumerate(zip(columns, rows.positions(columns), strict=True)):
                held = np.flatnonzero(mask[row]).tolist()
                for column, position in zip(of.tolist(), to.tolist(), strict=True):
                    if column in held:
                        assert position == held.index(column)
                    else:
                        assert (position == -1) if column == -1 else not 0 <= position < len(held)


def test_a_particle_of_three_jets_loses_all_three():
    topology = parse_topology({"name": "x", "event": ["t", "j"], "particles": {"t": ["q", "q", "q"]}})
    clean, _ = clean_labels(topology, np.array([[0, 1, 7, 3]]), {"jet": np.array([5])})
    assert clean.tolist() == [[-1, -1, -1, 3]]
