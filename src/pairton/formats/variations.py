"""Systematic variations: columns with other values of some fields of some objects.

A variation maps fields to columns: `jet.pt`, or `pt` for jets, `met.phi`, `electron.pt` for the electrons among
the leptons, `jet.btag`. Fields that it does not name are nominal. If `{sys}` is in its name, it stands for many:
for each name in its list `sys`, or for each name for which the file has one of the columns, except those in
`except`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton._common.configuration import read_yaml
from pairton.errors import ConfigError, FormatError, PairtonWarning, nearest, shown
from pairton.events.inputs import MOMENTUM
from pairton.events.vectors import energy_of, mass_of
from pairton.formats.flat_objects import Chunk, flat_fields
from pairton.topology import JET
from pairton.topology.kinds import KINDS, collection_name

__all__ = ["NOMINAL", "PRESETS", "Variations", "choice", "parse_settings", "parse_variations", "with_momentum"]

SYS, EXCEPT = "sys", "except"  # keys of a variation that are no fields
PLACE = "{sys}"
NOMINAL = "nominal"  # in place of columns of a kind: its nominal objects
FIELDS = (*MOMENTUM, "mass")
FACTOR = 2.0  # a calibration does not change most jets by more
EXAMPLE = "write it as in jesUp:pt=Jet_pt_jesUp,met.pt=MET_pt_jesUp, where the name has letters, digits and _ only"
PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "nanoaod": {  # what tools for NanoAOD add, and what the files have
        PLACE: {
            "jet.pt": "Jet_pt_{sys}",
            "jet.mass": "Jet_mass_{sys}",
            "met.pt": "PuppiMET_pt_{sys}",
            "met.phi": "PuppiMET_phi_{sys}",
            EXCEPT: ["raw", "nom"],
        },
        "unclustered{sys}": {
            "met.pt": "PuppiMET_ptUnclustered{sys}",
            "met.phi": "PuppiMET_phiUnclustered{sys}",
        },
    },
    "topcptoolkit": {
        PLACE: {
            "jet.pt": "jet_pt_{sys}",
            "jet.energy": "jet_e_{sys}",
            "electron.pt": "el_pt_{sys}",
            "muon.pt": "mu_pt_{sys}",
            "met.pt": "met_met_{sys}",
            "met.phi": "met_phi_{sys}",
            EXCEPT: ["NOSYS"],
        }
    },
}

Flat = npt.NDArray[Any]
Given = Mapping[str, Mapping[str, Any]]  # name of a variation -> field -> column; `sys` and `except`: names


def parse_variations(given: Given | str | Path | Iterable[str | Path]) -> dict[str, dict[str, Any]]:
    """Variations from text: `NAME: KIND.FIELD=COLUMN, ...`, the name of a YAML file, or that of a preset.

    >>> parse_variations(["jes_up: pt=Jet_pt_up, met=nominal"])
    {'jes_up': {'pt': 'Jet_pt_up', 'met': 'nominal'}}
    >>> parse_variations("{sys}: pt=pt_{sys}, sys=up|down")
    {'{sys}': {'pt': 'pt_{sys}', 'sys': ['up', 'down']}}
    """
    found: dict[str, dict[str, Any]] = {}
    if isinstance(given, Mapping):
        return {name: _checked(name, fields) for name, fields in given.items()}
    for text in [given] if isinstance(given, str | Path) else given:
        named = str(text)
        if named in PRESETS or Path(named).suffix in (".yaml", ".yml"):
            read = PRESETS[named] if named in PRESETS else read_yaml(named)
            if not isinstance(read, Mapping):
                raise ConfigError(f"{named}: read {shown(read)}, but it must map names of variations to columns")
            new = {str(name): _checked(str(name), fields) for name, fields in read.items()}
        else:
            name, colon, columns = named.partition(":")
            pairs = [[piece.strip() for piece in pair.partition("=")] for pair in columns.split(",")]
            if not colon or not all(key and column for key, _, column in pairs):
                presets = f", give a YAML file, or a preset: {', '.join(PRESETS)}{nearest(named, PRESETS)}"
                raise ConfigError(f"variation {named!r}: {EXAMPLE}{'' if colon else presets}")
            fields = {key: value.split("|") if key in (SYS, EXCEPT) else value for key, _, value in pairs}
            new = {name.strip(): _checked(name.strip(), fields)}
        if twice := sorted(found.keys() & new.keys()):
            raise ConfigError(f"variation {twice[0]!r} is given twice: give each name once")
        found |= new
    return found


def _checked(name: str, fields: Any) -> dict[str, Any]:
    """The columns of a variation; ConfigError if they are not what they must be."""
    if not name.replace(PLACE, "x").isidentifier() or not isinstance(fields, Mapping):
        raise ConfigError(f"variation {name!r}: {EXAMPLE}")
    for key, value in fields.items():
        if key in (SYS, EXCEPT):
            if PLACE not in name or not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise ConfigError(f"variation {name}: {key} is a list of names that replace {PLACE} in the name")
        elif value != NOMINAL and not isinstance(value, str):
            raise ConfigError(f"variation {name}: {key} is {shown(value)}, but must be the name of a column")
        elif (kind := _kind(key)) not in KINDS:
            raise ConfigError(f"variation {name}: there is no kind of object {kind!r}{nearest(kind, KINDS)}")
    if not fields.keys() - {SYS, EXCEPT}:
        raise ConfigError(f"variation {name}: it names no column: add pt=COLUMN")
    return dict(fields)


def _kind(key: str) -> str:
    """The kind of the field of a variation; without a dot, a field of jets, or a kind itself."""
    kind, dot, _ = key.partition(".")
    return kind if dot or key in KINDS else JET


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


def resolved(given: Given, columns: Collection[str]) -> dict[str, dict[str, str]]:
    """Variations with `{sys}` replaced, for the columns of a file.

    >>> resolved({"{sys}": {"pt": "pt_{sys}", "met.pt": "met_{sys}"}}, ["pt_up", "met_up", "met_soft"])
    {'up': {'pt': 'pt_up', 'met.pt': 'met_up'}, 'soft': {'met.pt': 'met_soft'}}
    """
    found: dict[str, dict[str, str]] = {}
    for name, fields in given.items():
        own = {key: column for key, column in fields.items() if key not in (SYS, EXCEPT)}
        names, listed = fields.get(SYS, [""] if PLACE not in name else None), SYS in fields or PLACE not in name
        if names is None:
            patterns = [re.escape(c).replace(re.escape(PLACE), "(.+)") for c in own.values() if PLACE in c]
            matches = [match[1] for p in patterns for c in columns if (match := re.fullmatch(p, c))]
            names = [
                one for one in dict.fromkeys(matches) if one.isidentifier() and one not in fields.get(EXCEPT, ())
            ]
        for one in names:
            here = {key: column.replace(PLACE, one) for key, column in own.items()}
            if not listed:
                here = {key: column for key, column in here.items() if column == NOMINAL or column in columns}
            if here:
                found[name.replace(PLACE, one)] = here
    return found


class Variations:
    """Columns of varied objects in a table."""

    def __init__(
        self,
        given: Given,
        kinds: Collection[str],
        columns: Collection[str],
        require: Callable[[str, Sequence[str]], object],
        retag: Callable[[dict[str, Flat]], None],
    ) -> None:
        """
        given     as from `parse_variations`
        kinds     of objects that are read; variations of others are ignored
        columns   of the table
        require   raises an error if a variation lacks columns
        retag     makes tags and evidence from the fields of jets, in place
        """
        self._given, self._retag = resolved(given, columns), retag
        self._unchecked = set(self._given)
        if given and not self._given:
            patterns = [
                str(column) for fields in given.values() for column in fields.values() if PLACE in str(column)
            ]
            raise ConfigError(f"variations: the file has no column such as {', '.join(patterns)}")
        every = {part for kind in kinds for part in (kind, *_parts(kind))}
        for name, fields in self._given.items():
            self._given[name] = fields = {key: column for key, column in fields.items() if _kind(key) in every}
            require(name, [column for column in fields.values() if column != NOMINAL])
        self.columns = [c for fields in self._given.values() for c in fields.values() if c != NOMINAL]

    def read(self, objects: Mapping[str, ak.Array], rows: Chunk, scale: float) -> dict[str, dict[str, ak.Array]]:
        """Variation -> kind -> varied objects; warns, once per file, of columns with implausible values."""
        found: dict[str, dict[str, ak.Array]] = {}
        flat: dict[str, dict[str, Flat]] = {}  # kind -> nominal fields
        for name, fields in self._given.items():
            varied = found[name] = {}
            for kind, nominal in objects.items():
                own = {key: column for key, column in fields.items() if _kind(key) in (kind, *_parts(kind))}
                if own and NOMINAL in own.values():
                    varied[kind] = nominal
                elif own:
                    if kind not in flat:
                        flat[kind] = {name: np.asarray(ak.flatten(nominal[name])) for name in ak.fields(nominal)}
                    varied[kind] = self._varied(kind, nominal, flat[kind], own, rows, scale)
            if name in self._unchecked and any(ak.count(array.pt) for array in varied.values()):
                self._unchecked.remove(name)
                for kind, array in varied.items():
                    _check_size(name, kind, objects[kind], array)
        return found

    def _varied(
        self,
        kind: str,
        objects: ak.Array,
        nominal: Mapping[str, Flat],
        own: Mapping[str, str],
        rows: Chunk,
        scale: float,
    ) -> ak.Array:
        """The objects of a kind with the values in columns; `nominal`: their fields, flat."""
        counts = np.asarray(ak.num(objects, axis=1))
        new: dict[str, Flat] = {}
        for key, column in own.items():
            part, field = _kind(key), key.rpartition(".")[2]
            if field not in (*nominal, *FIELDS):
                known = ", ".join(dict.fromkeys([*nominal, *FIELDS]))
                hint = nearest(field, nominal)
                raise ConfigError(f"variation {key}={column}: {kind} has only the fields {known}{hint}")
            divisor = scale if field in ("pt", "energy", "mass") else 1.0
            if part == kind:
                new[field] = flat_fields(rows, {field: (column,)}, kind, like=counts).fields[field] / divisor
                continue
            its = np.abs(nominal["flavour"]) == KINDS[part].code if "flavour" in nominal else np.zeros(0, bool)
            values = rows.jagged(column)[1] / divisor
            if its.sum() != len(values):
                raise FormatError(
                    f"{rows.path}: column {column} has {len(values)} {part}s, but there are {its.sum()}"
                )
            base = mass_of(*(nominal[n] for n in ("pt", "eta", "energy"))) if field == "mass" else nominal[field]
            new[field] = np.array(new.get(field, base), dtype=np.float64)
            new[field][its] = values
        changed = with_momentum(nominal, new, KINDS[kind].transverse)
        if kind == JET and new.keys() - {*FIELDS}:
            tags = {name: values for name, values in new.items() if name not in FIELDS}
            tags |= {name: changed[name] for name in ("pt", "eta")}
            self._retag(tags)
            changed |= tags
        for name, flat in changed.items():
            if name not in nominal or flat is not nominal[name]:
                dtype = np.float64 if name == "energy" else np.float32
                objects = ak.with_field(objects, ak.unflatten(flat.astype(dtype), counts), name)
        return objects


def _parts(kind: str) -> tuple[str, ...]:
    """The kinds that files merge to a kind."""
    return ("electron", "muon") if kind == "lepton" else ()


def with_momentum(
    nominal: Mapping[str, Flat], new: Mapping[str, Flat], transverse: bool = False
) -> dict[str, Flat]:
    """The fields of objects with new values of some; without a new mass or energy, the four-vector is scaled.

    >>> nominal = {name: np.array([value]) for name, value in dict(pt=40, eta=0, phi=1, energy=50).items()}
    >>> with_momentum(nominal, {"pt": np.array([60.0])})["energy"].tolist()
    [75.0]
    """
    found = {**nominal, **{name: values for name, values in new.items() if name != "mass"}}
    if transverse:
        found["energy"] = found["pt"]
    elif "mass" in new:
        found["energy"] = energy_of(found["pt"], found["eta"], new["mass"])
    elif "eta" in new and "energy" not in new:
        mass = mass_of(*(nominal[name] for name in ("pt", "eta", "energy")))
        found["energy"] = energy_of(found["pt"], found["eta"], mass)
    elif "pt" in new and "energy" not in new:
        with np.errstate(divide="ignore", invalid="ignore"):
            found["energy"] = nominal["energy"] * (
                found["pt"].astype(np.float32).astype(np.float64) / nominal["pt"]
            )
    return found


def _check_size(name: str, kind: str, objects: ak.Array, other: ak.Array) -> None:
    """Warn if a column cannot be the pT of these objects, as it is a factor, or in other units."""
    nominal, varied = (np.asarray(ak.flatten(each.pt)) for each in (objects, other))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = varied[nominal > 0] / nominal[nominal > 0]
    ratio = ratio[np.isfinite(ratio)]
    if len(varied) and not (len(ratio) and 1 / FACTOR <= np.median(ratio) <= FACTOR):
        warnings.warn(
            f"variation {name}: pT differs from the nominal one by more than a factor of {FACTOR:g} for most "
            f"{collection_name(kind)}: check that it is the right column, in the same units",
            PairtonWarning,
            stacklevel=2,
        )
