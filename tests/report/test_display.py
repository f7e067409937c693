"""The record of an event against the decoding that it shows, and the page, pictures and verb made from it."""

import itertools
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from pairton.decoding import decode
from pairton.decoding.graph import visible_tokens
from pairton.errors import EventsError, MissingExtraError, ModelError, OutputError
from pairton.events import Events
from pairton.events.acceptance import accept
from pairton.events.domain import Domain, KindDomain
from pairton.events.objects import make_jets
from pairton.formats import create
from pairton.reconstruction.run_settings import RunSettings
from pairton.reconstruction.running import reconstruct
from pairton.report.frames import LISTED, record_answer, record_event
from pairton.report.page import Display, as_json, display_event
from pairton.report.record import type_colours
from pairton.topology import load_topology

TTBAR = load_topology("ttbar_allhad")


def index_of(record, jets):
    """Positions in a record as numbers of the file."""
    return [record.objects[k].index for k in jets]


@pytest.fixture
def soft_model(mass_model):
    """Less sure of itself: several candidates count."""
    mass_model.strength = 0.15
    return mass_model


# -- records -----------------------------------------------------------------------------------------------


def test_steps_are_those_of_the_decoding(decays, soft_model):
    events = decays(3, extra=2)
    record = record_event(events, 1, soft_model, RunSettings("steps"))
    accepted = accept(events[1:2], soft_model.domain, soft_model.inputs)
    answer = decode(soft_model.predict, TTBAR, accepted.nodes, decoding="steps", record=True)
    assert [frame.title.split(": ")[-1] for frame in record.frames] == [
        "reveal W", "reveal W", "reveal t + t", "The answer"
    ]  # fmt: skip
    assert [jet.index for jet in record.objects] == accepted.position["jet"][0].tolist()
    assert (np.diff([jet.pt for jet in record.objects]) <= 0).all()
    for frame, step in zip(record.frames, answer.steps, strict=False):
        np.testing.assert_array_equal(frame.tokens, step.tokens[0])
        np.testing.assert_array_equal(frame.logits, step.edges[0])
        chances = [candidate.probability for candidate in frame.candidates]
        assert chances == sorted(step.probability[0], reverse=True)[:LISTED]
        assert sum(chances) + frame.others_probability == pytest.approx(1)
        assert len(chances) + frame.others == step.possible[0]
        (chosen,) = (candidate for candidate in frame.candidates if candidate.chosen)
        jets = step.nodes[0, 0]
        assert [shown.objects for shown in chosen.particles] == [tuple(row[row >= 0]) for row in jets]
    slots = [list(shown.objects) for shown in record.answer if shown.type == "t"]
    assert np.concatenate(slots).tolist() == answer.assignment[0].tolist()
    assert record.event_probability == pytest.approx(answer.event_probability[0])
    every = visible_tokens(TTBAR, answer.assignment, np.ones((1, 4), dtype=bool), np.ones((1, 8), dtype=bool))
    np.testing.assert_array_equal(record.frames[-1].tokens, every[0])


def test_one_shot_asks_once_but_shows_what_is_known(decays, soft_model):
    record = record_event(decays(2), 0, soft_model, RunSettings("one_shot"))
    logits = [frame.logits for frame in record.frames[:-1]]
    assert logits[0] == logits[1] == logits[2]
    known = [int((np.array(frame.tokens) != 2).sum()) for frame in record.frames]
    assert known[0] == 0
    assert known == sorted(set(known))
    assert "first output" in record.frames[1].note


def test_one_by_one_never_reveals_two(decays, soft_model):
    record = record_event(decays(2), 0, soft_model, RunSettings("one_by_one"))
    assert [frame.title for frame in record.frames[:-1]] == [
        f"Step {k} of 4: reveal {name}" for k, name in enumerate("WWtt", 1)
    ]
    soft_model.decoding, soft_model.temperatures = "steps", (1.0, 1.0, 3.0)  # of three stages, for four steps
    warm = record_event(decays(2), 0, soft_model, RunSettings("one_by_one"))
    assert [s.objects for s in warm.answer] == [s.objects for s in record.answer]
    first, second = (frames.frames[2].candidates[0].probability for frames in (record, warm))
    assert second < first  # the temperature of both tops is that of each


