"""Write SPANet's answers for a file of events: python predict.py MODEL test.h5 answers.h5

The output is for `pairton evaluate test.h5 --assignments answers.h5`. It has one row per event of the input, in
order, with the numbers that jets have there, and -1 where SPANet's decoding has no valid answer.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import h5py
import numpy as np
from common import EVENT, all_events, by_jet_count, check_events, fail, load_model, take, use_threads


def clean(answers: np.ndarray, asked: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Set invalid answers (n, particles, products) to -1: those with padding, a jet used twice, or no jet.

    asked    (particles, products): which products exist
    mask     (n, jets): which jets are not padding
    """
    n = len(answers)
    flat = np.where(asked, answers, -1).reshape(n, -1)
    known = (flat >= 0) & (flat < mask.shape[1])
    real = known & np.take_along_axis(mask, np.where(known, flat, 0), axis=1)
    twice = ((flat[:, :, None] == flat[:, None, :]).sum(axis=2) > 1) & real
    good = ((real & ~twice).reshape(answers.shape) | ~asked).all(axis=2)
    return np.where(good[:, :, None], answers, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder that train.py wrote")
    parser.add_argument("events", type=Path, help="events in SPANet's layout")
    parser.add_argument("output", type=Path)
    parser.add_argument(
        "--only",
        metavar="PARTICLE/PRODUCT",
        action="append",
        default=[],
        help="a product with one candidate, which is not among SPANet's targets: tl/l, the only lepton",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=512)
    args = parser.parse_args()
    check_events(args.events, args.model / EVENT)
    if args.output.exists() and args.output.samefile(args.events):
        fail(f"{args.output}: is the input; name another file")
    use_threads(args.threads)
    model = load_model(args.model, args.events)
    dataset = all_events(model)
    particles = model.event_info.product_particles
    answers = np.full((len(dataset), len(particles), max(len(p) for p in particles.values())), -1, dtype=np.int64)
    for rows in by_jet_count(dataset, args.batch, None):
        for top, jets in enumerate(model.predict_assignments(take(dataset, rows).sources)):
            answers[rows.numpy(), top, : jets.shape[1]] = jets
    asked = np.array([[k < len(p) for k in range(answers.shape[2])] for p in particles.values()])
    jets = next(iter(dataset.sources.values()))
    answers = clean(answers, asked, jets.source_mask.numpy())
    part = args.output.with_name(f".{args.output.name}.part")
    with h5py.File(part, "w") as file:
        for top, (name, products) in enumerate(particles.items()):
            for slot, product in enumerate(products):
                file[f"TARGETS/{name}/{product}"] = answers[:, top, slot]
        for name in args.only:
            file[f"TARGETS/{name}"] = np.zeros(len(answers), dtype=np.int64)
    os.replace(part, args.output)
    lacking = int(((answers < 0) & asked).any(axis=(1, 2)).sum())
    print(f"{args.output}: {len(answers)} events, {lacking} without a full answer")


if __name__ == "__main__":
    main()
