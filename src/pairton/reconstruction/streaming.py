"""Reconstruction from files to one file, in one pass; the memory does not depend on the number of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton.errors import InputError
from pairton.events.domain import used_cuts
from pairton.formats import expand, has_pile_up, iterate, open_source, options_for
from pairton.formats.base import Source
from pairton.formats.files import Paths, is_url
from pairton.reconstruction.provenance import InputFile, InputFiles, content_hash, plain_reading, result_settings
from pairton.reconstruction.result import Reconstruction
from pairton.reconstruction.result_columns import same_kept
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.reconstruction.running import Assigner, windows
from pairton.reconstruction.writers import Tally, create_result
from pairton.topology import load_topology

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["READ_ROWS", "Summary", "count_events", "reconstruct_files", "reconstruct_stream", "settings_for_files"]

SHOWN = 10  # events in the table on screen
READ_ROWS = 16_384  # events read at a time; more would need more memory and not be faster

FirstBad = Mapping[str, tuple[str, int]]  # bad status -> file and row of its first event
Watch = Callable[[Iterator[Reconstruction]], Iterator[Reconstruction]]


@dataclass(frozen=True)
class Summary:
    """The outcome of a reconstruction."""

    events: int
    status: dict[str, int]  # label -> events
    first: Reconstruction  # the first events, to show
    varied: Mapping[str, dict[str, int]] = field(default_factory=dict)  # variation -> the same as `status`
    jets: int = 0  # number of jets that were used, if the model takes tags
    tagged: int = 0  # number of b-tagged ones among them
    first_bad: FirstBad = field(default_factory=dict)


def count_events(paths: Paths, **options: Any) -> int:
    """The number of events in all files, without reading them."""
    total = 0
    for path in expand(paths):
        with open_source(path, **options) as source:
            total += source.n_events
    return total


def settings_for_files(
    settings: RunSettings, model: Model, paths: Paths, options: Mapping[str, Any]
) -> RunSettings:
    """The settings with a number for every cut on objects; `options`: of `pairton.iterate`."""
    if settings.cuts == used_cuts(settings.cuts, model.domain, model.topology.kinds):
        return settings  # they have all numbers
    reading = options_for(model, options)
    return settings.for_events(model, load_topology(reading["topology"]), has_pile_up(paths, reading))


def reconstruct_stream(
    paths: Paths,
    model: Model | str | Path = "default",
    settings: RunSettings = DEFAULT_SETTINGS,
    /,  # the keyword `settings` is an option of `pairton.iterate`
    *,
    chunk: int = READ_ROWS,
    **options: Any,
) -> Iterator[Reconstruction]:
    """Reconstruct all files in fixed windows of rows; yields at least one window, which may be empty.

    chunk     events read at a time; it does not change the answers
    options   options of `pairton.iterate`
    """
    if isinstance(model, str | Path):
        from pairton.models.engines import load_model

        model = load_model(model, topology=options.get("topology"), isolate=options.get("isolate"))
    assigner = None
    for window in windows(same_kept(iterate(paths, chunk=chunk, **options_for(model, options)))):
        assigner = assigner or Assigner(model, settings.for_events(model, window.topology, window.pile_up))
        assigner.check(window.topology, window.variations)
        yield assigner.run(window).made_by(model, assigner.settings)


def reconstruct_files(
    paths: Paths,
    output: str | Path | None,
    model: Model | str | Path = "default",
    settings: RunSettings = DEFAULT_SETTINGS,
    /,  # the keyword `settings` is an option of `pairton.iterate`
    *,
    chunk: int = READ_ROWS,
    threads: int | None = None,
    engine: str = "onnx",
    progress: Watch | None = None,
    **options: Any,
) -> Summary:
    """Reconstruct files, write the result to `output` if given, and return a summary.

    chunk             events read at a time; it does not change the answers
    threads, engine   as for `pairton.load_model`, if the model is given by name
    progress          may wrap the stream of windows, to show progress
    options           options of `pairton.iterate`: format, topology, keep, units, btag, map, tree, settings
    """
    if isinstance(model, str | Path):
        from pairton.models.engines import load_model

        model = load_model(
            model, engine=engine, threads=threads, topology=options.get("topology"), isolate=options.get("isolate")
        )
    files = expand(paths)
    _refuse_overwriting(files, output)
    inputs = InputFiles()

    def note(source: Source) -> None:
        inputs.append(InputFile.of(source, None if output is None else content_hash(source.path)))

    settings = settings_for_files(settings, model, files, options)
    metadata = result_settings(model, settings, plain_reading(options_for(model, options)))
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
            raise InputError(f"{output} is an input file: write the result to another file")