def test_exact_lists_assignments_and_sums_them_to_marginals(decays, soft_model):
    events = decays(2, extra=0, seed=4)
    record = record_event(events, 1, soft_model, RunSettings("exact"))
    accepted = accept(events[1:2], soft_model.domain, soft_model.inputs)
    outputs = soft_model.predict(accepted.nodes, None)
    s, u = outputs["edges"][0].astype(float), outputs["triplets"][0, 0].astype(float)
    table = {}
    for row in itertools.permutations(range(6)):
        if row[0] < row[1] and row[3] < row[4] and row[0] < row[3]:
            table[row] = sum(
                s[0, q, p] - s[0, q, q] - s[0, p, p] + s[1, b, q] + s[1, b, p] - s[1, b, b] + u[q, p, b]
                for q, p, b in (row[:3], row[3:])
            )
    norm = np.logaddexp.reduce(list(table.values()))
    table = {row: np.exp(score - norm) for row, score in table.items()}
    best = sorted(table, key=table.__getitem__, reverse=True)
    first = record.frames[0]
    assert [tuple(j for s in c.particles for j in s.objects) for c in first.candidates[:3]] == best[:3]
    np.testing.assert_allclose(
        [c.probability for c in first.candidates], [table[row] for row in best[:LISTED]], rtol=1e-4
    )
    assert first.others == 90 - LISTED
    w, t = np.zeros((6, 6)), np.zeros((6, 6))
    for row, chance in table.items():
        for top in (row[:3], row[3:]):
            for i, j in itertools.permutations(top, 2):
                t[i, j] += chance
            for i, j in itertools.permutations(top[:2], 2):
                w[i, j] += chance
            w[top[2], top[2]] += chance  # a b jet is in no W
    np.testing.assert_allclose(first.marginals, [w, t], atol=1e-5)
    shown = record.frames[1]
    assert shown.candidates[0].chosen
    (w1,) = (s for s in shown.particles if s.label == "t1.W")
    wanted = sum(chance for row, chance in table.items() if best[0][:2] in (row[:2], row[3:5]))
    assert w1.probability == pytest.approx(wanted, rel=1e-4)
    assert all(float(frame.title.split()[-2]) >= 0.1 for frame in record.frames[1:])


def test_truth_is_marked_and_named_like_the_answer(decays, mass_model):
    events = decays(12, seed=2)
    swapped = Events(events.objects, truth=events.truth[:, [3, 4, 5, 0, 1, 2]])
    reco = reconstruct(events, mass_model)
    seen = set()
    for row in range(12):
        record = record_event(events, row, mass_model)
        right = sorted(sorted(t) for t in (events.truth[row, :3], events.truth[row, 3:])) == sorted(
            sorted(t) for t in (reco.assignment[row, :3], reco.assignment[row, 3:])
        ) and {frozenset(events.truth[row, k : k + 2]) for k in (0, 3)} == {
            frozenset(reco.assignment[row, k : k + 2]) for k in (0, 3)
        }
        assert record.right is right
        assert record.right is all(shown.right for shown in record.answer)
        assert record_event(swapped, row, mass_model).truth == record.truth
        if right:
            assert {s.objects[2] for s in record.answer if s.label == "t1"} == {record.truth[2]}
        seen.add(right)
    assert seen == {True, False}


def test_what_the_truth_leaves_open_is_not_called_wrong(decays, mass_model):
    events = decays(1)
    truth = events.truth.copy()
    truth[0, 5] = -1  # one b is not matched: that top is unknown
    record = record_event(Events(events.objects, truth=truth), 0, mass_model)
    assert record.right is None
    assert len(record.true_particles) == 3
    tops = {s.right for s in record.answer if s.type == "t"}
    assert tops <= {True, None}
    without = record_event(Events(events.objects), 0, mass_model)
    assert without.truth is None
    assert {s.right for s in without.answer} == {None}


def test_masses_are_those_of_the_summed_jets(decays, mass_model):
    events = decays(5)
    reco = reconstruct(events, mass_model)
    record = reco.display(3).record
    for shown in record.answer:
        particle = next(p for p in TTBAR.particles if p.name == shown.label)
        assert shown.mass == pytest.approx(reco.momenta["mass"][3, particle.index], rel=1e-3)
        assert shown.probability == pytest.approx(reco.particle_probability[3, particle.index], rel=1e-4)


def test_jets_that_are_cut_stay_visible(decays, mass_model):
    events = decays(30, extra=3, floor=12.0)
    mass_model.domain = Domain({"jet": KindDomain(20.0)})
    row = next(
        k
        for k in range(30)
        if (np.asarray(events.jets.pt[k]) < 20).any() and (events.jets.pt[k] > 20).to_numpy().sum() > 5
    )
    record = record_event(events, row, mass_model)
    assert len(record.objects) == events.n_jets[row]
    assert {jet.used for jet in record.objects if jet.pt < 20} == {False}
    assert len(record.frames[0].logits[0]) == record.n_used < len(record.objects)


