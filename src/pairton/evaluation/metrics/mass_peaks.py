"""Masses of predicted particles, for the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.evaluation.plots import INK, RIGHT, WRONG, Plot, legend, name_of_file, new_axes, plain
from pairton.evaluation.registry import Chunk, Metric
from pairton.evaluation.scores import matches
from pairton.reconstruction.result import momenta, positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pairton.evaluation.evaluation import Evaluation
    from pairton.evaluation.methods import Method

__all__ = ["Candidates"]

MASS_EDGES = np.linspace(0, 1000, 501)  # GeV; figures show a part, with wider bins if there are few events
ROUND = 5  # the lower end of the mass axis is a multiple of so many bins
VIEW = 0.99  # share of right particles within the figure, before margins
PARTS = ("right", "wrong", "incomplete")
COLOURS = (RIGHT, WRONG, "#d3d7dd")

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

    def draw() -> Figure:
        import mplhep

        figure, axes = new_axes(
            f"mass of {plain(type_name)} candidates [GeV]", f"candidates / {edges[1] - edges[0]:g} GeV"
        )
        look: dict[str, Any] = {"bins": edges, "ax": axes, "yerr": False}
        names = [f"{plain(first)}, {part}" for part in ("right", "wrong", "event incomplete")[:parts]]
        filled = {"stack": True, "histtype": "fill", "color": COLOURS[:parts], "alpha": 0.75, "label": names}
        mplhep.histplot(list(counts(shown)), **look, **filled)
        for k, (name, other) in enumerate(others):
            line = {"histtype": "step", "color": INK, "linestyle": ("-", "--", ":", "-.")[k % 4]}
            mplhep.histplot(counts(other.sum(axis=0)), label=plain(name), **look, **line)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 1.32 * max(float(axes.dataLim.ymax), 1))
        legend(axes, loc="upper right")
        return figure

    rows = [
        {
            "method": name,
            "from": edges[k],
            "to": edges[k + 1],
            **dict(zip(PARTS, map(float, column), strict=False)),
        }
        for name, values in peaks.items()
        for k, column in enumerate(counts(values).T)
    ]
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
