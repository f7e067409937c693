"""Models whose network gives something else than it says."""

from dataclasses import dataclass, replace

import pytest

from pairton.errors import ModelError
from pairton.models.model import load_model
from pairton.topology import load_topology
from random_objects import random_nodes


@dataclass(frozen=True)
class Changed:
    """An engine whose outputs are changed."""

    engine: object
    change: object
    at_once: int = 1

    def __call__(self, nodes, tokens):
        return self.change(nodes, dict(self.engine(nodes, tokens)))


def changed(model_folder, change):
    model = load_model(model_folder, threads=1)
    return replace(model, engine=Changed(model.engine, change))


def test_outputs_of_another_shape_are_refused(model_folder):
    for change, message in (
        (
            lambda _, out: {**out, "edges": out["edges"][:, :1]},
            r"edges of the shape \(20, 2, 7, 7\).*\(20, 1, 7, 7\)",
        ),
        (lambda _, out: {**out, "edges": out["edges"][:5]}, r"edges .* has \(5, 2, 7, 7\) in float32"),
        (
            lambda _, out: {"edges": out["edges"]},
            r"triplets of the shape \(20, 1, 7, 7, 7\) in float32, but has none: export",
        ),
    ):
        with pytest.raises(ModelError, match=message) as caught:
            changed(model_folder, change).predict(random_nodes(load_topology(), (7,), 20))
        assert "\n" not in str(caught.value)
