"""Heads that a recipe declares: classes and numbers of events, particles and products, from columns to columns."""

import json
from dataclasses import replace

import awkward as ak
import numpy as np
import onnxruntime
import pytest

import pairton
from event_files import write_events
from pairton.cli import main
from pairton.errors import ConfigError, TrainingError
from pairton.evaluation.metrics.numbers import Labelled, judge_class, judge_number
from pairton.events.head_specs import HeadSpec, labels_of, parse_head, places_of
from pairton.events.nodes import Nodes
from pairton.events.vectors import cartesian
from pairton.reconstruction.result import momenta
from pairton.reconstruction.result_columns import head_columns, head_values, reordered
from pairton.topology import load_topology

torch = pytest.importorskip("torch")
pytest.importorskip("lightning.fabric")

from pairton.network import Network, NetworkConfig  # noqa: E402
from pairton.network.task_heads import TaskHead, place_values  # noqa: E402
from pairton.training import parse_recipe, train  # noqa: E402
from pairton.training.augmentation import Augmentation, AugmentationConfig  # noqa: E402
from pairton.training.batch import make_batch  # noqa: E402
from pairton.training.losses import Examples, HeadLoss  # noqa: E402
from random_objects import TRIANGLES  # noqa: E402

TTBAR = load_topology("ttbar_allhad")


# -- what may be declared ----------------------------------------------------------------------------------


def test_places():
    assert [place.name for place in places_of(TTBAR, "event")] == [""]
    assert [place.slots for place in places_of(TTBAR, "t")] == [(0, 1, 2), (3, 4, 5)]
    assert [place.name for place in places_of(TTBAR, "W.q")] == ["t1.W.q1", "t1.W.q2", "t2.W.q1", "t2.W.q2"]
    assert [place.slots for place in places_of(TTBAR, "t.b")] == [(2,), (5,)]


def test_columns_of_labels():
    def columns(name, **raw):
        return parse_head(name, {"kind": "class", **raw}, TTBAR, "heads")[0].columns

    assert columns("signal") == ("signal",)
    assert columns("signal", column="is_signal") == ("is_signal",)
    assert columns("charge", of="t") == ("t1_charge", "t2_charge")
    assert columns("charge", of="W", column="{particle}.q") == ("t1_W.q", "t2_W.q")
    assert columns("charge", of="t", column=["plus", "minus"]) == ("plus", "minus")


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("x", {"kind": "classes"}, "but must be one of class, regression; did you mean 'class'?"),
        ("x", {"of": "t"}, "lacks kind"),
        ("x", {"kind": "class", "of": "H"}, "of is 'H', but must be one of event, W, t, t.W.q, t.b"),
        ("x", {"kind": "class", "of": "b"}, "of is 'b', but must be one of event"),
        ("x", {"kind": "class", "classes": 1}, "classes is 1, but must be a whole number at least 2"),
        ("x", {"kind": "class", "weight": 0}, "weight is 0, but must be a number above 0"),
        ("x", {"kind": "class", "of": "t", "column": "c"}, "must contain {particle}, or be a list of 2 names"),
        ("x", {"kind": "class", "of": "t", "column": ["c"]}, "read 1 columns, but need one for each of t1, t2"),
        ("x", {"kind": "regression", "loss": "huber"}, "loss is 'huber'"),
        ("x", {"kind": "regression", "scale": 0.0}, "scale is 0.0, but must be a number above 0"),
        ("x", {"kind": "regression", "colum": "c"}, "has no setting 'colum'; did you mean 'column'?"),
        ("mass", {"kind": "regression", "of": "t"}, "results already have a column t1_mass: rename the head"),
        ("W_q1_jet", {"kind": "class", "of": "t"}, "results already have a column t1_W_q1_jet"),
        ("status", {"kind": "class"}, "results already have a column status"),
        ("n_jets", {"kind": "regression"}, "results already have a column n_jets"),
        ("weight", {"kind": "regression"}, "results already have a column weight"),
        ("n_btags", {"kind": "regression"}, "results already have a column n_btags"),
        ("complete_probability", {"kind": "regression"}, "results already have a column complete_probability"),
        ("tt_mass", {"kind": "regression"}, "results already have a column tt_mass"),
        ("model_fold", {"kind": "class"}, "results already have a column model_fold"),
        ("status", 1.0, "results already have a column status"),  # a registered head
        ("patterns", 1.0, "patterns is an output of the network already"),
        ("two words", {"kind": "class"}, "may only have letters, digits and _"),
        ("edges", {"kind": "class"}, "edges is an output of the network already"),
        ("type", {"kind": "class"}, "type is a name that torch needs for itself: rename the head"),
        ("training", {"kind": "class"}, "training is a name that torch needs for itself"),
        ("event_likelihood", {"kind": "class"}, "event_likelihood is the name of a loss or an efficiency"),
        ("loss", {"kind": "class"}, "loss is the name of a loss or an efficiency: rename the head"),
        ("e_event", {"kind": "class"}, "e_event is the name of a loss or an efficiency"),
    ],
)
def test_mistakes_are_one_line(name, raw, said):
    with pytest.raises(ConfigError) as error:
        parse_recipe({"topology": "ttbar_allhad", "optimiser": {"steps": 1}, "heads": {name: raw}})
    assert said in str(error.value)
    assert f"heads.{name}" in str(error.value)


