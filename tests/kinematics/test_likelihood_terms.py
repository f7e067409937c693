"""Transfer functions, the objective and its derivatives, and Newton's steps."""

import numpy as np
import pytest

from pairton.errors import ConfigError
from pairton.events import Events
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.events.objects import make_jets
from pairton.kinematics.fit_settings import load_settings, parse_settings
from pairton.kinematics.fitting import KinematicFit
from pairton.kinematics.newton import maximise, solve
from pairton.kinematics.objective import BREIT_WIGNER, NORMAL, UNUSED
from pairton.kinematics.observed import observe
from pairton.kinematics.starts import fit as best_fit
from pairton.kinematics.starts import limits, log_volume
from pairton.kinematics.transfer_functions import parse_transfer, response
from pairton.topology import parse_topology

WIDE = {"share": 0.3, "scale": 0.8, "offset": 5.0, "b": 1.4}
MIXTURE = [
    {"abs_eta": 1.0, "components": [{"share": 0.7, "scale": 0.97, "a": 0.05, "b": 0.6, "c": 1.0}, WIDE]},
    {"abs_eta": 2.5, "a": 0.1, "c": 2.0},
]
TRANSFER = {"b": MIXTURE, "light": MIXTURE, "lepton": [{"a": 0.02}], "met": {"b": 0.5, "c": 10}}


def problem_of(tops, kinds, **changes):
    """The fits of the true permutation of some toy events, as a whole."""
    events, _ = tops(kinds, n=6)
    settings = parse_settings({"transfer": TRANSFER, **changes}, "test")
    fit = KinematicFit(events.topology, settings)
    accepted = accept(events, Domain(), fit.inputs)
    ((layout, rows),) = accepted.by_layout(accepted.answerable)
    nodes = accepted.batch(rows, layout)
    truth = accepted.to_nodes(events.truth, rows, layout)
    return observe(nodes, fit.inputs, settings).problem(fit.whole, settings, truth.T[None])


def near(problem, seed=0):
    """Parameters away from any maximum."""
    rng = np.random.default_rng(seed)
    lower, upper, scale = limits(problem)
    decay = problem.decay
    start = np.zeros_like(scale)
    start[: decay.n_visible] = problem.measured
    for k in range(len(decay.neutrinos)):
        at = decay.n_visible + 3 * k
        start[at : at + 3] = rng.normal(0, 1, (3, scale.shape[1])) * [[600], [1], [1]] + [[6400], [0], [0]]
    start[decay.first_free :] = 160
    return np.clip(start + 0.4 * scale * rng.normal(size=scale.shape), lower, upper)


FREE = {"masses": {6: {"mass": 172.5, "width": 1.5, "free": True}}}


@pytest.mark.parametrize("shape", [BREIT_WIGNER, NORMAL])
@pytest.mark.parametrize(("kinds", "changes"), [("hh", FREE), ("hl", {}), ("hl", FREE), ("ll", FREE)])
def test_derivatives_are_those_of_the_value(tops, kinds, changes, shape):
    problem = problem_of(tops, kinds, **changes)
    shapes = [shape] * len(problem.decay.resonances)
    shapes[-1] = UNUSED
    problem = problem.with_shapes(shapes)
    here = near(problem)
    gradient, hessian = problem.derivatives(here)
    _, _, scale = limits(problem)
    for k in range(len(here)):
        step = np.zeros_like(here)
        step[k] = 1e-4 * scale[k]
        up, down = here + step, here - step
        slope = -(problem.value(up) - problem.value(down)) / (2 * step[k])
        assert gradient[k] * scale[k] == pytest.approx(slope * scale[k], rel=1e-4, abs=1e-4)
        if shape == NORMAL:  # of a Breit-Wigner, the Hessian is that of a parabola above it
            bend = (problem.derivatives(up)[0] - problem.derivatives(down)[0]) / (2 * step[k])
            size = np.abs(hessian[k:, k] * scale[k:] * scale[k]).max()
            assert hessian[k:, k] * scale[k:] * scale[k] == pytest.approx(
                bend[k:] * scale[k:] * scale[k], rel=1e-4, abs=1e-5 * size
            )


