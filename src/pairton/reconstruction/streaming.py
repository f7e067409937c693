"""The main job on files: one pass, memory that does not grow with them, an output that is complete or absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton.errors import InputError
from pairton.formats import as_for, expand, iterate, open_source
from pairton.formats.base import Source
from pairton.formats.files import Paths, is_url
from pairton.reconstruction.provenance import InputFile, InputFiles, content_hash, plain_reading, result_settings
from pairton.reconstruction.result import Reconstruction
from pairton.reconstruction.result_columns import same_kept
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.reconstruction.running import Assigner, windows
from pairton.reconstruction.writers import Tally, create_result

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["READ_ROWS", "Summary", "count_events", "reconstruct_files", "reconstruct_stream"]

SHOWN = 10  # events of the table on screen
READ_ROWS = 16_384  # events read at a time: more of them would take memory, and not be faster

FirstBad = Mapping[str, tuple[str, int]]  # status of bad events -> file and row of the first
Watch = Callable[[Iterator[Reconstruction]], Iterator[Reconstruction]]


@dataclass(frozen=True)
class Summary:
    """What became of the events."""

    events: int
    status: dict[str, int]  # label -> events
    first: Reconstruction  # some events to show
    varied: Mapping[str, dict[str, int]] = field(default_factory=dict)  # the same of each variation
    jets: int = 0  # that were used, where the model takes tags
    tagged: int = 0  # of those, with a b-tag
    first_bad: FirstBad = field(default_factory=dict)


def count_events(paths: Paths, **options: Any) -> int:
    """Events of all files, without reading them."""
    total = 0
    for path in expand(paths):
        with open_source(path, **options) as source:
            total += source.n_events
    return total


def reconstruct_stream(
    paths: Paths,
    model: Model | str = "default",
    settings: RunSettings = DEFAULT_SETTINGS,
    /,  # `settings` by name is that of a format, as of `pairton.iterate`
    *,
    chunk: int = READ_ROWS,
    **options: Any,
) -> Iterator[Reconstruction]:
    """Reconstructions of fixed windows of rows, over all files; at least one, perhaps empty.

    `chunk` is how many events are read at a time, which does not change the answer; `options` are those of
    `pairton.iterate`.
    """
    if isinstance(model, str):
        from pairton.models.engines import load_model

        model = load_model(model, topology=options.get("topology"))
    assigner = Assigner(model, settings)
    for window in windows(same_kept(iterate(paths, chunk=chunk, **as_for(model, options)))):
        assigner.check(window.topology)
        yield assigner.run(window).made_by(model, assigner.settings)


def reconstruct_files(
    paths: Paths,
    output: str | Path | None,
    model: Model | str = "default",
    settings: RunSettings = DEFAULT_SETTINGS,
    /,  # `settings` by name is that of a format, as of `pairton.iterate`
    *,
    chunk: int = READ_ROWS,
    threads: int | None = None,
    engine: str = "onnx",
    progress: Watch | None = None,
    **options: Any,
) -> Summary:
    """Reconstruct files into one; without an output, only the summary.

    `progress` may wrap the stream of windows. Further options are those of `pairton.iterate`: format, topology,
    keep, units, btag, map, tree, settings.
    """
    if isinstance(model, str):
        from pairton.models.engines import load_model

        model = load_model(model, engine=engine, threads=threads, topology=options.get("topology"))
    files = expand(paths)
    _refuse_overwriting(files, output)
    inputs = InputFiles()

    def note(source: Source) -> None:
        inputs.append(InputFile.of(source, None if output is None else content_hash(source.path)))

    metadata = result_settings(model, settings, plain_reading(as_for(model, options)))
    first: Reconstruction | None = None
    stream = reconstruct_stream(files, model, settings, chunk=chunk, truth=False, opened=note, **options)
    with create_result(output, model.topology, metadata) if output is not None else nullcontext() as writer:
        tally = Tally() if writer is None else writer.tally
        for reco in stream if progress is None else progress(stream):
            first = _head(reco) if first is None else first
            if writer is not None:
                writer.write(reco)
            else:
                tally.add(reco)
        first_bad = inputs.first_bad(tally.first)
        if writer is not None:
            writer.metadata |= {"inputs": [one.to_dict() for one in inputs], "first_bad": first_bad}
    assert first is not None  # there is always a window
    return Summary(tally.events, tally.status, first, tally.varied, tally.jets, tally.tagged, first_bad)


def _head(reco: Reconstruction) -> Reconstruction:
    some = slice(0, SHOWN)
    names = ("events", "assignment", "status", "event_probability", "particle_probability", "exact")
    used = {kind: counts[some] for kind, counts in reco.used.items()}
    return Reconstruction(**{name: getattr(reco, name)[some] for name in names}, used=used)


def _refuse_overwriting(files: list[str], output: str | Path | None) -> None:
    if output is None or not Path(output).exists():
        return
    for name in files:
        if not is_url(name) and Path(name).exists() and Path(output).samefile(name):
            raise InputError(f"{output}: this is an input: write the result to another file")
