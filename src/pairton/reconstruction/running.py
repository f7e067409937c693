"""`pairton.reconstruct`: from events in memory, or from files, to a `Reconstruction`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.events import Events
from pairton.events.acceptance import MAX_OBJECTS
from pairton.events.domain import user_cuts
from pairton.events.tags import TagTable
from pairton.formats.files import Paths
from pairton.reconstruction.assigner import windows
from pairton.reconstruction.given_objects import by_kind
from pairton.reconstruction.result import Reconstruction
from pairton.reconstruction.run import Run
from pairton.reconstruction.run_settings import RunSettings

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["RunSettings", "reconstruct"]


def reconstruct(
    events: Events | ak.Array | Mapping[str, ak.Array] | Paths,
    model: Model | str | Path | None = None,
    *,
    decoding: str | None = None,
    max_objects: int = MAX_OBJECTS,
    cuts: bool = True,
    jets: str | None = None,
    leptons: str | None = None,
    btag: TagTable | str | os.PathLike[str] | None = None,
    answer: str = "event",
    allow_absent: bool = False,
    prior: Mapping[str, float] | None = None,
    variations: Mapping[str, ak.Array | Mapping[str, ak.Array]] | None = None,
    threads: int | None = None,
    engine: str = "onnx",
) -> Reconstruction:
    """Assign the objects of events to the particles of a topology.

    Args:
        events: `Events`; a path or several; an array of jets with pt, eta, phi, energy or mass, and the inputs of
            the model (such as a b-tag); or a mapping of kinds of objects to such arrays. Leptons need no mass, and
            missing energy is pt and phi. px, py, pz, E and other coordinates of the library vector are understood.
        model: A loaded model, or the name or path of one; by default the model for the topology of the events.
            "kinematic", or the path of a YAML file with its settings, is a kinematic fit.
        decoding: A name in `pairton.decoding.DECODINGS`; by default the decoding that the model was trained for.
            "beam:5" is a beam of five hypotheses.
        max_objects: The largest number of objects of each kind. If there are more, those of highest pT are used
            (status `truncated`).
        cuts: Leave out objects outside the model's domain (pT, |eta|) and, if they were read from a file of an
            experiment, outside the topology's own cuts.
        jets: Cuts on jets in place of these, such as "pt>30,abs_eta<2.4"; "none" uses all jets.
        leptons: The same for leptons.
        btag: Efficiencies of the tagger: a table, its name (`pairton list tags` has them) or a YAML file. For a
            file also "TAGGER:CUT", or "none".
        answer: "event" for the most probable assignment, "particles" for the most particles expected to be right.
        allow_absent: Leave out particles that are probably absent. For models that know missing particles.
        prior: Factors on the prior probabilities of patterns, such as {"nothing": 5}. For the same models.
        variations: The same jets with other calibrations, by name, or mappings of kinds to such objects. Kinds
            that a variation lacks, such as the missing energy, are nominal. Results are in `.variations[name]`.
        threads: Threads of the engine; by default one per core.
        engine: "onnx", or "torch" if it is installed.

    Returns:
        A `Reconstruction` with one row per event.

    Raises:
        PairtonError: The model or file cannot be read, an argument is unknown, or the events do not fit the model.

    Examples:
        >>> import pairton
        >>> reco = pairton.reconstruct(pairton.read("sample:ttbar_allhad")[:3])
        >>> reco.t.mass.ndim, len(reco)
        (2, 3)
    """
    chosen = user_cuts(jets, leptons, cuts)
    settings = RunSettings(
        decoding=decoding,
        max_objects=max_objects,
        cuts=chosen,
        answer=answer,
        allow_absent=allow_absent,
        prior=prior or {},
    )
    with Run(events, model, settings, threads=threads, engine=engine, truth=False, btag=btag) as run:
        known, assigner = run.read(), run.assigner
    if variations is not None:
        known = known.replace(variations={name: by_kind(given) for name, given in variations.items()})
    assigner.check(known.topology, known.variations)
    known = assigner.with_evidence(known)
    parts = [assigner.run(window) for window in windows([known])]
    return _joined(known, parts).made_by(run.model, assigner.settings)


def _joined(events: Events, parts: Sequence[Reconstruction]) -> Reconstruction:
    if len(parts) == 1:
        return replace(parts[0], events=events)

    def rows(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    return Reconstruction(
        events,
        rows("assignment"),
        rows("status"),
        rows("event_probability"),
        rows("particle_probability"),
        rows("exact"),
        {kind: np.concatenate([part.used[kind] for part in parts]) for kind in parts[0].used},
        {name: np.concatenate([part.outputs[name] for part in parts]) for name in parts[0].outputs},
        {k: _joined(events.varied(k), [p.variations[k] for p in parts]) for k in events.variations},
    )
