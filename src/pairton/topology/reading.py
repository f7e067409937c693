"""Read a topology from YAML and check its syntax."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from pairton._common.configuration import check_keys, configure, parse_yaml, read_yaml
from pairton.errors import TopologyError, nearest, shown
from pairton.topology.extras import Extras
from pairton.topology.kinds import JET, collection_name
from pairton.topology.pdg import parse_invisible
from pairton.topology.selection import Selection
from pairton.topology.tree import Stage, Topology, below

__all__ = ["builtin_topologies", "load_topology", "parse_topology"]

FOLDER = Path(__file__).parent / "builtin"
MOST_SLOTS = 24
RESERVED = ("event", "complete")  # their probabilities are columns of every result

Title = Annotated[str, Meta(pattern=r"^.*\S.*$", description="a word such as ttbar_allhad")]
Name = Annotated[str, Meta(pattern=r"^[^\W\d]\w*$", description="a name of letters, digits and _")]
Names = Annotated[tuple[Name, ...], Meta(min_length=1, description="a list of at least one name, as [W, b]")]
# products; or a list of them, and one object that may be the whole particle; names are checked by `_appearances`
Decay = Annotated[tuple[str | tuple[str, ...], ...], Names.__metadata__[0]]
Code = Annotated[int, Meta(gt=0, lt=10_000)]
Codes = Annotated[tuple[Code, ...], Meta(min_length=1, description="a list of PDG codes without sign, as [6]")]


class _Any(Struct, forbid_unknown_fields=True):
    any: Names


class _File(Extras, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of the file of a topology."""

    name: Title
    event: Names
    particles: dict[Name, Decay] = {}
    stages: list[Names | _Any] = []
    selection: dict[str, dict[str, Any]] = {}
    objects: dict[Name, Name] = {}
    context: tuple[Name, ...] = ()
    codes: dict[Name, Codes] = {}
    invisible: dict[Name, tuple[Name, ...] | dict[Name, tuple[Name, ...]]] = {}
    alternatives: dict[Name, Names | dict[str, Any]] = {}  # root particles, or a whole tree


def parse_topology(raw: object, source: str = "topology") -> Topology:
    """Make a topology from plain data, as YAML or JSON gives it; `source` is named in errors."""
    if isinstance(raw, Mapping):
        raw = {key: value for key, value in raw.items() if value is not None}  # a key without a value
    file = configure(_File, raw, source, TopologyError)
    kinds = dict.fromkeys([*file.objects.values(), JET, *file.context])
    try:
        decays, merged = _appearances(file.particles)
        products = dict.fromkeys([*file.event, *(name for names in decays.values() for name in names)])
        objects = sorted((products.keys() | set(merged.values())) - decays.keys())
        if not file.name.isprintable():
            raise TopologyError(f"name is {shown(file.name)}, but must be a word such as ttbar_allhad")
        for name in RESERVED:
            if name in file.event or name in decays:
                raise TopologyError(f"{name}_probability is a column of results: rename the particle {name!r}")
        _check_tree(file.event, decays)
        check_keys(file.codes, "codes", products, error=TopologyError)
        check_keys(file.objects, "objects", objects, error=TopologyError)
        check_keys(file.groups, "groups", kinds, error=TopologyError)
        topology = Topology(
            file.name,
            file.event,
            tuple(decays.items()),
            Selection.parse(file.selection, kinds),
            tuple(Stage(s.any, any=True) if isinstance(s, _Any) else Stage(s) for s in file.stages),
            objects=tuple((name, kind) for name, kind in file.objects.items() if kind != JET),
            merged=tuple(merged.items()),
            context=file.context,
            codes=tuple(file.codes.items()),
            invisible=parse_invisible(file.invisible, decays),
            extras=Extras(**{name: getattr(file, name) for name in Extras.__struct_fields__}),
        )
        _check(topology)
        if file.alternatives:
            trees = [_alternative(topology, name, tree) for name, tree in file.alternatives.items()]
            topology = replace(topology, alternatives=tuple(trees))
            _check_alternatives(topology)
        return topology
    except TopologyError as error:
        raise TopologyError(f"{source}: {error}") from None