def test_outputs_that_are_no_numbers_have_a_reason_and_no_answer(decays, mass_model):
    said = mass_model.predict
    mass_model.predict = lambda *asked: {name: np.full_like(array, np.nan) for name, array in said(*asked).items()}
    for decoding in ("exact", "steps"):
        record = record_event(decays(1), 0, mass_model, RunSettings(decoding))
        assert (record.answer, record.event_probability, record.status) == ((), None, "bad_output")
        assert record.frames[0].title == "No answer: bad output"


def test_too_few_objects_have_a_reason_and_no_answer(mass_model):
    jets = make_jets(pt=[[50.0, 40.0]], eta=[[0.0, 1.0]], phi=[[0.0, 3.1]], mass=[[5.0, 5.0]], btag=[[1, 0]])
    record = record_event(Events(jets), 0, mass_model)
    assert (record.answer, record.event_probability, record.status) == ((), None, "too_few_objects")
    assert "too few objects" in record.frames[0].title
    assert record.frames[0].note == "2 of 2 jets can be used; an answer needs 6 jets."
    figure = Display(record).figure()
    assert record.frames[0].note in figure.get_suptitle()
    assert record.id in figure.get_suptitle()


def test_pictures_show_masses_and_jets_that_are_not_used(decays, mass_model):
    record = record_event(decays(1, extra=2), 0, mass_model, RunSettings(max_objects=7))
    axes, *_, bars = Display(record).figure().axes
    assert "not used" in [text.get_text() for text in axes.get_legend().get_texts()]
    (top,) = (shown for shown in record.answer if shown.label == "t1")
    assert f"t1 {top.mass:.0f}" in [text.get_text() for text in axes.texts]
    if record.frames[0].marginals:
        assert f"({top.mass:.0f})" in bars.get_yticklabels()[0].get_text()


@pytest.mark.parametrize("row", [-1, 2])
def test_a_row_that_is_not_there_is_named(row, decays, mass_model):
    with pytest.raises(EventsError, match=f"no event {row}.*row from 0 to 1"):
        record_event(decays(2), row, mass_model)


def test_an_answer_without_a_model_is_shown_without_steps(decays, mass_model):
    events = decays(4)
    reco = replace(reconstruct(events, mass_model), model=None)
    record = reco.display(2).record
    assert len(record.frames) == 1
    found = {tuple(index_of(record, s.objects)) for s in record.answer if s.type == "t"}
    assert found == {tuple(reco.assignment[2, :3].tolist()), tuple(reco.assignment[2, 3:].tolist())}
    beam = reconstruct(events, mass_model, decoding="beam:2").display(0).record
    assert (len(beam.frames), beam.decoding) == (1, "beam:2")
    nothing = record_answer(events, 0, np.full(6, -1), status=1)
    assert nothing.answer == ()


# -- pages and pictures ------------------------------------------------------------------------------------


