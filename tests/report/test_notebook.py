"""The notebooks of the documentation run from top to bottom, and show what they say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebook"

# what a kernel does: run a cell, show the value of its last expression
KERNEL = """
import ast, json, sys
scope = {"__name__": "__main__"}
for k, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] != "code":
        continue
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {k}", "exec"), scope)
    value = eval(compile(ast.Expression(last.value), f"cell {k}", "eval"), scope) if last else None
    rich = value._repr_html_() if hasattr(value, "_repr_html_") else None
    print("SHOWN", k, type(value).__name__, len(rich or ""))
"""


def run(name, folder, *options):
    """What the cells of a notebook print and show, as (type, length of its HTML)."""
    done = subprocess.run(
        [sys.executable, *options, "-c", KERNEL, str(NOTEBOOKS / name)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        env={"MPLBACKEND": "agg", "PATH": "/bin"},
    )
    assert done.returncode == 0, done.stderr
    shown = [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("SHOWN")]
    return done.stdout, [(name, int(length)) for name, length in shown]


@pytest.mark.long
def test_the_notebook_runs(tmp_path):
    said, shown = run("mass_peak.ipynb", tmp_path, "-W", "error", "-W", "ignore:the tagger is unknown")
    assert [name for name, _ in shown][-2:] == ["Display", "Figure"]
    assert shown[-2][1] > 10_000
    assert "inclusive: 0." in said
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_the_notebook_of_the_analysis_grand_challenge_finds_more_tops_than_the_hardest_trijet(sample, tmp_path):
    (tmp_path / "nano.root").symlink_to(sample("nanoaod_cms_ttbar_v12.root"))
    said, shown = run("agc_ttbar.ipynb", tmp_path)
    assert shown[-1][0] == "Figure"
    labelled, ours, theirs = map(int, re.search(r"4j2b: (\d+) labelled .*: (\d+) \(.*, (\d+) \(", said).groups())
    assert labelled == 22
    assert theirs < ours <= labelled


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_short_and_say_nothing_of_this_machine(path):
    text = path.read_text("utf-8")
    assert len(text) < 500_000
    assert str(Path.home()) not in text
    assert str(NOTEBOOKS.parent.parent) not in text
    assert all(cell.get("id") for cell in json.loads(text)["cells"])
