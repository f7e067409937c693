"""Reads Lightning checkpoints of the paper's authors as networks of ours."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import torch
from torch import Tensor

from pairton.errors import ModelError, PairtonError
from pairton.events.domain import Domain, KindDomain
from pairton.events.inputs import Inputs
from pairton.models.storage import ModelInfo, save_model
from pairton.network.config import NetworkConfig
from pairton.network.network import Network
from pairton.topology import Topology, load_topology, parse_topology

__all__ = ["authors_config", "authors_weights", "import_checkpoint", "load_checkpoint"]

# parts of the authors' names -> ours, in this order
NAMES = (
    (r"^_single_embed\.", "embedding.jets."),
    (r"^_sequence_to_pair_embed\.0\._linears\.", "embedding.sides."),
    (r"^_sequence_to_pair_embed\.1\.", "embedding.of_sides.0."),
    (r"^_sequence_to_pair_embed\.3\.", "embedding.of_sides.2."),
    (r"^_pair_to_pair_embed\.", "embedding.pairs."),
    (r"^_(\w)_adjacency_embedding\.", r"embedding.tokens.\1."),
    (r"^_sequence_model\._model\._(blocks|layers)\.", "blocks."),
    (r"^_post_model_sequence_norm\.weight", "readout.single.0.scale"),
    (r"^_sequence_to_pair_output_embed\._linears\.0\.", "readout.single.1."),
    (r"^_pair_to_output\.", "heads.edges.layers."),
    (r"triangle_(multiplication|attention)_", ""),
    (r"(pair|single)_mlp\.", r"\1_layers."),
    (r"single_attention\.", "attention."),
    (r"_?attention\.layer_scale", "attention_scale"),
    (r"_feed_forward\.layer_scale", "layers_scale"),
    (r"_?attention\.wrapped_component\.", "attention."),
    (r"_feed_forward\.wrapped_component\.", "layers."),
    (r"_in_block\.linear\.", "0."),
    (r"_out_block\.linear\.", "2."),
    (r"net\.0\.", "expand."),
    (r"net\.2\.", "contract."),
    (r"_ab_proj\.", "sides."),
    (r"_gate(_proj\.1|\.0)\.", "gate."),
    (r"_qkv_proj\.(_qkv_linear\.)?", "query_key_value."),
    (r"_qk_norm\.q_norm\.weight", "norm_query.scale"),
    (r"_qk_norm\.k_norm\.weight", "norm_key.scale"),
    (r"_pre_norm_bias\.weight", "bias.0.scale"),
    (r"(attention)\._bias_proj\.", r"\1.bias.1."),
    (r"_bias_proj\.", "bias."),
    (r"_out_proj\.", "out."),
    (r"_(pre_)?norm\.weight", "norm.scale"),
)
TYPES = ("t", "W")  # the order of their outputs
UNUSED = "_pre_mlp_norm.weight"  # their deep networks have it and never call it


def authors_weights(state: Mapping[str, Tensor], topology: Topology) -> dict[str, Tensor]:
    """The weights of an authors' network under our names; outputs in the order of the topology's types."""
    order = torch.tensor([TYPES.index(name) for name in topology.types])
    weights = {}
    for name, tensor in state.items():
        if name.endswith(UNUSED):
            continue
        for pattern, ours in NAMES:
            name = re.sub(pattern, ours, name)
        for k, particle in enumerate(topology.types):
            name = name.replace(f"tokens.{particle.lower()}.", f"tokens.{k}.")
        weights[name] = tensor[order] if name.startswith("heads.edges.layers.2.") else tensor
    return weights


def authors_config(state: Mapping[str, Tensor], tokens: bool) -> NetworkConfig:
    """The architecture and sizes of an authors' network, from the names and shapes of its weights."""
    names = " ".join(state)
    if "_blocks." in names:
        architecture = "authors"
    else:
        architecture = "authors_biased" if "._attention." in names else "authors_transformer"
    first = {re.sub(r"^.*?_model\._\w+\.0\.", "", name): tensor for name, tensor in state.items()}

    def rows(*endings: str) -> int | None:
        return next((len(tensor) for name, tensor in first.items() if name.endswith(endings)), None)

    width = len(state["_single_embed.0.weight"])
    head_width = rows("q_norm.weight")
    single_heads = (
        width // head_width
        if head_width
        else rows("single_attention._bias_proj.weight", "wrapped_component._bias_proj.weight")
    )
    pair_heads = rows("triangle_attention_starting._bias_proj.weight")
    blocks = 1 + max(int(number) for number in re.findall(r"_model\._\w+\.(\d+)\.", names))
    sizes = {
        "single_heads": single_heads,
        "pair_width": rows("_pair_to_pair_embed._out_block.linear.bias"),
        "pair_heads": pair_heads,
    }
    return NetworkConfig(
        architecture=architecture,
        blocks=blocks,
        single_width=width,
        tokens=tokens,
        **{name: size for name, size in sizes.items() if size is not None},  # type: ignore[arg-type]
    )


def load_checkpoint(path: str | Path) -> tuple[Network, ModelInfo]:
    """Load a network, and what is known about it, without running code from the file.

    Raises ModelError if the file is not a checkpoint of a network in their published settings.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=False, pickle_module=INERT)
        state, settings = content["state_dict"], content["hyper_parameters"].get("diffusion_config", {})
        settings = settings if isinstance(settings, Mapping) else vars(settings)
        tokens = bool(settings.get("use_discrete_diffusion", False))
        topology = load_topology("ttbar_allhad")
        if settings.get("use_split_b_prediction"):
            topology = parse_topology({**topology.to_dict(), "stages": [["W"], ["W"], ["t"], ["t"]]}, str(path))
        network = Network(topology, authors_config(state, tokens))
        network.load_state_dict(authors_weights(state, topology))
    except PairtonError:
        raise
    except Exception as error:  # pickle, zipfile and torch raise exceptions of their own
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{path}: not a checkpoint of the authors' pairformer or transformers in their published settings "
            f"({reason[:200]}): give the best.ckpt of one of these"
        ) from None
    domain = Domain({"jet": KindDomain(count=(6, 20), radius=0.4, binary=("btag",))})
    config, inputs = network.config.to_dict(), Inputs.default(topology)
    decoding = "steps" if tokens else "one_shot"
    return network.eval(), ModelInfo(topology, config, domain, inputs, network.outputs, decoding)


def import_checkpoint(path: str | Path, folder: Path) -> Path:
    """Write the network of a checkpoint as a model folder, and return the folder."""
    network, info = load_checkpoint(path)
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, {name: value.numpy() for name, value in network.state_dict().items()}, info)
    return folder


class _Inert:
    """Stands for any object of a class that is not torch's: it keeps its state and does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        vars(self)[str(key)] = value

    def append(self, value: Any) -> None:
        """Of a list, whose entries nobody needs."""


class _Unpickler(pickle.Unpickler):
    """Builds tensors and containers, and inert objects in place of all others."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ALLOWED or (module == "torch" and name.endswith("Storage")):
            return super().find_class(module, name)
        return _Inert


def _load(file: IO[bytes], **options: Any) -> Any:
    return _Unpickler(file, **options).load()


ALLOWED = {
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("collections", "OrderedDict"),
}
INERT = SimpleNamespace(Unpickler=_Unpickler, load=_load, __name__="pickle")
