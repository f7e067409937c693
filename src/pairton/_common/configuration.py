"""Reads YAML and JSON files as plain data, and makes config dataclasses from it.

Files may come from untrusted sources. They must therefore be regular files (no pipe, no device) of limited size
and depth, also after YAML aliases are expanded, and their whole numbers must fit into 64 bits.
"""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

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
TAGS = ("null", "bool", "int", "float", "str", "seq", "map")  # allowed YAML types; dates are read as text
KIND_WORDS = {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "a word"}

T = TypeVar("T")
Error = type[PairtonError]


class _Loader(yaml.SafeLoader):
    """A YAML loader for plain data of limited size and depth."""

    yaml_constructors = {  # noqa: RUF012 - as the class it derives from has it
        tag: function
        for tag, function in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix("tag:yaml.org,2002:") in TAGS
    }
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [entry for entry in entries if not entry[0].endswith(":timestamp")]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._open = [0]  # number of nodes read so far in each collection that is still open
        self._sizes: dict[int, int] = {}  # id of a node -> number of nodes in it

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        alias = self.check_event(yaml.AliasEvent)
        if len(self._open) > MOST_DEPTH:
            raise ValueError(f"more than {MOST_DEPTH} levels inside one another")
        self._open.append(1)
        node = super().compose_node(parent, index)
        size = self._open.pop()
        if alias and id(node) not in self._sizes:
            raise ValueError("it contains itself")
        self._open[-1] += self._sizes.setdefault(id(node), size)
        if self._open[-1] > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} entries")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        _once([key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        return node


def parse_yaml(text: str, source: str, error: Error = ConfigError) -> Any:
    """Return the plain data in YAML text.

    source    the name of the text in error messages
    error     the class of error to raise

    >>> parse_yaml("when: 2024-01-01", "card")
    {'when': '2024-01-01'}
    >>> parse_yaml("a: &a [1, *a]", "card")
    Traceback (most recent call last):
    pairton.errors.ConfigError: card: not readable as YAML (it contains itself)
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
        return json.loads(text, parse_int=lambda digits: _bounded(int(digits)), object_pairs_hook=_mapping)
    except (ValueError, RecursionError, TypeError) as problem:
        reason = type(problem).__name__ if isinstance(problem, RecursionError) else _reason(problem)
        raise error(f"{source}: not readable as JSON ({reason})") from None


def read_json(path: str | Path, error: Error = ConfigError) -> dict[str, Any]:
    """Return the mapping in a JSON file."""
    found = parse_json(read_text(path, error, MOST_JSON), str(path), error)
    if not isinstance(found, dict):
        raise error(f"{path}: read {shown(found)}, but it must be a mapping: copy the file again")
    return found


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


def configure(kind: type[T], raw: object, source: str) -> T:
    """Make a config dataclass from plain data. Raise ConfigError for an unknown key or a value of the wrong type.

    >>> from pairton.network.config import NetworkConfig
    >>> configure(NetworkConfig, {"blocks": "three"}, "network")
    Traceback (most recent call last):
    pairton.errors.ConfigError: network.blocks is 'three', but must be a whole number
    """
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    given = check_keys(raw, source, known)
    with sensible(source):
        return kind(
            **{key: _typed(value, str(known[key].type), f"{source}.{key}") for key, value in given.items()}
        )


def _typed(value: Any, annotation: str, name: str) -> Any:
    """Check a value against its annotation. YAML reads 1e-3 as text: convert it to a number."""
    kind = annotation.removesuffix(" | None")
    if kind.startswith("tuple[str"):
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{name} is {shown(value)}, but must be a list of words")
        return tuple(value)
    if (value is None and kind != annotation) or kind not in KIND_WORDS:
        return value
    if kind == "float" and isinstance(value, int | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):
            value = float(value)
    exact = {"float": float, "int": int, "bool": bool, "str": str}[kind]
    if not isinstance(value, exact) or (exact is int and isinstance(value, bool)):
        raise ConfigError(f"{name} is {shown(value)}, but must be {KIND_WORDS[kind]}")
    return value


def _bounded(value: Any) -> Any:
    """Return `value`. Raise ValueError if it holds a whole number beyond 64 bits."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, int) and abs(item) >= MOST_NUMBER:
            raise ValueError(f"a number beyond {MOST_NUMBER:.0e}")
        if isinstance(item, list | dict) and id(item) not in seen:
            seen.add(id(item))
            todo += item if isinstance(item, list) else [*item, *item.values()]
    return value


def _once(keys: list[str]) -> None:
    """Raise ValueError if a key of one mapping appears twice: one of its two values would be lost."""
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"the key {shown(key)} appears twice in one mapping: keep one of them")
        seen.add(key)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _once([key for key, _ in pairs])
    return dict(pairs)


def _reason(problem: BaseException) -> str:
    return " ".join(str(problem).split())[:200] or type(problem).__name__


def register(registry: dict[str, T], name: str, entry: T, what: str) -> None:
    """Add what a user has written, such as a metric; ConfigError if there already is one of this name."""
    if name in registry:
        raise ConfigError(f"there already is a {what} {name!r}: choose another name")
    registry[name] = entry
