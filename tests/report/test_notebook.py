"""The notebook of the documentation runs from top to bottom, and shows what it says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook" / "mass_peak.ipynb"

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


@pytest.mark.long
def test_the_notebook_runs(tmp_path):
    command = [sys.executable, "-W", "error", "-c", KERNEL, str(NOTEBOOK)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
        env={"MPLBACKEND": "agg", "PATH": "/bin"},
    )
    assert done.returncode == 0, done.stderr
    shown = [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("SHOWN")]
    assert [name for name, _ in shown][-2:] == ["Display", "Figure"]
    assert int(shown[-2][1]) > 10_000
    assert "inclusive: 0." in done.stdout
    assert not list(tmp_path.iterdir())


def test_the_notebook_is_short_and_says_nothing_of_this_machine():
    text = NOTEBOOK.read_text("utf-8")
    assert len(text) < 500_000
    assert str(Path.home()) not in text
    assert str(NOTEBOOK.parent.parent.parent) not in text
    assert all(cell.get("id") for cell in json.loads(text)["cells"])
