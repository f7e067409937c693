"""Assignments from a kinematic likelihood: each permutation of the objects is fitted, and the best one is taken.

If root particles are independent (fixed masses, at most one neutrino), the likelihood of a permutation is the
product of the likelihoods of its root particles. Each candidate of a root is then fitted once, and exact sums over
sets of objects cover all permutations. If they are not independent (two tops share a free mass, two neutrinos
share the missing energy), such a product ranks the permutations, and the best ones are fitted as a whole.

The fitted quantities of the best permutation are outputs by name, in GeV, radians and float32:

log_likelihood                                 of the answer, without the terms of tags
fitted_energy, fitted_energy_error             of the object in each slot
fitted_pt, fitted_eta, fitted_phi, fitted_mass of each particle, including its neutrinos
fitted_px, fitted_py, fitted_pz                of each neutrino
fitted_free_mass_<particle>, ..._error         a free mass, named after the first particle that has it

Errors are standard deviations from the curvature of log L at its maximum, with all other parameters free.

Shapes: F fits, B events, S slots, P particles, C candidates of a type, k permutations, D parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded, Outputs
from pairton.decoding.exact import Sums
from pairton.decoding.patterns import allowed_nodes
from pairton.decoding.set_sums import best, marginals
from pairton.decoding.set_tables import SetTables, set_tables
from pairton.errors import EventsError
from pairton.events.inputs import Inputs
from pairton.events.nodes import Nodes
from pairton.events.vectors import polar
from pairton.kinematics.decays import Decay, decay_of, is_b, roots_are_independent
from pairton.kinematics.fit_settings import FitSettings
from pairton.kinematics.objective import Problem
from pairton.kinematics.observed import Observed, inputs_of, observe
from pairton.kinematics.starts import fit, log_volume, standard_deviations
from pairton.topology import Layout, Topology
from pairton.topology.assignments import canonical_within
from pairton.topology.kinds import KINDS

__all__ = ["KinematicFit", "Permutations"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]

MOMENTUM = ("pt", "eta", "phi", "mass")
COMPONENTS = ("px", "py", "pz")
FITS_AT_ONCE = 16384  # so that the arrays of all their starts fit in the cache
SHARED_MET_SIGMA = 60.0  # GeV: for the ranking, spread of one neutrino around its share of the missing energy


class Permutations(NamedTuple):
    """The best permutations of each event, in order; if an event has fewer than k, the rest have log L = -inf."""

    assignment: npt.NDArray[np.int32]  # (B, k, S): nodes; -1 for none
    log_likelihood: Floats  # (B, k): without tags
    probability: Floats  # (B, k): with tags, among all permutations, or among those that were fitted
    outputs: Outputs  # (B, k) or (B, k, places): fitted quantities


class _Ranked(NamedTuple):
    """The best permutations of a block of events; fitted quantities are NaN where there is no permutation."""

    assignment: npt.NDArray[np.int32]  # (B, k, S)
    probability: Floats  # (B, k); 0 where there is no permutation
    particle_probability: Floats  # (B, P): of the first permutation
    outputs: Outputs  # (B, k) or (B, k, places)


class KinematicFit:
    """The kinematic likelihood of a topology.

    >>> from pairton.kinematics.fit_settings import load_settings
    >>> from pairton.topology import load_topology
    >>> KinematicFit(load_topology("ttbar_semilep"), load_settings()).independent
    True
    """

    def __init__(self, topology: Topology, settings: FitSettings) -> None:
        topology.refuse_merged("a kinematic fit")
        self.topology, self.settings = topology, settings
        self.inputs: Inputs = inputs_of(topology, settings)
        self.whole: Decay = decay_of(topology, topology.roots, settings)
        self.independent: bool = roots_are_independent(topology, settings)
        alone = settings if self.independent else settings.with_fixed_masses()
        self.roots: dict[str, Decay] = {root.type: decay_of(topology, [root], alone) for root in topology.roots}

    @cached_property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """Names and axes of the fitted quantities that `answer` returns."""
        return output_axes(self.whole)

    def can_fit(self, layout: Layout) -> bool:
        """Whether events of a layout have the missing energy that neutrinos need."""
        counts = zip(self.topology.kinds, layout, strict=True)
        return not self.whole.neutrinos or any(count for kind, count in counts if KINDS[kind].transverse)

    def answer(self, nodes: Nodes) -> tuple[Decoded, Outputs]:
        """The best assignment of each event with probabilities, and the fitted quantities.

        The events must have the same layout. An event without an allowed permutation has no answer.
        """
        topology, n = self.topology, len(nodes)
        answer = Decoded.empty(topology, n)
        places = {"slot": topology.slots, "particle": topology.particles, "neutrino": topology.neutrinos}
        shapes = {name: (n, *(len(places[axis]) for axis in axes)) for name, axes in self.axes.items()}
        outputs = {name: np.full(shape, np.nan, dtype=np.float32) for name, shape in shapes.items()}
        listed = 1 if self.independent else self._listed(nodes, self.settings.permutations)
        exact = self.independent or topology.count_assignments(nodes.layout) <= listed
        for events, ranked in self._blocks(nodes, listed):
            possible = ranked.probability[:, 0] > 0
            answer.assignment[events] = ranked.assignment[:, 0]
            answer.event_probability[events] = np.where(possible, ranked.probability[:, 0], np.nan)
            answer.particle_probability[events] = ranked.particle_probability
            answer.exact[events] = possible & exact
            for name, values in ranked.outputs.items():
                outputs[name][events] = values[:, 0]
        return answer, outputs

    def permutations(self, nodes: Nodes, k: int | None = None) -> Permutations:
        """The k best permutations of each event; the default of k is `settings.permutations`."""
        most = self._listed(nodes, self.settings.permutations if k is None else k)
        parts = [ranked for _, ranked in self._blocks(nodes, most)]
        if not parts:
            raise EventsError("these events have no missing energy, which the fit of a neutrino needs")
        outputs = {name: np.concatenate([part.outputs[name] for part in parts]) for name in self.axes}
        log_likelihood = outputs["log_likelihood"].astype(np.float64)
        return Permutations(
            np.concatenate([part.assignment for part in parts]),
            np.where(np.isnan(log_likelihood), -np.inf, log_likelihood),
            np.concatenate([part.probability for part in parts]),
            outputs,
        )

    # -- one block of events -------------------------------------------------------------------------------

    def _listed(self, nodes: Nodes, most: int) -> int:
        """The number of permutations, at least 1 and at most `most`."""
        return max(1, min(most, self.topology.count_assignments(nodes.layout)))

    def _blocks(self, nodes: Nodes, k: int) -> Iterator[tuple[slice, _Ranked]]:
        """The k best permutations of blocks of events; none if neutrinos lack missing energy."""
        if not self.can_fit(nodes.layout):
            return
        tables = set_tables(self.topology, allowed_nodes(self.topology, nodes.layout), complete_only=True)
        observed = observe(nodes, self.inputs, self.settings)
        fits = max(k, *(len(tables.candidates[name].objects) for name in self.roots))
        step = max(1, FITS_AT_ONCE // fits)
        for start in range(0, len(nodes), step):
            events = slice(start, min(start + step, len(nodes)))
            yield events, self._ranked(tables, observed.take(events), k)

    def _ranked(self, tables: SetTables, some: Observed, k: int) -> _Ranked:
        """The k best permutations; they are fitted as a whole unless root particles are independent."""
        scores, parameters = self._candidates(tables, some)
        own = _own_scores(tables, scores)
        ranking = best(tables, own, k=k, patterns=[0])
        assignment, total = ranking.assignment.astype(np.int32), ranking.score
        nodes = np.maximum(assignment, 0)
        objects = nodes.transpose(1, 2, 0)  # (k, S, B)
        problem = some.problem(self.whole, self.settings, objects)
        found = self._joined(tables, nodes, parameters).reshape(self.whole.n_parameters, -1)  # (D, k B)
        if not self.independent:
            several = self.settings.starts == "several"
            found, value = fit(problem, several, found[:, None] if several else None)
            value = self._compared(problem, found, value)
            value = value.reshape(len(objects), -1) + some.tag_terms(objects, is_b(self.topology))
            total = np.where(np.isfinite(total), value.T, -np.inf)
        outputs = {
            name: values.reshape(len(objects), -1, *values.shape[1:]).swapaxes(0, 1)  # (B, k, ...)
            for name, values in fitted_outputs(problem, found).items()
        }
        if not self.independent:
            order = np.argsort(-total, axis=1, kind="stable")
            row = np.arange(len(order))[:, None]
            total, assignment = total[row, order], assignment[row, order]
            outputs = {name: values[row, order] for name, values in outputs.items()}
        none = ~np.isfinite(total)
        assignment[none] = -1
        for values in outputs.values():
            values[none] = np.nan
        if self.independent:
            sums = Sums(tables, own, None, *marginals(tables, own))
            norm, particles = sums.log_normaliser, sums.particle_probability(assignment[:, 0])
            probability = np.exp(total - np.where(np.isfinite(norm), norm, 0)[:, None])
        else:
            weight = np.exp(total - np.where(none[:, :1], 0, total[:, :1]))  # the first is the largest
            probability = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1)
            particles = _marginals(self.topology, assignment, probability)
        return _Ranked(assignment, probability, particles, outputs)

    def _candidates(self, tables: SetTables, some: Observed) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """The candidates of each root type: log L with tags (C, B), and fitted parameters (D, C, B)."""
        neutrinos = len(self.whole.neutrinos)
        b_slots = is_b(self.topology)
        scores, parameters = {}, {}
        for name, decay in self.roots.items():
            objects = tables.candidates[name].objects
            shared = (neutrinos, SHARED_MET_SIGMA) if decay.neutrinos and neutrinos > 1 else None
            problem = some.problem(decay, self.settings, objects, shared)
            found, value = fit(problem, self.settings.starts == "several")
            value = self._compared(problem, found, value)
            shape = len(objects), some.energy.shape[1]
            scores[name] = value.reshape(shape) + some.tag_terms(objects, [b_slots[slot] for slot in decay.slots])
            parameters[name] = found.reshape(-1, *shape)
        return scores, parameters

    def _compared(self, problem: Problem, found: Floats, value: Floats) -> Floats:
        """(F,): the value by which fits are compared: log L at the maximum, or log of the integral of L."""
        return value + log_volume(problem, found) if self.settings.integrate else value

    def _joined(self, tables: SetTables, nodes: Ints, parameters: Mapping[str, Floats]) -> Floats:
        """(D, k, B): the parameters of permutations (B, k, S), from those of their root particles."""
        whole, (events, k, slots) = self.whole, nodes.shape
        result = np.empty((whole.n_parameters, k, events))
        for at, (_, mass) in enumerate(whole.free):
            result[whole.first_free + at] = mass.mass
        row = np.arange(events)
        neutrino = 0
        for root in self.topology.roots:
            decay = self.roots[root.type]
            objects = canonical_within(self.topology, root, nodes.reshape(-1, slots))
            which = np.maximum(tables.candidates[root.type].find(objects), 0).reshape(events, k)
            own = parameters[root.type][:, which.T, row]  # (D of the root, k, B)
            result[[whole.slots.index(slot) for slot in root.slots]] = own[: decay.n_visible]
            first = whole.n_visible + 3 * neutrino
            result[first : first + 3 * len(decay.neutrinos)] = own[decay.n_visible : decay.first_free]
            neutrino += len(decay.neutrinos)
            for at, free in enumerate(decay.free):
                result[whole.first_free + whole.free.index(free)] = own[decay.first_free + at]
        return result


def _own_scores(tables: SetTables, scores: Mapping[str, Floats]) -> dict[str, Floats]:
    """Type -> (C, B): the score of each candidate minus those of its children; 0 for types that are no roots."""
    events = next(iter(scores.values())).shape[1]
    own = {}
    for name, known in tables.candidates.items():
        own[name] = scores.get(name, np.zeros((len(known.objects), events)))
        for child, rows in known.children:
            if name in scores and child in scores:
                own[name] = own[name] - scores[child][rows]
    return own


def _marginals(topology: Topology, assignment: Ints, chance: Floats) -> Floats:
    """(B, P): for each particle of the first permutation, the probability of all (B, k, S) that contain it.

    NaN in events without a permutation.
    """
    events, k, slots = assignment.shape
    flat = assignment.reshape(-1, slots)
    found = {p.index: canonical_within(topology, p, flat).reshape(events, k, -1) for p in topology.particles}
    result = np.empty((events, len(topology.particles)))
    for particle in topology.particles:
        first = found[particle.index][:, :1]
        same = np.zeros((events, k), dtype=bool)
        for other in topology.of_type(particle.type):
            same |= (found[other.index] == first).all(axis=2)
        result[:, particle.index] = (chance * same).sum(axis=1)
    result[chance[:, 0] == 0] = np.nan
    return result


def output_axes(decay: Decay) -> dict[str, tuple[str, ...]]:
    """Name -> axes of each output after the event axis, for the decay of a whole event."""
    axes: dict[str, tuple[str, ...]] = {"log_likelihood": ()}
    axes |= {"fitted_energy": ("slot",), "fitted_energy_error": ("slot",)}
    axes |= {f"fitted_{name}": ("particle",) for name in MOMENTUM}
    axes |= {f"fitted_{name}": ("neutrino",) for name in COMPONENTS if decay.neutrinos}
    for k in range(len(decay.free)):
        first = next(resonance.name for resonance in decay.resonances if resonance.free == k)
        name = f"fitted_free_mass_{first.replace('.', '_')}"
        axes |= {name: (), f"{name}_error": ()}
    return axes


def fitted_outputs(problem: Problem, parameters: Floats) -> Outputs:
    """The outputs (F,) or (F, places) of fits of whole events with parameters (D, F)."""
    decay = problem.decay
    leaves = problem.leaves(parameters)  # (L, 4, F)
    particles = np.stack([leaves[list(own)].sum(axis=0) for _, own in decay.leaves_of])  # (P, 4, F)
    momenta = polar(particles.transpose(2, 0, 1))
    errors = standard_deviations(problem, parameters)
    energies = leaves[: decay.n_visible, 3].T, errors[: decay.n_visible].T
    found = [problem.value(parameters), *energies, *(momenta[name] for name in MOMENTUM)]
    if decay.neutrinos:
        found += [leaves[decay.n_visible :, axis].T for axis in range(len(COMPONENTS))]
    for k in range(decay.first_free, len(parameters)):
        found += [parameters[k], errors[k]]
    names = output_axes(decay)
    return {name: values.astype(np.float32) for name, values in zip(names, found, strict=True)}
