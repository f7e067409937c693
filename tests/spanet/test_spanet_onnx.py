"""Networks that SPANet exported: a stand-in with its tensors here, SPANet's own in a long test."""

import json
import os
import pickle
import shutil
import subprocess
import warnings
from pathlib import Path

import awkward as ak
import h5py
import numpy as np
import onnxruntime
import pytest
import yaml

import pairton
from pairton import formats
from pairton.cli import main
from pairton.decoding.terms import BRANCH
from pairton.errors import ConfigError, ModelError
from pairton.events.acceptance import accept
from pairton.events.domain import Domain
from pairton.models.model import load_model
from pairton.models.onnx_file import read_onnx
from pairton.spanet.spanet_onnx import has_logarithms, is_spanet

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

pytestmark = pytest.mark.filterwarnings("ignore:jets within 0.4 of a lepton")  # the events are made at random

ROOT = Path(__file__).parents[2]
EVENT = {
    "INPUTS": {
        "SEQUENTIAL": {
            "Jets": {"mass": "log_normalize", "pt": "log_normalize", "eta": "normalize", "sin_phi": "none"}
            | {"cos_phi": "none", "btag": "none"},
            "Leptons": {"pt": "log", "eta": "none", "phi": "none", "charge": "none"},
        },
        "GLOBAL": {"Met": {"met": "log_normalize", "phi": "none"}},
    },
    "EVENT": {"t": [{"b": "Jets"}, {"q1": "Jets"}, {"q2": "Jets"}], "tl": [{"b": "Jets"}, {"l": "Leptons"}]},
    "PERMUTATIONS": {"t": [["q1", "q2"]]},
    "REGRESSIONS": {"EVENT": ["nu_pz"]},
    "CLASSIFICATIONS": {"EVENT": ["signal"]},
}
WIDTHS = {"Jets": 9, "Leptons": 2}


