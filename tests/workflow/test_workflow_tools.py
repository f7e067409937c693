"""What the workflow does with events and trainings beside its commands: splits, other inputs, seeds together."""

import doctest
import sys
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import scipy.stats
import torch

WORKFLOW = Path(__file__).parents[2] / "workflow"
sys.path.insert(0, str(WORKFLOW))

import inputs  # noqa: E402
import seeds  # noqa: E402
import split  # noqa: E402
from pairton.events.inputs import Inputs  # noqa: E402
from pairton.formats import create, read  # noqa: E402
from pairton.network import Network, NetworkConfig  # noqa: E402
from pairton.training.data import pack  # noqa: E402
from pairton.training.recipes import DataConfig, LossConfig  # noqa: E402
from pairton.training.validation import blocks, sum_likelihood  # noqa: E402


def test_examples():
    assert doctest.testmod(inputs).failed == 0


def test_splits_are_those_of_training(decays, tmp_path):
    events = decays(400, ids=np.stack([np.full(400, 7), np.arange(400)], axis=1))
    with create(tmp_path / "all.h5", events.topology) as writer:
        writer.write(events)
    counts = {
        name: split.split([str(tmp_path / "all.h5")], names, str(tmp_path / f"{name}.h5"))
        for name, names in {"test": ["test"], "rest": ["train", "validation"]}.items()
    }
    test, rest = (read(tmp_path / f"{name}.h5") for name in ("test", "rest"))
    assert counts == {"test": len(test), "rest": len(rest)}
    assert len(test) + len(rest) == 400
    assert test.in_split("test").all()
    assert not rest.in_split("test").any()
    assert np.array_equal(test.truth, events[events.in_split("test")].truth)


def test_other_inputs_leave_the_rest_as_it_was(decays, tmp_path):
    events = decays(3000, labelled=0.9)
    with create(tmp_path / "events.h5", events.topology) as writer:
        writer.write(events)
    made = {name: tmp_path / f"{name}.h5" for name in inputs.INPUTS}
    for name, path in made.items():
        assert inputs.change(str(tmp_path / "events.h5"), name, str(path)) == 3000
    events, massless, graded = (
        read(path) for path in (tmp_path / "events.h5", made["no_mass"], made["graded_tag"])
    )
    for each in (massless, graded):
        assert np.array_equal(each.truth, events.truth)
        assert np.array_equal(each.ids, events.ids)
        assert np.array_equal(each.selected, events.selected)
        for column in ("pt", "eta", "phi"):
            assert ak.all(each.jets[column] == events.jets[column])
    assert ak.all(massless.jets.btag == events.jets.btag)
    assert np.allclose(ak.flatten(massless.jets.energy), ak.flatten(events.jets.pt * np.cosh(events.jets.eta)))
    assert ak.all(graded.jets.energy == events.jets.energy)
    score, tagged = np.asarray(ak.flatten(graded.jets.btag)), np.asarray(ak.flatten(events.jets.btag)) == 1
    assert np.array_equal(score > 0.5, tagged)
    # the b jets, by a loop over events
    of_b = np.zeros((3000, 8), dtype=bool)
    for event, (_, _, b1, _, _, b2) in enumerate(events.truth):
        of_b[event, [b for b in (b1, b2) if b >= 0]] = True
    of_b = of_b.ravel()
    x = inputs.CUT + np.log(score / (1 - score))
    for chosen, mean in ((tagged & of_b, inputs.B), (tagged & ~of_b, inputs.CHARM), (~tagged & ~of_b, 0.0)):
        side = (inputs.CUT - mean, np.inf) if tagged[chosen][0] else (-np.inf, inputs.CUT - mean)
        assert scipy.stats.kstest(x[chosen] - mean, scipy.stats.truncnorm(*side).cdf).pvalue > 1e-3


def test_seeds_beside_one_another(decays, tmp_path):
    topology = decays(1).topology
    small = {
        "architecture": "symmetric",
        "blocks": 1,
        "pair_width": 8,
        "single_stream": False,
        "edges_from": "pair",
    }
    networks = {}
    for name in ("kept 1", "last 1", "kept 2"):
        torch.manual_seed(len(networks))
        networks[name] = Network(topology, NetworkConfig(**small, tokens=False, triplets="potential"))
    ids = np.stack([np.zeros(800), np.arange(800)], axis=1)
    events = decays(800, extra=1, ids=ids)
    config = DataConfig(train_fraction=0.5, validation_fraction=0.3)
    _, validation = pack([events], topology, Inputs.default(topology), folder=tmp_path, config=config)
    found = seeds.compare(networks, validation)
    assert list(found) == [*networks, "together"]
    loss = LossConfig(event_likelihood=1, masked_edges=0)
    for name, network in networks.items():  # by the loss of trainings
        total, count = sum_likelihood(network, validation, blocks(validation, 10_000), loss)
        assert found[name][0] == count
        assert found[name][1] == pytest.approx(total / count, rel=1e-5)
    # the same network twice is that network; log P is convex, so two that differ are better than their mean
    alike = seeds.compare({"kept 1": networks["kept 1"], "kept 2": networks["kept 1"]}, validation)
    assert alike["together"] == pytest.approx(alike["kept 1"])
    assert found["together"][1] < (found["kept 1"][1] + found["kept 2"][1]) / 2
