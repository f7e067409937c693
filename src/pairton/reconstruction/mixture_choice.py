"""The choice of a topology for labelled events, if the model is a mixture of topologies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pairton.errors import ConfigError
from pairton.formats import stored_topology
from pairton.topology.mixtures import find_part, parts_of

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["truth_topology"]


def truth_topology(models: Sequence[Model], paths: Sequence[str], options: Mapping[str, Any]) -> Any:
    """The topology to read labelled events with: that of the `options`, or for a mixture that of the file."""
    asked = options.get("topology")
    if asked is not None or not models or not models[0].topology.alternatives:
        return asked
    mixture = models[0].topology
    stored = stored_topology(paths[0], options.get("isolate"))
    part = None if stored is None else find_part(mixture, stored)
    if part is None:
        names = ", ".join(part.name for part in parts_of(mixture))
        raise ConfigError(f"{models[0].name} is for {names}: give the topology of these events with --topology")
    return part.topology
