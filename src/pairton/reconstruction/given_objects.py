"""Objects from arrays that a user gives in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import awkward as ak
import numpy as np

from pairton.errors import EventsError
from pairton.events.objects import as_polar, make_objects, mev_median
from pairton.topology import JET

__all__ = ["by_kind"]


def by_kind(given: Any) -> dict[str, ak.Array]:
    """Objects by kind, from an array of jets or a mapping of kinds to arrays."""
    kinds = given if isinstance(given, Mapping) else {JET: given}
    return {kind: _as_objects(kind, ak.Array(array)) for kind, array in kinds.items()}


def _as_objects(kind: str, array: ak.Array) -> ak.Array:
    array = as_polar(array)
    given = {"m": "mass", "E": "energy"}
    fields = {given.get(name, name): array[name] for name in ak.fields(array)}
    missing = [name for name in ("pt", "eta", "phi") if name not in fields]
    missing += ["energy or mass"] * (not fields.keys() & {"energy", "mass"})
    if missing:
        found = ", ".join(sorted(fields)) or "no fields"
        raise EventsError(f"the {kind} array lacks {', '.join(missing)}: found {found}")
    if "energy" in fields:
        fields.pop("mass", None)
    if (median := mev_median(np.asarray(ak.flatten(array["pt"], axis=None)))) is not None:
        raise EventsError(
            f"the median pT of the {kind} array is {median:.0f}, which looks like MeV: divide pT, energy and mass "
            "by 1000 (or give pairton.Events if it is right)"
        )
    numbers = {name: values for name, values in fields.items() if values.ndim == 2 and not ak.fields(values)}
    return make_objects(**numbers)
