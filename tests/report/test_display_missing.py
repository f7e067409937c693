"""Displays and reports of answers in which particles are absent, and of answers for particles."""

import awkward as ak
import numpy as np
import pytest

from pairton.evaluation.evaluating import evaluate
from pairton.events import Events, Status
from pairton.events.objects import make_jets
from pairton.reconstruction.run_settings import RunSettings
from pairton.reconstruction.running import reconstruct
from pairton.report.frames import record_event
from pairton.report.page import Display, write_report


@pytest.fixture
def five(decays):
    """Events of five jets: the b of the second top is missing."""
    whole = decays(6, seed=3, extra=0)
    kept = np.ones((6, 6), dtype=bool)
    kept[np.arange(6), whole.truth[:, 5]] = False
    return whole.keep({"jet": ak.from_regular(ak.Array(kept))})


def test_an_answer_of_a_top_and_a_w(five, missing_model):
    reco = reconstruct(five, missing_model)
    row = int(np.flatnonzero((reco.assignment >= 0).sum(axis=1) == 5)[0])
    record = record_event(five, row, missing_model)
    assert record.status == "incomplete"
    assert [shown.label for shown in record.answer] == ["t1.W", "t2.W", "t1"]
    assert record.event_probability == pytest.approx(reco.event_probability[row])
    assert record.right is True
    first, second = record.frames[:2]
    assert "Each of the 86 hypotheses" in first.note  # 30 t W, 30 t, 15 W W, 10 W, 1 nothing
    assert "complete with a probability of 0.0 %" in first.note
    assert "The most probable pattern is t + W (" in first.note
    assert second.title.startswith("Hypothesis 1: ")
    chosen = [candidate for candidate in second.candidates if candidate.chosen]
    assert [{shown.label for shown in c.particles} for c in chosen] == [{"t1", "t2.W"}]
    assert chosen[0].right is True
    everything = sum(c.probability for c in first.candidates) + first.others_probability
    assert everything == pytest.approx(1)
    picture = Display(record).figure()
    assert "No answer" not in picture.get_suptitle()
    assert "Hypothesis 1" in Display(record).html()


def test_a_picture_of_complete_assignments_says_how_probable_the_others_are(decays, missing_model_type):
    """Bars and what is not listed add up to one, so that a small best probability explains itself."""
    record = record_event(decays(1, extra=0), 0, missing_model_type(terms=(0, 0, 2, 0, 0, 0)))
    frame = record.frames[0]
    listed = sum(candidate.probability for candidate in frame.candidates) + frame.others_probability
    assert 0.01 < listed < 0.99
    axes = Display(record).figure().axes[-1]
    assert axes.get_yticklabels()[-1].get_text() == "not complete: a particle is absent"
    assert axes.patches[-1].get_width() == pytest.approx(1 - listed)
    asked = record_event(decays(1, extra=0), 0, missing_model_type(), RunSettings(allow_absent=True))
    labels = [label.get_text() for label in Display(asked).figure().axes[-1].get_yticklabels()]
    assert not any("not complete" in label for label in labels)  # they are listed themselves


def test_nothing_is_an_answer(decays, missing_model_type):
    model = missing_model_type(terms=(0, 0, 0, 0, 0, 60))
    events = decays(1, extra=0)
    record = record_event(events, 0, model, RunSettings(allow_absent=True))
    assert record.answer == ()
    assert record.event_probability == pytest.approx(1, abs=1e-3)
    assert record.right is False  # there are two tops
    assert "Nothing is present." in record.frames[1].note
    assert record.frames[1].candidates[0].particles == ()
    figure = Display(record).figure()
    assert "Nothing is present, with a probability of 100.0%." in figure.get_suptitle()
    assert "nothing" in [label.get_text() for label in figure.axes[-1].get_yticklabels()]
    empty = events.replace(truth=np.full((1, 6), -1))
    assert record_event(empty, 0, model, RunSettings(allow_absent=True)).right is True


def test_an_answer_for_particles_is_shown_first(decays, missing_model_type):
    model, events = missing_model_type(strength=0.15), decays(30, seed=4, extra=1)
    event, particles = (reconstruct(events, model, answer=name) for name in ("event", "particles"))
    (rows,) = np.nonzero((event.index != particles.index).any(axis=1))
    record = record_event(events, int(rows[0]), model, RunSettings(answer="particles"))
    shown = {s.label: sorted(record.objects[k].index for k in s.objects) for s in record.answer}
    t1 = sorted(particles.index[rows[0], :3].tolist())
    assert shown["t1"] == t1
    assert record.frames[1].note.startswith("The answer with the most particles expected to be right.")
    chances = [candidate.probability for candidate in record.frames[0].candidates]
    assert record.event_probability < chances[0]
    assert sum(c.chosen for c in record.frames[1].candidates) == 1


@pytest.mark.parametrize(
    ("prior", "needed"), [({}, "at least 1 jet"), ({"nothing": 0.0, "W": 0.0}, "at least 3 jets")]
)
def test_what_an_answer_needs_depends_on_what_may_be_absent(missing_model, prior, needed):
    jets = make_jets(pt=[[]], eta=[[]], phi=[[]], mass=[[]], btag=[[]])
    record = record_event(Events(jets), 0, missing_model, RunSettings(prior=prior))
    assert record.status == "too_few_objects"
    assert record.frames[0].note == f"0 of 0 jets can be used; an answer needs {needed}."


def test_a_report_says_which_probability_to_cut_on(decays, missing_model, mass_model, tmp_path):
    """Of a model that knows missing particles: others have one probability only."""
    events = decays(40, extra=1)
    for model, said in ((missing_model, True), (mass_model, False)):
        result = evaluate(events, [model])
        write_report(tmp_path / "report.html", result)
        text = (tmp_path / "report.html").read_text("utf-8")
        assert ("Which probability to cut on: <code>event_probability</code>" in text) is said
        assert ("<code>t1_probability</code>" in text) is said


def test_the_status_is_that_of_reconstruct(decays, missing_model_type):
    events = decays(12, seed=3)
    untagged = events.replace(jets=ak.with_field(events.jets, ak.zeros_like(events.jets.pt), "btag"))
    model = missing_model_type(terms=(5,))
    for given in (events, untagged):
        expected = reconstruct(given, model).status
        shown = [record_event(given, row, model).status for row in range(4)]
        assert shown == [Status(int(status)).label for status in expected[:4]]
    assert shown == ["outside_selection"] * 4
