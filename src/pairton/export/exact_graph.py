"""The exact decoding as a graph, from objects to the best hypothesis and its probabilities.

Shapes: B events, N nodes, S slots, P particles, C candidates of a type, K patterns, M topologies of a mixture.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pairton.decoding.patterns import LEAST, Question
from pairton.decoding.set_tables import set_tables
from pairton.decoding.terms import gain_terms, triplet_slots, triplet_types
from pairton.export.set_graph import SetGraph, Tables, log_sum
from pairton.export.step_graph import by_kind
from pairton.network.network import Network
from pairton.network.torch_set_sums import IMPOSSIBLE
from pairton.topology import Layout, Particle, Topology
from pairton.topology.mixtures import parts_of

__all__ = ["ExactGraph", "fitted", "output_names"]

DEFAULT_QUESTION = Question()
ANSWER = ("indices", "event_probability", "particle_probability")
TOPOLOGIES = ("topology_probability",)
PATTERNS = ("pattern_probability", "complete_probability", "event_probability_if_complete")


def output_names(network: Network) -> tuple[str, ...]:
    """The names of the outputs; those on patterns and topologies only if the network has them."""
    patterns = PATTERNS if "patterns" in network.outputs else ()
    return ANSWER + patterns + (TOPOLOGIES if network.topology.alternatives else ())


def fitted(objects: Tensor, mask: Tensor, fewest: int, most: int) -> tuple[Tensor, Tensor]:
    """The first `most` objects (B, N, F), padded to at least `fewest`, and their mask (B, N).

    >>> [part.shape[1] for n in (2, 5, 9) for part in fitted(torch.ones(1, n, 5), torch.ones(1, n) > 0, 4, 6)]
    [4, 4, 5, 5, 6, 6]
    """
    count = torch.clamp(torch.as_tensor(objects.shape[1]), min=fewest, max=most)
    missing = objects.new_zeros(objects.shape[0], fewest, objects.shape[2])
    objects = torch.cat([objects, missing], dim=1)[:, :count]
    mask = torch.cat([mask, missing[:, :, 0] > 0], dim=1)[:, :count]
    return objects, mask


def some_event(values: Tensor, events: Tensor) -> Tensor:
    """Values (B, …) of events, or of one event of zeros if there are none: ONNX cannot reshape empty arrays."""
    return torch.cat([values, values.new_zeros(1, *values.shape[1:])])[: torch.clamp(events, min=1)]


class _Summed(NamedTuple):
    outputs: dict[str, Tensor]  # of the network
    scores: dict[str, Tensor]  # type -> (C, B)
    terms: Tensor  # (K, B)
    sums: Tensor  # (K, B)
    present: dict[str, Tensor]  # type -> (C, B): probability of each candidate
    at: Tables


class ExactGraph(nn.Module):
    """A network and the sums over all hypotheses, for up to as many objects as in a layout.

    The number of objects of the main kind may vary. Other kinds are padded or cut to the number in the layout.
    Inside the graph, objects of the main kind are numbered last, so that the tables for fewer of them are parts of
    the full tables.
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
        self.question = question
        self.network, self.topology, self.temperature, self.layout = network, topology, temperature, layout
        self.main = topology.kinds.index(topology.main_kind)
        fixed = {kind: n for k, (kind, n) in enumerate(zip(topology.kinds, layout, strict=True)) if k != self.main}
        self.first = sum(fixed.values())
        nodes, start = {}, 0
        for kind, count in fixed.items():
            nodes[kind] = range(start, start + count)
            start += count
        nodes[topology.main_kind] = range(start, start + layout[self.main])
        self.has_patterns = "patterns" in network.outputs
        allowed = tuple(tuple(nodes[slot.kind]) for slot in topology.slots)
        self.starts = [nodes[slot.kind].start for slot in topology.slots]  # first node of the kind of each slot
        self.sums = SetGraph(set_tables(topology, allowed, not self.has_patterns), layout[self.main], self.first)
        tables, parts = self.sums.tables, parts_of(topology)
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
        answer = self._answer_to(by_kind(self.topology.kinds, tuple(some_event(each, events) for each in inputs)))
        return tuple(each[:events] for each in answer)

    def _answer_to(self, given: tuple[dict[str, Tensor], dict[str, Tensor]]) -> tuple[Tensor, ...]:
        """The answers for one or more events."""
        _, masks = given
        _, scores, terms, sums, present, at = self._summed(*given)
        total = log_sum(sums)
        topologies = torch.stack([log_sum(sums[ks[0] : ks[-1] + 1]) for ks in self.patterns_of])  # (M, B)
        part = topologies.argmax(dim=0)  # (B,): that of the answer
        score, slots = self._answer(scores, terms, sums, present, part, at)
        has_objects = torch.stack([masks[kind].any(dim=1) for kind in self.topology.object_kinds]).any(dim=0)
        possible = (score > 0.5 * IMPOSSIBLE) & has_objects
        nothing = torch.full_like(total, torch.nan)
        particles = [self._probability(p, slots, present[p.type], at) for p in self.topology.particles]
        columns = [torch.where(slots[:, k] >= 0, slots[:, k] - start, -1) for k, start in enumerate(self.starts)]
        event = torch.where(possible, (score - total).exp(), nothing)
        answer: tuple[Tensor, ...] = (
            torch.where(possible[:, None], torch.stack(columns, dim=1), -1),
            event,
            torch.where(possible[:, None], torch.stack(particles, dim=1), nothing[:, None]),
        )
        if not self.has_patterns:
            return answer
        patterns = torch.where(possible, (sums - total).exp(), nothing).T
        complete = torch.stack([patterns[:, k] for k in self.complete]).sum(dim=0)
        # from logarithms, since probabilities may be too small for single precision
        whole = log_sum(torch.stack([sums[k] for k in self.complete]))
        filled = _picked(torch.stack([(slots[:, own] >= 0).all(dim=1) for own in self.slots_of]), part)
        if_complete = torch.where(filled, (score - whole).exp(), 0 * score)
        fits = possible & (whole > 0.5 * IMPOSSIBLE)
        answer = (*answer, patterns, complete, torch.where(fits, if_complete, nothing))
        if len(self.patterns_of) == 1:
            return answer
        return (*answer, torch.where(possible, (topologies - total).exp(), nothing).T)

    def _summed(self, objects: dict[str, Tensor], masks: dict[str, Tensor]) -> _Summed:
        """Run the network, and sum over all hypotheses; objects and masks are cut or padded in place."""
        kinds = self.topology.kinds
        for k, kind in enumerate(kinds):
            fewest = self.topology.slots_per_kind[k] if k == self.main else self.layout[k]
            objects[kind], masks[kind] = fitted(objects[kind], masks[kind], fewest, self.layout[k])
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
        return _Summed(outputs, scores, terms, *self.sums.marginals(scores, terms, at), at)

    def _answer(
        self,
        scores: dict[str, Tensor],
        terms: Tensor,
        sums: Tensor,
        present: dict[str, Tensor],
        part: Tensor,
        at: Tables,
    ) -> tuple[Tensor, Tensor]:
        """Score (B,) and nodes (B, S) of the requested hypothesis of a topology (B,); -1 for absent particles."""
        whole = _picked(torch.stack([sums[k] for k in self.complete]), part)
        complete = whole > 0.5 * IMPOSSIBLE  # (B,): such a hypothesis is possible
        if self.question.answer == "event":
            score, slots = self.sums.best(scores, terms, at)
            chosen = self._chosen(score, complete, part)
            return _picked(score, chosen), _picked(slots, chosen)
        # candidates with a padded object stay impossible
        cost = LEAST if self.question.allow_absent else torch.where(complete, 0.0, LEAST)
        possible = {name: values > 0.5 * IMPOSSIBLE for name, values in scores.items()}
        gain = {name: torch.where(possible[name], values - cost, IMPOSSIBLE) for name, values in present.items()}
        value, slots = self.sums.best(gain, torch.where(sums > 0.5 * IMPOSSIBLE, 0.0, IMPOSSIBLE), at)
        chosen = self._chosen(value, complete, part)
        slots = _picked(slots, chosen)
        own = [self._own(p, slots, scores[p.type], at) for p in self.topology.particles]
        score = _picked(terms, chosen) + torch.stack(own).sum(dim=0)
        return torch.where(_picked(value, chosen) > 0.5 * IMPOSSIBLE, score, IMPOSSIBLE), slots

    def _chosen(self, value: Tensor, complete: Tensor, part: Tensor) -> Tensor:
        """(B,): the pattern of highest value (K, B) in one topology (B,).

        That of complete events where it is possible (B,), unless particles may be left out.
        """
        best = torch.stack([value[ks[0] : ks[-1] + 1].argmax(dim=0) + ks[0] for ks in self.patterns_of])
        if not self.question.allow_absent:
            whole = torch.stack([0 * best[0] + k for k in self.complete])
            best = torch.where(complete, whole, best)
        return _picked(best, part)

    def _scores(self, outputs: dict[str, Tensor], at: Tables, node: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Type -> (C, B): the score of each candidate, without its children; IMPOSSIBLE with a padded object."""
        edges, n_nodes = outputs["edges"], mask.shape[1]
        flat = edges.reshape(edges.shape[0], -1).T  # (T N N, B)
        absent = (1 - mask.to(edges.dtype)).T * IMPOSSIBLE  # (N, B)
        triplets = triplet_types(self.topology) if "triplets" in outputs else {}
        scores = {}
        for name in self.topology.types:
            particle = self.topology.of_type(name)[0]
            table = at[f"objects {name}"]  # (C, slots)
            place = {slot: node.index_select(0, table[:, k]) for k, slot in enumerate(particle.slots)}
            layer = self.topology.type_index(name) * n_nodes * n_nodes
            pairs, own = gain_terms(self.topology, particle)
            terms = [flat.index_select(0, layer + place[i] * n_nodes + place[j]) for i, j in pairs]
            terms += [-flat.index_select(0, layer + place[i] * (n_nodes + 1)) for i in own]
            if name in triplets:
                potentials = outputs["triplets"].reshape(edges.shape[0], -1).T
                row = torch.full_like(table[:, 0], list(triplets).index(name))
                for slot in triplet_slots(self.topology, particle):
                    row = row * n_nodes + place[slot]
                terms.append(potentials.index_select(0, row))
            scores[name] = torch.stack([absent.index_select(0, slot) for slot in table.T]).sum(dim=0)
            if terms:  # a candidate with one child has no edge
                scores[name] = scores[name] + torch.stack(terms).sum(dim=0) / self.temperature
        return scores

    def _probability(self, particle: Particle, slots: Tensor, present: Tensor, at: Tables) -> Tensor:
        """(B,): the probability of a particle with its objects in an assignment (B, S); NaN if it is absent."""
        is_present = (slots[:, list(particle.slots)] >= 0).all(dim=1)
        return torch.where(is_present, self._own(particle, slots, present, at), torch.nan)

    def _own(self, particle: Particle, slots: Tensor, values: Tensor, at: Tables) -> Tensor:
        """(B,): the value (C, B) of a particle's candidate in an assignment (B, S); 0 if it is absent."""
        objects = slots[:, list(particle.slots)]  # (B, slots)
        same = (at[f"objects {particle.type}"][:, None] == objects[None]).all(dim=2)  # (C, B)
        return torch.where(same, values, 0.0).sum(dim=0)


def _picked(values: Tensor, chosen: Tensor) -> Tensor:
    """(B, ...): the values (K, B, ...) of the chosen entry (B,) of each event."""
    index = chosen.reshape(1, -1, *[1] * (values.dim() - 2)).expand(1, *values.shape[1:])
    return values.gather(0, index)[0]
