"""Neutrinos against decays that were made up, and against scans that know nothing of quadratics and ellipses."""

import numpy as np
import pytest
from scipy.optimize import root

from leptonic_tops import TOP, W, leptonic_tops, mass
from pairton.events.neutrinos import nearest_mass, neutrino_ellipse, one_neutrino, two_neutrinos


@pytest.fixture(scope="module")
def dilepton():
    """b, leptons and neutrinos (n, 2, 4) of events of two leptonic tops."""
    rng = np.random.default_rng(7)
    return [
        np.stack(pair, axis=1) for pair in zip(leptonic_tops(rng, 2000), leptonic_tops(rng, 2000), strict=True)
    ]


# -- one neutrino ------------------------------------------------------------------------------------------


def test_both_solutions_have_the_mass_of_the_w_and_one_is_the_truth():
    _, lepton, neutrino = leptonic_tops(np.random.default_rng(1), 5000)
    found = one_neutrino(lepton, neutrino[:, :2], W)
    assert found.real.mean() > 0.99  # rounding may make a double root complex
    real = found.p4[found.real]
    x, y, z, energy = lepton[found.real].T
    a = (W**2 - mass(lepton[found.real]) ** 2) / 2 + x * real[:, 0, 0] + y * real[:, 0, 1]
    terms = np.stack(
        [
            (energy**2 - z**2)[:, None] * real[..., 2] ** 2,
            -2 * (a * z)[:, None] * real[..., 2],
            (energy**2 * (real[:, 0, :2] ** 2).sum(axis=1) - a**2)[:, None] * np.ones(2),
        ]
    )
    assert (np.abs(terms.sum(axis=0)) / np.abs(terms).max(axis=0)).max() < 1e-9  # the quadratic, to rounding
    assert np.abs(mass(lepton[found.real][:, None] + real) - W).max() < 1e-4
    assert np.abs(found.p4[..., 2] - neutrino[:, 2, None]).min(axis=1)[found.real].max() < 1e-3
    assert (np.abs(found.p4[:, 0, 2]) <= np.abs(found.p4[:, 1, 2])).all()
    assert np.array_equal(found.p4[:, 0, :2], neutrino[:, :2])


def test_solutions_are_where_a_scan_of_pz_crosses_the_mass():
    rng = np.random.default_rng(2)
    _, lepton, neutrino = leptonic_tops(rng, 200)
    met = neutrino[:, :2] + rng.normal(0, 25, (200, 2))
    found = one_neutrino(lepton, met, W)
    scan = np.linspace(-2000, 2000, 40_001)
    for k in range(200):
        momenta = np.column_stack([np.broadcast_to(met[k], (len(scan), 2)), scan])
        trial = np.column_stack([momenta, np.sqrt((momenta**2).sum(axis=1))])
        above = mass(lepton[k] + trial) - W
        crossings = scan[:-1][above[:-1] * above[1:] <= 0]
        inside = found.p4[k, :, 2][np.abs(found.p4[k, :, 2]) < 1999]
        if found.real[k]:
            assert len(crossings) == len(inside)
            assert np.abs(np.sort(inside) - crossings).max(initial=0) <= 0.11
        else:
            assert above.min() > 0
            assert found.p4[k, 0, 2] == found.p4[k, 1, 2]
    assert 0.1 < (~found.real).mean() < 0.6


def test_complex_solutions_have_the_real_part():
    lepton, met = np.array([60.0, 0.0, 40.0, np.sqrt(5200.0)]), np.array([-80.0, 0.0])  # back to back
    found = one_neutrino(lepton, met, 80.0)
    assert not found.real
    assert found.p4[:, 2] == pytest.approx((80**2 / 2 - 60 * 80) * 40 / 60**2)  # a pz_l / A
    assert found.p4[:, 3] == pytest.approx(np.hypot(80, found.p4[0, 2]))


def test_the_mass_of_the_top_chooses():
    rng = np.random.default_rng(3)
    b, lepton, neutrino = leptonic_tops(rng, 3000)
    found = one_neutrino(lepton, neutrino[:, :2], W)
    chosen = nearest_mass(b + lepton, found.p4, TOP)
    picked = np.take_along_axis(found.p4, chosen[:, None, None], axis=1)[:, 0]
    assert np.abs(picked[found.real, 2] - neutrino[found.real, 2]).max() < 1e-3
    assert 0.05 < chosen.mean() < 0.95


