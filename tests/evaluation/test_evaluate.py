import json
import os
from dataclasses import replace

import awkward as ak
import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from event_files import write_events
from pairton import formats
from pairton.cli import cli
from pairton.errors import ConfigError, FormatError, InputError, ModelError, PairtonWarning
from pairton.evaluation.answers import read_assignments
from pairton.evaluation.evaluating import evaluate
from pairton.evaluation.scores import efficiencies, matches, score
from pairton.events import Events
from pairton.events.domain import Domain, KindDomain
from pairton.events.objects import make_jets, make_objects
from pairton.formats.files import sample_file
from pairton.models import model as models
from pairton.reconstruction.assigner import WINDOW
from pairton.reconstruction.running import reconstruct, reconstruct_files
from pairton.topology import load_topology, parse_topology

TTBAR = load_topology()
ROOTED = ("q1", "q2", "b")


def write_spanet(path, assignment):
    with h5py.File(path, "w") as file:
        for k, slot in enumerate(f"t{t}/{q}" for t in (1, 2) for q in ROOTED):
            file[f"TARGETS/{slot}"] = assignment[:, k].astype(np.int64)
    return path


def write_hyper(path, assignment):
    """Sets of jets; the order within a top is nobody's business."""
    with h5py.File(path, "w") as file:
        for t in (0, 1):
            file[f"OUTPUT/HyPER_best_top{t + 1}"] = assignment[:, [3 * t + 1, 3 * t + 2, 3 * t]]
            file[f"OUTPUT/HyPER_best_w{t + 1}"] = assignment[:, [3 * t + 1, 3 * t]]
    return path


def described(model, **about):
    """The type of a model, of which more is known."""

    class Described(type(model)):
        @property
        def info(self):
            return replace(super().info, **about)

    return Described


@pytest.fixture
def six(decays):
    """Seven events of 6, 6, 7, 7, 8, 9 and 9 jets, all labelled but the last two."""
    events = decays(7, extra=3)
    labelled = np.zeros((7, 9), dtype=bool)
    np.put_along_axis(labelled, events.truth, True, axis=1)
    spare = np.cumsum(~labelled, axis=1) * ~labelled  # 1, 2, 3 for jets without a label
    keep = labelled | (spare <= np.array([0, 0, 1, 1, 2, 3, 3])[:, None])
    events = events.keep({"jet": ak.from_regular(ak.Array(keep))})
    truth = events.truth.copy()
    truth[5, 2] = -1  # a b is missing
    truth[6, [0, 5]] = -1  # a quark of one top, the b of the other
    return Events(ak.without_field(events.jets, "index"), truth=truth)


@pytest.fixture
def answers(six):
    """Answers to them: right but swapped, one top, right, nothing, W only, partly, all that was labelled."""
    swapped_tops, swapped_quarks, swapped_b = [3, 4, 5, 0, 1, 2], [1, 0, 2, 4, 3, 5], [0, 1, 5, 3, 4, 2]
    answer = six.truth.copy()
    answer[0] = six.truth[0][swapped_tops]
    answer[1] = six.truth[1][[0, 1, 2, 3, 5, 4]]  # the second top has the wrong jet as b
    answer[2] = six.truth[2][swapped_quarks]
    answer[3] = -1
    answer[4] = six.truth[4][swapped_b]
    free = [next(j for j in range(9) if j not in six.truth[k]) for k in (5, 6)]
    answer[5, 2] = free[0]
    answer[6, [0, 5]] = free[1], next(j for j in range(9) if j not in six.truth[6] and j != free[1])
    return answer


