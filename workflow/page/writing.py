"""Writes Markdown from templates: numbers with uncertainties, tables, commands, and figures in files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pairton._common.atomic import replacing
from pairton.evaluation.plots import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PART", "Page", "cell", "lead", "number", "signed", "table", "wrapped"]

WIDTH = 108  # characters per line of a command
FINE = 0.002  # smaller uncertainties are given with four decimals
PART = re.compile(r"(?P<begin><!-- results: (?P<name>[\w/]+) -->\n).*?(?P<end><!-- end of results -->)", re.DOTALL)

Json = Mapping[str, Any]


def number(value: float | None, half: float | None = None) -> str:
    """A share without the leading zero, with its uncertainty.

    >>> number(0.6873, 0.0054), number(0.6944, 0.0003), number(0.651), number(None)
    ('.687 ± .005', '.6944 ± .0003', '.651', '–')
    """
    if value is None:
        return "–"
    digits = 4 if half is not None and half < FINE else 3
    text = _short(value, digits)
    return text if half is None else f"{text} ± {_short(half, digits)}"


def signed(value: float, half: float) -> str:
    """A difference with its sign.

    >>> signed(0.0312, 0.004), signed(-0.0008, 0.0011)
    ('+.031 ± .004', '−.0008 ± .0011')
    """
    digits = 4 if half < FINE else 3
    sign = "+" if value >= 0 else "−"
    return f"{sign}{_short(abs(value), digits)} ± {_short(half, digits)}"


def _short(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def cell(found: Json | None) -> str:
    """An efficiency of `pairton evaluate --json`, with half its interval."""
    if not found or found.get("value") is None:
        return "–"
    return number(found["value"], (found["high"] - found["low"]) / 2)


def lead(found: Json | None) -> str:
    """A difference of `pairton evaluate --json`, with half its interval; nothing if there is none."""
    return "" if found is None else signed(found["value"], (found["high"] - found["low"]) / 2)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def wrapped(commands: Sequence[str], reason: str = "needs the files that it names") -> str:
    """Commands as a block, wrapped between options. `reason` tells the tests of pages why it is not run."""
    joined = [re.sub(r" (--?[\w-]+) (?!-)", r" \1\0", command).split(" ") for command in commands if command]
    lines = [line for words in joined for line in _lines(words)]
    return "\n".join([f"<!-- not run: {reason} -->", "```sh", *lines, "```"]) if lines else ""


def _lines(words: list[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + len(word) > WIDTH:
            yield f"{line} \\"
            line = f"  {word}"
        else:
            line = f"{line} {word}" if line else word
        line = line.replace("\0", " ")
    yield line


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"number": number, "cell": cell, "lead": lead}
TEMPLATES.globals |= {"table": table, "wrapped": wrapped}


class Page:
    """Parts and figures of the page NAME.md; its figures are images/NAME_*.png beside it."""

    def __init__(self, folder: Path, name: str = "results") -> None:
        self.folder, self.name = folder, name
        self.figures: list[str] = []

    def render(self, template: str, **values: Any) -> str:
        """A template of the folder `templates`, without repeated empty lines."""
        return re.sub(r"\n{3,}", "\n\n", TEMPLATES.get_template(f"{template}.md").render(values)).strip()

    def figure(self, name: str, figure: Figure, alt: str) -> str:
        """Save a figure; returns the line that shows it."""
        (self.folder / "images").mkdir(parents=True, exist_ok=True)
        file = f"{self.name}_{name}.png"
        with replacing(self.folder / "images" / file) as temporary:
            save_figure(figure, temporary)
        self.figures.append(file)
        return f"![{alt}](images/{file})"

    def save(self, text: str) -> Path:
        """Write the page, and remove the figures of an earlier one."""
        path = self.folder / f"{self.name}.md"
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        for old in (self.folder / "images").glob(f"{self.name}_*.png"):
            if old.name not in self.figures:
                old.unlink()
        return path

    def fill(self, writers: Mapping[str, Callable[[Page], str]]) -> Path:
        """Write the marked parts of the existing page anew, and leave the text around them.

        A part stands between `<!-- results: NAME -->` and `<!-- end of results -->`.
        """

        def part(found: re.Match[str]) -> str:
            if found["name"] not in writers:
                known = ", ".join(writers)
                raise SystemExit(f"results: {self.name}.md has a part {found['name']}: known are {known}")
            return f"{found['begin']}\n{writers[found['name']](self)}\n\n{found['end']}"

        return self.save(PART.sub(part, (self.folder / f"{self.name}.md").read_text(encoding="utf-8")))
