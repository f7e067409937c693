"""Triangle multiplication and attention on the edges of a graph, entry by entry (AlphaFold 2)."""

import itertools

import torch


def slow_multiplication(a, b, outgoing):
    """(n, n, w): the sum over k of a_ik b_jk, or of a_ki b_kj."""
    n = len(a)
    result = torch.zeros_like(a)
    for i, j, k in itertools.product(range(n), repeat=3):
        result[i, j] += a[i, k] * b[j, k] if outgoing else a[k, i] * b[k, j]
    return result


def slow_attention(query, key, value, bias, starting):
    """(n, n, w): edge ij attends to the edges ik, biased by jk; or to kj, biased by ki. bias is (n, n, heads)."""
    n, heads, size = len(query), bias.shape[-1], query.shape[-1] // bias.shape[-1]
    result = torch.zeros_like(query)
    for i, j, head in itertools.product(range(n), range(n), range(heads)):
        part = slice(head * size, (head + 1) * size)
        pairs = [((i, k), (j, k)) if starting else ((k, j), (k, i)) for k in range(n)]
        scores = [query[i, j, part] @ key[*edge][part] * size**-0.5 + bias[*third][head] for edge, third in pairs]
        weights = torch.softmax(torch.stack(scores), dim=0)
        result[i, j, part] = sum(w * value[*edge][part] for w, (edge, _) in zip(weights, pairs, strict=True))
    return result
