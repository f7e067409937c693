"""Parquet files that declare far more than they hold."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

COLUMNS = [f"jet_{name}" for name in ("pt", "eta", "phi", "mass", "btag")]


@pytest.mark.parametrize("empty", [0, 10_000], ids=["alone", "among empty events"])
def test_an_event_of_millions_of_equal_jets_is_refused(tmp_path, bounded, empty):
    """A few kB, which would take gigabytes to decode."""
    count = 40_000_000
    ends = pa.array([0] * (empty + 1) + [count], pa.int64())
    jets = pa.LargeListArray.from_arrays(ends, pa.array(np.full(count, 50, np.float32)))
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table(dict.fromkeys(COLUMNS, jets)), path, compression="zstd")
    assert path.stat().st_size < 2**20
    code, said = bounded("reconstruct", path, "-o", tmp_path / "out.parquet")
    assert code == 2
    assert "made to exhaust the memory" in said
