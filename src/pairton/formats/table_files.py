"""Base class of tables of events, which are read by rows and columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import awkward as ak

from pairton.errors import FormatError, nearest
from pairton.formats.columns import shown

__all__ = ["Table"]


class Table(ABC):
    """An open table of events: a tree of a ROOT file, or a Parquet file."""

    path: str
    title: str  # name of the table in errors
    n_events: int
    columns: tuple[str, ...]

    @property
    @abstractmethod
    def source_id(self) -> int:
        """A number that identifies the file in the ids of its events."""

    @abstractmethod
    def read(self, names: Iterable[str], start: int, stop: int) -> Mapping[str, ak.Array]:
        """Rows [start, stop) of some columns."""

    @abstractmethod
    def close(self) -> None:
        """Release the file."""

    def __contains__(self, column: object) -> bool:
        return column in self.columns

    def require(self, names: Sequence[str], hint: str = "") -> None:
        """Raise FormatError if columns are missing."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            similar = nearest(missing[0], self.columns) or ";"
            columns = shown(self.columns, missing[0])
            raise FormatError(
                f"{self.path}: {self.title} lacks {', '.join(missing)}{similar} it has {columns}{hint}"
            )
