"""Objects from arrays that a user gives in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import awkward as ak
import numpy as np

from pairton.errors import EventsError
from pairton.events.objects import as_polar, make_objects, mev_median
from pairton.topology import JET
from pairton.topology.kinds import KINDS

__all__ = ["by_kind"]


def by_kind(given: Any) -> dict[str, ak.Array]:
    """Objects by kind, from an array of jets or a mapping of kinds to arrays.

    As in files, leptons and photons need no mass, and missing energy is pt and phi: one record per event, or a
    list with one record.

    >>> by_kind({"met": ak.Array({"pt": [30.0], "phi": [0.5]})})["met"].tolist()
    [[{'pt': 30.0, 'eta': 0.0, 'phi': 0.5, 'energy': 30.0}]]
    """
    kinds = given if isinstance(given, Mapping) else {JET: given}
    return {kind: _as_objects(kind, ak.Array(array)) for kind, array in kinds.items()}


def _as_objects(kind: str, array: ak.Array) -> ak.Array:
    if KINDS[kind].transverse and array.ndim == 1:  # one record per event
        array = ak.from_regular(array[:, np.newaxis], axis=1)
    array = as_polar(array)
    given = {"m": "mass", "E": "energy"}
    fields = {given.get(name, name): array[name] for name in ak.fields(array)}
    massive = bool(fields.keys() & {"energy", "mass"})
    needed = ("pt", "phi") if KINDS[kind].transverse else ("pt", "eta", "phi")
    missing = [name for name in needed if name not in fields]
    missing += ["energy or mass"] * (not massive and not KINDS[kind].massless)
    if missing:
        found = ", ".join(sorted(fields)) or "no fields"
        raise EventsError(f"the {kind} array lacks {', '.join(missing)}: found {found}")
    if KINDS[kind].transverse:
        fields |= {"eta": ak.zeros_like(fields["pt"]), "energy": fields["pt"]}
    elif not massive:
        fields["mass"] = ak.zeros_like(fields["pt"])
    if "energy" in fields:
        fields.pop("mass", None)
    if (median := mev_median(np.asarray(ak.flatten(array["pt"], axis=None)))) is not None:
        raise EventsError(
            f"the median pT of the {kind} array is {median:.0f}, which looks like MeV: divide pT, energy and mass "
            "by 1000 (or give pairton.Events if it is right)"
        )
    numbers = {name: values for name, values in fields.items() if values.ndim == 2 and not ak.fields(values)}
    return make_objects(**numbers)
