"""Reads YAML and JSON files as plain data, and makes typed settings from it.

Files may come from untrusted sources. They must therefore be regular files (no pipe, no device) of limited size
and depth, also after YAML aliases are expanded, and their whole numbers must fit into 64 bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from pairton._common.atomic import note_input
from pairton.errors import ConfigError, PairtonError, nearest, shown

__all__ = [
    "check_keys",
    "configure",
    "parse_json",
    "parse_yaml",
    "read_json",
    "read_text",
    "read_yaml",
    "register",
    "sensible",
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
    """Refuses keys that appear twice and merges (<<) that unfold; dates stay text."""

    yaml_implicit_resolvers = {
        first: [entry for entry in entries if not entry[0].endswith(":timestamp")]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    merged = 0  # entries of all mappings so far

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        _once([(key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        self.merged += len(node.value)
        if self.merged > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} entries")


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def parse_yaml(text: str, source: str, error: Error = ConfigError) -> Any:
    """Return the plain data in YAML text.

    source    the name of the text in error messages
    error     the class of error to raise

    >>> parse_yaml("{when: 2024-01-01, rate: 1e-3}", "card")
    {'when': '2024-01-01', 'rate': 0.001}
    >>> parse_yaml("a: &a [1, *a]", "card")
    Traceback (most recent call last):
    pairton.errors.ConfigError: card: not readable as YAML (more than 40 levels inside one another)
    """
    try:
        return _bounded(_Loader(text).get_single_data())
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
    """Return the text of a regular file of at most `most` bytes. Pipes and devices are refused."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise error(f"{path}: not a regular file: give the path of a file")
        with open(path, "rb") as stream:
            content = stream.read(most + 1)
        if len(content) > most:
            raise error(f"{path}: larger than {most // 1024} kiB: is it the right file?")
        return content.decode("utf-8-sig")  # editors on Windows write a byte-order mark
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror}): check the path") from None
    except ValueError as problem:
        raise error(f"{path}: not readable as text ({_reason(problem)})") from None


# -- typed settings ----------------------------------------------------------------------------------------


def configure(kind: type[T], raw: object, source: str, error: Error = ConfigError) -> T:
    """Make typed settings from plain data, as YAML or JSON gives it.

    `kind` is a dataclass or a `msgspec.Struct`; its fields may be such classes, lists and mappings in turn.

    kind      the type of the settings; a limit is written as `Annotated[float, Meta(gt=0)]`
    source    the name of the settings in error messages
    error     the class of error to raise for an unknown key, a missing one, or a value that is not allowed;
              a ValueError of the `__post_init__` of a class becomes such an error

    >>> from pairton.network.config import NetworkConfig
    >>> configure(NetworkConfig, {"blocks": "three"}, "network")
    Traceback (most recent call last):
    pairton.errors.ConfigError: network.blocks is 'three', but must be a whole number
    >>> configure(NetworkConfig, {"bloks": 3}, "network")
    Traceback (most recent call last):
    pairton.errors.ConfigError: network has no setting 'bloks'; did you mean 'blocks'?
    """
    _check_all_keys(kind, raw, source, error)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as problem:
        place, wanted, value = _culprit(kind, raw, source)
        allowed = _allowed(wanted)
        if _is_class(wanted) and isinstance(value, Mapping):  # the class itself refuses its values
            raise error(f"{place}: {str(problem).partition(' - at `$')[0]}") from None
        raise error(f"{place} is {shown(value)}, but must be {allowed}{_hint(wanted, value)}") from None


def check_keys(
    raw: object, source: str, allowed: Iterable[str], required: Iterable[str] = (), error: Error = ConfigError
) -> dict[str, Any]:
    """Return `raw` as a dict. Raise `error` if it is not a mapping, has an unknown key or lacks a required one.

    >>> check_keys({"bloks": 3}, "network", ["blocks", "width"])
    Traceback (most recent call last):
    pairton.errors.ConfigError: network has no setting 'bloks'; did you mean 'blocks'?
    """
    known = list(allowed)
    if not isinstance(raw, Mapping):
        raise error(f"{source} is {shown(raw)}, but must be a mapping with the keys {', '.join(known)}")
    for key in raw:
        if key not in known:
            raise error(
                f"{source} has no setting {shown(key)}{nearest(key, known) or ': it has ' + ', '.join(known)}"
            )
    if missing := [name for name in required if name not in raw]:
        raise error(f"{source} lacks {', '.join(missing)}: add it")
    return dict(raw)


