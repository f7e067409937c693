"""How a model is run: decoding, objects that are used, and what is asked; checked against the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pairton.decoding import BRANCHES, Question, get_decoding
from pairton.decoding.branches import branch_plan
from pairton.decoding.set_tables import exact_limit
from pairton.errors import ConfigError, ModelError
from pairton.events.acceptance import MAX_OBJECTS, check_max_objects
from pairton.events.domain import Bounds
from pairton.kinematics.fit_decoding import KINEMATIC
from pairton.topology import Topology, collection_name

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["DEFAULT_SETTINGS", "RunSettings", "knows_missing"]


@dataclass(frozen=True)
class RunSettings:
    """How a reconstruction is made; all that changes an answer, but for the model and the input."""

    decoding: str | None = None  # a name in `pairton.decoding.DECODINGS`; None: what the model was trained for
    beam: int | None = None  # hypotheses of a beam; a number alone chooses the decoding `beam`
    max_objects: int = MAX_OBJECTS  # of each kind; events with more use those of highest pT
    cuts: bool | Bounds = True  # leave out objects outside the model's domain, or outside bounds of the user's
    answer: str = "event"  # a name in `pairton.decoding.ANSWERS`
    allow_absent: bool = False  # leave out particles that are more likely absent than present
    prior: Mapping[str, float] = field(default_factory=dict)  # pattern -> factor on its prior probability

    @property
    def question(self) -> Question:
        return Question(self.answer, self.allow_absent, self.prior)

    def for_model(self, model: Model) -> RunSettings:
        """With the decoding that is meant, checked."""
        decoding = self.decoding or ("beam" if self.beam is not None else model.decoding)
        self._check_question(model, decoding)
        if decoding != model.decoding and any(get_decoding(name).only_own for name in (decoding, model.decoding)):
            raise ConfigError(f"{model.name} is decoded by {model.decoding}: leave the decoding {decoding} out")
        check_max_objects(model.topology, self.max_objects)
        most = self.max_objects
        if decoding == "exact":  # no more than the sums take; events with more are truncated
            most = min(most, exact_limit(model.topology))
        elif decoding == BRANCHES:
            limit = exact_limit(branch_plan(model.topology).apart, complete_only=True)
            most = min(most, limit, getattr(model.engine, "most_objects", most))
        elif decoding == KINEMATIC:
            most = min(most, exact_limit(model.topology, complete_only=True))
        check_max_objects(model.topology, most)
        return replace(self, decoding=decoding, max_objects=most, cuts=self._cuts_for(model.topology))

    def _cuts_for(self, topology: Topology) -> bool | Bounds:
        """Cuts on kinds of objects that there are."""
        if isinstance(self.cuts, bool):
            return self.cuts
        found = {kind: bounds for kind, bounds in self.cuts.items() if kind in topology.kinds}
        if not found:
            names = ", ".join(map(collection_name, topology.kinds))
            raise ConfigError(
                f"cuts on {', '.join(map(collection_name, self.cuts))}, but {topology.name} has {names}"
            )
        return found

    def _check_question(self, model: Model, decoding: str) -> None:
        if not get_decoding(decoding).knows_missing and not self.question.is_default:
            raise ConfigError(
                f"--answer, --allow-absent and --prior need the exact likelihood, not the decoding {decoding}: "
                "leave them out, or take --decoding exact"
            )
        self.question.log_prior(model.topology)
        if (self.allow_absent or self.prior) and not knows_missing(model, decoding):
            raise ModelError(
                f"the model {model.name} knows complete events only: --allow-absent and --prior need one that was "
                "trained with network.patterns"
            )

    def needs(self, model: Model) -> tuple[tuple[int, ...], ...]:
        """Objects of each kind that an event must have for an answer, besides those with enough for all slots."""
        return self.question.needs(model.topology) if knows_missing(model, str(self.decoding)) else ()


def knows_missing(model: Model, decoding: str) -> bool:
    """Whether the answers of a model are chosen among all hypotheses, not among complete ones alone."""
    return "patterns" in model.info.outputs and get_decoding(decoding).knows_missing


DEFAULT_SETTINGS = RunSettings()
