"""Numbers that the authors' own code gave: our network, losses, tokens, decodings and schedule give the same.

The numbers (`reference.npz`) are not distributed; without them these tests are skipped.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from pairton.decoding import decode
from pairton.decoding.graph import visible_tokens
from pairton.events.nodes import Nodes
from pairton.network import Network, authors
from pairton.network.authors_weights import authors_config, authors_weights
from pairton.network.engine import predictor
from pairton.topology import parse_topology

training = pytest.importorskip("pairton.training")
from pairton.training.losses import LOSSES, Examples  # noqa: E402
from pairton.training.masking import level_states  # noqa: E402
from pairton.training.optimising import learning_rate  # noqa: E402

REFERENCE = Path(__file__).parents[3] / "shared" / "authors" / "reference.npz"
pytestmark = pytest.mark.skipif(not REFERENCE.exists(), reason="needs the reference numbers of the authors' code")

RECIPE = training.load_recipe("authors")
TTBAR = RECIPE.topology
FOUR_STEPS = parse_topology({**TTBAR.to_dict(), "stages": [["W"], ["W"], ["t"], ["t"]]})
TYPES = {"W": "w", "t": "t"}  # type -> in the names of the reference
LAYERS = {  # of a block -> in the names of the reference
    "outgoing": "triangle_multiplication_outgoing",
    "incoming": "triangle_multiplication_incoming",
    "starting": "triangle_attention_starting",
    "ending": "triangle_attention_ending",
    "pair_layers": "pair_mlp",
    "attention": "single_attention",
    "single_layers": "single_mlp",
}
CASES = [  # network, level of its tokens
    *[(name, level) for name in ("tiny_iterative", "full_iterative") for level in range(4)],
    *[(name, None) for name in ("tiny_oneshot", "tiny_bias", "tiny_plain", "full_oneshot")],
]
ONE_SHOT = ["tiny_oneshot", "tiny_bias", "tiny_plain"]


@pytest.fixture(scope="module")
def numbers():
    with np.load(REFERENCE) as file:
        return {name: torch.tensor(file[name]) for name in file.files}


@pytest.fixture
def same_pairs(numbers, monkeypatch):
    """Masses lose digits in single precision, in an order of operations that may differ: start from theirs."""
    monkeypatch.setattr(authors, "pair_features", lambda _: numbers["inputs/pair_features"])


def load(numbers, name):
    start = f"weights/{name.replace('full_oneshot', 'full_iterative')}/"
    state = {key.removeprefix(start): value for key, value in numbers.items() if key.startswith(start)}
    network = Network(TTBAR, authors_config(state, tokens=name.endswith("iterative"))).eval()
    network.load_state_dict(authors_weights(state, TTBAR))
    return network


def stacked(numbers, pattern):
    """(12, T, 10, 10), in the order of our types."""
    return torch.stack([numbers[pattern.format(TYPES[kind])] for kind in TTBAR.types], dim=1)


def edges_of(network, numbers, level, dtype=torch.float32):
    tokens = None if level is None else stacked(numbers, f"tokens/level{level}/{{}}")
    jets, mask = {"jet": numbers["inputs/jets"].to(dtype)}, {"jet": numbers["inputs/mask"]}
    return network.to(dtype)(jets, mask, tokens)["edges"]


def real(numbers, values):
    """The entries between real jets, or of real jets."""
    mask = numbers["inputs/mask"]
    pairs = mask[:, :, None] & mask[:, None]
    if values.shape[1:] == (len(TTBAR.types), *pairs.shape[1:]):
        return values.movedim(1, -1)[pairs]
    return values[mask if values.ndim == 3 else pairs]


def truth_of(numbers):
    """(12, S): b, q1, q2 of each top, in the order of our slots."""
    return numbers["inputs/groups"][:, :, [1, 2, 0]].flatten(1).numpy()


# -- the network -------------------------------------------------------------------------------------------


def test_features(numbers):
    features = authors.node_features(numbers["inputs/jets"])
    torch.testing.assert_close(*(real(numbers, x) for x in (features, numbers["inputs/features"])))
    pairs = authors.pair_features(numbers["inputs/features"].double())
    expected = real(numbers, numbers["inputs/pair_features64"])
    torch.testing.assert_close(real(numbers, pairs), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("name", "level"), CASES)
def test_outputs(numbers, name, level, monkeypatch):
    network, where = load(numbers, name), name if level is None else f"{name}/level{level}"
    singles = []
    network.readout.single[0].register_forward_hook(lambda _, __, output: singles.append(output))
    # their double precision starts from features in single precision
    monkeypatch.setattr(authors, "node_features", lambda jets: numbers["inputs/features"].to(jets.dtype))
    with torch.no_grad():
        double = edges_of(network, numbers, level, torch.float64)
        expected = stacked(numbers, f"outputs64/{where}/logits_{{}}")
        torch.testing.assert_close(real(numbers, double), real(numbers, expected), atol=1e-12, rtol=0)
        monkeypatch.setattr(authors, "pair_features", lambda _: numbers["inputs/pair_features"])
        single = edges_of(network, numbers, level)
    expected = stacked(numbers, f"outputs/{where}/logits_{{}}")
    torch.testing.assert_close(real(numbers, single), real(numbers, expected), atol=1e-5, rtol=0)
    if f"outputs/{where}/single" in numbers:
        expected = numbers[f"outputs/{where}/single"]
        torch.testing.assert_close(real(numbers, singles[1]), real(numbers, expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("level", range(4))
def test_intermediate_tensors(numbers, level, same_pairs):
    network, found = load(numbers, "tiny_iterative"), {}

    def keep(*names):
        def hook(_, __, output):
            found.update(zip(names, output if isinstance(output, tuple) else [output], strict=True))

        return hook

    network.embedding.register_forward_hook(keep("single0", "pair0"))
    for k, block in enumerate(network.blocks):
        block.register_forward_hook(keep(f"single{k + 1}", f"pair{k + 1}"))
    for ours, theirs in LAYERS.items():
        network.blocks[0].get_submodule(ours).register_forward_hook(keep(f"block0/{theirs}"))
    with torch.no_grad():
        edges_of(network, numbers, level)
    start = f"trace/tiny_iterative/level{level}/"
    names = [name.removeprefix(start) for name in numbers if name.startswith(start)]
    assert len(names) == (13 if level == 1 else 6)
    for name in names:
        pair = real(numbers, found[name]), real(numbers, numbers[start + name])
        torch.testing.assert_close(*pair, atol=1e-5, rtol=1e-5, msg=name)  # entries up to a thousand


# -- tokens and losses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", range(4))
def test_tokens_are_those_of_a_state_of_the_level(numbers, level):
    truth, mask = truth_of(numbers), numbers["inputs/mask"].numpy()
    pairs = (mask[:, :, None] & mask[:, None])[:, None]
    theirs = stacked(numbers, f"tokens/level{level}/{{}}").numpy()
    states = FOUR_STEPS.levels[level]
    ours = [visible_tokens(FOUR_STEPS, truth, np.tile(state, (len(truth), 1)), mask) for state in states]
    equal = np.stack([np.where(pairs, tokens == theirs, True).all(axis=(1, 2, 3)) for tokens in ours])
    assert equal.sum(axis=0).tolist() == [1] * len(truth)


KINDS = {"diffusion": "masked", "next_step": "next", "oneshot": "drawn"}  # their losses -> ours


def loss_of(numbers, name, kind, tokens):
    """Sums over the events (12,), the entries that count (12, T, 10, 10), and the network."""
    network, topology = load(numbers, name), FOUR_STEPS if kind == "next_step" else TTBAR
    raw = {**RECIPE.to_dict(), "topology": topology.to_dict()}
    raw["network"] = network.config.to_dict()
    raw["loss"] = {**raw["loss"], "entries": KINDS[kind]}
    nodes = Nodes({"jet": numbers["inputs/jets"].numpy()}, {"jet": numbers["inputs/mask"].numpy()})
    visible = stacked(numbers, f"tokens/{tokens}/{{}}").numpy().astype(np.uint8)
    examples = Examples(training.parse_recipe(raw), nodes, truth_of(numbers), visible)
    loss = LOSSES["masked_edges"]
    target = {key: torch.as_tensor(np.array(value)) for key, value in loss.target(examples).items()}
    shown = None if examples.tokens is None else torch.as_tensor(examples.tokens)
    outputs = network({"jet": numbers["inputs/jets"]}, {"jet": numbers["inputs/mask"]}, shown)
    return loss.per_event(network, outputs, target), target["counted"], network


LOSS_CASES = [
    *[("tiny_iterative", "diffusion", tokens) for tokens in ("level0", "level1", "level2", "mixed3")],
    *[("tiny_iterative", "next_step", f"level{k}") for k in range(4)],
    ("tiny_iterative", "next_step", "mixed4"),
    *[(name, "oneshot", tokens) for name in ONE_SHOT for tokens in ("level0", "level1", "level2", "mixed3")],
]


@pytest.mark.parametrize(("name", "kind", "tokens"), LOSS_CASES)
def test_losses_and_their_gradients(numbers, name, kind, tokens, same_pairs):
    sums, counted, network = loss_of(numbers, name, kind, tokens)
    counts = counted.sum(dim=(2, 3))
    where = f"loss/{name}/{kind}/{tokens}"
    assert torch.equal(counts, numbers[f"{where}/sums_and_counts"][:, [1, 3]].long())
    per_event = sums / counts.sum(dim=1)
    torch.testing.assert_close(per_event, numbers[f"{where}/per_event"], atol=1e-5, rtol=0)
    batch = sums.sum() / counts.sum()
    torch.testing.assert_close(batch.reshape(1), numbers[f"{where}/batch"], atol=1e-5, rtol=0)
    if tokens != "mixed3":
        return
    batch.backward()
    start = f"grad/{name}/"
    theirs = {key.removeprefix(start): value for key, value in numbers.items() if key.startswith(start)}
    for key, expected in authors_weights(theirs, TTBAR).items():
        found = network.get_parameter(key).grad
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4, msg=key)


def test_schedule(numbers):
    steps, expected = numbers["schedule/step"].tolist(), numbers["schedule/learning_rate"].tolist()
    found = [learning_rate(RECIPE.optimiser, int(step), 826_000) for step in steps]
    assert found == pytest.approx(expected, rel=1e-6)


def test_levels_are_drawn_with_equal_probabilities():
    assert level_states(TTBAR)[1].tolist() == pytest.approx([1 / 3, 1 / 2, 2 / 3, 1])
    assert level_states(FOUR_STEPS)[1].tolist() == pytest.approx([1 / 4, 3 / 8, 1 / 2, 3 / 4, 7 / 8, 1])


# -- decodings ---------------------------------------------------------------------------------------------

DECODINGS = {"3step": (TTBAR, "steps"), "4step": (FOUR_STEPS, "steps"), "oneshot": (TTBAR, "one_shot")}


def tops(q1, q2, b):
    return frozenset([frozenset([q1, q2]), b])


def answers(rows):
    """Assignments (B, 6) as sets of tops: the quarks of a W, and the tops, have no order."""
    return [{tops(*row[:3]), tops(*row[3:])} for row in np.asarray(rows).tolist()]


def theirs(numbers, where):
    top = [numbers[f"{where}/top{k}"].numpy() for k in (1, 2)]
    return answers(np.concatenate([top[0][:, [1, 2, 0]], top[1][:, [1, 2, 0]]], axis=1)), np.stack(top, axis=1)


def weighted(edges, weight):
    """Their code counts the edge of a W twice in its gain; the paper once."""
    off_diagonal = ~np.eye(edges.shape[-1], dtype=bool)
    weights = np.where(off_diagonal & (np.arange(len(TTBAR.types)) == 0)[:, None, None], weight, 1)
    return {"edges": (edges * weights).astype(np.float32)}


@pytest.mark.parametrize("weight", [1, 2])
@pytest.mark.parametrize("decoding", DECODINGS)
def test_decodings(numbers, decoding, weight):
    mask = numbers["decode/mask"].numpy()
    calls = iter(range(1, 5))

    def network(nodes, tokens):
        logits = numbers[f"decode/logits_call{next(calls)}"].numpy()[..., [1, 0]]
        return weighted(np.moveaxis(logits, -1, 1), weight)

    topology, name = DECODINGS[decoding]
    nodes = Nodes({"jet": np.zeros((*mask.shape, 5), np.float32)}, {"jet": mask})
    found = answers(decode(network, topology, nodes, decoding=name).assignment)
    expected, jets = theirs(numbers, f"decode/{decoding}_weight{weight}")
    inside = np.take_along_axis(mask, jets.reshape(len(mask), 6), axis=1).all(axis=1)
    assert inside.all() or decoding == "oneshot"  # where their code may choose padding
    assert inside.sum() > 90
    assert [one for one, ok in zip(found, inside, strict=True) if ok] == [
        one for one, ok in zip(expected, inside, strict=True) if ok
    ]


@pytest.mark.parametrize("weight", [1, 2])
@pytest.mark.parametrize(
    ("name", "decoding"),
    [("tiny_iterative", "3step"), ("tiny_iterative", "4step"), *((name, "oneshot") for name in ONE_SHOT)],
)
def test_whole_inference(numbers, name, decoding, weight, same_pairs):
    predict, mask = predictor(load(numbers, name)), numbers["inputs/mask"].numpy()
    topology, ours = DECODINGS[decoding]
    nodes = Nodes({"jet": numbers["inputs/jets"].numpy()}, {"jet": mask})

    def network(nodes, tokens):
        return weighted(predict(nodes, tokens)["edges"], weight)

    decoded = decode(network, topology, nodes, decoding=ours, record=True)
    where = f"predict/{name}/{decoding}_weight{weight}"
    expected, jets = theirs(numbers, where)
    same = np.take_along_axis(mask, jets.reshape(len(mask), 6), axis=1).all(axis=1)
    for k, step in enumerate(decoded.steps if decoding != "oneshot" else [], 1):
        shown = stacked(numbers, f"{where}/call{k}/{{}}")
        equal = real(numbers, torch.as_tensor(step.tokens)) == real(numbers, shown)
        if k < 4:
            assert equal.all()
        else:  # their code shows less of the first top than in training: the row and column of its b alone
            assert (real(numbers, shown)[~equal] == 2).all()
            same[:] = False
    assert same.sum() >= (0 if decoding == "4step" else 6)
    found = answers(decoded.assignment)
    assert [one for one, ok in zip(found, same, strict=True) if ok] == [
        one for one, ok in zip(expected, same, strict=True) if ok
    ]
