"""The figure of one event: the eta-phi plane, and adjacency matrices of each state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.graph import EDGE, MASKED
from pairton.errors import MissingExtraError
from pairton.report.palette import (
    ARROW,
    GREY,
    INK,
    MASKED_COLOUR,
    NO_EDGE_COLOUR,
    kind_shapes,
    mixed,
    type_colours,
)
from pairton.report.record import EventRecord, Frame, Item, Shown, edge_pairs
from pairton.report.style import plain
from pairton.topology import JET
from pairton.topology.kinds import KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_event", "draw_matrix", "draw_plane", "new_figure"]

BEYOND = np.pi + 0.35  # phi is shown a little beyond pi, so that no object is cut
DIAGONAL = 0.55  # share of the type's colour on the diagonal, which means "in no particle of this type"
BARS = 6  # assignments in the bar chart of an exact likelihood
LEAST_SHOWN = 5e-4  # smallest probability of a bar for absent particles

MARKERS = {"circle": "o", "triangle": "^", "diamond": "D", "square": "s", "pentagon": "p", ARROW: r"$\rightarrow$"}
NEUTRINO = " + ν"  # if the mass of a particle includes a neutrino
NAME: dict[str, Any] = {
    "ha": "center",
    "va": "center",
    "fontweight": "bold",
}  # text style of the names of objects and particles

Floats = npt.NDArray[np.float64]


def new_figure(width: float, height: float) -> Figure:
    """A figure without a window or global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("report", "matplotlib") from None
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    engine = ConstrainedLayoutEngine(h_pad=0.07, w_pad=0.07)
    return Figure(figsize=(width, height), layout=engine, facecolor="white")


def draw_event(record: EventRecord) -> Figure:
    """The answer in the eta-phi plane, and beside it a column of matrices for each state.

    An exact likelihood has two columns: the edges of the network, and probabilities summed over all assignments.
    The leading assignments are below.
    """
    columns = _columns(record)
    types = [name for name in record.topology.types if edge_pairs(record.topology, name)]
    exact = bool(record.frames[0].marginals)
    rows = len(types) + (1 if exact else 0)
    ratios = [1.0] * len(types) + ([0.8] if exact else [])
    figure = new_figure(6.6 + 2.35 * len(columns) + (1.6 if exact else 0), max(5.0, 2.5 * sum(ratios)))
    left, right = figure.subfigures(  # type: ignore[misc]  # an array of two
        1, 2, width_ratios=[6.0, max(2.35 * len(columns), 2.35) + (1.6 if exact else 0)], wspace=0.02
    )
    draw_plane(left.subplots(), record, record.answer)
    about = [record.name, record.id and f"id {record.id}", record.source, record.model and f"model {record.model}"]
    lines = [" · ".join(filter(None, about))]
    if not record.answer and record.event_probability is not None:
        lines.append(f"Nothing is present, with a probability of {record.event_probability:.1%}.")
    elif not record.answer:
        lines.append(f"{record.frames[0].title}. {record.frames[0].note}")
    figure.suptitle(plain("\n".join(lines), 400), fontsize=9, color=INK, x=0.01, ha="left")
    if not columns:
        return figure
    grid = right.add_gridspec(rows, len(columns), height_ratios=ratios)
    for c, (title, kind, frame) in enumerate(columns):
        for r, name in enumerate(types):
            axes = right.add_subplot(grid[r, c])
            draw_matrix(axes, record, name, frame, kind)
            if r == 0:
                axes.set_title(title, fontsize=11, color=INK, pad=22)
            if c == 0:
                colour = type_colours(record.topology)[name]
                axes.set_ylabel(name, fontsize=14, rotation=0, labelpad=14, color=colour, **NAME)
    if exact:
        _bars(right.add_subplot(grid[len(types), :]), record, record.frames[0])
    return figure


def _columns(record: EventRecord) -> list[tuple[str, str, Frame]]:
    """Title, kind of matrix and frame of each column."""
    frames = record.frames
    if frames[0].marginals:
        total = len(frames[0].candidates) + frames[0].others
        return [
            ("network, pair by pair", "logits", frames[0]),
            (f"exact, all {total} ways", "marginals", frames[0]),
        ]
    if not frames[0].tokens:
        return []
    titles = ["nothing known"] + [_after(frame) for frame in frames[:-1]]
    return [(title, "tokens", frame) for title, frame in zip(titles, frames, strict=True)]


