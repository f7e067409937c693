"""The status of an event: whether it can be answered, and how far the answer is to be trusted."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Status"]


class Status(IntEnum):
    """Whether an event has an answer, and any caveat."""

    OK = 0
    TOO_FEW_OBJECTS = 1
    BAD_OBJECT = 2
    TRUNCATED = 3  # more objects of a kind than are used: the softest were left out
    OUTSIDE_DOMAIN = 4
    BAD_OUTPUT = 5  # the model gives something else than numbers, or allows no assignment
    OUTSIDE_SELECTION = 6  # not among the events that the model was trained on: too few b-tags, say
    INCOMPLETE = 7  # fewer objects than slots, so that particles are missing: the answer is what fits

    @property
    def label(self) -> str:
        return self.name.lower()
