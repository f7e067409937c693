"""The drawing of one event: the eta-phi plane, and adjacency matrices of each state.

The page shows the same plane as the picture: one SVG, whose particles are layers that the page shows and hides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pairton.decoding.graph import EDGE, MASKED
from pairton.evaluation.plots import GREY, INK, draw_cells, mixed, new_figure, plain, svg_of
from pairton.report.record import (
    ARROW,
    EventRecord,
    Frame,
    Item,
    Shown,
    edge_pairs,
    kind_shapes,
    type_colours,
)
from pairton.topology import JET
from pairton.topology.kinds import KINDS

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_event", "draw_matrix", "draw_plane", "plane_svg"]

BEYOND = np.pi + 0.35  # phi is shown a little beyond pi, so that no object is cut
DIAGONAL = 0.55  # share of the type's colour on the diagonal, which means "in no particle of this type"
BARS = 6  # assignments in the bar chart of an exact likelihood
LEAST_SHOWN = 5e-4  # smallest probability of a bar for absent particles

MARKERS = {"circle": "o", "triangle": "^", "diamond": "D", "square": "s", "pentagon": "p", ARROW: r"$\rightarrow$"}
NO_EDGE = "#d3d7dd"
TAGGED = "#24292f"
NEUTRINO = " + ν"  # if the mass of a particle includes a neutrino
DASHED, DOTTED = (0, (2.2, 1.6)), (0, (1.5, 2.5))
NAME: dict[str, Any] = {"ha": "center", "va": "center", "fontweight": "bold"}  # style of names in the plane

Floats = npt.NDArray[np.float64]


def draw_event(record: EventRecord) -> Figure:
    """The answer in the eta-phi plane, and beside it a column of matrices for each state.

    An exact likelihood has two columns: the edges of the network, and probabilities summed over all assignments.
    The leading assignments are below.
    """
    columns = _columns(record)
    types = [name for name in record.topology.types if edge_pairs(record.topology, name)]
    exact = bool(record.frames[0].marginals)
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
    grid = right.add_gridspec(len(ratios), len(columns), height_ratios=ratios)
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
    choice = next(candidate for candidate in frame.candidates if candidate.chosen)
    return f"+ {' '.join(shown.type for shown in choice.particles)}  ({choice.probability:.0%})"


# -- the plane ---------------------------------------------------------------------------------------------


def plane_svg(record: EventRecord) -> str:
    """The plane as SVG, with everything that a page may show, in groups with classes.

    `pd-layer` and the name of a layer: `p-TYPE-OBJECTS` and `n-TYPE-OBJECTS` are a particle and its name, with the
    index of its type and the places of its objects, `t-TYPE-OBJECTS` a true particle, and `labels` the labels of
    objects; `pd-object` and `o-OBJECT` is an object.
    """
    choices = sorted((c for frame in record.frames for c in frame.candidates), key=lambda c: not c.chosen)
    every = [*record.answer, *(s for frame in record.frames for s in frame.particles)]
    every += [s if choice.chosen else replace(s, label="") for choice in choices for s in choice.particles]
    figure = new_figure(6.2, 5.3)
    figure.set_layout_engine("none")  # as all events of a page have the same frame
    axes = figure.add_axes((0.09, 0.09, 0.89, 0.81))
    distinct = {_layer(record, "p", shown): shown for shown in reversed(every)}  # the first of several is kept
    draw_plane(axes, record, distinct.values(), true=record.true_particles)
    _labels(axes, record)
    text = svg_of(figure, f"{record.name}: objects in the plane of eta and phi")
    return re.sub('font-family: [^;"]*(; )?', "", text).replace('<g id="pd-', '<g class="pd-')


def _layer(record: EventRecord, prefix: str, shown: Shown) -> str:
    objects = "-".join(str(k) for k in sorted(shown.objects))
    return f"{prefix}-{record.topology.type_index(shown.type)}-{objects}"


def _put(artists: Iterable[Artist], layer: str) -> None:
    for artist in artists:
        artist.set_gid(layer)


def draw_plane(
    axes: Axes,
    record: EventRecord,
    particles: Iterable[Shown] = (),
    *,
    true: Iterable[Shown] | None = None,
    legend: bool = True,
) -> None:
    """Draw objects by kind, pT and b-tag, and particles by their edges.

    `true` particles are dotted: by default those that are not among `particles`, if there are any of these.
    """
    particles = sorted(particles, key=lambda s: -len(s.objects))
    if true is None:
        right = {(s.type, frozenset(s.objects)) for s in particles if s.right}
        true = [s for s in record.true_particles if (s.type, frozenset(s.objects)) not in right and particles]
    colours, shapes = type_colours(record.topology), kind_shapes(record.topology)
    reach = max([2.5, *(abs(item.eta) + 0.3 for item in record.objects)])
    axes.set(xlim=(-reach, reach), ylim=(-BEYOND, BEYOND), xlabel=r"$\eta$")
    axes.set_ylabel(r"$\phi$", rotation=0)
    axes.set_yticks(np.pi * np.array([-1, -0.5, 0, 0.5, 1]), [r"$-\pi$", r"$-\pi/2$", "0", r"$\pi/2$", r"$\pi$"])
    axes.grid(color="#eceff2", linewidth=0.8)
    axes.set_axisbelow(True)
    for limit in (-np.pi, np.pi):
        axes.axhline(limit, color="#b6bec7", linewidth=0.8, zorder=0.6)
    for shown in particles:
        _put(_particle(axes, record, shown, colours[shown.type]), f"pd-layer {_layer(record, 'p', shown)}")
    for shown in true:
        style = {"color": INK, "linewidth": 1.3, "linestyle": DOTTED, "zorder": 2.5}
        _put(_edges(axes, record, shown, **style), f"pd-layer {_layer(record, 't', shown)}")
    for place, item in enumerate(record.objects):
        artists = (
            _arrow(axes, item, reach) if KINDS[item.kind].transverse else _object(axes, item, shapes[item.kind])
        )
        _put(artists, f"pd-object o-{place}")
    _names(axes, record, particles, colours)
    if legend:
        _legend(axes, record, bool(true))


def _area(item: Item) -> float:
    return float(np.clip(5.2 * item.pt, 150 if item.kind == JET else 450, 1300)) if item.used else 50


def _object(axes: Axes, item: Item, shape: str) -> list[Artist]:
    face = "none" if not item.used else TAGGED if item.tagged else "white"
    edge: dict[str, Any] = {"edgecolor": INK, "linewidth": 1.5, "zorder": 3}
    if not item.used:  # below the others, so that it does not hide their names
        edge = {"edgecolor": GREY, "linewidth": 1, "linestyle": ":", "zorder": 2.9}
    artists: list[Artist] = [
        axes.scatter(item.eta, item.phi, s=_area(item), marker=MARKERS[shape], facecolor=face, **edge)
    ]
    look: dict[str, Any] = {"edgecolor": INK if item.used else GREY, "linewidth": 1.2, "zorder": 1.5}
    artists += _circles(axes, item, fill=False, linestyle="-" if item.used else ":", **look)
    if item.used:
        inside: dict[str, Any] = {"xytext": (0, -3 if shape == "triangle" else 0), "textcoords": "offset points"}
        text: dict[str, Any] = {"fontsize": 10, "zorder": 4, "color": "white" if item.tagged else INK}
        artists.append(axes.annotate(item.short, (item.eta, item.phi), **text, **inside, **NAME))
    return artists


def _circles(axes: Axes, item: Item, **style: Any) -> list[Artist]:
    """A large jet with its radius, also where it crosses the seam of phi."""
    from matplotlib.patches import Ellipse

    size = 2 * KINDS[item.kind].radius
    seen = [item.phi + turn for turn in (0, -2 * np.pi, 2 * np.pi) if abs(item.phi + turn) < BEYOND + size / 2]
    return [axes.add_patch(Ellipse((item.eta, phi), size, size, **style)) for phi in seen] if size else []


def _arrow(axes: Axes, item: Item, reach: float) -> list[Artist]:
    """Missing energy, which has a phi but no eta: an arrow from the side, whose length grows with its size."""
    length = min(reach * (0.15 + item.pt / 150), 1.2 * reach)
    style: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "linewidth": 3, "mutation_scale": 18, "shrinkA": 0}
    start, end = (-reach, item.phi), (-reach + length, item.phi)
    text: dict[str, Any] = {"xytext": (5, 5), "textcoords": "offset points", "fontsize": 10, "zorder": 5}
    return [
        axes.axhline(item.phi, color=GREY, linewidth=1, linestyle=(0, (1, 3)), zorder=0.7),
        axes.annotate("", end, xytext=start, arrowprops={**style, "shrinkB": 0}, zorder=2.8),
        axes.annotate(f"{item.short}  {item.pt:.0f} GeV", start, color=INK, ha="left", va="bottom", **text),
    ]


def _copies(record: EventRecord, shown: Shown) -> list[Floats]:
    """(objects, 2): the eta and phi of a particle's objects, without a jump in phi, and its visible copies."""
    eta = np.array([record.objects[k].eta for k in shown.objects])
    phi = np.array([record.objects[k].phi for k in shown.objects])
    mean = np.arctan2(np.sin(phi).sum(), np.cos(phi).sum())
    phi = mean + (phi - mean + np.pi) % (2 * np.pi) - np.pi
    turns = [0, *(turn for turn in (-2 * np.pi, 2 * np.pi) if (abs(phi + turn) < BEYOND).any())]
    return [np.stack([eta, phi + turn], axis=1) for turn in turns]


