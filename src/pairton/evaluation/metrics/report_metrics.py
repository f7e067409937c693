"""Masses of predicted particles, and a gallery of events, for the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation.plots import (
    INK,
    RIGHT,
    STYLES,
    WRONG,
    Plot,
    draw_histograms,
    in_rows,
    legend,
    name_of_file,
    plain,
)
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.scores import EVENT, matches
from pairton.events import Events
from pairton.reconstruction.result import momenta, positions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["GALLERY", "GROUPS", "Candidates", "Exhibit", "Gallery"]

MASS_EDGES = np.linspace(0, 1000, 501)  # GeV; figures show a part, with wider bins if there are few events
ROUND = 5  # the lower end of the mass axis is a multiple of so many bins
VIEW = 0.99  # share of right particles within the figure, before margins
PARTS = ("right", "wrong", "incomplete")
COLOURS = (RIGHT, WRONG, "#d3d7dd")

GALLERY = 3  # events per group
GROUPS = ("most confident, right", "most confident, wrong", "most uncertain")

Floats = npt.NDArray[np.float64]


class Candidates(Metric):
    """Masses of the predicted particles (n, P), which of them are right, and which events are complete."""

    name, title = "candidates", "Masses of candidates"

    def count(self, chunk: Chunk, method: Method) -> dict[str, npt.NDArray[Any]]:
        events = chunk.events
        assert events.truth is not None
        places = positions(events, chunk.answers[method.name].assignment)
        right = matches(events.topology, places, events.truth)
        mass = momenta(events, places)["mass"].astype(np.float32)
        return {"mass": mass, "right": right, "complete": events.complete, "weight": chunk.weight}

    def plots(self, evaluation: Evaluation) -> Iterator[Plot | None]:
        for every in (False, True):
            for name in reversed(evaluation.topology.types):
                yield _plot(evaluation, name, every)


def _plot(result: Evaluation, type_name: str, every: bool) -> Plot | None:
    """Masses of the predicted particles of a type, in complete events or in every event.

    Those of the first method are split into right and wrong ones; those of other methods are not.
    """
    columns = [particle.index for particle in result.topology.of_type(type_name)]
    if len(result.topology.particles[columns[0]].slots) < 2:
        return None  # a single object has no mass peak
    peaks = {method.name: _counted(result, method, columns, every) for method in result.methods}
    (first, shown), *others = peaks.items()
    total = shown.sum()
    parts = len(shown)
    if not total or (every and result.counted("candidates", result.methods[0])["complete"].all()):
        return None
    low, high = _view(shown[0] if shown[0].any() else shown.sum(axis=0))
    width = 1 if total > 20_000 else 2 if total > 3_000 else 5
    bins = slice(low, low + (high - low) // width * width)
    edges = MASS_EDGES[bins.start : bins.stop + 1 : width]

    def counts(values: Floats) -> Floats:
        return np.asarray(values[..., bins].reshape(*values.shape[:-1], -1, width).sum(axis=-1))

    names = [f"{plain(first)}, {part}" for part in ("right", "wrong", "event incomplete")[:parts]]
    filled = {"stack": True, "histtype": "fill", "color": COLOURS[:parts], "alpha": 0.75, "label": names}
    drawn: list[dict[str, Any]] = [{"H": list(counts(shown)), **filled}]
    for k, (name, other) in enumerate(others):
        look = {"histtype": "step", "color": INK, "linestyle": STYLES[k % len(STYLES)], "label": plain(name)}
        drawn.append({"H": counts(other.sum(axis=0)), **look})

    def finish(axes: Axes) -> None:
        axes.set_ylim(0, 1.32 * max(float(axes.dataLim.ymax), 1))
        legend(axes, loc="upper right")

    labels = f"mass of {plain(type_name)} candidates [GeV]", f"candidates / {edges[1] - edges[0]:g} GeV"
    draw = draw_histograms(*labels, edges, drawn, finish)
    rows = []
    for name, values in peaks.items():
        weights = dict(zip(PARTS, counts(values).tolist(), strict=False))
        rows += in_rows({"from": edges[:-1], "to": edges[1:], **weights}, method=name)
    topology = result.topology
    with_neutrino = {index for neutrino in topology.neutrinos for index in topology.ancestry(neutrino.particle)}
    solved = ", with its neutrino" if with_neutrino & set(columns) else ""
    if every:
        caption = (
            f"Every predicted {type_name}{solved} in all events; grey: the event is incomplete and the candidate "
            "is not right."
        )
        title = f"Mass of {type_name}, all events"
    else:
        caption = f"Every predicted {type_name}{solved} in complete events; right: all its objects are right."
        title = f"Mass of {type_name}, complete events"
    return Plot(f"mass_{name_of_file(type_name)}{'_all' if every else ''}", title, caption, draw, rows)


def _counted(result: Evaluation, method: Method, columns: list[int], every: bool) -> Floats:
    """(parts, bins): weights of right and of wrong candidates in complete events; with `every`, in all events.

    In all events, wrong candidates in incomplete events are a third part.
    """
    counted = result.counted("candidates", method)
    mass, right = counted["mass"][:, columns], counted["right"][:, columns]
    complete = np.repeat(counted["complete"][:, None], len(columns), axis=1)
    weight = np.repeat(counted["weight"][:, None], len(columns), axis=1)
    chosen = [right, ~right & complete, ~right & ~complete] if every else [right & complete, ~right & complete]
    return np.stack([np.histogram(mass[each], MASS_EDGES, weights=weight[each])[0] for each in chosen])


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