@pytest.mark.parametrize("name", ["n_jets", "status", "event_probability"])
def test_a_model_with_a_head_of_that_name_is_not_run(name, decays, mass_model, monkeypatch):
    info = replace(mass_model.info, heads={name: HeadSpec("regression", columns=(name,))})
    monkeypatch.setattr(type(mass_model), "info", info)
    with pytest.raises(ConfigError, match=f"results already have a column {name}: rename the head"):
        pairton.reconstruct(decays(3), mass_model)


def test_two_heads_do_not_share_a_column():
    heads = {"x": {"kind": "class", "classes": 3}, "x_2": {"kind": "regression"}}
    with pytest.raises(ConfigError, match=r"heads\.x_2: .*heads\.x already have a column x_2"):
        parse_recipe({"topology": "ttbar_allhad", "optimiser": {"steps": 1}, "heads": heads})


def test_a_recipe_is_read_back():
    heads = {
        "signal": {"kind": "class", "classes": 3, "weight": 0.5},
        "nu_px": {"kind": "regression", "loss": "laplacian"},
    }
    recipe = parse_recipe({"topology": "ttbar_allhad", "optimiser": {"steps": 1}, "heads": heads})
    assert recipe.heads == {"signal": 0.5, "nu_px": 1.0}
    assert recipe.specs["nu_px"].component == "px"
    assert recipe.specs["nu_px"].needed_columns == ("nu_px", "nu_py")
    assert parse_recipe(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_a_column_is_one_component():
    """Labels are rotated once per column: two heads cannot disagree on how."""
    raw = {"topology": "ttbar_allhad", "optimiser": {"steps": 1}}
    heads = {"nu_px": {"kind": "regression"}, "nu_x": {"kind": "regression", "column": "nu_px"}}
    with pytest.raises(ConfigError, match=r"heads\.nu_px and heads\.nu_x .* column nu_px, .* px and none"):
        parse_recipe({**raw, "heads": heads})
    heads["nu_x"]["component"] = "px"
    assert parse_recipe({**raw, "heads": heads}).specs["nu_x"].component == "px"


def test_a_symmetric_network_is_not_asked_for_components():
    raw = {"topology": "ttbar_allhad", "optimiser": {"steps": 1}, "network": {"architecture": "symmetric"}}
    with pytest.warns(pairton.errors.PairtonWarning, match=r"heads\.nu_pz learns no more than a constant: pz"):
        parse_recipe({**raw, "heads": {"nu_pz": {"kind": "regression"}}})
    parse_recipe({**raw, "heads": {"nu_pt": {"kind": "regression"}}})  # does not change: no warning


def test_what_is_measured():
    number = HeadSpec("regression", columns=("m",)).resolved("m", {"m": np.array([1.0, np.nan, 3.0])})
    assert (number.offset, number.scale) == (2.0, 1.0)
    absolute = HeadSpec("regression", columns=("m",), loss="laplacian")
    absolute = absolute.resolved("m", {"m": np.array([1.0, 2.0, 9.0, np.nan])})
    assert absolute.offset == 2.0
    assert absolute.scale == pytest.approx(8 / 3)
    assert HeadSpec("class", columns=("c",)).resolved("c", {"c": np.array([0, -1, 4])}).classes == 5
    assert HeadSpec("class", columns=("c",), classes=9).resolved("c", {"c": np.array([0, 4])}).classes == 9
    with pytest.raises(TrainingError, match=r"heads\.c has no label"):
        HeadSpec("class", columns=("c",)).resolved("c", {"c": np.array([-1, -1])})
    with pytest.raises(TrainingError, match=r"heads\.c has the label -2, but classes are whole numbers from 0"):
        HeadSpec("class", columns=("c",)).resolved("c", {"c": np.array([0, 1, -2])})
    with pytest.raises(TrainingError, match=r"heads\.c has the label 0\.5, .* set kind: regression"):
        HeadSpec("class", columns=("c",), classes=2).resolved("c", {"c": np.array([0, 1, 0.5, np.nan])})
    with pytest.raises(TrainingError, match=r"only the class 1 in the training events"):  # charges of +-1
        HeadSpec("class", of="t", columns=("c", "d")).resolved("t", {"c": np.ones(3), "d": -np.ones(3)})
    with pytest.raises(TrainingError, match="has the class 4, but the 3 classes are 0 to 2"):
        labels_of(HeadSpec("class", columns=("c",), classes=3), {"c": np.array([4])}, TTBAR, np.zeros((1, 6), int))


# -- losses ------------------------------------------------------------------------------------------------

TRUTH = np.array([[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, -1], [0, 1, 2, 3, 4, 5]])


def loss_of(spec, output, columns, truth=TRUTH):
    target = {name: torch.as_tensor(array) for name, array in labels_of(spec, columns, TTBAR, truth).items()}
    head = TaskHead(spec, TTBAR, 4)
    return head.loss(torch.as_tensor(output, dtype=torch.float32), target).tolist(), int(target["counted"].sum())


def test_losses_by_hand_leave_out_what_is_missing():
    logits = [[0.0, 0.0], [5.0, 0.0], [0.0, 2.0]]
    found, counted = loss_of(HeadSpec("class", columns=("c",), classes=2), logits, {"c": np.array([1, -1, 1])})
    assert found == pytest.approx([np.log(2), 0, np.log(1 + np.exp(-2))], abs=1e-6)
    assert counted == 2
    for loss, expected in (("gaussian", [4, 0, 1]), ("laplacian", [2, 0, 1])):
        spec = HeadSpec("regression", columns=("m",), loss=loss, offset=1.0, scale=5.0)
        found, counted = loss_of(spec, [20.0, 7.0, 5.0], {"m": np.array([10.0, np.nan, 10.0])})
        assert found == pytest.approx(expected, abs=1e-6)
        assert counted == 2
    spec = HeadSpec("regression", columns=("m",), loss="log_gaussian", offset=0.0, scale=2.0)
    found, _ = loss_of(spec, [2 * np.sinh(3.0), 0.0, 0.0], {"m": np.array([2 * np.sinh(1.0), np.nan, 0.0])})
    assert found == pytest.approx([1, 0, 0], abs=1e-5)


def test_a_particle_is_the_mean_over_its_pairs():
    rng = np.random.default_rng(0)
    output = rng.normal(size=(3, 1, 6, 6)).astype(np.float32)
    output += output.transpose(0, 1, 3, 2)
    spec = HeadSpec("regression", of="t", columns=("a", "b"), offset=0.0, scale=1.0)
    labels = {"a": np.array([0.0, 0.0, np.nan]), "b": np.zeros(3)}
    found, counted = loss_of(spec, output, labels)
    t1, t2 = output[:, 0, :3, :3].mean(axis=(1, 2)), output[:, 0, 3:, 3:].mean(axis=(1, 2))
    second = output[1, 0][np.ix_([5, 4, 3], [5, 4, 3])].mean()  # its other top lacks a jet
    assert found == pytest.approx([t1[0] ** 2 + t2[0] ** 2, second**2, t2[2] ** 2], abs=1e-5)
    assert counted == 4
    values = head_values(spec, TTBAR, output, TRUTH)
    assert values[0] == pytest.approx([t1[0], t2[0]], abs=1e-6)
    assert np.isnan(values[1]).tolist() == [False, True]
    slots = torch.as_tensor(TRUTH[[0, 2]].reshape(2, 2, 3))
    both = place_values(torch.as_tensor(output[[0, 2]]), slots)
    assert both[..., 0].numpy() == pytest.approx(values[[0, 2]], abs=1e-6)


def test_columns_of_results():
    chances = np.array([[0.0, np.log(3.0)]])
    spec = HeadSpec("class", columns=("s",), classes=2)
    values = head_values(spec, TTBAR, chances, TRUTH[:1])
    columns = head_columns("s", spec, TTBAR, values)
    assert {name: column.tolist() for name, column in columns.items()} == {"s": [0.75]}
    three = HeadSpec("class", of="t.b", columns=("x", "y"), classes=3)
    values = head_values(three, TTBAR, np.zeros((1, 3, 6, 6)), TRUTH[:1])
    names = [f"t{t}_b_s_{c}" for t in (1, 2) for c in range(3)]
    assert list(head_columns("s", three, TTBAR, values)) == names


def test_values_follow_exchanged_particles():
    spec = HeadSpec("regression", of="t", columns=("a", "b"), offset=0.0, scale=1.0)
    slots = np.array([[3, 4, 5, 0, 1, 2], [3, 4, 5, 1, 0, 2], [0, 1, 2, 3, 4, 5]])
    found = reordered(spec, TTBAR, np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]]), slots)
    np.testing.assert_array_equal(found, [[2, 1], [np.nan, 3], [5, 6]])


