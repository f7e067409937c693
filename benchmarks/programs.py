"""What several benchmarks use: an input of any length, whole programs with their memory, and tables in pages."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pairton import formats
from pairton.events import Events
from pairton.formats.files import sample_file

__all__ = ["Run", "run_command", "write_input", "write_markdown"]

BLOCK = 50_000  # events written at a time

# VmHWM is that of the new program; ru_maxrss would include the size of this one, from which it was forked.
COMMAND = """
from pathlib import Path
from pairton.cli import main
try:
    main()
except SystemExit as end:
    if end.code:
        raise
print(next(line.split()[1] for line in Path("/proc/self/status").open() if line.startswith("VmHWM")))
"""


class Run(NamedTuple):
    """The cost of a whole program."""

    seconds: float
    processor_seconds: float
    peak_mib: float  # of the first process only


def run_command(*arguments: str) -> Run:
    """Run `pairton` with these arguments in a new process (Linux)."""
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True)
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"pairton {' '.join(arguments)}: {done.stderr.strip()}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(seconds, used, int(done.stdout.split()[-1]) / 1024)


def write_input(path: Path, n_events: int) -> None:
    """Write the sample of the package repeatedly, with new ids."""
    sample = formats.read(str(sample_file()))
    block = Events.concatenate([sample] * -(-BLOCK // len(sample)))
    with formats.create(path, sample.topology) as writer:
        for start in range(0, n_events, len(block)):
            part = block[: n_events - start]
            ids = np.stack([np.ones(len(part)), np.arange(start, start + len(part))], axis=1)
            writer.write(Events(part.jets, part.topology, part.truth, None, ids.astype(np.uint64)))


def write_markdown(lines: list[str], target: Path, script: str) -> None:
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
