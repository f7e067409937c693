"""Pairton assigns jets, leptons and missing energy to the particles they came from.

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
    from pairton.evaluation.evaluating import evaluate
    from pairton.events import Events, Status
    from pairton.events.objects import make_jets, make_met, make_objects
    from pairton.formats import iterate, read
    from pairton.making import generate, train
    from pairton.models.model import Model, load_model
    from pairton.reconstruction.result import Reconstruction
    from pairton.reconstruction.running import reconstruct, reconstruct_files
    from pairton.topology import Topology, load_topology

_PUBLIC = {
    "Events": "pairton.events.events",
    "Model": "pairton.models.model",
    "Reconstruction": "pairton.reconstruction.result",
    "Status": "pairton.events.nodes",
    "Topology": "pairton.topology",
    "evaluate": "pairton.evaluation.evaluating",
    "generate": "pairton.making",
    "iterate": "pairton.formats",
    "load_model": "pairton.models.model",
    "load_topology": "pairton.topology",
    "make_jets": "pairton.events.objects",
    "make_met": "pairton.events.objects",
    "make_objects": "pairton.events.objects",
    "read": "pairton.formats",
    "reconstruct": "pairton.reconstruction.running",
    "reconstruct_files": "pairton.reconstruction.running",
    "train": "pairton.making",
}

__all__ = [
    "Events",
    "Model",
    "Reconstruction",
    "Status",
    "Topology",
    "__version__",
    "evaluate",
    "generate",
    "iterate",
    "load_model",
    "load_topology",
    "make_jets",
    "make_met",
    "make_objects",
    "read",
    "reconstruct",
    "reconstruct_files",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'pairton' has no attribute {name!r}")
    import_module("vector").register_awkward()  # gives momenta mass, deltaR and sums; takes 0.5 s
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
