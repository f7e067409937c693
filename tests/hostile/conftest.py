"""Lets the tests of this folder import the makers of hostile files beside them."""

import sys
from pathlib import Path

import pytest

from pairton.cli import main

sys.path.insert(0, str(Path(__file__).parent))


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
