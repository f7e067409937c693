"""Masses of predicted particles, and the events of the gallery."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pairton.evaluation.evaluation import Chunk, Metric
from pairton.evaluation.plots import INK, RIGHT, STYLES, WRONG, Plot, Series, name_of_file, plain, plot_series
from pairton.evaluation.scores import EVENT, matches
from pairton.events import Events
from pairton.reconstruction.result import momenta
from pairton.reconstruction.result_columns import positions

if TYPE_CHECKING:
    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["GALLERY", "GROUPS", "Candidate", "Candidates", "Exhibit", "Gallery"]

MASS_EDGES = np.linspace(0, 1000, 501)  # GeV; figures show a part, with wider bins if there are few events
ROUND = 5  # the lower end of the mass axis is a multiple of so many bins
VIEW = 0.99  # share of right particles within the figure, before margins
PARTS = ("right", "wrong", "event incomplete")
COLOURS = (RIGHT, WRONG, "#d3d7dd")

GALLERY = 3  # events per group
GROUPS = ("most confident, right", "most confident, wrong", "most uncertain")

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Candidate(NamedTuple):
    """The predicted particles of some events."""

    mass: Floats  # (n, P)
    right: Bools  # (n, P)
    complete: Bools  # (n,)
    weight: Floats  # (n,)


class Candidates(Metric):
    """Masses of the predicted particles."""

    name, title = "candidates", "Masses of candidates"

    def count(self, chunk: Chunk, method: Method) -> Candidate:
        events = chunk.events
        assert events.truth is not None
        places = positions(events, chunk.answers[method.name].assignment)
        mass = momenta(events, places)["mass"]
        return Candidate(mass, matches(events.topology, places, events.truth), events.complete, chunk.weight)

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        for name in reversed(evaluation.topology.types):
            yield _plot(evaluation, name)


def _plot(result: Evaluation, type_name: str) -> Plot | None:
    """Masses of all predicted particles of a type; those of the first method are split into PARTS."""
    topology = result.topology
    columns = [particle.index for particle in topology.of_type(type_name)]
    if len(topology.particles[columns[0]].slots) < 2:
        return None  # a single object has no mass peak
    peaks = [_spectra(result.counted("candidates", method), columns) for method in result.methods]
    first, total = peaks[0], peaks[0].sum()
    if not total:
        return None
    low, high = _view(first[0] if first[0].any() else first.sum(axis=0))
    width = 1 if total > 20_000 else 2 if total > 3_000 else 5
    high = low + (high - low) // width * width
    edges = MASS_EDGES[low : high + 1 : width]
    series = []
    for k, (method, peak) in enumerate(zip(result.methods, peaks, strict=True)):
        counts = peak[:, low:high].reshape(len(peak), -1, width).sum(axis=-1)
        if k:
            style = STYLES[(k - 1) % len(STYLES)]
            series.append(Series(method.name, edges, counts.sum(axis=0), INK, style))
            continue
        for part, number, colour in zip(PARTS, counts, COLOURS, strict=True):
            if number.any() or part == PARTS[0]:
                series.append(Series(f"{method.name}, {part}", edges, number, colour, filled=True))
    with_neutrino = {index for neutrino in topology.neutrinos for index in topology.ancestry(neutrino.particle)}
    solved = ", with its neutrino" if with_neutrino & set(columns) else ""
    caption = (
        f"Every predicted {type_name}{solved}. Right: all its objects are right. Grey: not right, and the event "
        "is incomplete."
    )
    labels = f"mass of {plain(type_name)} candidates [GeV]", f"candidates / {edges[1] - edges[0]:g} GeV"
    how: dict[str, Any] = {"x": (edges[0], edges[-1]), "room": 1.32, "loc": "upper right"}
    return plot_series(f"mass_{name_of_file(type_name)}", f"Mass of {type_name}", caption, labels, series, **how)


def _spectra(found: Candidate, columns: list[int]) -> Floats:
    """(parts, bins): the weights of candidates that are right, wrong in complete events, and wrong in others."""
    mass, right = found.mass[:, columns], found.right[:, columns]
    complete = np.broadcast_to(found.complete[:, None], mass.shape)
    weight = np.broadcast_to(found.weight[:, None], mass.shape)
    parts = [right, ~right & complete, ~right & ~complete]
    return np.stack([np.histogram(mass[part], MASS_EDGES, weights=weight[part])[0] for part in parts])


def _view(values: Floats) -> tuple[int, int]:
    """The range of bins to show: VIEW of the distribution, and margins."""
    share = np.cumsum(values) / values.sum()
    low = int(np.searchsorted(share, (1 - VIEW) / 2))
    high = int(np.searchsorted(share, (1 + VIEW) / 2)) + 1
    half = max((high - low) // 2, 10)
    return max(0, low - half // 2) // ROUND * ROUND, min(len(values), high + half)


# -- gallery ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exhibit:
    """An event of the gallery: one row of Events, its row in the input, and its answer."""

    order: float  # smaller comes first
    events: Events
    number: int
    assignment: npt.NDArray[np.int64]  # (S,): positions in `events.objects`
    event_probability: float
    particle_probability: npt.NDArray[np.float64]


class Gallery(Metric):
    """Group -> some complete events, with the answers of the first method."""

    name = "gallery"

    def count(self, chunk: Chunk, method: Method) -> dict[str, list[Exhibit]] | None:
        if method is not chunk.methods[0]:
            return None
        answer, scores = chunk.answers[method.name], chunk.scores[method.name]
        right = scores.correct[EVENT] > 0
        chance = answer.event_probability
        known = chunk.events.complete & np.isfinite(chance)
        groups = {}
        criteria = (known & right, -chance), (known & ~right, -chance), (known, chance)
        for group, (rows, order) in zip(GROUPS, criteria, strict=True):
            (at,) = np.nonzero(rows)
            best = at[np.argsort(order[at], kind="stable")[:GALLERY]]
            few, chances = chunk.events[best], answer.particle_probability[best]
            places = positions(few, answer.assignment[best])
            groups[group] = [
                Exhibit(
                    order[row], few[k : k + 1], int(chunk.rows[row]), places[k], float(chance[row]), chances[k]
                )
                for k, row in enumerate(best)
            ]
        return groups

    def merge(self, counts: Sequence[dict[str, list[Exhibit]]]) -> dict[str, list[Exhibit]]:
        every = {group: [exhibit for part in counts for exhibit in part[group]] for group in GROUPS}
        return {
            group: sorted(exhibits, key=lambda exhibit: (exhibit.order, exhibit.number))[:GALLERY]
            for group, exhibits in every.items()
        }
