"""Draws cuts on jets and the resolution of the b-tagger at random, for each training event.

A network that is trained this way can be used with different cuts and taggers: see `pairton.events.tags`.
"""

from __future__ import annotations

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import TrainingError
from pairton.events import Events
from pairton.events.inputs import CUTS, EVIDENCE
from pairton.events.tags import TagTable, with_evidence
from pairton.topology import JET
from pairton.topology.selection import Cuts

__all__ = ["draw_acceptance", "draw_tags"]

USUAL = Cuts(pt=25.0, abs_eta=2.5)  # cuts of most analyses
TIGHTEST = Cuts(pt=30.0, abs_eta=2.4)
SHARES = (0.4, 0.2)  # shares of events with the usual cuts, and with those of the selection; others are random
BINARY = 0.3  # share of events that use the `btag` of the file


def draw_acceptance(events: Events, rng: np.random.Generator) -> Events:
    """Return the events with random cuts on their jets, between those of the selection and `TIGHTEST`.

    Jets that fail the cuts are marked as not usable; all have the cuts as the fields `CUTS`. Half of the randomly
    cut events have a cut on |eta| near the end of the tracker (2.4 to 2.5), the others one between 2.4 and that of
    the selection, at most 5.
    """
    widest = events.topology.selection.cuts(JET)
    n = len(events)
    pt = rng.uniform(widest.pt, max(widest.pt, TIGHTEST.pt), n)
    near = rng.uniform(TIGHTEST.abs_eta, USUAL.abs_eta, n)
    beyond = rng.uniform(TIGHTEST.abs_eta, max(TIGHTEST.abs_eta, min(widest.abs_eta, 5.0)), n)
    abs_eta = np.where(rng.random(n) < 0.5, near, beyond)
    kind = rng.random(n)
    usual, uncut = kind < SHARES[0], kind > 1 - SHARES[1]
    pt = np.select([usual, uncut], [USUAL.pt, widest.pt], pt)
    abs_eta = np.select([usual, uncut], [USUAL.abs_eta, widest.abs_eta], abs_eta)
    jets = events.jets
    used = events.usable[JET] & (jets.pt >= pt) & (abs(jets.eta) <= abs_eta)
    # the file may have been cut harder than the selection
    passed = np.maximum(pt, ak.min(jets.pt)), np.minimum(abs_eta, ak.max(abs(jets.eta)))
    for name, values in zip(CUTS, passed if ak.count(jets.pt) else (pt, abs_eta), strict=True):
        jets = ak.with_field(jets, ak.broadcast_arrays(values.astype(np.float32), jets.pt)[0], name)
    return events.replace(objects={**events.objects, JET: ak.with_field(jets, used, "usable")})


def draw_tags(events: Events, table: TagTable, rng: np.random.Generator) -> Events:
    """Return the events with the evidence of a tagger of random resolution.

    Some events use their binary `btag`, if they have one. The others use the tagger of the table, with a random
    choice of its working points.
    """
    jets = events.jets
    if table.field not in ak.fields(jets):
        raise TrainingError(
            f"data.tag_table {table.name} is for the field {table.field} of jets, which the events do not have: "
            f"name its column with --map {table.field}=COLUMN, or give the table of another tagger"
        )
    counts = events.n_jets
    pt, eta, values = (np.asarray(ak.flatten(jets[name]), dtype=np.float64) for name in ("pt", "eta", table.field))
    kept = np.repeat(table.drawn_cuts(rng, len(events)), counts, axis=0)  # (J, K)
    found = np.stack(table.of_bins(table.bins(values, eta), pt, kept))  # (2, J)
    if "btag" in ak.fields(jets) and table.field != "btag":
        binary = np.repeat(rng.random(len(events)) < BINARY, counts)
        own = with_evidence(jets)
        found = np.where(binary, [np.asarray(ak.flatten(own[name])) for name in EVIDENCE], found)
    return events.replace(objects={**events.objects, JET: _with_fields(jets, found, counts)})


def _with_fields(jets: ak.Array, evidence: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> ak.Array:
    for name, values in zip(EVIDENCE, evidence.astype(np.float32), strict=True):
        jets = ak.with_field(jets, ak.unflatten(values, counts), name)
    return jets