# event: 0, 1, 2, 3, 4 are labelled; 0 and 2 are right
# t:     two each in 0 to 4, one in 5, none in 6; right: 2, 1, 2, 0, 0, 1
# W:     two each in 0 to 5, one in 6; right: 2, 1, 2, 0, 2, 2, 1
BY_HAND = {
    "event": {"6": (1, 2), "7": (1, 2), "8+": (0, 1), "inclusive": (2, 5)},
    "t": {"6": (3, 4), "7": (2, 4), "8+": (1, 3), "inclusive": (6, 11)},
    "W": {"6": (3, 4), "7": (2, 4), "8+": (5, 5), "inclusive": (10, 13)},
}


@pytest.mark.parametrize("layout", ["spanet", "hyper"])
def test_counted_by_hand(six, answers, tmp_path, layout):
    source = write_events(six, tmp_path / "in.h5")
    file = (write_spanet if layout == "spanet" else write_hyper)(tmp_path / "answers.h5", answers)
    result = evaluate(source, assignments=[file]).to_dict()
    found = {
        what: {cell: (numbers["correct"], numbers["total"]) for cell, numbers in cells.items()}
        for what, cells in result["efficiency"].items()
    }
    assert found == BY_HAND
    for cells in result["efficiency"].values():
        for numbers in cells.values():
            assert list(numbers) == ["value", "low", "high", "correct", "total", "effective"]
            assert numbers["value"] == numbers["correct"] / numbers["total"]
            assert numbers["low"] <= numbers["value"] <= numbers["high"]
    assert result["complete"] == 5
    assert result["events"] == 7
    assert result["calibration"] == {}
    reweighted = result["reweighted"]["efficiency"]["event"]["value"]
    assert reweighted == pytest.approx(0.36 * 0.5 + 0.30 * 0.5 + 0)


def test_our_own_results_score_as_the_model_does(decays, mass_model, tmp_path):
    events = decays(200, extra=2, labelled=0.97)
    source = write_events(events, tmp_path / "in.h5")
    by_model = evaluate(source, [mass_model]).to_dict()
    reco = reconstruct(events, mass_model)
    by_hand = efficiencies(TTBAR, events.truth, reco.assignment, events.n_jets)
    for what, cells in by_hand.items():
        for cell, efficiency in cells.items():
            assert by_model["efficiency"][what][cell] == efficiency.to_dict()
    for suffix in (".parquet", ".root", ".h5"):
        target = tmp_path / f"out{suffix}"
        reconstruct_files(source, target, mass_model)
        by_file = evaluate(source, assignments=[target]).to_dict()
        assert by_file["efficiency"] == by_model["efficiency"]
        assert by_file["mass"] == by_model["mass"]
        assert by_file["calibration"]["t"]["total"] == by_model["calibration"]["t"]["total"]
        assert by_file["calibration"]["event"]["error"] == pytest.approx(by_model["calibration"]["event"]["error"])
    reconstruct_files(source, tmp_path / "parts", mass_model, rows=4096, jobs=1)
    assert evaluate(source, assignments=[tmp_path / "parts"]).to_dict()["methods"]["parts"] == {
        **by_file["methods"]["out.h5"],
        "method": {"assignments": str(tmp_path / "parts")},
    }
    assert sum(cell["total"] for cell in by_model["mass"]["efficiency"]) == by_model["complete"]


def test_selection_goes_before_and_indices_still_refer_to_the_file(decays, mass_model, tmp_path):
    events = decays(300, extra=3)
    source = write_events(events, tmp_path / "in.h5")
    chosen = events.select()
    assert 0 < len(chosen) < len(events)
    selected = evaluate(source, [mass_model], select=True).to_dict()
    by_hand = efficiencies(TTBAR, chosen.truth, reconstruct(chosen, mass_model).assignment, chosen.n_jets)
    assert selected["efficiency"]["W"]["7"] == by_hand["W"]["7"].to_dict()
    assert selected["selected"]
    assert selected["events"] == len(chosen)
    # a perfect answer stays perfect: jets that were cut are no longer asked for
    perfect = write_spanet(tmp_path / "perfect.h5", events.truth)
    for select in (True, False):
        result = evaluate(source, assignments=[perfect], select=select).to_dict()
        assert all(c["value"] in (1, None) for cells in result["efficiency"].values() for c in cells.values())


