"""Ragged arrays of four-vectors, the objects of events: made from columns, and checked.

Units are GeV and radians.
"""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import EventsError
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import energy_of
from pairton.topology.kinds import KINDS
from pairton.topology.selection import Cuts

__all__ = [
    "as_polar",
    "check_fields",
    "is_cut",
    "is_physical",
    "make_jets",
    "make_met",
    "make_objects",
    "mev_median",
]

ENERGY_TOLERANCE = 1e-4  # relative; files store rounded momenta and energies
MOST_ENERGY = 1e8  # GeV: far above any collider, and its square does not overflow in the network
MOST_PHI = 100.0  # radians: files have phi from -pi to pi or from 0 to 2 pi
COORDINATES = frozenset(("x", "px", "y", "py", "z", "pz", "rho", "pt", "phi", "eta", "theta")) | frozenset(
    ("t", "E", "e", "energy", "tau", "M", "m", "mass")
)  # names of coordinates in the library vector
MEV_ABOVE = 3000.0  # a larger median pT means that the unit is MeV
UNIT_SAMPLE = 10_000  # objects that the median is taken of


def make_objects(
    *, energy: Any = None, mass: Any = None, index: Any = None, usable: Any = None, **fields: Any
) -> ak.Array:
    """Make objects of one kind from columns.

    Every column is an awkward array, or a list with one list per event.

    Args:
        energy: Energy of each object in GeV. Give this or `mass`.
        mass: Mass of each object in GeV.
        index: Position of each object in the input file, if it is not its position here.
        usable: Whether each object passed its identification. Objects that did not are kept, so that positions do
            not change, but never used.
        **fields: pt, eta and phi (GeV and radians), and further inputs of the network: btag, charge, ...

    Returns:
        A ragged array of four-vectors, with the methods of the library vector.

    Raises:
        EventsError: A column is missing, or columns have different lengths.

    Examples:
        >>> make_objects(pt=[[30.0]], eta=[[0.0]], phi=[[0.0]], mass=[[40.0]], charge=[[-1]]).energy.tolist()
        [[50.0]]
    """
    if not {"pt", "eta", "phi"} <= set(fields) or (energy is None) == (mass is None):
        given = ", ".join(sorted(fields) + ["energy"] * (energy is not None) + ["mass"] * (mass is not None))
        raise EventsError(f"objects need pt, eta, phi and one of energy or mass: got {given or 'nothing'}")
    arrays = {name: _floats(values, np.float32) for name, values in fields.items()}
    last = _floats(mass if energy is None else energy, np.float64)
    counts = ak.num(arrays["pt"], axis=1)
    for name, array in {**arrays, "energy or mass": last}.items():
        if len(array) != len(counts) or not bool(ak.all(ak.num(array, axis=1) == counts)):
            raise EventsError(f"{name} and pt have different lengths: give one value per object in every field")
    flat = {name: np.asarray(ak.flatten(array)) for name, array in arrays.items()}
    content = {name: flat.pop(name) for name in ("pt", "eta", "phi")}
    content["energy"] = np.asarray(ak.flatten(last))
    if energy is None:
        content["energy"] = energy_of(content["pt"], content["eta"], content["energy"])
    content |= flat
    if index is not None:
        content["index"] = np.asarray(ak.flatten(index), dtype=np.int32)
    if usable is not None:
        content["usable"] = np.asarray(ak.flatten(usable), dtype=bool)
    return ak.unflatten(ak.zip(content, with_name="Momentum4D"), counts)


def as_polar(array: ak.Array) -> ak.Array:
    """Convert records to pt, eta, phi and energy, if they have other coordinates that the library vector knows.

    >>> as_polar(ak.Array({"px": [[0.0]], "py": [[4.0]], "pz": [[0.0]], "M": [[3.0]]})).energy.tolist()
    [[5.0]]
    """
    given = ak.fields(array)
    if {"pt", "eta", "phi"} <= set(given):
        return array
    import vector

    double = {name: ak.values_astype(array[name], np.float64) for name in given if name in COORDINATES}
    try:
        momentum = ak.zip(double, with_name="Momentum4D", behavior=vector.backends.awkward.behavior)
        found = {name: getattr(momentum, name) for name in ("pt", "eta", "phi", "energy")}
    except (AttributeError, TypeError, ValueError):
        return array  # `check_fields` reports what is missing
    return ak.zip(found | {name: array[name] for name in given if name not in COORDINATES})


