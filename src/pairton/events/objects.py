"""Jets as ragged records of four-vectors: made from columns, with a look at the units.

Units are GeV and radians.
"""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError
from pairton.events.vectors import energy_of

__all__ = ["JET_FIELDS", "make_jets", "mev_median"]

JET_FIELDS = ("pt", "eta", "phi", "energy", "btag")
MEV_ABOVE = 3000.0  # median jet pT
UNIT_SAMPLE = 10_000  # jets that this is looked for in


def make_jets(
    *, energy: Any = None, mass: Any = None, index: Any = None, usable: Any = None, **fields: Any
) -> ak.Array:
    """Ragged jets from pt, eta, phi, btag and either energy or mass: awkward arrays or nested lists.

    `usable` marks jets that passed an identification: the others stay, so that indices hold, and are not used.

    >>> make_jets(pt=[[30.0]], eta=[[0.0]], phi=[[0.0]], mass=[[40.0]], btag=[[1]]).energy.tolist()
    [[50.0]]
    """
    need = {"pt", "eta", "phi", "btag"}
    if set(fields) != need or (energy is None) == (mass is None):
        given = ", ".join(sorted(fields) + ["energy"] * (energy is not None) + ["mass"] * (mass is not None))
        raise EventsError(f"jets need pt, eta, phi, btag and one of energy or mass: got {given or 'nothing'}")
    arrays = {name: _floats(fields[name], np.float32) for name in ("pt", "eta", "phi", "btag")}
    last = _floats(mass if energy is None else energy, np.float64)
    counts = ak.num(arrays["pt"], axis=1)
    for name, array in {**arrays, "energy or mass": last}.items():
        if len(array) != len(counts) or not bool(ak.all(ak.num(array, axis=1) == counts)):
            raise EventsError(f"jets.{name} has other lengths than jets.pt: every field needs one value per jet")
    flat = {name: np.asarray(ak.flatten(array)) for name, array in arrays.items()}
    flat_last = np.asarray(ak.flatten(last))
    if energy is None:
        flat_last = energy_of(flat["pt"], flat["eta"], flat_last)
    content = {"pt": flat["pt"], "eta": flat["eta"], "phi": flat["phi"], "energy": flat_last, "btag": flat["btag"]}
    if index is not None:
        content["index"] = np.asarray(ak.flatten(index), dtype=np.int32)
    if usable is not None:
        content["usable"] = np.asarray(ak.flatten(usable), dtype=bool)
    return ak.unflatten(ak.zip(content, with_name="Momentum4D"), counts)


def mev_median(pt: npt.NDArray[Any]) -> float | None:
    """The median jet pT if it cannot be GeV: beyond 3 TeV, while one of 3 GeV is no jet."""
    sample = pt[:UNIT_SAMPLE]
    sample = sample[np.isfinite(sample)]
    median = float(np.median(sample)) if len(sample) else 0.0
    return median if median > MEV_ABOVE else None


def _floats(values: Any, dtype: type[np.floating[Any]]) -> ak.Array:
    array = ak.Array(values)
    if array.ndim != 2:
        raise EventsError(f"jets must be a list of jets for each event: got {array.ndim} dimension(s), need 2")
    if bool(ak.any(ak.is_none(array, axis=1), axis=None)) or bool(ak.any(ak.is_none(array))):
        raise EventsError("some jets are None, as ak.pad_none makes them: leave them out with ak.drop_none")
    if "unknown" in str(array.type):  # only empty lists: no type to infer
        return ak.values_astype(ak.enforce_type(array, "var * float64"), dtype)
    return ak.values_astype(array, dtype)
