"""The losses of a network, by name. Register one of your own with `register_loss`.

Further heads have their own losses (`pairton.network.heads`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, make_dataclass
from typing import Annotated, Any

from msgspec import Meta

from pairton._common.configuration import configure, register
from pairton.errors import ConfigError
from pairton.training.losses.event_likelihood import EventLikelihood
from pairton.training.losses.hyper import Hyper
from pairton.training.losses.loss import Examples, HeadLoss, Loss
from pairton.training.losses.masked_edges import MaskedEdges
from pairton.training.losses.triplets import Triplets

__all__ = ["LOSSES", "Examples", "HeadLoss", "Loss", "LossConfig", "register_loss"]

LOSSES: dict[str, Loss] = {loss.name: loss for loss in (MaskedEdges(), EventLikelihood(), Triplets(), Hyper())}


def register_loss(loss: Loss) -> None:
    """Make a loss available under its name, which is that of its weight in a recipe."""
    register(LOSSES, loss.name, loss, "loss")


@dataclass(frozen=True)
class LossConfig:
    """The loss is a sum of terms with these weights."""

    weights: Mapping[str, float]  # name of a loss -> its weight above 0
    settings: Mapping[str, Any]  # of all losses

    @classmethod
    def parse(cls, raw: object) -> LossConfig:
        """From the section `loss` of a recipe: weights and settings of losses by name.

        >>> LossConfig.parse({"event_likelihood": 1, "masked_edges": 0}).weights
        {'event_likelihood': 1.0}
        """
        settings = {key: setting for loss in LOSSES.values() for key, setting in loss.settings.items()}
        fields = {name: (Annotated[float, Meta(ge=0)], float(name == MaskedEdges.name)) for name in LOSSES}
        kind = make_dataclass("Losses", [(name, *field) for name, field in {**fields, **settings}.items()])
        values = asdict(configure(kind, raw, "loss"))
        if not any(values[name] for name in LOSSES):
            raise ConfigError(f"loss has no weight above 0: give one to {', '.join(LOSSES)}")
        used = {name: values[name] for name in LOSSES if values[name]}
        return cls(used, {name: values[name] for name in settings})

    def to_dict(self) -> dict[str, Any]:
        return {MaskedEdges.name: 0.0, **self.weights, **self.settings}
