"""Read a topology from YAML and check its syntax."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from pairton._common.configuration import check_keys, configure, parse_yaml, read_yaml
from pairton.errors import TopologyError, nearest, shown
from pairton.topology.extras import Extras
from pairton.topology.invisible import parse_invisible
from pairton.topology.kinds import JET, collection_name
from pairton.topology.mixtures import parts_of
from pairton.topology.particles import below
from pairton.topology.selection import Cuts, Selection
from pairton.topology.tree import Stage, Topology

__all__ = ["builtin_topologies", "load_topology", "parse_topology"]

MOST_SLOTS = 24
RESERVED = ("event", "complete")  # their probabilities are columns of every result


Title = Annotated[str, Meta(pattern=r"^.*\S.*$", description="a word such as ttbar_allhad")]
Name = Annotated[
    str, Meta(pattern=r"^[^\W\d]\w*$", description="a name, which may only have letters, digits and _")
]
Names = Annotated[
    tuple[Name, ...], Meta(min_length=1, description="a list of at least one name, for example [W, b]")
]
Code = Annotated[int, Meta(gt=0, lt=10_000)]
Codes = Annotated[
    tuple[Code, ...], Meta(min_length=1, description="a list of PDG codes without sign, for example [6]")
]
Count = Annotated[int, Meta(ge=0, description="a whole number of 0 or more")]
Bounds = Annotated[tuple[Count, ...], Meta(min_length=2, max_length=2, description="[fewest, most]")]


class _Any(Struct, forbid_unknown_fields=True):
    any: Names


class _File(Extras, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of the file of a topology."""

    name: Title
    event: Names
    particles: dict[Name, Names] = {}
    stages: list[Names | _Any] = []
    selection: dict[str, dict[str, Any]] = {}
    objects: dict[Name, Name] = {}
    context: tuple[Name, ...] = ()
    codes: dict[Name, Codes] = {}
    invisible: dict[Name, tuple[Name, ...] | dict[Name, tuple[Name, ...]]] = {}
    alternatives: dict[str, Names] = {}


def parse_topology(raw: object, source: str = "topology") -> Topology:
    """Make a topology from plain data, as YAML or JSON gives it; `source` is named in errors."""
    if isinstance(raw, Mapping):
        raw = {key: value for key, value in raw.items() if value is not None}  # a key without a value
    file = configure(_File, raw, source, TopologyError)
    products = dict.fromkeys([*file.event, *(name for names in file.particles.values() for name in names)])
    kinds = dict.fromkeys([*file.objects.values(), JET, *file.context])
    try:
        if not file.name.isprintable():
            raise TopologyError(f"name is {shown(file.name)}, but must be a word such as ttbar_allhad")
        for name in RESERVED:
            if name in file.event or name in file.particles:
                raise TopologyError(f"{name}_probability is a column of results: rename the particle {name!r}")
        _check_tree(file.event, file.particles)
        check_keys(file.codes, "codes", products, error=TopologyError)
        check_keys(file.objects, "objects", sorted(products.keys() - file.particles), error=TopologyError)
        check_keys(file.groups, "groups", kinds, error=TopologyError)
        topology = Topology(
            file.name,
            file.event,
            tuple(file.particles.items()),
            _selection(file.selection, kinds),
            tuple(Stage(s.any, any=True) if isinstance(s, _Any) else Stage(s) for s in file.stages),
            objects=tuple((name, kind) for name, kind in file.objects.items() if kind != JET),
            context=file.context,
            codes=tuple(file.codes.items()),
            invisible=parse_invisible(file.invisible, file.particles),
            alternatives=tuple(file.alternatives.items()),
            extras=Extras(**{name: getattr(file, name) for name in Extras.__struct_fields__}),
        )
        parts_of(topology)  # raises if the topologies of a mixture cannot be combined
        return topology
    except TopologyError as error:
        raise TopologyError(f"{source}: {error}") from None


def _check_tree(event: tuple[str, ...], decays: Mapping[str, tuple[str, ...]]) -> None:
    slots: dict[str, int] = {}  # below each type; each is visited once, since the tree may grow exponentially

    def walk(name: str, path: tuple[str, ...]) -> int:
        if name in path:
            loop = " -> ".join([*path[path.index(name) :], name])
            raise TopologyError(f"read {loop}, but a particle cannot decay to itself: break the cycle")
        if len(path) > MOST_SLOTS:
            raise TopologyError(
                f"{name} is below {MOST_SLOTS} others: a tree may have at most {MOST_SLOTS} levels"
            )
        if name in decays and name not in slots:
            slots[name] = sum([walk(product_name, (*path, name)) for product_name in decays[name]])
        return slots.get(name, 1)

    for name in decays:  # first look for cycles, even among particles that the event does not reach
        walk(name, ())
    if sum(walk(name, ()) for name in event) > MOST_SLOTS:
        raise TopologyError(f"an event may have at most {MOST_SLOTS} slots: remove some particles")
    unused = set(decays) - {name for start in event for name in below(start, decays)}
    for name in sorted(unused):
        hint = nearest(name, [*event, *(p for products in decays.values() for p in products)])
        raise TopologyError(
            f"read {name!r}, but this particle appears neither in event nor in a decay: use or remove it{hint}"
        )


def _selection(raw: dict[str, dict[str, Any]], kinds: Iterable[str]) -> Selection:
    names = {collection_name(kind): kind for kind in kinds}
    parts = check_keys(raw, "selection", [*names, "event"], error=TopologyError)
    event = check_keys(parts.pop("event", {}), "selection.event", [*names, "btags"], error=TopologyError)
    btags = configure(dict[str, Count], {"btags": event.pop("btags", 0)}, "selection.event", TopologyError)
    bounds = configure(dict[str, Count | Bounds], event, "selection.event", TopologyError)
    counts: dict[str, tuple[int, int | None]] = {}
    for key, value in bounds.items():
        fewest, most = value if isinstance(value, tuple) else (value, None)
        if most is not None and most < fewest:
            raise TopologyError(f"selection.event.{key} is [{fewest}, {most}], but must be in this order")
        counts[names[key]] = fewest, most
    cuts = configure(dict[str, Cuts], parts, "selection", TopologyError)
    return Selection({names[key]: value for key, value in cuts.items()}, counts, btags["btags"])


# -- where topologies come from ----------------------------------------------------------------------------


@cache
def builtin_topologies() -> Mapping[str, str]:
    """Names of the built-in topologies -> description, from the comment in the first line of the file."""
    folder = resources.files("pairton.topology") / "builtin"
    found = {}
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".yaml"):
            found[entry.name.removesuffix(".yaml")] = entry.read_text("utf-8").splitlines()[0].lstrip("# ")
    return found


@cache
def _builtin(name: str) -> Topology:
    text = (resources.files("pairton.topology") / "builtin" / f"{name}.yaml").read_text("utf-8")
    return parse_topology(parse_yaml(text, name), name)


def load_topology(name: str | Path | Topology = "ttbar_allhad") -> Topology:
    """Load a decay tree.

    Args:
        name: A built-in name (`pairton list topologies`), or the path of a YAML file: a topology of Pairton
            or an event file of SPANet. A `Topology` is returned as it is.

    Returns:
        The `Topology`.

    Raises:
        TopologyError: There is no such topology, or its file is not valid.

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
