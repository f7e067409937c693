"""Read a topology from YAML and check its syntax."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pairton._common.configuration import parse_yaml, read_yaml, sensible
from pairton.errors import TopologyError, nearest, shown
from pairton.topology.invisible import parse_invisible
from pairton.topology.mixtures import parts_of
from pairton.topology.selection import JET, Cuts, Selection, collection_name
from pairton.topology.tree import Stage, Topology, same_tree

__all__ = ["builtin_topologies", "completed", "load_topology", "parse_topology"]

KEYS = (
    *("name", "event", "particles", "objects", "context", "stages", "selection", "labels", "process", "codes"),
    *("invisible", "bins", "groups", "joined", "alternatives"),
)
MOST_SLOTS = 24
RESERVED = ("event", "complete")  # their probabilities are columns of every result
NAMESPACES = ("hyper", "spanet")


def _error(source: str, read: object, allowed: str) -> TopologyError:
    return TopologyError(f"{source}: read {shown(read)}, but {allowed}")


def _names(raw: object, source: str, what: str) -> tuple[str, ...]:
    if not isinstance(raw, list) or not raw or not all(isinstance(name, str) and name for name in raw):
        raise _error(source, raw, f"{what} must be a list of at least one name, for example [W, b]")
    for name in raw:
        if not name.isidentifier():
            raise _error(source, name, f"a name in {what} may only have letters, digits and _: rename it")
    return tuple(raw)


def _mapping(raw: object, source: str, what: str, keys: Sequence[str]) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise _error(source, raw, f"{what} must be a mapping with the keys {', '.join(keys)}")
    for key in raw:
        if key not in keys:
            hint = nearest(str(key), keys)
            raise _error(source, key, f"{what} allows only the keys {', '.join(keys)}{hint}: rename or remove it")
    return raw


def parse_topology(raw: object, source: str = "topology") -> Topology:
    """Make a topology from plain data, as YAML or JSON gives it; `source` is named in errors."""
    top = _mapping(raw, source, "a topology", KEYS)
    for key in ("name", "event", "particles"):
        if key not in top:
            found = ", ".join(map(str, top)) or "nothing"
            raise TopologyError(f"{source}: read the keys {found}, but {key!r} is missing: add it")
    if not isinstance(top["name"], str) or not top["name"] or not top["name"].isprintable():
        raise _error(source, top["name"], "name must be a word such as ttbar_allhad")
    event = _names(top["event"], source, "event")
    for name in RESERVED:
        if name in event or name in top["particles"]:
            raise _error(source, name, f"this names a column of results, {name}_probability: rename the particle")
    if not isinstance(top["particles"], dict):
        raise _error(source, top["particles"], "particles must map each particle to its products, t: [W, b]")
    decays = {}
    for name, products in top["particles"].items():
        (checked,) = _names([name], source, "particles")
        decays[checked] = _names(products, source, f"particles.{name}")
    _check_tree(event, decays, source)
    with sensible(source, TopologyError):
        stages = _parse_stages(top.get("stages"), source)
        labels = _parse_labels(top.get("labels"), source)
        objects = _parse_objects(top.get("objects"), event, decays, source)
        context = _names(top["context"], source, "context") if top.get("context") else ()
        kinds = dict.fromkeys([*objects.values(), JET, *context])
        selection = _parse_selection(top.get("selection"), kinds, source)
        process = _parse_process(top.get("process", []), source)
        codes = _parse_codes(top.get("codes", {}), event, decays, source)
        invisible = parse_invisible(top.get("invisible", {}), decays, source)
        bins = _parse_bins(top.get("bins", []), source)
        groups = _parse_groups(top.get("groups", {}), kinds, source)
        joined = _names(top["joined"], source, "joined") if top.get("joined") else ()
        alternatives = _parse_alternatives(top.get("alternatives", {}), source)
    tree = event, tuple(decays.items())
    seen = tuple(objects.items()), context
    try:
        given = *tree, selection, stages, labels, *seen, process, codes, invisible, bins
        topology = Topology(top["name"], *given, groups=groups, joined=joined, alternatives=alternatives)
        parts_of(topology)  # raises if the topologies of a mixture cannot be combined
        return topology
    except TopologyError as error:
        raise TopologyError(f"{source}: {error}") from None


def _check_tree(event: tuple[str, ...], decays: Mapping[str, tuple[str, ...]], source: str) -> None:
    slots: dict[
        str, int
    ] = {}  # slots below each type; each is visited once, since the tree may grow exponentially

    def walk(name: str, path: tuple[str, ...]) -> int:
        if name in path:
            loop = " -> ".join([*path[path.index(name) :], name])
            raise _error(source, loop, "a particle cannot decay to itself: break the cycle")
        if len(path) > MOST_SLOTS:
            raise _error(
                source, name, f"a tree may have at most {MOST_SLOTS} levels: shorten this chain of decays"
            )
        if name in decays and name not in slots:
            slots[name] = sum([walk(product_name, (*path, name)) for product_name in decays[name]])
        return slots.get(name, 1)

    for name in decays:  # first look for cycles, even among particles that the event does not reach
        walk(name, ())
    if sum(walk(name, ()) for name in event) > MOST_SLOTS:
        raise _error(source, list(event), f"an event may have at most {MOST_SLOTS} slots: remove some particles")
    reached: set[str] = set()
    todo = list(event)
    while todo:
        if (name := todo.pop()) not in reached:
            reached.add(name)
            todo += decays.get(name, ())
    for name in decays:
        if name not in reached:
            hint = nearest(name, [*event, *(p for products in decays.values() for p in products)])
            raise _error(
                source,
                name,
                f"this particle appears neither in event nor in a decay: use or remove it{hint}",
            )


def _parse_stages(raw: object, source: str) -> tuple[Stage, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or not raw:
        raise _error(source, raw, "stages must be a list such as [[W], [W], [t, t]]")
    stages = []
    for entry in raw:
        if isinstance(entry, dict):
            choice = _mapping(entry, source, "a stage", ("any",))
            stages.append(Stage(_names(choice.get("any"), source, "stages.any"), any=True))
        else:
            stages.append(Stage(_names(entry, source, "a stage")))
    return tuple(stages)


def _parse_labels(raw: object, source: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if raw is None:
        return ()
    labels = _mapping(raw, source, "labels", NAMESPACES)
    parsed = []
    for namespace, names in labels.items():
        if not isinstance(names, list):
            raise _error(source, names, f"labels.{namespace} must list one label per slot")
        parsed.append((namespace, tuple(str(name) for name in names)))
    return tuple(parsed)


def _parse_objects(
    raw: object, event: tuple[str, ...], decays: Mapping[str, tuple[str, ...]], source: str
) -> dict[str, str]:
    """Product -> kind of its object; products that are not listed are jets."""
    if raw is None:
        return {}
    products = {*event, *(name for names in decays.values() for name in names)} - set(decays)
    objects = _mapping(raw, source, "objects", sorted(products))
    for name, kind in objects.items():
        _names([kind], source, f"objects.{name}")
    return {name: kind for name, kind in objects.items() if kind != JET}


def _parse_process(raw: object, source: str) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(line, str) for line in raw):
        raise _error(source, raw, 'process must list lines for Pythia, for example ["HiggsSM:ffbar2HZ = on"]')
    return tuple(raw)


def _parse_codes(
    raw: object, event: tuple[str, ...], decays: Mapping[str, tuple[str, ...]], source: str
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    names = dict.fromkeys([*event, *(name for products in decays.values() for name in products)])
    given = _mapping(raw, source, "codes", list(names))
    for name, codes in given.items():
        if not isinstance(codes, list) or not codes or not all(type(c) is int and 0 < c < 10_000 for c in codes):
            raise _error(source, codes, f"codes.{name} must list PDG codes without sign, for example [6]")
    return tuple((name, tuple(codes)) for name, codes in given.items())


def _parse_bins(raw: object, source: str) -> tuple[int, ...]:
    if not isinstance(raw, list) or not all(type(n) is int and 0 <= n < 1000 for n in raw):
        raise _error(source, raw, "bins must list the smallest number of objects of each bin, as in [4, 5, 6, 7]")
    return tuple(raw)


def _parse_groups(raw: object, kinds: Iterable[str], source: str) -> tuple[tuple[str, str], ...]:
    groups = _mapping(raw, source, "groups", list(kinds))
    for kind, group in groups.items():
        _names([group], source, f"groups.{kind}")
    return tuple(groups.items())


def _parse_alternatives(raw: object, source: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Name of each topology of a mixture -> its root particles."""
    if not isinstance(raw, dict):
        raise _error(source, raw, "alternatives must map names of topologies to roots, as in ttbar_allhad: [t, t]")
    return tuple((str(name), _names(roots, source, f"alternatives.{name}")) for name, roots in raw.items())


