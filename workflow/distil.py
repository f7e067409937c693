"""Train a small network on the answers of a larger one: its probabilities of all hypotheses, and the truth.

python workflow/distil.py RECIPE --teacher MODEL --data events.h5 --out FOLDER [--init MODEL] [--seed N]

The recipe gives the losses `distil` and `event_likelihood` their weights. Teacher and network have one topology
and the same inputs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import pairton
from pairton.decoding.patterns import allowed_nodes
from pairton.decoding.set_tables import set_tables
from pairton.network import Network
from pairton.network.torch_set_sums import candidate_scores, log_sums
from pairton.training import load_recipe, train
from pairton.training.losses import Examples, Loss, register_loss

__all__ = ["Distil"]


class Distil(Loss):
    """The cross-entropy between the probabilities of all hypotheses: those of the teacher, and of the network."""

    name = "distil"

    def __init__(self, teacher: str) -> None:
        self.teacher = pairton.load_model(teacher, threads=1)

    def target(self, examples: Examples) -> dict[str, Any]:
        allowed = allowed_nodes(examples.topology, examples.nodes.layout)
        return {**self.teacher.predict(examples.nodes), "tables": set_tables(examples.topology, allowed)}

    def per_event(self, network: Network, outputs: Mapping[str, Tensor], target: Mapping[str, Any]) -> Tensor:
        tables = target["tables"]
        # the gradient of the logarithm of the sum over hypotheses is the probability of each candidate and pattern
        with torch.enable_grad():
            known = candidate_scores(tables, target["edges"], target.get("triplets"))
            known = {name: values.detach().requires_grad_() for name, values in known.items()}
            terms = target["patterns"].T.detach().requires_grad_()
            total = log_sums(tables, known, terms).logsumexp(dim=0).sum()
            *marginals, patterns = torch.autograd.grad(total, [*known.values(), terms])
        triplets = outputs["triplets"].float() if "triplets" in outputs else None
        scores, own = candidate_scores(tables, outputs["edges"].float(), triplets), outputs["patterns"].float().T
        expected = (patterns * own).sum(dim=0)
        for name, marginal in zip(known, marginals, strict=True):
            expected = expected + (marginal * scores[name]).sum(dim=0)
        return log_sums(tables, scores, own).logsumexp(dim=0) - expected


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipe")
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--data", action="append", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--init")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    register_loss(Distil(options.teacher))
    recipe = load_recipe(options.recipe).with_run(seed=options.seed)
    print(train(recipe, options.data, options.out, init=options.init))


if __name__ == "__main__":
    main()
