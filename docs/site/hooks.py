"""What MkDocs does beside its defaults: patterns in the navigation, and pages that live outside `docs/`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))  # MkDocs runs this file by its path
from commands import reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ADDED = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")  # pages of the site from the root of the repository
COMMANDS = "<!-- commands -->"  # where the reference of commands goes
BLOCK = re.compile(r"(<pre.*?</pre>)", re.S)
LOOSE = re.compile(r" ± |(?<=\d) (?=%|σ|GeV\b|MeV\b)")  # spaces at which a number must not be broken
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Replace patterns in `nav` by the pages that they match, README first, without those listed elsewhere."""
    named = set(_pages(config.nav))
    config.nav = _expanded(config.nav, named)
    return config


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in _pages(entry)]


def _expanded(nav: list[Any], named: set[str]) -> list[Any]:
    result: list[Any] = []
    for entry in nav:
        ((title, below),) = entry.items() if isinstance(entry, dict) else ((None, entry),)
        if isinstance(below, list):
            result.append({title: _expanded(below, named)})
        elif "*" in below:
            found = sorted(DOCS.glob(below), key=lambda path: (path.name != "README.md", path.name))
            pages = [page for page in (path.relative_to(DOCS).as_posix() for path in found) if page not in named]
            result += pages if title is None else [{title: pages}] if pages else []
        else:
            result.append(entry)
    return result


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository's root."""
    for name in ADDED:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Write the reference of commands, and point links at pages of the site.

    A link to a file of the repository that is no page becomes its name.
    """
    if COMMANDS in markdown:
        from pairton.cli import cli

        return markdown.replace(COMMANDS, "\n".join(reference(cli, "pairton")))
    uri = PurePosixPath(page.file.src_uri)
    folder = "" if page.file.src_uri in ADDED else "docs"

    def rewritten(match: re.Match[str]) -> str:
        text, link, anchor = match[1], match[2], match[3] or ""
        if "://" in link or link.startswith("mailto:"):
            return match[0]
        target = os.path.normpath(os.path.join(folder, uri.parent, link)).replace(os.sep, "/")
        if not (ROOT / target).exists():
            return match[0]  # MkDocs reports it
        if (ROOT / target).is_dir():
            target += "/README.md"
        if target == "README.md":
            target = "docs/README.md"
        if target not in ADDED and not target.startswith("docs/"):
            return text if "`" in text else f"{text} (`{target}`)"
        return f"[{text}]({os.path.relpath(target.removeprefix('docs/'), uri.parent)}{anchor})"

    return LINK.sub(rewritten, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Keep a number on one line with its uncertainty and its unit, outside of code blocks."""
    parts = BLOCK.split(html)
    parts[::2] = [LOOSE.sub(lambda found: found[0].replace(" ", "\u00a0"), part) for part in parts[::2]]
    return "".join(parts)
