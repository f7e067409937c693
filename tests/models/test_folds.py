"""Models in folds: each event is answered for by the network that has not seen it."""

import json
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from event_files import write_events
from pairton.errors import ConfigError, ModelError, PairtonWarning
from pairton.evaluation.evaluating import evaluate
from pairton.events import Events
from pairton.events.head_specs import HeadSpec
from pairton.events.splits import fold_of
from pairton.models.model import Model, load_model
from pairton.models.storage import by_fold, check_folds, joined_info, read_info, save_model, write_folds
from pairton.reconstruction.assigner import Assigner
from pairton.reconstruction.provenance import result_settings
from pairton.reconstruction.run_settings import RunSettings
from pairton.reconstruction.running import reconstruct, reconstruct_files
from pairton.topology import load_topology

TTBAR = load_topology()
ROOT = Path(__file__).parents[2]


def splitmix(number):
    """Word by word with Python's integers: the fold of one event."""
    x = (0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64
    x = (x + number + 0x9E3779B97F4A7C15) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return (x ^ (x >> 31)) >> 11


def made(numbers, source=7):
    return np.stack([np.full(len(numbers), source, np.uint64), np.asarray(numbers, np.uint64)], axis=1)


# -- the hash ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folds", [2, 3, 5, 100])
def test_folds_by_hand(folds):
    numbers = [0, 1, 2, 12_345, 2**32, 2**63, 2**64 - 1]
    assert fold_of(made(numbers), folds).tolist() == [splitmix(n) * folds >> 53 for n in numbers]


def test_folds_are_even_and_independent_of_splits_and_sources(decays):
    ids = made(np.arange(30_000))
    fold = fold_of(ids, 3)
    assert np.bincount(fold) == pytest.approx(np.full(3, 10_000), abs=300)
    assert (fold_of(made(np.arange(30_000), source=8), 3) == fold).all()  # copied to another file
    events = decays(3000).replace(ids=ids[:3000])
    for name in ("train", "validation", "test"):
        inside = fold[:3000][events.in_split(name)]
        assert np.bincount(inside, minlength=3) / len(inside) == pytest.approx(np.full(3, 1 / 3), abs=0.11)


def test_the_header_for_cpp_is_the_same_function(tmp_path):
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    (tmp_path / "main.cpp").write_text(
        '#include "fold.hpp"\n#include <iostream>\n'
        "int main() { std::uint64_t n; int k; while (std::cin >> n >> k) std::cout << fold_of(n, k) << '\\n'; }\n"
    )
    program = str(tmp_path / "fold")
    build = [compiler, "-std=c++17", "-I", str(ROOT / "docs" / "cpp"), str(tmp_path / "main.cpp"), "-o", program]
    subprocess.run(build, check=True)
    asked = [(n, k) for n in (0, 1, 77, 2**40, 2**64 - 1) for k in (2, 5)]
    text = "\n".join(f"{n} {k}" for n, k in asked)
    said = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout.split()
    assert list(map(int, said)) == [int(fold_of(made([n]), k)[0]) for n, k in asked]


# -- stub networks that remember ---------------------------------------------------------------------------


@dataclass
class Remembering:
    """An engine that knows which events it was trained on, by their hardest jet, and refuses to see one again."""

    masses: object  # a model that answers
    seen: set = field(default_factory=set)
    asked: list = field(default_factory=list)
    at_once: int = 1

    def learn(self, events):
        self.seen |= {round(float(max(pt)), 3) for pt in events.jets.pt.to_list()}

    def __call__(self, nodes, tokens):
        hardest = [round(float(value), 3) for value in nodes.values["jet"][:, :, 0].max(axis=1)]
        assert not self.seen.intersection(hardest), "an event meets a network that was trained on it"
        self.asked += hardest
        return self.masses.predict(nodes, tokens)


def in_folds(mass_model_type, events, folds, temperatures=()):
    """A model of stubs; fold k has learned the events of all other folds."""
    members = []
    for k in range(folds):
        masses = mass_model_type()
        engine = Remembering(masses)
        engine.learn(events[fold_of(events.ids, folds) != k])
        sources = [f"{source:016x}" for source in np.unique(events.ids[:, 0]).tolist()]
        data = {"fold": k, "folds": folds, "sources": sources}
        outputs = {**masses.info.outputs, "triplets": ("triplet_type", "node", "node", "node")}
        info = replace(masses.info, data=data, outputs=outputs, metrics={"e_event": 0.5 + k / 10})
        info = replace(info, temperatures=(temperatures[k],) if temperatures else ())
        members.append(Model(f"fold{k}", info, engine))
    info = joined_info(Path("stubs"), [member.info for member in members])
    return Model("stubs", info, members[0].engine, tuple(members))


@pytest.fixture
def events(decays):
    events = decays(300, extra=2, floor=20.0, labelled=0.97)
    return Events(events.jets, truth=events.truth, ids=made(np.arange(1000, 1300)))


def test_folds_with_different_classes_are_refused(mass_model_type):
    info = mass_model_type().info
    heads = [{"sort": HeadSpec("class", columns=("c",), classes=classes)} for classes in (2, 3)]
    infos = [replace(info, data={"fold": k, "folds": 2}, heads=heads[k]) for k in range(2)]
    with pytest.raises(ModelError, match="fold1: has another number of classes than fold 0"):
        joined_info(Path("stubs"), infos)


@pytest.mark.parametrize("folds", [2, 3])
def test_no_event_meets_a_network_that_was_trained_on_it(mass_model_type, mass_model, events, folds):
    model = in_folds(mass_model_type, events, folds)
    found = reconstruct(events, model)
    answered = (found.assignment >= 0).all(axis=1)
    assert sum(len(member.engine.asked) for member in model.folds) == int(answered.sum()) > 250
    assert all(member.engine.asked for member in model.folds)
    assert found.outputs["model_fold"].tolist() == fold_of(events.ids, folds).tolist()
    alone = reconstruct(events, mass_model)  # the stubs answer as it does
    assert (found.assignment == alone.assignment).all()
    assert found.event_probability == pytest.approx(alone.event_probability, nan_ok=True)
    wrong = replace(model, folds=model.folds[::-1])
    with pytest.raises(AssertionError, match="an event meets a network"):
        reconstruct(events, wrong)


def test_an_evaluation_asks_the_same_and_does_not_warn(mass_model_type, mass_model, events):
    model = in_folds(mass_model_type, events, 2)
    result = evaluate(events, model).to_dict()  # a warning would be an error
    assert result["method"]["folds"] == 2
    assert result["efficiency"] == evaluate(events, mass_model).to_dict()["efficiency"]
    single = model.folds[1]  # alone it meets the events of fold 0, in its training split
    single.engine.seen.clear()
    count = int((events.in_split("train") & (fold_of(events.ids, 2) == 0)).sum())
    with pytest.warns(PairtonWarning, match=f"fold1 was trained on up to {count} of these 300 events"):
        evaluate(events, single)
    evaluate(events[fold_of(events.ids, 2) == 1], single)


def test_each_fold_has_temperatures_of_its_own(mass_model_type, events):
    found = reconstruct(events, in_folds(mass_model_type, events, 2, (1.0, 4.0)))
    plain = reconstruct(events, in_folds(mass_model_type, events, 2))
    fold = np.where(np.isfinite(plain.event_probability), fold_of(events.ids, 2), -1)
    first, second = fold == 0, fold == 1
    assert found.event_probability[first] == pytest.approx(plain.event_probability[first])
    assert found.event_probability[second].mean() < 0.8 * plain.event_probability[second].mean()
    settings = result_settings(Assigner(in_folds(mass_model_type, events, 2, (1.0, 4.0)), RunSettings()))
    assert settings["temperatures"] == [[1.0], [4.0]]
    assert [member["name"] for member in settings["model"]["folds"]] == ["fold0", "fold1"]


def test_data_is_divided_by_the_same_rule(mass_model_type, events):
    """Other events than those of the training: the number alone decides, whatever the file and the order."""
    model = in_folds(mass_model_type, events, 2)
    for member in model.folds:
        member.engine.seen.clear()
    data = Events(events.jets, ids=made(np.arange(300), source=99))
    whole = reconstruct(data, model).outputs["model_fold"]
    assert whole.tolist() == fold_of(data.ids, 2).tolist()
    assert reconstruct(data[::-1], model).outputs["model_fold"].tolist() == whole[::-1].tolist()
    assert reconstruct(events.jets, model).outputs["model_fold"].tolist() == whole.tolist()  # no ids: rows


def test_the_model_as_a_whole_has_no_network(mass_model_type, events):
    model = in_folds(mass_model_type, events, 2)
    nodes = next(iter([member for member, _ in by_fold(model, events.ids)]))
    assert nodes is model.folds[0]
    with pytest.raises(ModelError, match="its network depends on the fold of the event"):
        model.predict(None)
    assert model.info.metrics == {"e_event": pytest.approx(0.55)}
    with pytest.raises(ConfigError, match="folds is 1, but must be from 2"):
        check_folds(1)


# -- on disk -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory, small_network):
    pytest.importorskip("torch")
    from pairton.export import export_model

    tmp_path = tmp_path_factory.mktemp("folds")
    for k in range(2):
        network, info = small_network(TTBAR, seed=k, tokens=False)
        info = replace(info, decoding="exact", data={"fold": k, "folds": 2})
        (tmp_path / "two" / f"fold{k}").mkdir(parents=True)
        weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
        save_model(tmp_path / "two" / f"fold{k}", weights, info)
        export_model(tmp_path / "two" / f"fold{k}", tmp_path / "two" / f"fold{k}" / "model.onnx")
    write_folds(tmp_path / "two", 2)
    return tmp_path / "two"


@pytest.fixture
def folder(tmp_path, exported):
    """A folder with two networks, of other weights each."""
    shutil.copytree(exported, tmp_path / "two")
    return tmp_path / "two"


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_a_folder_of_folds_is_a_model(folder, decays, tmp_path, engine):
    events = decays(60, extra=1, floor=25.0)
    events = Events(events.jets, ids=made(np.arange(60)))
    model = load_model(folder, engine=engine, threads=1)
    assert (model.name, len(model.folds)) == ("two", 2)
    found = reconstruct(events, model)
    for k in range(2):
        mine = fold_of(events.ids, 2) == k
        alone = reconstruct(events[mine], load_model(folder / f"fold{k}", engine=engine, threads=1))
        assert (found.assignment[mine] == alone.assignment).all()
        assert found.event_probability[mine] == pytest.approx(alone.event_probability, nan_ok=True, rel=1e-5)
    other = reconstruct(events, load_model(folder / "fold0", engine=engine, threads=1))
    assert not np.array_equal(other.event_probability, found.event_probability, equal_nan=True)
    write_events(events, tmp_path / "in.h5")
    reconstruct_files([str(tmp_path / "in.h5")], str(tmp_path / "out.parquet"), model)
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "out.parquet")
    assert table["model_fold"].to_pylist() == fold_of(events.ids, 2).tolist()


