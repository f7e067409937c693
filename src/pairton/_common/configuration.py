"""Plain data: read from YAML and JSON, made into typed settings, and made from results.

Files may come from untrusted sources. They must therefore be regular files (no pipe, no device) of limited size
and depth, also after YAML aliases are expanded, and their whole numbers must fit into 64 bits.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import yaml

from pairton._common.atomic import note_input
from pairton.errors import ConfigError, PairtonError, nearest, shown

__all__ = [
    "as_plain",
    "check_keys",
    "configure",
    "parse_json",
    "parse_yaml",
    "read_json",
    "read_text",
    "read_yaml",
    "register",
]

MOST_BYTES = 2**18  # of YAML, which people write
MOST_JSON = 2**26  # bytes of JSON, which programs write
MOST_NODES = 50_000  # of YAML, counted as if aliases were written out
MOST_DEPTH = 40
MOST_NUMBER = 2**64
FLOAT = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$")  # 1e-3, which YAML 1.1 reads as text
WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}
PLURALS = {float: "numbers", int: "whole numbers", str: "words"}

T = TypeVar("T")
Error = type[PairtonError]


class _Loader(yaml.SafeLoader):
    """Dates stay text."""

    yaml_implicit_resolvers = {
        first: [entry for entry in entries if not entry[0].endswith(":timestamp")]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def parse_yaml(text: str, source: str, error: Error = ConfigError) -> Any:
    """Return the plain data in YAML text.

    source: the name of the text in error messages; error: the class of error to raise

    >>> parse_yaml("{when: 2024-01-01, rate: 1e-3}", "card")
    {'when': '2024-01-01', 'rate': 0.001}
    >>> parse_yaml("a: &a [1, *a]", "card")
    Traceback (most recent call last):
    pairton.errors.ConfigError: card: not readable as YAML (more than 40 levels inside one another)
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_nodes(loader, node)
        return loader.construct_document(node)
    except Exception as problem:  # PyYAML raises more than its own kinds on odd scalars
        raise error(f"{source}: not readable as YAML ({_reason(problem)})") from None


def read_yaml(path: str | Path, error: Error = ConfigError) -> Any:
    """Return the plain data in a YAML file."""
    note_input(path)
    return parse_yaml(read_text(path, error), str(path), error)


def parse_json(text: str | bytes, source: str, error: Error = ConfigError) -> Any:
    """Return the plain data in JSON text. The arguments are those of `parse_yaml`.

    >>> parse_json("[" * 100_000, "model.json")
    Traceback (most recent call last):
    pairton.errors.ConfigError: model.json: not readable as JSON (RecursionError)
    """
    try:
        return json.loads(text, parse_int=lambda digits: _whole(int(digits)), object_pairs_hook=_once)
    except (ValueError, RecursionError, TypeError) as problem:
        reason = type(problem).__name__ if isinstance(problem, RecursionError) else _reason(problem)
        raise error(f"{source}: not readable as JSON ({reason})") from None


def read_json(path: str | Path, error: Error = ConfigError) -> dict[str, Any]:
    """Return the mapping in a JSON file."""
    content = parse_json(read_text(path, error, MOST_JSON), str(path), error)
    if not isinstance(content, dict):
        raise error(f"{path}: read {shown(content)}, but it must be a mapping: copy the file again")
    return content