def test_several_methods_are_compared_on_the_same_events(decays, mass_model, tmp_path):
    source = write_events(decays(150, extra=1), tmp_path / "in.h5")
    result = evaluate(source, [mass_model], decodings=["exact", "one_shot"], baselines=["chi2"]).to_dict()
    assert list(result["methods"]) == ["masses:exact", "masses:one_shot", "chi2"]
    assert result["efficiency"] == result["methods"]["masses:exact"]["efficiency"]
    pairs = [(d["first"], d["second"]) for d in result["differences"]]
    assert pairs == [("masses:exact", "masses:one_shot"), ("masses:exact", "chi2"), ("masses:one_shot", "chi2")]
    one, other = (result["methods"][name]["efficiency"]["W"]["7"]["value"] for name in pairs[0])
    assert result["differences"][0]["efficiency"]["W"]["7"]["value"] == pytest.approx(one - other)
    assert set(result["methods"]["chi2"]["calibration"]) == {"event"}
    assert result["methods"]["chi2"]["method"]["masses"]["W"][0] == pytest.approx(80, rel=0.05)
    assert result["spread"] == []
    json.dumps(result, allow_nan=False)


def test_spread_over_trainings_of_one_network(decays, mass_model, tmp_path):
    source = write_events(decays(100, extra=1), tmp_path / "in.h5")
    models = []
    for strength, blocks, wrong, seed in ((1.0, 4, 0, 1), (0.1, 4, 0, 2), (1.0, 6, 0, 1), (1.0, 4, 0.5, 1)):
        recipe = {"process": {"wrong": wrong}, "run": {"seed": seed}}
        models.append(described(mass_model, network={"blocks": blocks}, recipe=recipe)(strength=strength))
    result = evaluate(source, models).to_dict()
    (spread,) = result["spread"]
    assert spread["methods"] == ["masses", "masses#2"]
    values = [result["methods"][name]["efficiency"]["t"]["inclusive"]["value"] for name in spread["methods"]]
    numbers = spread["efficiency"]["t"]["inclusive"]
    assert numbers == {"mean": np.mean(values), "deviation": np.std(values, ddof=1), "models": 2}


def test_promises_are_kept_by_fully_labelled_events_and_counted_for_all(decays, mass_model, tmp_path):
    events = decays(300, extra=2, labelled=0.93, floor=15.0)
    source = write_events(events, tmp_path / "in.h5")
    result = evaluate(source, [mass_model]).to_dict()
    reco = reconstruct(events, mass_model)
    full = events.complete
    right = score(TTBAR, events.truth, reco.assignment, events.n_jets).correct["event"] > 0
    chance, known = reco.event_probability, np.isfinite(reco.event_probability)
    of_full, of_all = result["calibration"]["event"], result["calibration_all"]["event"]
    assert 0 < full.sum() < known.sum() < len(events)  # there are partly labelled ones, and ones without an answer
    assert (of_full["total"], of_all["total"]) == ((full & known).sum(), known.sum())
    assert of_all["right"] == pytest.approx(right.sum() / known.sum())
    assert of_full["probability"] == pytest.approx(chance[full & known].mean())
    assert of_full["difference"] == pytest.approx((chance - right)[full & known].mean())
    assert sum(row["complete"] for row in of_all["bins"]) == (full & known).sum()
    assert all(row["correct"] <= row["complete"] <= row["total"] for row in of_all["bins"])
    # a particle is right only where the truth has it complete, in whatever event
    w = [1, 3]
    found = matches(TTBAR, reco.assignment, events.truth)[:, w]
    counted = np.isfinite(reco.particle_probability[:, w])
    assert result["calibration_all"]["W"]["right"] == pytest.approx(found.sum() / counted.sum())
    assert result["calibration_all"]["W"]["total"] == counted.sum()
    seven = full & known & (events.n_jets == 7)
    limit = result["limit"]["7"]
    assert limit["total"] == seven.sum() > 0
    assert (limit["probability"], limit["right"]) == (
        pytest.approx(chance[seven].mean()), pytest.approx(right[seven].mean())
    )  # fmt: skip
    assert limit["deviation"] == pytest.approx((chance - right)[seven].std() / np.sqrt(seven.sum()))


