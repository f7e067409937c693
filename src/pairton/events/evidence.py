"""Add the evidence of b- and c-tags to the jets of events, from a table of tagging efficiencies."""

from __future__ import annotations

import awkward as ak
import numpy as np

from pairton.errors import EventsError
from pairton.events.events import Events, Objects
from pairton.events.inputs import EVIDENCE
from pairton.events.tags import DEFAULT_TABLE, TagTable, load_table, stated_table, with_evidence
from pairton.topology import JET

__all__ = ["ensure_evidence", "tag_caveat", "with_table"]

ASSUMED = (
    "the tagger is unknown, so the efficiencies of Pairton's generator are assumed (about 70 % for b jets, 0.3 % "
    "for light jets): give the table of your tagger with --btag TABLE (`pairton list tags`)"
)


def ensure_evidence(events: Events) -> Events:
    """Add evidence to the jets, unless they have it already.

    It comes from the table that the metadata state, or from that of Pairton's generator for a `btag` of 0 or 1.

    >>> from pairton.events.objects import make_jets
    >>> jets = make_jets(**{name: [[50.0]] for name in ("pt", "phi", "mass")}, eta=[[0.0]], btag=[[1]])
    >>> found = ensure_evidence(Events(jets, "hh4b"))
    >>> round(float(found.jets.b_evidence[0, 0]), 2), found.metadata["tag_table"]["name"]
    (5.65, 'generator')
    """
    fields = ak.fields(events.jets)
    if EVIDENCE[0] not in fields:
        return with_table(events, _own_table(events) or load_table(DEFAULT_TABLE))
    if EVIDENCE[1] not in fields:  # no evidence for c jets
        zeros = ak.zeros_like(events.jets[EVIDENCE[0]])
        jets = ak.with_field(events.jets, zeros, EVIDENCE[1])
        events = events.replace(jets=jets, variations=events.variations)
    table, varied = events.metadata.get("tag_table"), events.variations.values()
    if table and any(JET in objects and EVIDENCE[0] not in ak.fields(objects[JET]) for objects in varied):
        events = events.replace(variations=_varied(events, load_table(table)))
    return events


def with_table(events: Events, table: TagTable) -> Events:
    """Add the evidence of a table to the jets, and a `btag` of 0 or 1 if they have none.

    The metadata record the table. Raises EventsError if the jets lack the field that the table is for, unless they
    have the evidence of this table already.
    """
    if table.field not in ak.fields(events.jets):
        if EVIDENCE[0] in ak.fields(events.jets) and events.metadata.get("tag_table") == table.to_dict():
            return events  # they were read with this table
        found = ", ".join(ak.fields(events.jets))
        raise EventsError(
            f"the table {table.name} needs the field {table.field} of jets, but they have {found}: read the file "
            f"with --btag {table.name} or --map {table.field}=COLUMN, or pass the field to pairton.make_jets"
        )
    jets = with_evidence(events.jets, table)
    if "btag" not in ak.fields(jets):
        values = np.asarray(ak.flatten(jets[table.field]))
        tags = (values > table.tag_cut) & table.has_value(values)
        jets = ak.with_field(jets, ak.unflatten(tags.astype(np.float32), ak.num(jets, axis=1)), "btag")
    metadata = {**events.metadata, "tag_table": table.to_dict()}
    return events.replace(jets=jets, variations=_varied(events, table), metadata=metadata)


def tag_caveat(events: Events) -> str:
    """A warning if the efficiencies of the tagger are assumed or approximate; empty if they are known."""
    has_evidence = EVIDENCE[0] in ak.fields(events.jets)
    table = stated_table(events.metadata) if has_evidence else _own_table(events)
    if table is None and not has_evidence:
        return ASSUMED
    if table is None or table.measured:
        return ""
    return (
        f"the efficiencies in the table {table.name} are approximate: measure them in your simulation with "
        "`pairton measure tags`, and give the new table with --btag TABLE"
    )


def _own_table(events: Events) -> TagTable | None:
    """The table that the metadata state, if the jets have its field."""
    table = stated_table(events.metadata)
    return table if table is not None and table.field in ak.fields(events.jets) else None


def _varied(events: Events, table: TagTable) -> dict[str, Objects]:
    """The variations, with evidence from the tags of their jets and the nominal momenta.

    Jets without the field of the table have no evidence: `Events.varied` gives them that of the nominal jets.
    """
    found = dict(events.variations)
    for name, objects in events.variations.items():
        if JET in objects and table.field in ak.fields(jets := objects[JET]):
            tagged = with_evidence(ak.with_field(events.jets, jets[table.field], table.field), table)
            for field in EVIDENCE:
                jets = ak.with_field(jets, tagged[field], field)
            found[name] = {**objects, JET: jets}
    return found