def test_commands_show_and_export_folds(folder, command, monkeypatch, capsys, decays, tmp_path):
    monkeypatch.undo()  # the model of masses that `command` brings
    assert command("list", "models", folder) == 0
    assert "folds       2, by a hash of the event number" in capsys.readouterr().out
    assert command("list", "models", folder / "fold1") == 0
    assert "folds       2; this network is for events of fold 1" in capsys.readouterr().out
    assert command("export", folder, "-o", tmp_path / "net.onnx") == 0
    out = capsys.readouterr().out
    assert "net_fold0.onnx: one step" in out
    assert "for events of fold 1 of 2" in out
    assert not (tmp_path / "net.onnx").exists()
    import onnx

    for k in range(2):
        said = {p.key: p.value for p in onnx.load(tmp_path / f"net_fold{k}.onnx").metadata_props}["pairton"]
        assert (json.loads(said)["data"]["fold"], json.loads(said)["data"]["folds"]) == (k, 2)
    assert command("export", folder, "-o", tmp_path / "net.onnx") == 2  # refused before the work
    assert "net_fold0.onnx" in capsys.readouterr().err  # exists
    events = decays(20, extra=1)
    write_events(events, tmp_path / "in.h5")
    assert command("reconstruct", tmp_path / "in.h5", "-o", tmp_path / "out.h5", "--model", folder) == 0
    capsys.readouterr()
    assert command("inspect", tmp_path / "out.h5") == 0
    assert "folds: [" in capsys.readouterr().out


def test_what_is_no_model_in_folds_is_said(folder):
    with pytest.raises(ModelError, match=r"has one network per fold of events: give one of them, such as .*fold0"):
        read_info(folder)
    swapped = folder / "fold0"
    swapped.rename(folder / "aside")
    with pytest.raises(ModelError, match="has 1 of 2 folds: continue the training with --resume"):
        load_model(folder)
    shutil.copytree(folder / "fold1", swapped)
    with pytest.raises(ModelError, match="trained for fold 1 of 2, but is in the place of fold 0 of 2"):
        load_model(folder)
    broken = {'{"folds": 1}': "folds is 1", "{": "folds.json"}
    for raw, said in broken.items():
        (folder / "folds.json").write_text(raw)
        with pytest.raises(ModelError, match=said):
            load_model(folder)
