"""Four-vectors against those of the vector package, and against each other."""

import numpy as np
import pytest
import vector

from pairton.events.vectors import cartesian, energy_of, mass_of, pair_products, polar


@pytest.fixture
def columns():
    rng = np.random.default_rng(0)
    shape = (5, 7)  # events, objects
    pt, eta = rng.uniform(20, 300, shape), rng.normal(0, 1.5, shape)
    return {"pt": pt, "eta": eta, "phi": rng.uniform(-np.pi, np.pi, shape), "mass": rng.uniform(0, 30, shape)}


def p4_of(columns):
    energy = energy_of(columns["pt"], columns["eta"], columns["mass"])
    return cartesian(columns["pt"], columns["eta"], columns["phi"], energy)


def test_there_and_back(columns):
    found = polar(p4_of(columns))
    for name, values in columns.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-4)
    energy = energy_of(columns["pt"], columns["eta"], columns["mass"])
    np.testing.assert_allclose(mass_of(columns["pt"], columns["eta"], energy), columns["mass"], atol=1e-4)


def test_sums_are_those_of_vector_and_products_add_up_to_the_mass(columns):
    p4, chosen = p4_of(columns), [1, 4, 6]
    each = vector.array(columns)
    theirs = each[:, 1] + each[:, 4] + each[:, 6]
    ours = polar(p4[:, chosen].sum(axis=1))
    for name in ("pt", "eta", "phi", "mass"):
        np.testing.assert_allclose(ours[name], getattr(theirs, name), rtol=1e-9)
    square = pair_products(p4)[:, chosen][:, :, chosen].sum(axis=(1, 2))
    np.testing.assert_allclose(np.sqrt(square), ours["mass"], rtol=1e-9)


def test_a_negative_square_is_a_negative_mass():
    assert mass_of(5.0, 0.0, 3.0) == -4.0
    assert energy_of(5.0, 0.0, -4.0) == 3.0
    assert polar(np.array([5.0, 0.0, 0.0, 3.0]))["mass"] == -4.0
