"""The columns of a result, one row per event.

event_source, event_number   permanent id of the event (uint64)
<kept columns>               run, luminosityBlock and event if the input has them, and the columns of --keep
weight                       if the input has weights
status                       ok, too_few_objects, bad_object, truncated, outside_domain, bad_output,
                             outside_selection, incomplete
n_btags                      number of b-tagged jets among those used, if the model takes tags (int32)
exact                        whether the probabilities are from sums over all assignments (bool)
n_<objects>                  number of objects of each kind that were used: n_jets, n_leptons, ... (int32)
<slot>_<kind>                index of the object in its collection of the input, -1 for none (int32); for the slot
                             t1.W.q1 it is t1_W_q1_jet
<particle>_probability, _pt, _eta, _phi, _mass    with its neutrino; NaN for none (float32); GeV and radians
<particle>_pdgid             6 or -6, if the charge of a lepton distinguishes top and antitop; 0: unknown (int32)
<particle>_visible_mass      mass of its objects, without its neutrino
<particle>_nu_pt, _nu_eta, _nu_phi, _nu_pz, _nu_pz_other    the neutrino, and pz of the next best solution
neutrino_solutions           number of real solutions; 0: none, the nearest is used; -1: no neutrino (int32)
tt_pt, _eta, _phi, _mass     the sum of all root particles with the same PDG code
event_probability            probability that the whole answer is right, also if it is that nothing is present
complete_probability, event_probability_if_complete, pattern_<particles>
                             if the model knows missing particles: the probability that every particle is present,
                             that the answer is right if so, and that exactly these particles are present (float32)
topology_<name>              probability that the event is of this topology, for a model of several (float32)
<head>, <particle>_<head>    further heads of the network, for events and particles (float32); a label of the input
                             with the same name is kept as true_<name>
<name>_<variation>           the columns from `status` on for varied objects, if there are variations
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pairton.errors import ConfigError, OutputError
from pairton.events import Events, Status
from pairton.events.vectors import polar
from pairton.reconstruction.momenta import with_sign
from pairton.topology import Slot, collection_name

if TYPE_CHECKING:
    from pairton.reconstruction.result import Reconstruction

__all__ = ["LABELS", "Columns", "result_columns", "same_columns", "same_kept", "slot_column"]

LABELS = np.array([status.label for status in Status])

Columns = dict[str, Any]  # name -> numpy array, or awkward array of lists


def slot_column(slot: Slot) -> str:
    """The column of a slot: its name without dots, which would confuse ROOT, and its kind.

    >>> from pairton.topology import load_topology
    >>> slot_column(load_topology("ttbar_allhad").slots[0])
    't1_W_q1_jet'
    """
    return f"{slot.name.replace('.', '_')}_{slot.kind}"


def result_columns(reco: Reconstruction) -> Columns:
    """The columns of a result, in the order in which they are written."""
    events = reco.events
    weight: Columns = {} if events.weights is None else {"weight": events.weights}
    kept: Columns = {**events.columns, **weight}
    ours = _answers(reco)
    for variation, varied in reco.variations.items():
        more = {f"{name}_{variation}": column for name, column in _answers(varied).items()}
        if twice := sorted(ours.keys() & more.keys()):
            raise ConfigError(f"two columns of the result are called {twice[0]}: rename the variation {variation}")
        ours |= more
    heads = reco.model.info.heads.values() if reco.model is not None else ()
    labels = {column for spec in heads for column in spec.columns}  # may have the name of a head's output
    kept = {f"true_{name}" if name in ours and name in labels else name: kept[name] for name in kept}
    ids: Columns = {"event_source": events.ids[:, 0], "event_number": events.ids[:, 1]}
    if twice := sorted(kept.keys() & (ours.keys() | ids.keys()) | (events.columns.keys() & weight.keys())):
        raise ConfigError(f"the column {twice[0]} of the input has the name of a result column: do not keep it")
    return ids | kept | ours


def _answers(reco: Reconstruction) -> Columns:
    """The columns for the nominal objects, or for those of a variation."""
    topology = reco.topology
    ours: Columns = {"status": LABELS[reco.status], "exact": reco.exact}
    ours |= {f"n_{collection_name(kind)}": used.astype(np.int32) for kind, used in reco.used.items()}
    for slot in topology.slots:
        ours[slot_column(slot)] = reco.index[:, slot.index].astype(np.int32)
    for particle in topology.particles:
        name = particle.name.replace(".", "_")
        ours[f"{name}_probability"] = reco.particle_probability[:, particle.index].astype(np.float32)
        for field, values in reco.momenta.items():
            ours[f"{name}_{field}"] = values[:, particle.index].astype(np.float32)
    ours["event_probability"] = reco.event_probability.astype(np.float32)
    return ours | _invisible(reco) | dict(reco.outputs)


def _invisible(reco: Reconstruction) -> Columns:
    """Columns of neutrinos, PDG codes, visible masses, and sums of particles."""
    topology, particles = reco.topology, reco.particles
    ours: Columns = {}
    for index in with_sign(topology):
        ours[f"{topology.particles[index].name}_pdgid"] = reco.pdgid[:, index]
    visible = polar(particles.visible)["mass"]
    solved = particles.neutrinos.p4  # (n, solutions, neutrinos, 4)
    for k, neutrino in enumerate(topology.neutrinos):
        for index in topology.ancestry(neutrino.particle):
            ours[f"{topology.particles[index].name}_visible_mass"] = visible[:, index]
        used = polar(solved[:, 0, k])
        ours |= {f"{neutrino.name}_{field}": used[field] for field in ("pt", "eta", "phi")}
        ours |= {f"{neutrino.name}_pz": solved[:, 0, k, 2], f"{neutrino.name}_pz_other": solved[:, 1, k, 2]}
    if topology.neutrinos:
        ours["neutrino_solutions"] = particles.neutrinos.solutions
    for name, p4 in particles.systems.items():
        ours |= {f"{name}_{field}": values for field, values in polar(p4).items()}
    return {
        name.replace(".", "_"): column.astype(np.float32) if column.dtype.kind == "f" else column
        for name, column in ours.items()
    }


def same_kept(chunks: Iterable[Events]) -> Iterator[Events]:
    """Pass on the chunks, but raise OutputError if only some have a column, which joining them would lose."""
    first: set[str] | None = None
    for chunk in chunks:
        names = {*chunk.columns, *(["weight"] if chunk.weights is not None else [])}
        first = names if first is None else first
        if odd := sorted(first ^ names):
            raise OutputError(f"only some inputs have the columns {', '.join(odd)}: reconstruct them one by one")
        yield chunk


def same_columns(path: str | Path, one: Sequence[str], other: Sequence[str]) -> None:
    """Raise OutputError if two inputs of one result have different columns."""
    if list(one) != list(other):
        odd = ", ".join(sorted(set(one) ^ set(other))) or "in another order"
        raise OutputError(f"{path}: only some inputs have the columns {odd}: write them to two files")
