"""Features from raw kinematics, inside the network: nobody can feed it another normalisation.

Jets are (..., 5): pt, eta, phi, energy, b-tag, in GeV and radians. Padded jets may be all zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pairton.graph import MASKED

__all__ = ["JET_FEATURES", "PAIR_FEATURES", "TokenEmbedding", "jet_features", "pair_features"]

JET_FEATURES = 6
PAIR_FEATURES = {"paper": 6, "reference": 6, "symmetric": 6}  # kind -> count
LOG_SCALE = 4.5  # log of 90 GeV: energies and masses are centred there
TINY = 1e-3  # GeV, below any jet: guards logarithms


def jet_features(jets: Tensor) -> Tensor:
    """(..., 6): log E - 4.5, log pT - 4.5, eta, cos phi, sin phi, b-tag."""
    pt, eta, phi, energy, btag = jets.unbind(dim=-1)
    return torch.stack([_log(energy), _log(pt), eta, torch.cos(phi), torch.sin(phi), btag], dim=-1)


def pair_features(first: Tensor, second: Tensor, kind: str) -> Tensor:
    """(..., 6) of two jets that broadcast.

    paper:     delta eta, delta phi, delta sin phi, delta cos phi, delta R, log m - 4.5
    reference: the same with |delta eta|, and |delta sin|, |delta cos| divided by their norm
    symmetric: |delta eta|, |delta phi|, delta R, cos delta phi, log m - 4.5, summed log pT - 9
    """
    eta = first[..., 1] - second[..., 1]
    phi = _wrapped(first[..., 2] - second[..., 2])
    distance = torch.sqrt(eta * eta + phi * phi + 1e-12)
    mass = _log_mass(first, second)
    if kind == "symmetric":
        momenta = _log(first[..., 0]) + _log(second[..., 0])
        columns = [eta.abs(), phi.abs(), distance, torch.cos(phi), mass, momenta]
    else:
        sine = torch.sin(first[..., 2]) - torch.sin(second[..., 2])
        cosine = torch.cos(first[..., 2]) - torch.cos(second[..., 2])
        if kind == "reference":
            norm = torch.sqrt(sine * sine + cosine * cosine + 1e-12)
            eta, sine, cosine = eta.abs(), sine.abs() / norm, cosine.abs() / norm
        columns = [eta, phi, sine, cosine, distance, mass]
    return torch.stack(columns, dim=-1)


def _log(energy: Tensor) -> Tensor:
    return torch.log(energy.clamp(min=TINY)) - LOG_SCALE


def _wrapped(angle: Tensor) -> Tensor:
    """To [-pi, pi]."""
    return angle - 2 * math.pi * torch.round(angle / (2 * math.pi))


def _log_mass(first: Tensor, second: Tensor) -> Tensor:
    """log m - 4.5 of two jets; below 1 GeV, where float32 leaves only rounding, it is that of 1 GeV."""
    one, two = _four_momentum(first), _four_momentum(second)
    px, py, pz, energy = (a + b for a, b in zip(one, two, strict=True))
    square = energy * energy - px * px - py * py - pz * pz
    return 0.5 * torch.log(square.clamp(min=1.0)) - LOG_SCALE


def _four_momentum(jets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pt, eta, phi, energy = (jets[..., k] for k in range(4))
    return pt * torch.cos(phi), pt * torch.sin(phi), pt * torch.sinh(eta), energy


class TokenEmbedding(nn.Module):
    """Visible matrices (B, T, ...) -> (B, ..., P): an embedding of each token, per type, side by side."""

    def __init__(self, types: int, width: int) -> None:
        super().__init__()
        widths = [width // types + (k < width % types) for k in range(types)]
        self.tables = nn.ModuleList(nn.Embedding(MASKED + 1, part) for part in widths)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.cat([table(tokens[:, k].long()) for k, table in enumerate(self.tables)], dim=-1)
