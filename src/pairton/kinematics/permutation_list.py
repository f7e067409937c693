"""The best permutations of a kinematic fit, one row each.

Shapes: n events, k permutations, S slots.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import exact_limit
from pairton.errors import PairtonWarning
from pairton.events import Events
from pairton.events.acceptance import MAX_OBJECTS, accept
from pairton.events.domain import Domain
from pairton.events.inputs import EVIDENCE
from pairton.events.tags import ensure_evidence
from pairton.kinematics.fit_settings import BUILT_IN, load_settings, transfer_caveat
from pairton.kinematics.fitting import KinematicFit
from pairton.topology import JET

__all__ = ["list_permutations"]


def list_permutations(
    events: Events, settings: str | Path = BUILT_IN, k: int = 20, *, cuts: bool = True
) -> dict[str, npt.NDArray[Any]]:
    """The k best permutations of each event, as columns with one row per permutation, the best first.

    events     events of one topology
    settings   `kinematic`, or the path of a YAML file with the settings of the fit
    k          permutations per event; some events may have fewer
    cuts       leave out objects that fail the selection of the topology

    Returns columns, as for `pandas.DataFrame`: `row` (of the event), `rank`, the object of each slot,
    `log_likelihood` (without tags), and `probability` (with tags, among all permutations, or among those that were
    fitted). Events without an answer have no rows.

    >>> import pairton
    >>> found = list_permutations(pairton.read("sample:ttbar_allhad")[:2], k=3)
    >>> found["row"].tolist(), sorted(found)[:2]
    ([0, 0, 0, 1, 1, 1], ['log_likelihood', 'probability'])
    """
    topology, chosen = events.topology, load_settings(settings)
    fit = KinematicFit(topology, chosen)
    if caveat := transfer_caveat(chosen.to_dict(), events.metadata):
        warnings.warn(caveat, PairtonWarning, stacklevel=2)
    if not set(EVIDENCE).isdisjoint(fit.inputs.fields(JET) if JET in topology.kinds else ()):
        events = ensure_evidence(events)
    most = min(MAX_OBJECTS, exact_limit(topology, complete_only=True))
    accepted = accept(events, Domain.of_selection(topology), fit.inputs, max_objects=most, cuts=cuts)
    names = [f"{slot.name.replace('.', '_')}_{slot.kind}" for slot in topology.slots]
    whole, real = np.zeros(0, dtype=np.int64), np.zeros(0)
    parts: list[dict[str, npt.NDArray[Any]]] = [{"row": whole, "rank": whole, **dict.fromkeys(names, whole)}]
    parts[0] |= {"log_likelihood": real, "probability": real}
    for layout, rows in accepted.by_layout(accepted.answerable):
        if not fit.can_fit(layout):
            continue
        found = fit.permutations(accepted.batch(rows, layout), k)
        row, rank = np.nonzero(np.isfinite(found.log_likelihood))
        positions = accepted.to_positions(found.assignment[row, rank], rows[row], layout)
        part: dict[str, npt.NDArray[Any]] = {"row": rows[row], "rank": rank}
        for name, slot in zip(names, topology.slots, strict=True):
            part[name] = np.asarray(events.stored_index[slot.kind][rows[row], positions[:, slot.index]])
        part["log_likelihood"] = found.log_likelihood[row, rank]
        part["probability"] = found.probability[row, rank]
        parts.append(part)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((joined["rank"], joined["row"]))
    return {name: column[order] for name, column in joined.items()}
