"""Pairton: which jet came from which particle.

    import pairton

    events = pairton.read("ttbar.h5")
    reco = pairton.reconstruct(events)
    reco.t.mass

Names are imported when they are first used, so that `import pairton` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pairton._version import __version__

if TYPE_CHECKING:
    from pairton.engines import Model, load_model
    from pairton.events import Events, Status
    from pairton.formats import iterate, read
    from pairton.jets import make_jets
    from pairton.reconstruction import Reconstruction, reconstruct
    from pairton.topology import Topology, load_topology

_PUBLIC = {
    "Events": "pairton.events",
    "Model": "pairton.engines",
    "Reconstruction": "pairton.reconstruction",
    "Status": "pairton.events",
    "Topology": "pairton.topology",
    "iterate": "pairton.formats",
    "load_model": "pairton.engines",
    "load_topology": "pairton.topology",
    "make_jets": "pairton.jets",
    "read": "pairton.formats",
    "reconstruct": "pairton.reconstruction",
}

__all__ = [
    "Events",
    "Model",
    "Reconstruction",
    "Status",
    "Topology",
    "__version__",
    "iterate",
    "load_model",
    "load_topology",
    "make_jets",
    "read",
    "reconstruct",
]


_MODULES = ("decoding", "isolation", "metrics", "report", "streaming")  # as in `pairton.streaming.…`


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"pairton.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'pairton' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