def test_a_measured_energy_is_somewhere():
    transfer = parse_transfer(TRANSFER, "transfer")
    energy = np.linspace(-200, 600, 8001)
    for abs_eta, true in ((0.5, 60.0), (1.4, 60.0), (4.0, 200.0)):
        known = response([transfer.b], np.full((1, len(energy)), abs_eta))
        density = np.exp(known.log_density(np.full((1, len(energy)), true), energy[None]))
        assert np.trapezoid(density[0], energy) == pytest.approx(1, abs=1e-4)
        mean = np.trapezoid(density[0] * energy, energy)
        assert mean == pytest.approx(0.7 * 0.97 * true + 0.3 * (0.8 * true + 5) if abs_eta < 1 else true, rel=1e-3)


def test_far_from_every_component_the_density_is_still_a_number():
    bins = parse_transfer(TRANSFER, "transfer")
    known = response([bins.b, bins.lepton], np.full((2, 3), 0.5))
    energy, measured = np.full((2, 3), 50.0), np.array([[50.0, 500.0, 5000.0]] * 2)
    assert np.isfinite(known.log_density(energy, measured)).all()
    assert all(np.isfinite(part).all() for part in known.derivatives(energy, measured))


def test_settings_are_read_back_as_they_were_written():
    settings = parse_settings({"transfer": TRANSFER, **FREE, "tags": {"efficiency": 0.8, "rejection": 50}}, "mine")
    assert parse_settings(settings.to_dict(), "mine") == settings
    assert parse_settings(load_settings().to_dict(), "mine") == load_settings()
    assert parse_settings({}, "mine") == load_settings()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"mases": {}}, "did you mean 'masses'"),
        ({"masses": {6: {"mass": 172.5, "width": 0}}}, "must be a number above 0"),
        ({"masses": {6: {"mass": "heavy", "width": 1}}}, "must be a number"),
        ({"masses": {-6: {"mass": 172.5, "width": 1}}}, "must be a PDG code, such as 6, or the name"),
        ({"tags": "some"}, "must be a mapping.*or one of evidence, none"),
        ({"tags": {"efficiency": 1.2}}, "at least 0 and at most 1"),
        ({"starts": "many"}, "one of several, klfitter"),
        ({"permutations": 0}, "at least 1 and at most"),
        ({"transfer": {"b": []}}, "lacks light, lepton, met"),
        ({"transfer": {**TRANSFER, "b": [{"a": 0.1}, {"a": 0.1}]}}, "above that of the previous bin"),
        ({"transfer": {**TRANSFER, "b": [{"abs_eta": 2.5}]}}, "one of a, b, c must be above 0"),
        ({"transfer": {**TRANSFER, "b": [{"components": [{"share": 0.5, "a": 0.1}]}]}}, "add up to 0.5"),
        ({"transfer": {**TRANSFER, "met": {"b": 0, "c": 0}}}, "one above 0"),
    ],
)
def test_odd_settings_are_one_line(raw, said):
    with pytest.raises(ConfigError, match=said) as found:
        parse_settings(raw, "mine.yaml")
    assert "\n" not in str(found.value)
    assert "mine.yaml" in str(found.value)


def test_solve_is_exact_where_the_matrix_is_positive_and_goes_down_where_not():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(50, 4, 4))
    matrices, right = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(4), rng.normal(size=(50, 4))
    matrices[25:] -= 3 * np.eye(4)  # not positive definite
    least = np.full((4, 50), 1e-3)
    found = solve(matrices.transpose(1, 2, 0).copy(), right.T.copy(), least)
    expected = np.linalg.solve(matrices[:25], right[:25, :, None])[..., 0]
    np.testing.assert_allclose(found[:, :25].T, expected, rtol=1e-6)
    assert ((found * right.T).sum(axis=0) > 0).all()


class Parabola:
    """-(x - centre)^2 in two parameters."""

    def __init__(self, centre):
        self.centre = centre

    def value(self, x):
        return -((x - self.centre) ** 2).sum(axis=0)

    def derivatives(self, x):
        hessian = np.zeros((2, 2, x.shape[1]))
        hessian[0, 0] = hessian[1, 1] = 2
        return 2 * (x - self.centre), hessian

    def take(self, fits):
        return Parabola(self.centre[:, fits])


