"""Criteria and tables of inference.py."""

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
OURS = 0.8  # with a smaller share of the cores, ratios are not judged


@dataclass
class Way:
    """One way from events to answers, and its rates."""

    name: str  # the model and its decoding
    engine: str
    run: Callable[[Events], npt.NDArray[np.int32]]  # assignments (n, S)
    passes: float = 1.0  # of the network, per event
    rates: list[float] = field(default_factory=list)  # events/s, one per round
    processor_rates: list[float] = field(default_factory=list)  # events per second of CPU time, one per round


@dataclass(frozen=True)
class Criterion:
    """A criterion, what was measured, and whether it is met."""

    text: str
    measured: str
    met: bool | None  # None: not judged

    @property
    def verdict(self) -> str:
        return {True: "PASS", False: "FAIL", None: "not judged"}[self.met]


def ratios(way: Way, reference: Way) -> list[float]:
    """Ratios within each round, so that other load on the machine affects both."""
    return [a / b for a, b in zip(way.rates, reference.rates, strict=True)]


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def share_of_cores(ways: list[Way], threads: int) -> float:
    """The CPU time per thread and wall-clock time, of the busiest way; near 1 unless others use the machine.

    Threads that wait for each other in every operator, as those of torch do, lose much more to other programs. On
    a busy machine, ratios to them are therefore too large.
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
    """All criteria, in order."""
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
    text = ", ".join(f"{engine} {rate:.0f}" for engine, rate in found.items())
    return Criterion(f"a goal: {AIM} events/s", f"{text}: {'yes' if max(found.values()) >= AIM else 'no'}", None)


def rate_table(ways: list[Way], reference: Way, spanet: Way | None) -> Iterator[str]:
    yield "| decoding | engine | passes | events/s | per CPU second | times plain | times SPANet |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for way in ways:
        processor = f"{statistics.median(way.processor_rates):.0f}" if way.processor_rates else ""
        yield (
            f"| {way.name} | {way.engine} | {way.passes:.3g} | {statistics.median(way.rates):.0f} | {processor} | "
            f"{spread(ratios(way, reference))} | {spread(ratios(way, spanet)) if spanet else ''} |"
        )


def times(ways: list[Way], reference: Way | None, name: str, limit: float, share: float) -> Criterion:
    """Whether the fastest engine is that many times faster than a reference."""
    text = f"default decoding at least {limit:g} times {name}, by the fastest engine"
    if reference is None:
        return Criterion(text, f"no --{name.lower()}", None)
    found = {way.engine: ratios(way, reference) for way in ways}
    best = max(statistics.median(values) for values in found.values())
    measured = "; ".join(f"{k} {spread(v)}" for k, v in found.items())
    return _if_quiet(text, measured, best >= limit, share)


def lossless(rows: list[dict[str, Any]]) -> Iterator[Criterion]:
    count = rows[0]["events"] if rows else 0
    same = {row["engine"]: row["same_assignment"] for row in rows}
    difference = {row["engine"]: row["difference_of_e_event"] for row in rows}
    judged = count >= ENOUGH
    few = "" if judged else f" ({count} events: needs --events with {ENOUGH})"
    yield Criterion(
        f"the assignment of the plain loop in {SAME:.1%} of {count} complete events",
        ", ".join(f"{k} {v:.3%}" for k, v in same.items()) + few,
        min(same.values()) >= SAME if judged else None,
    )
    yield Criterion(
        f"event efficiency within {MAX_DIFFERENCE} of the plain loop, on the same events",
        ", ".join(f"{k} {v:+.5f}" for k, v in difference.items()) + few,
        max(map(abs, difference.values())) <= MAX_DIFFERENCE if judged else None,
    )


def of_files(rows: list[dict[str, Any]], share: float) -> Criterion:
    text = f"file to file at least {FILE_SHARE:.0%} of the rate in memory, {FILE_EVENTS} events, one process"
    judged = [row for row in rows if row["judged"]]
    if not judged:
        return Criterion(text, "no --end-to-end", None)
    measured = ", ".join(f"{row['engine']} {row['ratio']:.1%}" for row in judged)
    if judged[0]["events"] < FILE_EVENTS:
        return Criterion(text, f"{measured} with {judged[0]['events']} events", None)
    return _if_quiet(text, measured, min(row["ratio"] for row in judged) >= FILE_SHARE, share)


def _if_quiet(text: str, measured: str, met: bool, share: float) -> Criterion:
    if share < OURS:
        return Criterion(text, f"{measured}; but other programs left us only {share:.0%} of the cores", None)
    return Criterion(text, measured, met)


def file_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| file to file | engine | events/s | per CPU second | of the rate in memory | peak memory [MiB] |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        yield (
            f"| {row['way']} | {row['engine']} | {row['events_per_second']:.0f} | "
            f"{row['events_per_processor_second']:.0f} | {row['ratio']:.1%} | {row['peak_mib']:.0f} |"
        )


def write_markdown(lines: list[str], target: Path, script: str = "inference.py") -> None:
    """Write lines between the two marks of a script in an existing page, or to a new page."""
    begin, end = f"<!-- begin: {script} -->", f"<!-- end: {script} -->"
    text = "\n".join(lines) + "\n"
    page = target.read_text("utf-8") if target.is_file() else f"{begin}\n{end}\n"
    if begin not in page or end not in page:
        raise SystemExit(
            f"{target}: has no {begin} and {end}: add them where the tables belong, or give a new file"
        )
    before, after = page.split(begin)[0], page.split(end)[1]
    target.write_text(f"{before}{begin}\n\n{text}\n{end}{after}", encoding="utf-8")