def _after(frame: Frame) -> str:
    chosen = next(candidate for candidate in frame.candidates if candidate.chosen)
    return f"+ {' '.join(shown.type for shown in chosen.particles)}  ({chosen.probability:.0%})"


# -- the plane ---------------------------------------------------------------------------------------------


def draw_plane(axes: Axes, record: EventRecord, particles: tuple[Shown, ...] = (), *, legend: bool = True) -> None:
    """Draw objects by kind, pT and b-tag, and particles by their edges; true particles not found are dotted."""
    colours, shapes = type_colours(record.topology), kind_shapes(record.topology)
    objects = record.objects
    reach = max([2.5, *(abs(item.eta) + 0.3 for item in objects)])
    axes.set(xlim=(-reach, reach), ylim=(-BEYOND, BEYOND), xlabel=r"$\eta$")
    axes.set_ylabel(r"$\phi$", rotation=0)
    axes.set_yticks(np.pi * np.array([-1, -0.5, 0, 0.5, 1]), [r"$-\pi$", r"$-\pi/2$", "0", r"$\pi/2$", r"$\pi$"])
    axes.grid(color="#eceff2", linewidth=0.8)
    axes.set_axisbelow(True)
    for limit in (-np.pi, np.pi):
        axes.axhline(limit, color="#b6bec7", linewidth=0.8, zorder=0.6)
    for shown in sorted(particles, key=lambda s: -len(s.objects)):
        _particle(axes, record, shown, colours[shown.type])
    found = {(s.type, frozenset(s.objects)) for s in particles if s.right}
    missed = [s for s in record.true_particles if (s.type, frozenset(s.objects)) not in found and particles]
    for shown in missed:
        for place in _copies(record, shown):
            for i, j in edge_pairs(record.topology, shown.type):
                axes.plot(*place[[i, j]].T, color=INK, linewidth=1.3, linestyle=(0, (1.5, 2.5)), zorder=2.5)
    for item in objects:
        if KINDS[item.kind].transverse:
            _arrow(axes, item, reach)
            continue
        face = "none" if not item.used else "#24292f" if item.tagged else "white"
        size = 5.2 * item.pt if item.used else 50
        size = float(np.clip(size, 150 if item.kind == JET else 450, 1300)) if item.used else size
        edge: dict[str, Any] = {"edgecolor": INK, "linewidth": 1.5, "zorder": 3}
        if not item.used:  # below the others, so that it does not hide their names
            edge = {"edgecolor": GREY, "linewidth": 1, "linestyle": ":", "zorder": 2.9}
        axes.scatter(item.eta, item.phi, s=size, marker=MARKERS[shapes[item.kind]], facecolor=face, **edge)
        if item.used:
            colour = "white" if item.tagged else INK
            inside = {"xytext": (0, -3 if shapes[item.kind] == "triangle" else 0), "textcoords": "offset points"}
            text: dict[str, Any] = {"fontsize": 10, "zorder": 4, "color": colour, **inside, **NAME}
            axes.annotate(item.short, (item.eta, item.phi), **text)
    _names(axes, record, particles, colours)
    if legend:
        _legend(axes, record, bool(missed))


def _arrow(axes: Axes, item: Item, reach: float) -> None:
    """Missing energy, which has a phi but no eta: an arrow from the side, whose length grows with its size."""
    length = min(reach * (0.15 + item.pt / 150), 1.2 * reach)
    style: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "linewidth": 3, "mutation_scale": 18, "shrinkA": 0}
    axes.axhline(item.phi, color=GREY, linewidth=1, linestyle=(0, (1, 3)), zorder=0.7)
    start, end = (-reach, item.phi), (-reach + length, item.phi)
    axes.annotate("", end, xytext=start, arrowprops={**style, "shrinkB": 0}, zorder=2.8)
    text: dict[str, Any] = {"xytext": (5, 5), "textcoords": "offset points", "fontsize": 10, "zorder": 5}
    axes.annotate(f"{item.short}  {item.pt:.0f} GeV", start, color=INK, ha="left", va="bottom", **text)


