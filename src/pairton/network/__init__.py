"""Networks (torch only): features, blocks, heads, and the assembled network with its configuration."""

from pairton.network.config import NetworkConfig
from pairton.network.network import Network, NetworkOutput

__all__ = ["Network", "NetworkConfig", "NetworkOutput"]
