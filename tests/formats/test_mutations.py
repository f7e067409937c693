"""Damaged files of every format: a clean error or valid events, and a crash of a library stays in its process."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pairton.formats import REGISTRY, detect

SCRIPT = Path(__file__).parent / "mutations.py"  # a process that forks before threads start
OPTIONS = {
    "nanoaod": {"btag": "btagPNetB:0.5"},
    "nanoaod_parquet": {"btag": "btagPNetB:0.5"},
    "physlite": {"btag": "DL1dv01:0.5"},
}
SHORT = 8  # mutants of a format in the quick suite


def helpers(name):
    """The functions with which the tests of a format make its files."""
    spec = importlib.util.spec_from_file_location(f"mutated_{name}", Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small good file of every format."""
    folder = tmp_path_factory.mktemp("good")
    common = helpers("test_formats")
    events = common.some_events(30)
    found = {}
    for name, suffix in (
        ("spanet_hdf5", "h5"),
        ("hyper_hdf5", "h5"),
        ("flat_root", "root"),
        ("parquet", "parquet"),
    ):
        found[name] = common.write(events, folder / f"{name}.{suffix}", name)
    found["topograph"] = helpers("test_formats_topograph").write(folder / "topograph.h5")
    labels = [[4, 3, 1, 2, 5, 6], [0, 1, 2, 3, 0, 0]]
    found["hyper_root"] = common.hyper_root(folder / "hyper.root", labels)
    delphes, nano, lite = (helpers(f"test_formats_{name}") for name in ("delphes", "nanoaod", "physlite"))
    found["delphes"] = delphes.write(folder / "delphes.root", delphes.content())
    found["nanoaod"] = nano.write(folder / "nano.root", nano.columns())
    found["nanoaod_parquet"] = nano.write(folder / "nano.root", nano.columns(), "Parquet")
    found["physlite"] = lite.write(folder / "lite.root", lite.content("."))
    return found


def survey(files, n, seed):
    asked = {"files": {name: str(path) for name, path in files.items()}, "options": OPTIONS, "n": n, "seed": seed}
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def verify(found, n):
    for row in found:
        outcomes = row["outcomes"]
        assert sum(outcomes.values()) == n
        for outcome in ("traceback", "memory"):
            assert not outcomes.get(outcome), [odd for odd in row["odd"] if odd["outcome"] == outcome][:3]
        assert outcomes.get("error")


def test_every_format_has_a_good_file(files):
    assert set(files) == set(REGISTRY)
    for name, path in files.items():
        assert detect(str(path)).name == name


def test_mutated_files_give_a_clean_error_or_valid_events(files):
    found = survey(files, SHORT, seed=4)  # one that has every kind
    assert {kind for row in found for kind in row["kinds"]} == {"flip", "truncate", "type", "huge"}
    verify(found, SHORT)


@pytest.mark.long
def test_a_thousand_mutants_of_every_format(files, capsys):
    found = survey(files, 1000, seed=1)
    with capsys.disabled():
        for row in found:
            print(f"\n{row['format']}: {row['outcomes']}")
            for odd in row["odd"]:
                print(f"  {odd['mutant']} {odd['kind']} {odd['outcome']}: {odd['message'].strip()[-200:]}")
    verify(found, 1000)
