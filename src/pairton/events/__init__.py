"""Events: objects by kind, truth, ids and weights; which objects are used; how truth is matched to them."""

from pairton.events.events import SPLITS, Events
from pairton.events.status import Status

__all__ = ["SPLITS", "Events", "Status"]
