"""The exact likelihood of the whole event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from pairton.decoding.patterns import MAX_SUMS, allowed_nodes, count_sums
from pairton.decoding.set_tables import Hypotheses, SetTables, hypotheses, set_tables
from pairton.errors import ConfigError
from pairton.network import Network
from pairton.network.torch_set_sums import candidate_scores, log_likelihood
from pairton.topology import Layout, Topology
from pairton.topology.vocabulary import mixture
from pairton.training.losses.loss import Arrays, Examples, Loss, Target

if TYPE_CHECKING:
    from pairton.training.recipes import Recipe

__all__ = ["EventLikelihood"]

PATTERN = "pattern"


class EventLikelihood(Loss):
    """- log P(truth), among all hypotheses, or among complete ones if the network has no output `patterns`."""

    name, decoding, validated = "event_likelihood", "exact", True
    settings: ClassVar = {  # events that need more sums are trained on their edges
        "likelihood_bound": (Annotated[int, Meta(le=MAX_SUMS)], 100_000),
        # with several topologies, sum over all of them, so that the network learns which one an event is of
        "mixture": (bool, False),
    }

    def check(self, recipe: Recipe) -> None:
        if recipe.network.tokens:
            raise ConfigError(
                "loss.event_likelihood is for networks that answer in one pass: set network.tokens: false, or "
                "train a network with tokens by loss.masked_edges"
            )
        alone = not recipe.heads and not any(w for name, w in recipe.loss.weights.items() if name != self.name)
        if recipe.loss.settings["mixture"]:
            mixture(recipe.topology.trees)
        if recipe.data.events != "complete" and alone and not recipe.network.patterns:
            raise ConfigError(
                f"data.events is {recipe.data.events}, but without network.patterns, loss.event_likelihood learns "
                "from complete events alone: set network.patterns: true, or data.events: complete"
            )

    def possible(self, recipe: Recipe, topology: Topology, layout: Layout) -> bool:
        """Whether the sums of an event stay within `loss.likelihood_bound`."""
        sums = count_sums(topology, allowed_nodes(topology, layout), not recipe.network.patterns)
        return sums <= int(recipe.loss.settings["likelihood_bound"])

    def prepare(self, examples: Examples) -> Arrays:
        found = hypotheses(_tables(examples), examples.truth, examples.part, examples.nodes.overlaps)
        named = {PATTERN: found.pattern, **{name: places.T for name, places in found.candidates.items()}}
        return {name: values.astype(np.int32) for name, values in named.items()}

    def target(self, examples: Examples) -> Target:
        prepared = examples.prepared.get(self.name) or self.prepare(examples)
        own = {name: values.astype(np.intp).T for name, values in prepared.items()}
        truth = Hypotheses(own.pop(PATTERN), own)
        counted, overlaps = np.asarray(truth.pattern >= 0), examples.nodes.overlaps
        return {"tables": _tables(examples), "truth": truth, "counted": counted, "overlaps": overlaps}

    def per_event(self, network: Network, outputs: Mapping[str, Tensor], target: Target) -> Tensor:
        triplets = outputs["triplets"].float() if "triplets" in outputs else None
        scores = candidate_scores(target["tables"], outputs["edges"].float(), triplets)
        terms = outputs["patterns"].float().T if "patterns" in outputs else None
        likelihood = log_likelihood(target["tables"], scores, target["truth"], terms, target["overlaps"])
        # the truth of an incomplete event is not among the complete hypotheses
        return torch.where(target["counted"], -likelihood, torch.zeros_like(likelihood))


def _tables(examples: Examples) -> SetTables:
    allowed = allowed_nodes(examples.topology, examples.nodes.layout)
    return set_tables(examples.topology, allowed, complete_only=not examples.recipe.network.patterns)
