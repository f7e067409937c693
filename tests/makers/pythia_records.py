"""Records of events as Pythia gives them, by hand."""

import numpy as np

from pairton.generator.pythia import Record


def make_record(rows):
    """From (event, code, status, mother, px, py[, pz]); mothers count within the event from 0, -1 is none."""
    event, code, status, mother = (np.array([row[k] for row in rows], dtype=np.int64) for k in range(4))
    counts = np.bincount(event)
    p = np.array([[*row[4:], 0.0][:3] for row in rows], dtype=float)
    return Record(
        event,
        *p.T,
        np.sqrt((p**2).sum(axis=1)),
        code=code,
        status=status,
        mother=np.where(mother >= 0, mother + (np.cumsum(counts) - counts)[event], -1),
        vertex=np.zeros((int((status > 0).sum()), 3)),
        n_events=len(counts),
    )