def test_another_jet_scale_is_that_of_scaled_jets_without_other_cuts(decays, mass_model, tmp_path):
    events = decays(150, extra=2)
    soft = float(ak.min(events.jets.pt))
    mass_model.domain = Domain(
        {"jet": KindDomain(soft, count=(6, 16))}
    )  # the softest jet would not survive a lower scale
    source = write_events(events, tmp_path / "in.h5")
    result = evaluate(source, [mass_model], baselines=["chi2"], jet_scales=[0.8]).to_dict()
    assert list(result["methods"]) == ["masses", "chi2", "masses x 0.8", "chi2 x 0.8"]
    assert result["methods"]["chi2 x 0.8"]["method"]["jet_scale"] == 0.8
    jets = ak.with_field(events.jets, events.jets.pt * np.float32(0.8), "pt")
    jets = ak.with_field(jets, events.jets.energy * np.float32(0.8), "energy")
    mass_model.domain = Domain({"jet": KindDomain(count=(6, 16))})
    scaled = write_events(events.replace(jets=jets), tmp_path / "scaled.h5")
    by_hand = evaluate(scaled, [mass_model]).to_dict()["efficiency"]
    assert result["methods"]["masses x 0.8"]["efficiency"] == by_hand
    assert by_hand["event"]["inclusive"]["value"] < result["efficiency"]["event"]["inclusive"]["value"] - 0.1
    assert result["spread"] == []  # not a retraining
    with pytest.raises(ConfigError, match="the jet scale is 0"):
        evaluate(source, [mass_model], jet_scales=[0])


def test_events_without_jets_enough_count_as_wrong(decays, mass_model, tmp_path):
    events = decays(40, extra=0)
    short = events.keep({"jet": ak.local_index(events.jets.pt) < 5})
    source = write_events(Events(ak.without_field(short.jets, "index"), truth=short.truth), tmp_path / "in.h5")
    result = evaluate(source, [mass_model]).to_dict()["efficiency"]
    assert result["W"]["inclusive"]["correct"] == 0
    assert result["W"]["inclusive"]["total"] == int(short.present[:, [1, 3]].sum()) > 0
    assert result["event"]["6"] == {
        "value": None,
        "low": 0.0,
        "high": 1.0,
        "correct": 0,
        "total": 0,
        "effective": 0.0,
    }


def test_no_events(decays, mass_model, tmp_path):
    result = evaluate(write_events(decays(3)[:0], tmp_path / "in.h5"), [mass_model]).to_dict()
    assert result["events"] == 0
    assert result["mass"] == {"edges": [], "efficiency": []}
    assert result["efficiency"]["event"]["inclusive"]["value"] is None


