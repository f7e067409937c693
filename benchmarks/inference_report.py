"""Criteria and tables of inference.py: what was asked for, what was measured, and whether it is enough."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_process import Run
from pairton.events import Events

__all__ = [
    "FILE_EVENTS",
    "Criterion",
    "Way",
    "file_table",
    "judge",
    "rate_table",
    "share_of_cores",
    "write_markdown",
]

TIMES_PLAIN, TIMES_SPANET, AIM = 3.0, 2.5, 4000
SAME, MAX_DIFFERENCE, ENOUGH = 0.999, 0.0005, 20_000
FILE_EVENTS, FILE_SHARE = 200_000, 0.85
START, IMPORT = 3.0, 0.5
OURS = 0.8  # share of the cores, below which other programs decide about ratios


@dataclass
class Way:
    """One way from events to answers; `name` says what is decoded how, never only with which engine."""

    name: str
    engine: str
    run: Callable[[Events], npt.NDArray[np.int32]]  # assignments (n, S)
    passes: float = 1.0  # of the network, an event
    rates: list[float] = field(default_factory=list)  # events/s, one a round
    processor_rates: list[float] = field(default_factory=list)  # events per second of processor time


@dataclass(frozen=True)
class Criterion:
    said: str
    measured: str
    met: bool | None  # None: not judged

    @property
    def verdict(self) -> str:
        return {True: "PASS", False: "FAIL", None: "not judged"}[self.met]


def ratios(way: Way, reference: Way) -> list[float]:
    """Within a round, so that what else the machine does falls on both."""
    return [a / b for a, b in zip(way.rates, reference.rates, strict=True)]


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def share_of_cores(ways: list[Way], threads: int) -> float:
    """How much of its threads' time the busiest way was running; near 1 unless others use the machine.

    Threads that meet within every operator, as torch's do, lose far more to others than threads that do not: on a
    busy machine a ratio to them is flattering, and means nothing.
    """
    clocks = [list(zip(way.rates, way.processor_rates, strict=True)) for way in ways if way.processor_rates]
    return max(statistics.median(rate / processor for rate, processor in pairs) for pairs in clocks) / threads


def judge(
    share: float,
    fast: list[Way],
    reference: Way,
    spanet: Way | None,
    loss: list[dict[str, Any]],
    files: list[dict[str, Any]],
    start: Mapping[str, Run],
    seconds_of_import: float,
) -> list[Criterion]:
    """All that was asked for, in its order."""
    return [
        times(fast, spanet, "SPANet", TIMES_SPANET, share),
        aim(fast),
        times(fast, reference, "plain", TIMES_PLAIN, share),
        *lossless(loss),
        of_files(files, share),
        Criterion(
            f"first result from a cold start under {START:g} s, the default engine",
            ", ".join(
                f"{k} {v.seconds:.2f} s ({v.processor_seconds:.2f} s of processors)" for k, v in start.items()
            ),
            start["onnx"].seconds < START,
        ),
        Criterion(f"`import pairton` under {IMPORT} s", f"{seconds_of_import:.2f} s", seconds_of_import < IMPORT),
    ]


def aim(ways: list[Way]) -> Criterion:
    found = {way.engine: statistics.median(way.rates) for way in ways}
    said = ", ".join(f"{engine} {rate:.0f}" for engine, rate in found.items())
    return Criterion(f"an aim: {AIM} events/s", f"{said}: {'yes' if max(found.values()) >= AIM else 'no'}", None)


def rate_table(ways: list[Way], reference: Way, spanet: Way | None) -> Iterator[str]:
    yield "| decoding | engine | passes | events/s | a processor | times plain | times SPANet |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for way in ways:
        processor = f"{statistics.median(way.processor_rates):.0f}" if way.processor_rates else ""
        yield (
            f"| {way.name} | {way.engine} | {way.passes:.3g} | {statistics.median(way.rates):.0f} | {processor} | "
            f"{spread(ratios(way, reference))} | {spread(ratios(way, spanet)) if spanet else ''} |"
        )


def times(ways: list[Way], reference: Way | None, name: str, limit: float, share: float) -> Criterion:
    """Judged by the engine that is fastest; what each reaches is said."""
    said = f"default decoding at least {limit:g} times {name}, by the fastest engine"
    if reference is None:
        return Criterion(said, f"no --{name.lower()}", None)
    found = {way.engine: ratios(way, reference) for way in ways}
    best = max(statistics.median(values) for values in found.values())
    measured = "; ".join(f"{k} {spread(v)}" for k, v in found.items())
    return _if_quiet(said, measured, best >= limit, share)


def lossless(rows: list[dict[str, Any]]) -> Iterator[Criterion]:
    count = rows[0]["events"] if rows else 0
    same = {row["engine"]: row["same_assignment"] for row in rows}
    difference = {row["engine"]: row["difference_of_e_event"] for row in rows}
    judged = count >= ENOUGH
    few = "" if judged else f" ({count} events: needs --events with {ENOUGH})"
    yield Criterion(
        f"the assignment of the plain way in {SAME:.1%} of {count} fully reconstructible events",
        ", ".join(f"{k} {v:.3%}" for k, v in same.items()) + few,
        min(same.values()) >= SAME if judged else None,
    )
    yield Criterion(
        f"event efficiency within {MAX_DIFFERENCE} of the plain way, the same events",
        ", ".join(f"{k} {v:+.5f}" for k, v in difference.items()) + few,
        max(map(abs, difference.values())) <= MAX_DIFFERENCE if judged else None,
    )


def of_files(rows: list[dict[str, Any]], share: float) -> Criterion:
    said = f"file to file at least {FILE_SHARE:.0%} of the rate in memory, {FILE_EVENTS} events, one process"
    judged = [row for row in rows if row["judged"]]
    if not judged:
        return Criterion(said, "no --end-to-end", None)
    measured = ", ".join(f"{row['engine']} {row['ratio']:.1%}" for row in judged)
    if judged[0]["events"] < FILE_EVENTS:
        return Criterion(said, f"{measured} with {judged[0]['events']} events", None)
    return _if_quiet(said, measured, min(row["ratio"] for row in judged) >= FILE_SHARE, share)


def _if_quiet(said: str, measured: str, met: bool, share: float) -> Criterion:
    if share < OURS:
        return Criterion(
            said, f"{measured}; but only {share:.0%} of the cores was ours: needs a quiet machine", None
        )
    return Criterion(said, measured, met)


def file_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| file to file | engine | events/s | a processor | of the rate in memory | peak memory [MiB] |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        yield (
            f"| {row['way']} | {row['engine']} | {row['events_per_second']:.0f} | "
            f"{row['events_per_processor_second']:.0f} | {row['ratio']:.1%} | {row['peak_mib']:.0f} |"
        )


def write_markdown(lines: list[str], target: Path, script: str = "inference.py") -> None:
    """Between the two marks of a script in an existing page, else a page of their own."""
    begin, end = f"<!-- begin: {script} -->", f"<!-- end: {script} -->"
    text = "\n".join(lines) + "\n"
    page = target.read_text("utf-8") if target.is_file() else f"{begin}\n{end}\n"
    if begin not in page or end not in page:
        raise SystemExit(
            f"{target}: has no {begin} and {end}: add them where the tables belong, or give a new file"
        )
    before, after = page.split(begin)[0], page.split(end)[1]
    target.write_text(f"{before}{begin}\n\n{text}\n{end}{after}", encoding="utf-8")
