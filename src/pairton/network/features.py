"""Features of objects and pairs, computed inside the network from raw kinematics.

Momenta are (..., 4): pt, eta, phi, energy, in GeV and radians. Padded objects may be all zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pairton.decoding.graph import MASKED
from pairton.events.inputs import MOMENTUM, Input

__all__ = ["NODE_FEATURES", "PAIR_FEATURES", "TokenEmbedding", "node_features", "pair_features"]

NODE_FEATURES = {"paper": 5, "reference": 5, "symmetric": 3}  # number of features of a four-momentum
PAIR_FEATURES = {"paper": 6, "reference": 6, "symmetric": 8}
LOG_SCALE = 4.5  # log of 90 GeV; subtracted from logarithms of energies and masses
TINY = 1e-3  # GeV; a lower bound that keeps logarithms finite
ETA_LIMIT = 10.0  # a bound that keeps exponentials finite, whatever the padding holds


def node_features(objects: Tensor, features: str, inputs: tuple[Input, ...]) -> Tensor:
    """Features of objects (..., 4 + inputs): those of the four-momentum, then the transformed inputs.

    paper, reference: log E - 4.5, log pT - 4.5, eta, cos phi, sin phi
    symmetric:        log E - 4.5, log pT - 4.5, |eta|

    Symmetric features, also those of pairs, do not change when the event is rotated about the beam or reflected.
    """
    pt, eta, phi, energy, *further = objects.unbind(dim=-1)
    columns = [_log(energy), _log(pt)]
    columns += [eta.abs()] if features == "symmetric" else [eta, torch.cos(phi), torch.sin(phi)]
    return torch.stack(columns + [_transformed(x, item) for x, item in zip(further, inputs, strict=True)], dim=-1)


def _transformed(x: Tensor, item: Input) -> Tensor:
    if item.transform == "log":
        x = torch.log1p(x.clamp(min=0))
    return x if (item.offset, item.scale) == (0.0, 1.0) else (x - item.offset) / item.scale


def transverse_part(momenta: Tensor) -> Tensor:
    """Momenta without their longitudinal part: pt, 0, phi, sqrt(pt^2 + m^2)."""
    momentum, excess = _momentum(momenta)
    square = momenta[..., 0] ** 2 + (excess * (momenta[..., 3] + momentum)).clamp(min=0)
    pt, phi = momenta[..., 0], momenta[..., 2]
    energy = torch.sqrt(square.clamp(min=TINY**2))  # keeps the gradient of padding finite
    return torch.stack([pt, torch.zeros_like(pt), phi, energy], dim=-1)


def pair_features(first: Tensor, second: Tensor, features: str) -> Tensor:
    """Features (..., 6) or (..., 8) of pairs of momenta, which must broadcast.

    paper:     delta eta, delta phi, delta sin phi, delta cos phi, delta R, log m - 4.5
    reference: the same with |delta eta|, and |delta sin|, |delta cos| divided by their norm
    symmetric: |delta eta|, |delta phi|, delta R, cos delta phi, log m - 4.5, summed log pT - 9, |delta log pT|,
               log pT of the pair - 4.5
    """
    eta = first[..., 1] - second[..., 1]
    phi = _wrapped(first[..., 2] - second[..., 2])
    distance = torch.sqrt(eta * eta + phi * phi + 1e-12)
    mass = _log_mass(first, second)
    if features == "symmetric":
        cosine, one, two = torch.cos(phi), _log(first[..., 0]), _log(second[..., 0])
        columns = [eta.abs(), phi.abs(), distance, cosine, mass, one + two, (one - two).abs()]
        columns.append(_log_momentum(first[..., 0], second[..., 0], cosine))
    else:
        sine = torch.sin(first[..., 2]) - torch.sin(second[..., 2])
        cosine = torch.cos(first[..., 2]) - torch.cos(second[..., 2])
        if features == "reference":
            norm = torch.sqrt(sine * sine + cosine * cosine + 1e-12)
            eta, sine, cosine = eta.abs(), sine.abs() / norm, cosine.abs() / norm
        columns = [eta, phi, sine, cosine, distance, mass]
    return torch.stack(columns, dim=-1)


def _log(energy: Tensor) -> Tensor:
    return torch.log(energy.clamp(min=TINY)) - LOG_SCALE


def _wrapped(angle: Tensor) -> Tensor:
    """The angle in [-pi, pi]."""
    return angle - 2 * math.pi * torch.round(angle / (2 * math.pi))


def _log_momentum(one: Tensor, two: Tensor, cosine: Tensor) -> Tensor:
    """log pT - 4.5 of the sum of two objects, with pT of at least 1 GeV. All terms summed are positive."""
    square = (one - two) ** 2 + 2 * one * two * (1 + cosine)
    return 0.5 * torch.log(square.clamp(min=1.0)) - LOG_SCALE


def _log_mass(first: Tensor, second: Tensor) -> Tensor:
    """log m - 4.5 of two objects, with m of at least 1 GeV: smaller masses are lost to float32 rounding.

    m^2 = m_1^2 + m_2^2 + 2 (E_1 E_2 - p_1 . p_2) is written as a sum of small terms. E^2 - p^2 would lose
    precision, and torch and ONNX Runtime would round it differently.
    """
    (p_1, excess_1), (p_2, excess_2) = _momentum(first), _momentum(second)
    masses = excess_1 * (first[..., 3] + p_1) + excess_2 * (second[..., 3] + p_2)
    energies = p_1 * excess_2 + p_2 * excess_1 + excess_1 * excess_2  # E_1 E_2 - |p_1| |p_2|
    half_eta = torch.exp(0.5 * (first[..., 1] - second[..., 1]).clamp(-2 * ETA_LIMIT, 2 * ETA_LIMIT))
    sine = torch.sin(0.5 * (first[..., 2] - second[..., 2]))
    angles = 0.5 * (half_eta - 1 / half_eta) ** 2 + 2 * sine * sine  # cosh delta eta - cos delta phi
    square = masses + 2 * (energies + first[..., 0] * second[..., 0] * angles)
    return 0.5 * torch.log(square.clamp(min=1.0)) - LOG_SCALE


def _momentum(momenta: Tensor) -> tuple[Tensor, Tensor]:
    """|p| and E - |p|, computed in double precision because E - |p| is small."""
    pt, eta, _, energy = (momenta[..., k].double() for k in range(len(MOMENTUM)))
    eta = eta.clamp(-ETA_LIMIT, ETA_LIMIT)
    momentum = pt * 0.5 * (torch.exp(eta) + torch.exp(-eta))
    return momentum.to(momenta.dtype), (energy - momentum).to(momenta.dtype)


class TokenEmbedding(nn.Module):
    """Tokens (B, T, ...) -> (B, ..., P): the embeddings of all types, concatenated."""

    def __init__(self, types: int, width: int) -> None:
        super().__init__()
        widths = [width // types + (k < width % types) for k in range(types)]
        self.tables = nn.ModuleList(nn.Embedding(MASKED + 1, part) for part in widths)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.cat([table(tokens[:, k].long()) for k, table in enumerate(self.tables)], dim=-1)
