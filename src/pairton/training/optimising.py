"""The learning rate of a step, AdamW, and the moving average of the weights."""

from __future__ import annotations

import math

import torch
from torch import nn

from pairton.training.recipes import OptimiserConfig

__all__ = ["learning_rate", "make_optimiser", "update_average"]


def learning_rate(config: OptimiserConfig, step: int, steps: int) -> float:
    """The learning rate of a step: linear warm-up, then a cosine down to the floor at the last step.

    >>> config = OptimiserConfig(learning_rate=1.0, steps=100, warm_up=10, warm_up_start=0.0, floor=0.1)
    >>> [round(learning_rate(config, step, 100), 3) for step in (0, 5, 10, 55, 100)]
    [0.0, 0.5, 1.0, 0.55, 0.1]
    """
    if step < config.warm_up:
        return config.learning_rate * (config.warm_up_start + (1 - config.warm_up_start) * step / config.warm_up)
    done = (step - config.warm_up) / max(1, steps - config.warm_up)
    wave = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return config.learning_rate * (config.floor + (1 - config.floor) * wave)


def make_optimiser(network: nn.Module, config: OptimiserConfig) -> torch.optim.AdamW:
    """AdamW, with weight decay for matrices but not for biases and scales."""
    decays = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    groups = [{"params": decays, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2))


@torch.no_grad()
def update_average(averaged: nn.Module, network: nn.Module, decay: float, step: int) -> None:
    """Update the exponential moving average of the weights. It forgets faster in the first steps."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(averaged.parameters()), list(network.parameters()), 1 - decay)
