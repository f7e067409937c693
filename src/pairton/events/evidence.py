"""Add the evidence of b- and c-tags to the jets of events, from a table of tagging efficiencies."""

from __future__ import annotations

import awkward as ak
import numpy as np

from pairton.errors import EventsError
from pairton.events.events import Events
from pairton.events.inputs import EVIDENCE
from pairton.events.tags import TagTable, default_table, is_generated, with_evidence
from pairton.topology import JET

__all__ = ["ensure_evidence", "tag_caveat", "with_table"]

ASSUMED = (
    "the tagger is unknown, so the efficiencies of Pairton's generator are assumed (about 70 % for b jets, 0.3 % "
    "for light jets): give the table of your tagger with --tags (`pairton tags` lists the built-in tables)"
)


def ensure_evidence(events: Events) -> Events:
    """Add evidence to the jets from the default table for their tags, unless they have evidence already.

    >>> from pairton.events.objects import make_jets
    >>> jets = make_jets(**{name: [[50.0]] for name in ("pt", "phi", "mass")}, eta=[[0.0]], btag=[[1]])
    >>> found = ensure_evidence(Events(jets, "hh4b"))
    >>> round(float(found.jets.b_evidence[0, 0]), 2), found.metadata["tag_table"]["name"]
    (5.65, 'generator')
    """
    jets, fields = events.jets, ak.fields(events.jets)
    if EVIDENCE[0] not in fields:
        return with_table(events, default_table(jets, events.metadata))
    if EVIDENCE[1] in fields:
        return events
    return _added(events, {EVIDENCE[1]: ak.zeros_like(jets[EVIDENCE[0]])})  # no evidence for c jets


def with_table(events: Events, table: TagTable) -> Events:
    """Add the evidence of a table to the jets, and a `btag` of 0 or 1 if they have none.

    The metadata record the table. Raises EventsError if the jets lack the field that the table is for.
    """
    if table.field not in ak.fields(events.jets):
        found = ", ".join(ak.fields(events.jets))
        raise EventsError(
            f"the table {table.name} needs the field {table.field} of jets, but they have {found}: name its "
            f"column with --map {table.field}=COLUMN, or pass the field to pairton.make_jets"
        )
    jets = with_evidence(events.jets, table)
    new = {name: jets[name] for name in EVIDENCE}
    if "btag" not in ak.fields(jets):
        values = np.asarray(ak.flatten(jets[table.field]))
        tags = (values > table.tag_cut) & table.has_value(values)
        new["btag"] = ak.unflatten(tags.astype(np.float32), ak.num(jets, axis=1))
    return _added(events, new, {"tag_table": table.to_dict()})


def tag_caveat(events: Events) -> str:
    """A warning if the efficiencies of the tagger are assumed or approximate; empty if they are known."""
    if EVIDENCE[0] not in ak.fields(events.jets):
        return "" if is_generated(events.metadata) else ASSUMED
    table = events.metadata.get("tag_table", {})
    if table.get("measured", True):
        return ""
    return (
        f"the efficiencies in the table {table.get('name')} are approximate: measure them in your simulation with "
        "`pairton tags measure`, and give the new table with --tags"
    )


def _added(events: Events, fields: dict[str, ak.Array], metadata: dict[str, object] | None = None) -> Events:
    """Events with further fields of jets; varied jets get the values of the nominal ones."""

    def with_fields(jets: ak.Array) -> ak.Array:
        for name, values in fields.items():
            jets = ak.with_field(jets, values, name)
        return jets

    varied = {
        name: {kind: with_fields(array) if kind == JET else array for kind, array in objects.items()}
        for name, objects in events.variations.items()
    }
    return events.replace(
        jets=with_fields(events.jets), variations=varied, metadata={**events.metadata, **(metadata or {})}
    )
