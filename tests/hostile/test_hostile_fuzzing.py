"""The fuzzer of fuzz.py, where atheris is installed: half a minute for each target finds no fault."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pairton

TARGETS = ("onnx", "yaml", "json", "topology", "card", "recipe", "hdf5")


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_the_fuzzer_finds_no_fault(tmp_path, target):
    pytest.importorskip("atheris")
    environment = os.environ | {"PYTHONPATH": str(Path(pairton.__file__).parents[1])}
    command = [sys.executable, Path(__file__).with_name("fuzz.py"), target, "30"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []  # where it leaves what broke us
