"""What a newcomer meets first: the bare command, a missing argument, a terminal, a pipe."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest
from rich.console import Console

from pairton.cli import SECTIONS, VERBS, main, progress

PAIRTON = [sys.executable, "-m", "pairton"]


def refusal(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_the_bare_command_shows_every_verb_in_a_section_and_how_to_begin(capsys):
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(VERBS)
    said = refusal(capsys)
    for title, names in SECTIONS.items():
        section = said.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  (\w+)  ", section, re.M) == list(names)
    assert "To begin:\n    pairton reconstruct " in said


@pytest.mark.parametrize(
    "words",
    [["evaluate"], ["train", "cpu"], ["generate"], ["inspect"], ["export"], ["measure", "tags"]],
    ids=" ".join,
)
def test_where_something_is_missing_the_message_has_an_example(capsys, words):
    (example,) = re.findall(r"^Error: Missing .* For example: pairton (.+)$", refusal(capsys, *words), re.M)
    assert example.split()[: len(words)] == words or words == ["train", "cpu"]


def through_a_terminal(*words, **environment):
    """What a command shows on a terminal."""
    ours, its = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120"} | environment
    environment = {name: value for name, value in environment.items() if value is not None}
    with subprocess.Popen([*PAIRTON, *words], stdout=its, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(its)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    assert process.returncode == 0
    return b"".join(parts).decode()


COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-9]|38;5;\d+)m")


def test_a_table_has_no_colours_with_no_color_and_no_escapes_in_a_pipe():
    words = ("reconstruct",)
    assert not COLOUR.search(through_a_terminal(*words, NO_COLOR="1"))
    piped = subprocess.run([*PAIRTON, *words], capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stdout + piped.stderr
    assert "2137 events" in piped.stdout


def test_the_bar_shows_rate_and_time_left(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0)
    shown = io.StringIO()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=shown, force_terminal=True, width=100))
    assert list(progress.progress(range(30), 30, "counting")) == list(range(30))
    assert re.search(r"counting .*30/30.*[\d,]+/s.*\d:\d\d:\d\d", shown.getvalue())
