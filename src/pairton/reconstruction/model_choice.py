"""Which model to take where none was named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pairton.errors import PairtonError
from pairton.formats import expand, open_source
from pairton.models.engines import model_for
from pairton.models.storage import builtin_models, read_info
from pairton.topology import load_topology

__all__ = ["model_for_files"]


def model_for_files(name: str | None, paths: Sequence[str], options: Mapping[str, Any] | None = None) -> str:
    """The model that is meant for some files.

    name      a model, or None or "default": the one for the topology of `options`; without one, for the topology
              that is stored in the first file; else the one whose labels the file has; else the default model
    paths     files, as for `pairton.read`
    options   of `pairton.read`

    >>> model_for_files(None, ["sample:ttbar_allhad"])
    'ttbar_allhad'
    >>> model_for_files("iterative", ["sample:ttbar_allhad"])
    'iterative'
    """
    if name not in (None, "default"):
        return str(name)
    given = dict(options or {})
    if given.get("topology") is not None:
        return model_for(load_topology(given["topology"]))
    try:
        first = expand(list(paths))[0]
    except (PairtonError, IndexError):
        return "default"  # what is wrong with the files is said when they are read
    try:
        with open_source(first, **given) as source:
            return model_for(source.topology)
    except PairtonError:
        return _model_of_labels(first, given) or "default"


def _model_of_labels(path: str, options: Mapping[str, Any]) -> str | None:
    """The built-in model with the most slots among those whose labels the file has."""
    slots = {}
    for name, folder in builtin_models().items():
        topology = read_info(folder).topology
        with suppress(PairtonError), open_source(path, **{**options, "topology": topology}) as source:
            if source.has_truth and name == topology.name:
                slots[name] = len(topology.slots)
    return max(slots, key=lambda name: slots[name], default=None)
