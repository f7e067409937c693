"""Networks that know missing particles: from a recipe to a calibrated model on disk."""

import numpy as np
import pytest
import torch

from pairton.decoding import decode
from pairton.decoding.patterns import allowed_nodes, plan_of
from pairton.decoding.set_tables import hypotheses, set_tables
from pairton.models.model import load_model
from pairton.models.storage import parse_info, read_info
from pairton.network.engine import load_network, predictor
from pairton.topology import load_topology
from pairton.training.calibration import fit_temperatures
from pairton.training.data import Group, Key, PackedEvents
from pairton.training.loop import Trainer
from pairton.training.recipes import parse_recipe
from pairton.training.validation import blocks
from random_objects import TRIANGLES

pytest.importorskip("lightning.fabric")

TTBAR = load_topology("ttbar_allhad")
PATTERNS = [pattern.name for pattern in plan_of(TTBAR).patterns]
MISSING = {
    "t + t": (), "t + W": ("t2.b",), "t": ("t2.W.q1",), "W": ("t1.b", "t2.W.q1"),
    "nothing": ("t1.W.q1", "t2.W.q2"),
}  # fmt: skip


def some_events(count=24, seed=0):
    """Of five, six and seven jets; the leading jet tells which pattern an event has."""
    rng = np.random.default_rng(seed)
    groups = {}
    for n_jets in (5, 6, 7):
        kinds = list(MISSING)[2 if n_jets == 5 else 0 :]  # five jets cannot hold two W and a b of each top
        which = np.arange(count) % len(kinds)
        pt = np.sort(rng.uniform(30, 150, (count, n_jets)))[:, ::-1].copy()
        pt[:, 0] += 100 * (which + 1)
        eta, phi = rng.normal(size=(count, n_jets)), rng.uniform(-3, 3, (count, n_jets))
        columns = [pt, eta, phi, pt * np.cosh(eta) + 5, rng.integers(0, 2, pt.shape)]
        truth = np.full((count, 6), -1)
        for row, kind in enumerate(which):
            left = [slot.index for slot in TTBAR.slots if slot.name not in MISSING[kinds[kind]]]
            truth[row, left[:n_jets]] = rng.permutation(n_jets)[: len(left[:n_jets])]
        ids = np.stack([np.full(count, n_jets), np.arange(count)], axis=1).astype(np.uint64)
        objects = {"jet": np.stack(columns, axis=-1).astype(np.float32)}
        groups[Key(0, (n_jets,))] = Group(objects, truth.astype(np.int8), ids, np.ones(len(truth), np.float32))
    return PackedEvents(groups, f"patterns {seed}")


def patterns_of(n_jets, truth):
    return hypotheses(set_tables(TTBAR, allowed_nodes(TTBAR, n_jets)), truth).pattern


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from lightning.fabric import Fabric

    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    out = tmp_path_factory.mktemp("patterns")
    recipe = parse_recipe(
        {
            "topology": "ttbar_allhad",
            "network": TRIANGLES | {"patterns": True, "triplets": "potential"},
            "loss": {"masked_edges": 0, "event_likelihood": 1},
            "data": {"events": "all"},
            "optimiser": {"batch": 24, "steps": 90, "learning_rate": 5e-3, "ema": 0, "weight_decay": 0},
            "run": {"accelerator": "cpu", "validate_every": 45, "save_every": 90, "log_every": 1},
        }
    )
    events = some_events()
    result = Trainer(recipe, events, events, out).run(fabric)
    assert result.finished
    losses = [line for line in (out / "metrics.csv").read_text().splitlines() if "training,event_likeli" in line]
    assert len(losses) == 90  # every batch is below the bound
    return out, events


def test_the_network_learns_which_particles_are_there(trained):
    out, events = trained
    network, _ = load_network(out)
    right, met = [], set()
    for (_, (n_jets,)), group in events.groups.items():
        answer = decode(predictor(network), TTBAR, group.nodes())
        chance = answer.pattern_probability
        if n_jets < 6:  # not enough for all slots
            assert (chance[:, 0] == 0).all()
        np.testing.assert_allclose(chance.sum(axis=1), 1, rtol=1e-6)
        if n_jets >= 6:  # complete answers
            assert (answer.event_probability <= chance[:, 0] + 1e-9).all()
        patterns = patterns_of(n_jets, group.truth)
        right += (chance.argmax(axis=1) == patterns).tolist()
        met |= {PATTERNS[k] for k in patterns}
    assert met == set(MISSING)
    assert np.mean(right) > 0.6  # one of five by chance


def test_temperatures_are_fitted_to_events_of_all_patterns(trained):
    out, events = trained
    info = read_info(out)
    assert info.decoding == "exact"
    network, _ = load_network(out)
    ask = predictor(network)
    (found,) = fit_temperatures(ask, TTBAR, events, blocks(events, 1000), "exact")
    assert info.temperatures == pytest.approx((found,))
    assert 0.6 < found < 1.5

    def exaggerated(nodes, tokens):
        return {name: np.float32(1.3) * values for name, values in ask(nodes, tokens).items()}

    (more,) = fit_temperatures(exaggerated, TTBAR, events, blocks(events, 1000), "exact")
    assert more == pytest.approx(1.3 * found, rel=0.01)


def test_a_model_says_that_it_knows_patterns_and_is_read_back(trained):
    out, events = trained
    info = read_info(out)
    assert info.network["patterns"] is True
    assert info.outputs["patterns"] == ("pattern",)
    assert parse_info(info.to_dict(), "again") == info
    true = np.concatenate([patterns_of(key.layout[0], group.truth) for key, group in events.groups.items()])
    shares = np.bincount(true, minlength=len(PATTERNS)) / len(true)
    assert list(info.data["patterns"]["ttbar_allhad"].values()) == pytest.approx(shares.tolist())
    nodes = events.groups[Key(0, (7,))].nodes()
    wanted = decode(load_model(out, engine="torch").predict, TTBAR, nodes, temperatures=info.temperatures)
    assert np.isfinite(wanted.pattern_probability).all()
