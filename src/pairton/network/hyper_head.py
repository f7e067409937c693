"""The hyperedge layer of HyPER (arXiv:2402.10149), applied to the embeddings of our networks.

A hyperedge is a set of three objects. With the embedding x of each object and the global vector u of the event,

    h = sum over its objects of MLP(x, u)
    a = softmax of h over all hyperedges of the event, for each feature
    logit = MLP(h, a * relu(W h))

so that the hyperedges of an event compete for attention. The layers are those of HyPER's code,
`HyPER/models/hyperedge.py`. Our network replaces its message passing, and u is the mean and maximum over pairs.

Shapes: B events, N nodes, M pairs i <= j, K types of three slots, D single width, F pair width, H hidden width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pairton.network.heads import Embedding, Head

__all__ = ["HyperHead"]

DROPOUT = 0.01  # HyPER's
NEVER = -1e9  # replaces h where three objects do not form a hyperedge


def _three_layers(width: int, hidden: int, out: int) -> nn.Sequential:
    first = nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(DROPOUT)
    return nn.Sequential(*first, nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(hidden, out))


class HyperHead(Head):
    """Hyperedge logits (B, K, N, N, N), equal for every order of the three objects."""

    name, axes = "triplets", ("triplet_type", "node", "node", "node")

    def __init__(self, types: int, single_width: int, pair_width: int, hidden: int) -> None:
        nn.Module.__init__(self)
        self.objects = nn.ModuleList(
            _three_layers(single_width + 2 * pair_width, hidden, hidden) for _ in range(types)
        )
        self.mix = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(types))
        self.score = nn.ModuleList(_three_layers(2 * hidden, hidden, 1) for _ in range(types))

    def forward(self, embedding: Embedding) -> Tensor:
        n_nodes, index = embedding.n_nodes, embedding.index
        low, high = index.pairs(n_nodes)
        event = embedding.pooled()[:, None].expand(-1, n_nodes, -1)
        nodes = torch.cat([embedding.singles, event], dim=-1)
        exists = self._hyperedges(embedding, low, high)  # (B or 1, M, N, 1)
        outputs = []
        for objects, mix, score in zip(self.objects, self.mix, self.score, strict=True):
            each = objects(nodes)  # (B, N, H)
            pairs = each.index_select(1, low) + each.index_select(1, high)
            summed = pairs[:, :, None] + each[:, None]  # (B, M, N, H)
            logits = torch.where(exists, summed, torch.full_like(summed, NEVER)).flatten(1, 2)
            # the softmax counts each hyperedge three times: once for each choice of the third object
            attention = 3 * logits.softmax(dim=1).view_as(summed)
            vector = torch.cat([summed, attention * mix(summed).relu()], dim=-1)
            outputs.append(index.unpack(score(vector)[..., 0], n_nodes))
        return torch.stack(outputs, dim=1)

    @staticmethod
    def _hyperedges(embedding: Embedding, low: Tensor, high: Tensor) -> Tensor:
        """Whether a pair and a third object are three different objects, none of them padding."""
        node = torch.arange(embedding.n_nodes, device=low.device)
        different = (low != high)[:, None] & (low[:, None] != node) & (high[:, None] != node)
        exists = different[None, :, :, None]
        if embedding.mask is None:
            return exists
        mask = embedding.mask
        pairs = mask.index_select(1, low) & mask.index_select(1, high)
        return exists & pairs[:, :, None, None] & mask[:, None, :, None]
