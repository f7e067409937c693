"""ROOT files with numbers that cannot be."""

import struct

import awkward as ak
import numpy as np
import pytest
import uproot

from pairton import formats


def negative_entries(path, n):
    """A tree that says it has -5 entries is refused, not skipped."""
    content = path.read_bytes()
    with uproot.open(path) as file:
        assert file[file.keys()[0]].num_entries == n
    said = struct.pack(">q", n)
    assert content.count(said)
    path.write_bytes(content.replace(said, struct.pack(">q", -5)))


def test_a_negative_number_of_entries_is_refused_also_among_others(source, tmp_path, refused, decays):
    events = decays(397)
    with formats.create(tmp_path / "bad.root", events.topology) as writer:
        writer.write(events)
    negative_entries(tmp_path / "bad.root", 397)
    for inputs in ([tmp_path / "bad.root"], [source, tmp_path / "bad.root"]):
        assert "declares -5 events" in refused("convert", *inputs, tmp_path / "out.h5")


@pytest.mark.parametrize("kind", ["TTree", "RNTuple"])
def test_an_event_of_millions_of_equal_jets_is_refused(tmp_path, bounded, kind):
    """A file of 100 kB, which would take gigabytes to read."""
    jets = ak.unflatten(np.full(20_000_000, 1, np.float32), [20_000_000])
    fields = ("pt", "eta", "phi", "mass", "btag")
    path = tmp_path / "bomb.root"
    with uproot.recreate(path, compression=uproot.LZMA(1)) as file:
        if kind == "TTree":
            event = ak.zip(dict.fromkeys(fields, jets))
            file.mktree("Events", {"jet": ak.type(event).content})
            file["Events"].extend({"jet": event})
        else:
            file.mkrntuple("Events", {f"jet_{name}": jets for name in fields})
    assert path.stat().st_size < 2**20
    code, said = bounded("reconstruct", path, "-o", tmp_path / "out.parquet")
    assert code == 2
    assert "made to exhaust the memory" in said