class StandIn(torch.nn.Module):
    """Takes and gives what a network of SPANet does, without a transformer."""

    def __init__(self, event, logs_inside, log_outputs, width):
        super().__init__()
        self.event, self.logs_inside, self.log_outputs, self.width = event, logs_inside, log_outputs, width
        self.groups = [(name, g) for form in event["INPUTS"].values() for name, g in form.items()]
        self.sequential = list(event["INPUTS"]["SEQUENTIAL"])
        generator = torch.Generator().manual_seed(4)
        self.weights = {name: torch.randn(len(g), 8, generator=generator) for name, g in self.groups}
        self.products = {
            p: [next(iter(x)) if isinstance(x, dict) else x for x in e] for p, e in event["EVENT"].items()
        }
        names = {(p, x.rstrip("12")) for p, e in self.products.items() for x in e}
        self.heads = {key: torch.randn(8, generator=generator) for key in sorted(names)}

    def forward(self, *inputs):
        objects, masks, context = [], [], 0.0
        for k, (name, features) in enumerate(self.groups):
            data, mask = inputs[2 * k], inputs[2 * k + 1]
            if self.logs_inside:
                logs = [option.startswith("log") for option in features.values()]
                columns = [
                    mask * torch.log(data[:, :, i] + 1) if log else data[:, :, i] for i, log in enumerate(logs)
                ]
                data = torch.stack(columns, dim=-1)
            embedded = ((data - 0.5) / 2.0) @ self.weights[name] * mask[..., None]
            if name in self.sequential:
                objects.append(embedded)
                masks.append(mask)
            else:
                context = context + embedded
        x, mask = torch.cat(objects, dim=1) + context, torch.cat(masks, dim=1)
        if self.width:
            x = x.reshape(-1, self.width, 8)
        x = torch.tanh(x)
        event = (x * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        assignments = [self._assignment(x, mask, name) for name in self.products]
        detections = [event @ torch.ones(8) for _ in self.products]
        logits = torch.stack([event @ torch.ones(8), -(event @ torch.ones(8))], dim=1)
        if self.log_outputs:
            chances = [*assignments, *map(torch.nn.functional.logsigmoid, detections)]
            return *chances, 100 * event[:, 0], torch.log_softmax(logits, dim=1)
        chances = [*(a.exp() for a in assignments), *map(torch.sigmoid, detections)]
        return *chances, 100 * event[:, 0], torch.softmax(logits, dim=1)

    def _assignment(self, x, mask, particle):
        products = self.products[particle]
        n = len(products)
        total, allowed = 0.0, None
        for k, name in enumerate(products):
            shape = (slice(None), *(slice(None) if j == k else None for j in range(n)))
            total = total + (3 * x @ self.heads[particle, name.rstrip("12")])[shape]
            allowed = mask[shape] if allowed is None else allowed & mask[shape]
        ones = torch.cumsum(torch.ones_like(x[0, :, 0]), dim=0)
        for i in range(n):
            for j in range(i):
                left = ones[tuple(slice(None) if k == i else None for k in range(n))]
                right = ones[tuple(slice(None) if k == j else None for k in range(n))]
                allowed = allowed & (left != right)[None]
        logits = torch.where(allowed, total, torch.full_like(total, -1e9))
        flat = torch.log_softmax(logits.flatten(1), dim=1)
        return flat.reshape(logits.shape)


def export(path, event=EVENT, logs_inside=False, log_outputs=False, width=0):
    network = StandIn(event, logs_inside, log_outputs, width).eval()
    names = [name for name, _ in network.groups]
    inputs = [f"{name}_{part}" for name in names for part in ("data", "mask")]
    ending = "log_probability" if log_outputs else "probability"
    outputs = [f"{p}_{what}_{ending}" for what in ("assignment", "detection") for p in event["EVENT"]]
    outputs += ["EVENT/nu_pz", "EVENT/signal"]
    sizes = {name: WIDTHS.get(name, 1) for name in names}
    if width:
        sizes["Jets"] = width - sizes["Leptons"]
    example = []
    for name, features in network.groups:
        example += [torch.rand(2, sizes[name], len(features)), torch.ones(2, sizes[name], dtype=torch.bool)]
    axes = {name: {0: "batch_size", 1: f"num_{name.rsplit('_', 1)[0]}"} for name in inputs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            tuple(example),
            str(path),
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=axes | {name: {0: "batch_size"} for name in outputs},
            opset_version=14,
            dynamo=False,
        )
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Events in SPANet's layout, their event file, and two exports of one network."""
    folder = tmp_path_factory.mktemp("spanet")
    rng = np.random.default_rng(0)
    n = 60
    with h5py.File(folder / "events.h5", "w") as file:
        for group, low in (("Jets", 3), ("Leptons", 1)):
            width = WIDTHS[group]
            counts = rng.integers(low, width + 1, n)
            file[f"INPUTS/{group}/MASK"] = np.arange(width) < counts[:, None]
            phi = rng.uniform(-3, 3, (n, width))
            columns = {
                "pt": np.sort(rng.exponential(60, (n, width)) + 25)[:, ::-1],
                "eta": rng.normal(0, 1, (n, width)),
            }
            columns |= {"sin_phi": np.sin(phi), "cos_phi": np.cos(phi)} if group == "Jets" else {"phi": phi}
            columns |= {"mass": rng.uniform(5, 15, (n, width)), "btag": rng.random((n, width)) < 0.3}
            columns |= {"charge": rng.choice([-1, 1], (n, width))}
            for name, values in columns.items():
                file[f"INPUTS/{group}/{name}"] = (values * file[f"INPUTS/{group}/MASK"][:]).astype(np.float32)
        file["INPUTS/Met/met"] = rng.exponential(40, n).astype(np.float32)
        file["INPUTS/Met/phi"] = rng.uniform(-3, 3, n).astype(np.float32)
        for target in ("t/b", "t/q1", "t/q2", "tl/b", "tl/l"):
            file[f"TARGETS/{target}"] = np.full(n, -1)
        file["CLASSIFICATIONS/EVENT/signal"] = rng.integers(0, 2, n)
        file["REGRESSIONS/EVENT/nu_pz"] = rng.normal(0, 50, n).astype(np.float32)
    (folder / "event.yaml").write_text(yaml.safe_dump(EVENT, sort_keys=False))
    export(folder / "net.onnx")
    export(folder / "logs.onnx", logs_inside=True, log_outputs=True)
    return folder


def spanet_features(file):
    """The tensors that SPANet itself makes of a file, written out from its documentation."""
    feeds = {}
    for form, groups in EVENT["INPUTS"].items():
        for name, features in groups.items():
            group = file[f"INPUTS/{name}"]
            mask = group["MASK"][:] if form == "SEQUENTIAL" else np.ones((len(group["met"]), 1), dtype=bool)
            columns = []
            for feature, option in features.items():
                values = group[feature][:].reshape(mask.shape).astype(np.float32)
                columns.append(np.log(values + 1) * mask if option.startswith("log") else values)
            feeds |= {f"{name}_data": np.stack(columns, axis=-1).astype(np.float32), f"{name}_mask": mask}
    return feeds


def engine_outputs(model, events):
    """Branches of the events of each layout, with the positions of the nodes in the file."""
    accepted = accept(events, Domain(), model.inputs, max_objects=12)
    for layout, rows in accepted.by_layout(accepted.answerable):
        yield layout, rows, model.predict(accepted.batch(rows, layout)), accepted.position


def test_features_are_those_of_the_event_file(files):
    model = load_model(files / "net.onnx", topology=files / "event.yaml")
    assert model.topology.kinds == ("jet", "lepton", "met")
    fields, as_stored = {"jet": ["btag"], "lepton": ["charge"]}, {"overlap": "none"}
    events = pairton.read(files / "events.h5", topology=files / "event.yaml", fields=fields, settings=as_stored)
    session = onnxruntime.InferenceSession(files / "net.onnx")
    with h5py.File(files / "events.h5") as file:
        expected = dict(
            zip([o.name for o in session.get_outputs()], session.run(None, spanet_features(file)), strict=True)
        )
    checked = 0
    for (jets, leptons, _), rows, found, position in engine_outputs(model, events):
        for k, row in enumerate(rows):
            jet, lepton = position["jet"][row, :jets], position["lepton"][row, :leptons]
            tops = np.exp(found[f"{BRANCH}t"][k][:jets, :jets, :jets])  # our order of slots: q1, q2, b
            theirs = expected["t_assignment_probability"][row][np.ix_(jet, jet, jet)].transpose(1, 2, 0)
            np.testing.assert_allclose(tops, theirs, rtol=2e-3, atol=1e-6)
            both = np.exp(found[f"{BRANCH}tl"][k][:jets, jets : jets + leptons])
            theirs = expected["tl_assignment_probability"][row][np.ix_(jet, WIDTHS["Jets"] + lepton)]
            np.testing.assert_allclose(both, theirs, rtol=2e-3, atol=1e-6)
            chance = found["spanet_t_detection_probability"][k]
            assert chance == pytest.approx(expected["t_detection_probability"][row], abs=1e-4)
            np.testing.assert_allclose(np.exp(found["signal"][k]), expected["EVENT/signal"][row], atol=1e-4)
            assert found["nu_pz"][k] == pytest.approx(expected["EVENT/nu_pz"][row], abs=1e-2)
            checked += 1
    assert checked > 40


def test_logarithms_inside_are_seen(files):
    plain, logs = (read_onnx(files / name) for name in ("net.onnx", "logs.onnx"))
    assert is_spanet(plain)
    assert is_spanet(logs)
    assert not has_logarithms(plain.operators, "Jets_data")
    assert [has_logarithms(logs.operators, f"{name}_data") for name in ("Jets", "Leptons", "Met")] == [True] * 3
    columns = []
    for name in ("net.onnx", "logs.onnx"):
        model = load_model(files / name, topology=files / "event.yaml")
        events = pairton.read(
            files / "events.h5", **formats.options_for(model, {"topology": files / "event.yaml"})
        )
        columns.append(pairton.reconstruct(events, model).to_columns())
    for name in columns[0]:
        if columns[0][name].dtype.kind == "f":
            np.testing.assert_allclose(columns[0][name], columns[1][name], rtol=1e-2, atol=1e-4)
        else:
            np.testing.assert_array_equal(columns[0][name], columns[1][name])


def run(*arguments):
    with pytest.raises(SystemExit) as done:
        main([str(argument) for argument in arguments])
    return done.value.code


def test_the_command_line(files, tmp_path, capsys):
    given = ("--model", files / "net.onnx", "--topology", files / "event.yaml")
    assert run("reconstruct", files / "events.h5", *given, "-o", tmp_path / "out.parquet") == 0
    table = ak.from_parquet(tmp_path / "out.parquet")
    answered = table[table.t_b_jet >= 0]
    assert len(answered) > 40
    used = np.stack([answered.t_b_jet, answered.t_W_q1_jet, answered.t_W_q2_jet, answered.tl_b_jet], axis=1)
    assert all(len(set(row)) == 4 for row in used.tolist())
    assert {"tl_l_lepton", "event_probability", "signal", "nu_pz", "spanet_tl_detection_probability"} <= set(
        table.fields
    )
    assert run("evaluate", files / "events.h5", *given, "--json", tmp_path / "numbers.json") == 0
    assert "ROC area" in capsys.readouterr().out
    assert run("display", files / "events.h5", *given, "--event", "0", "-o", tmp_path / "event.html") == 0


def test_mistakes_are_one_line(files, tmp_path, capsys):
    with pytest.raises(ModelError, match=r"a SPANet network, which needs its event file: add --topology"):
        load_model(files / "net.onnx")
    with pytest.raises(ModelError, match="needs its event file"):
        load_model(files / "net.onnx", topology="ttbar_semilep")
    for change, said in (
        ({"INPUTS": {"SEQUENTIAL": EVENT["INPUTS"]["SEQUENTIAL"]}}, "it takes Met, which is not among the INPUTS"),
        ({"EVENT": EVENT["EVENT"] | {"h": [{"b": "Jets"}]}}, "it has no output for the particle h"),
        (
            {"INPUTS": {**EVENT["INPUTS"], "GLOBAL": EVENT["INPUTS"]["GLOBAL"] | {"Event": {"ht": "log"}}}},
            "it does not take Event, which is among the INPUTS",
        ),
    ):
        (tmp_path / "other.yaml").write_text(yaml.safe_dump(EVENT | change, sort_keys=False))
        with pytest.raises(ModelError, match=said):
            load_model(files / "net.onnx", topology=tmp_path / "other.yaml")
    model = load_model(files / "net.onnx", topology=files / "event.yaml")
    events = pairton.read(files / "events.h5", **formats.options_for(model, {"topology": files / "event.yaml"}))
    with pytest.raises(ConfigError, match="net takes the decoding branches only, not exact"):
        pairton.reconstruct(events, model, decoding="exact")
    fewer = {
        "SEQUENTIAL": {**EVENT["INPUTS"]["SEQUENTIAL"], "Leptons": {"pt": "log"}},
        "GLOBAL": EVENT["INPUTS"]["GLOBAL"],
    }
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(EVENT | {"INPUTS": fewer}, sort_keys=False))
    with pytest.raises(ModelError, match="is it the network of the event file other"):
        load_model(files / "net.onnx", topology=tmp_path / "other.yaml").engine.width  # noqa: B018