def test_steps_stop_at_bounds():
    centre = np.array([[3.0, -5.0], [7.0, 1.0]])
    ones = np.ones((2, 2))
    best, value = maximise(Parabola(centre), 0 * ones, -4 * ones, 4 * ones, ones, 50)
    assert best == pytest.approx(np.array([[3.0, -4.0], [4.0, 1.0]]), abs=1e-3)
    assert value == pytest.approx([-9, -1], abs=1e-3)


def test_a_fit_does_not_depend_on_its_neighbours(tops):
    problem = problem_of(tops, "hl", **FREE)
    together, values = best_fit(problem, True)
    for k in range(3):
        alone, value = best_fit(problem.take(np.array([k])), True)
        assert alone[:, 0] == pytest.approx(together[:, k], rel=1e-9)
        assert value[0] == pytest.approx(values[k], rel=1e-12)


def test_several_starts_find_what_random_ones_find(tops):
    """Wrong permutations too, which have several maxima: each resonance on its peak or in its tail."""
    events, _ = tops("hl", n=10, smear=0.15)
    gaussian = [{"a": 0.05, "b": 0.8}]
    transfer = {"b": gaussian, "light": gaussian, "lepton": [{"a": 0.02}], "met": {"c": 15}}
    fit = KinematicFit(events.topology, parse_settings({"transfer": transfer, "tags": "none"}, "test"))
    accepted = accept(events, Domain(), fit.inputs)
    ((layout, rows),) = accepted.by_layout(accepted.answerable)
    observed = observe(accepted.batch(rows, layout), fit.inputs, fit.settings)
    for decay, objects in (
        (fit.roots["t"], np.array([(0, 1, 2), (1, 2, 0), (3, 1, 2), (0, 3, 1)])),
        (fit.roots["tl"], np.array([(k, 4) for k in range(4)])),
    ):
        problem = observed.problem(decay, fit.settings, objects)
        lower, upper, scale = limits(problem)
        _, best = best_fit(problem, True)
        worse = np.zeros(len(best), dtype=bool)
        for k in range(20):
            _, value = maximise(problem, near(problem, k), lower, upper, scale, 100)
            worse |= value > best + 0.05
        assert worse.mean() < (0.03 if decay.neutrinos else 0.001)


def test_the_volume_is_that_of_an_integral():
    """Two energies around one resonance: the sum over a grid, and Laplace's method."""
    topology = parse_topology({"name": "x", "event": ["X"], "particles": {"X": ["j", "j"]}})
    jets = [{"abs_eta": 5, "c": 6.0}]
    given = {
        "masses": {"X": {"mass": 90, "width": 8}},
        "transfer": {"b": jets, "light": jets, "lepton": jets, "met": {"c": 1}},
    }
    settings = parse_settings(given, "test")
    events = Events(
        make_jets(pt=[[50.0, 40.0]], eta=[[0.1, -0.3]], phi=[[0.2, 2.9]], energy=[[51.0, 42.0]], btag=[[0, 0]]),
        topology,
    )
    fit = KinematicFit(topology, settings)
    nodes = accept(events, Domain(), fit.inputs).batch(np.array([0]), (2,))
    problem = observe(nodes, fit.inputs, settings).problem(fit.whole, settings, np.array([[0, 1]]))
    found, value = best_fit(problem, True)
    axis = [np.linspace(energy - 48, energy + 48, 161) for energy in found[:, 0]]
    grid = np.stack(np.meshgrid(*axis, indexing="ij")).reshape(2, -1)
    at = problem.take(np.zeros(grid.shape[1], dtype=int)).value(np.maximum(grid, 1.0))
    cell = (axis[0][1] - axis[0][0]) * (axis[1][1] - axis[1][0])
    integral = np.log((np.exp(at - value) * cell * (grid > 0).all(axis=0)).sum())
    # of a Breit-Wigner, Laplace's method misses tails: a factor sqrt(pi) at most, the same for all permutations
    assert 0 < integral - log_volume(problem, found)[0] < 0.5 * np.log(np.pi)
    without = parse_settings({**given, "masses": {"X": None}}, "test")  # only Gaussians are left: exact
    alone = KinematicFit(topology, without)
    free = observe(nodes, fit.inputs, without).problem(alone.whole, without, np.array([[0, 1]]))
    assert log_volume(free, free.measured)[0] == pytest.approx(2 * np.log(6 * np.sqrt(2 * np.pi)))
