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
<particle>_state             absent, resolved or merged, for particles that may be one object
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
true_<slot>_<kind>           with --truth: index of the labelled object, -1 for none (int32)
<particle>_truth             with --truth: right, wrong, or not_reconstructible if an object has no label
best_probability, best_<slot>_<kind>
                             with --best K: lists of the K most probable assignments
<head>, <particle>_<head>    further heads of the network, for events and particles (float32); a label of the input
                             with the same name is kept as true_<name>
<name>_<variation>           the columns from `status` on for varied objects, if there are variations

The column of a head has its number, or P(class 1) for two classes; for more there are <head>_0, <head>_1, ... It
is NaN where the answer has no such particle. Outputs of a kinematic fit are columns too: log_likelihood,
<particle>_fitted_pt, <slot>_fitted_energy, ...

A place is a particle or product that a head describes.
Shapes: n events, B events of a batch, N nodes, S slots, P particles, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.decoding import Decoded
from pairton.decoding.patterns import plan_of
from pairton.errors import ConfigError, EventsError, OutputError
from pairton.events import Events, Status
from pairton.events.head_specs import HeadSpec, places_of
from pairton.events.vectors import polar
from pairton.reconstruction.momenta import pick, with_sign
from pairton.topology import Slot, Topology, collection_name
from pairton.topology.assignments import STATES, aligned, present, states
from pairton.topology.vocabulary import parts_of

if TYPE_CHECKING:
    from pairton.reconstruction.result import Reconstruction

__all__ = [
    "DECODED",
    "LABELS",
    "MODEL_FOLD",
    "N_BTAGS",
    "Columns",
    "best_columns",
    "head_columns",
    "head_shape",
    "head_values",
    "output_columns",
    "pattern_columns",
    "place_sizes",
    "place_titles",
    "positions",
    "reordered",
    "result_columns",
    "same_columns",
    "same_kept",
    "slot_column",
    "stored_assignment",
    "topology_columns",
    "truth_columns",
]

LABELS = np.array([status.label for status in Status])
DECODED = ("edges", "triplets", "patterns")  # outputs for the decoding; others describe events
N_BTAGS, MODEL_FOLD = "n_btags", "model_fold"  # columns of some models

Columns = dict[str, Any]  # name -> numpy array, or awkward array of lists
Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


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
    state = np.array(STATES)[states(topology, reco.assignment)]
    for particle in topology.particles:
        name = particle.name.replace(".", "_")
        if particle.merged_slot >= 0:
            ours[f"{name}_state"] = state[:, particle.index]
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


def stored_assignment(events: Events, assignment: Ints) -> npt.NDArray[np.int32]:
    """(n, S): the indices in the input file of the objects at these positions (n, S), -1 for none."""
    result = np.array(assignment, dtype=np.int32)
    for slot in events.topology.slots:
        if "index" in ak.fields(events.objects[slot.kind]):
            flat = np.asarray(ak.flatten(events.stored_index[slot.kind]), dtype=np.int32)
            result[:, slot.index] = np.where(
                assignment[:, slot.index] >= 0, pick(flat, events, slot.kind, assignment[:, slot.index]), -1
            )
    return result


def positions(events: Events, stored: Ints) -> npt.NDArray[np.int64]:
    """(n, S): the positions in `events.objects` of objects with these indices in the input (n, S), -1 for none."""
    result = np.array(stored, dtype=np.int64)
    for slot in events.topology.slots if len(stored) else ():
        column, counts = stored[:, slot.index], events.counts[slot.kind]
        if "index" not in ak.fields(events.objects[slot.kind]):
            result[:, slot.index] = np.where(column < counts, column, -1)
            continue
        padded = ak.pad_none(events.stored_index[slot.kind], int(counts.max()), axis=1)
        same = ak.to_numpy(ak.fill_none(padded, -2)) == column[:, None]  # (n, N)
        result[:, slot.index] = np.where(same.any(axis=1), same.argmax(axis=1), -1) if same.shape[1] else -1
    return result


# -- outputs of the model besides the answer ---------------------------------------------------------------


