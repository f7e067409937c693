"""Events: objects by kind, truth, ids and weights; the selection of objects; the matching of truth to objects."""

from pairton.events.events import SPLITS, Events
from pairton.events.nodes import Status

__all__ = ["SPLITS", "Events", "Status"]
