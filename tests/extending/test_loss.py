"""A loss from outside the package: a focal cross-entropy of edges, with a setting of its own."""

import pytest

from pairton import formats

torch = pytest.importorskip("torch")
pytest.importorskip("lightning.fabric")
losses = pytest.importorskip("pairton.training.losses")


class Focal(losses.Loss):
    name, settings = "focal", {"focal_gamma": (float, 2.0)}

    def target(self, examples):
        edges = losses.LOSSES["masked_edges"].target(examples)
        return {**edges, "gamma": examples.recipe.loss.settings["focal_gamma"]}

    def per_event(self, network, outputs, target):
        truth = target["truth"].float()
        each = torch.nn.functional.binary_cross_entropy_with_logits(outputs["edges"], truth, reduction="none")
        wrong = 1 - (-each).exp()  # probability of the wrong label
        return (wrong ** target["gamma"] * each * target["counted"]).flatten(1).sum(dim=1)


@pytest.fixture
def registered():
    losses.register_loss(Focal())
    yield
    del losses.LOSSES["focal"]


@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_a_loss_is_trained_and_logged(registered, decays, small_recipe, tmp_path, gamma):
    from pairton.training import parse_recipe, train

    events = decays(200)
    with formats.create(tmp_path / "in.h5", events.topology) as writer:
        writer.write(events)
    recipe = parse_recipe(small_recipe | {"loss": {"masked_edges": 1, "focal": 0.5, "focal_gamma": gamma}})
    assert parse_recipe(recipe.to_dict()) == recipe
    assert train(recipe, [tmp_path / "in.h5"], tmp_path / "model").finished
    rows = [line.split(",") for line in (tmp_path / "model" / "metrics.csv").read_text().splitlines()]
    logged = {name: [float(row[3]) for row in rows if row[2] == name] for name in ("masked_edges", "focal")}
    if gamma == 0:
        assert logged["focal"] == pytest.approx(logged["masked_edges"], rel=1e-5)
    else:
        assert all(0 < one < other for one, other in zip(*reversed(logged.values()), strict=True))