def test_the_page_stands_alone_and_carries_its_data(decays, mass_model):
    record = record_event(decays(1), 0, mass_model, source="<b>x</b>.h5")
    page = Display(record).html()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:,)""", page)
    assert "<b>x" not in page
    found = re.search(r'<script type="application/json" id="record">(.*?)</script>', page, re.DOTALL)
    (data,) = json.loads(found[1])
    assert data["source"] == "<b>x</b>.h5"
    assert len(data["frames"]) == len(record.frames)
    assert data.pop("plane").startswith("<svg")
    assert data == json.loads(json.dumps(record.to_dict()))


def test_json_in_a_page_cannot_end_its_element():
    hostile = {"name": "</script><script>alert(1)</script>", "other": "<!-- & \u2028"}
    text = as_json(hostile)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == hostile
    with pytest.raises(ValueError, match="JSON compliant"):
        as_json({"x": float("nan")})


def test_a_notebook_gets_the_page_in_a_frame(decays, mass_model):
    text = reconstruct(decays(2), mass_model).display(1)._repr_html_()
    assert text.startswith("<iframe srcdoc=")
    assert text.count("<") == 2  # the page inside is escaped
    assert 'sandbox="allow-scripts"' in text


def test_pictures_by_suffix_and_again_the_same(decays, soft_model, tmp_path):
    shown = display_event(decays(2), 0, soft_model, settings=RunSettings("exact"))
    for suffix, magic in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF"), (".html", b"<!DOCTYPE")):
        shown.save(tmp_path / f"one{suffix}")
        assert (tmp_path / f"one{suffix}").read_bytes().startswith(magic)
    shown.save(tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    text = (tmp_path / "one.svg").read_text()
    assert "probability of the assignment" in text
    for colour in type_colours(TTBAR).values():
        assert colour.lower() in text
    with pytest.raises(OutputError, match=r"one.gif: the output must end in .html"):
        shown.save(tmp_path / "one.gif")


def test_matrices_of_a_picture_show_the_tokens(decays, soft_model):
    from matplotlib.colors import to_hex

    from pairton.report.picture import draw_matrix, new_figure

    record = record_event(decays(1), 0, soft_model, RunSettings("steps"))
    frame = record.frames[1]  # one W is known
    axes = new_figure(3, 3).subplots()
    draw_matrix(axes, record, "W", frame)
    colours = np.array([[to_hex(cell) for cell in row] for row in axes.collections[0].get_array()])
    tokens = np.array(frame.tokens[0])
    off = ~np.eye(8, dtype=bool)
    assert set(colours[(tokens == 2)]) == {"#ffffff"}
    assert set(colours[(tokens == 1) & off]) == {"#0072b2"}
    assert set(colours[(tokens == 0) & off]) == {"#d3d7dd"}


@pytest.mark.parametrize("name", ["hh4b", "tth_allhad", "tttt_allhad"])
def test_any_topology_is_drawn(name, mass_model, tmp_path):
    topology = load_topology(name)
    n = len(topology.slots) + 1
    rng = np.random.default_rng(1)
    jets = make_jets(
        pt=[rng.uniform(30, 200, n)], eta=[rng.uniform(-2, 2, n)], phi=[rng.uniform(-3.14, 3.14, n)],
        mass=[rng.uniform(3, 20, n)], btag=[rng.integers(0, 2, n)],
    )  # fmt: skip
    mass_model.topology, mass_model.domain = topology, Domain()
    record = record_event(
        Events(jets, topology, truth=[np.arange(n - 1)]), 0, mass_model, RunSettings(max_objects=14)
    )
    assert len(record.answer) == len(topology.particles)
    assert {t["name"] for t in record.to_dict()["types"]} == set(topology.types)
    Display(record).save(tmp_path / "event.svg")
    assert all(f">{kind}<" in (tmp_path / "event.svg").read_text() for kind in topology.types)


def test_without_the_extra_one_line_says_what_to_install(decays, mass_model, monkeypatch):
    shown = display_event(decays(1), 0, mass_model)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(MissingExtraError, match=r'needs matplotlib.*pip install "pairton\[report\]"'):
            shown.figure()
    for module in ("jinja2", "markupsafe"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            with pytest.raises(MissingExtraError, match="jinja2"):
                shown.html()


# -- the verb ----------------------------------------------------------------------------------------------


def written(path, events):
    writer = create(path, events.topology)
    writer.write(events)
    writer.close()
    return path


def test_display_writes_the_event_that_was_asked_for(command, decays, tmp_path, capsys, monkeypatch):
    path = written(tmp_path / "events.h5", decays(7))
    monkeypatch.chdir(tmp_path)
    assert command("display", path, "--event", 5) == 0
    said = capsys.readouterr().out
    assert said.startswith("event 5: t1.W")
    assert said.endswith("wrote event-5.html\n")
    page = (tmp_path / "event-5.html").read_text()
    pt = float(decays(7).jets.pt[5, 0])
    assert f'"pt":{round(pt, 4)}' in page or f'"pt":{round(pt, 3)}' in page
    assert command("display", path, "--event", 5, "--decoding", "steps", "-o", "event.svg") == 0
    assert "nothing known" in (tmp_path / "event.svg").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--event", "7"), "there is no event 7: .*has 7, counted from 0"),
        (("--event", "-1"), "there is no event -1: rows count from 0"),
        (("-o", "event.gif"), "event.gif: the output must end in .html, .png, .svg or .pdf"),
        (("-o", "nowhere/event.html"), "there is no folder nowhere"),
        (("--decoding", "beam"), "no single chain to record"),
        (("--decoding", "stpes"), "did you mean 'steps'"),
    ],
)
def test_mistakes_are_one_line(options, message, command, decays, tmp_path, capsys, monkeypatch):
    path = written(tmp_path / "events.h5", decays(7))
    monkeypatch.chdir(tmp_path)
    assert command("display", path, *options) == 2
    said = capsys.readouterr().err
    assert re.search(message, said)
    assert said.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["events.h5"]


def test_events_of_another_tree_are_refused(decays, mass_model):
    events = decays(2)
    with pytest.raises(ModelError, match="is for ttbar_allhad, but the events are for hh4b"):
        record_event(Events(events.objects, "hh4b"), 0, mass_model)
