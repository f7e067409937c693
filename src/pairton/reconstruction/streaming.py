"""Reconstruction from files to one file, in one pass; the memory does not depend on the number of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton.formats.base import Source
from pairton.formats.files import Paths
from pairton.reconstruction.provenance import InputFile, content_hash, locate, plain_reading, result_settings
from pairton.reconstruction.result import Reconstruction
from pairton.reconstruction.run import READ_ROWS, Run
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.reconstruction.writers import Tally, create_result
from pairton.topology.kinds import counted

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["Summary", "reconstruct_files", "warnings_on", "write_result"]

SHOWN = 10  # events in the table on screen
BAD = {
    "bad_object": "have an object with an impossible value",
    "bad_output": "get no answer, because the outputs of the model are not finite or allow no assignment",
}
UNANSWERED = ("too_few_objects", *BAD)

FirstBad = Mapping[str, tuple[str, int]]  # bad status -> file and row of its first event
Watch = Callable[[Iterator[Reconstruction]], Iterator[Reconstruction]]


@dataclass(frozen=True)
class Summary:
    """The outcome of a reconstruction."""

    events: int
    status: dict[str, int]  # label -> events
    first: Reconstruction | None = field(default=None, repr=False)  # the first events, to show
    varied: Mapping[str, dict[str, int]] = field(default_factory=dict)  # variation -> the same as `status`
    jets: int = 0  # number of jets that were used, if the model takes tags
    tagged: int = 0  # number of b-tagged ones among them
    first_bad: FirstBad = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # what may be wrong with the events, the model or the settings


def reconstruct_files(
    paths: Paths,
    output: str | Path | None,
    model: Model | str | Path | None = None,
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

    model             a model, its name or path; by default the one for the topology of the files
    chunk             events read at a time; it does not change the answers
    threads, engine   as for `pairton.load_model`, if the model is given by name
    progress          may wrap the stream of windows, to show progress
    options           options of `pairton.iterate`: format, topology, keep, btag, map, settings, …
    """
    with Run(paths, model, settings, threads=threads, engine=engine, **{"truth": False, **options}) as run:
        return write_result(run, output, chunk=chunk, progress=progress)


def write_result(
    run: Run, output: str | Path | None, *, chunk: int = READ_ROWS, progress: Watch | None = None
) -> Summary:
    """Reconstruct the events of a run; arguments as for `reconstruct_files`."""
    inputs: list[InputFile] = []

    def note(source: Source) -> None:
        inputs.append(InputFile.of(source, None if output is None else content_hash(source.path)))

    if output is not None:
        run.refuse_inputs([Path(output)])
    metadata = result_settings(run.assigner, plain_reading(run.options))
    first: Reconstruction | None = None
    stream = run.reconstruct(chunk, note)
    with create_result(output, run.model.topology, metadata) if output is not None else nullcontext() as writer:
        tally = Tally() if writer is None else writer.tally
        for reco in stream if progress is None else progress(stream):
            first = _head(reco) if first is None else first
            if writer is not None:
                writer.write(reco)
            else:
                tally.add(reco)
        first_bad = locate(((one.name, 0, one.events) for one in inputs), tally.first)
        if writer is not None:
            writer.metadata |= {"inputs": [one.to_dict() for one in inputs], "first_bad": first_bad}
    warnings = tuple(warnings_on(run, tally.status, first_bad))
    return Summary(tally.events, tally.status, first, tally.varied, tally.jets, tally.tagged, first_bad, warnings)


def _head(reco: Reconstruction) -> Reconstruction:
    some = slice(0, SHOWN)
    names = ("events", "assignment", "status", "event_probability", "particle_probability", "exact")
    used = {kind: counts[some] for kind, counts in reco.used.items()}
    return Reconstruction(**{name: getattr(reco, name)[some] for name in names}, used=used)


def warnings_on(run: Run, status: Mapping[str, int], first_bad: FirstBad) -> Iterable[str]:
    """One line for everything that may be wrong, from the number of events of each status."""
    model, events = run.model, sum(status.values())
    for label, (file, row) in first_bad.items():
        yield f"{status[label]} events {BAD[label]} ({label}), the first in {file}, row {row}"
    most, asked = run.assigner.settings.max_objects, run.settings.max_objects
    if status["truncated"] and most < asked:
        yield (
            f"--max-objects {asked} is more than the sums over hypotheses of {model.topology.name} allow: of "
            f"events with more than {most} objects of a kind, only the {most} of highest pT were used "
            f"({status['truncated']} truncated)"
        )
    if events and events == sum(status[label] for label in UNANSWERED):
        yield (
            "no event has an answer: are units, cuts and topology right? (`pairton inspect` shows what is in the "
            "file)"
        )
    if status["outside_domain"] and not status["ok"]:
        binary = any(domain.binary for domain in model.domain.kinds.values())
        scores = "; if b-tags are scores, cut on them with --btag CUT" if binary else ""
        yield (
            f"no event is like those that {model.name} was trained on, with {model.domain}{scores} (`pairton "
            "inspect` shows what is in the file)"
        )
    elif events and events == status["incomplete"]:
        slots = zip(model.topology.slots_per_kind, model.topology.kinds, strict=True)
        yield (
            f"no event has the objects of a complete {model.topology.name}, "
            f"{', '.join(counted(n, kind) for n, kind in slots if n)}: `pairton inspect` shows what the file has"
        )