def test_mistakes_are_named(six, answers, decays, mass_model, tmp_path):
    source = write_events(six, tmp_path / "in.h5")
    unlabelled = write_events(Events(six.jets), tmp_path / "data.h5")
    with pytest.raises(InputError, match=r"data\.h5 has no truth"):
        evaluate(unlabelled, [mass_model])
    with pytest.raises(ConfigError, match="nothing to evaluate"):
        evaluate(source, [])
    with pytest.raises(ConfigError, match=r"no baseline 'chi': choose one of chi2, .*; did you mean"):
        evaluate(source, [], baselines=["chi"])
    with pytest.raises(ModelError, match="only 4 particles of type W"):
        evaluate(write_events(six[:2], tmp_path / "few.h5"), [], baselines=["chi2"])
    for n in (5, 9):
        wrong = write_spanet(tmp_path / f"wrong{n}.h5", np.zeros((n, 6)))
        with pytest.raises(InputError, match=f"{n} answers"):
            evaluate(source, assignments=[wrong])
    other = write_events(decays(7, seed=3, ids=np.full((7, 2), 5)), tmp_path / "other.h5")
    reconstruct_files(other, tmp_path / "other.parquet", mass_model)
    with pytest.raises(InputError, match="the ids of its events differ"):
        evaluate(source, assignments=[tmp_path / "other.parquet"])
    with pytest.raises(ConfigError, match="mix has 2 shares, but the bins are 6, 7, 8"):
        evaluate(source, [mass_model], mix=[1, 2])
    mass_model.topology = load_topology("hh4b")
    with pytest.raises(ModelError, match="is for hh4b, but the events are read as ttbar_allhad"):
        evaluate(source, [mass_model], topology="ttbar_allhad")


