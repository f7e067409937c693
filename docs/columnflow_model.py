"""Tops in columnflow: a model for ML evaluation that calls pairton on the jets of each chunk.

The network is trained already, so `train` does nothing. With a model in folds, pairton takes the network of each
event's fold by itself, from its event number.
"""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
from columnflow.columnar_util import set_ak_column
from columnflow.ml import MLModel

import pairton
from pairton.events.tags import load_table


class Tops(MLModel):
    """Columns `tops.*`: the mass and probability of each top, the probability of the event, and its jets."""

    folds = 2  # columnflow needs two or more
    model, tags = "default", "pnet_2022"  # the tagger, its working points and their efficiencies

    def sandbox(self, task: Any) -> str:
        return "bash::$CF_BASE/sandboxes/venv_columnar.sh"  # with `pip install pairton`

    def datasets(self, config: Any = None) -> set[Any]:
        return set()  # of a training

    def uses(self, config: Any = None) -> set[str]:
        return {"event", *(f"Jet.{name}" for name in ("pt", "eta", "phi", "mass", load_table(self.tags).field))}

    def produces(self, config: Any = None) -> set[str]:
        return {f"tops.{name}" for name in ("mass", "probability", "event_probability", "jets")}

    def output(self, task: Any) -> Any:
        return task.target("pairton.txt")

    def train(self, task: Any, input: Any, output: Any) -> None:
        output.dump(f"pairton {pairton.__version__}", formatter="text")

    def open_model(self, target: Any) -> Any:
        return pairton.load_model(self.model, threads=1)

    def evaluate(
        self,
        task: Any,
        events: ak.Array,
        models: list[Any],
        fold_indices: Any,
        events_used_in_training: bool = False,
    ) -> ak.Array:
        table = load_table(self.tags)
        jets = pairton.make_jets(**{name: events.Jet[name] for name in ("pt", "eta", "phi", "mass", table.field)})
        reco = pairton.reconstruct(jets, models[0], btag=table)
        columns = {
            "mass": reco.t.mass,
            "probability": reco.t.probability,
            "event_probability": reco.event_probability.astype(np.float32),
            "jets": ak.from_regular(reco.index),  # in events.Jet, by slot; -1 for none
        }
        for name, values in columns.items():
            events = set_ak_column(events, f"tops.{name}", values)
        return events