def head_shape(spec: HeadSpec, topology: Topology) -> tuple[int, ...]:
    """The shape of the values of a head for one event, as `head_values` returns them."""
    places = () if spec.of_event else (len(places_of(topology, spec.of)),)
    return (*places, spec.width) if spec.is_class else places


def head_values(spec: HeadSpec, topology: Topology, output: Floats, assignment: Ints) -> Floats:
    """(B, ...): probabilities of classes, or numbers, from the output of a network.

    assignment: (B, S), the nodes of the answer; -1 for none
    """
    values = np.asarray(output, dtype=np.float64)
    if not spec.of_event:
        values = np.stack([_place(values, assignment[:, list(p.slots)]) for p in places_of(topology, spec.of)], 1)
    if spec.is_class:
        values = np.exp(values - values.max(axis=-1, keepdims=True, initial=-np.inf))
        values = values / values.sum(axis=-1, keepdims=True)
    elif not spec.of_event:
        values = values[..., 0]
        if spec.loss == "log_gaussian":
            values = 2 * np.sinh(values)
    return values.astype(np.float32)


def _place(output: Floats, nodes: Ints) -> Floats:
    """(B, C): the mean of (B, C, N, N) over all pairs of nodes (B, K); NaN where one is -1."""
    at = np.maximum(nodes, 0)
    rows = np.arange(len(at))[:, None, None]
    picked = output.transpose(0, 2, 3, 1)[rows, at[:, :, None], at[:, None, :]].mean(axis=(1, 2))
    return np.where((nodes >= 0).all(axis=1, keepdims=True), picked, np.nan)


def reordered(spec: HeadSpec, topology: Topology, values: Floats, slots: Ints) -> Floats:
    """The values of a head after interchangeable particles were exchanged; slots (n, S): the previous ones."""
    if spec.of_event:
        return values
    places = places_of(topology, spec.of)
    at = np.zeros(len(topology.slots), dtype=np.intp)  # slot -> place
    for k, place in enumerate(places):
        at[list(place.slots)] = k
    order = at[slots[:, [place.slots[0] for place in places]]]  # (n, places)
    return np.take_along_axis(values, order.reshape(*order.shape, *[1] * (values.ndim - 2)), axis=1)


def place_titles(name: str, topology: Topology, of: str) -> list[str]:
    """The column of a head for the event, or for each of its particles or products."""
    return [f"{p.name.replace('.', '_')}_{name}" if p.name else name for p in places_of(topology, of)]


def head_columns(name: str, spec: HeadSpec, topology: Topology, values: Floats) -> dict[str, Floats]:
    """The columns of one head in a result, (n,) each."""
    columns = {}
    for k, title in enumerate(place_titles(name, topology, spec.of)):
        own = values if spec.of_event else values[:, k]
        if not spec.is_class:
            columns[title] = own
        elif spec.width == 2:
            columns[title] = own[:, 1]
        else:
            columns |= {f"{title}_{c}": own[:, c] for c in range(spec.width)}
    return columns


def place_sizes(topology: Topology) -> dict[str, int]:
    """The sizes of output axes with one entry per slot, particle or neutrino of the answer."""
    return {"slot": len(topology.slots), "particle": len(topology.particles), "neutrino": len(topology.neutrinos)}


def output_columns(
    topology: Topology,
    heads: Mapping[str, HeadSpec],
    outputs: Mapping[str, tuple[str, ...]],
    described: Mapping[str, Floats],
    exchanged: tuple[Ints, Ints],
) -> dict[str, Floats]:
    """The columns of all outputs of a model besides the answer.

    heads       the heads that a recipe declares
    outputs     the axes of all outputs
    described   declared heads, outputs with one entry per slot, particle or neutrino, and other outputs
    exchanged   the previous slot (n, S) and particle (n, P) of each, after sorting by pT
    """
    columns: dict[str, Floats] = {}
    for name, array in described.items():
        axes = outputs.get(name, ())
        if name in heads:
            moved = reordered(heads[name], topology, array, exchanged[0])
            columns |= head_columns(name, heads[name], topology, moved)
        elif len(axes) == 1 and axes[0] in place_sizes(topology):
            columns |= _place_columns(name, axes[0], topology, array, exchanged)
        else:
            columns[name] = array
    return columns


