"""The whole reconstruction in one graph, from objects to indices and probabilities."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from pairton.decoding import Question, decode, get_decoding
from pairton.decoding.patterns import LEAST, plan_of
from pairton.errors import ModelError
from pairton.events.nodes import Nodes
from pairton.export.exact_graph import ExactGraph, output_names
from pairton.export.limits import checked_limit, layout_of, used_objects
from pairton.export.targets.target import Arrays, Target, some_events
from pairton.models.storage import ModelInfo
from pairton.network import Network
from pairton.network.engine import predictor

__all__ = ["WholeTarget"]

DEFAULT_QUESTION = Question()


class WholeTarget(Target):
    """The whole reconstruction.

    max_objects   the largest number of objects of the main kind in an event
    decoding      the decoding; None for the model's default
    question      which answer, whether it may leave out particles, and a prior
    """

    name = "whole"
    tolerance = 1e-3  # of probabilities: scores are sums of tens of logits in single precision

    def __init__(
        self,
        network: Network,
        info: ModelInfo,
        *,
        max_objects: int | None = None,
        decoding: str | None = None,
        question: Question = DEFAULT_QUESTION,
    ) -> None:
        super().__init__(network, info)
        topology, has_patterns = info.topology, "patterns" in network.outputs
        if (question.allow_absent or question.prior) and not has_patterns:
            raise ModelError(
                "the model knows complete events only: absent particles and a prior need one that was trained "
                "with network.patterns"
            )
        self.decoding, self.question = decoding or info.decoding, question
        if get_decoding(self.decoding).name != "exact":
            raise ModelError(f"the decoding {self.decoding} cannot be exported as one graph: choose exact")
        limit = checked_limit(topology, max_objects, complete_only=not has_patterns)
        own = self.decoding == info.decoding and info.temperatures
        self.temperatures = list(info.temperatures) if own else None
        self.about = {
            "graph": "whole",
            "decoding": self.decoding,
            "max_objects": limit,
            "objects": used_objects(topology, limit),
            "slots": [slot.name for slot in topology.slots],
            "particles": [particle.name for particle in topology.particles],
            **{name: value for name, value in asdict(question).items() if name != "topology"},
            **({"patterns": [pattern.key for pattern in plan_of(topology).patterns]} if has_patterns else {}),
            **({"topologies": [name for name, _ in topology.alternatives]} if topology.alternatives else {}),
        }
        temperature = self.temperatures[0] if self.temperatures else 1.0
        self.graph = ExactGraph(network, topology, layout_of(topology, limit), temperature, question)
        self.outputs = dict.fromkeys(output_names(network), ())
        fewest = max(topology.slots_per_kind)
        numbers = [min(limit, fewest + 1), *sorted({fewest, min(fewest + 2, limit), limit})]
        self.cases = [some_events(network, layout_of(topology, number)) for number in numbers]
        if has_patterns:  # events with fewer objects than slots have an answer too
            for number, nodes in zip(numbers[1:], self.cases[1:], strict=True):
                for k in range(min(4, number)):
                    nodes.masks[topology.main_kind][k, number - 1 - k :] = False

    def expected(self, nodes: Nodes) -> Arrays:
        topology = self.info.topology
        answer = decode(
            predictor(self.network),
            topology,
            nodes,
            decoding=self.decoding,
            temperatures=self.temperatures,
            question=self.question,
        )
        indices = np.where(answer.assignment >= 0, answer.assignment - topology.offsets(nodes.layout), -1)
        names = ["event_probability", "particle_probability", "pattern_probability", "topology_probability"]
        return {"indices": indices} | {name: getattr(answer, name) for name in names if name in self.outputs}

    def difference(self, found: Arrays, nodes: Nodes) -> float:
        """The largest difference of probabilities; of two equally good answers, either may be found."""
        wanted = self.expected(nodes)
        same = (found["indices"] == wanted["indices"]).all(axis=1)
        pairs = [(found[name], wanted[name]) for name in wanted if name.startswith(("pattern", "topology"))]
        of_answer = ("event_probability", "particle_probability")
        pairs += [(found[name][same], wanted[name][same]) for name in of_answer]
        if self.question.answer == "particles":
            cost = LEAST * (self.question.allow_absent | ~nodes.can_fill(self.info.topology))
            both = (found["particle_probability"], wanted["particle_probability"])
            one, other = (np.nansum(values - cost[:, None], axis=1) for values in both)
            pairs.append((one, other))
        else:
            pairs.append((same, np.ones_like(same)))
        if any((np.isnan(one.astype(float)) != np.isnan(other)).any() for one, other in pairs):
            return np.inf
        return max(float(np.nanmax(np.abs(one.astype(float) - other), initial=0)) for one, other in pairs)
