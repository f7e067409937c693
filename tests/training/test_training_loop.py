"""The loop: it learns, resumes bit for bit, shares a batch between processes, stops without losing anything."""

import errno
import itertools
import json
import math
import os
import runpy
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from enumeration import enumerate_assignments, index_of, log_normaliser, scores
from pairton.errors import OutputError, TrainingError
from pairton.models.storage import read_info
from pairton.network import Network, torch_set_sums
from pairton.network.engine import load_network, predictor
from pairton.topology import Stage, load_topology
from pairton.training import loop
from pairton.training import resume_state as state
from pairton.training.batch import Sampler
from pairton.training.data import Key
from pairton.training.loop import Trainer
from pairton.training.optimising import update_average
from pairton.training.recipes import parse_recipe
from pairton.training.validation import blocks, count_events
from random_objects import SMALL, TRIANGLES, packed_events

pytest.importorskip("lightning.fabric")

LIKELIHOOD = {"masked_edges": 0, "event_likelihood": 1}
TINY = SMALL | {"dropout": 0.25}


@pytest.fixture(scope="module")
def fabric():
    from lightning.fabric import Fabric

    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    return fabric


def random_events(topology="ttbar_allhad", count=32, extra=(0, 1), seed=0):
    """With as many jets as slots, or more: all there is to learn is by heart."""
    slots = len(load_topology(topology).slots)
    return packed_events({slots + more: count for more in extra}, topology, seed)


def recipe(network=TINY, loss=None, topology="ttbar_allhad", run=None, augmentation=None, **optimiser):
    settings = {"batch": 16, "steps": 12, "warm_up": 2, "ema": 0.9} | optimiser
    return parse_recipe(
        {
            "topology": topology,
            "network": network,
            "loss": loss or {},
            "augmentation": augmentation or {},
            "optimiser": settings,
            "run": {"accelerator": "cpu", "validate_every": 4, "save_every": 4, "log_every": 1} | (run or {}),
        }
    )


def resumed(out):
    return {"progress": state.read_progress(out / state.STATE)}


