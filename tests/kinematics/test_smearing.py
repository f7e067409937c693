"""Neutrinos as the weighted mean over smeared measurements."""

import numpy as np
import pytest

from leptonic_tops import TOP, W, leptonic_events
from pairton.events.neutrinos import two_neutrinos
from pairton.kinematics import smearing
from pairton.kinematics.fit_settings import load_settings
from pairton.kinematics.smearing import mass_density, smeared_neutrinos
from pairton.kinematics.transfer_functions import parse_transfer
from pairton.reconstruction.momenta import missing_momentum, slot_momenta

N = 12
IDS = np.stack([np.full(N, 7), np.arange(N)], axis=1).astype(np.uint64)


@pytest.fixture(scope="module")
def measured():
    events, _ = leptonic_events(2, N)
    slots = slot_momenta(events, events.truth)
    at = {kind: [events.topology.slot_index(f"tl{k}.{kind}") for k in (1, 2)] for kind in "lb"}
    return slots[:, at["l"]], slots[:, at["b"]], missing_momentum(events)


def solve(measured, ids=IDS, transfer=None, **how):
    return smeared_neutrinos(*measured, W, TOP, ids, transfer or load_settings().transfer, **how)


def test_it_is_the_weighted_mean_over_draws(measured):
    """Against a loop over the draws of one event."""
    found = solve(measured, draws=30)
    row = 3
    leptons, bs, met = (values[row] for values in measured)
    if np.arctan2(leptons[0, 1], leptons[0, 0]) > np.arctan2(leptons[1, 1], leptons[1, 0]):
        leptons, bs = leptons[::-1], bs[::-1]
    u = smearing._random(IDS[row : row + 1], 30)
    objects = np.concatenate([leptons, bs])
    factors = smearing._factors(objects[None], load_settings().transfer, u[..., :4], u[..., 4:8])[0]
    total, weights = np.zeros((2, 4)), 0.0
    for factor, number in zip(factors, u[0, :, 8], strict=True):
        moved = objects * factor[:, None]
        w = W * (1 + smearing.W_WIDTH / 2 * np.tan(0.9 * np.pi * (number - 0.5)))
        missing = met - (moved - objects)[:, :2].sum(axis=0)
        solved = two_neutrinos(moved[None, :2], moved[None, 2:], missing[None], w, TOP)
        if solved.n_real[0]:
            pair = moved[:2] + moved[2:]
            mass = np.sqrt(pair[:, 3] ** 2 - (pair[:, :3] ** 2).sum(axis=1))
            weight = mass_density(mass, w, TOP).prod()
            total += weight * solved.p4[0, 0]
            weights += weight
    momenta = sorted((total / weights).tolist())
    assert np.allclose(sorted(found[row].tolist()), momenta, rtol=1e-9, atol=1e-9)


def test_without_resolution_it_is_the_solution_of_smallest_mass(measured, monkeypatch):
    monkeypatch.setattr(smearing, "W_WIDTH", 0.0)
    exact = [{"a": 1e-9}]
    transfer = parse_transfer({"b": exact, "light": exact, "lepton": exact, "met": {"c": 1}}, "test")
    plain = two_neutrinos(*measured, W, TOP)
    found = solve(measured, transfer=transfer, draws=4)
    solved = plain.n_real > 0
    assert solved.sum() > N / 2
    assert np.allclose(found[solved], plain.p4[solved, 0], rtol=1e-4, atol=1e-2)


def test_answers_follow_from_the_id_and_not_from_neighbours_or_order(measured):
    found = solve(measured)
    some = [values[4:6] for values in measured]
    assert np.array_equal(solve(some, IDS[4:6]), found[4:6])
    assert not np.allclose(solve(some, IDS[:2]), found[4:6], rtol=1e-3)
    leptons, bs, met = measured
    assert np.array_equal(solve((leptons[:, ::-1], bs[:, ::-1], met)), found[:, ::-1])


def test_what_is_missing_gives_nan(measured):
    leptons, bs, met = (values.copy() for values in measured)
    bs[2, 1] = np.nan
    met[5] = np.nan
    found = solve((leptons, bs, met))
    assert np.isnan(found[[2, 5]]).all()
    assert np.isfinite(np.delete(found, [2, 5], axis=0)).any()


def test_the_density_of_masses_is_that_of_helicities():
    """Against lepton angles drawn for a W with 70 % longitudinal and 30 % left-handed polarisation."""
    rng = np.random.default_rng(1)
    f = TOP**2 / (TOP**2 + 2 * W**2)
    cos = rng.uniform(-1, 1, 200_000)  # between the lepton and the flight of the W
    weight = f * 0.75 * (1 - cos**2) + (1 - f) * 0.375 * (1 - cos) ** 2
    mass = np.sqrt((TOP**2 - W**2) * (1 + cos) / 2)
    edges = np.linspace(0, 160, 17)
    counts, _ = np.histogram(mass, edges, weights=weight)
    middle = (edges[1:] + edges[:-1]) / 2
    expected = mass_density(middle, W, TOP)
    whole = edges[1:] < np.sqrt(TOP**2 - W**2)
    assert np.allclose((counts / counts.sum())[whole], (expected / expected.sum())[whole], atol=0.006)
