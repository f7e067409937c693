"""The status of an event: whether it has an answer, and any caveat."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Status"]


class Status(IntEnum):
    """Whether an event has an answer, and any caveat.

    Attributes:
        OK: The event has an answer.
        TOO_FEW_OBJECTS: No answer: there are fewer objects than an answer needs.
        BAD_OBJECT: No answer: an object has NaN or an unphysical momentum.
        TRUNCATED: There are more objects than are used, of a kind or in all; those of lowest pT were left out.
        OUTSIDE_DOMAIN: The model was not trained on such objects, or on so many or so few of them.
        BAD_OUTPUT: No answer: the model returned NaN or infinity, or allows no assignment.
        OUTSIDE_SELECTION: The event fails the selection of the training events, for example on b-tags.
        INCOMPLETE: There are fewer objects than slots, so some particles are missing from the answer.
        label: The name in lower case, as in files.

    Examples:
        >>> Status(3).label
        'truncated'
    """

    OK = 0
    TOO_FEW_OBJECTS = 1
    BAD_OBJECT = 2
    TRUNCATED = 3
    OUTSIDE_DOMAIN = 4
    BAD_OUTPUT = 5
    OUTSIDE_SELECTION = 6
    INCOMPLETE = 7

    @property
    def label(self) -> str:
        """The name in lower case, as in files."""
        return self.name.lower()
