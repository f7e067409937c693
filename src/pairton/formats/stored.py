"""The JSON text that Pairton stores in its files: topology, metadata, fields and kept columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pairton._common.configuration import parse_json
from pairton._version import __version__
from pairton.errors import FormatError, OutputError, TopologyError, shown
from pairton.topology import Topology, parse_topology

__all__ = ["KEY", "Stored"]

KEY = "pairton"  # name of the attribute (HDF5), string (ROOT) or schema entry (Parquet)
VERSION = 1


@dataclass(frozen=True)
class Stored:
    """The content of the text; empty if another program wrote the file."""

    topology: Topology | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[str] = ()
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)  # kind -> fields beyond the four-momentum

    def to_json(self) -> str:
        content = {
            "format_version": VERSION,
            "pairton_version": __version__,
            "topology": None if self.topology is None else self.topology.to_dict(),
            "metadata": dict(self.metadata),
            "columns": list(self.columns),
            "fields": {kind: list(names) for kind, names in self.fields.items()},
        }
        try:
            return json.dumps(content)
        except (TypeError, ValueError) as error:
            raise OutputError(
                f"metadata cannot be written as JSON ({error}): use plain numbers and text"
            ) from None

    @staticmethod
    def from_json(text: str | None, path: str, *, tree: bool = False) -> Stored:
        """Read the text. The topology is read only with `tree`, so that an invalid one can be replaced."""
        if text is None:
            return Stored()
        try:
            content = parse_json(text, path, FormatError)
            version, topology = content["format_version"], content["topology"]
            metadata, columns = dict(content["metadata"]), tuple(content["columns"])
            fields = {str(kind): tuple(names) for kind, names in content.get("fields", {}).items()}
        except (ValueError, KeyError, TypeError, AttributeError, FormatError):
            raise FormatError(
                f"{path}: the description that Pairton stored in this file ({KEY}) is damaged: convert it again"
            ) from None
        if version not in range(VERSION + 1):
            newer = shown(content.get("pairton_version"))
            raise FormatError(f"{path}: written by a newer version of Pairton ({newer}): update Pairton")
        if topology is None or not tree:
            return Stored(None, metadata, columns, fields)
        try:
            return Stored(parse_topology(topology, f"{path}: topology"), metadata, columns, fields)
        except TopologyError as error:
            raise TopologyError(f"{error} (or read this file with --topology)") from None
