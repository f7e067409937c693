"""Background: vetoes in the shower, biased phase space and enhanced splittings with their weights."""

import json

import awkward as ak
import numpy as np
import pytest
from click.testing import CliRunner

from pairton import formats
from pairton.cli.inspect_convert import inspect
from pairton.errors import ConfigError
from pairton.generator import hooks
from pairton.generator import pythia as pythia_module
from pairton.generator.jets import holds_quark
from pairton.generator.production import Counts, produce, run_chunk
from pairton.generator.pythia import PythiaRun, flatten, load_processes
from pairton.generator.settings import make_settings
from pairton.topology import load_topology

pytest.importorskip("pythia8mc")
fastjet = pytest.importorskip("fastjet")

HARD = ("HardQCD:all = on", "PhaseSpace:pTHatMin = 60.", "Beams:eCM = 11000.")
BARE = ("BeamRemnants:primordialKT = off", *(f"PartonLevel:{name} = off" for name in ("ISR", "FSR", "MPI")))
FINAL = ("PartonLevel:ISR = off", "PartonLevel:MPI = off")


def multijet(n_events, **options):
    return make_settings("multijet", n_events, seed=2, keep="all", **options).with_sizes(4, 2)


# -- what is asked for -------------------------------------------------------------------------------------


def test_multijet_is_a_process_for_any_topology(tmp_path):
    lines = load_processes().built_in["multijet"]
    short = make_settings("multijet", 10)
    assert short.build_topology() == load_topology("ttbar_allhad")
    assert short.lines[-len(lines) :] == lines
    assert short == make_settings("ttbar_allhad", 10, process="multijet")
    own = tmp_path / "loose.yaml"
    own.write_text("name: mine\nevent: [t]\nparticles: {t: [W, b], W: [q, q]}\nprocess: ['Top:all = on']\n")
    mine = make_settings(own, 10, process="multijet", pythia=("Pairton:jets = 3",))
    assert mine.build_topology().name == "mine"
    assert "Top:all = on" not in mine.lines
    assert mine.lines[-len(lines) - 1 :] == (*lines, "Pairton:jets = 3")
    assert "Top:all = on" in make_settings(own, 10).lines


# -- weights -----------------------------------------------------------------------------------------------


def test_weights_undo_the_bias_of_the_phase_space():
    bias = [f"PhaseSpace:bias2Selection{end}" for end in (" = on", "Pow = 2.", "Ref = 100.")]
    run = PythiaRun((*HARD, *BARE, *bias), 3)
    batch = next(run.batches(400, 400))
    hardest = np.sqrt(np.asarray(batch.info.pT2Hat))
    assert run.weights == pytest.approx((100.0 / hardest) ** 2, rel=0.1)  # pT of massive quarks is another one
    plain = PythiaRun((*HARD, *BARE), 3)
    unbiased = np.sqrt(np.asarray(next(plain.batches(400, 400)).info.pT2Hat))
    assert plain.weights is None
    assert hardest.mean() > 1.2 * unbiased.mean()
    mean = np.average(hardest, weights=run.weights)
    assert mean == pytest.approx(unbiased.mean(), rel=0.05)


def test_weights_undo_the_enhancement_of_splittings():
    def share(*lines):
        run = PythiaRun((*HARD, *FINAL, *lines, "PhaseSpace:pTHatMin = 200."), 5)
        record = flatten(next(run.batches(1000, 1000)))
        b = holds_quark(record.code, 5)
        found = np.bincount(record.event[b], minlength=1000) > 0
        weights = np.ones(1000) if run.weights is None else run.weights
        return found.mean(), (weights * found).mean(), (weights * found).std() / np.sqrt(1000)

    plain, _, error = share()
    more, weighted, weighted_error = share(
        "Enhancements:doEnhance = on", "EnhancedSplittings:List = {fsr:G2BB=3.}"
    )
    assert more > 1.5 * plain
    assert abs(weighted - plain) < 4 * np.hypot(error, weighted_error)
    assert weighted_error < 0.02


def test_weights_of_another_file_are_not_mixed_with_pythias(tmp_path):
    with pytest.raises(ConfigError, match="--lhe has weights of its own"):
        PythiaRun(("Enhancements:doEnhance = on",), 1, lhe=tmp_path / "any.lhe")


# -- vetoes ------------------------------------------------------------------------------------------------