def read_text(path: str | Path, error: Error = ConfigError, most: int = MOST_BYTES) -> str:
    """Return the text of a regular file, perhaps gzipped, of at most `most` bytes; no pipes, no devices."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise error(f"{path}: not a regular file: give the path of a file")
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as stream:
            content = stream.read(most + 1)
        if len(content) > most:
            raise error(f"{path}: larger than {most // 1024} kiB: is it the right file?")
        return content.decode("utf-8-sig")  # editors on Windows write a byte-order mark
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror or problem}): check the path") from None
    except (ValueError, EOFError, zlib.error) as problem:
        raise error(f"{path}: not readable as text ({_reason(problem)})") from None


# -- typed settings ----------------------------------------------------------------------------------------


def configure(kind: type[T], raw: object, source: str, error: Error = ConfigError) -> T:
    """Make typed settings from plain data, as YAML or JSON gives it.

    kind      a dataclass or `msgspec.Struct`; its fields may be such classes, lists and mappings, or have limits,
              as `Annotated[float, Meta(gt=0)]`; its `__post_init__` may raise ValueError
    source    the name of the settings in error messages
    error     the class of error to raise for an unknown key, a missing one, or a value that is not allowed

    >>> from pairton.network.config import NetworkConfig
    >>> configure(NetworkConfig, {"blocks": "three"}, "network")
    Traceback (most recent call last):
    pairton.errors.ConfigError: network.blocks is 'three', but must be a whole number at least 1 and at most 4096
    >>> configure(NetworkConfig, {"bloks": 3}, "network")
    Traceback (most recent call last):
    pairton.errors.ConfigError: network has no setting 'bloks'; did you mean 'blocks'?
    """
    for place, expected, value in _values(kind, raw, source):
        if _is_class(one := _fitting(expected, value)) and isinstance(value, Mapping):
            fields = _fields(one)
            check_keys(value, place, fields, [name for name, (_, required) in fields.items() if required], error)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        for place, expected, value in _values(kind, raw, source):
            try:
                msgspec.convert(value, expected)
            except msgspec.ValidationError as problem:
                if _is_class(expected) and isinstance(value, Mapping):  # the class itself refuses its values
                    raise error(f"{place}: {str(problem).partition(' - at `$')[0]}") from None
                hint = _hint(expected, value)
                raise error(f"{place} is {shown(value)}, but must be {_allowed(expected)}{hint}") from None
        raise


def check_keys(
    raw: object, source: str, allowed: Iterable[str], required: Iterable[str] = (), error: Error = ConfigError
) -> dict[str, Any]:
    """Return `raw` as a dict. Raise `error` if it is not a mapping, has an unknown key or lacks a required one."""
    known = list(allowed)
    if not isinstance(raw, Mapping):
        raise error(f"{source} is {shown(raw)}, but must be a mapping with the keys {', '.join(known)}")
    for key in raw:
        if key not in known:
            hint = nearest(key, known) or ": it has " + ", ".join(known)
            raise error(f"{source} has no setting {shown(key)}{hint}")
    if missing := [name for name in required if name not in raw]:
        raise error(f"{source} lacks {', '.join(missing)}: add it")
    return dict(raw)


def _is_class(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))


def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Name of each setting of a class -> its type, and whether it must be given."""
    if not dataclasses.is_dataclass(kind):
        return {field.encode_name: (field.type, field.required) for field in msgspec.structs.fields(kind)}
    hints, missing = get_type_hints(kind, include_extras=True), dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
        if field.init
    }


def _fitting(kind: Any, raw: object) -> Any:
    """`kind` without its limits; of several types, the one of the form of `raw`: mapping, list or value."""
    if get_origin(kind) is Annotated:
        return _fitting(get_args(kind)[0], raw)
    if get_origin(kind) not in (Union, UnionType):
        return kind
    kinds = [_fitting(each, raw) for each in get_args(kind) if each is not NoneType]
    for each in kinds:
        is_mapping = _is_class(each) or get_origin(each) in (dict, Mapping)
        if is_mapping == isinstance(raw, Mapping) and (
            is_mapping or bool(get_args(each)) == isinstance(raw, list)
        ):
            return each
    return kinds[0]


