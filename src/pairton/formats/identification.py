"""Conditions on the fields of electrons and muons, as written in `--set muon_id=…`.

    tightId                     the field is not zero
    cutBased >= 4               one of <, <=, >, >=, ==
    topoetcone20 / pt < 0.06    the ratio of two fields
    tightId, dxy < 0.05         both conditions; `none` means no condition

Values are compared as they are in the file, without a conversion of units.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError

__all__ = ["NONE", "Condition", "Identification"]

Bools = npt.NDArray[np.bool_]

NONE = "none"
SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
WRITTEN = re.compile(r"([\w.:]+)\s*(?:/\s*([\w.:]+)\s*)?(?:(<=|>=|==|<|>)\s*([-+.\w]+))?")


@dataclass(frozen=True)
class Condition:
    """One condition on a field."""

    field: str
    over: str | None = None  # the field that it is divided by
    sign: str = ""  # a key of SIGNS; empty: the field is not zero
    bound: float = 0.0

    def passes(self, fields: Mapping[str, npt.NDArray[Any]]) -> Bools:
        """Whether each object passes; False if its field is NaN."""
        values = fields[self.field]
        if self.over is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                values = values / fields[self.over]
        if not self.sign:
            return np.asarray((values != 0) & (values == values))
        return np.asarray(SIGNS[self.sign](values, self.bound))

    def __str__(self) -> str:
        ratio = self.field if self.over is None else f"{self.field} / {self.over}"
        return f"{ratio} {self.sign} {self.bound:g}" if self.sign else ratio


@dataclass(frozen=True)
class Identification:
    """A list of conditions, which an object must all pass.

    >>> tight = Identification.parse("tightId, iso<0.15", "muon_id")
    >>> str(tight), tight.fields
    ('tightId, iso < 0.15', ('tightId', 'iso'))
    >>> tight.passes({"tightId": np.array([True, True, False]), "iso": np.array([0.1, 0.2, 0.1])}, 3).tolist()
    [True, False, False]
    """

    conditions: tuple[Condition, ...] = ()

    @classmethod
    def parse(cls, text: str, key: str) -> Identification:
        """Read the value of a setting; its `key` is named in errors."""
        if text.strip().lower() == NONE:
            return cls()
        return cls(tuple(_parse(part, text, key) for part in text.split(",")))

    def __bool__(self) -> bool:
        return bool(self.conditions)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the conditions need."""
        names = [name for each in self.conditions for name in (each.field, each.over) if name is not None]
        return tuple(dict.fromkeys(names))

    def passes(self, fields: Mapping[str, npt.NDArray[Any]], count: int) -> Bools:
        """(count,): whether each object passes."""
        good = np.ones(count, dtype=bool)
        for condition in self.conditions:
            good &= condition.passes(fields)
        return good

    def __str__(self) -> str:
        return ", ".join(map(str, self.conditions)) or NONE


def _parse(part: str, text: str, key: str) -> Condition:
    found = WRITTEN.fullmatch(part.strip())
    try:
        if found is None:
            raise ValueError
        field, over, sign, bound = found.groups()
        if over is not None and sign is None:
            raise ValueError
        return Condition(field, over, sign or "", float(bound or 0))
    except ValueError:
        raise ConfigError(
            f"set {key}={text}: write conditions on fields of the file, such as tightId, iso < 0.15, pt > 20, or "
            f"write {NONE}"
        ) from None
