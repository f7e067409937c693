"""Runs commands that meet hostile files."""

import os
import resource
import subprocess
import sys

import pytest

SECONDS, MIB = 30, 2048  # of processor time and of memory, for any file of 1 MB


@pytest.fixture
def bounded(tmp_path):
    """Runs a command in a process of its own: an answer or one line, within the limits; gives code and line."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def call(*arguments):
        command = [sys.executable, "-c", "from pairton.cli import main; main()", *map(str, arguments)]
        with open(tmp_path / "said.txt", "w+") as said:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, preexec_fn=limit)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            lines = said.read().splitlines()
        assert process.returncode in (0, 2), (process.returncode, lines)
        assert len(lines) == 1 or (process.returncode == 0 and not lines), lines
        assert used.ru_maxrss < MIB * 1024
        return process.returncode, lines[0] if lines else ""

    return call
