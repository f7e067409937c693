"""b-tags as yes or no: a tagger's score and the cut that makes it one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from pairton.errors import ConfigError, FormatError, PairtonWarning, nearest

__all__ = ["Tagger", "WorkingPoint", "choose_tagger"]


@dataclass(frozen=True)
class WorkingPoint:
    """A default cut, and for which efficiency and data it is the right one."""

    cut: float
    about: str  # "medium, 2018"


@dataclass(frozen=True)
class Tagger:
    """Jets with a score above the cut are tagged."""

    name: str
    cut: float


def choose_tagger(
    given: str | None, present: list[str], defaults: Mapping[str, WorkingPoint], path: str
) -> Tagger:
    """The tagger of `TAGGER:CUT`; of `TAGGER`, at its default cut; or the first default that is present.

    `defaults` are ordered, newest first. A default cut is announced: no file says for which data it holds.
    """
    if given is None:
        name = next((tagger for tagger in defaults if tagger in present), None)
        if name is None:
            found = ", ".join(present) or "no b-tag score at all"
            raise FormatError(
                f"{path}: none of the taggers {', '.join(defaults)}, but {found}: give --btag TAGGER:CUT"
            )
    else:
        name, colon, cut = given.partition(":")
        if not colon and name.replace(".", "", 1).isdigit():
            first = next((tagger for tagger in defaults if tagger in present), "TAGGER")
            raise ConfigError(
                f"--btag {given} is a cut without a tagger: {path} has {', '.join(present) or 'none'}; write "
                f"--btag {first}:{given}"
            )
        if name not in present:
            raise ConfigError(
                f"--btag {given}: {path} has no tagger {name!r}, but {', '.join(present) or 'none'}"
                f"{nearest(name, present)}"
            )
        if colon:
            return Tagger(name, _number(given, cut))
        if name not in defaults:
            raise ConfigError(f"--btag {given}: {name} has no default cut: give --btag {name}:CUT")
    point = defaults[name]
    warnings.warn(
        f"b-tagged means {name} > {point.cut:g} ({point.about}), by default: the right cut depends on your data, "
        f"give --btag {name}:CUT",
        PairtonWarning,
        stacklevel=4,
    )
    return Tagger(name, point.cut)


def _number(given: str, cut: str) -> float:
    try:
        value = float(cut)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"--btag {given}: the cut {cut!r} must be a number, as in TAGGER:0.5")
    return value
