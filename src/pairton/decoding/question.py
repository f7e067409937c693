"""Settings of the exact decoding: which answer, whether it may leave particles out, and the prior.

There are two kinds of best answer. `event` is the most probable hypothesis. `particles` is the set of disjoint
candidates with the largest sum of probabilities, so that the most particles are expected to be right. Both contain
every particle, unless they may leave out particles that are more likely absent than present. In a mixture of
topologies, the answer belongs to one topology: the requested one, or the most probable one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from pairton.decoding.patterns import plan_of
from pairton.errors import ConfigError, nearest, shown
from pairton.topology import Topology
from pairton.topology.mixtures import parts_of

__all__ = ["ANSWERS", "LEAST", "Question"]

ANSWERS = {
    "event": "the most probable hypothesis: most events right as a whole",
    "particles": "the candidates with the largest sum of probabilities: most particles right",
}
LEAST = 0.5  # a candidate of lower probability is more likely absent than present
COMPLETE, INCOMPLETE = "complete", "incomplete"  # groups in a prior: patterns with every particle, all others


@dataclass(frozen=True)
class Question:
    """Which answer is wanted, and under which prior.

    answer         a name in `ANSWERS`
    allow_absent   whether the answer may leave out particles that are more likely absent than present
    prior          factors on the prior probabilities of patterns, by the pattern's `key`; `complete` stands for
                   the complete pattern, `incomplete` for all others, the name of a topology in a mixture for all
                   patterns of that topology; if several factors apply to one pattern, they multiply
    topology       in a mixture, answer as if every event were of this topology; None: of the most probable one

    >>> from pairton.topology import load_topology
    >>> question = Question(prior={"nothing": 5, "incomplete": 2})
    >>> np.exp(question.log_prior(load_topology("hh4b"))).round().tolist()  # H + H, H, nothing
    [1.0, 2.0, 10.0]
    """

    answer: str = "event"
    allow_absent: bool = False
    prior: Mapping[str, float] = field(default_factory=dict)
    topology: str | None = None

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            known = ", ".join(ANSWERS)
            raise ConfigError(
                f"no answer {shown(self.answer)}: choose one of {known}{nearest(str(self.answer), ANSWERS)}"
            )
        for name, factor in self.prior.items():
            try:
                allowed = 0 <= float(factor) < inf
            except (TypeError, ValueError):
                allowed = False
            if not allowed:
                raise ConfigError(
                    f"the prior of {shown(name)} is {shown(factor)}: give a factor of 0 or more, 1 for no change"
                )

    @property
    def is_default(self) -> bool:
        return self == Question()

    def log_prior(self, topology: Topology) -> npt.NDArray[np.float64]:
        """(patterns,): the logarithm of each pattern's factor; -inf where the pattern is excluded."""
        patterns = plan_of(topology).patterns
        keys = [pattern.key for pattern in patterns]
        groups = {COMPLETE: [p.key for p in patterns if p.complete]}
        groups[INCOMPLETE] = [p.key for p in patterns if not p.complete]
        if topology.alternatives:
            for number, part in enumerate(parts_of(topology)):
                groups[part.name] = [p.key for p in patterns if p.part == number]
        groups |= {key: [key] for key in keys}
        factors = np.ones(len(keys))
        for name, factor in self.prior.items():
            if name not in groups:
                raise ConfigError(
                    f"no pattern {shown(name)} of {topology.name}: choose from {', '.join([*groups][2:])}, "
                    f"{COMPLETE}, {INCOMPLETE}{nearest(str(name), groups)}"
                )
            factors[[keys.index(key) for key in groups[name]]] *= float(factor)
        if not factors.any():
            raise ConfigError("the prior excludes every pattern: give a factor above 0 to one of them")
        with np.errstate(divide="ignore"):
            return np.log(factors)

    def needs(self, topology: Topology) -> tuple[tuple[int, ...], ...]:
        """How many objects of each kind each pattern needs; patterns excluded by the prior are left out.

        >>> from pairton.topology import load_topology
        >>> Question(prior={"nothing": 0}).needs(load_topology("hh4b"))
        ((4,), (2,))
        """
        patterns = zip(plan_of(topology).patterns, self.log_prior(topology), strict=True)
        return tuple(pattern.needs(topology) for pattern, log_prior in patterns if np.isfinite(log_prior))
