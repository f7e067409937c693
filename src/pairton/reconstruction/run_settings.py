"""The settings of a reconstruction: decoding, objects, and kind of answer; they are checked against the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._common.configuration import read_yaml
from pairton.decoding import DECODINGS, Question, get_decoding
from pairton.errors import ConfigError, ModelError
from pairton.events.acceptance import MAX_OBJECTS, check_max_objects
from pairton.events.domain import Bounds, describe_cuts, used_cuts, user_cuts
from pairton.topology import Selection, Topology, builtin_topologies, load_topology, same_tree

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["DEFAULT_SETTINGS", "RunSettings", "hypotheses", "knows_missing", "own_selection", "read_prior"]


@dataclass(frozen=True)
class RunSettings:
    """Everything that changes an answer, besides the model and the input."""

    decoding: str | None = None  # a name of `pairton.decoding.get_decoding`; None: that of the model
    max_objects: int = MAX_OBJECTS  # of each kind; if there are more, those of highest pT are used
    cuts: bool | Bounds = True  # leave out objects outside these bounds, else outside the model's domain
    answer: str = "event"  # a name in `pairton.decoding.ANSWERS`
    allow_absent: bool = False  # leave out particles that are more likely absent than present
    prior: Mapping[str, float] = field(default_factory=dict)  # pattern -> factor on its prior probability
    best: int = 0  # how many of the most probable assignments are listed
    truth: bool = False  # whether the labels of the events are compared with the answers

    @classmethod
    def of(
        cls,
        *,
        cuts: bool | Bounds = True,
        jets: str | None = None,
        leptons: str | None = None,
        prior: Mapping[str, float] | str | Path | None = None,
        **settings: Any,
    ) -> RunSettings:
        """The settings from arguments of `pairton.reconstruct`."""
        factors = read_prior(prior) if isinstance(prior, str | Path) else prior or {}
        return cls(cuts=user_cuts(jets, leptons, cuts), prior=factors, **settings)

    @property
    def question(self) -> Question:
        return Question(self.answer, self.allow_absent, self.prior, best=self.best)

    def for_events(self, model: Model, topology: Topology | None, pile_up: bool) -> RunSettings:
        """The settings with a number for every cut on objects.

        topology   of the events, as the user gave it; None: that of the model
        pile_up    whether the events may have jets from pile-up: objects must then pass the tree's own cuts too
        """
        own = own_selection(model, topology) if pile_up else None
        return replace(self, cuts=used_cuts(self.cuts, model.domain, model.topology.kinds, own))

    def objects_used(self, model: Model, topology: Topology | None, pile_up: bool) -> str:
        """A line on the cuts of `for_events`, and on how to choose the other ones."""
        used, other = (self.for_events(model, topology, how).cuts for how in (pile_up, not pile_up))
        assert isinstance(used, Mapping)
        assert isinstance(other, Mapping)
        return describe_cuts(used, other, pile_up)

    def for_model(self, model: Model) -> RunSettings:
        """The settings with the decoding and limits for a model; ConfigError or ModelError if they do not fit."""
        decoding = self.decoding or model.decoding
        answers_itself = getattr(model, "answer", None) is not None
        if decoding != model.decoding and (
            answers_itself or get_decoding(decoding).reads != get_decoding(model.decoding).reads
        ):
            raise ConfigError(
                f"{model.name} takes the decoding {model.decoding} only, not {decoding}: leave it out"
            )
        self._check_question(model, decoding)
        if answers_itself:
            limit = getattr(model.engine, "most_objects", self.max_objects)
        else:
            get_decoding(decoding).check(model)
            limit = get_decoding(decoding).limit(model)
        check_max_objects(model.topology, self.max_objects)
        most = min(self.max_objects, limit)  # larger events are truncated
        check_max_objects(model.topology, most)
        used = used_cuts(self.cuts, model.domain, model.topology.kinds)
        return replace(self, decoding=decoding, max_objects=most, cuts=used)

    def _check_question(self, model: Model, decoding: str) -> None:
        if not self.question.is_default and not (decoding in DECODINGS and DECODINGS[decoding].knows_missing):
            raise ConfigError(
                f"--answer, --prior and --best need the exact likelihood, not the decoding {decoding}: "
                "leave it out, or use --decoding exact"
            )
        self.question.log_prior(model.topology)
        if (self.allow_absent or self.prior) and not knows_missing(model, decoding):
            raise ModelError(
                f"the model {model.name} knows complete events only: absent particles and a prior need one that "
                "was trained with network.patterns"
            )

    def needs(self, model: Model) -> tuple[tuple[int, ...], ...]:
        """Numbers of objects of each kind, besides those of all slots, with which an event can have an answer."""
        return self.question.needs(model.topology) if knows_missing(model, str(self.decoding)) else ()


def own_selection(model: Model, topology: Topology | None) -> Selection:
    """The selection of a decay tree: of the topology that the user gave, or else of the built-in tree of a model.

    A model may have been trained with looser cuts than those of the tree.
    """
    if topology is not None and topology != model.topology:
        return topology.selection
    tree = topology or model.topology
    named = load_topology(tree.name) if tree.name in builtin_topologies() else tree
    return named.selection if same_tree(named, tree) else tree.selection


def read_prior(path: str | Path) -> dict[str, float]:
    """The factors in a file of `pairton measure prior`."""
    raw = read_yaml(path)
    factors = raw.get("prior") if isinstance(raw, Mapping) else None
    if not isinstance(factors, Mapping):
        raise ConfigError(
            f"{path} has no prior: make one with `pairton measure prior`, or give factors as in nothing=5"
        )
    return {str(name): factor for name, factor in factors.items()}


def knows_missing(model: Model, decoding: str) -> bool:
    """Whether a model chooses its answers among all hypotheses, not only among complete ones."""
    return "patterns" in model.info.outputs and get_decoding(decoding).knows_missing


def hypotheses(decoding: str | None) -> int:
    """The number of hypotheses that a decoding keeps: 1 unless it is a beam."""
    known = DECODINGS.get(str(decoding).partition(":")[0])
    return 1 if known is None or known.width is None else get_decoding(str(decoding)).width or 1


DEFAULT_SETTINGS = RunSettings()
