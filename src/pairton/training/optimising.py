"""The learning rate of a step, AdamW, and the moving average of the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import torch
from msgspec import Meta
from torch import nn

from pairton.errors import ConfigError

__all__ = ["OptimiserConfig", "learning_rate", "make_optimiser", "update_average"]

Positive: TypeAlias = Annotated[float, Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Decay: TypeAlias = Annotated[float, Meta(ge=0, lt=1)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW, and a learning rate with a linear warm-up and a cosine to a floor."""

    learning_rate: Positive = 1e-3
    beta1: Decay = 0.9
    beta2: Decay = 0.95
    weight_decay: NotNegative = 0.01
    decay: Literal["matrices", "all"] = "matrices"  # parameters with weight decay; not biases and scales, or all
    batch: Count = 256  # events per step, over all processes
    accumulate: Count = 1  # number of parts in which a process computes its share of the batch
    epochs: Positive | None = None  # give either epochs or steps
    steps: Count | None = None
    warm_up: Annotated[int, Meta(ge=0)] = 0  # steps
    warm_up_start: NotNegative = 0.01  # fraction of the learning rate at the first step
    floor: NotNegative = 0.05  # fraction of the learning rate at the end of the cosine
    cosine_end: Count | None = None  # step at which the cosine ends; None: the last step
    clip: Positive = 1.0  # largest norm of the gradient
    ema: Decay = 0.999  # decay of the moving average of the weights; 0: no average

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ConfigError("optimiser needs either epochs or steps: give one of them")


def learning_rate(config: OptimiserConfig, step: int, steps: int) -> float:
    """The learning rate of a step: linear warm-up, then a cosine down to the floor.

    >>> config = OptimiserConfig(learning_rate=1.0, steps=100, warm_up=10, warm_up_start=0.0, floor=0.1)
    >>> [round(learning_rate(config, step, 100), 3) for step in (0, 5, 10, 55, 100)]
    [0.0, 0.5, 1.0, 0.55, 0.1]
    """
    if step < config.warm_up:
        return config.learning_rate * (config.warm_up_start + (1 - config.warm_up_start) * step / config.warm_up)
    done = (step - config.warm_up) / max(1, (config.cosine_end or steps) - config.warm_up)
    wave = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return config.learning_rate * (config.floor + (1 - config.floor) * wave)


def make_optimiser(network: nn.Module, config: OptimiserConfig) -> torch.optim.AdamW:
    decays = [p for p in network.parameters() if p.ndim > 1 or config.decay == "all"]
    others = [p for p in network.parameters() if p.ndim <= 1 and config.decay != "all"]
    groups = [{"params": decays, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2))


@torch.no_grad()
def update_average(averaged: nn.Module, network: nn.Module, decay: float, step: int) -> None:
    """Update the exponential moving average of the weights. It forgets faster in the first steps."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(averaged.parameters()), list(network.parameters()), 1 - decay)