def _copies(record: EventRecord, shown: Shown) -> list[Floats]:
    """(objects, 2): the eta and phi of a particle's objects, without a jump in phi; three copies, 2 pi apart."""
    eta = np.array([record.objects[k].eta for k in shown.objects])
    phi = np.array([record.objects[k].phi for k in shown.objects])
    mean = np.arctan2(np.sin(phi).sum(), np.cos(phi).sum())
    phi = mean + (phi - mean + np.pi) % (2 * np.pi) - np.pi
    return [np.stack([eta, phi + turn], axis=1) for turn in (-2 * np.pi, 0, 2 * np.pi)]


def _particle(axes: Axes, record: EventRecord, shown: Shown, colour: str) -> None:
    from matplotlib.patches import Polygon

    leaf = record.topology.height(shown.type) == 0
    for place in _copies(record, shown):
        if len(place) == 3:  # with more objects, edges alone are clearer
            axes.add_patch(Polygon(place, facecolor=colour, alpha=0.13, zorder=1))
        for i, j in edge_pairs(record.topology, shown.type):
            style: Any = "-" if leaf else (0, (2.2, 1.6))
            axes.plot(*place[[i, j]].T, color=colour, linewidth=3.6 if leaf else 2.8, linestyle=style, zorder=2)


def _names(axes: Axes, record: EventRecord, particles: tuple[Shown, ...], colours: dict[str, str]) -> None:
    """Draw names near the middle of each particle, where no object or other name is."""
    from matplotlib.patheffects import withStroke

    taken = [np.array([item.eta, item.phi]) for item in record.objects if not KINDS[item.kind].transverse]
    names: list[Floats] = []  # wide and low, as they include masses
    wide = 0.16 * (axes.get_xlim()[1] - axes.get_xlim()[0])
    steps = [
        (r * np.cos(a), 1.3 * r * np.sin(a)) for r in (0, 0.2, 0.35, 0.5, 0.7) for a in np.arange(8) * np.pi / 4
    ]
    for shown in sorted(particles, key=lambda s: -len(s.objects)):
        if len(shown.objects) < 2:
            continue
        middle = _copies(record, shown)[1].mean(axis=0)
        middle[1] = np.arctan2(np.sin(middle[1]), np.cos(middle[1]))
        places = [middle + step for step in steps]
        free = [
            p
            for p in places
            if abs(p[1]) < np.pi
            and all(np.hypot(*(p - t)) > 0.36 for t in taken)
            and all(abs(p[0] - n[0]) > wide or abs(p[1] - n[1]) > 0.3 for n in names)
        ]
        at = free[0] if free else middle
        names.append(at)
        label = shown.label.rpartition(".")[2]
        named = label if shown.mass is None else f"{label}{NEUTRINO * shown.neutrino} {shown.mass:.0f}"
        text = axes.annotate(named, (at[0], at[1]), fontsize=12, color=colours[shown.type], zorder=5, **NAME)
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _legend(axes: Axes, record: EventRecord, missed: bool) -> None:
    from matplotlib.lines import Line2D

    dot: dict[str, Any] = {"linestyle": "none", "markersize": 9, "markeredgecolor": INK}
    handles = []
    for kind, shape in kind_shapes(record.topology).items():
        label = r"jet, area by $p_\mathrm{T}$" if kind == JET else plain(kind)
        look = (
            dot | {"markersize": 15, "markerfacecolor": INK}
            if shape == ARROW
            else dot | {"markerfacecolor": "white"}
        )
        handles.append(Line2D([], [], marker=MARKERS[shape], label=label, **look))
        if kind == JET:
            handles.append(Line2D([], [], marker="o", markerfacecolor="#24292f", label="b-tagged", **dot))
    for name, colour in type_colours(record.topology).items():
        if edge_pairs(record.topology, name):
            style: Any = "-" if record.topology.height(name) == 0 else (0, (2.2, 1.6))
            handles.append(Line2D([], [], color=colour, linewidth=3, linestyle=style, label=plain(name)))
    if not all(item.used for item in record.objects):
        unused = dot | {"markersize": 6, "markeredgecolor": GREY, "markerfacecolor": "none"}
        handles.append(Line2D([], [], marker="o", label="not used", **unused))
    if missed:
        handles.append(
            Line2D([], [], color=INK, linewidth=1.3, linestyle=(0, (1.5, 2.5)), label="true, not found")
        )
    columns = len(handles) if len(handles) < 7 else (len(handles) + 1) // 2
    above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.01), "ncols": columns}
    axes.legend(handles=handles, frameon=False, fontsize=10, columnspacing=1.2, handletextpad=0.4, **above)


