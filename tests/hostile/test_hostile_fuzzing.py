"""What reads bytes of strangers: a replayed corpus, and the fuzzer of fuzz.py, where atheris is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

import fuzz_targets
from fuzz_targets import TARGETS, corpus, once, seeds


@pytest.mark.parametrize(("target", "content"), [pytest.param(*each, id=each[0]) for each in corpus()])
@pytest.mark.filterwarnings("ignore")
def test_bytes_that_once_broke_something_are_an_answer_or_one_line(target, content):
    once(target, content)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_every_target_has_good_files_that_it_reads(target):
    for content in seeds(target)[:2]:
        if target != "list":  # the files that it names are not there
            TARGETS[target](content)
        once(target, content[: len(content) // 2])


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_the_fuzzer_finds_no_fault(tmp_path, target):
    pytest.importorskip("atheris")
    command = [sys.executable, Path(fuzz_targets.__file__).with_name("fuzz.py"), target, "30"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []  # where it leaves what broke us
