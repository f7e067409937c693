"""Systematic variations of jets: their columns, and the varied jets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import awkward as ak
import numpy as np

from pairton.errors import ConfigError, PairtonWarning, nearest
from pairton.events.vectors import energy_of
from pairton.formats.flat_objects import Chunk, flat_fields
from pairton.topology import JET

__all__ = ["Variations", "check_variation", "choice", "parse_settings", "parse_variations", "varied_jets"]

VARIED = ("pt", "mass")
FACTOR = 2.0  # a calibration does not change most jets by more


def parse_variations(given: Iterable[str]) -> dict[str, dict[str, str]]:
    """Read variations of the command line, each written as `NAME:pt=COLUMN,mass=COLUMN`.

    >>> parse_variations(["jes_up:pt=Jet_pt_jesUp,mass=Jet_mass_jesUp"])
    {'jes_up': {'pt': 'Jet_pt_jesUp', 'mass': 'Jet_mass_jesUp'}}
    """
    found: dict[str, dict[str, str]] = {}
    for text in given:
        name, colon, columns = text.partition(":")
        pairs = [pair.partition("=") for pair in columns.split(",")]
        if not colon or not name.isidentifier() or not all(key and column for key, _, column in pairs):
            raise ConfigError(
                f"variation {text!r}: write NAME:pt=COLUMN,mass=COLUMN, where NAME has letters, digits and _ only"
            )
        if name in found:
            raise ConfigError(f"variation {name!r} is given twice: give each name once")
        found[name] = {key.strip(): column.strip() for key, _, column in pairs}
        check_variation(name, found[name])
    return found


def check_variation(name: str, columns: Mapping[str, str]) -> None:
    """Raise ConfigError unless a variation has a column for pt and, optionally, for mass, and no other."""
    for key in columns:
        if key not in VARIED:
            raise ConfigError(f"variation {name}: {key!r} cannot vary, only {' and '.join(VARIED)} can: remove it")
    if "pt" not in columns:
        raise ConfigError(f"variation {name}: there is no column for pt: add pt=COLUMN")


def parse_settings(given: Iterable[str]) -> dict[str, str]:
    """Read settings of the command line, each written as `KEY=VALUE`.

    >>> parse_settings(["lepton_pt=15"])
    {'lepton_pt': '15'}
    """
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigError(f"set {text!r}: write KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def choice(settings: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> str:
    """The value of a setting; the default is the first one allowed."""
    value = settings.get(key, allowed[0])
    if value not in allowed:
        raise ConfigError(f"set {key}={value}: choose one of {', '.join(allowed)}{nearest(value, allowed)}")
    return value


class Variations:
    """Columns of varied jets in a table."""

    def __init__(
        self, given: Mapping[str, Mapping[str, str]], require: Callable[[str, Sequence[str]], object]
    ) -> None:
        """`given`: variation -> field -> column; `require`: raises an error if a variation lacks columns."""
        self._given, self._unchecked = given, set(given)
        for name, columns in given.items():
            check_variation(name, columns)
            require(name, list(columns.values()))
        self.columns = [column for columns in given.values() for column in columns.values()]

    def read(self, objects: Mapping[str, ak.Array], rows: Chunk, scale: float) -> dict[str, dict[str, ak.Array]]:
        """Variation -> kind -> varied objects; warns, once per file, of columns with implausible values."""
        found = {}
        for name, columns in self._given.items():
            jets = objects[JET]
            chosen = {field: (column,) for field, column in columns.items()}
            flat = flat_fields(rows, chosen, like=np.asarray(ak.num(jets, axis=1)))
            ragged = {field: ak.unflatten(values / scale, flat.counts) for field, values in flat.fields.items()}
            varied = varied_jets(jets, ragged["pt"], ragged.get("mass"))
            if name in self._unchecked and ak.count(varied.pt):
                self._unchecked.remove(name)
                _check_size(name, jets, varied)
            found[name] = {JET: varied}
        return found


def _check_size(name: str, jets: ak.Array, other: ak.Array) -> None:
    """Warn if a column cannot be the pT of these jets, for example because it is a factor or in other units."""
    nominal, varied = (np.asarray(ak.flatten(each.pt)) for each in (jets, other))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = varied[nominal > 0] / nominal[nominal > 0]
    ratio = ratio[np.isfinite(ratio)]
    if len(varied) and not (len(ratio) and 1 / FACTOR <= np.median(ratio) <= FACTOR):
        warnings.warn(
            f"variation {name}: pT differs from the nominal one by more than a factor of {FACTOR:g} for most "
            "jets: check that it is the right column, in the same units",
            PairtonWarning,
            stacklevel=2,
        )


def varied_jets(jets: ak.Array, pt: ak.Array, mass: ak.Array | None = None) -> ak.Array:
    """Jets with another pT and mass. Without a mass, the whole four-vector is scaled."""
    new_pt = ak.values_astype(pt, np.float32)
    if mass is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            energy = jets.energy * (ak.values_astype(new_pt, np.float64) / jets.pt)
    else:
        flat = energy_of(ak.flatten(new_pt), ak.flatten(jets.eta), ak.flatten(mass))
        energy = ak.unflatten(flat, ak.num(new_pt, axis=1))
    return ak.with_field(ak.with_field(jets, new_pt, "pt"), energy, "energy")
