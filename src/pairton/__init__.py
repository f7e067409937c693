"""Pairton: which jet came from which particle."""

from pairton._version import __version__
from pairton.topology import Topology, load_topology

__all__ = ["Topology", "__version__", "load_topology"]