def test_files_that_are_no_answers(answers, mass_model, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_assignments(tmp_path / "none.h5", TTBAR)
    with pytest.raises(InputError, match=r"it has no _reconstruction\.json; give its files"):
        read_assignments(tmp_path, TTBAR)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["something"] = [1]
    with pytest.raises(FormatError, match="no assignments found: it has something"):
        read_assignments(tmp_path / "other.h5", TTBAR)
    spanet = write_spanet(tmp_path / "spanet.h5", answers)
    with pytest.raises(FormatError, match="no dataset TARGETS/H"):
        read_assignments(spanet, load_topology("tth_allhad"))
    with h5py.File(write_hyper(tmp_path / "hyper.h5", answers), "a") as file:
        del file["OUTPUT/HyPER_best_w1"]
        file["OUTPUT/HyPER_best_w1"] = np.zeros((7, 3))
    with pytest.raises(FormatError, match=r"W has 2 jets: give \(events, 2\)"):
        read_assignments(tmp_path / "hyper.h5", TTBAR)


def test_hyper_tops_that_do_not_contain_their_w_are_wrong(tmp_path):
    answer = np.array([[0, 1, 2, 3, 4, 5]])
    path = write_hyper(tmp_path / "hyper.h5", answer)
    with h5py.File(path, "a") as file:
        file["OUTPUT/HyPER_best_w1"][...] = [[0, 6]]
    assert read_assignments(path, TTBAR).assignment.tolist() == [[0, 6, -1, 4, 3, 5]]


# -- the command line --------------------------------------------------------------------------------------


@pytest.fixture
def built_in(mass_model, monkeypatch):
    monkeypatch.setattr(models, "load_model", lambda name="default", **_: mass_model)
    return mass_model


def test_events_without_an_answer_are_counted_aloud(decays, built_in, tmp_path):
    events = decays(15, extra=0)
    few = events.keep({"jet": ak.local_index(events.jets.pt) < [6] * 10 + [5] * 5})
    source = write_events(few, tmp_path / "in.h5")
    said = CliRunner().invoke(cli, ["evaluate", str(source)]).output
    assert "masses: 5 without an answer, which count as wrong; --select leaves out" in said
    scores = [[0.3] * 6] * 10
    graded = make_jets(**{name: events.jets[name][:10] for name in ("pt", "eta", "phi", "energy")}, btag=scores)
    shown = CliRunner().invoke(cli, ["reconstruct", str(write_events(Events(graded), tmp_path / "score.h5"))])
    assert "cut on them with --btag CUT" in shown.output


def test_table_and_json_on_the_command_line(decays, built_in, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/bin/pairton", "evaluate", "in.h5"])
    source = write_events(decays(120, extra=2), tmp_path / "in.h5")
    target = tmp_path / "numbers.json"
    run = CliRunner().invoke(cli, ["evaluate", str(source), "--baseline", "chi2", "--json", str(target)])
    assert run.exit_code == 0, run.output
    assert "120 events with truth, 120 complete" in run.output
    assert "masses (exact) minus chi2" in run.output
    numbers = json.loads(target.read_text())
    assert numbers["command"] == "pairton evaluate in.h5"
    cell = numbers["efficiency"]["event"]["inclusive"]
    assert f"{cell['value']:.3f}" in run.output
    assert (cell["total"], numbers["methods"]["chi2"]["efficiency"]["t"]["8+"]["total"]) == (120, 240)
    screen = CliRunner().invoke(cli, ["evaluate", str(source), "--mix", "1,1,1", "--json", "-"])
    assert json.loads(screen.output)["reweighted"]["mix"] == {"6": 1.0, "7": 1.0, "8+": 1.0}


def test_reconstruct_on_the_command_line(decays, built_in, tmp_path):
    events = decays(30, extra=2)
    source = write_events(events, tmp_path / "in.h5")
    shown = CliRunner().invoke(cli, ["reconstruct", str(source)])
    assert shown.exit_code == 0, shown.output
    ok = int((ak.sum(events.jets.btag, axis=1) >= 2).to_numpy().sum())
    assert f"30 events ({ok} ok, {30 - ok} outside_selection)" in shown.output
    assert "t2 [GeV]" in shown.output
    target = tmp_path / "out.root"
    written = CliRunner().invoke(cli, ["reconstruct", str(source), "-o", str(target), "--max-objects", "7"])
    assert "30 events (30 truncated)" in written.output
    assert f"wrote {target}" in written.output
    assert len(read_assignments(target, TTBAR)) == 30


def test_without_input_the_sample_events_are_shown(built_in):
    shown = CliRunner().invoke(cli, ["reconstruct"])
    assert shown.exit_code == 0, shown.output
    assert "the sample events, ttbar_allhad.h5" in shown.output
    with formats.open_source(sample_file()) as source:
        assert f"{source.n_events} events (" in shown.output


def test_models_are_listed_with_what_they_are(built_in, monkeypatch, tmp_path):
    monkeypatch.setattr("pairton.models.storage.builtin_models", lambda: {"masses": tmp_path})
    built_in.__class__ = described(built_in, metrics={"e_event": 0.5, "e_W": 0.625})
    listed = CliRunner().invoke(cli, ["list", "models"])
    assert listed.output == "masses  ttbar_allhad, exact  e_event 0.5  e_W 0.625\n"
    monkeypatch.setattr("pairton.models.storage.builtin_models", lambda: {"masses": tmp_path, "other": tmp_path})
    assert (
        "e_…: share that is right among the validation events"
        in CliRunner().invoke(cli, ["list", "models"]).output
    )
    shown = CliRunner().invoke(cli, ["list", "models", "masses"]).output
    assert "jets        pT > 0 GeV, |eta| < inf; 6 to 16; btag 0 or 1" in shown
    (tmp_path / "README.md").write_text("# A card")
    monkeypatch.setattr("pairton.models.storage.builtin_models", lambda: {"ttbar_allhad": tmp_path})
    assert "ttbar_allhad (default)  ttbar_allhad, exact" in CliRunner().invoke(cli, ["list", "models"]).output
    assert "# A card" in CliRunner().invoke(cli, ["list", "models", "default"]).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "nowhere.h5"], "pairton: nowhere.h5: no such file"),
        (["evaluate", "IN", "--jet-scale", "-1"], "the jet scale is -1.0: give a number above 0"),
        (["evaluate", "IN", "--mix", "a,b"], "pairton: mix is 'a,b': give a share for each"),
        (["evaluate", "IN", "--decoding", "exakt"], "did you mean 'exact'?"),
        (["evaluate", "IN", "--json", "no/where.json"], "there is no folder no"),
        (["reconstruct", "IN", "-o", "out.csv"], "unknown suffix '.csv'"),
        (["reconstruct", "IN", "--max-objects", "4"], "but ttbar_allhad has 6 slots for jets"),
        (["reconstruct", "IN", "--max-objects", "40"], "max_objects is 40, but networks take up to 32"),
        (["reconstruct", "IN", "-o", "out", "--jobs", "1", "--max-objects", "40"], "networks take up to 32"),
        (["reconstruct", "IN", "-o", "out", "--jobs", "0"], "jobs is 0, but must be at least 1"),
        (["reconstruct", "IN", "--decoding", "beam:0"], "the number of hypotheses to keep, 1 or more"),
    ],
)
def test_mistakes_are_one_line(decays, built_in, tmp_path, refused, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    source = write_events(decays(8), tmp_path / "in.h5")
    assert message in refused(*[source if argument == "IN" else argument for argument in arguments])
    assert os.listdir(tmp_path) == ["in.h5"]


def test_labels_that_the_model_cuts_away_count_as_missing_and_are_said(decays, mass_model):
    events = decays(40, floor=0)
    mass_model.domain = Domain({"jet": KindDomain(25.0, 2.5)})
    soft = (events.jets.pt < 25) | (abs(events.jets.eta) > 2.5)
    lost = [int(sum(soft[row][k] for k in events.truth[row])) for row in range(40)]
    with pytest.warns(PairtonWarning, match=rf"^{sum(lost)} labelled objects fail .* --jets none"):
        found = evaluate(events, mass_model).to_dict()
    efficiency = found["methods"]["masses"]["efficiency"]["event"]["inclusive"]
    assert efficiency["total"] == sum(count == 0 for count in lost)
    every = evaluate(events, mass_model, cuts=False).to_dict()
    assert every["methods"]["masses"]["efficiency"]["event"]["inclusive"]["total"] == 40


def test_objects_that_are_not_usable_are_none_to_baselines(decays, mass_model):
    """A jet that an experiment rejects, or that is a lepton, changes no answer and no multiplicity."""
    events = decays(60, seed=4, extra=1)
    jets = ak.with_field(events.jets, ak.ones_like(events.jets.pt, dtype=bool), "usable")
    first = ak.with_field(jets[:, :1], ak.zeros_like(jets.pt[:, :1], dtype=bool), "usable")
    more = events.replace(jets=ak.with_name(ak.concatenate([first, jets], axis=1), "Momentum4D"), truth=None)
    more = more.replace(truth=events.truth + 1)
    plain, marked = (evaluate(each, [mass_model], baselines=["chi2"]).to_dict() for each in (events, more))
    assert marked["efficiency"] == plain["efficiency"]


def test_the_mix_of_the_paper_is_for_its_topology_alone(decays, mass_model_type):
    events = decays(30, seed=2)
    assert "mix 36/30/34" in evaluate(events, mass_model_type()).table()
    own = parse_topology(load_topology("ttbar_allhad").to_dict() | {"name": "mine", "bins": [6, 7]})
    other = Events(events.objects, own, truth=events.truth)
    assert "mix" not in evaluate(other, mass_model_type(topology=own)).table()


@pytest.mark.filterwarnings("ignore:.*labelled objects")
def test_baselines_get_the_jets_of_the_model(decays, mass_model):
    """The selection of the topology asks for 25 GeV, but the cuts of the model decide."""
    events = decays(200, seed=6, floor=0)
    for least in (0.0, 15.0, 40.0):
        mass_model.domain = Domain({"jet": KindDomain(least)})
        own, given = (
            evaluate(events, mass_model, baselines=["chi2"], jets=jets).to_dict()["methods"]["chi2"]
            for jets in (None, f"pt>{least}")
        )
        assert own["efficiency"] == given["efficiency"]
    alone, every = (
        evaluate(events, [], baselines=["chi2"], jets=jets).to_dict()["methods"]["chi2"] for jets in (None, "none")
    )
    assert alone["efficiency"] == every["efficiency"]


def test_a_later_model_with_tighter_cuts_is_said_to_miss_labels(decays, mass_model_type):
    events = decays(60, seed=6, floor=0)
    loose = mass_model_type(name="loose", domain=Domain({"jet": KindDomain(0.0)}))
    tight = mass_model_type(name="tight", domain=Domain({"jet": KindDomain(30.0)}))
    lost = int(sum((events.jets.pt[row][k] < 30) for row in range(60) for k in events.truth[row]))
    with pytest.warns(PairtonWarning, match=rf"^{lost} labelled objects fail the cuts of tight and are wrong"):
        evaluate(events, [loose, tight])
    with pytest.warns(PairtonWarning) as said:
        evaluate(events, [tight, loose])
    assert len([each for each in said if "labelled objects" in str(each.message)]) == 1


@pytest.mark.parametrize("empty", ["first", "last"])
def test_windows_without_an_answer_change_nothing(decays, missing_model, empty):
    """Events are read in windows: one with no answer at all must not change what is measured of the others."""
    none = decays(WINDOW, seed=1, extra=0).keep(
        {"jet": ak.from_regular(ak.Array(np.zeros((WINDOW, 6), dtype=bool)))}
    )
    none = none.replace(jets=ak.without_field(none.jets, "index"))
    some = decays(WINDOW if empty == "last" else 40, seed=2, extra=0)
    both = [some, none[:5]] if empty == "last" else [none, some]
    found, alone = (
        evaluate(events, missing_model).to_dict()["methods"]["masses"]
        for events in (Events.concatenate(both), some)
    )
    assert found["calibration"]["event"] == alone["calibration"]["event"]
    assert found["calibration_all"]["complete"]["total"] == len(some)


def test_events_without_leptons_are_scored():
    """Objects carry their index after a cut, also if it left none of a kind."""
    topology = load_topology("ttbar_semilep")
    columns = {"eta": [[0.1, 0.5, 1.0, 2.0]] * 3, "phi": [[0.0, 1.0, 2.0, 3.0]] * 3, "mass": [[5.0] * 4] * 3}
    jets = make_jets(pt=[[90.0, 80, 70, 60]] * 3, btag=[[1, 0, 0, 1]] * 3, **columns)
    one = {"eta": [[0.3]] * 3, "phi": [[1.5]] * 3, "mass": [[0.0]] * 3}
    objects = {
        "jet": jets,
        "lepton": make_objects(pt=[[50.0]] * 3, **one),
        "met": make_objects(pt=[[40.0]] * 3, **one),
    }
    truth = np.full((3, len(topology.slots)), -1)
    truth[:, [slot.index for slot in topology.slots if slot.kind == "jet"]] = np.arange(4)
    bare = Events(objects, topology, truth=truth)
    bare = bare.keep({"lepton": bare.objects["lepton"].pt > 1000})
    found = evaluate(bare, [], baselines=["random"]).to_dict()["methods"]["random"]
    assert found["efficiency"]["event"]["inclusive"]["total"] == 0


@pytest.mark.parametrize("mix", [[0, 0, 0], [1, -1, 1], [1, np.nan, 1]])
def test_shares_of_a_mix_are_checked(decays, mass_model, mix):
    with pytest.raises(ConfigError, match="give a share for each multiplicity bin"):
        evaluate(decays(20), mass_model, mix=mix)


def test_hypers_decoding_needs_a_score_of_three_objects(decays, mass_model):
    """A potential of a pair and a third object is another score, which it would misread."""
    with pytest.raises(ModelError, match="masses has no score for sets of three objects"):
        evaluate(decays(20), mass_model, decodings=["hyper"])


def test_options_that_nothing_reads_are_refused(decays):
    with pytest.raises(ConfigError, match="no option 'jet_cuts'"):
        evaluate(decays(20), [], baselines=["chi2"], jet_cuts=False)
