"""Recipes: those that come with Pairton train, and mistakes in one's own are named."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from pairton.errors import ConfigError, TopologyError
from pairton.events.nodes import Nodes
from pairton.network import Network
from pairton.topology import load_topology, same_tree
from pairton.training import load_recipe, parse_recipe
from pairton.training.batch import make_batch
from pairton.training.losses import LOSSES, Examples
from pairton.training.masking import Unmasked, draw_tokens
from random_objects import random_values

FOLDER = Path(__file__).parents[2] / "src" / "pairton" / "recipes"
FILES = sorted(FOLDER.rglob("*.yaml"))


def some_examples(recipe, tree, rng):
    """Complete events, and half of them once more without some of their particles."""
    layout = tuple(
        max(1, slots + (kind == "jet")) for kind, slots in zip(tree.kinds, tree.slots_per_kind, strict=True)
    )
    objects, truth = {}, np.zeros((8, len(tree.slots)), dtype=int)
    for kind, count in zip(tree.kinds, layout, strict=True):
        objects[kind] = random_values(rng, (8, count), kind, len(recipe.inputs[kind]))
        mine = [slot.index for slot in tree.slots if slot.kind == kind]
        start = tree.nodes(kind, layout).start
        truth[:, mine] = start + np.argsort(rng.random((8, count)), axis=1)[:, : len(mine)]
    if recipe.network.patterns:
        truth[4:, rng.integers(len(tree.slots), size=4)] = -1
    nodes = Nodes.full(objects)
    events = Unmasked(tree, truth, nodes.mask, rng)
    visible = draw_tokens("levels", events) if recipe.network.tokens else None
    return Examples(recipe, nodes, truth, visible, tree=tree)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_recipe_gives_every_parameter_a_gradient(path):
    recipe = load_recipe(path)
    assert parse_recipe(recipe.to_dict()) == recipe
    torch.manual_seed(0)
    network = Network(recipe.topology, recipe.network, recipe.inputs)
    with torch.no_grad():  # an output that starts at zero passes no gradient on
        for parameter in network.parameters():
            parameter.add_(0.01)
    rng = np.random.default_rng(0)
    for tree in recipe.topology.trees:
        examples = some_examples(recipe, tree, rng)
        batch = make_batch(examples, {name: LOSSES[name] for name in recipe.loss.weights})
        sums = batch.sums(network, network(batch.objects, None, batch.tokens))
        torch.stack(list(sums.values())).sum().backward()
    without = {name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()}
    if "masked_edges" not in recipe.loss.weights:  # what is added to every logit of a type cancels
        without -= {f"heads.edges.layers.{k}.2.bias" for k in range(len(recipe.topology.types))}
    assert without == set()


def test_the_rows_of_the_ablation_tables():
    rows = {path.stem: load_recipe(path) for path in (FOLDER / "ablations").iterdir()}
    paper = load_recipe(FOLDER / "paper.yaml")
    assert rows["iterative_3_step"] == paper
    assert {name: recipe.network.blocks for name, recipe in rows.items()} == {
        "transformer": 8, "biased_transformer": 6, "one_shot": 4, "iterative_3_step": 4, "object_sum": 4,
        "hyper": 4, "iterative_4_step": 4, "deep_one_shot": 12,
    }  # fmt: skip
    assert [str(stage) for stage in rows["iterative_4_step"].topology.stages] == ["W", "W", "t", "t"]
    assert {name for name, recipe in rows.items() if recipe.network.tokens} == {
        "iterative_3_step",
        "iterative_4_step",
    }
    assert {recipe.decoding for recipe in rows.values()} == {"steps", "one_shot", "exact", "hyper"}
    assert all(recipe.optimiser == paper.optimiser for recipe in rows.values())


def test_built_in_recipes_go_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_recipe("cpu") == load_recipe(FOLDER / "cpu.yaml")
    assert load_recipe("ablations/one_shot") == load_recipe(FOLDER / "ablations" / "one_shot.yaml")
    (tmp_path / "own.yaml").write_text("base: cpu\nrun: {seed: 5}\n")
    assert load_recipe("own.yaml") == load_recipe("cpu").with_run(seed=5)
    known = "cpu, .*iterative, .*paper, .*ablations/"
    with pytest.raises(ConfigError, match=f"no recipe 'cpuu'.*{known}.*mean 'cpu'"):
        load_recipe("cpuu")


def test_the_potential_of_cpu_follows_the_tree():
    assert load_recipe("cpu").network.triplets == "potential"
    plain = load_recipe("cpu", topology="hh4b")
    assert (plain.network.triplets, plain.topology.name) == ("none", "hh4b")
    Network(plain.topology, plain.network)  # was refused: no particle of three jets
    edges = parse_recipe({**load_recipe("cpu").to_dict(), "network": {"triplets": "auto"}, "loss": {}})
    assert edges.network.triplets == "none"  # nothing would train it


def write(folder, name="recipe.yaml", **sections):
    base = {"topology": "ttbar_allhad", "optimiser": {"steps": 10}}
    path = folder / name
    path.write_text(yaml.safe_dump(base | sections))
    return path


def test_overrides_merge_setting_by_setting(tmp_path):
    write(tmp_path, "one.yaml", network={"blocks": 3, "pair_width": 32}, optimiser={"epochs": 5, "batch": 64})
    (tmp_path / "two.yaml").write_text("base: one.yaml\nnetwork: {blocks: 2}\noptimiser: {steps: 7}\n")
    recipe = load_recipe(tmp_path / "two.yaml")
    assert (recipe.network.blocks, recipe.network.pair_width) == (2, 32)
    assert (recipe.optimiser.steps, recipe.optimiser.epochs, recipe.optimiser.batch) == (7, None, 64)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"netwrk": {}}, "no setting 'netwrk'; did you mean 'network'"),
        ({"optimiser": {"steps": 5, "learning_rte": 1}}, "did you mean 'learning_rate'"),
        ({"optimiser": {"steps": 5, "learning_rate": "fast"}}, "learning_rate is 'fast', but must be a number"),
        ({"optimiser": {}}, "either epochs or steps"),
        ({"optimiser": {"steps": 5, "batch": 0}}, "optimiser.batch is 0, but must be a whole number at least 1"),
        ({"optimiser": {"steps": 0}}, "optimiser.steps is 0, but must be a whole number at least 1"),
        ({"optimiser": {"steps": 5, "beta2": 1.0}}, "beta2 is 1.0, but must be a number at least 0 and below 1"),
        ({"optimiser": {"steps": 5, "weight_decay": -1}}, "optimiser.weight_decay is -1"),
        ({"loss": {"likelihood_bound": 10**8}}, "likelihood_bound is 100000000, but must be a whole number"),
        ({"data": {"events": "some"}}, "data.events is 'some', but must be one of complete, partial, all"),
        ({"network": {"patterns": True}}, "network.patterns is trained only by loss.event_likelihood"),
        ({"data": {"validation_events": 0}}, "validation_events is 0, but must be a whole number at least 1"),
        ({"topology": None}, "topology reads None"),
        ({"topology": ["t", "t"]}, "topology reads \\['t', 't'\\]"),
        ({"loss": {"masked_edges": 0}}, "no weight above 0"),
        ({"loss": {"triplets": 1}}, "loss.triplets trains the head of network.triplets: object_sum, but"),
        ({"loss": {"hyper": 1}}, "loss.hyper trains the head of network.triplets: hyper, but"),
        (
            {"network": {"tokens": False}, "loss": {"event_likelihood": 1, "triplets": 1}},
            "loss.triplets trains the head of network.triplets: object_sum, but",
        ),
        (
            {"network": {"tokens": False, "triplets": "potential"}, "loss": {"event_likelihood": 1, "hyper": 1}},
            "loss.hyper trains the head of network.triplets: hyper, but",
        ),
        ({"run": {"precision": "64-true"}}, "run.precision is '64-true', but must be one of 32-true, bf16-mixed"),
        ({"network": {"triplets": "hyper"}}, "network.triplets hyper is trained only by loss.hyper or"),
        ({"loss": {"masking": "level"}}, "loss.masking is 'level', but must be one of levels, particles, edges"),
        ({"network": {"triplets": "potential"}}, "trained only by loss.event_likelihood"),
        ({"network": [1]}, "must be a mapping"),
        ({"loss": {"event_likelihood": 1}}, "networks that answer in one pass: set network.tokens: false"),
        (
            {
                "network": {"tokens": False},
                "loss": {"masked_edges": 0, "event_likelihood": 1},
                "data": {"events": "partial"},
            },
            "data.events is partial, but without network.patterns, .* set network.patterns: true, or data.events",
        ),
        ({"data": {"train_fraction": 0.9, "validation_fraction": 0.2}}, "at most 1"),
        ({"data": {"max_objects": 40}}, "max_objects is 40, but must be a whole number at least 1 and at most 32"),
        ({"run": {"devices": 0}}, "run.devices is 0"),
        ({"run": {"compile": "yes"}}, "true or false"),
        ({"stages": [["Z"]]}, "'Z'"),
        ({"topology": "ttbar_alhad"}, "ttbar_allhad"),
    ],
)
def test_mistakes_are_named(tmp_path, sections, message):
    with pytest.raises((ConfigError, TopologyError), match=message) as caught:
        load_recipe(write(tmp_path, **sections))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: recipe.yaml\n", "is `base` a circle"),
        ("- a list\n", "must be a mapping with the keys base, topology"),
        ("network: {\n", "not readable as YAML"),
        ("network: {}\n", "lacks topology, optimiser"),
        ("base: nowhere.yaml\n", "no recipe 'nowhere.yaml': neither a file nor built in"),
    ],
)
def test_files_that_are_no_recipes(tmp_path, text, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_recipe(path)
    assert "\n" not in str(caught.value)


def test_events_beyond_the_exact_sums_are_left_out():
    plain = {"topology": "tttt_allhad", "optimiser": {"steps": 1}}
    exact = plain | {"network": {"tokens": False}, "loss": {"masked_edges": 0, "event_likelihood": 1}}
    missing = exact | {"network": {"tokens": False, "patterns": True}, "data": {"events": "all"}}
    assert [parse_recipe(raw).max_objects for raw in (plain, exact, missing)] == [(20,), (19,), (16,)]
    fewer = exact | {"data": {"max_objects": 14}}
    assert parse_recipe(fewer).max_objects == (14,)


def test_a_recipe_may_widen_the_selection_of_a_built_in_topology():
    recipe = load_recipe("ttbar_semilep")
    assert recipe.topology.selection.cuts("jet").pt == 20
    assert same_tree(recipe.topology, load_topology("ttbar_semilep"))
    assert parse_recipe(recipe.to_dict()) == recipe