def test_what_is_missing_gives_nan():
    b, lepton, neutrino = leptonic_tops(np.random.default_rng(4), 3)
    lepton[1], met = np.nan, neutrino[:, :2].copy()
    met[2] = np.nan
    found = one_neutrino(lepton, met, W)
    assert np.isfinite(found.p4).all(axis=(1, 2)).tolist() == [True, False, False]
    assert nearest_mass(b + lepton, found.p4, TOP)[1:].tolist() == [0, 0]
    both = two_neutrinos(np.stack([lepton, lepton[::-1]], 1), np.stack([b, b[::-1]], 1), met, W, TOP)
    assert np.isfinite(both.p4[:, 0]).all(axis=(1, 2)).tolist() == [True, False, False]
    assert both.n_real[1:].tolist() == [0, 0]
    assert np.isfinite(both.mismatch).tolist() == [True, False, False]
    none = two_neutrinos(np.zeros((0, 2, 4)), np.zeros((0, 2, 4)), np.zeros((0, 2)), W, TOP)
    assert none.p4.shape == (0, 4, 2, 4)


# -- two neutrinos -----------------------------------------------------------------------------------------


def test_an_ellipse_has_both_masses(dilepton):
    b, lepton, _ = dilepton
    h, real = neutrino_ellipse(lepton, b, W, TOP)
    assert real.all()
    for angle in (0.3, 2.0, 5.0):
        p = h @ [np.cos(angle), np.sin(angle), 1.0]
        neutrino = np.concatenate([p, np.sqrt((p**2).sum(axis=-1, keepdims=True))], axis=-1)
        assert np.abs(mass(lepton + neutrino) - W).max() < 1e-3
        assert np.abs(mass(b + lepton + neutrino) - TOP).max() < 1e-3


def test_every_solution_fulfils_all_six_constraints_and_one_is_the_truth(dilepton):
    b, lepton, neutrino = dilepton
    met = neutrino[:, :, :2].sum(axis=1)
    found = two_neutrinos(lepton, b, met, W, TOP)
    assert set(found.n_real.tolist()) <= {1, 2, 3, 4}
    assert (found.n_real > 2).any()
    there = np.isfinite(found.p4).all(axis=(2, 3))
    assert np.array_equal(there.sum(axis=1), found.n_real)
    assert (np.sort(~there, axis=1) == ~there).all()  # solutions come first
    assert np.nanmax(np.abs(mass(lepton[:, None] + found.p4) - W)) < 1e-3
    assert np.nanmax(np.abs(mass((b + lepton)[:, None] + found.p4) - TOP)) < 1e-3
    assert np.nanmax(np.abs(found.p4[..., :2].sum(axis=2) - met[:, None])) < 1e-6
    assert found.mismatch.max() < 1e-6
    away = np.abs(found.p4 - neutrino[:, None]).max(axis=(2, 3))
    assert np.nanmin(away, axis=1).max() < 1e-3
    system = mass((found.p4 + (b + lepton)[:, None]).sum(axis=2))
    assert (np.diff(np.where(there, system, 1e9), axis=1) >= 0).all()  # the smallest mass first


def test_the_solutions_are_all_that_a_scan_of_transverse_momenta_finds(dilepton):
    """A grid of the first neutrino's px and py, both signs of both quadratics, a root finder from its cells."""
    b, lepton, neutrino = (part[:400] for part in dilepton)
    met = neutrino[:, :, :2].sum(axis=1)
    found = two_neutrinos(lepton, b, met, W, TOP)
    many = [*np.flatnonzero(found.n_real == 4)[:1], *np.flatnonzero(found.n_real == 2)[:2]]
    assert len(many) == 3
    edge = np.linspace(-400, 400, 201)
    for k in many:

        def masses(first, signs, k=k):
            """(..., 2): masses of the tops less the true one, for transverse momenta of the first neutrino."""
            result = []
            for which, (t, sign) in enumerate(zip((first, met[k] - first), signs, strict=True)):
                both = one_neutrino(lepton[k, which], t, W)
                high = both.p4[..., 0, 2] > both.p4[..., 1, 2]  # by rising pz, so that the choice is continuous
                one = np.where((high ^ sign)[..., None], both.p4[..., 1, :], both.p4[..., 0, :])
                away = mass(b[k, which] + lepton[k, which] + one) - TOP
                result.append(np.where(both.real, away, np.nan))
            return np.stack(result, axis=-1)

        grid = np.stack(np.meshgrid(edge, edge, indexing="ij"), axis=-1)
        seen = []
        for signs in [(False, False), (False, True), (True, False), (True, True)]:
            values = masses(grid, signs)
            corners = np.stack([values[:-1, :-1], values[1:, :-1], values[:-1, 1:], values[1:, 1:]])
            with np.errstate(invalid="ignore"):
                changes = (corners.min(axis=0) <= 0) & (corners.max(axis=0) >= 0)
                close = np.isnan(corners).any(axis=0) & (
                    np.nanmin(np.abs(np.nan_to_num(corners, nan=1e9)), 0) < 30
                )
            for i, j in np.argwhere((changes | close).all(axis=-1)):
                end = root(lambda t, s=signs: np.nan_to_num(masses(t, s), nan=1e3), grid[i, j] + 2.0)
                if end.success and np.abs(end.fun).max() < 1e-6:
                    seen.append(end.x)
        ours = found.p4[k, : found.n_real[k], 0, :2]
        for point in seen:
            assert np.abs(ours - point).max(axis=1).min() < 1e-3
        missing = [p for p in ours if np.abs(p).max() < 390 and not any(np.abs(p - s).max() < 1e-3 for s in seen)]
        assert not missing


