"""Show the examples of docstrings as code, whether or not they stand in a section `Examples:`."""

from __future__ import annotations

from typing import Any

import griffe

__all__ = ["Doctests"]


def fenced(text: str) -> str:
    """A docstring with every example that starts at the left margin put in a block of code."""
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if inside and not line.strip():
            lines.append("```")
            inside = False
        elif not inside and line.startswith(">>>"):
            lines += ["", "```pycon"]
            inside = True
        lines.append(line)
    return "\n".join(lines[:-1])


class Doctests(griffe.Extension):
    """Runs on every object that mkdocstrings loads."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