def _edges(axes: Axes, record: EventRecord, shown: Shown, **style: Any) -> list[Artist]:
    pairs = edge_pairs(record.topology, shown.type, len(shown.objects))
    return [axes.plot(*place[[i, j]].T, **style)[0] for place in _copies(record, shown) for i, j in pairs]


def _particle(axes: Axes, record: EventRecord, shown: Shown, colour: str) -> list[Artist]:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Polygon

    leaf = record.topology.height(shown.type) == 0
    look: dict[str, Any] = {"linewidth": 3.6 if leaf else 2.8, "linestyle": "-" if leaf else DASHED}
    artists: list[Artist] = []
    if len(shown.objects) == 3:  # with more objects, edges alone are clearer
        areas = [Polygon(place, facecolor=colour, alpha=0.13, zorder=1) for place in _copies(record, shown)]
        artists += [axes.add_patch(area) for area in areas]
    for item in (record.objects[k] for k in shown.objects):
        artists += _circles(axes, item, facecolor=to_rgba(colour, 0.13), edgecolor=colour, linewidth=3.6, zorder=1)
    return artists + _edges(axes, record, shown, color=colour, zorder=2, **look)


def _names(axes: Axes, record: EventRecord, particles: list[Shown], colours: dict[str, str]) -> None:
    """Draw names near the middle of each particle, where no object or other name is."""
    taken = [np.array([item.eta, item.phi]) for item in record.objects if not KINDS[item.kind].transverse]
    names: list[Floats] = []  # wide and low, as they include masses
    wide = 0.16 * (axes.get_xlim()[1] - axes.get_xlim()[0])
    steps = [
        (r * np.cos(a), 1.3 * r * np.sin(a)) for r in (0, 0.2, 0.35, 0.5, 0.7) for a in np.arange(8) * np.pi / 4
    ]
    answer = {_layer(record, "n", shown) for shown in record.answer}
    for shown in sorted(particles, key=lambda shown: _layer(record, "n", shown) not in answer):
        merged = any(KINDS[record.objects[k].kind].radius for k in shown.objects)
        if (len(shown.objects) < 2 and not merged) or not shown.label:
            continue
        middle = _copies(record, shown)[0].mean(axis=0)
        middle[1] = np.arctan2(np.sin(middle[1]), np.cos(middle[1]))
        free = [
            p
            for p in (middle + step for step in steps)
            if abs(p[1]) < np.pi
            and all(np.hypot(*(p - t)) > 0.36 for t in taken)
            and all(abs(p[0] - n[0]) > wide or abs(p[1] - n[1]) > 0.3 for n in names)
        ]
        at = free[0] if free else middle
        layer = _layer(record, "n", shown)
        names += [at] if layer in answer else []  # others are seldom shown together
        label = shown.label.rpartition(".")[2]
        text = label if shown.mass is None else f"{label}{NEUTRINO * shown.neutrino} {shown.mass:.0f}"
        _put([_on_white(axes, text, at, fontsize=12, color=colours[shown.type], **NAME)], f"pd-layer {layer}")


