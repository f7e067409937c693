"""The main job on files: one pass, memory that does not grow with them, an output that is complete or absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton._version import __version__
from pairton.decoding.likelihood import exact_up_to
from pairton.errors import InputError
from pairton.formats import as_for, expand, iterate, open_source
from pairton.formats.base import DEFAULT_CHUNK
from pairton.formats.files import Paths, is_url
from pairton.reconstruction.assigning import Assigner, decoding_of
from pairton.reconstruction.reconstruction import MAX_JETS, Reconstruction, how_made, run, windows
from pairton.reconstruction.writers import Tally, create_result, same_kept

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = ["Summary", "count_events", "reconstruct_files", "reconstruct_stream", "result_settings"]

SHOWN = 10  # events of the table on screen

Watch = Callable[[Iterator[Reconstruction]], Iterator[Reconstruction]]


@dataclass(frozen=True)
class Summary:
    """What became of the events."""

    events: int
    status: dict[str, int]  # label -> events
    first: Reconstruction  # some events to show
    varied: Mapping[str, dict[str, int]] = field(default_factory=dict)  # the same of each variation


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
    *,
    decoding: str | None = None,
    beam: int | None = None,
    max_jets: int = MAX_JETS,
    jet_cuts: bool = True,
    chunk: int = DEFAULT_CHUNK,
    **options: Any,
) -> Iterator[Reconstruction]:
    """Reconstructions of fixed windows of rows, over all files; at least one, perhaps empty.

    `chunk` is how many events are read at a time, which does not change the answer; `options` are those of
    `pairton.iterate`.
    """
    if isinstance(model, str):
        from pairton.models.engines import load_model

        model = load_model(model)
    assign = Assigner(model, decoding, beam)
    how = how_made(model, decoding, beam, max_jets, jet_cuts)
    for window in windows(same_kept(iterate(paths, chunk=chunk, **as_for(model.topology, options)))):
        assign.check(window.topology)
        yield run(window, assign, model.domain, max_jets=max_jets, jet_cuts=jet_cuts).made(how)


def reconstruct_files(
    paths: Paths,
    output: str | Path | None,
    model: Model | str = "default",
    *,
    decoding: str | None = None,
    beam: int | None = None,
    max_jets: int = MAX_JETS,
    jet_cuts: bool = True,
    chunk: int = DEFAULT_CHUNK,
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

        model = load_model(model, engine=engine, threads=threads)
    files = expand(paths)
    _refuse_overwriting(files, output)
    metadata = result_settings(model, files, decoding=decoding, beam=beam, max_jets=max_jets, jet_cuts=jet_cuts)
    first: Reconstruction | None = None
    stream = reconstruct_stream(
        files,
        model,
        decoding=decoding,
        beam=beam,
        max_jets=max_jets,
        jet_cuts=jet_cuts,
        chunk=chunk,
        truth=False,
        **options,
    )
    with create_result(output, model.topology, metadata) if output is not None else nullcontext() as writer:
        tally = Tally() if writer is None else writer.tally
        for reco in stream if progress is None else progress(stream):
            first = _head(reco) if first is None else first
            if writer is not None:
                writer.write(reco)
            else:
                tally.add(reco)
    assert first is not None  # there is always a window
    return Summary(tally.events, tally.status, first, tally.varied)


def result_settings(
    model: Model,
    files: list[str],
    *,
    decoding: str | None,
    beam: int | None,
    max_jets: int,
    jet_cuts: bool,
) -> dict[str, Any]:
    """What a result says of how it was made."""
    how = decoding_of(model, decoding, beam)
    return {
        "pairton_version": __version__,
        "model": {"name": model.name, **_provenance(model.metadata)},
        "decoding": how,
        "exact_up_to_jets": exact_up_to(model.topology) if how.startswith("exact") else None,  # beyond: steps
        "beam": beam,
        "temperatures": Assigner(model, decoding, beam).temperatures,  # None: not fitted for this decoding
        "max_jets": max_jets,
        "jet_cuts": jet_cuts,
        "inputs": files,
    }


def _head(reco: Reconstruction) -> Reconstruction:
    some = slice(0, SHOWN)
    return Reconstruction(
        reco.events[some],
        reco.assignment[some],
        reco.status[some],
        reco.event_probability[some],
        reco.particle_probability[some],
        reco.jets_used[some],
    )


def _provenance(metadata: Any) -> dict[str, Any]:
    return {key: metadata[key] for key in ("pairton_version", "code_version", "weights_sha256") if key in metadata}


def _refuse_overwriting(files: list[str], output: str | Path | None) -> None:
    if output is None or not Path(output).exists():
        return
    for name in files:
        if not is_url(name) and Path(name).exists() and Path(output).samefile(name):
            raise InputError(f"{output}: this is an input: write the result to another file")