def _parse_selection(raw: object, kinds: Iterable[str], source: str) -> Selection:
    if raw is None:
        return Selection()
    names = {collection_name(kind): kind for kind in kinds}
    parts = _mapping(raw, source, "selection", [*names, "event"])
    objects = {}
    for name, kind in names.items():
        if name in parts:
            cuts = _mapping(parts[name], source, f"selection.{name}", ("pt", "abs_eta"))
            for key, value in cuts.items():
                _check_number(value, source, f"selection: {key}")
            objects[kind] = Cuts(float(cuts.get("pt", 0.0)), float(cuts.get("abs_eta", "inf")))
    event = _mapping(parts.get("event", {}), source, "selection.event", [*names, "btags"])
    counts = {}
    for name, value in event.items():
        bounds = value if isinstance(value, list) and len(value) == 2 else [value]
        for bound in bounds:
            _check_number(bound, source, f"selection.event.{name}")
            if bound != bound // 1:  # also true for infinity
                raise _error(source, bound, f"selection.event.{name} must be a whole number, or [fewest, most]")
        if bounds[-1] < bounds[0]:
            raise _error(source, value, f"selection.event.{name} must be [fewest, most], in this order")
        if name in names:
            counts[names[name]] = (int(bounds[0]), int(bounds[1]) if len(bounds) == 2 else None)
        elif len(bounds) == 2:
            raise _error(source, value, "selection.event.btags must be one whole number, the fewest b-tagged jets")
    return Selection(objects, counts, int(event.get("btags", 0)))


def _check_number(value: object, source: str, name: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise _error(source, value, f"{name} must be a number, zero or more")


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
        name: A built-in name (`pairton topologies` lists them), or the path of a YAML file: a topology of Pairton
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


def completed(topology: Topology) -> Topology:
    """Add the codes, neutrinos and bins that a built-in topology lacks because an older version stored it."""
    if topology.name not in builtin_topologies() or not same_tree(topology, _builtin(topology.name)):
        return topology
    names = ("codes", "invisible", "given_bins")
    missing = {name: getattr(_builtin(topology.name), name) for name in names if not getattr(topology, name)}
    return replace(topology, **missing) if any(missing.values()) else topology
