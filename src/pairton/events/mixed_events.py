"""Events of one topology as events of a mixture, with a column that says which topology they are of."""

from __future__ import annotations

import numpy as np

from pairton.errors import EventsError
from pairton.events.events import Events
from pairton.topology import Topology
from pairton.topology.mixtures import find_part, parts_of

__all__ = ["TOPOLOGY", "asked_of", "into_mixture"]

TOPOLOGY = "topology"  # column: the number of the topology that an event is of, in the order of the mixture


def into_mixture(events: Events, mixture: Topology) -> Events:
    """The same events, read as a mixture: slots that their own topology does not have are empty in the truth.

    events    of one of the topologies of the mixture
    mixture   from `pairton.topology.mixtures.mixture`

    Raises EventsError where the mixture has no topology with the decay tree of the events.

    >>> import pairton
    >>> from pairton.topology import load_topology
    >>> from pairton.topology.mixtures import mixture
    >>> both = mixture([load_topology("tth_allhad"), load_topology("ttbar_allhad")])
    >>> events = into_mixture(pairton.read("sample:ttbar_allhad")[:2], both)
    >>> events.truth.shape, events.columns["topology"].tolist()
    ((2, 8), [1, 1])
    """
    part = find_part(mixture, events.topology)
    if part is None:
        names = ", ".join(part.name for part in parts_of(mixture))
        raise EventsError(f"events of {events.topology.name} in a mixture of {names}: give events of one of these")
    truth = None
    if events.truth is not None:
        truth = np.full((len(events), len(mixture.slots)), -1, dtype=np.int32)
        truth[:, part.slots] = events.truth
    number = np.full(len(events), parts_of(mixture).index(part), dtype=np.int8)
    columns = {**events.columns, TOPOLOGY: number}
    return events.replace(topology=mixture, truth=truth, columns=columns, variations=events.variations)


def asked_of(topology: Topology, events: Events) -> tuple[Events, str | None]:
    """Events as a model of this topology sees them, and which topology of a mixture they were read as, if any."""
    part = find_part(topology, events.topology) if topology.alternatives else None
    return (events, None) if part is None else (into_mixture(events, topology), part.name)