def _on_white(axes: Axes, text: str, at: Any, **style: Any) -> Artist:
    """Text that can be read on lines; an outline would turn it into paths."""
    box = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.8}
    return axes.annotate(text, (at[0], at[1]), zorder=5, bbox=box, **style)


def _labels(axes: Axes, record: EventRecord) -> None:
    """The slots of labelled objects, above them or where they fit within the frame."""
    for slot, place in enumerate(record.truth or ()):
        if place >= 0:
            item, name = record.objects[place], record.slot_names[slot]
            above, away = item.phi < BEYOND - 0.7, np.sqrt(_area(item)) / 2 + 3
            style: dict[str, Any] = {"xytext": (0, away if above else -away), "textcoords": "offset points"}
            style |= {"ha": "center", "va": "bottom" if above else "top", "fontsize": 10, "color": GREY}
            _put([_on_white(axes, name, (item.eta, item.phi), **style)], "pd-layer labels")


def _legend(axes: Axes, record: EventRecord, missed: bool) -> None:
    from matplotlib.lines import Line2D

    dot: dict[str, Any] = {
        "linestyle": "none",
        "markersize": 9,
        "markeredgecolor": INK,
        "markerfacecolor": "white",
    }
    handles = []
    for kind, shape in kind_shapes(record.topology).items():
        label = "jet, area by pT" if kind == JET else plain(kind)
        look = dot | ({"markersize": 15, "markerfacecolor": INK} if shape == ARROW else {})
        handles.append(Line2D([], [], marker=MARKERS[shape], label=label, **look))
        if kind == JET:
            handles.append(Line2D([], [], marker="o", label="b-tagged", **dot | {"markerfacecolor": TAGGED}))
    for name, colour in type_colours(record.topology).items():
        if edge_pairs(record.topology, name):
            style: Any = "-" if record.topology.height(name) == 0 else DASHED
            handles.append(Line2D([], [], color=colour, linewidth=3, linestyle=style, label=plain(name)))
    if not all(item.used for item in record.objects):
        unused = dot | {"markersize": 6, "markeredgecolor": GREY, "markerfacecolor": "none"}
        handles.append(Line2D([], [], marker="o", label="not used", **unused))
    if missed:
        handles.append(Line2D([], [], color=INK, linewidth=1.3, linestyle=DOTTED, label="true, not found"))
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
    share = np.where(np.eye(len(values), dtype=bool), DIAGONAL, 1.0)
    if kind == "tokens":
        image = np.where((values == EDGE)[:, :, None], mixed(colour, share), mixed(NO_EDGE, 1))
        image[values == MASKED] = 1.0
    else:
        image = mixed(colour, share * values)
    names = [item.short for item in record.objects if item.used]
    draw_cells(axes, image, names, 9 if len(names) < 10 else 7)
    axes.set_aspect("equal")
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=2, colors=INK, which="both", right=False, left=False, top=False, bottom=False)
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
        colours, marks = [*colours, NO_EDGE], [*marks, ""]
    axes.barh(range(len(names)), chances, color=colours)
    axes.set_yticks(range(len(names)), [plain(name, 99) for name in names], fontsize=8)
    axes.set(ylim=(len(names) - 0.5, -0.5), xlim=(0, 1.22), xlabel="probability of the assignment; masses in GeV")
    axes.set_xticks(np.linspace(0, 1, 6))
    for k, (chance, mark) in enumerate(zip(chances, marks, strict=True)):
        axes.annotate(f" {chance:.1%}{mark}", (chance, k), va="center", fontsize=8, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, length=0)