make_jets = make_objects
"""Make jets. This is `make_objects` under another name; most models need the field `btag`, 0 or 1."""


def make_met(pt: Any, phi: Any) -> ak.Array:
    """Make the missing transverse energy, one object per event.

    Args:
        pt: Magnitude in GeV, one number per event.
        phi: Azimuthal angle in radians, one number per event.

    Returns:
        A ragged array with one record per event.

    Raises:
        EventsError: The numbers cannot be read as one column.

    Examples:
        >>> make_met([30.0], [0.5])[0].tolist()
        [{'pt': 30.0, 'eta': 0.0, 'phi': 0.5, 'energy': 30.0}]
    """
    size, angle = (np.asarray(values, dtype=np.float64)[:, None] for values in (pt, phi))
    return make_objects(
        pt=ak.from_regular(size),
        eta=ak.from_regular(0 * angle),
        phi=ak.from_regular(angle),
        energy=ak.from_regular(size),
    )


def mev_median(pt: npt.NDArray[Any]) -> float | None:
    """The median pT if it is above 3000, so that the unit must be MeV; else None."""
    sample = pt[:UNIT_SAMPLE]
    sample = sample[np.isfinite(sample)]
    median = float(np.median(sample)) if len(sample) else 0.0
    return median if median > MEV_ABOVE else None


def is_physical(momenta: npt.NDArray[Any], kind: str) -> npt.NDArray[np.bool_]:
    """(J,): whether pt, eta, phi, energy (J, 4 or more) are physical; only missing energy may have pt 0."""
    pt, eta, phi, energy = momenta[:, : len(MOMENTUM)].astype(np.float64).T
    with np.errstate(over="ignore", invalid="ignore"):
        momentum = pt * np.cosh(eta)
        good = ((pt > 0) | ((pt == 0) & (KINDS[kind].transverse))) & (np.abs(phi) <= MOST_PHI)
        good &= (energy >= momentum * (1 - ENERGY_TOLERANCE)) & (energy <= MOST_ENERGY)
    return np.asarray(good & np.isfinite(momentum))


def is_cut(momenta: npt.NDArray[Any], kind: str, cuts: Cuts) -> npt.NDArray[np.bool_]:
    """(J,): whether cuts remove objects (J, 2 or more) by their pt and eta; False for NaN.

    An event has one missing energy: a negative pt, such as -999 for none, is not cut, so that it counts as bad.

    >>> momenta = np.array([[30.0, 0.1], [-999.0, 0.0]])
    >>> is_cut(momenta, "jet", Cuts(40)).tolist(), is_cut(momenta, "met", Cuts(40)).tolist()
    ([True, True], [True, False])
    """
    cut = (momenta[:, 0] < cuts.pt) | (np.abs(momenta[:, 1]) > cuts.abs_eta)
    return np.asarray(cut & (momenta[:, 0] >= 0) if KINDS[kind].transverse else cut)


def check_fields(what: str, objects: ak.Array) -> None:
    """Raise EventsError if records have no four-momentum; `what` names them."""
    missing = [name for name in MOMENTUM if name not in ak.fields(objects)]
    if missing:
        raise EventsError(
            f"{what} lack {', '.join(missing)}: found {', '.join(ak.fields(objects)) or 'no fields'}; "
            "build them with pairton.make_objects"
        )


def _floats(values: Any, dtype: type[np.floating[Any]]) -> ak.Array:
    array = ak.Array(values)
    if array.ndim != 2:
        raise EventsError(f"read an array with {array.ndim} dimension(s), but need 2: give one list per event")
    if bool(ak.any(ak.is_none(array, axis=1), axis=None)) or bool(ak.any(ak.is_none(array))):
        raise EventsError("some objects are None, perhaps from ak.pad_none: remove them with ak.drop_none")
    if "unknown" in str(array.type):  # only empty lists: no type to infer
        return ak.values_astype(ak.enforce_type(array, "var * float64"), dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes inf, which makes a bad object
        return ak.values_astype(array, dtype)
