"""Expressions over columns, and the events that `where` leaves out, in files of every container."""

import awkward as ak
import numpy as np
import pytest

import pairton
from event_files import write_events
from pairton.errors import ConfigError, FormatError
from pairton.formats import open_source, read
from pairton.formats.expressions import Expression

COLUMNS = {
    "HLT_X": np.array([True, True, False, True]),
    "nJet": np.array([4, 3, 6, 5], dtype=np.uint32),
    "met": np.array([10.0, np.nan, 30.0, 50.0]),
    "Jet.pt": ak.Array([[40.0, 30.0], [20.0], [], [90.0, 10.0, 5.0]]),
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("none", [1, 1, 1, 1]),
        ("HLT_X", [1, 1, 0, 1]),
        ("HLT_X & (nJet >= 4)", [1, 0, 0, 1]),
        ("HLT_X, nJet >= 4", [1, 0, 0, 1]),
        ("~HLT_X | (met > 40)", [0, 0, 1, 1]),
        ("(nJet & 4) == 4", [1, 0, 1, 1]),
        ("3 < nJet < 6", [1, 0, 0, 1]),
        ("nJet - 4 > 0", [0, 0, 1, 1]),
        ("met / nJet > 4.9", [0, 0, 1, 1]),
        ("met < 1000", [1, 0, 1, 1]),  # not the one that is NaN
        ("count(Jet.pt) >= 2", [1, 0, 0, 1]),
        ("sum(Jet.pt > 15) == 1", [0, 1, 0, 1]),
        ("max(Jet.pt) > 35", [1, 0, 0, 1]),  # an event without jets has no largest one
        ("any(Jet.pt < 6) | all(Jet.pt > 25)", [1, 0, 1, 1]),
        ("min(Jet.pt) + met > 100", [0, 0, 0, 0]),
    ],
)
def test_expressions(text, holds):
    found = Expression.parse(text, "where")
    assert found.holds(COLUMNS, 4).tolist() == [each == 1 for each in holds]
    assert set(found.names) <= COLUMNS.keys()


@pytest.mark.parametrize(
    "text", ["HLT_X & nJet >= 4", "Jet.pt > 30", "nJet + Jet.pt", "any(nJet)", "HLT_X & nJet"]
)
def test_what_gives_no_answer_for_each_event_is_one_line(text):
    with pytest.raises(ConfigError, match=r"where=.* one number for each event .* brackets, and use any, all"):
        Expression.parse(text, "where").holds(COLUMNS, 4)


HARMFUL = ["__import__('os')", "nJet.__class__()", "a[0]", "9 ** 9", "1 << 99", "'text'", "lambda: 1", "eval(a)"]
ODD = ["sum(a, b)", "sum(*a)", "a if b else c", "a := 1", "{a}", "f'{a}'", "[x for x in y]", "(" * 500 + "a"]


@pytest.mark.parametrize("text", [*HARMFUL, *ODD, "a" * 5000])
def test_nothing_else_is_evaluated(text):
    with pytest.raises(ConfigError, match="not understood: write conditions on columns"):
        Expression.parse(text, "where")


@pytest.fixture
def events(decays):
    made = decays(30, seed=4)
    met = np.arange(30.0)
    return made.replace(columns={"met": met, "hits": ak.unflatten(np.arange(43), [k % 4 for k in range(30)])})


@pytest.mark.parametrize("suffix", [".h5", ".root", ".parquet"])
def test_events_are_left_out_and_keep_their_entry(tmp_path, events, suffix):
    path = write_events(events, tmp_path / f"a{suffix}")
    chosen = np.flatnonzero(np.arange(30) % 4 * (np.arange(30) > 5) >= 2)
    for how in ({"chunk": 7}, {"isolate": True}):
        found = read(path, where="(met > 5) & (met % 4 >= 2)", **how)
        assert found.columns["entry"].tolist() == chosen.tolist()
        assert found.ids.tolist() == events.ids[chosen].tolist()
        assert found.truth.tolist() == events.truth[chosen].tolist()
        assert found.jets.pt.tolist() == events.jets.pt[chosen].tolist()
        assert found.metadata["reading"]["where"] == "(met > 5) & (met % 4 >= 2)"
    if suffix != ".h5":
        assert read(path, where="max(jet_pt) > 1e6").n_jets.tolist() == []
        assert len(read(path, where="max(jet_pt) > 0, count(hits) > 2")) == 7
    with pytest.raises(FormatError, match="mett"):
        read(path, where="mett > 5")
    with pytest.raises(ConfigError, match="where is 5, but must be text"):
        open_source(path, where=5)


def test_every_verb_leaves_them_out(tmp_path, events, model_folder, run):
    jets = ak.with_field(events.jets, ak.where(np.arange(30) == 25, np.nan, events.jets.pt), "pt")
    path = write_events(events.replace(jets=ak.with_name(jets, "Momentum4D")), tmp_path / "a.root")
    summary = pairton.reconstruct_files(path, tmp_path / "bad.parquet", model_folder, where="met >= 10")
    assert summary.first_bad == {"bad_object": (str(path), 25)}  # not the fifteenth of those that were read
    for words in (
        ["reconstruct", path, "-o", tmp_path / "out.parquet", "--model", model_folder],
        ["convert", path, tmp_path / "b.parquet"],
        ["inspect", path],
    ):
        assert "20" in run(*words, "--where", "met >= 10").out
    assert read(tmp_path / "b.parquet").columns["entry"].tolist() == list(range(10, 30))