@pytest.mark.parametrize(
    ("topology", "extra", "changes", "loss", "steps", "learning_rate"),
    [
        ("ttbar_allhad", (0, 1), {"triplets": "potential"}, LIKELIHOOD, 140, 4e-3),
        pytest.param("tth_allhad", (0,), {}, LIKELIHOOD, 160, 4e-3, marks=pytest.mark.long),
        pytest.param("ttbar_allhad", (0, 1), {"pair_width": 64}, None, 640, 5e-3, marks=pytest.mark.long),
        pytest.param(
            "ttbar_allhad", (0, 1), {"pair_width": 64, "tokens": True}, None, 640, 5e-3, marks=pytest.mark.long
        ),
    ],
)
def test_64_events_are_learned_by_heart(fabric, tmp_path, topology, extra, changes, loss, steps, learning_rate):
    events = random_events(topology, 64 // len(extra), extra)
    how = {"batch": 32, "ema": 0, "weight_decay": 0, "steps": steps, "learning_rate": learning_rate}
    network = TRIANGLES | {"blocks": 2, "pair_width": 32} | changes
    plan = recipe(network, loss, topology, {"validate_every": steps // 2}, **how)
    assert Trainer(plan, events, events, tmp_path).run(fabric).best["e_event"] > 0.95


# -- resuming ----------------------------------------------------------------------------------------------


class Interrupted(Trainer):
    """Gets Ctrl-C while a step runs."""

    at = 5

    def backward(self, fabric, model, drawn):
        if drawn.step == self.at:
            os.kill(os.getpid(), signal.SIGINT)
        return super().backward(fabric, model, drawn)


class Crashing(Trainer):
    """Dies while a step runs, after the state of step 4 and before that of step 8."""

    def backward(self, fabric, model, drawn):
        if drawn.step == 6:
            raise MemoryError
        return super().backward(fabric, model, drawn)


@pytest.fixture(scope="module")
def whole(fabric, tmp_path_factory):
    """An uninterrupted training with everything random that there is: dropout, tokens, augmentation."""
    out = tmp_path_factory.mktemp("whole")
    plan = recipe(augmentation={"rotate": True, "reflect": True, "energy_jitter": 0.1})
    result = Trainer(plan, random_events(), random_events(seed=1), out).run(fabric)
    assert result.finished
    return plan, out


@pytest.mark.parametrize(("kind", "reached"), [(Interrupted, 6), (Crashing, 4)])
def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(fabric, whole, tmp_path, kind, reached):
    plan, out = whole
    if kind is Crashing:
        with pytest.raises(MemoryError):
            Crashing(plan, random_events(), random_events(seed=1), tmp_path).run(fabric)
    else:
        result = Interrupted(plan, random_events(), random_events(seed=1), tmp_path).run(fabric)
        assert (result.step, result.finished) == (6, False)
    assert state.read_progress(tmp_path / state.STATE)["step"] == reached
    Trainer(plan, random_events(), random_events(seed=1), tmp_path, **resumed(tmp_path)).run(fabric)
    for name in (state.STATE, "model.safetensors"):
        one, other = load_file(out / name), load_file(tmp_path / name)
        assert set(one) == set(other)
        for key, tensor in one.items():
            assert torch.equal(tensor, other[key]), key
    assert (out / "metrics.csv").read_text() == (tmp_path / "metrics.csv").read_text()
    assert (out / "model.json").read_text() == (tmp_path / "model.json").read_text()


def test_an_interrupt_in_the_last_step_still_gives_a_calibrated_model(fabric, tmp_path):
    class Late(Interrupted):
        at = 2

    plan = recipe(TRIANGLES, LIKELIHOOD, steps=3)
    result = Late(plan, random_events(), random_events(seed=1), tmp_path).run(fabric)
    assert (result.finished, result.interrupted) == (True, True)
    assert len(read_info(tmp_path).temperatures) == 1


def test_resuming_something_else_is_refused(fabric, whole, tmp_path):
    plan, out = whole
    events = random_events()
    other = replace(plan, optimiser=replace(plan.optimiser, learning_rate=0.5))
    with pytest.raises(TrainingError, match=r"learning_rate is 0.5, but .* started with 0.001"):
        Trainer(other, events, events, out, **resumed(out)).run(fabric)
    steps = replace(plan.topology, given_stages=(Stage(("W",)), Stage(("W",)), Stage(("t",)), Stage(("t",))))
    (tmp_path / "steps").mkdir()
    few = replace(plan, topology=steps, optimiser=replace(plan.optimiser, steps=1))
    Trainer(few, events, events, tmp_path / "steps").run(fabric)
    removed = replace(few, topology=plan.topology)  # the stages of the topology, which a recipe does not list
    with pytest.raises(TrainingError, match=r"topology.stages is .*, but .* started with"):
        Trainer(removed, events, events, tmp_path / "steps", **resumed(tmp_path / "steps")).run(fabric)
    with pytest.raises(TrainingError, match="other events"):
        Trainer(plan, random_events(seed=7), events, out, **resumed(out)).run(fabric)
    with pytest.raises(TrainingError, match="no state to resume from"):
        Trainer(plan, events, events, tmp_path, **resumed(tmp_path)).run(fabric)


# -- models that come out ----------------------------------------------------------------------------------


def test_the_best_model_is_kept_with_its_provenance(whole):
    plan, out = whole
    info = read_info(out)
    rows = [line.split(",") for line in (out / "metrics.csv").read_text().splitlines()]
    found = [float(value) for _, kind, name, value in rows if kind == "validation" and name == "e_event"]
    assert info.metrics["e_event"] == max(found)
    assert info.data["fingerprint"] == "random 0"
    jets = info.domain["jet"]
    assert (jets.count, jets.binary, jets.pt) == ((6, 7), ("btag",), 25.0)
    assert info.decoding == "steps"
    network, _ = load_network(out)
    assert network.config == plan.network


def test_likelihood_of_validation_events_is_that_of_the_tables():
    """Against the numpy twin, event by event; partly reconstructible and crowded events are left out."""
    events = random_events(count=5, extra=(0, 1, 2))
    events.groups[Key(0, (6,))].truth[1, 2] = -1
    plan = recipe(TRIANGLES, LIKELIHOOD | {"likelihood_bound": 300})  # up to seven jets
    network = Network(plan.topology, plan.network)
    total = 0.0
    for n_jets, row in [(6, 0), (6, 2), (6, 3), (6, 4), *((7, row) for row in range(5))]:
        group, enumeration = events.groups[Key(0, (n_jets,))], enumerate_assignments(network.topology, (n_jets,))
        every = scores(enumeration, predictor(network)(group.nodes([row])))
        total -= float(every[0, index_of(enumeration, group.truth[[row]])[0]] - log_normaliser(every)[0])
    found = count_events(network, Sampler(plan, events), blocks(events, 100))[-1]
    assert found[1] == 9
    assert found[0] == pytest.approx(total, rel=1e-5)


def test_validation_events_are_taken_from_all_files():
    """In every layout, events of the second file follow those of the first."""
    events = random_events(count=600)
    used = {key: [] for key in events.groups}
    for key, rows in blocks(events, 400):
        used[key] += rows.tolist()
    assert used == {key: list(range(0, 600, 3)) for key in events.groups}
    everything = [(key.layout[0], row) for key, rows in blocks(events, 1200) for row in rows.tolist()]
    assert everything == [(n_jets, row) for n_jets in (6, 7) for row in range(600)]


def test_a_jet_count_may_be_validated_before_it_is_trained(fabric, tmp_path):
    """Tables of assignments are made once: by whoever asks first, and good for a gradient."""
    validation = random_events(count=4, extra=(0, 2, 3))
    plan = recipe(TRIANGLES, LIKELIHOOD, run={"validate_every": 1}, batch=4, steps=8)
    torch_set_sums._index.cache_clear()
    torch_set_sums._score_terms.cache_clear()
    best = Trainer(plan, random_events(count=8, extra=(2, 3)), validation, tmp_path).run(fabric).best
    assert 0 < best["event_likelihood"] < 20


def test_the_model_of_the_best_likelihood_is_kept_where_there_is_one():
    first, more_right, likelier = (
        {"e_event": right, "event_likelihood": value} for right, value in ((0.5, 1.2), (0.6, 1.3), (0.4, 1.1))
    )
    alone = {"event_likelihood": 1.0}
    both = alone | {"signal": 0.5}
    assert loop._better(first, {}, alone)
    assert not loop._better(more_right, first, alone)
    assert loop._better(likelier, first, alone)
    assert loop._better(more_right | {"signal": 0.3}, first | {"signal": 0.6}, both)  # 1.45 against 1.5
    assert not loop._better(more_right | {"signal": 0.5}, first | {"signal": 0.6}, both)
    assert loop._better({"e_event": 0.6, "signal": 0.9}, {"e_event": 0.5, "signal": 0.1}, {"signal": 1.0})
    assert not loop._better({"e_event": 0.5}, {"e_event": 0.5}, {})
    assert loop._better(more_right, {"e_event": 0.5}, alone)  # of a state that had none yet
    none = {"e_event": math.nan, "e_W": 0.1, "loss": 1.0}  # no event of all validation events is complete
    assert loop._better({"e_event": math.nan, "e_W": 0.2}, none, {})
    assert not loop._better({"e_event": math.nan, "e_W": 0.05}, none, {})
    assert loop._better({"e_event": 0.1, "e_W": math.nan}, {"e_event": math.nan, "loss": 1.0}, {})


def test_fine_tuning_starts_from_the_weights_of_a_model(fabric, whole, tmp_path):
    plan, out = whole
    gentle = replace(plan, optimiser=replace(plan.optimiser, steps=1, learning_rate=1e-9, ema=0.0))
    Trainer(gentle, random_events(), random_events(), tmp_path, init=out).run(fabric)
    start, end = load_network(out)[0].state_dict(), load_network(tmp_path)[0].state_dict()
    for name, value in start.items():
        torch.testing.assert_close(end[name], value, rtol=0, atol=1e-6)
    wider = replace(plan, network=replace(plan.network, blocks=2))
    with pytest.raises(TrainingError, match=r"blocks 1 \(recipe: 2\)"):
        Trainer(wider, random_events(), random_events(), tmp_path, init=out).run(fabric)


def test_a_fine_tuned_model_lists_the_sources_of_both_trainings(fabric, tmp_path):
    plan = recipe()
    plan = replace(plan, optimiser=replace(plan.optimiser, steps=2), run=replace(plan.run, validate_every=1))
    first, second = (replace(random_events(), sources=(source,)) for source in (5, 6))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    Trainer(plan, first, first, tmp_path / "first").run(fabric)
    Trainer(plan, second, second, tmp_path / "second", init=tmp_path / "first").run(fabric)
    assert read_info(tmp_path / "first").data["sources"] == [f"{5:016x}"]
    assert read_info(tmp_path / "second").data["sources"] == [f"{5:016x}", f"{6:016x}"]
    assert read_info(tmp_path / "second").seen == {f"{5:016x}": 0.9, f"{6:016x}": 0.9}
    (tmp_path / "third").mkdir()
    less = replace(plan, data=replace(plan.data, train_fraction=0.5), run=replace(plan.run, validate_every=2))
    stopped = type("Early", (Interrupted,), {"at": 0})(
        less, second, second, tmp_path / "third", init=tmp_path / "first"
    )
    assert stopped.run(fabric).step == 1  # before the first model
    Trainer(less, second, second, tmp_path / "third", **resumed(tmp_path / "third")).run(fabric)
    assert read_info(tmp_path / "third").seen == {f"{5:016x}": 0.9, f"{6:016x}": 0.5}


def test_average_of_weights():
    one, other = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    for layer, value in ((one, 1.0), (other, 3.0)):
        for parameter in layer.parameters():
            torch.nn.init.constant_(parameter, value)
    update_average(one, other, decay=0.75, step=1000)
    assert one.weight.item() == pytest.approx(1.5)
    update_average(one, other, decay=0.75, step=0)  # early on it forgets: decay 0.1
    assert one.weight.item() == pytest.approx(0.15 + 2.7)


# -- processes ---------------------------------------------------------------------------------------------

WORKER = """
import sys

import torch
from lightning.fabric import Fabric
from pathlib import Path
from safetensors.torch import save_file

from pairton.network import Network
from pairton.training.loop import Trainer
from pairton.training.recipes import parse_recipe
from random_objects import packed_events


def gradients(fabric, out):
    found = {}
    for name, plan in {RECIPES}.items():
        found |= {f"{name}.{key}": value for key, value in gradients_of(fabric, out, parse_recipe(plan)).items()}
    if fabric.is_global_zero:
        save_file(found, out)


def gradients_of(fabric, out, plan):
    events = packed_events({7: 9, 10: 9, 8: 1})  # an odd batch, one beyond the bound, one for a single process
    torch.manual_seed(0)
    trainer, network = Trainer(plan, events, events, Path(out)), Network(plan.topology, plan.network)
    model = fabric.setup_module(network)
    found = {}
    for step in range(3):
        network.zero_grad()
        drawn = trainer.plan.draw(step)
        found[f"{drawn.key.layout[0]} jets.loss"] = torch.tensor(trainer.backward(fabric, model, drawn)["loss"])
        for name, parameter in network.named_parameters():
            found[f"{drawn.key.layout[0]} jets.{name}"] = parameter.grad.clone()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp_fork")
    fabric.launch(gradients, sys.argv[1])
"""


def test_two_processes_give_the_gradient_of_one_with_twice_the_batch(fabric, tmp_path):
    plans = {
        "likelihood": recipe(
            TINY | {"dropout": 0.0, "edges_from": "both", "triplets": "potential", "tokens": False},
            {"event_likelihood": 1, "masked_edges": 0.5},
            augmentation={"rotate": True, "energy_jitter": 0.1},
        ),
        "tokens": recipe(TINY | {"dropout": 0.0}),
    }
    script = tmp_path / "worker.py"
    script.write_text(WORKER.replace("{RECIPES}", repr({name: plan.to_dict() for name, plan in plans.items()})))
    command = [sys.executable, str(script), str(tmp_path / "two.safetensors")]
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=path)
    assert done.returncode == 0, done.stderr[-2000:]
    runpy.run_path(str(script))["gradients"](fabric, tmp_path / "one.safetensors")
    one, two = (load_file(tmp_path / f"{name}.safetensors") for name in ("one", "two"))
    assert set(one) == set(two)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-6)
    for start in itertools.product(plans, ("7 jets", "8 jets", "10 jets")):
        assert any(one[key].abs().max() > 1e-3 for key in one if key.startswith(".".join(start)))


def test_accumulating_gives_the_gradient_of_the_whole_batch(fabric):
    found = []
    for parts in (1, 3):
        plan = recipe(TINY | {"dropout": 0.0}, accumulate=parts)
        torch.manual_seed(0)
        network = loop.Network(plan.topology, plan.network)
        trainer = Trainer(plan, random_events(), random_events(), None)
        values = trainer.backward(fabric, fabric.setup_module(network), trainer.plan.draw(0))
        found.append((values, [parameter.grad for parameter in network.parameters()]))
    assert found[0][0]["loss"] == pytest.approx(found[1][0]["loss"], rel=1e-5)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_small_batch_counts_by_its_number_of_events(fabric):
    """Batches of 16 and 4 events together have the gradient of one batch of all 20."""
    events = random_events(count=20, extra=(0,))
    found = {}
    for batch in (16, 20):
        plan = recipe(TRIANGLES, LIKELIHOOD, batch=batch)
        torch.manual_seed(0)
        network = loop.Network(plan.topology, plan.network)
        trainer, model = Trainer(plan, events, events, None), fabric.setup_module(network)
        losses = [trainer.backward(fabric, model, drawn)["loss"] for drawn in trainer.plan.epoch(0)]
        found[batch] = losses, [batch * parameter.grad for parameter in network.parameters()]
    assert 16 * found[16][0][0] + 4 * found[16][0][1] == pytest.approx(20 * found[20][0][0], rel=1e-5)
    for one, other in zip(found[16][1], found[20][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # from within torch
def test_compiled_equals_eager(fabric, tmp_path):
    found = []
    for compiled in (False, True):
        plan = recipe(
            TRIANGLES | {"triplets": "potential", "pair_width": 8, "pair_heads": 2},
            {"event_likelihood": 1},
            run={"compile": compiled},
            steps=3,
        )
        out = tmp_path / str(compiled)
        out.mkdir()
        Trainer(plan, random_events(), random_events(seed=1), out).run(fabric)
        found.append(load_file(out / state.STATE))
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-2, atol=1e-4)


# -- what may go wrong -------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_stops_and_names_the_batch(fabric, tmp_path):
    events = random_events()
    plan = recipe(run={"save_every": 1})
    trainer = Trainer(plan, events, random_events(seed=1), tmp_path)
    drawn = trainer.plan.draw(2)  # of the four batches of an epoch: no earlier one has these events
    events.groups[drawn.key].objects["jet"][drawn.rows[0], 2, 0] = np.nan
    with pytest.raises(TrainingError, match=r"the loss is nan .* at step 2, a batch of 16 .* with"):
        trainer.run(fabric)
    kept = load_file(tmp_path / state.STATE)
    assert state.read_progress(tmp_path / state.STATE)["step"] == 2
    assert all(torch.isfinite(tensor).all() for tensor in kept.values())


def test_a_full_disk_keeps_the_last_state(fabric, tmp_path, monkeypatch):
    plan = recipe()
    real, calls = Path.write_bytes, []

    def full(path, payload):
        if path.name.startswith(".state"):
            calls.append(path)
        if len(calls) > 1:
            real(path, payload[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, payload)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=r"No space left on device.* last complete state is kept.* --resume"):
        Trainer(plan, random_events(), random_events(), tmp_path).run(fabric)
    assert state.read_progress(tmp_path / state.STATE)["step"] == 4
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_logs_are_numbers(whole):
    _, out = whole
    lines = (out / "metrics.csv").read_text().splitlines()
    assert lines[0] == "step,kind,name,value"
    assert {line.split(",")[2] for line in lines[1:]} >= {"loss", "masked_edges", "learning_rate", "e_event"}
    assert any((out / "tensorboard").iterdir())
    assert json.loads((out / "model.json").read_text())["format_version"] == 2
