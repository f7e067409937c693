"""Errors for users. Each message is one line that names the value, what is allowed, and the remedy."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "ConfigError",
    "EventsError",
    "FormatError",
    "InputError",
    "MissingExtraError",
    "ModelError",
    "OutputError",
    "PairtonError",
    "PairtonWarning",
    "TopologyError",
    "TrainingError",
    "in_python",
    "naming_flags",
    "nearest",
    "printable",
    "shown",
]

SHORT = reprlib.Repr()  # shortens values for messages
SHORT.maxlevel, SHORT.maxlist, SHORT.maxtuple, SHORT.maxdict = 4, 20, 20, 10
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 100
USER = re.compile(r"(:/+)[^/@\s]+@")  # name and password in a URL
# a command in backticks; or a flag
FLAG = re.compile(r"`[^`]*`|(?<![^\s(])(?:--set (?=format|tree|units)|--([a-z]+(?:-[a-z]+)*)|-n\b)")
RENAMED = {"": "n_events", "no_weights": "use_weights=False", "set": "settings", "to": "format"}
MOST_NAMES = 10_000  # that a misspelt name is compared with; files of CMS have two thousand columns
_flags = False  # whether messages name the flags of the command line


@contextmanager
def naming_flags() -> Iterator[None]:
    """Messages name the flags of the command line, not the arguments of Python."""
    global _flags
    before, _flags = _flags, True
    try:
        yield
    finally:
        _flags = before


def in_python(message: str) -> str:
    """Name arguments of Python where a message names flags of the command line.

    >>> in_python("give --max-objects 12, --btag TAGGER:CUT or --set units=MeV (`pairton list --help`)")
    'give max_objects 12, btag TAGGER:CUT or units=MeV (`pairton list --help`)'
    """

    def argument(found: re.Match[str]) -> str:
        if found[0].startswith("`") or found[0].endswith(" "):
            return found[0].removeprefix("--set ")
        name = (found[1] or "").replace("-", "_")
        return RENAMED.get(name, name)

    return FLAG.sub(argument, message)


class PairtonError(Exception):
    """A mistake that the user can correct. The command line prints it as one line and exits with 2.

    >>> str(PairtonError("https://me:secret@host/events.h5: no such file"))
    'https://…@host/events.h5: no such file'
    """

    def __str__(self) -> str:
        text = USER.sub(r"\1…@", super().__str__())
        return text if _flags else in_python(text)


class PairtonWarning(UserWarning):
    """Something the user should know about an input. The command line prints it as one line."""

    def __str__(self) -> str:
        return super().__str__() if _flags else in_python(super().__str__())


class TopologyError(PairtonError):
    """A topology file that cannot be understood."""


class InputError(PairtonError):
    """An input file that is missing, unreadable, or has other content than was asked for."""


class FormatError(InputError):
    """A file that was opened, but lacks the tree, groups or columns of its format."""


class EventsError(PairtonError):
    """Arrays that do not form events: unequal lengths, missing fields, labels out of range."""


class ConfigError(PairtonError):
    """A setting that is unknown or out of bounds."""


class ModelError(PairtonError):
    """A model that cannot be loaded, or does not fit the events."""


class TrainingError(PairtonError):
    """A training that cannot start or continue."""


class OutputError(PairtonError):
    """An output that cannot be written; nothing is left under its final name."""


class MissingExtraError(PairtonError):
    """A feature whose optional dependencies are not installed.

    >>> raise MissingExtraError("train", "torch")
    Traceback (most recent call last):
    pairton.errors.MissingExtraError: this needs torch, which is not installed: pip install "pairton[train]"
    """

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(f'this needs {module}, which is not installed: pip install "pairton[{extra}]"')
        self._arguments = (extra, module)

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        return MissingExtraError, self._arguments  # so that it can be sent from another process


def nearest(name: object, allowed: Iterable[str]) -> str:
    """Return a hint for a misspelt name, to append to an error message.

    >>> nearest("learning_rte", ["learning_rate", "batch"])
    "; did you mean 'learning_rate'?"
    >>> nearest("xyz", ["learning_rate", "batch"])
    ''
    """
    close = difflib.get_close_matches(str(name)[:100], [*allowed][:MOST_NAMES], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: object) -> str:
    """Return `repr(value)`, shortened to fit on one line.

    >>> shown([1] * 10_000)
    '[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ...]'
    """
    return SHORT.repr(value)


def printable(text: str) -> str:
    r"""Return the text with control characters written as escapes, so that it is safe to print on a terminal.

    >>> printable("red \x1b[31m name\n")
    'red \\x1b[31m name\\n'
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
