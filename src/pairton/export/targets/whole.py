"""The whole reconstruction in one graph: from objects to the best hypothesis and its probabilities.

Shapes: B events, N nodes, S slots, P particles, C candidates of a type, K patterns, M topologies of a mixture.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pairton.decoding import Question, decode, get_decoding
from pairton.decoding.patterns import LEAST, plan_of
from pairton.decoding.set_tables import set_tables
from pairton.decoding.terms import logit_rows
from pairton.errors import ModelError
from pairton.events.nodes import Nodes
from pairton.export.set_graph import SetGraph, Tables, is_possible, log_sum
from pairton.export.targets.target import Arrays, Target, by_kind, checked_limit, for_tree, layout_of
from pairton.models.storage import ModelInfo
from pairton.network import Network
from pairton.network.engine import predictor
from pairton.network.torch_set_sums import IMPOSSIBLE
from pairton.topology import Layout, Particle, Topology
from pairton.topology.vocabulary import parts_of

__all__ = ["ExactGraph", "Summed", "WholeTarget", "output_names"]

DEFAULT_QUESTION = Question()
ANSWER = ("indices", "event_probability", "particle_probability")
PATTERNS = ("pattern_probability", "complete_probability", "event_probability_if_complete")


def output_names(network: Network) -> tuple[str, ...]:
    """The names of the outputs; those on patterns and topologies only if the network has them."""
    patterns = PATTERNS if "patterns" in network.outputs else ()
    return ANSWER + patterns + (("topology_probability",) if network.topology.alternatives else ())


class Summed(NamedTuple):
    """The outputs of the network, and the sums over all hypotheses."""

    outputs: dict[str, Tensor]
    scores: dict[str, Tensor]  # type -> (C, B)
    terms: Tensor  # (K, B)
    sums: Tensor  # (K, B)
    present: dict[str, Tensor]  # type -> (C, B): probability of each candidate
    at: Tables


class ExactGraph(nn.Module):
    """A network and the sums over all hypotheses, for up to as many objects as in a layout.

    The number of objects of the main kind may vary. Other kinds are padded or cut to the number in the layout.
    In the tables, objects of the main kind are numbered last, as `SetGraph` requires.
    """

    prior: Tensor  # (K, 1): logarithms

    def __init__(
        self,
        network: Network,
        topology: Topology,
        layout: Layout,
        temperature: float = 1.0,
        question: Question = DEFAULT_QUESTION,
    ) -> None:
        super().__init__()
        self.network, self.topology, self.layout = network, topology, layout
        self.temperature, self.question = temperature, question
        self.main = topology.kinds.index(topology.main_kind)
        sizes = dict(zip(topology.kinds, layout, strict=True))
        self.order = sorted(topology.kinds, key=lambda kind: kind == topology.main_kind)  # in the tables
        first = dict(zip(self.order, np.cumsum([0, *(sizes[kind] for kind in self.order)]).tolist(), strict=False))
        self.starts = [first[slot.kind] for slot in topology.slots]  # first node of the kind of each slot
        allowed = tuple(tuple(range(first[s.kind], first[s.kind] + sizes[s.kind])) for s in topology.slots)
        self.has_patterns = "patterns" in network.outputs
        tables, parts = set_tables(topology, allowed, not self.has_patterns), parts_of(topology)
        self.sums = SetGraph(tables, layout[self.main], first[topology.main_kind])
        self.patterns_of = [tables.patterns_of(part) for part in range(len(parts))]  # consecutive numbers
        self.complete = [tables.patterns_of(part, complete=True)[0] for part in range(len(parts))]
        self.slots_of = [list(part.slots) for part in parts]
        prior = np.maximum(question.log_prior(topology), IMPOSSIBLE)[:, None].astype(np.float32)
        self.register_buffer("prior", torch.from_numpy(prior), persistent=False)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs that `output_names` names.

        indices                         (B, S): of objects among those of their kind; -1 for none
        event_probability               (B,): that the whole answer is right
        particle_probability            (B, P): NaN for absent particles
        pattern_probability             (B, K)
        complete_probability            (B,)
        event_probability_if_complete   (B,)
        topology_probability            (B, M)
        """
        events = torch.as_tensor(inputs[0].shape[0])
        # one event of zeros if there are none: ONNX cannot reshape empty arrays
        padded = (torch.cat([each, each.new_zeros(1, *each.shape[1:])]) for each in inputs)
        some = tuple(each[: torch.clamp(events, min=1)] for each in padded)
        return tuple(each[:events] for each in self._answer_to(*by_kind(self.topology.kinds, some)))

    def _answer_to(self, objects: dict[str, Tensor], masks: dict[str, Tensor]) -> tuple[Tensor, ...]:
        summed = self.summed(objects, masks)
        sums, at = summed.sums, summed.at
        total = log_sum(sums)
        topologies = torch.stack([log_sum(sums[ks[0] : ks[-1] + 1]) for ks in self.patterns_of])  # (M, B)
        part = topologies.argmax(dim=0)  # (B,): that of the answer
        score, slots = self._answer(summed, part)
        has_objects = torch.stack([masks[kind].any(dim=1) for kind in self.topology.object_kinds]).any(dim=0)
        possible = is_possible(score) & has_objects
        columns = [torch.where(slots[:, k] >= 0, slots[:, k] - start, -1) for k, start in enumerate(self.starts)]
        particles = []
        for particle in self.topology.particles:
            chance = self._own(particle, slots, summed.present, at)
            there = (slots[:, list(particle.slots)] >= 0).all(dim=1)
            particles.append(torch.where(there & possible, chance, torch.nan))
        answer = [
            torch.where(possible[:, None], torch.stack(columns, dim=1), -1),
            torch.where(possible, (score - total).exp(), torch.nan),
            torch.stack(particles, dim=1),
        ]
        if self.has_patterns:
            patterns = torch.where(possible, (sums - total).exp(), torch.nan).T
            # from logarithms, since probabilities may be too small for single precision
            whole = log_sum(torch.stack([sums[k] for k in self.complete]))
            filled = _picked(torch.stack([(slots[:, own] >= 0).all(dim=1) for own in self.slots_of]), part)
            if_complete = torch.where(filled, (score - whole).exp(), 0 * score)
            answer += [
                patterns,
                torch.stack([patterns[:, k] for k in self.complete]).sum(dim=0),
                torch.where(possible & is_possible(whole), if_complete, torch.nan),
            ]
        if len(self.patterns_of) > 1:
            answer.append(torch.where(possible, (topologies - total).exp(), torch.nan).T)
        return tuple(answer)

    def summed(self, objects: dict[str, Tensor], masks: dict[str, Tensor]) -> Summed:
        """Run the network, and sum over all hypotheses; objects and masks are cut or padded in place."""
        kinds = self.topology.kinds
        for k, kind in enumerate(kinds):
            fewest, most = self.topology.slots_per_kind[k] if k == self.main else self.layout[k], self.layout[k]
            kept = torch.clamp(torch.as_tensor(objects[kind].shape[1]), min=fewest, max=most)
            missing = objects[kind].new_zeros(objects[kind].shape[0], fewest, objects[kind].shape[2])
            objects[kind] = torch.cat([objects[kind], missing], dim=1)[:, :kept]
            masks[kind] = torch.cat([masks[kind], missing[:, :, 0] > 0], dim=1)[:, :kept]
        outputs = self.network(objects, masks, None)
        # (N,): the node of the network for each node of the tables
        count = objects[kinds[self.main]].shape[1]
        every = torch.arange(sum(objects[kind].shape[1] for kind in kinds))
        before = sum(self.layout[: self.main])
        node = torch.cat([every[:before], every[before + count :], every[before : before + count]])
        at = self.sums.at(count)
        mask = torch.cat([masks[kind] for kind in kinds], dim=1).index_select(1, node)
        scores = self._scores(outputs, at, node, mask)
        terms = 0 * outputs["edges"][:, 0, 0, :1].T  # (K, B)
        if self.has_patterns:
            terms = outputs["patterns"].T / self.temperature + self.prior
        return Summed(outputs, scores, terms, *self.sums.marginals(scores, terms, at), at)

    def _scores(self, outputs: dict[str, Tensor], at: Tables, node: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Type -> (C, B): the score of each candidate, without its children; IMPOSSIBLE with a padded object."""
        flat = {name: outputs[name].flatten(1).T for name in ("edges", "triplets") if name in outputs}  # (…, B)
        absent = (1 - mask.to(outputs["edges"].dtype)).T * IMPOSSIBLE  # (N, B)
        scores = {}
        for name in self.topology.types:
            table = at[f"objects {name}"]  # (C, slots)
            slots = self.topology.of_type(name)[0].slots
            place = {slot: node.index_select(0, table[:, k]) for k, slot in enumerate(slots)}
            added, subtracted, potentials = logit_rows(
                self.topology, self.topology.forms[name], place, mask.shape[1]
            )
            terms = [flat["edges"].index_select(0, row) for row in added]
            terms += [-flat["edges"].index_select(0, row) for row in subtracted]
            if "triplets" in flat:
                terms += [flat["triplets"].index_select(0, row) for row in potentials]
            scores[name] = torch.stack([absent.index_select(0, slot) for slot in table.T]).sum(dim=0)
            if terms:  # a candidate with one child has no edge
                scores[name] = scores[name] + torch.stack(terms).sum(dim=0) / self.temperature
        return scores

    def _answer(self, summed: Summed, part: Tensor) -> tuple[Tensor, Tensor]:
        """Score (B,) and nodes (B, S) of the requested hypothesis of a topology (B,); -1 for absent particles."""
        _, scores, terms, sums, present, at = summed
        complete = is_possible(_picked(torch.stack([sums[k] for k in self.complete]), part))  # (B,)
        if self.question.answer == "event":
            score, slots = self.sums.best(scores, terms, at)
            chosen = self._chosen(score, complete, part)
            return _picked(score, chosen), _picked(slots, chosen)
        # candidates with a padded object stay impossible
        cost = LEAST if self.question.allow_absent else torch.where(complete, 0.0, LEAST)
        gain = {name: torch.where(is_possible(scores[name]), p - cost, IMPOSSIBLE) for name, p in present.items()}
        value, slots = self.sums.best(gain, torch.where(is_possible(sums), 0.0, IMPOSSIBLE), at)
        chosen = self._chosen(value, complete, part)
        slots = _picked(slots, chosen)
        own = [self._own(particle, slots, scores, at) for particle in self.topology.particles]
        score = _picked(terms, chosen) + torch.stack(own).sum(dim=0)
        return torch.where(is_possible(_picked(value, chosen)), score, IMPOSSIBLE), slots

    def _chosen(self, value: Tensor, complete: Tensor, part: Tensor) -> Tensor:
        """(B,): the pattern of highest value (K, B) in one topology (B,).

        That of complete events where it is possible (B,), unless particles may be left out.
        """
        best = torch.stack([value[ks[0] : ks[-1] + 1].argmax(dim=0) + ks[0] for ks in self.patterns_of])
        if not self.question.allow_absent:
            whole = torch.stack([0 * best[0] + k for k in self.complete])
            best = torch.where(complete, whole, best)
        return _picked(best, part)

    def _own(self, particle: Particle, slots: Tensor, values: dict[str, Tensor], at: Tables) -> Tensor:
        """(B,): the value (C, B) of a particle's candidate in an assignment (B, S); 0 if it is absent."""
        objects = slots[:, list(particle.slots)]  # (B, slots)
        same = (at[f"objects {particle.type}"][:, None] == objects[None]).all(dim=2)  # (C, B)
        return torch.where(same, values[particle.type], 0.0).sum(dim=0)


def _picked(values: Tensor, chosen: Tensor) -> Tensor:
    """(B, ...): the values (K, B, ...) of the chosen entry (B,) of each event."""
    index = chosen.reshape(1, -1, *[1] * (values.dim() - 2)).expand(1, *values.shape[1:])
    return values.gather(0, index)[0]


class WholeTarget(Target):
    """The whole reconstruction.

    max_objects   the largest number of objects of the main kind in an event
    decoding      the decoding; None for the model's default
    question      which answer, whether it may leave out particles, and a prior
    topology      the topology of the events, for a network that was trained on several
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
        topology: str | Path | Topology | None = None,
    ) -> None:
        network, info = for_tree(network, info, topology)
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
        self.limited_to(topology, limit)
        own = self.decoding == info.decoding and info.temperatures
        self.temperatures = info.temperatures if own else (1.0,)
        self.about = {
            "graph": "whole",
            "decoding": self.decoding,
            **self.about,
            "slots": [slot.name for slot in topology.slots],
            "particles": [particle.name for particle in topology.particles],
            **asdict(question),
            **({"patterns": [pattern.key for pattern in plan_of(topology).patterns]} if has_patterns else {}),
            **({"topologies": [tree.name for tree in topology.alternatives]} if topology.alternatives else {}),
        }
        self.graph = ExactGraph(network, topology, layout_of(topology, limit), self.temperatures[0], question)
        self.outputs = dict.fromkeys(output_names(network), ())
        if has_patterns:  # events with fewer objects than slots have an answer too
            for nodes in self.cases[1:]:
                mask = nodes.masks[topology.main_kind]
                for k in range(min(4, mask.shape[1])):
                    mask[k, mask.shape[1] - 1 - k :] = False

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
        pairs += [(found[name][same], wanted[name][same]) for name in ANSWER[1:]]
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
