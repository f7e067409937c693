"""The results of a kinematic fit, as outputs by name.

log_likelihood                                 of the answer, without the terms of tags
fitted_energy                                  of the object in each slot
fitted_pt, fitted_eta, fitted_phi, fitted_mass of each particle, including its neutrinos
fitted_px, fitted_py, fitted_pz                of each neutrino
fitted_free_mass_<particle>                    a free mass, named after the first particle that has it

Units are GeV and radians, in float32. Shapes: F fits, B events, k permutations, S slots, P particles, K neutrinos.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pairton.decoding import Outputs
from pairton.events.vectors import polar
from pairton.kinematics.decays import Decay
from pairton.kinematics.objective import Problem

__all__ = ["fitted_outputs", "output_axes"]

Floats = npt.NDArray[np.float64]

MOMENTUM = ("pt", "eta", "phi", "mass")
COMPONENTS = ("px", "py", "pz")


def output_axes(decay: Decay) -> dict[str, tuple[str, ...]]:
    """Name -> axes of each output after the event axis, for the decay of a whole event."""
    axes: dict[str, tuple[str, ...]] = {"log_likelihood": (), "fitted_energy": ("slot",)}
    axes |= {f"fitted_{name}": ("particle",) for name in MOMENTUM}
    axes |= {f"fitted_{name}": ("neutrino",) for name in COMPONENTS if decay.neutrinos}
    for k in range(len(decay.free)):
        first = next(resonance.name for resonance in decay.resonances if resonance.free == k)
        axes[f"fitted_free_mass_{first.replace('.', '_')}"] = ()
    return axes


def fitted_outputs(problem: Problem, parameters: Floats) -> Outputs:
    """The outputs (F,) or (F, places) of fits of whole events with parameters (D, F)."""
    decay = problem.decay
    leaves = problem.leaves(parameters)  # (L, 4, F)
    particles = np.stack([leaves[list(own)].sum(axis=0) for _, own in decay.leaves_of])  # (P, 4, F)
    momenta = polar(particles.transpose(2, 0, 1))
    found = [problem.value(parameters), leaves[: decay.n_visible, 3].T, *(momenta[name] for name in MOMENTUM)]
    if decay.neutrinos:
        found += [leaves[decay.n_visible :, axis].T for axis in range(len(COMPONENTS))]
    found += list(parameters[decay.first_free :])
    names = output_axes(decay)
    return {name: values.astype(np.float32) for name, values in zip(names, found, strict=True)}