def test_a_graph_for_a_fixed_number_of_objects(files):
    """As those that new versions of torch make of SPANet: events are padded, and larger ones truncated."""
    export(files / "fixed.onnx", width=8)
    fixed = load_model(files / "fixed.onnx", topology=files / "event.yaml")
    free = load_model(files / "net.onnx", topology=files / "event.yaml")
    assert (free.engine.width, fixed.engine.width, fixed.engine.most_objects) == (None, 8, 7)
    events = pairton.read(files / "events.h5", **formats.options_for(free, {"topology": files / "event.yaml"}))
    one, other = (pairton.reconstruct(events, model, max_objects=7) for model in (free, fixed))
    fits = (one.used["jet"] + one.used["lepton"]) <= 8
    assert 0 < fits.sum() < len(events)
    np.testing.assert_array_equal(one.assignment[fits], other.assignment[fits])
    np.testing.assert_allclose(one.event_probability[fits], other.event_probability[fits], rtol=1e-3)
    too_many = ~fits & (one.assignment >= 0).all(axis=1)
    assert {pairton.events.Status(status).label for status in other.status[too_many]} == {"bad_output"}


def test_an_engine_is_sent_to_workers(files):
    model = load_model(files / "net.onnx", topology=files / "event.yaml")
    events = pairton.read(files / "events.h5", **formats.options_for(model, {"topology": files / "event.yaml"}))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        pairton.reconstruct(events, model).assignment, pairton.reconstruct(events, again).assignment
    )


