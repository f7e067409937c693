"""Self-contained HTML pages: templates with autoescape, and data as JSON that cannot end its script element."""

from __future__ import annotations

import html
import json
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from pairton._version import __version__
from pairton.errors import MissingExtraError

if TYPE_CHECKING:
    from pairton.report.record import EventRecord

__all__ = ["as_json", "display_html", "embedded", "render"]

HEIGHT = 900  # pixels, of a display in a notebook


def as_json(data: Any) -> str:
    """JSON for a script element; it contains no markup characters.

    >>> as_json({"name": "</script><!--"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=8)
def asset(name: str) -> str:
    """The text of a file in the templates folder."""
    return (resources.files("pairton.report") / "templates" / name).read_text("utf-8")


def render(template: str, **values: Any) -> str:
    """A filled template; text is escaped unless it is Markup."""
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ImportError:
        raise MissingExtraError("report", "jinja2") from None
    environment = Environment(
        loader=DictLoader({template: asset(template)}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(version=__version__, **values)


def markup(text: str) -> Any:
    """Text of this package that goes into a page without escaping."""
    try:
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("report", "jinja2") from None
    return Markup(text)


def display_html(record: EventRecord) -> str:
    """A self-contained page that steps through one event."""
    return render(
        "display.html",
        title=f"{record.name} - Pairton",
        css=markup(asset("display.css")),
        script=markup(asset("display.js")),
        data=markup(as_json(record.to_dict())),
    )


def embedded(record: EventRecord, height: int = HEIGHT) -> str:
    """The same page in an iframe, for a notebook; its scripts and styles stay inside."""
    page = html.escape(display_html(record), quote=True)
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="{style}" title="event display"></iframe>'