def _values(kind: Any, raw: object, place: str) -> Iterator[tuple[str, Any, object]]:
    """The values inside `raw`, of which a `kind` is expected, and then `raw` itself: place, type, value."""
    one, inside = _fitting(kind, raw), []
    arguments = get_args(one)
    if _is_class(one) and isinstance(raw, Mapping):
        inside = [(f".{name}", inner, raw[name]) for name, (inner, _) in _fields(one).items() if name in raw]
    elif isinstance(raw, Mapping) and get_origin(one) in (dict, Mapping):
        inside = [(f".{key}", arguments[0], key) for key in raw]
        inside += [(f".{key}", arguments[1], value) for key, value in raw.items()]
    elif isinstance(raw, list | tuple) and arguments and get_origin(one) is not Literal:
        inside = [(f"[{k}]", arguments[0], value) for k, value in enumerate(raw)]
    is_file = place.endswith((".yaml", ".yml", ".json"))
    for name, inner, value in inside:
        yield from _values(inner, value, f"{place}: {name.lstrip('.')}" if is_file else f"{place}{name}")
    yield place, kind, raw


def _allowed(kind: Any) -> str:
    """What a value of a type may be, in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_allowed(each) for each in arguments if each is not NoneType)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is Annotated:
        meta = arguments[1]
        limits = {"above": meta.gt, "at least": meta.ge, "below": meta.lt, "at most": meta.le}
        bounds = " and ".join(f"{word} {limit:g}" for word, limit in limits.items() if limit is not None)
        return meta.description or f"{_allowed(arguments[0])} {bounds}".strip()
    if _is_class(kind):
        return f"a mapping with the keys {', '.join(_fields(kind))}"
    if origin in (list, tuple) and arguments:
        return f"a list of {PLURALS.get(arguments[0], 'entries')}"
    return WORDS.get(kind, "a mapping")


def _hint(kind: Any, value: object) -> str:
    literals = [each for each in (kind, *get_args(kind)) if get_origin(each) is Literal]
    return nearest(value, map(str, get_args(literals[0]))) if literals else ""


def _check_nodes(loader: _Loader, root: yaml.Node) -> None:
    """Raise ValueError if YAML is too deep or too large, with aliases written out, or has a key twice."""
    todo, count = [(root, 0)], 0
    while todo:
        node, depth = todo.pop()
        count += 1
        if depth > MOST_DEPTH:
            raise ValueError(f"more than {MOST_DEPTH} levels inside one another")
        if count > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} entries")
        inside = []
        if isinstance(node, yaml.MappingNode):
            _once([(key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
            inside = [each for pair in node.value for each in pair]
        elif isinstance(node, yaml.SequenceNode):
            inside = node.value
        elif isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:int":
            _whole(loader.construct_yaml_int(node))
        todo += [(each, depth + 1) for each in inside]


def _whole(value: Any) -> Any:
    """Return `value`. Raise ValueError if it is a whole number beyond 64 bits."""
    if isinstance(value, int) and abs(value) >= MOST_NUMBER:
        raise ValueError(f"a number beyond {MOST_NUMBER:.0e}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping from pairs. Raise ValueError if a key appears twice: one of its two values would be lost."""
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {shown(key)} appears twice in one mapping: keep one of them")
        mapping[key] = value
    return mapping


def _reason(problem: BaseException) -> str:
    return " ".join(str(problem).split())[:200] or type(problem).__name__


def as_plain(value: Any, digits: int | None = None) -> Any:
    """Dataclasses, named tuples and arrays as mappings, lists and numbers; NaN and infinity become None.

    >>> as_plain({"mass": np.array([80.41, np.nan]), 6: (1, 2)}, digits=1)
    {'mass': [80.4, None], '6': [1, 2]}
    """
    if dataclasses.is_dataclass(value):
        value = vars(value)
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    elif isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): as_plain(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item, digits) for item in value]
    if isinstance(value, float):
        return (value if digits is None else round(value, digits)) if math.isfinite(value) else None
    return value


def register(registry: dict[str, T], name: str, entry: T, what: str) -> None:
    """Add what a user has written, such as a metric; ConfigError if there already is one of this name."""
    if name in registry:
        raise ConfigError(f"there already is a {what} {name!r}: choose another name")
    registry[name] = entry
