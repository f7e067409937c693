"""The labelled events of an evaluation: which files are opened and how, and which models are evaluated."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pairton.errors import ConfigError, InputError, PairtonError
from pairton.evaluation.metrics.momentum_metrics import TRUE_MOMENTUM
from pairton.events import Events
from pairton.formats import expand, has_pile_up, iterate, open_source, options_for, stored_topology
from pairton.formats.files import Paths
from pairton.models.model import load_model
from pairton.reconstruction.model_choice import load_for_files, models_to_evaluate
from pairton.topology import Topology, load_topology
from pairton.topology.mixtures import stored_part

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["Sample", "open_sample", "truth_topology"]


@dataclass
class Sample:
    """Labelled events in memory or in files."""

    files: list[str]
    topology: Topology
    pile_up: bool  # whether there may be jets from pile-up
    use_weights: bool
    memory: Events | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # how to read the files

    def read(self, **more: Any) -> Iterator[Events]:
        """The events with the topology, and with weights: ones if there are none, or if they are not used."""
        if self.memory is not None:
            chunks = iter([self.memory.replace(topology=self.topology, variations=self.memory.variations)])
        else:
            chunks = iterate(self.files, **{**self.options, "topology": self.topology, **more})
        return (_weighted(events, self.use_weights) for events in chunks)


def open_sample(
    events: Events | Paths,
    model: Model | str | Path | Sequence[Model | str | Path] | None,
    options: Mapping[str, Any],
    *,
    use_weights: bool,
    baselines: Sequence[str],
    answered: bool,
) -> tuple[Sample, list[Model]]:
    """The events, and the models to evaluate on them; the arguments are those of `pairton.evaluate`."""
    options = dict(options)
    if isinstance(events, Events):
        if options:
            name = next(iter(options))
            raise ConfigError(f"evaluate has no option {name!r} for events in memory: give it for files")
        if model is None:
            by_topology = {"topology": events.topology}
            model = models_to_evaluate(["events"], by_topology, baselines=baselines, answered=answered)
        models = [
            load_model(m, topology=events.topology) if isinstance(m, str | Path) else m for m in _each(model)
        ]
        return Sample(["events"], events.topology, events.pile_up, use_weights, events), models
    files = expand(events)
    if model is None:
        model = models_to_evaluate(files, options, baselines=baselines, answered=answered)
    models = [load_for_files(m, files, options) if isinstance(m, str | Path) else m for m in _each(model)]
    options["topology"] = truth_topology(models, files, options)
    options = {"topology": None} | (options_for(models[0], options) if models else options)
    options["keep"] = [*options.get("keep", ()), *_label_columns(models, files[0], options)]
    known = options["topology"]
    topology = load_topology(known) if known is not None else next(iterate(files, **options, chunk=1)).topology
    pile_up = has_pile_up(files, options | {"topology": topology})
    return Sample(files, topology, pile_up, use_weights, options=options), models


def _each(model: Any) -> Sequence[Any]:
    return model if isinstance(model, list | tuple) else [model]


def truth_topology(models: Sequence[Model], paths: Sequence[str], options: Mapping[str, Any]) -> Any:
    """The topology to read labelled events with: that of the `options`, or for a mixture that of the file."""
    asked = options.get("topology")
    if asked is not None or not models or not models[0].topology.alternatives:
        return asked
    return stored_part(models[0].topology, stored_topology(paths[0], options.get("isolate")), models[0].name)


def _label_columns(models: Sequence[Model], path: str, options: Mapping[str, Any]) -> list[str]:
    """The columns in a file with labels of declared heads, and with the momenta of true neutrinos."""
    names = dict.fromkeys(name for model in models for s in model.info.heads.values() for name in s.columns)
    known = models[0].topology if models else options["topology"]
    if known is not None and load_topology(known).neutrinos:
        names |= dict.fromkeys(TRUE_MOMENTUM)
    stored = []
    for name in names:
        with suppress(PairtonError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_source(path, **{**options, "keep": [name]}):
                stored.append(name)
    return [name for name in stored if name not in options.get("keep", ())]


def _weighted(events: Events, use_weights: bool) -> Events:
    if events.weights is None or not use_weights:
        return events.replace(weights=np.ones(len(events)), variations=events.variations)
    if not np.isfinite(events.weights).all():
        row = int(np.argmin(np.isfinite(events.weights)))
        number = ":".join(map(str, events.ids[row].tolist()))
        raise InputError(f"the weight of event {number} is {events.weights[row]}: correct it, or use no weights")
    return events
