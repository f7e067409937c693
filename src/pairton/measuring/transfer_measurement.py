"""Transfer functions from simulated events: measured energies against those of the original quarks and leptons.

Shapes: n objects, G components.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace
from scipy.optimize import nnls

from pairton.errors import InputError
from pairton.events import Events
from pairton.formats import expand, iterate, open_source
from pairton.formats.files import Paths
from pairton.kinematics.decays import transfer_names
from pairton.kinematics.fit_settings import FitSettings, load_settings
from pairton.kinematics.transfer_functions import Component, EtaBin, MetResolution
from pairton.measuring import rounded_yaml
from pairton.topology import JET, load_topology
from pairton.topology.kinds import KINDS

__all__ = ["fit_components", "measure_transfer", "settings_text"]

TRUE_ENERGY = "true_energy"
TRUE_NEUTRINO = ("neutrino_px", "neutrino_py")
EDGES = {"b": (0.8, 1.7, 2.5), "light": (0.8, 1.7, 2.5), "lepton": (10.0,)}  # upper edges of bins of |eta|
COMPONENTS = {"b": 3, "light": 3, "lepton": 2}  # numbers of normal distributions
TITLES = {"b": "b jets", "light": "other jets", "lepton": "leptons"}
LEAST = 200  # objects per bin, or events, that a fit needs
ROUNDS, PRECISE = 300, 1e-6  # expectation maximisation: most rounds, and smallest gain of log L per object
TAIL = 0.02  # initial share of the broad component
LEAST_SCALE, LEAST_SHARE, LEAST_WIDTH = 0.05, 1e-4, 1e-3  # lower bounds of a component; the width relative to E

Floats = npt.NDArray[np.float64]


def measure_transfer(paths: Paths, **options: Any) -> FitSettings:
    """The built-in settings with transfer functions, missing energy and `other_jets` measured on simulated events.

    paths     files with truth, whose objects have `true_energy`, as `pairton generate` writes them
    options   options of `pairton.iterate`

    If the topology has no leptons or no missing energy, their built-in settings are kept. Raises InputError if the
    files have no truth or too few objects.
    """
    files = expand(paths)
    parts = list(_read(files, options))
    built_in, bins = load_settings(), {}
    for name in COMPONENTS:
        energies = np.concatenate([part[name] for part in parts], axis=1)  # (3, n)
        if energies.shape[1]:
            bins[name] = _bins(name, energies, files[0])
    missing = np.concatenate([part["met"] for part in parts], axis=1)
    met = _met(*missing) if missing.shape[1] >= LEAST else built_in.transfer.met
    ratios = np.concatenate([part["other"][0] for part in parts])
    power = 1 + len(ratios) / ratios.sum() if len(ratios) >= LEAST else built_in.other_jets
    transfer = replace(built_in.transfer, **bins, met=met)
    counts = ", ".join(f"{sum(part[name].shape[1] for part in parts)} {TITLES[name]}" for name in bins)
    about = f"transfer functions measured on {Path(files[0]).name}: {counts}"
    return replace(built_in, transfer=transfer, other_jets=round(float(power), 3), about=about)


def settings_text(settings: FitSettings) -> str:
    """The settings as YAML, with four significant digits.

    >>> text = settings_text(load_settings())
    >>> "masses:" in text, "tags: evidence" in text
    (True, True)
    """
    return rounded_yaml(settings.to_dict(), 4)


# -- reading -----------------------------------------------------------------------------------------------


def _read(files: list[str], options: Mapping[str, Any]) -> Iterator[dict[str, Floats]]:
    """For each chunk: true energy, energy and |eta| of objects; missing energy; pT of other jets."""
    with open_source(files[0], **options) as source:
        topology = load_topology(source.topology)
    with_met = any(KINDS[kind].transverse for kind in topology.kinds) and bool(topology.neutrinos)
    fields = dict.fromkeys(topology.object_kinds, (TRUE_ENERGY,))
    keep = [*options.get("keep", ()), *(TRUE_NEUTRINO if with_met else ())]
    for events in iterate(files, **{**options, "topology": topology, "fields": fields, "keep": keep}):
        if events.truth is None:
            raise InputError(
                f"{files[0]} has no truth: give events of `pairton generate`, or other events with labels"
            )
        yield _compared(events.select(), with_met)


def _compared(events: Events, with_met: bool) -> dict[str, Floats]:
    topology, truth = events.topology, events.truth
    assert truth is not None
    parts: dict[str, list[Floats]] = {name: [] for name in COMPONENTS}
    flat = {kind: _columns(events, kind) for kind in topology.object_kinds}
    other = np.ones(len(flat[JET][0]), dtype=bool)
    starts = {kind: np.cumsum(counts) - counts for kind, counts in events.counts.items()}
    for slot, name in zip(topology.slots, transfer_names(topology), strict=True):
        (rows,) = np.nonzero(truth[:, slot.index] >= 0)
        at = starts[slot.kind][rows] + truth[rows, slot.index]
        matched = flat[slot.kind][:, at]
        parts[name].append(matched[:3, matched[0] > 0])
        if slot.kind == JET:
            other[at] = False
    other &= np.repeat(events.complete, events.counts[JET])  # in other events, any jet may be a decay product
    pairs = {name: np.concatenate([np.zeros((3, 0)), *arrays], axis=1) for name, arrays in parts.items()}
    floor = topology.selection.cuts(JET).pt or 1.0
    pairs["other"] = np.log(flat[JET][3:4, other] / floor)
    pairs["met"] = _missing(events, flat) if with_met else np.zeros((3, 0))
    return pairs


def _columns(events: Events, kind: str) -> Floats:
    """(4, n): true energy, energy, |eta| and pT of all objects of a kind."""
    objects = events.objects[kind]
    columns = objects[TRUE_ENERGY], objects.energy, abs(objects.eta), objects.pt
    return np.stack([np.asarray(ak.flatten(column), dtype=np.float64) for column in columns])


def _missing(events: Events, flat: Mapping[str, Floats]) -> Floats:
    """(3, events): the errors of px and py of the missing energy, and the sum of all pT."""
    met = events.objects["met"]
    seen = np.flatnonzero(events.counts["met"] > 0)
    total = sum(
        np.bincount(np.repeat(np.arange(len(events)), events.counts[kind]), flat[kind][3], len(events))
        for kind in flat
    )
    pt, phi = (np.asarray(ak.firsts(met[name])[seen], dtype=np.float64) for name in ("pt", "phi"))
    px, py = (np.asarray(events.columns[name], dtype=np.float64)[seen] for name in TRUE_NEUTRINO)
    return np.stack([pt * np.cos(phi) - px, pt * np.sin(phi) - py, np.asarray(total)[seen]])


# -- fits --------------------------------------------------------------------------------------------------


def _bins(name: str, energies: Floats, file: str) -> tuple[EtaBin, ...]:
    """One transfer function per bin of |eta|; bins with too few objects are merged."""
    true, measured, abs_eta = energies
    if len(true) < LEAST:
        raise InputError(
            f"{file}: only {len(true)} {TITLES[name]} have a true energy, but a transfer function needs {LEAST}: "
            "measure on more events"
        )
    bins = []
    low, *_, last = 0.0, *EDGES[name]
    for edge in EDGES[name]:
        inside = (abs_eta >= low) & ((abs_eta < edge) | (edge == last))
        if edge == last or min(inside.sum(), (abs_eta >= edge).sum()) >= LEAST:
            bins.append(EtaBin(edge, fit_components(true[inside], measured[inside], COMPONENTS[name])))
            low = edge
    return tuple(bins)


def fit_components(true: Floats, measured: Floats, count: int) -> tuple[Component, ...]:
    """The best mixture of normal distributions for measured energies (n,), given the true ones (n,).

    It is fitted by expectation maximisation. The last of several components describes the tails: it is centred on
    the true energy.

    >>> rng = np.random.default_rng(1)
    >>> true = rng.uniform(30, 300, 20_000)
    >>> (fit,) = fit_components(true, rng.normal(0.9 * true + 2, 0.1 * true), 1)
    >>> round(fit.scale, 2), round(fit.a, 2)
    (0.9, 0.1)
    """
    low, high = np.quantile((measured - true) / np.sqrt(true), [0.16, 0.84])
    width = max(float(high - low) / 2, 1e-3)
    parts = [Component(1.0, 1.0, 0.0, b=width)]
    if count > 1:
        rest = (1 - TAIL) / (count - 1)
        parts = [Component(rest, 1.0, 0.0, b=width * 0.6 * 2**k) for k in range(count - 1)]
        parts.append(Component(TAIL, 1.0, 0.0, b=5 * width))
    before = -math.inf
    for _ in range(ROUNDS):
        weight = np.stack([part.share * _density(part, true, measured) for part in parts])  # (G, n)
        total = np.maximum(weight.sum(axis=0), 1e-300)
        if (now := float(np.log(total).mean())) < before + PRECISE:
            break
        before = now
        weight /= total
        tail = len(parts) - 1 if count > 1 else -1
        parts = [_refitted(parts[k], true, measured, weight[k], k == tail) for k in range(len(parts))]
    every = sum(part.share for part in parts)
    return tuple(replace(part, share=part.share / every) for part in parts)


def _density(part: Component, true: Floats, measured: Floats) -> Floats:
    sigma = part.sigma(true)
    pull = (measured - part.scale * true - part.offset) / sigma
    return np.asarray(np.exp(-0.5 * np.minimum(pull**2, 1400)) / sigma)


def _refitted(part: Component, true: Floats, measured: Floats, weight: Floats, centred: bool) -> Component:
    """Refit one component to its objects: first a line for the mean, then a quadratic for the variance."""
    variance = part.sigma(true) ** 2
    scale, offset = 1.0, 0.0
    if not centred:
        per = weight / variance
        line = np.stack([true, np.ones_like(true)])
        scale, offset = map(float, np.linalg.solve((line * per) @ line.T, (line * per) @ measured))
        scale = max(scale, LEAST_SCALE)
    away = (measured - scale * true - offset) ** 2
    squares = _not_negative(np.stack([true**2, true, np.ones_like(true)]), away, weight / variance**2)
    a, b, c = (math.sqrt(square) for square in squares)
    return Component(max(float(weight.mean()), LEAST_SHARE), scale, offset, max(a, LEAST_WIDTH), b, c)


def _not_negative(terms: Floats, goal: Floats, weight: Floats) -> list[float]:
    """Coefficients >= 0 of terms (k, n), from a weighted least-squares fit to `goal` (n,)."""
    unit = terms.mean(axis=1, keepdims=True)
    scaled = terms / unit
    root = np.linalg.cholesky((scaled * weight) @ scaled.T / weight.sum() + 1e-12 * np.eye(len(terms)))
    solution, _ = nnls(root.T, np.linalg.solve(root, (scaled * weight) @ goal / weight.sum()))
    return [float(x) for x in solution / unit[:, 0]]


def _met(x: Floats, y: Floats, total: Floats) -> MetResolution:
    """The resolution sigma^2 = b^2 S + c^2 of both components, from repeated weighted least squares."""
    away, sums = np.concatenate([x, y]) ** 2, np.concatenate([total, total])
    variance = np.full_like(sums, away.mean())
    terms = np.stack([sums, np.ones_like(sums)])
    squares = [0.0, 0.0]
    for _ in range(20):
        squares = _not_negative(terms, away, 1 / variance**2)
        variance = np.maximum(np.array(squares) @ terms, 1.0)
    return MetResolution(*(round(math.sqrt(square), 4) for square in squares))
