"""Colours of particle types (after Okabe and Ito, safe for colour-blind readers) and shapes of objects."""

from __future__ import annotations

from pairton.topology import JET, Topology
from pairton.topology.kinds import KINDS

__all__ = [
    "ARROW",
    "GREY",
    "INK",
    "MASKED_COLOUR",
    "NO_EDGE_COLOUR",
    "PARTLY",
    "RIGHT",
    "THIRD",
    "WRONG",
    "kind_shapes",
    "mixed",
    "type_colours",
]

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
TYPES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
RIGHT, WRONG, THIRD = BLUE, VERMILLION, GREEN
PARTLY = SKY  # partly right
INK, GREY = "#1b1f24", "#6b7280"
MASKED_COLOUR, NO_EDGE_COLOUR = "#ffffff", "#d3d7dd"
SHAPES = ("triangle", "diamond", "square", "pentagon")  # of kinds other than jets
ARROW = "arrow"  # of kinds that have only a transverse direction


def type_colours(topology: Topology) -> dict[str, str]:
    """The colour of each type, in the order of `topology.types`; colours repeat after six."""
    return {name: TYPES[k % len(TYPES)] for k, name in enumerate(topology.types)}


def kind_shapes(topology: Topology) -> dict[str, str]:
    """The shape of each kind: circles for jets, an arrow for missing energy, one of four shapes for others."""
    others = [kind for kind in topology.kinds if kind != JET and not KINDS[kind].transverse]
    shapes = {kind: SHAPES[k % len(SHAPES)] for k, kind in enumerate(others)} | {JET: "circle"}
    return {kind: shapes.get(kind, ARROW) for kind in topology.kinds}


def mixed(colour: str, share: float, base: str = MASKED_COLOUR) -> str:
    """A colour mixed into a base colour with this share.

    >>> mixed("#0072B2", 1.0), mixed("#0072B2", 0.5)
    ('#0072b2', '#80b9d9')
    """
    parts = [(int(colour[k : k + 2], 16), int(base[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{int(a * share + b * (1 - share) + 0.5):02x}" for a, b in parts)
