"""The settings of a network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from pairton.errors import ConfigError
from pairton.network.trunks import get_trunk

__all__ = ["NetworkConfig"]

Size: TypeAlias = Annotated[int, Meta(ge=1, le=4096)]


@dataclass(frozen=True)
class NetworkConfig:
    """The architecture and size of a network. The defaults are those of the paper.

    >>> NetworkConfig(pair_width=30)
    Traceback (most recent call last):
    pairton.errors.ConfigError: network.pair_width is 30, but must be a multiple of pair_heads, 4
    """

    architecture: str = "pairformer"  # a trunk: pairformer, symmetric, transformer, biased_transformer
    blocks: Size = 4
    single_width: Size = 128
    single_heads: Size = 8
    pair_width: Size = 64
    pair_heads: Size = 4
    triangle_width: Size | None = None  # channels of triangle multiplications; null: pair_width
    transition: Size = 2  # hidden width of a transition (two-layer network), as a multiple of its width
    # rate at which whole rows or columns of pair updates are dropped
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.25
    tokens: bool = True  # whether particles that are already revealed are an input
    pair_features: Literal["paper", "reference", "symmetric"] = "paper"  # a symmetric network has its own
    objects_into_pairs: bool = False  # add A x_i + B x_j to ordered pairs z_ij; symmetric networks always do
    single_stream: bool = True
    triangle_multiplication: bool = True
    triangle_attention: bool = True
    gates: bool = True  # in triangle multiplications and transitions; only a symmetric network may lack them
    edges_from: Literal["single", "pair", "both"] = "single"  # embeddings that edges are read from
    triplets: Literal["none", "potential", "object_sum", "hyper"] = "none"  # scores particles of three objects
    potential_width: Size | None = None  # channels of the potential of triplets; null: those of pairs
    # true: one score per pattern (which particles are present) of the topology; presence: scores of what is
    # present, from which those of the patterns of any topology follow; false: all particles are present
    patterns: bool | Literal["presence"] = False
    heads: tuple[str, ...] = ()  # registered names of further heads

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", tuple(self.heads))  # JSON has lists
        trunk = get_trunk(self.architecture)
        for stream in ("single", "pair"):
            width, heads = getattr(self, f"{stream}_width"), getattr(self, f"{stream}_heads")
            if width % heads:
                raise ConfigError(
                    f"network.{stream}_width is {width}, but must be a multiple of {stream}_heads, {heads}"
                )
        if not self.gates and trunk.needs_gates:
            raise ConfigError(
                f"network.architecture {self.architecture} has gates: set gates: true, or architecture: symmetric"
            )
        if self.objects_into_pairs and trunk.pairs != "ordered":
            raise ConfigError(
                f"network.objects_into_pairs is for ordered pairs, which {self.architecture} does not have: "
                "leave it out"
            )
        if trunk.pairs is None and (self.tokens or self.edges_from != "single"):
            raise ConfigError(
                f"network.architecture {trunk.name} has no pairs: set tokens: false and edges_from: single"
            )
        if not self.has_singles and (self.edges_from != "pair" or self.scores_triplets):
            raise ConfigError(
                "network.single_stream is false, so objects have no embeddings: set edges_from: pair and "
                "triplets: none or potential"
            )

    @property
    def scores_triplets(self) -> bool:
        """Whether the score of a triplet replaces the edges of its type, instead of being added to them."""
        return self.triplets in ("object_sum", "hyper")

    @property
    def has_singles(self) -> bool:
        """Whether heads can use embeddings of nodes."""
        return get_trunk(self.architecture).has_singles(self)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