def test_events_that_pass_have_the_jets_of_partons(monkeypatch):
    seen = []

    def recording(*arguments):
        class Recording(type(hooks.make_hook(*arguments))):
            def doVetoPartonLevel(self, event):
                veto = super().doVetoPartonLevel(event)
                final = [event[i] for i in range(event.size()) if event[i].isFinal()]
                if not veto:
                    seen.append([(q.px(), q.py(), q.pz(), q.e(), q.idAbs()) for q in final])
                return veto

        return Recording()

    monkeypatch.setattr(pythia_module, "make_hook", recording)
    run = PythiaRun(load_processes().lines(load_topology("ttbar_allhad"), False, (), "multijet"), 7)
    next(run.batches(8, 8))
    assert len(seen) == 8
    definition = fastjet.JetDefinition(fastjet.antikt_algorithm, 0.4)
    fastjet._swig.ClusterSequence.set_fastjet_banner_stream(None)
    for event in seen:
        px, py, pz, energy, code = np.array(event).T
        partons = ak.zip({"px": px, "py": py, "pz": pz, "E": energy}, with_name="Momentum4D")
        cluster = fastjet.ClusterSequence(partons, definition)
        jets, members = cluster.inclusive_jets(min_pt=hooks.PT_B), cluster.constituent_index(min_pt=hooks.PT_B)
        pt = np.hypot(jets.px, jets.py)
        central = np.abs(np.arcsinh(jets.pz / pt)) < hooks.ABS_ETA
        assert np.sum((pt > hooks.PT_AT_END) & central) >= 6
        assert sum(bool((code[np.asarray(one)] == 5).any()) for one in members[central]) >= 2
    assert run.tried(8) > 100
    assert run.tried(4) < run.tried(8)


def test_quarks_of_resonances_count_before_these_decay():
    """Tops decay after the shower that is interrupted: without their quarks, no event would pass there."""
    lines = load_processes().lines(load_topology("ttbar_allhad"), False)
    run = PythiaRun((*lines, "Pairton:jets = 5", "Pairton:bjets = 2"), 5)
    next(run.batches(10, 10))
    assert 10 <= run.tried(10) < 30

    run = PythiaRun((*lines, "Pairton:bjets = 4"), 5)
    record = flatten(next(run.batches(3, 3)))
    bottom = holds_quark(record.code, 5)
    assert (np.bincount(record.event[bottom], minlength=3) >= 4).all()
    assert run.tried(3) > 30  # gluons rarely split to b quarks


def test_vetoes_without_end_are_given_up(monkeypatch):
    monkeypatch.setattr(hooks, "MOST_TRIES", 30)
    monkeypatch.setattr(pythia_module, "MOST_TRIES", 30)
    run = PythiaRun((*HARD, "Pairton:jets = 40"), 3)
    with pytest.raises(ConfigError, match="none of 30 events has as many jets"):
        list(run.batches(1, 1))


# -- samples -----------------------------------------------------------------------------------------------


def test_a_sample_has_weights_and_no_truth(tmp_path):
    path = tmp_path / "multijet.h5"
    counts = produce(multijet(6), path)
    events = formats.read(str(path))
    assert (len(events), counts.kept, counts.reconstructible) == (6, 6, 0)
    assert (events.truth == -1).all()
    assert (events.weights > 0).all()
    assert len(set(events.weights.tolist())) == 6
    total, squares = events.weights.sum(), (events.weights**2).sum()
    assert counts.sum_of_weights == pytest.approx(total)
    assert counts.effective == pytest.approx(total**2 / squares)
    said = events.metadata["generator"]["counts"]
    assert said["effective"] == pytest.approx(counts.effective)
    assert counts.tried > 300

    few, _ = run_chunk(multijet(6), 0, 3)
    assert few.weights.tolist() == events.weights[:3].tolist()

    done = CliRunner().invoke(inspect, [str(path), "--json"])
    shown = json.loads(done.stdout)["weights"]
    assert shown == {"sum": pytest.approx(total), "effective": pytest.approx(counts.effective)}
    done = CliRunner().invoke(inspect, [str(path)])
    assert f"effective number {counts.effective:,.0f}" in done.stdout


def test_effective_events():
    assert Counts().effective == 0.0
    one = Counts(kept=2, sum_of_weights=2.0, sum_of_squares=2.0)
    other = Counts(kept=1, sum_of_weights=2.0, sum_of_squares=4.0)
    assert (one + other).effective == pytest.approx(16 / 6)
