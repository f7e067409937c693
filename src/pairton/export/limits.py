"""How many objects of each kind an exported graph uses."""

from __future__ import annotations

from pairton.decoding.set_tables import exact_limit
from pairton.errors import ConfigError, ModelError
from pairton.events.nodes import MOST_OBJECTS
from pairton.topology import Layout, Topology, collection_name

__all__ = ["checked_limit", "default_max_objects", "layout_of", "used_objects"]

MOST = 12  # default of the largest number of objects of the main kind, for a whole reconstruction


def default_max_objects(topology: Topology) -> int:
    """The default of the largest number of objects of the main kind, within the limit of the exact sums.

    >>> from pairton.topology import load_topology
    >>> [default_max_objects(load_topology(name)) for name in ("ttbar_allhad", "tttt_allhad")]
    [12, 12]
    """
    return max(min(MOST, exact_limit(topology)), max(topology.slots_per_kind))


def layout_of(topology: Topology, main: int) -> Layout:
    """The layout with `main` objects of the main kind; other kinds have one object per slot, and at least one."""
    needed = zip(topology.kinds, topology.slots_per_kind, strict=True)
    return tuple(main if kind == topology.main_kind else max(1, slots) for kind, slots in needed)


def used_objects(topology: Topology, main: int) -> dict[str, int]:
    """Kind -> how many objects of an event a graph uses; further ones are left out.

    >>> from pairton.topology import load_topology
    >>> used_objects(load_topology("ttbar_semilep"), 12)
    {'jet': 12, 'lepton': 1, 'met': 1}
    """
    return dict(zip(topology.kinds, layout_of(topology, main), strict=True))


def checked_limit(topology: Topology, wanted: int | None, complete_only: bool = False) -> int:
    limit = default_max_objects(topology) if wanted is None else wanted
    fewest = max(topology.slots_per_kind)
    if not fewest <= limit <= MOST_OBJECTS:
        raise ConfigError(
            f"max_objects is {limit}, but must be from {fewest} (slots of {topology.name}) to {MOST_OBJECTS}"
        )
    most = exact_limit(topology, complete_only)
    if limit > most:
        raise ModelError(
            f"{limit} {collection_name(topology.main_kind)} of {topology.name} need too many sums: lower "
            f"--max-objects to {most}, or export the network alone"
        )
    return limit