def test_missing_labels_weigh_nothing(decays):
    """A batch of which half has labels has the loss, and its average, of that half."""
    events = decays(8, extra=0)
    dense, _ = events.dense("jet", ("pt", "eta", "phi", "energy", "btag"))
    torch.manual_seed(0)
    spec = HeadSpec("class", columns=("c",), classes=2)
    network = Network(
        TTBAR, NetworkConfig(blocks=1, single_width=8, pair_width=8, tokens=False), heads={"c": spec}
    )
    labels = np.array([0, 1, 1, 0, -1, -1, -1, -1])
    recipe, averages = parse_recipe({"topology": "ttbar_allhad", "optimiser": {"steps": 1}}), []
    for rows in (slice(0, 4), slice(0, 8)):
        nodes = Nodes.full({"jet": dense[rows]})
        examples = Examples(recipe, nodes, events.truth[rows], columns={"c": labels[rows]})
        batch = make_batch(examples, {"c": HeadLoss("c", spec)})
        total = batch.sums(network.eval(), network(batch.objects))["c"]
        averages.append(float(total.detach()) / batch.counts["c"])
    assert averages[0] == pytest.approx(averages[1], rel=1e-5)


def test_components_turn_with_the_event(decays):
    """Labels that are components of a jet's momentum are those of the jet that the network then sees."""
    events = decays(50, extra=0)
    dense, _ = events.dense("jet", ("pt", "eta", "phi", "energy", "btag"))

    def components(jets):
        _, px, py, pz = cartesian(*np.moveaxis(jets[:, 0, :4].astype(np.float64), -1, 0)).T[[3, 0, 1, 2]]
        return {"j_px": px, "j_py": py, "j_pz": pz, "j_eta": jets[:, 0, 1], "j_phi": jets[:, 0, 2], "j_m": px * 0}

    columns = components(dense)
    specs = [parse_head(name, {"kind": "regression"}, TTBAR, "heads")[0] for name in columns]
    config = AugmentationConfig(rotate=True, reflect=True)
    augmentation = Augmentation.draw(50, config, np.random.default_rng(3))
    seen = components(augmentation.of_nodes(Nodes.full({"jet": dense})).values["jet"])
    labels = augmentation.of_labels(columns, specs)
    for name in columns:
        assert labels[name] == pytest.approx(seen[name], abs=2e-3), name
    assert not np.allclose(columns["j_px"], seen["j_px"], atol=1)


