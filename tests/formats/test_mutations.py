"""Mutants of a small good file of every format, and of a model."""

import importlib.util
from pathlib import Path

import pytest

from event_files import write_events
from mutations import SHARES, survey
from pairton.formats import REGISTRY, detect
from root_files import write_tree

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
def files(tmp_path_factory, model_folder):
    """A small good file of every format."""
    folder = tmp_path_factory.mktemp("good")
    common = helpers("test_formats")
    events = common.some_events(30)
    found = {"onnx": model_folder / "model.onnx"}
    for name, file in common.WRITERS.items():
        found[name] = write_events(events, folder / f"{name}{Path(file).suffix}", name)
    found["topograph"] = helpers("test_formats_topograph").write(folder / "topograph.h5")
    found["authors"] = helpers("test_authors_hdf5").write(folder / "authors.h5")
    labels = [[4, 3, 1, 2, 5, 6], [0, 1, 2, 3, 0, 0]]
    found["hyper_root"] = common.hyper_root(folder / "hyper.root", labels)
    delphes, nano, lite = (helpers(f"test_formats_{name}") for name in ("delphes", "nanoaod", "physlite"))
    found["delphes"] = delphes.write(folder / "delphes.root", delphes.content())
    found["nanoaod"] = nano.write(folder / "nano.root", nano.columns())
    found["nanoaod_parquet"] = nano.write(folder / "nano.root", nano.columns(), "Parquet")
    edm4hep, flat = (helpers(f"test_formats_{name}") for name in ("edm4hep", "flat"))
    found["edm4hep"] = edm4hep.write(folder / "edm4hep.root")
    found["topcptoolkit"] = write_tree(folder / "topcp.root", "reco", flat.topcptoolkit())
    found["physlite"] = lite.write(folder / "lite.root", lite.content("."))
    return found


@pytest.fixture(autouse=True)
def workers_find_the_mutants(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "makers"))


def verify(found, n):
    for row in found:
        outcomes = row["outcomes"]
        assert sum(outcomes.values()) == n
        for outcome in ("traceback", "memory"):
            assert not outcomes.get(outcome), [odd for odd in row["odd"] if odd["outcome"] == outcome][:3]
        assert outcomes.get("error")


def test_every_format_has_a_good_file(files):
    assert set(files) == {*REGISTRY, "onnx"}
    for name in REGISTRY:
        assert detect(str(files[name])).name == name


def test_mutated_files_give_a_clean_error_or_valid_events(files):
    found = survey(files, OPTIONS, SHORT, seed=4)  # one that has every kind
    assert found[0]["kinds"] == set(SHARES)
    verify(found, SHORT)


@pytest.mark.long
def test_a_thousand_mutants_of_every_format(files, capsys):
    found = survey(files, OPTIONS, 1000, seed=1)
    with capsys.disabled():
        for row in found:
            print(f"\n{row['format']}: {row['outcomes']}")
            for odd in row["odd"]:
                print(f"  {odd['mutant']} {odd['kind']} {odd['outcome']}: {odd['message'].strip()[-200:]}")
    verify(found, 1000)
