"""`pairton.reconstruct` and `pairton.reconstruct_files`: from events to a `Reconstruction`, or to files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from pairton.errors import ConfigError
from pairton.events import Events
from pairton.events.acceptance import MAX_OBJECTS
from pairton.events.tags import TagTable
from pairton.formats.base import Source
from pairton.formats.files import Paths
from pairton.reconstruction.assigner import windows
from pairton.reconstruction.momenta import varied_events
from pairton.reconstruction.parts import PART_ROWS, write_parts
from pairton.reconstruction.provenance import (
    InputFile,
    absolute,
    content_hash,
    plain_reading,
    result_settings,
)
from pairton.reconstruction.result import Reconstruction
from pairton.reconstruction.run import READ_ROWS, Run, are_paths, by_kind
from pairton.reconstruction.run_settings import RunSettings
from pairton.reconstruction.writers import Summary, create_result
from pairton.topology.kinds import counted

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["reconstruct", "reconstruct_files", "write_result"]

SHOWN = 10  # events in the table on screen
PER_EVENT = ("assignment", "status", "event_probability", "particle_probability", "exact")
SETTINGS = ("jets", "leptons", *(item.name for item in fields(RunSettings)))
BAD = {
    "bad_object": "have an object with an impossible value",
    "bad_output": "get no answer, because the outputs of the model are not finite or allow no assignment",
}
UNANSWERED = ("too_few_objects", *BAD)


def reconstruct(
    events: Events | ak.Array | Mapping[str, ak.Array] | Paths,
    model: Model | str | Path | None = None,
    *,
    decoding: str | None = None,
    max_objects: int = MAX_OBJECTS,
    cuts: bool = True,
    jets: str | None = None,
    leptons: str | None = None,
    btag: TagTable | str | os.PathLike[str] | None = None,
    answer: str = "event",
    allow_absent: bool = False,
    prior: Mapping[str, float] | str | Path | None = None,
    best: int = 0,
    truth: bool = False,
    variations: Any = None,
    threads: int | None = None,
    engine: str = "onnx",
    **options: Any,
) -> Reconstruction:
    """Assign the objects of events to the particles of a topology.

    Args:
        events: `Events`; a path or several; an array of jets with pt, eta, phi, energy or mass, and the inputs of
            the model (such as a b-tag); or a mapping of kinds of objects to such arrays. Leptons need no mass, and
            missing energy is pt and phi. px, py, pz, E and other coordinates of the library vector are understood.
        model: A loaded model, or the name or path of one; by default the model for the topology of the events.
            "kinematic", or the path of a YAML file with its settings, is a kinematic fit.
        decoding: A name in `pairton.decoding.DECODINGS`; by default the decoding that the model was trained for.
            "beam:5" is a beam of five hypotheses.
        max_objects: The largest number of objects of each kind. If there are more, those of highest pT are used
            (status `truncated`).
        cuts: Leave out objects outside the model's domain (pT, |eta|) and, if they were read from a file of an
            experiment, outside the topology's own cuts.
        jets: Cuts on jets in place of these, such as "pt>30,abs_eta<2.4"; "none" uses all jets.
        leptons: The same for leptons.
        btag: Efficiencies of the tagger: a table, its name (`pairton list tags` has them) or a YAML file. For a
            file also "TAGGER:CUT", or "none".
        answer: "event" for the most probable assignment, "particles" for the most particles expected to be right.
        allow_absent: Leave out particles that are probably absent. For models that know missing particles.
        prior: Factors on the prior probabilities of patterns, such as {"nothing": 5}, or a file of
            `pairton measure prior`. For the same models.
        best: List this many of the most probable assignments: the columns `best_probability` and `best_…`.
        truth: Compare the labels of the events with the answers: the columns `true_…` and `…_truth`.
        variations: The same jets with other calibrations, by name, or mappings of kinds to such objects. Kinds
            that a variation lacks are nominal, but missing energy follows the others. For files, columns, as for
            `pairton.iterate`. Results are in `.variations[name]`.
        threads: Threads of the engine; by default one per core.
        engine: "onnx", or "torch" if it is installed.
        **options: For files, how to read them, as for `pairton.iterate`, such as `keep` or `settings`.

    Returns:
        A `Reconstruction` with one row per event.

    Raises:
        PairtonError: The model or file cannot be read, an argument is unknown, or the events do not fit the model.

    Examples:
        >>> import pairton
        >>> reco = pairton.reconstruct(pairton.read("sample:ttbar_allhad")[:3])
        >>> reco.t.mass.ndim, len(reco)
        (2, 3)
    """
    settings = RunSettings.of(
        decoding=decoding,
        max_objects=max_objects,
        cuts=cuts,
        jets=jets,
        leptons=leptons,
        answer=answer,
        allow_absent=allow_absent,
        prior=prior,
        best=best,
        truth=truth,
    )
    of_files = are_paths(events)
    if options and not of_files:
        raise ConfigError(
            f"{next(iter(options))}: an option of reading, but the events are in memory: leave it out"
        )
    options |= {"variations": variations} if of_files and variations is not None else {}
    with Run(events, model, settings, threads=threads, engine=engine, truth=truth, btag=btag, **options) as run:
        known, assigner = run.read(), run.assigner
    if variations is not None and not of_files:
        known = known.replace(variations={name: by_kind(given) for name, given in variations.items()})
    assigner.check(known.topology)
    known = assigner.with_evidence(known)
    parts = [assigner.run(window) for window in windows([known])]
    return _joined(known, parts).made_by(run.model, assigner.settings)


def _joined(events: Events, parts: Sequence[Reconstruction]) -> Reconstruction:
    if len(parts) == 1:
        return replace(parts[0], events=events)
    rows: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_EVENT}
    rows |= {
        field: {name: _together([getattr(p, field)[name] for p in parts]) for name in getattr(parts[0], field)}
        for field in ("used", "outputs")
    }
    varied = {k: _joined(varied_events(events, k), [p.variations[k] for p in parts]) for k in events.variations}
    return Reconstruction(events, **rows, variations=varied)


def _together(parts: Sequence[Any]) -> Any:
    return ak.concatenate(parts) if isinstance(parts[0], ak.Array) else np.concatenate(parts)


def reconstruct_files(
    paths: Paths,
    output: str | os.PathLike[str] | None,
    model: Model | str | Path | None = None,
    *,
    jobs: int | str | None = None,
    client: Any = None,
    resume: bool = False,
    force: bool = False,
    per_file: bool = False,
    rows: int = PART_ROWS,
    chunk: int = READ_ROWS,
    threads: int | None = None,
    engine: str = "onnx",
    progress: Callable[[Iterator[Any]], Iterator[Any]] | None = None,
    **options: Any,
) -> Summary:
    """Reconstruct files to a file, or to a folder of parts; the memory does not depend on the number of events.

    Args:
        paths: Files, as for `pairton.read`.
        output: A file, which is replaced if it exists; its suffix selects Parquet, ROOT or HDF5. With `jobs`,
            `client`, `resume` or `per_file` a folder, or "folder/*.root" for parts of that format. None only
            counts events.
        model: As for `pairton.reconstruct`.
        jobs: Work in so many processes; or on a Dask cluster, by its address or scheduler file.
        client: A Dask client, whose cluster does the work. It must see all files under the same paths.
        resume: Keep the parts of an earlier run with the same inputs and settings, and make the others.
        force: Replace the parts of an earlier run.
        per_file: Write one part per input, with the name of the input.
        rows: Events per part, a multiple of 4096.
        chunk: Events read at a time; it does not change the answers.
        threads: Threads of the engine; by default one per core, or one with several processes.
        engine: As for `pairton.reconstruct`.
        progress: A function that wraps the stream of finished windows or parts.
        **options: `decoding`, `max_objects`, `cuts`, `jets`, `leptons`, `answer`, `allow_absent`, `prior`,
            `best` and `truth` as for `pairton.reconstruct`; others as for `pairton.iterate`, such as `keep` or
            `variations`.

    Returns:
        A `Summary`, with the number of events of each status.

    Raises:
        PairtonError: As for `pairton.reconstruct`; or the output cannot be written.

    Examples:
        >>> import pairton
        >>> pairton.reconstruct_files("sample:ttbar_allhad", None, "iterative").events
        2137
    """
    settings = RunSettings.of(**{name: options.pop(name) for name in SETTINGS if name in options})
    if threads is None and (client is not None or jobs not in (None, 1)):
        threads = 1
    with Run(paths, model, settings, threads=threads, engine=engine, truth=settings.truth, **options) as run:
        how: dict[str, Any] = {
            "jobs": jobs,
            "client": client,
            "resume": resume,
            "force": force,
            "per_file": per_file,
            "rows": rows,
        }
        return write_result(run, output, chunk=chunk, progress=progress, **how)


def write_result(run: Run, output: str | os.PathLike[str] | None, **how: Any) -> Summary:
    """Reconstruct the events of a run; arguments as for `reconstruct_files`."""
    if how.get("client") is not None or how.get("jobs") is not None or how.get("resume") or how.get("per_file"):
        summary = write_parts(run, output, **how)
    elif "*" in str(output):
        raise ConfigError(f"{output} is a folder of parts: add --jobs, --resume or --per-file")
    else:
        summary = _write_file(run, output, how.get("chunk", READ_ROWS), how.get("progress"))
    summary.warnings = tuple(_warnings(run, summary))
    return summary


def _write_file(run: Run, output: str | os.PathLike[str] | None, chunk: int, progress: Any) -> Summary:
    inputs: list[InputFile] = []

    def note(source: Source) -> None:
        inputs.append(InputFile.of(source, None if output is None else content_hash(source.path)))

    if output is not None:
        run.refuse_inputs([Path(output)])
    metadata, origin = result_settings(run.assigner, plain_reading(run.options)), (absolute(run.files[0]), 0)
    stream = run.reconstruct(chunk, note)
    made = nullcontext() if output is None else create_result(output, run.model.topology, metadata, origin)
    with made as writer:
        summary = Summary(origin) if writer is None else writer.summary
        add = summary.add if writer is None else writer.write
        for reco in stream if progress is None else progress(stream):
            summary.first = _head(reco) if summary.first is None else summary.first
            add(reco)
        if writer is not None:
            writer.metadata["inputs"] = [one.to_dict() for one in inputs]
    return summary


def _head(reco: Reconstruction) -> Reconstruction:
    some = slice(0, SHOWN)
    rows = {name: getattr(reco, name)[some] for name in ("events", *PER_EVENT)}
    return Reconstruction(**rows, used={kind: counts[some] for kind, counts in reco.used.items()})


def _warnings(run: Run, summary: Summary) -> Iterator[str]:
    """One line for everything that may be wrong."""
    model, events, status = run.model, summary.events, summary.status
    look = "`pairton inspect` shows what is in the file"
    for label, (file, row) in summary.first_bad.items():
        yield f"{status[label]} events {BAD[label]} ({label}), the first in {file}, row {row}"
    most, asked = run.assigner.settings.max_objects, run.settings.max_objects
    if status["truncated"] and most < asked:
        yield (
            f"--max-objects {asked} is more than the sums over hypotheses of {model.topology.name} allow: of "
            f"events with more than {most} objects of a kind, only the {most} of highest pT were used "
            f"({status['truncated']} truncated)"
        )
    if events and events == sum(status[label] for label in UNANSWERED):
        yield f"no event has an answer: are units, cuts and topology right? ({look})"
    if status["outside_domain"] and not status["ok"]:
        binary = any(domain.binary for domain in model.domain.kinds.values())
        scores = "; if b-tags are scores, cut on them with --btag CUT" if binary else ""
        yield f"no event is like those that {model.name} was trained on, with {model.domain}{scores} ({look})"
    elif events and events == status["incomplete"]:
        slots = zip(model.topology.slots_per_kind, model.topology.kinds, strict=True)
        needs = ", ".join(counted(n, kind) for n, kind in slots if n)
        yield f"no event has the objects of a complete {model.topology.name}, {needs}: {look}"
