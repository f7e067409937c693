"""Typed settings from YAML: what is accepted, and the one line that names the place, the value and the remedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from pairton._common.configuration import configure, parse_yaml
from pairton.errors import TopologyError

Name = Annotated[str, Meta(pattern=r"^[a-z_]+$", description="a name of small letters")]


class Leaf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    width: Annotated[float, Meta(gt=0)]
    form: Literal["gauss", "laplace"] = "gauss"


@dataclass(frozen=True)
class Tree:
    leaves: dict[Name, Leaf | None] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    steps: int | None = None
    shape: Leaf | str = "none"
    stages: list[list[str] | Leaf] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.steps == 0:
            raise ValueError("steps is 0: leave it out")


def test_plain_data_becomes_typed_settings():
    text = "{leaves: {a: {width: 1e-3}, b: null}, names: [x, y], shape: {width: 2}, stages: [[t], {width: 1}]}"
    tree = configure(Tree, parse_yaml(text, "x"), "tree")
    assert tree == Tree({"a": Leaf(0.001), "b": None}, ("x", "y"), None, Leaf(2.0), [["t"], Leaf(1.0)])
    assert configure(Tree, {"shape": Leaf(1.0)}, "tree").shape == Leaf(1.0)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([], "tree is [], but must be a mapping with the keys leaves, names, steps, shape, stages"),
        ({"leafs": {}}, "tree has no setting 'leafs'; did you mean 'leaves'?"),
        ({"leaves": {"a": {"widht": 1}}}, "tree.leaves.a has no setting 'widht'; did you mean 'width'?"),
        ({"leaves": {"a": {}}}, "tree.leaves.a lacks width: add it"),
        ({"leaves": {"a": {"width": 0}}}, "tree.leaves.a.width is 0, but must be a number above 0"),
        ({"leaves": {"a": 3}}, "tree.leaves.a is 3, but must be a mapping with the keys width, form"),
        ({"leaves": {"A": None}}, "tree.leaves.A is 'A', but must be a name of small letters"),
        ({"names": "xy"}, "tree.names is 'xy', but must be a list of words"),
        ({"names": ["x", 1]}, "tree.names[1] is 1, but must be a word"),
        ({"steps": True}, "tree.steps is True, but must be a whole number"),
        ({"steps": 0}, "tree: steps is 0: leave it out"),
        ({"shape": {"width": 1, "form": "gaus"}}, "tree.shape.form is 'gaus', but must be one of gauss"),
        ({"stages": [["t"], {"width": "w"}]}, "tree.stages[1].width is 'w', but must be a number above 0"),
        ({"stages": [[3]]}, "tree.stages[0][0] is 3, but must be a word"),
    ],
)
def test_an_error_names_the_place_the_value_and_what_is_allowed(raw, said):
    with pytest.raises(TopologyError) as caught:
        configure(Tree, raw, "tree", TopologyError)
    assert str(caught.value).startswith(said)
