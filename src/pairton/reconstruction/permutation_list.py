"""The best permutations of a kinematic fit, one row each.

Shapes: n events, k permutations, S slots.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError
from pairton.events import Events
from pairton.models import engines
from pairton.models.kinematic_model import KinematicEngine
from pairton.reconstruction.result import stored_assignment
from pairton.reconstruction.result_columns import slot_column
from pairton.reconstruction.running import Assigner, RunSettings

__all__ = ["list_permutations"]

Columns = dict[str, npt.NDArray[Any]]


def list_permutations(
    events: Events, model: engines.Model | str | Path = "kinematic", k: int = 20, *, cuts: bool = True
) -> Columns:
    """The k best permutations of each event, as columns with one row per permutation, the best first.

    events   events of one topology
    model    `kinematic`, the path of a YAML file with its settings, or a kinematic fit that is loaded
    k        permutations per event; some events may have fewer
    cuts     leave out objects that fail the selection of the topology

    Returns columns, as for `pandas.DataFrame`: `row` (of the event), `rank`, the object of each slot,
    `log_likelihood` (without tags), and `probability` (with tags, among all permutations, or among those that were
    fitted). Events without an answer have no rows. Raises ConfigError if the model is not a kinematic fit.

    >>> import pairton
    >>> found = list_permutations(pairton.read("sample:ttbar_allhad")[:2], k=3)
    >>> found["row"].tolist(), sorted(found)[:2]
    ([0, 0, 0, 1, 1, 1], ['log_likelihood', 'probability'])
    """
    if isinstance(model, str | Path):
        model = engines.load_model(model, topology=events.topology)
    if not isinstance(model.engine, KinematicEngine):
        raise ConfigError(f"{model.name} is not a kinematic fit, so it has no permutations to list: use kinematic")
    assigner = Assigner(model, RunSettings(cuts=cuts))
    assigner.check(events.topology)
    events = assigner.with_evidence(events)
    accepted = assigner.accept(events)
    parts = []
    for layout, rows in accepted.by_layout(accepted.answerable):
        if not model.engine.fit.can_fit(layout):
            continue
        found = model.engine.fit.permutations(accepted.batch(rows, layout), k)
        row, rank = np.nonzero(np.isfinite(found.log_likelihood))
        positions = accepted.to_positions(found.assignment[row, rank], rows[row], layout)
        objects = stored_assignment(events[rows[row]], positions)
        part: Columns = {"row": rows[row], "rank": rank}
        part |= {slot_column(slot): objects[:, slot.index] for slot in events.topology.slots}
        part["log_likelihood"] = found.log_likelihood[row, rank]
        part["probability"] = found.probability[row, rank]
        parts.append(part)
    names = [
        "row",
        "rank",
        *(slot_column(slot) for slot in events.topology.slots),
        "log_likelihood",
        "probability",
    ]
    if not parts:
        return {name: np.zeros(0, dtype=np.int64 if name in names[:-2] else np.float64) for name in names}
    joined = {name: np.concatenate([part[name] for part in parts]) for name in names}
    order = np.lexsort((joined["rank"], joined["row"]))
    return {name: column[order] for name, column in joined.items()}
