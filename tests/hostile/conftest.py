"""Lets the tests of this folder import the makers of hostile files beside them."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import pairton
from pairton.cli import main

sys.path.insert(0, str(Path(__file__).parent))
collect_ignore = ["fuzz.py"]  # a program of its own, which needs atheris


@pytest.fixture
def refused(capsys):
    """Runs a command that must refuse, and gives its one line."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        error = capsys.readouterr().err
        assert ended.value.code == 2, error
        assert len(error.splitlines()) == 1, error
        return error

    return call


SECONDS, MIB = 30, 2048  # of processor time and of memory, for any file of 1 MB


@pytest.fixture
def bounded(tmp_path):
    """Runs a command in a process of its own: an answer or one line, within the limits; gives code and line."""
    environment = os.environ | {"PYTHONPATH": str(Path(pairton.__file__).parents[1])}

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def call(*arguments):
        command = [sys.executable, "-c", "from pairton.cli import main; main()", *map(str, arguments)]
        with open(tmp_path / "said.txt", "w+") as said:
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=said, preexec_fn=limit
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            lines = said.read().splitlines()
        assert process.returncode in (0, 2), (process.returncode, lines)
        assert len(lines) == 1 or (process.returncode == 0 and not lines), lines
        assert used.ru_maxrss < MIB * 1024
        return process.returncode, lines[0] if lines else ""

    return call
