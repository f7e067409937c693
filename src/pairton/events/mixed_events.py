"""Convert events of one topology to events of a mixture, with a column for the topology."""

from __future__ import annotations

import numpy as np

from pairton.errors import EventsError
from pairton.events.events import Events
from pairton.topology import Topology
from pairton.topology.mixtures import find_part, parts_of

__all__ = ["TOPOLOGY", "into_mixture"]

TOPOLOGY = "topology"  # column with the index of the event's topology in the mixture


def into_mixture(events: Events, mixture: Topology) -> Events:
    """Convert events to a mixture; in the truth, slots that their own topology lacks are empty.

    events    events of one of the topologies of the mixture
    mixture   a topology from `pairton.topology.mixtures.mixture`

    Raises EventsError if no topology of the mixture has the decay tree of the events.

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
        raise EventsError(f"read events of {events.topology.name}, but the mixture has {names}: use one of these")
    truth = None
    if events.truth is not None:
        truth = np.full((len(events), len(mixture.slots)), -1, dtype=np.int32)
        truth[:, part.slots] = events.truth
    number = np.full(len(events), parts_of(mixture).index(part), dtype=np.int8)
    columns = {**events.columns, TOPOLOGY: number}
    return events.replace(topology=mixture, truth=truth, columns=columns, variations=events.variations)
