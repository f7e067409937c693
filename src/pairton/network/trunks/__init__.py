"""The trunks of networks, by name. Register one of your own with `register_trunk`."""

from pairton._common.configuration import register
from pairton.errors import ConfigError, nearest, shown
from pairton.network.trunks.pair_index import PairIndex
from pairton.network.trunks.pairformer import Pairformer
from pairton.network.trunks.symmetric import Symmetric
from pairton.network.trunks.transformer import BiasedTransformer, Transformer
from pairton.network.trunks.trunk import Trunk

__all__ = ["TRUNKS", "PairIndex", "Trunk", "get_trunk", "register_trunk"]

TRUNKS: dict[str, type[Trunk]] = {
    trunk.name: trunk for trunk in (Pairformer, Symmetric, Transformer, BiasedTransformer)
}


def register_trunk(trunk: type[Trunk]) -> type[Trunk]:
    """Make a trunk available as `network.architecture`, under its name. Use it as a decorator."""
    register(TRUNKS, trunk.name, trunk, "trunk")
    return trunk


def get_trunk(name: str) -> type[Trunk]:
    """Return the trunk registered under a name."""
    if name not in TRUNKS:
        raise ConfigError(
            f"network.architecture is {shown(name)}, but must be one of {', '.join(TRUNKS)}{nearest(name, TRUNKS)}"
        )
    return TRUNKS[name]
