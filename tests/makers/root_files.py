"""Trees of columns as files: TTree, RNTuple, or the same columns in Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import uproot


def write_tree(path: Path, tree: str, columns: dict[str, Any], kind: str = "TTree") -> Path:
    arrays = {name: ak.Array(values) for name, values in columns.items()}
    if kind == "Parquet":
        path = path.with_suffix(".parquet")
        ak.to_parquet(ak.zip(arrays, depth_limit=1), path)
        return path
    with uproot.recreate(path) as file:
        if kind == "RNTuple":
            file.mkrntuple(tree, arrays)
            return path
        file.mktree(tree, {name: array.type.content for name, array in arrays.items()})
        if len(next(iter(arrays.values()))):
            file[tree].extend(arrays)
    return path
