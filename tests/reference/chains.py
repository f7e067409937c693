"""Decoding in steps by loops over every choice of one event: the slow reference of the engine on set tables."""

from collections import Counter
from itertools import chain, combinations, product

import numpy as np

from pairton.decoding.terms import gain_terms, triplet_slots, triplet_types


def slow_chain(topology, outputs, mask, temperatures, layout):
    """The particles found, as {type: {nodes in order of slots: probability}}, and P(event), all from one output.

    outputs: of one event, without its axis; mask: (N,)
    """
    free, found = set(np.flatnonzero(mask).tolist()), {name: {} for name in topology.types}
    allowed = [set(topology.nodes(slot.kind, layout)) & free for slot in topology.slots]
    taken, total = set(), 0.0
    for stage, temperature in zip(topology.stages, temperatures, strict=True):
        each = {
            name: list(_candidates(topology, name, [nodes & free for nodes in allowed], found, taken))
            for name in stage.types
        }
        if stage.any:
            few = {name for name in stage.types if len(found[name]) < len(topology.of_type(name))}
            choices = [((name, *candidate),) for name in sorted(few) for candidate in each[name]]
        else:
            parts = [
                combinations([(name, *c) for c in each[name]], count)
                for name, count in Counter(stage.types).items()
            ]
            choices = [tuple(chain(*part)) for part in product(*parts)]
        choices = [choice for choice in choices if _disjoint(choice)]
        gain = np.array([sum(_gain(topology, outputs, name, nodes) for name, nodes, _, _ in c) for c in choices])
        gain = gain / temperature
        step = gain.max() - np.logaddexp.reduce(gain)
        total += step
        for name, nodes, own, children in choices[int(gain.argmax())]:
            found[name][nodes] = np.exp(step) * np.prod([found[kind][inside] for kind, inside in children])
            free -= set(own)
            taken |= set(children)
    return found, np.exp(total)


def _candidates(topology, name, free, found, taken):
    """Yield nodes, own nodes and children (type, nodes) of every particle that the objects left allow."""
    particle = topology.of_type(name)[0]
    below = [topology.particles[child] for child in particle.children]
    pools = [[(p.type, nodes) for nodes in found[p.type] if (p.type, nodes) not in taken] for p in below]
    for children in product(*pools):
        if len(set(children)) < len(children):
            continue
        for own in product(*(free[slot] for slot in particle.own_slots)):
            if len(set(own)) < len(own):
                continue
            at = dict(zip(particle.own_slots, own, strict=True))
            for child, (_, inside) in zip(below, children, strict=True):
                at |= dict(zip(child.slots, inside, strict=True))
            nodes = tuple(at[slot] for slot in particle.slots)
            if nodes == _in_order(topology, particle, at):
                yield nodes, own, children


def _in_order(topology, particle, at):
    """The nodes with interchangeable products in increasing order."""
    at, inside = dict(at), set(particle.slots)
    for group in topology.sibling_groups:
        if inside.issuperset(chain(*group)):
            ordered = sorted(tuple(at[slot] for slot in slots) for slots in group)
            for slots, nodes in zip(group, ordered, strict=True):
                at |= dict(zip(slots, nodes, strict=True))
    return tuple(at[slot] for slot in particle.slots)


def _disjoint(choice):
    own = [node for _, _, nodes, _ in choice for node in nodes]
    children = [child for _, _, _, each in choice for child in each]
    return len(set(own)) == len(own) and len(set(children)) == len(children)


def _gain(topology, outputs, name, nodes):
    particle = topology.of_type(name)[0]
    at, s = (
        dict(zip(particle.slots, nodes, strict=True)),
        outputs["edges"][topology.type_index(name)].astype(float),
    )
    pairs, own = gain_terms(topology, particle)
    gain = sum(s[at[i], at[j]] for i, j in pairs) - sum(s[at[i], at[i]] for i in own)
    types = list(triplet_types(topology))
    if name in types and "triplets" in outputs:
        i, j, k = (at[slot] for slot in triplet_slots(topology, particle))
        gain += float(outputs["triplets"][types.index(name), i, j, k])
    return gain
