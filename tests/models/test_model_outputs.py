"""Models of another format, and models whose network gives something else than it says."""

import json
import shutil
from dataclasses import dataclass, replace

import numpy as np
import pytest

import pairton
from pairton.errors import ModelError
from pairton.events import Status
from pairton.events.inputs import MOMENTUM
from pairton.events.nodes import Nodes
from pairton.models.model import load_model
from pairton.topology import load_topology

TTBAR = load_topology()


def some_jets(n=20, seed=0):
    rng = np.random.default_rng(seed)
    pt, eta, phi = 25 + rng.exponential(50, (n, 7)), rng.normal(0, 1, (n, 7)), rng.uniform(-3, 3, (n, 7))
    columns = [pt, eta, phi, np.hypot(pt * np.cosh(eta), 8.0), rng.random((n, 7)) < 0.3]
    return Nodes.full({"jet": np.stack(columns, axis=2).astype(np.float32)})


def test_another_version_of_the_format_is_refused(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "old")
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(about | {"format_version": 1}))
    with pytest.raises(ModelError, match=r"format_version is 1, but Pairton .* reads 2: update Pairton, or train"):
        load_model(folder, engine="torch")


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
            changed(model_folder, change).predict(some_jets())
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("decoding", ["exact", "steps"])
def test_an_event_for_which_it_gives_no_numbers_is_said_to_be_so(model_folder, decays, decoding):
    events = decays(30, extra=1)
    leading = events.dense("jet", MOMENTUM)[0][:, :, 0].max(axis=1)  # jets are ordered by pT

    def spoil(nodes, outputs):
        wrong = nodes.values["jet"][:, 0, 0] == leading[4]
        return {name: np.where(wrong.reshape(-1, *[1] * (a.ndim - 1)), np.nan, a) for name, a in outputs.items()}

    plain = pairton.reconstruct(events, load_model(model_folder), decoding=decoding, cuts=False)
    found = pairton.reconstruct(events, changed(model_folder, spoil), decoding=decoding, cuts=False)
    assert (plain.assignment >= 0).all()
    assert (np.flatnonzero(found.status == Status.BAD_OUTPUT) == [4]).all()
    assert (found.assignment[4] == -1).all()
    others = np.arange(30) != 4
    np.testing.assert_array_equal(found.assignment[others], plain.assignment[others])
    np.testing.assert_array_equal(found.event_probability[others], plain.event_probability[others])
    np.testing.assert_array_equal(found.status[others], plain.status[others])
