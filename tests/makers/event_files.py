"""Events as files of Pairton's own layouts."""

from pathlib import Path

from pairton.events import Events
from pairton.formats import create


def write_events(events: Events, path: Path, to: str | None = None) -> Path:
    """The path of a file with these events; its format follows from the suffix, or is named."""
    with create(path, events.topology, events.metadata, to) as writer:
        writer.write(events)
    return path
