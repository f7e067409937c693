"""Features from raw kinematics, inside the network: nobody can feed it another normalisation.

Jets are (..., 5): pt, eta, phi, energy, b-tag, in GeV and radians. Padded jets may be all zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pairton.decoding.graph import MASKED

__all__ = ["JET_FEATURES", "PAIR_FEATURES", "TokenEmbedding", "jet_features", "pair_features"]

JET_FEATURES = {"paper": 6, "reference": 6, "symmetric": 4}  # kind -> count
PAIR_FEATURES = {"paper": 6, "reference": 6, "symmetric": 8}
LOG_SCALE = 4.5  # log of 90 GeV: energies and masses are centred there
TINY = 1e-3  # GeV, below any jet: guards logarithms
ETA_LIMIT = 10.0  # beyond any jet: whatever is in the padding, exponentials stay finite


def jet_features(jets: Tensor, kind: str) -> Tensor:
    """(..., 6) or (..., 4) of a jet.

    paper, reference: log E - 4.5, log pT - 4.5, eta, cos phi, sin phi, b-tag
    symmetric:        log E - 4.5, log pT - 4.5, |eta|, b-tag: as its pair features, the same for an event turned
                      about the beam or reflected
    """
    pt, eta, phi, energy, btag = jets.unbind(dim=-1)
    if kind == "symmetric":
        return torch.stack([_log(energy), _log(pt), eta.abs(), btag], dim=-1)
    return torch.stack([_log(energy), _log(pt), eta, torch.cos(phi), torch.sin(phi), btag], dim=-1)


def pair_features(first: Tensor, second: Tensor, kind: str) -> Tensor:
    """(..., 6) or (..., 8) of two jets that broadcast.

    paper:     delta eta, delta phi, delta sin phi, delta cos phi, delta R, log m - 4.5
    reference: the same with |delta eta|, and |delta sin|, |delta cos| divided by their norm
    symmetric: |delta eta|, |delta phi|, delta R, cos delta phi, log m - 4.5, summed log pT - 9, |delta log pT|,
               log pT of the pair - 4.5
    """
    eta = first[..., 1] - second[..., 1]
    phi = _wrapped(first[..., 2] - second[..., 2])
    distance = torch.sqrt(eta * eta + phi * phi + 1e-12)
    mass = _log_mass(first, second)
    if kind == "symmetric":
        cosine, one, two = torch.cos(phi), _log(first[..., 0]), _log(second[..., 0])
        columns = [eta.abs(), phi.abs(), distance, cosine, mass, one + two, (one - two).abs()]
        columns.append(_log_momentum(first[..., 0], second[..., 0], cosine))
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


def _log_momentum(one: Tensor, two: Tensor, cosine: Tensor) -> Tensor:
    """log pT - 4.5 of two jets, as a sum of what is positive; below 1 GeV it is that of 1 GeV."""
    square = (one - two) ** 2 + 2 * one * two * (1 + cosine)
    return 0.5 * torch.log(square.clamp(min=1.0)) - LOG_SCALE


def _log_mass(first: Tensor, second: Tensor) -> Tensor:
    """log m - 4.5 of two jets; below 1 GeV, where float32 leaves only rounding, it is that of 1 GeV.

    m^2 = m_1^2 + m_2^2 + 2 (E_1 E_2 - p_1 . p_2) as a sum of small terms: E^2 - p^2 would leave the rounding of
    large ones, and no two libraries round cosines alike.
    """
    (p_1, excess_1), (p_2, excess_2) = _momentum(first), _momentum(second)
    masses = excess_1 * (first[..., 3] + p_1) + excess_2 * (second[..., 3] + p_2)
    energies = p_1 * excess_2 + p_2 * excess_1 + excess_1 * excess_2  # E_1 E_2 - |p_1| |p_2|
    half_eta = torch.exp(0.5 * (first[..., 1] - second[..., 1]).clamp(-2 * ETA_LIMIT, 2 * ETA_LIMIT))
    sine = torch.sin(0.5 * (first[..., 2] - second[..., 2]))
    angles = 0.5 * (half_eta - 1 / half_eta) ** 2 + 2 * sine * sine  # cosh delta eta - cos delta phi
    square = masses + 2 * (energies + first[..., 0] * second[..., 0] * angles)
    return 0.5 * torch.log(square.clamp(min=1.0)) - LOG_SCALE


def _momentum(jets: Tensor) -> tuple[Tensor, Tensor]:
    """|p| and E - |p|; in double precision, since a jet's mass is hidden in the last digits of its energy."""
    pt, eta, _, energy = (jets[..., k].double() for k in range(4))
    eta = eta.clamp(-ETA_LIMIT, ETA_LIMIT)
    momentum = pt * 0.5 * (torch.exp(eta) + torch.exp(-eta))
    return momentum.to(jets.dtype), (energy - momentum).to(jets.dtype)


class TokenEmbedding(nn.Module):
    """Visible matrices (B, T, ...) -> (B, ..., P): an embedding of each token, per type, side by side."""

    def __init__(self, types: int, width: int) -> None:
        super().__init__()
        widths = [width // types + (k < width % types) for k in range(types)]
        self.tables = nn.ModuleList(nn.Embedding(MASKED + 1, part) for part in widths)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.cat([table(tokens[:, k].long()) for k, table in enumerate(self.tables)], dim=-1)
