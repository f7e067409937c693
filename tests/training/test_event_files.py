"""Training on SPANet's files as its event file says: inputs, classes and numbers, without a line of a recipe."""

import h5py
import numpy as np
import pytest
import yaml

import pairton
from event_files import write_events
from pairton.cli import main
from pairton.errors import TopologyError
from pairton.models.storage import read_info

pytest.importorskip("torch")
pytest.importorskip("lightning.fabric")

from pairton.training import load_recipe, parse_recipe
from pairton.training.event_files import HEAD_WEIGHT
from random_objects import RECIPE

EVENT = {
    "INPUTS": {
        "SEQUENTIAL": {
            "Source": {
                **dict.fromkeys(("mass", "pt"), "log_normalize"),
                **dict.fromkeys(("eta", "phi"), "normalize"),
                "btag": "none",
                "width": "log_normalize",
            }
        },
        "GLOBAL": None,
    },
    "EVENT": {"t1": ["q1", "q2", "b"], "t2": ["q1", "q2", "b"]},
    "PERMUTATIONS": {"EVENT": [["t1", "t2"]], "t1": [["q1", "q2"]], "t2": [["q1", "q2"]]},
    "REGRESSIONS": {
        "EVENT": [["ht", "laplacian"]],
        "t1": {"PARTICLE": ["mass"], "b": ["energy"]},
        "t2": {"PARTICLE": ["mass"], "b": ["energy"]},
    },
    "CLASSIFICATIONS": {"EVENT": ["signal"]},
}


@pytest.fixture
def event_file(tmp_path):
    path = tmp_path / "event.yaml"
    path.write_text(yaml.safe_dump(EVENT, sort_keys=False))
    return path


def test_a_recipe_takes_over_what_the_event_file_says(event_file):
    recipe = load_recipe("cpu", event_file)
    assert recipe.inputs.to_dict()["jet"][0] == "btag"
    assert recipe.inputs["jet"][1].transform == "log_normalize"
    assert set(recipe.heads) == {"ht", "t_mass", "energy", "signal"}  # results have a mass of each top already
    assert set(recipe.heads.values()) == {HEAD_WEIGHT}
    assert (recipe.specs["ht"].loss, recipe.specs["ht"].columns) == ("laplacian", ("EVENT/ht",))
    assert (recipe.specs["t_mass"].of, recipe.specs["t_mass"].columns) == (
        "t",
        ("t1/PARTICLE/mass", "t2/PARTICLE/mass"),
    )
    assert (recipe.specs["energy"].of, recipe.specs["energy"].columns) == ("t.b", ("t1/b/energy", "t2/b/energy"))
    assert recipe.specs["signal"].kind == "class"


def test_a_recipe_may_change_it(event_file):
    raw = {"topology": str(event_file), "optimiser": {"steps": 1}, "inputs": {"jet": []}}
    recipe = parse_recipe(raw | {"heads": {"signal": {"weight": 2, "classes": 4}, "ht": {"loss": "gaussian"}}})
    assert recipe.inputs.fields("jet") == ()
    assert (recipe.heads["signal"], recipe.specs["signal"].classes) == (2, 4)
    assert recipe.specs["signal"].columns == ("EVENT/signal",)
    assert recipe.specs["ht"].loss == "gaussian"


def test_interchangeable_particles_need_the_same(event_file):
    raw = dict(EVENT, REGRESSIONS={"t1": {"PARTICLE": ["mass"]}})
    event_file.write_text(yaml.safe_dump(raw, sort_keys=False))
    with pytest.raises(TopologyError, match="t1/PARTICLE/mass is asked for, but t2/PARTICLE/mass is not"):
        load_recipe("cpu", event_file)


def test_from_files_of_spanet_to_answers(decays, event_file, tmp_path, capsys):
    events = decays(150)
    data = tmp_path / "spanet.h5"
    write_events(events, data)
    rng = np.random.default_rng(0)
    with h5py.File(data, "r+") as file:
        del file.attrs["pairton"], file["METADATA"]
        mask = file["INPUTS/Source/MASK"][:]
        file["INPUTS/Source/width"] = (rng.exponential(0.1, mask.shape) * mask).astype(np.float32)
        file["CLASSIFICATIONS/EVENT/signal"] = rng.integers(-1, 3, 150)
        file["REGRESSIONS/EVENT/ht"] = np.where(rng.random(150) < 0.2, np.nan, 500.0).astype(np.float32)
        for top in ("t1", "t2"):
            file[f"REGRESSIONS/{top}/PARTICLE/mass"] = rng.normal(172, 10, 150).astype(np.float32)
            file[f"REGRESSIONS/{top}/b/energy"] = rng.normal(80, 10, 150).astype(np.float32)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(RECIPE))
    model = tmp_path / "model"

    def run(*arguments):
        with pytest.raises(SystemExit) as done:
            main([str(argument) for argument in arguments])
        assert done.value.code in (0, None), capsys.readouterr()

    run("train", tmp_path / "small.yaml", "--topology", event_file, "--data", data, "--out", model)
    info = read_info(model)
    width = info.inputs["jet"][1]
    assert (width.field, width.transform) == ("width", "log")
    assert width.scale == pytest.approx(0.08, abs=0.03)  # of log(1 + x), measured
    assert info.heads["signal"].classes == 3
    assert info.heads["t_mass"].offset == pytest.approx(172, abs=3)
    run("reconstruct", data, "--model", model, "-o", tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        names = {"signal_0", "signal_1", "signal_2", "ht", "t1_t_mass", "t2_t_mass", "t1_b_energy", "t2_b_energy"}
        assert names <= set(file)
    run("evaluate", data, "--model", model, "--topology", event_file)
    said = capsys.readouterr().out
    assert "signal" in said
    assert "ROC area" in said
    assert len(pairton.read(data, topology=event_file)) == 150