# -- from columns to columns -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled(decays):
    """Decays whose labels follow from the jets: a class by the sum of pT, numbers, and a class of each top."""
    events = decays(500)
    ht = np.asarray(ak.sum(events.jets.pt, axis=1))
    reco = momenta(events, events.truth)
    heavy = (reco["pt"][:, [0, 2]] > 120).astype(np.int64)
    signal = (ht > np.median(ht)).astype(np.int64)
    signal[::10] = -1
    columns = {"signal": signal, "ht": np.where(np.arange(500) % 7 == 0, np.nan, ht)}
    return events.replace(columns={**columns, "t1_hard": heavy[:, 0], "t2_hard": heavy[:, 1]})


@pytest.fixture(scope="module")
def trained(labelled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    write_events(labelled, folder / "in.h5")
    recipe = parse_recipe(
        {
            "topology": "ttbar_allhad",
            "selection": {"event": {"jets": 6}},
            "network": TRIANGLES | {"pair_heads": 2, "dropout": 0.25},
            "loss": {"event_likelihood": 1, "masked_edges": 0},
            "data": {"train_fraction": 0.6, "validation_fraction": 0.2},
            "augmentation": {"rotate": True, "reflect": True},
            "optimiser": {"steps": 80, "batch": 32, "learning_rate": 5e-3, "ema": 0.9},
            "run": {"accelerator": "cpu", "validate_every": 40, "save_every": 40, "log_every": 20},
            "heads": {
                "signal": {"kind": "class"},
                "ht_number": {"kind": "regression", "column": "ht"},
                "hard": {"kind": "class", "of": "t", "weight": 0.5},
            },
        }
    )
    result = train(recipe, [folder / "in.h5"], folder / "model")
    return folder, result


def test_heads_are_trained_written_and_judged(labelled, trained):
    folder, result = trained
    assert {"event_likelihood", "signal", "ht_number", "hard"} <= set(result.best)
    outputs = [item.name for item in onnxruntime.InferenceSession(folder / "model" / "model.onnx").get_outputs()]
    assert outputs == ["edges", "signal", "ht_number", "hard"]
    reco = pairton.reconstruct(labelled, str(folder / "model"))
    columns = reco.to_columns()
    answered = (reco.assignment >= 0).all(axis=1)
    assert np.isfinite(columns["signal"]).tolist() == answered.tolist()
    assert ((columns["signal"] >= 0) & (columns["signal"] <= 1))[answered].all()
    assert answered.all()
    assert {"t1_hard", "t2_hard"} <= set(columns)
    by_torch = pairton.reconstruct(labelled, str(folder / "model"), engine="torch").to_columns()
    for name in ("signal", "ht_number", "t1_hard", "t2_hard"):
        np.testing.assert_allclose(columns[name], by_torch[name], rtol=1e-3, atol=1e-3)


def test_events_without_an_answer_have_the_columns_too(labelled, trained, tmp_path, monkeypatch):
    """Also in a window of which no event has one."""
    folder, _ = trained
    monkeypatch.setattr("pairton.reconstruction.assigner.windows.__defaults__", (20,))
    few = ak.local_index(labelled.jets.pt) < ak.Array(np.where(np.arange(500) < 20, 3, 99))
    write_events(labelled.keep({"jet": few}), tmp_path / "some.h5")
    pairton.reconstruct_files(tmp_path / "some.h5", tmp_path / "out.parquet", str(folder / "model"))
    found = ak.from_parquet(tmp_path / "out.parquet").signal.to_numpy()
    assert np.isnan(found).tolist() == [True] * 20 + [False] * 480


def test_training_needs_the_columns_of_its_heads(labelled, tmp_path):
    write_events(labelled.replace(columns={}), tmp_path / "bare.h5")
    raw = {"topology": "ttbar_allhad", "optimiser": {"steps": 1}, "heads": {"signal": {"kind": "class"}}}
    with pytest.raises(pairton.errors.PairtonError, match="signal"):
        train(parse_recipe(raw), [tmp_path / "bare.h5"], tmp_path / "out")


def test_evaluate_reads_the_labels(labelled, trained):
    folder, _ = trained
    with pytest.warns(pairton.errors.PairtonWarning, match="was trained on up to"):
        result = pairton.evaluate(folder / "in.h5", folder / "model")
    found = result.to_dict()["heads"]
    assert found["signal"]["labels"] == 450
    assert found["signal"]["roc_area"]["value"] > 0.9  # it sees the momenta whose sum decides
    assert found["ht_number"]["resolution"]["value"] < 0.7 * found["ht_number"]["spread"]
    right = result.to_dict()["efficiency"]["t"]["inclusive"]["correct"]
    assert found["hard"]["labels"] == right
    assert found["hard"]["accuracy"]["value"] > 0.6
    assert "ROC area" in result.table()
    signal, hard = [plot for plot in result.metrics["heads"].plots(result) if plot is not None]
    assert (signal.name, hard.name) == ("roc_signal", "roc_hard")
    assert signal.draw().axes[0].get_xlabel() == "efficiency of class 1"
    with pytest.warns(pairton.errors.PairtonWarning, match="was trained on up to"):
        alone = pairton.evaluate(labelled.replace(columns={}), folder / "model")
    assert "heads" not in alone.to_dict()


def test_labels_of_the_input_are_kept_beside_the_answer(labelled, trained, tmp_path):
    folder, _ = trained
    with pytest.raises(SystemExit) as done:
        main(["reconstruct", f"{folder}/in.h5", "--model", f"{folder}/model", "-o", str(tmp_path / "x.parquet")])
    assert done.value.code == 0
    found = ak.from_parquet(tmp_path / "x.parquet")
    np.testing.assert_array_equal(found.true_signal, labelled.columns["signal"])
    np.testing.assert_array_equal(found.true_t1_hard, labelled.columns["t1_hard"])
    np.testing.assert_array_equal(found.ht, labelled.columns["ht"])  # no head has this name
    assert 0 <= np.nanmin(found.signal) < np.nanmax(found.signal) <= 1


# -- measures ----------------------------------------------------------------------------------------------


def test_a_class_that_is_not_there_has_no_area():
    """The mean over the classes was NaN."""
    labels, values = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([[7, 2, 1], [4, 5, 1], [2, 7, 1], [1, 8, 1]])
    found = judge_class(Labelled(labels, values[:, None] / 10, np.ones(4)))
    assert [np.isnan(one.value) for one in found["roc_area_by_class"]] == [False, False, True]
    assert found["roc_area"].value == 1.0


def test_resolution_of_a_gaussian():
    rng = np.random.default_rng(3)
    labels = rng.normal(0, 10, (4000, 1))
    labels[::4] = np.nan
    found = judge_number(Labelled(labels, labels + rng.normal(0.5, 2, labels.shape), np.ones(len(labels))))
    assert found["labels"] == 3000
    assert found["bias"].value == pytest.approx(0.5, abs=0.1)
    assert found["resolution"].low < found["resolution"].value < found["resolution"].high
    assert found["resolution"].value == pytest.approx(2, rel=0.06)
    assert found["spread"] == pytest.approx(10, rel=0.06)
