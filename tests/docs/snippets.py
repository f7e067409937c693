"""The code blocks of the pages: which are run, and which are shown only.

A block in the language `console` (lines after `$ `), `python` or `pycon` (lines after `>>> `, whose output is
compared) is run, unless a comment `<!-- not run: REASON -->` stands right before it. A block of commands in the
language `sh` needs that comment.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MARK = re.compile(r"<!-- not run: (.+) -->")
FENCE = re.compile(r"^( *)```(\w*)")
PYTHON = ("python", "pycon")
COMMAND = re.compile(r"^(\$ )?(pairton|python|pip|make|torchrun|srun|import|from) ")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str  # "" for an indented block
    lines: tuple[str, ...]
    reason: str  # why it is not run; "" for none

    @property
    def text(self):
        return "\n".join(self.lines)

    @property
    def commands(self):
        """Commands of a block, continued lines joined, comments and output left out."""
        joined = self.text.replace("\\\n", " ")
        lines = [line.strip() for line in joined.splitlines()]
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [line for line in lines if line and not line.startswith("#")]

    @property
    def runs(self):
        return self.language in ("console", *PYTHON) and not self.reason


def blocks(path):
    """All code blocks of a page, in order."""
    found, reason, inside, indented = [], "", None, []
    name = path.relative_to(ROOT).as_posix()

    def end_indented(number):
        if indented:
            found.append(Block(name, number - len(indented), "", tuple(indented), ""))
            indented.clear()

    before = ""
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        fence = FENCE.match(line)
        if inside is not None:
            start, language, indent, lines = inside
            if fence:
                found.append(Block(name, start, language, tuple(lines), reason))
                inside, reason = None, ""
            else:
                lines.append(line[indent:])
        elif fence:
            end_indented(number)
            inside = (number, fence[2], len(fence[1]), [])
        elif line.startswith("    ") and (indented or not before.strip()):
            indented.append(line[4:])
        else:
            end_indented(number)
            mark = MARK.search(line)
            reason = mark[1] if mark else reason if not line.strip() else ""
        before = line
    return found
