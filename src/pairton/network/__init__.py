"""Networks in torch: features, blocks, heads, and the assembled network with its configuration."""

from pairton.network import authors  # noqa: F401  # registers its trunks
from pairton.network.config import NetworkConfig
from pairton.network.heads import Embedding, Head, register_head
from pairton.network.network import Network

__all__ = ["Embedding", "Head", "Network", "NetworkConfig", "register_head"]