# -- SPANet itself -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_export_of_spanet_itself(tmp_path):
    """PAIRTON_SPANET names a Python with spanet 2.1.1, torch and onnx: workflow/peers/spanet/README.md."""
    python = os.environ.get("PAIRTON_SPANET")
    if not python:
        pytest.skip("PAIRTON_SPANET names no Python with SPANet")
    peer = ROOT / "workflow" / "peers" / "spanet"
    events = tmp_path / "x.h5"
    with pytest.raises(SystemExit):
        main(["convert", "sample:ttbar_allhad", str(events)])
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def call(script, *arguments):
        subprocess.run([python, script, *map(str, arguments)], cwd=peer, env=environment, check=True)

    options = {"hidden_dim": 16, "num_encoder_layers": 1, "num_attention_heads": 2, "batch_size": 64}
    small = json.loads((peer / "small.json").read_text()) | options | {"transformer_dim": 16}
    (tmp_path / "tiny.json").write_text(json.dumps(small))
    trained = tmp_path / "trained"
    more = "--options", tmp_path / "tiny.json", "--validations", 1, "--out", trained
    call("train.py", "--data", events, "--minutes", 0.05, *more)
    for name, flags in (("plain", ()), ("logs", ("--input-log-transform", "--output-log-transform"))):
        call(
            "export.py",
            trained,
            events,
            tmp_path / f"{name}.onnx",
            "--reference",
            tmp_path / f"{name}.npz",
            *flags,
        )
        reference = np.load(tmp_path / f"{name}.npz")
        event = trained / "event.yaml"
        model = load_model(tmp_path / f"{name}.onnx", topology=event)
        first = pairton.read(events, topology=event)[: len(reference["t1_choice"])]
        compared = 0
        for (jets,), rows, found, position in engine_outputs(model, first):
            for k, row in enumerate(rows):
                at = position["jet"][row, :jets]
                for top in ("t1", "t2"):
                    theirs = reference[f"{top}_log_probability"][row][np.ix_(at, at, at)]
                    inside = theirs > -20
                    ours = found[f"{BRANCH}{top}"][k][:jets, :jets, :jets]
                    np.testing.assert_allclose(
                        ours[inside], theirs[inside], atol=0.02
                    )  # masses are made of energies
                    compared += int(inside.sum())
        assert compared > 10_000
        reco = pairton.reconstruct(first, model, max_objects=model.engine.most_objects)
        assert np.isfinite(reco.event_probability).all()
        ordered = np.sort(reco.index, axis=1)
        assert (ordered[:, 1:] != ordered[:, :-1]).all()
        for row in range(len(first)):  # by SPANet's own measure, in whichever branch each top is
            chances = [reference[f"{top}_log_probability"][row] for top in ("t1", "t2")]
            mine = [tuple(reco.index[row, slots]) for slots in ([0, 1, 2], [3, 4, 5])]
            theirs = [tuple(reference[f"{top}_choice"][row]) for top in ("t1", "t2")]
            total = max(chances[0][mine[0]] + chances[1][mine[1]], chances[0][mine[1]] + chances[1][mine[0]])
            assert total >= chances[0][theirs[0]] + chances[1][theirs[1]] - 1e-3
    shutil.rmtree(trained)
