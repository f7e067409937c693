"""The flow of events through right and wrong steps: one-shot on the left, step by step on the right.

Both begin with the same first step, in the middle. A step that reveals several particles together is split by how
many of them are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pairton.evaluation.plots import COLOURS, INK, RIGHT, WRONG, Plot, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["flow_plot", "links", "merged"]

GAP = 0.03  # between nodes, relative to the height
LINE = 0.037  # height of a line of text, relative to the height
SIGNS = {"+": "+", "-": "−"}
BY_SIGN = {"+": RIGHT, "~": COLOURS[5], "-": WRONG, "x": WRONG}  # the last sign of a history
NODE = 0.16  # width of a node, in steps
FULL = 3  # with more steps, histories are merged by when the first wrong step was
EARLIER = "x"  # the first wrong step was earlier

Counts = Sequence[Mapping[str, float]]  # after each step: history of +, ~ and - -> events, or sum of weights
Links = list[tuple[str, str, float]]  # history before, history after, events
Places = dict[str, tuple[float, float]]  # history -> lower and upper end of its node


def merged(counts: Counts) -> list[dict[str, float]]:
    """Merge histories of many steps: right so far, wrong for the first time, and (EARLIER) wrong before.

    A negative sum of weights is drawn as zero.

    >>> merged([{"+": 3, "-": 1}, {"++": 2, "+-": 1, "-+": 1, "--": 0}])
    [{'+': 3, '-': 1}, {'++': 2, '+-': 1, '-+': 1, '--': 0}]
    """
    drawn = [{name: max(value, 0) for name, value in each.items()} for each in counts]
    if len(drawn) <= FULL:
        return drawn
    result = []
    for k, each in enumerate(drawn):
        good, first = "+" * (k + 1), "+" * k + "-"
        found = {name: each[name] for name in (good, "+" * k + "~", first) if name in each}
        if k:
            found[EARLIER] = max(sum(each.values()) - sum(found.values()), 0)
        result.append(found)
    return result


def links(before: Mapping[str, float], now: Mapping[str, float]) -> Links:
    """The links between the histories of two steps, from top to bottom."""
    found = [(history[:-1], history, count) for history, count in now.items() if history[:-1] in before]
    if EARLIER in now:
        found += [(old, EARLIER, count) for old, count in before.items() if not old.endswith("+")]
    return [link for link in found if link[2] > 0]


def flow_plot(name: str, flow: Mapping[str, Any]) -> Plot | None:
    """The figure, from the result of the metric `flow`: stages, and counts for `one_shot` and `steps`."""
    if not (flow.get("one_shot") and flow.get("steps")):
        return None
    sides = {-1: merged(flow["one_shot"]), 1: merged(flow["steps"])}
    stages = [str(stage) for stage in flow["stages"]]
    total = sum(sides[1][0].values())
    if not total:
        return None

    def draw() -> Figure:
        depth = len(stages)
        figure = new_figure(max(10.0, 4.2 * depth), 5.6)
        axes = figure.subplots()
        for side, counts in sides.items():
            _side(axes, side, counts, total, stages)
        for k, stage in enumerate(stages):
            for side in (-1, 1) if k else (1,):
                axes.annotate(
                    plain(stage), (side * k, 1.09), ha="center", fontsize=13, fontweight="bold", color=INK
                )
        axes.annotate("← one-shot", (-0.5, 1.17), ha="center", fontsize=13, color=INK)
        axes.annotate("step by step →", (0.5, 1.17), ha="center", fontsize=13, color=INK)
        axes.set(xlim=(-depth + 0.45, depth - 0.45), ylim=(-0.03, 1.24))
        axes.axis("off")
        return figure

    rows = [
        {"decoding": decoding, "step": k + 1, "stage": stages[k], "history": history, "events": count}
        for decoding in ("one_shot", "steps")
        for k, each in enumerate(flow[decoding])
        for history, count in each.items()
    ]
    events = f"{total}" if isinstance(total, int) else f"Weighted (sum {total:.4g})"
    caption = (
        f"{events} complete events of {name}: right (blue, +) and wrong (orange, −) after each step, with the "
        "share of the events of the previous node. Steps that reveal several particles are split by how many of "
        "them are right. The first step is common to both sides."
    )
    return Plot("flow", "Right and wrong steps, one-shot and step by step", caption, draw, rows)


def _side(axes: Axes, side: int, counts: Counts, total: float, stages: Sequence[str]) -> None:
    before: Places = {}
    for k, each in enumerate(counts):
        places = _places(each, total)
        flows = links(counts[k - 1], each) if k else []
        if k:
            _bands(axes, side, k, flows, before, places, total)
        shown = {history: ends for history, ends in places.items() if each[history] and (k or side > 0)}
        split = any(history.endswith("~") for history in each)
        words, free = _words(stages[k]) if split else None, 2.0
        for history, (low, high) in shown.items():
            x = side * k
            axes.fill_between([x - NODE / 2, x + NODE / 2], low, high, color=BY_SIGN[history[-1]], linewidth=0)
            at = min((low + high) / 2, free) if split else (low + high) / 2  # labels of small nodes do not overlap
            _label(axes, side, k, _text(k, history, each[history], flows, total, words), at)
            free = at - LINE
        before = places


def _words(stage: str) -> dict[str, str]:
    """Words for how many particles of a stage are right.

    >>> _words("t + t")
    {'+': 'both', '~': 'one', '-': 'none'}
    """
    two = stage.count(" + ") == 1
    return {"+": "both" if two else "all", "~": "one" if two else "some", "-": "none"}


def _places(each: Mapping[str, float], total: float) -> Places:
    """The lower and upper end of each node; the first history is at the top."""
    shown = [history for history, count in each.items() if count]
    scale = 1 - GAP * max(len(each) - 1, 0)
    top = 1 - GAP * (len(each) - len(shown)) / 2
    places = {}
    for history, count in each.items():
        height = scale * count / total
        places[history] = (top - height, top)
        if count:
            top -= height + GAP
    return places


def _bands(axes: Axes, side: int, k: int, flows: Links, before: Places, places: Places, total: float) -> None:
    """Draw curved bands between nodes, whose height is the number of events."""
    leave = {history: high for history, (_, high) in before.items()}
    enter = {history: high for history, (_, high) in places.items()}
    out, into = (sum(high - low for low, high in each.values()) / total for each in (before, places))
    t = np.linspace(0, 1, 40)
    smooth = t * t * (3 - 2 * t)
    x = side * (k - 1 + NODE / 2 + (1 - NODE) * t)
    for old, new, count in flows:
        start, end = leave[old], enter[new]
        upper = start + (end - start) * smooth
        lower = start - count * out + (end - count * into - start + count * out) * smooth
        leave[old] -= count * out
        enter[new] -= count * into
        axes.fill_between(x, lower, upper, color=BY_SIGN[new[-1]], alpha=0.28, linewidth=0)


def _text(k: int, history: str, count: float, flows: Links, total: float, words: Mapping[str, str] | None) -> str:
    number = f"{count:,}".replace(",", " ") if isinstance(count, int) else f"{count:.4g}"
    if history == EARLIER:
        return f"− {number}"
    came = history[:-1]
    share = count / total if k == 0 else count / sum(n for old, _, n in flows if old == came)
    if words is not None:
        return f"{words[history[-1]]}  {number}  {share:.1%}"
    return f"{SIGNS[history[-1]]} {number}{chr(10) if count / total > 0.045 else '  '}{share:.1%}"


def _label(axes: Axes, side: int, k: int, text: str, y: float) -> None:
    if k == 0:
        axes.annotate(
            text, (0, y), ha="center", va="center", fontsize=10, color="white", fontweight="bold", rotation=90
        )
    else:
        x = side * (k + NODE / 2 + 0.03)
        axes.annotate(text, (x, y), ha="left" if side > 0 else "right", va="center", fontsize=10, color=INK)
