"""The likelihood is KLFitter's: its test event has its twelve log L and probabilities from its start."""

from itertools import permutations

import numpy as np
import pytest

from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.kinematics.fit_settings import parse_settings
from pairton.kinematics.fitting import KinematicFit
from pairton.kinematics.newton import maximise
from pairton.kinematics.observed import observe
from pairton.kinematics.starts import limits

# log L and P of the permutations (b of the hadronic top, b of the leptonic top, q, q), in lexicographic order
LOG_L = [-76.16, -67.13, -72.02, -66.07, -70.13, -83.00, -64.88, -78.97, -82.74, -59.78, -81.51, -72.43]
CHANCES = {1: 0.06306, 3: 0.00063, 4: 0.00313, 6: 0.59638, 9: 0.33648, 11: 0.00031}


def fitted(event, **changes):
    """log L and P of the twelve permutations."""
    events, settings = event
    fit = KinematicFit(events.topology, parse_settings({**settings, **changes}, "test"))
    accepted = accept(events, Domain(), fit.inputs)
    nodes = accepted.batch(np.array([0]), (4, 1, 1))
    found = fit.permutations(nodes)
    assignment = accepted.to_positions(found.assignment[0], np.zeros(12, dtype=int), (4, 1, 1))
    assert len(assignment) == 12
    at = {tuple(row): k for k, row in enumerate(assignment.tolist())}
    order = []
    for b, other in permutations(range(4), 2):
        first, second = (jet for jet in range(4) if jet not in (b, other))
        order += [at[row] for row in ((first, second, b, other, 0), (second, first, b, other, 0)) if row in at]
    return found.log_likelihood[0, order], found.probability[0, order]


def test_its_start_gives_its_numbers(klfitter_event):
    log_l, chance = fitted(klfitter_event, starts="klfitter")
    assert log_l == pytest.approx(LOG_L, abs=0.02)
    assert chance == pytest.approx([CHANCES.get(k, 0) for k in range(12)], abs=2e-4)


def test_several_starts_are_never_worse_and_six_times_better(klfitter_event):
    one, _ = fitted(klfitter_event, starts="klfitter")
    several, chance = fitted(klfitter_event)
    assert (several > one - 1e-3).all()
    assert (several > one + 0.5).sum() == 6
    assert (several - one).max() < 1.85
    assert chance.sum() == pytest.approx(1)


def test_a_dozen_random_starts_find_nothing_better(klfitter_event):
    events, raw = klfitter_event
    settings = parse_settings(raw, "test")
    fit = KinematicFit(events.topology, settings)
    nodes = accept(events, Domain(), fit.inputs).batch(np.array([0]), (4, 1, 1))
    found = fit.permutations(nodes)
    problem = observe(nodes, fit.inputs, settings).problem(fit.whole, settings, found.assignment[0])
    lower, upper, scale = limits(problem)
    rng = np.random.default_rng(3)
    for _ in range(12):
        start = np.concatenate(
            [problem.measured, np.full((1, 12), 80.4**2), np.zeros((2, 12)), np.full((1, 12), 170)]
        )
        start += rng.normal(size=start.shape) * scale * np.array([1] * 5 + [1, 4, 4, 4])[:, None]
        _, value = maximise(problem, start, lower, upper, scale, 200)
        assert (value < found.log_likelihood[0] + 0.05).all()