def _is_class(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))


def _fields(kind: Any) -> dict[str, bool]:
    """Name of each setting of a class -> whether it must be given."""
    if not dataclasses.is_dataclass(kind):
        return {field.encode_name: field.required for field in msgspec.structs.fields(kind)}
    missing = dataclasses.MISSING
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return {field.name: field.default is missing and field.default_factory is missing for field in fields}


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


def _children(kind: Any, raw: object) -> Iterator[tuple[str, Any, object]]:
    """The values inside `raw` where a `kind` is expected: place, type, value."""
    kind = _fitting(kind, raw)
    arguments = get_args(kind)
    if _is_class(kind) and isinstance(raw, Mapping):
        if dataclasses.is_dataclass(kind):
            hints = get_type_hints(kind, include_extras=True)
        else:
            hints = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        yield from ((f".{name}", hints[name], raw[name]) for name in _fields(kind) if name in raw)
    elif isinstance(raw, Mapping) and len(arguments) == 2:
        yield from ((f".{key}", arguments[0], key) for key in raw)
        yield from ((f".{key}", arguments[1], value) for key, value in raw.items())
    elif isinstance(raw, list | tuple) and arguments and get_origin(kind) is not Literal:
        yield from ((f"[{k}]", arguments[0], value) for k, value in enumerate(raw))


def _inside(place: str, name: str) -> str:
    """The place of a value: `network.blocks`, or `card.yaml: jets.pt` if the outer place is a file."""
    return f"{place}: {name.lstrip('.')}" if place.endswith((".yaml", ".yml", ".json")) else f"{place}{name}"


def _check_all_keys(kind: Any, raw: object, place: str, error: Error) -> None:
    kind = _fitting(kind, raw)
    if _is_class(kind) and raw is not None and not isinstance(raw, kind):
        names = _fields(kind)
        check_keys(raw, place, names, [name for name, required in names.items() if required], error)
    for name, inner, value in _children(kind, raw):
        if isinstance(value, Mapping | list | tuple):
            _check_all_keys(inner, value, _inside(place, name), error)


def _culprit(kind: Any, raw: object, place: str) -> tuple[str, Any, object]:
    """The innermost value that does not have its type: place, type, value."""
    for name, inner, value in _children(kind, raw):
        try:
            msgspec.convert(value, inner)
        except msgspec.ValidationError:
            return _culprit(inner, value, _inside(place, name))
    return place, kind, raw


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
    for each in (kind, *get_args(kind)):
        if get_origin(each) is Literal:
            return nearest(value, map(str, get_args(each)))
    return ""


@contextlib.contextmanager
def sensible(source: str, error: Error = ConfigError) -> Iterator[None]:
    """Turn an exception that a value of the wrong type causes in the block into an error for the user.

    >>> with sensible("card"):
    ...     float([1, 2])
    Traceback (most recent call last):
    pairton.errors.ConfigError: card: has a value of the wrong kind (float() argument must be a string or a real \
number, not 'list')
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as problem:
        reason = f"lacks {problem}" if isinstance(problem, KeyError) else _reason(problem)
        raise error(f"{source}: has a value of the wrong kind ({reason})") from None


def _bounded(data: Any) -> Any:
    """Return `data`. Raise ValueError if it is too deep or too large, with aliases written out."""
    todo, count = [(data, 0)], 0
    while todo:
        item, depth = todo.pop()
        count += 1
        if depth > MOST_DEPTH:
            raise ValueError(f"more than {MOST_DEPTH} levels inside one another")
        if count > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} entries")
        _whole(item)
        if isinstance(item, list | dict):
            inside = item if isinstance(item, list) else [*item, *item.values()]
            todo += [(each, depth + 1) for each in inside]
    return data


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


def register(registry: dict[str, T], name: str, entry: T, what: str) -> None:
    """Add what a user has written, such as a metric; ConfigError if there already is one of this name."""
    if name in registry:
        raise ConfigError(f"there already is a {what} {name!r}: choose another name")
    registry[name] = entry
