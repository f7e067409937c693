"""The authors' network against loops over its formulas, and the reader of their checkpoints."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pairton.errors import ConfigError, ModelError
from pairton.models.model import load_model
from pairton.network import Network, NetworkConfig
from pairton.network.authors_weights import import_checkpoint, load_checkpoint
from pairton.network.engine import load_network
from pairton.topology import load_topology
from random_objects import SMALL, random_values
from triangles import slow_attention, slow_multiplication

TTBAR = load_topology("ttbar_allhad")


def small(architecture: str, tokens: bool = False) -> Network:
    torch.manual_seed(3)
    network = Network(TTBAR, NetworkConfig(architecture=architecture, tokens=tokens, **SMALL)).double().eval()
    for parameter in network.parameters():  # nothing is zero, one, or switched off
        nn.init.uniform_(parameter, -0.8, 0.8)
    return network


def jets(n: int = 6) -> torch.Tensor:
    return torch.tensor(random_values(np.random.default_rng(4), (1, n))).double()


@pytest.mark.parametrize(
    ("architecture", "blocks", "parameters"),
    [("authors", 4, 1_303_682), ("authors_biased", 6, 1_731_330), ("authors_transformer", 8, 1_435_906)],
)
def test_number_of_parameters_is_that_of_their_code(architecture: str, blocks: int, parameters: int) -> None:
    network = Network(TTBAR, NetworkConfig(architecture=architecture, blocks=blocks, tokens=False))
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def normalised(layer, z):
    return z / torch.sqrt((z**2).mean(-1, keepdim=True) + 1.1920929e-07) * layer.norm.scale


@pytest.mark.parametrize("direction", ["outgoing", "incoming"])
def test_triangle_multiplication_by_loops(direction: str) -> None:
    layer = small("authors").blocks[0].get_submodule(direction)
    z = torch.randn(1, 4, 4, 8, dtype=torch.float64)
    y = normalised(layer, z)
    a, gate_a, b, gate_b = (y[0] @ layer.sides.weight.T).split(8, dim=-1)
    a, b = a / (1 + torch.exp(-gate_a)), b / (1 + torch.exp(-gate_b))
    expected = slow_multiplication(a, b, direction == "outgoing")
    expected *= 1 / (1 + torch.exp(-y[0])) @ layer.gate.weight.T + layer.gate.bias
    torch.testing.assert_close(layer(z, None, None)[0], expected)


@pytest.mark.parametrize("direction", ["starting", "ending"])
def test_triangle_attention_by_loops(direction: str) -> None:
    layer = small("authors").blocks[0].get_submodule(direction)
    z = torch.randn(1, 4, 4, 8, dtype=torch.float64)
    y = normalised(layer, z)[0]
    parts, bias = (y @ layer.query_key_value.weight.T).split(8, dim=-1), y @ layer.bias.weight.T
    mixed = slow_attention(*parts, bias, direction == "starting")
    gate = torch.sigmoid(y @ layer.gate.weight.T + layer.gate.bias)
    torch.testing.assert_close(layer(z, None, None)[0], (mixed * gate) @ layer.out.weight.T)


@pytest.mark.parametrize("architecture", ["authors", "authors_biased", "authors_transformer"])
def test_padding_changes_nothing_and_edges_are_symmetric(architecture: str) -> None:
    network, event = small(architecture), jets()
    alone = network({"jet": event})["edges"]
    padded = torch.cat([event, torch.full((1, 2, 5), 7.0)], dim=1)
    mask = torch.arange(8)[None] < 6
    torch.testing.assert_close(network({"jet": padded}, {"jet": mask})["edges"][..., :6, :6], alone)
    torch.testing.assert_close(alone, alone.transpose(-1, -2))
    order = [3, 1, 0, 5, 4, 2]
    torch.testing.assert_close(network({"jet": event[:, order]})["edges"], alone[:, :, order][..., order])


def test_a_network_without_tokens_looks_up_the_masked_one() -> None:
    with_tokens, without = small("authors", tokens=True), small("authors")
    masked = torch.full((1, 2, 6, 6), 2)
    torch.testing.assert_close(
        with_tokens({"jet": jets()}, tokens=masked)["edges"], without({"jet": jets()})["edges"]
    )
    assert not torch.equal(
        with_tokens({"jet": jets()}, tokens=masked * 0)["edges"], without({"jet": jets()})["edges"]
    )


def test_other_inputs_are_refused() -> None:
    with pytest.raises(ConfigError, match="takes jets with the input btag alone: set inputs"):
        Network(load_topology("ttbar_semilep"), NetworkConfig(architecture="authors"))


# -- checkpoints ---------------------------------------------------------------------------------------------

THEIRS = {  # our names -> theirs, for the layers of a pairformer with one block
    "embedding.jets.0.weight": "_single_embed.0.weight",
    "embedding.jets.2.expand.": "_single_embed.2.net.0.",
    "embedding.jets.2.contract.": "_single_embed.2.net.2.",
    "embedding.sides.": "_sequence_to_pair_embed.0._linears.",
    "embedding.of_sides.0.": "_sequence_to_pair_embed.1.",
    "embedding.of_sides.2.expand.": "_sequence_to_pair_embed.3.net.0.",
    "embedding.of_sides.2.contract.": "_sequence_to_pair_embed.3.net.2.",
    "embedding.pairs.0.": "_pair_to_pair_embed._in_block.linear.",
    "embedding.pairs.2.": "_pair_to_pair_embed._out_block.linear.",
    "embedding.tokens.0.": "_w_adjacency_embedding.",
    "embedding.tokens.1.": "_t_adjacency_embedding.",
    "blocks.0.outgoing.sides.": "triangle_multiplication_outgoing._ab_proj.",
    "blocks.0.outgoing.gate.": "triangle_multiplication_outgoing._gate_proj.1.",
    "blocks.0.outgoing.norm.scale": "triangle_multiplication_outgoing._norm.weight",
    "blocks.0.incoming.sides.": "triangle_multiplication_incoming._ab_proj.",
    "blocks.0.incoming.gate.": "triangle_multiplication_incoming._gate_proj.1.",
    "blocks.0.incoming.norm.scale": "triangle_multiplication_incoming._norm.weight",
    "blocks.0.starting.query_key_value.": "triangle_attention_starting._qkv_proj.",
    "blocks.0.starting.bias.": "triangle_attention_starting._bias_proj.",
    "blocks.0.starting.gate.": "triangle_attention_starting._gate.0.",
    "blocks.0.starting.out.": "triangle_attention_starting._out_proj.",
    "blocks.0.starting.norm.scale": "triangle_attention_starting._norm.weight",
    "blocks.0.ending.query_key_value.": "triangle_attention_ending._qkv_proj.",
    "blocks.0.ending.bias.": "triangle_attention_ending._bias_proj.",
    "blocks.0.ending.gate.": "triangle_attention_ending._gate.0.",
    "blocks.0.ending.out.": "triangle_attention_ending._out_proj.",
    "blocks.0.ending.norm.scale": "triangle_attention_ending._norm.weight",
    "blocks.0.pair_layers.0.": "pair_mlp._in_block.linear.",
    "blocks.0.pair_layers.2.": "pair_mlp._out_block.linear.",
    "blocks.0.attention.norm.scale": "single_attention._pre_norm.weight",
    "blocks.0.attention.bias.0.scale": "single_attention._pre_norm_bias.weight",
    "blocks.0.attention.bias.1.": "single_attention._bias_proj.",
    "blocks.0.attention.query_key_value.": "single_attention._qkv_proj.",
    "blocks.0.attention.gate.": "single_attention._gate.0.",
    "blocks.0.attention.out.": "single_attention._out_proj.",
    "blocks.0.single_layers.0.": "single_mlp._in_block.linear.",
    "blocks.0.single_layers.2.": "single_mlp._out_block.linear.",
    "readout.single.0.scale": "_post_model_sequence_norm.weight",
    "readout.single.1.": "_sequence_to_pair_output_embed._linears.0.",
    "heads.edges.layers.": "_pair_to_output.",
}


def their_state(network: Network) -> dict[str, torch.Tensor]:
    state = {}
    for name, tensor in network.state_dict().items():
        ours = next(start for start in THEIRS if name.startswith(start))
        block = "_sequence_model._model._blocks.0." if name.startswith("blocks.") else ""
        order = [1, 0] if name.startswith("heads.edges.layers.2.") else slice(None)  # they have t first
        state[block + THEIRS[ours] + name.removeprefix(ours)] = tensor.float()[order]
    return state


class Settings:
    """Stands for a class of the authors' code, which an importer does not have."""

    def __init__(self) -> None:
        self.use_discrete_diffusion, self.use_split_b_prediction = True, True


@pytest.mark.parametrize(
    "settings", [{"use_discrete_diffusion": True, "use_split_b_prediction": True}, Settings()]
)
def test_a_checkpoint_gives_the_network_without_running_its_code(settings: object, tmp_path: Path) -> None:
    network = small("authors", tokens=True)
    content = {"state_dict": their_state(network), "hyper_parameters": {"diffusion_config": settings}}
    torch.save(content, tmp_path / "best.ckpt")
    folder = import_checkpoint(tmp_path / "best.ckpt", tmp_path / "model")
    loaded, info = load_network(folder)
    objects = {"jet": jets().float()}
    torch.testing.assert_close(loaded(objects)["edges"], network.float()(objects)["edges"])
    assert (info.decoding, len(info.topology.stages)) == ("steps", 4)
    assert load_model(folder, engine="torch").info.network["architecture"] == "authors"


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("content", [{"state_dict": {}}, {"state_dict": Harmful()}, [1], {"hyper_parameters": 3}])
def test_other_files_are_refused(content: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, "best.ckpt")
    with pytest.raises(ModelError, match=r"best\.ckpt: not a checkpoint of the authors' pairformer"):
        load_checkpoint("best.ckpt")
    assert not Path("harmed").exists()
