"""Draws the figures of docs/method.md, from the sample events and the default model.

python workflow/method_figures.py [FOLDER]
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.patches import Rectangle

import pairton
from pairton.decoding.graph import EDGE, NO_EDGE, adjacency, visible_tokens
from pairton.evaluation.scores import score
from pairton.events.nodes import Nodes
from pairton.models.model import Model, load_model
from pairton.reconstruction.assigner import Assigner
from pairton.reconstruction.run_settings import RunSettings

EVENT = 825  # row in the sample: the event of the README, with eight jets
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#999999"
BINS = np.linspace(0, 1, 11)

Floats = npt.NDArray[np.float64]


def graph(model: Model, events: pairton.Events, path: Path) -> None:
    """Draw the jets of one event, with the edges of its answer."""
    accepted = Assigner(model, RunSettings()).accept(events)
    nodes = Nodes.full({"jet": accepted.nodes.values["jet"][:1, : accepted.nodes.counts[0, 0]]})
    reco = pairton.reconstruct(events, model)
    eta, phi = nodes.values["jet"][0, :, 1], nodes.values["jet"][0, :, 2]
    rank = {int(position): k for k, position in enumerate(accepted.position["jet"][0])}
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for particle in model.topology.particles:
        members = [rank[int(reco.assignment[0, slot])] for slot in particle.slots]
        colour, style, width = (BLUE, "-", 5.0) if particle.type == "W" else (ORANGE, "--", 2.0)
        for i, one in enumerate(members):
            for two in members[:i]:
                axes.plot(eta[[one, two]], phi[[one, two]], style, color=colour, lw=width, zorder=1)
    axes.scatter(eta, phi, s=420, color="white", edgecolor="black", zorder=2)
    for k, (x, y) in enumerate(zip(eta, phi, strict=True)):
        axes.annotate(str(k), (x, y), ha="center", va="center", zorder=3)
    axes.plot([], [], color=BLUE, lw=5, label="edge of a W")
    axes.plot([], [], "--", color=ORANGE, lw=2, label="edge of a t")
    axes.margins(0.12)
    axes.set_xlabel(r"$\eta$")
    axes.set_ylabel(r"$\phi$")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def states(events: pairton.Events, path: Path) -> None:
    """Draw the tokens of one event at the levels of masking, and the truth behind them."""
    topology, n_nodes = events.topology, int(events.n_jets[0])
    mask, truth = np.ones((1, n_nodes), dtype=bool), events.truth
    assert truth is not None
    hidden, _ = adjacency(topology, truth, mask)
    columns = [
        (title, visible_tokens(topology, truth, level[:1], mask))
        for title, level in zip(
            ("nothing revealed", "one W revealed", "both W revealed"), topology.levels, strict=False
        )
    ]
    colours = {"W": BLUE, "t": ORANGE}
    figure, axes = plt.subplots(2, len(columns), figsize=(7.2, 4.7), layout="constrained")
    for column, (title, tokens) in enumerate(columns):
        axes[0, column].set_title(title, fontsize=11)
        for row, name in enumerate(topology.types):
            axis = axes[row, column]
            for (i, j), token in np.ndenumerate(tokens[0, row]):
                colour = {EDGE: colours[name], NO_EDGE: "#d3d7dd"}.get(int(token), "white")
                axis.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=colour, edgecolor="white", lw=1))
                if colour == "white":
                    mark = "?" if hidden[0, row, i, j] != EDGE else "×"
                    dark = "black" if mark == "×" else GREY
                    axis.annotate(mark, (j, i), ha="center", va="center", fontsize=8, color=dark)
            axis.set(xlim=(-0.5, n_nodes - 0.5), ylim=(n_nodes - 0.5, -0.5), aspect="equal")
            axis.set_xticks(range(n_nodes))
            axis.set_yticks(range(n_nodes))
            axis.tick_params(length=0, labelsize=7)
            if column == 0:
                axis.set_ylabel(name, fontsize=14, rotation=0, labelpad=14, color=colours[name])
    figure.savefig(path, dpi=130)
    plt.close(figure)


def curve(probability: Floats, right: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Mean probability, share of right answers and its standard error, in bins with at least 20 events.

    >>> curve(np.full(40, 0.25), np.arange(40) % 4 == 0)[:2]
    (array([0.25]), array([0.25]))
    """
    rows = []
    for low, high in pairwise(BINS):
        inside = (probability >= low) & (probability < high)
        if inside.sum() >= 20:
            share = right[inside].mean()
            rows.append((probability[inside].mean(), share, np.sqrt(share * (1 - share) / inside.sum())))
    mean, share, error = np.array(rows).reshape(-1, 3).T
    return mean, share, error


def calibration(model: Model, events: pairton.Events, path: Path) -> None:
    """Draw the share of right answers against their probability, for all events."""
    reco = pairton.reconstruct(events, model)
    assert events.truth is not None
    right = score(events.topology, events.truth, reco.assignment, events.n_jets).correct["event"] > 0
    known = np.isfinite(reco.event_probability)
    figure, axes = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
    axes.plot([0, 1], [0, 1], color=GREY, lw=1)
    for values, label, colour in (
        (reco.outputs["event_probability_if_complete"], "if the event is complete", ORANGE),
        (reco.event_probability, "over all hypotheses", BLUE),
    ):
        mean, share, error = curve(np.asarray(values, dtype=np.float64)[known], right[known])
        axes.errorbar(mean, share, error, fmt="o-", color=colour, label=label)
    axes.set_xlabel("probability of the answer")
    axes.set_ylabel("share of all events that are right")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("docs/images"))
    folder = parser.parse_args().folder
    model, events = load_model("ttbar_allhad"), pairton.read("sample:ttbar_allhad")
    graph(model, events[EVENT : EVENT + 1], folder / "method_graph.png")
    states(events[EVENT : EVENT + 1], folder / "method_states.png")
    calibration(model, events, folder / "method_calibration.png")


if __name__ == "__main__":
    main()