def test_without_a_meeting_point_it_is_the_closest_approach(dilepton):
    b, lepton, neutrino = (part[:150] for part in dilepton)
    rng = np.random.default_rng(5)
    b = b * rng.normal(1, 0.12, (150, 2, 1))
    met = neutrino[:, :, :2].sum(axis=1) + rng.normal(0, 40, (150, 2))
    found = two_neutrinos(lepton, b, met, W, TOP)
    h, real = neutrino_ellipse(lepton, b, W, TOP)
    none = np.flatnonzero(found.n_real == 0)
    assert len(none) > 40
    assert np.isnan(found.p4[none, 1:]).all()
    angle = np.linspace(0, 2 * np.pi, 500)
    circle = np.stack([np.cos(angle), np.sin(angle), np.ones(500)])
    for k in none:
        one, other = h[k, :, :2] @ circle  # (2, 500)
        sums = one[:, :, None] + other[:, None, :] - met[k][:, None, None]
        assert found.mismatch[k] <= np.hypot(*sums).min() + 1e-6
        assert found.mismatch[k] > np.hypot(*sums).min() - 5
    fine = none[real[none].all(axis=1)]
    assert np.abs(mass(lepton[fine] + found.p4[fine, 0]) - W).max() < 1e-3
    assert np.abs(mass((b + lepton)[fine] + found.p4[fine, 0]) - TOP).max() < 1e-3


def test_a_top_too_heavy_for_its_mass_gets_the_smallest_possible_one(dilepton):
    b, lepton, _ = (part[:, 0] for part in dilepton)
    heavy = b * 2.5
    h, real = neutrino_ellipse(lepton, heavy, W, TOP)
    assert 0.2 < (~real).mean() < 1
    point = h[~real]
    assert np.abs(point[:, :, :2]).max() == 0
    neutrino = np.concatenate([point[:, :, 2], np.linalg.norm(point[:, :, 2], axis=1)[:, None]], axis=1)
    assert np.abs(mass(lepton[~real] + neutrino) - W).max() < 1e-2
    needed = mass((lepton + heavy)[~real] + neutrino)
    assert (needed > TOP).all()
    less, _ = neutrino_ellipse(lepton[~real], heavy[~real], W, needed * 1.0001)
    assert np.abs(less[:, :, :2]).max(axis=(1, 2)).min() > 0  # a little more, and there is an ellipse
    assert not neutrino_ellipse(lepton[~real], heavy[~real], W, needed * 0.9999)[1].any()


def test_the_order_of_the_tops_does_not_matter(dilepton):
    b, lepton, neutrino = (part[:300] for part in dilepton)
    met = neutrino[:, :, :2].sum(axis=1) + 10
    one, other = two_neutrinos(lepton, b, met, W, TOP), two_neutrinos(lepton[:, ::-1], b[:, ::-1], met, W, TOP)
    assert np.array_equal(one.n_real, other.n_real)
    assert np.allclose(one.mismatch, other.mismatch, atol=1e-6)
    some = one.n_real > 0
    assert np.allclose(one.p4[some], other.p4[some][:, :, ::-1], atol=1e-3, equal_nan=True)