def _place_columns(
    name: str, axis: str, topology: Topology, values: Floats, exchanged: tuple[Ints, Ints]
) -> dict[str, Floats]:
    """The columns (n,) of an output (n, places)."""
    slots, particles = exchanged
    if axis == "slot":
        titles, order = [slot.name for slot in topology.slots], slots
    elif axis == "particle":
        titles, order = [particle.name for particle in topology.particles], particles
    else:
        titles = [neutrino.name for neutrino in topology.neutrinos]
        owners = [neutrino.particle for neutrino in topology.neutrinos]
        order = (particles[:, owners, None] == np.array(owners)).argmax(axis=2)
    moved = np.take_along_axis(values, order, axis=1)
    return {f"{title.replace('.', '_')}_{name}": moved[:, k] for k, title in enumerate(titles)}


def pattern_columns(topology: Topology, found: Decoded) -> Columns:
    """The columns of a model that knows missing particles; `topology` is that of the answers."""
    patterns = plan_of(topology).patterns
    chances = found.pattern_probability  # (n, patterns), float64: P(complete) may be tiny
    complete = chances[:, plan_of(topology).complete].sum(axis=1)
    there = present(topology, found.assignment)
    filled = np.stack([there[:, part.roots].all(axis=1) for part in parts_of(topology)])
    answered_in = found.topology_probability.argmax(axis=1) if topology.alternatives else 0
    whole = ~found.answered | filled[answered_in, np.arange(len(complete))]
    with np.errstate(invalid="ignore"):  # an incomplete answer is wrong if the event is complete
        if_complete = (np.where(whole, found.event_probability, 0) / complete).astype(np.float32)
    columns: Columns = {
        "complete_probability": complete.astype(np.float32),
        "event_probability_if_complete": if_complete,
    }
    for pattern, chance in zip(patterns, chances.T, strict=True):
        columns[f"pattern_{pattern.key}"] = chance.astype(np.float32)
    return columns


def truth_columns(events: Events, assignment: Ints) -> Columns:
    """The labels of events beside the answers (n, S), which hold positions in `events.objects`.

    Interchangeable particles of the truth are put in the order that agrees best with the answer.
    """
    if events.truth is None:
        raise EventsError(
            "truth=True: these events have no labels: leave it out (`pairton inspect` shows the truth)"
        )
    topology = events.topology
    truth = aligned(topology, events.truth, assignment)
    columns: Columns = {}
    for slot, index in zip(topology.slots, stored_assignment(events, truth).T, strict=True):
        columns[f"true_{slot_column(slot)}"] = index
    known, same = present(topology, truth), truth == assignment
    for particle in topology.particles:
        right = same[:, list(particle.span)].all(axis=1)
        verdict = np.where(known[:, particle.index], np.where(right, "right", "wrong"), "not_reconstructible")
        columns[f"{particle.name.replace('.', '_')}_truth"] = verdict
    return columns


def best_columns(events: Events, found: Decoded) -> Columns:
    """Lists of the most probable hypotheses; their interchangeable particles are in the order of pT."""
    assert found.best is not None
    assert found.best_probability is not None
    there = found.best_probability > 0  # (n, K): the others stand for none
    counts = there.sum(axis=1)
    columns: Columns = {"best_probability": ak.unflatten(found.best_probability[there].astype(np.float32), counts)}
    stored = np.stack([stored_assignment(events, found.best[:, k]) for k in range(there.shape[1])], axis=1)
    for slot in events.topology.slots:
        columns[f"best_{slot_column(slot)}"] = ak.unflatten(stored[:, :, slot.index][there], counts)
    return columns


def topology_columns(topology: Topology, found: Decoded) -> Columns:
    """The probability of each topology of a mixture; no columns for a model of one topology."""
    names = [f"topology_{tree.name}" for tree in topology.alternatives]
    return dict(zip(names, found.topology_probability.astype(np.float32).T, strict=True))