# -- matrices ----------------------------------------------------------------------------------------------


def draw_matrix(axes: Axes, record: EventRecord, type_name: str, frame: Frame, kind: str = "tokens") -> None:
    """One adjacency matrix: the tokens of a state, or probabilities from `logits` or `marginals`."""
    source = getattr(frame, kind)
    values = np.array(source[record.topology.type_index(type_name)], dtype=np.float64)
    colour = type_colours(record.topology)[type_name]
    if kind == "logits":
        values = 1 / (1 + np.exp(-values))
    n = len(values)
    image = np.empty((n, n, 3))
    for i in range(n):
        for j in range(n):
            share = DIAGONAL if i == j else 1.0
            if kind != "tokens":
                shade = mixed(colour, share * values[i, j])
            elif values[i, j] == MASKED:
                shade = MASKED_COLOUR
            else:
                shade = mixed(colour, share) if values[i, j] == EDGE else NO_EDGE_COLOUR
            image[i, j] = [int(shade[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    axes.pcolormesh(np.arange(n + 1) - 0.5, np.arange(n + 1) - 0.5, image, edgecolors="#aeb6bf", linewidth=0.5)
    axes.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5), aspect="equal")
    names = [item.short for item in record.objects if item.used]
    size = 9 if n < 10 else 7
    axes.set_xticks(range(n), names, fontsize=size)
    axes.set_yticks(range(n), names, fontsize=size)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=2, colors=INK, which="both", right=False, left=False, top=False, bottom=False)
    axes.minorticks_off()
    tags = [item.tagged for item in record.objects if item.used]
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        for label, tagged in zip(labels, tags, strict=True):
            label.set_fontweight("bold" if tagged else "normal")
    for spine in axes.spines.values():
        spine.set_color(GREY)


def _bars(axes: Axes, record: EventRecord, frame: Frame) -> None:
    """The leading assignments of an exact likelihood."""
    listed = frame.candidates[:BARS]
    names = [
        "   ".join(
            f"{s.label}: {' '.join(record.objects[k].short for k in s.objects)}{NEUTRINO * s.neutrino}"
            + ("" if s.mass is None else f" ({s.mass:.0f})")
            for s in c.particles
        )
        or "nothing"
        for c in listed
    ]
    chances = [c.probability for c in listed]
    colours = [GREY if c.right is not True else "#009E73" for c in listed]
    marks = ["  (true)" if c.right else "" for c in listed]
    absent = 1 - sum(c.probability for c in frame.candidates) - frame.others_probability
    if absent > LEAST_SHOWN:  # the network knows missing particles, and complete assignments alone are listed
        names, chances = [*names, "not complete: a particle is absent"], [*chances, absent]
        colours, marks = [*colours, NO_EDGE_COLOUR], [*marks, ""]
    axes.barh(range(len(names)), chances, color=colours)
    axes.set_yticks(range(len(names)), [plain(name, 99) for name in names], fontsize=8)
    axes.set(ylim=(len(names) - 0.5, -0.5), xlim=(0, 1.22), xlabel="probability of the assignment; masses in GeV")
    axes.set_xticks(np.linspace(0, 1, 6))
    for k, (chance, mark) in enumerate(zip(chances, marks, strict=True)):
        axes.annotate(f" {chance:.1%}{mark}", (chance, k), va="center", fontsize=8, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, length=0)
