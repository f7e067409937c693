"""The choice of a model for some files, and of their topology."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pairton.errors import ModelError, PairtonError, PairtonWarning
from pairton.formats import expand, open_source
from pairton.models import model as models
from pairton.models.kinematic_model import is_kinematic
from pairton.models.storage import builtin_models, read_info
from pairton.topology import Topology, load_topology

__all__ = ["labelled_topology", "load_for_files", "model_for_files", "models_to_evaluate"]


def load_for_files(
    name: str | Path | None,
    paths: Sequence[str],
    options: Mapping[str, Any] | None = None,
    *,
    engine: str = "onnx",
    threads: int | None = None,
) -> models.Model:
    """Load the model for some files; a kinematic fit is made for their topology.

    name              as for `model_for_files`
    paths             files, as for `pairton.read`
    options           options of `pairton.read`
    engine, threads   as for `pairton.load_model`, which also lists the errors

    >>> load_for_files("kinematic", ["sample:ttbar_allhad"]).topology.name
    'ttbar_allhad'
    """
    chosen = model_for_files(name, paths, options)
    topology = (options or {}).get("topology")
    if topology is None and is_kinematic(chosen):
        topology = _topology_of(paths, options or {})
    isolate = (options or {}).get("isolate", False)
    return models.load_model(chosen, engine=engine, threads=threads, topology=topology, isolate=isolate)


def model_for_files(
    name: str | Path | None, paths: Sequence[str], options: Mapping[str, Any] | None = None
) -> str | Path:
    """The name of the model to use for some files.

    name      a model; for None or "default", the model is chosen by the topology in `options`, else the topology
              stored in the first file, else the labels in the file; else it is the default model
    paths     files, as for `pairton.read`
    options   options of `pairton.read`

    Raises ModelError if there is no built-in model for that topology.

    >>> model_for_files(None, ["sample:ttbar_allhad"])
    'ttbar_allhad'
    >>> model_for_files("iterative", ["sample:ttbar_allhad"])
    'iterative'
    """
    if name not in (None, "default"):
        assert name is not None
        return name
    given = dict(options or {})
    if given.get("topology") is not None:
        return models.model_for(load_topology(given["topology"]))
    topology = _topology_of(paths, given)
    return "default" if topology is None else models.model_for(topology)


def labelled_topology(paths: Sequence[str], options: Mapping[str, Any]) -> str | None:
    """The built-in topology whose labels files have, if they cannot be read without naming one.

    paths     files, as for `pairton.read`; the first one counts
    options   of `pairton.read`

    Returns None if the options give a topology, if the file can be read without one, or if it has the labels of no
    built-in model. `model_for_files` chooses in the same way.

    >>> labelled_topology(["sample:ttbar_allhad"], {}) is None
    True
    """
    if options.get("topology") is not None:
        return None
    try:
        first = expand(list(paths))[0]
    except (PairtonError, IndexError):
        return None  # errors in the files are raised when they are read
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PairtonWarning)  # repeated when the file is read
        with suppress(PairtonError), open_source(first, **options):
            return None
    chosen = _topology_of_labels(first, options)
    return None if chosen is None else chosen.name


def _topology_of(paths: Sequence[str], options: Mapping[str, Any]) -> Topology | None:
    """The topology that is stored in the first file, or else that of its labels; None if it has neither."""
    try:
        first = expand(list(paths))[0]
    except (PairtonError, IndexError):
        return None  # errors in the files are raised when they are read
    try:
        with open_source(first, **options) as source:
            return source.topology
    except PairtonError:
        return _topology_of_labels(first, options)


def models_to_evaluate(
    paths: Sequence[str], options: Mapping[str, Any], *, baselines: Sequence[str], answered: bool
) -> tuple[str | Path, ...]:
    """The models to evaluate if none was named: that of the files, or none if files of answers are evaluated.

    paths, options   as for `model_for_files`
    baselines        names of baselines: with these, a built-in model for the topology is not needed
    answered         whether files of answers are evaluated

    Raises ModelError if there is nothing to evaluate: neither a model for the topology nor a baseline.

    >>> models_to_evaluate(["sample:ttbar_allhad"], {}, baselines=["chi2"], answered=False)
    ('ttbar_allhad',)
    """
    if answered:
        return ()
    try:
        return (model_for_files(None, paths, options),)
    except ModelError as error:
        if not baselines:
            raise
        warnings.warn(f"{error}; only {', '.join(baselines)} is evaluated", PairtonWarning, stacklevel=2)
        return ()


def _topology_of_labels(path: str, options: Mapping[str, Any]) -> Topology | None:
    """Among the topologies of built-in models whose labels the file has, the one with the most slots."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PairtonWarning)  # most candidates are not chosen
        for name, folder in builtin_models().items():
            topology = read_info(folder).topology
            with suppress(PairtonError), open_source(path, **{**options, "topology": topology}) as source:
                if source.has_truth and name == topology.name:
                    found.append(topology)
    chosen = max(found, key=lambda topology: len(topology.slots), default=None)
    if chosen is not None:
        warnings.warn(
            f"{path} is read as {chosen.name}, the built-in model that uses the most of its labels: choose "
            "another "
            "with --topology or --model",
            PairtonWarning,
            stacklevel=3,
        )
    return chosen
