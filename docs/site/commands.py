"""The reference of commands as Markdown, from the objects that make the command line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

__all__ = ["reference"]


def reference(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    """Lines for a command and all commands below it; a command of n words has a heading of level n + 1."""
    context = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    depth = len(context.command_path.split())
    if depth > 1:
        yield from ("", f"{'#' * depth} {context.command_path}", "")
    yield from _prose(command.help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("", "```text", f"{context.command_path} {usage}", "```", "")
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [record for record in records if record is not None and record[1]]
    if rows:
        yield from ("| option | meaning |", "| --- | --- |")
        yield from (f"| <code>{_cell(option)}</code> | {_cell(meaning)} |" for option, meaning in rows)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            inner = command.get_command(context, below)
            assert inner is not None
            yield from reference(inner, below, context)


def _prose(text: str) -> Iterator[str]:
    """Paragraphs of a help text; those after a backspace keep their lines, and examples are code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines = paragraph.strip().splitlines()
        if lines and lines[0].strip() == "\b":
            yield from ("", "```text", *lines[1:], "```")
        else:
            yield from ("", *lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "&#124;")
