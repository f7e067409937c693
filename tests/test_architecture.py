"""The package is a house of rooms: imports go down, never up or in circles, and a file name appears once."""

import ast
from collections import Counter
from pathlib import Path

import pairton

ROOT = Path(pairton.__file__).parent
ROOMS = (  # from the ground up
    ("errors", "_version", "_common"),
    ("topology",),
    ("events",),
    ("formats",),
    ("decoding",),
    ("kinematics",),
    ("models",),
    ("spanet",),
    ("reconstruction",),
    ("measuring",),
    ("evaluation",),
    ("report",),
    ("network",),
    ("export",),
    ("recipes",),
    ("training",),
    ("generator",),
    ("making",),
    ("cli", "__main__"),
)
FLOOR = {name: k for k, names in enumerate(ROOMS) for name in names}
ALLOWED = {  # (who, whom): all inside functions, when a user asks for it
    ("reconstruction.result", "report.page"): "reco.display() draws in a notebook",
    ("reconstruction.result", "reconstruction.writers"): "reco.save()",
    ("topology.reading", "spanet.spanet_tree"): "load_topology reads SPANet's event files too",
    ("formats", "formats.isolation"): "isolate=True opens the file by the same function in another process",
}


def module_name(path):
    """formats.base for src/pairton/formats/base.py, formats for the __init__ beside it."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


FILES = {module_name(path): path for path in ROOT.rglob("*.py")}


def imports(path):
    """Modules of ours that a file imports at any depth, but for type checking alone."""
    tree = ast.parse(path.read_text("utf-8"))
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    for_types = {part for node in guarded for child in node.body for part in ast.walk(child)}
    found = set()
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name.removeprefix("pairton.") in FILES else node.module for name in whole)
    ours = {name.removeprefix("pairton.") for name in found if name.startswith("pairton.")}
    return ours & FILES.keys()


GRAPH = {name: imports(path) - {name} for name, path in FILES.items()}
EDGES = {(name, other) for name, others in GRAPH.items() for other in others} - ALLOWED.keys()


def test_every_room_has_a_floor():
    assert {name.partition(".")[0] for name in FILES} - {"", *FLOOR} == set()


def test_no_import_goes_up():
    def floor(name):
        return FLOOR[name.partition(".")[0]]

    assert [edge for edge in sorted(EDGES) if edge[0] and floor(edge[1]) > floor(edge[0])] == []


def test_no_imports_in_circles():
    above = {name: {other for who, other in EDGES if who == name} for name in FILES}
    while leaves := [name for name, others in above.items() if not others]:
        above = {name: others - set(leaves) for name, others in above.items() if name not in leaves}
    assert above == {}  # what remains imports one another


def test_exceptions_are_needed():
    assert [edge for edge in ALLOWED if edge[1] not in GRAPH[edge[0]]] == []


def test_a_file_name_appears_once():
    names = Counter(path.name for path in FILES.values() if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []
