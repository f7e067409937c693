"""Which model to take where none was named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pairton.errors import PairtonError
from pairton.formats import expand, open_source
from pairton.models.engines import model_for
from pairton.topology import load_topology

__all__ = ["model_for_files"]


def model_for_files(name: str | None, paths: Sequence[str], options: Mapping[str, Any] | None = None) -> str:
    """The model that is meant for some files.

    name      a model, or None or "default": the one for the topology of `options`; without one, for the topology
              that is stored in the first file; else the default model
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
        with open_source(expand(list(paths))[0], **given) as source:
            return model_for(source.topology)
    except (PairtonError, IndexError):
        return "default"  # what is wrong with the file is said when it is read
