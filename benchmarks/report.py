"""Measure the time and the size of the report page of an evaluation.

    python benchmarks/report.py [--events 100000]

The sample events are repeated. A report of 100,000 events must take less than a minute and 5 MB. The time of the
evaluation in the same run is printed too, as a measure of the machine's speed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from pairton.evaluation.evaluating import evaluate
from pairton.events import Events
from pairton.formats import read
from pairton.models.engines import load_model
from pairton.report.collecting import Candidates, Gallery
from pairton.report.evaluation_page import write_report

MAX_SECONDS, MAX_BYTES = 60.0, 5_000_000


def main() -> None:
    """Print one line. Fail if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    wanted = parser.parse_args().events
    model = load_model()
    sample = read(f"sample:{model.topology.name}")
    events = Events.concatenate([sample] * -(-wanted // len(sample)))
    begun = time.monotonic()
    result = evaluate(events, [model], baselines=["chi2"], metrics=[Candidates(), Gallery()])
    evaluated = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(page, result)
        size = page.stat().st_size
    reported = time.monotonic()
    took, before = reported - evaluated, evaluated - begun
    n = len(result.scores(result.methods[0]))
    print(
        f"{n} events: evaluation {before:.1f} s, report {took:.1f} s ({took / before:.2f} of it), "
        f"{size / 1e6:.2f} MB"
    )
    if took > MAX_SECONDS or size > MAX_BYTES:
        raise SystemExit(f"a report must take at most {MAX_SECONDS:.0f} s and {MAX_BYTES / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
