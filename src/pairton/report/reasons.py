"""Sentences that explain why an event has no answer."""

from __future__ import annotations

from collections.abc import Sequence

from pairton.events import Status
from pairton.events.domain import Domain
from pairton.report.record import Item
from pairton.topology import Topology, collection_name
from pairton.topology.kinds import counted
from pairton.topology.selection import Cuts

__all__ = ["why_no_answer"]


def why_no_answer(
    topology: Topology, objects: Sequence[Item], status: str, domain: Domain, needs: Sequence[tuple[int, ...]]
) -> str:
    """Why an event has no answer, as a sentence for the event display.

    objects   objects of the event
    status    label of the status of the event
    domain    cuts that an object must pass to be used
    needs     numbers of objects of each kind that the possible answers need; empty: one object per slot

    >>> from pairton.topology import load_topology
    >>> why_no_answer(load_topology("hh4b"), [], "too_few_objects", Domain(), [])
    '0 of 0 jets can be used; an answer needs 4 jets.'
    """
    if status == Status.BAD_OUTPUT.label:
        return "The network gives values that are not finite numbers."
    if status == Status.BAD_OBJECT.label:
        return "An object has an impossible momentum: NaN, infinite, pT of 0 or less, or an energy below it."
    sentences = []
    for kind in topology.object_kinds:
        used = [item.used for item in objects if item.kind == kind]
        cuts = str(Cuts(domain[kind].pt, domain[kind].abs_eta)).replace("eta", "η")
        passing = f" ({cuts})" if cuts else ""
        sentences.append(f"{sum(used)} of {len(used)} {collection_name(kind)} can be used{passing}")
    return f"{'; '.join(sentences)}; an answer needs {_least(topology, needs)}."


def _least(topology: Topology, needs: Sequence[tuple[int, ...]]) -> str:
    """The smallest numbers of objects with which there is an answer, as text."""
    least = min(needs, key=sum, default=topology.slots_per_kind)
    if not sum(least):
        return f"at least 1 {' or '.join(topology.object_kinds)}"
    parts = [counted(n, kind) for kind, n in zip(topology.kinds, least, strict=True) if n]
    return "at least " * bool(needs) + " and ".join(parts)