def _appearances(
    particles: Mapping[str, tuple[str | tuple[str, ...], ...]],
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The products of each type, and the objects that some may be as a whole, as J in H: [[b, b], [J]]."""
    decays, merged = dict[str, tuple[str, ...]](), dict[str, str]()
    for name, read in particles.items():
        lists = [part for part in read if not isinstance(part, str)]
        decays[name] = lists[0] if lists else tuple(part for part in read if isinstance(part, str))
        if not lists:
            continue
        if len(lists) != len(read) or len(lists) != 2 or len(lists[1]) != 1 or lists[1][0] in particles:
            raise TopologyError(
                f"{name} reads {shown([part if isinstance(part, str) else [*part] for part in read])}, but must "
                f"list its products, or its products and then one object that may be the whole {name}, as in "
                "H: [[b, b], [J]]"
            )
        merged[name] = lists[1][0]
    for checked in (decays, {name: (whole,) for name, whole in merged.items()}):
        configure(dict[Name, Names], checked, "particles", TopologyError)
    return decays, merged


def _check_tree(event: tuple[str, ...], decays: Mapping[str, tuple[str, ...]]) -> None:
    slots: dict[str, int] = {}  # below each type, the deepest first, since the tree may grow exponentially
    left, levels = dict(decays), 0
    while left:
        below_left = {name: [product for product in left[name] if product in left] for name in left}
        if all(below_left.values()):
            path = [next(iter(left))]
            while path[-1] not in path[:-1]:
                path.append(below_left[path[-1]][0])
            loop = " -> ".join(path[path.index(path[-1]) :])
            raise TopologyError(f"read {loop}, but a particle cannot decay to itself: break the cycle")
        for name in [name for name, products in below_left.items() if not products]:
            slots[name] = sum(slots.get(product, 1) for product in left.pop(name))
        levels += 1
    if levels > MOST_SLOTS:
        raise TopologyError(f"there are {levels} levels of decays, but a tree may have at most {MOST_SLOTS}")
    if sum(slots.get(name, 1) for name in event) > MOST_SLOTS:
        raise TopologyError(f"an event may have at most {MOST_SLOTS} slots: remove some particles")
    unused = set(decays) - {name for start in event for name in below(start, decays)}
    for name in sorted(unused):
        hint = nearest(name, [*event, *(p for products in decays.values() for p in products)])
        raise TopologyError(
            f"read {name!r}, but this particle appears neither in event nor in a decay: use or remove it{hint}"
        )


def _check(topology: Topology) -> None:
    _check_objects(topology)
    for names in ([p.name for p in topology.particles], [slot.name for slot in topology.slots]):
        counts = Counter(name.replace(".", "_") for name in names)  # column names have _ for dots
        if twice := [name for name, count in counts.items() if count > 1]:
            raise TopologyError(
                f"{twice[0]} would be the name of two things, as q1 of q and of [q, q]: rename one of them"
            )
    _ = topology.forms  # raises if two have one name
    if topology.given_stages:
        _check_stages(topology)
    _ = topology.neutrinos  # raises if they cannot be computed
    edges, labels = topology.extras.bins, topology.extras.labels
    if any(high <= low for low, high in pairwise(edges)):
        raise TopologyError(f"bins reads {list(edges)}, but must be in increasing order, as in [4, 5, 6]")
    for namespace, given in labels.items():
        if len(given) != len(topology.slots) or len(set(given)) != len(given):
            raise TopologyError(
                f"labels.{namespace} has {len(set(given))} different labels for {len(topology.slots)} slots: give "
                f"one per slot, in the order {', '.join(slot.name for slot in topology.slots)}"
            )
    if not all(re.fullmatch(r"([1-9]\d*-)?[1-9]\d*", str(name)) for name in labels.get("hyper", ())):
        raise TopologyError(
            f"labels.hyper reads {', '.join(map(str, labels['hyper']))}, but must be numbers from 1, or pairs: "
            "2-1 means label 1 of the leptons"
        )


def _check_objects(topology: Topology) -> None:
    """Different objects directly below one particle must differ in kind.

    The adjacency matrices only say which objects share a particle, so nothing else can tell them apart.
    """
    decays, kinds = dict(topology.decays), dict(topology.objects)
    for name, products in decays.items():
        objects = {product: kinds.get(product, JET) for product in products if product not in decays}
        for kind in objects.values():
            if len(names := [product for product in objects if objects[product] == kind]) > 1:
                raise TopologyError(
                    f"{name}: [{', '.join(products)}] has the {collection_name(kind)} {' and '.join(names)}, "
                    "which cannot be told apart: give them one name, or a particle of their own, as in t: [W, b]"
                )
    if twice := [kind for kind, count in Counter(topology.kinds).items() if count > 1]:
        raise TopologyError(
            f"context lists {twice[0]}, but slots take objects of this kind, or it is listed twice: remove it"
        )


def _check_stages(topology: Topology) -> None:
    read = f"stages reads {', '.join(f'[{stage}]' for stage in topology.given_stages)}"
    for name in (name for stage in topology.given_stages for name in stage.types):
        if name not in topology.types:
            known = ", ".join(topology.types)
            raise TopologyError(f"{read}: {name!r}, but the particles are {known}{nearest(name, topology.types)}")
    if not topology.levels[-1].size or not topology.levels[-1].all():
        need = ", ".join(f"{len(topology.of_type(name))} x {name}" for name in topology.types)
        raise TopologyError(f"{read}, but must reveal {need}, children before parents: complete the list")
    for stage, level in zip(topology.given_stages, topology.levels, strict=False):
        for state in map(np.flatnonzero, level):
            if not topology.revealable(stage, frozenset(state.tolist())):
                revealed = ", ".join(topology.particles[index].name for index in state)
                raise TopologyError(
                    f"{read}, but stage [{stage}] has nothing to reveal if {revealed} came first: reveal all "
                    "particles of a type before those that may contain them"
                )


def _alternative(topology: Topology, name: str, given: tuple[str, ...] | Mapping[str, Any]) -> Topology:
    """A topology of a vocabulary: a tree, or the root particles of the vocabulary that it has."""
    if isinstance(given, Mapping):
        return parse_topology(given, f"alternatives.{name}")
    reached = {product for root in given for product in below(root, dict(topology.decays))}
    reached |= {whole for merged, whole in topology.merged if merged in reached}
    raw = {**topology.to_dict(), "name": name, "event": given}
    for key in ("stages", "labels", "bins"):
        raw.pop(key, None)
    for key in ("particles", "objects", "codes", "invisible"):
        raw[key] = {item: value for item, value in raw.get(key, {}).items() if item in reached}
    return parse_topology(raw, f"alternatives.{name}")


def _check_alternatives(topology: Topology) -> None:
    most: Counter[str] = reduce(or_, (Counter(tree.event) for tree in topology.alternatives))
    if Counter(topology.event) not in (most, Counter(most.keys())):  # a mixture, or a vocabulary
        raise TopologyError(
            f"read event [{', '.join(topology.event)}], but the alternatives need [{', '.join(most.elements())}]: "
            "list each particle as often as the alternative that has the most of it"
        )


# -- where topologies come from ----------------------------------------------------------------------------


@cache
def builtin_topologies() -> Mapping[str, str]:
    """Names of the built-in topologies -> description, from the comment in the first line of the file."""
    return {
        path.stem: path.read_text("utf-8").splitlines()[0].lstrip("# ") for path in sorted(FOLDER.glob("*.yaml"))
    }


@cache
def _builtin(name: str) -> Topology:
    return parse_topology(parse_yaml((FOLDER / f"{name}.yaml").read_text("utf-8"), name), name)


def load_topology(name: str | Path | Topology = "ttbar_allhad") -> Topology:
    """Load a decay tree: a built-in one (`pairton list topologies`), or a YAML file of Pairton or SPANet.

    Args:
        name: A built-in name or the path of a file; a `Topology` is returned as it is.

    Returns:
        The tree.

    Raises:
        TopologyError: There is none of this name, or its file is not valid.

    Examples:
        >>> import pairton
        >>> pairton.load_topology("tth_allhad").types
        ('W', 'H', 't')
        >>> print(pairton.load_topology("hh4b").tree())
        hh4b
        ├── H1
        │   ├── b1
        │   └── b2
        └── H2
            ├── b1
            └── b2
    """
    if isinstance(name, Topology):
        return name
    builtin = builtin_topologies()
    if str(name) in builtin:
        return _builtin(str(name))
    path = Path(name)
    if not os.path.isfile(path):  # unlike Path.is_file, does not raise for a name that is too long
        known = ", ".join(builtin)
        raise TopologyError(
            f"no topology {str(name)!r}: neither a built-in one ({known}) nor a file{nearest(str(name), builtin)}"
        )
    raw = read_yaml(path, TopologyError)
    if isinstance(raw, Mapping) and "EVENT" in raw:
        from pairton.spanet.spanet_tree import tree_of

        raw = tree_of(raw, path.stem, str(path))
    return parse_topology(raw, str(path))
