"""The report of an evaluation: its numbers against the arrays they come from, its files, its flow."""

import csv
import json
import re
import sys
from itertools import pairwise

import numpy as np
import pytest

from pairton.decoding import Decoded
from pairton.errors import MissingExtraError, OutputError
from pairton.evaluation.evaluating import evaluate
from pairton.evaluation.evaluation import Chunk
from pairton.evaluation.metrics import flow as flows
from pairton.evaluation.metrics.candidates import GALLERY, GROUPS, Candidates, Gallery
from pairton.evaluation.metrics.flow import flow
from pairton.evaluation.plots import styled
from pairton.evaluation.scores import matches, score
from pairton.events.vectors import cartesian, pair_products
from pairton.formats import create
from pairton.reconstruction.running import reconstruct, reconstruct_files
from pairton.report import page as evaluation_page
from pairton.topology.assignments import canonical


def written(path, events):
    writer = create(path, events.topology)
    writer.write(events)
    writer.close()
    return path


@pytest.fixture(scope="module")
def looking(mass_model_type):
    """A model that sees tokens: what is known changes what it says, so that later steps differ from the first."""

    class Looking(mass_model_type):
        def predict(self, nodes, tokens):
            said, jets = super().predict(nodes, tokens), nodes.values["jet"]
            known = (tokens != 2).mean(axis=(1, 2, 3))[:, None, None, None]
            shift = np.sin(pair_products(cartesian(*np.moveaxis(jets[..., :4], -1, 0))))[:, None] * (4 - 6 * known)
            return {**said, "edges": (said["edges"] + shift).astype(np.float32)}

    return Looking(name="$looking$", takes_tokens=True, decoding="steps")


@pytest.fixture(scope="module")
def events(decays):
    return decays(300, extra=4, labelled=0.97, floor=15.0)


@pytest.fixture(scope="module")
def study(events, looking, tmp_path_factory):
    """An evaluation of a model that takes steps, beside the chi-square."""
    path = written(tmp_path_factory.mktemp("study") / "events <i>&.h5", events)
    return evaluate([str(path)], [looking], decodings=["steps", "one_shot"], baselines=["chi2"])


@pytest.fixture(scope="module")
def page(study, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    evaluation_page.write_report(path, study, command="pairton --map 'pt=<u>x</u>'")
    return path


# -- what is collected -------------------------------------------------------------------------------------


def test_masses_are_those_of_the_candidates(study, events):
    reco = reconstruct(events, study.methods[0].model)
    counted = study.counted("candidates", study.methods[0])
    np.testing.assert_array_equal(counted.complete, events.complete)
    np.testing.assert_array_equal(counted.weight, np.ones(len(events)))
    right = matches(events.topology, reco.assignment, events.truth)
    for kind in ("W", "t"):
        columns = [p.index for p in events.topology.of_type(kind)]
        mass, good = reco.momenta["mass"][:, columns], right[:, columns]
        # particles of a type are in no order
        np.testing.assert_allclose(np.sort(counted.mass[:, columns], axis=1), np.sort(mass, axis=1), rtol=1e-6)
        np.testing.assert_array_equal(counted.right[:, columns].sum(axis=1), good.sum(axis=1))
        assert 0 < good.sum() < good.size


def test_the_gallery_has_the_extremes(study, events):
    result, gallery = study, study.counted("gallery", study.methods[0])
    reco = reconstruct(events, result.methods[0].model)
    scores = result.scores(result.methods[0])
    full, right = scores.total["event"] > 0, scores.correct["event"] > 0
    chance = np.where(np.isfinite(reco.event_probability), reco.event_probability, -1)
    known = full & (chance >= 0)
    wanted = {
        GROUPS[0]: np.sort(chance[known & right])[::-1],
        GROUPS[1]: np.sort(chance[known & ~right])[::-1],
        GROUPS[2]: np.sort(chance[known]),
    }
    for kind, values in wanted.items():
        exhibits = gallery[kind]
        assert len(exhibits) == GALLERY
        np.testing.assert_allclose([e.event_probability for e in exhibits], values[:GALLERY])
        for exhibit in exhibits:
            answers = exhibit.assignment, reco.assignment[exhibit.number]
            np.testing.assert_array_equal(*(canonical(events.topology, answer[None]) for answer in answers))
            np.testing.assert_allclose(exhibit.events.jets.pt[0], events.jets.pt[exhibit.number], rtol=1e-6)


def test_chunks_add_up(study, decays):
    """A gallery of several chunks is that of one."""
    method = study.methods[0]
    events = decays(40, extra=1)
    reco = reconstruct(events, method.model)
    none = np.full((len(events), 6), np.nan), np.zeros((len(events), 0))  # patterns, topologies
    answer = reco.assignment, reco.particle_probability, reco.event_probability, reco.exact, *none

    def counted(metric, *edges):
        parts = []
        for part in (slice(low, high) for low, high in pairwise(edges)):
            one = Decoded(*(column[part] for column in answer))
            rows = np.arange(40)[part]
            few = events[part]
            scores = score(few.topology, few.truth, one.assignment, few.n_jets)
            chunk = Chunk(few, rows, few.truth, [method], {method.name: one}, {method.name: scores})
            parts.append(metric.count(chunk, method))
        return metric.merge(parts)

    whole, parts = (counted(Gallery(), *edges) for edges in ((0, 40), (0, 13, 30, 40)))
    for group in GROUPS:
        assert [e.number for e in whole[group]] == [e.number for e in parts[group]]
    whole, parts = (counted(Candidates(), *edges) for edges in ((0, 40), (0, 13, 30, 40)))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


# -- figures -----------------------------------------------------------------------------------------------


def test_figures_and_their_numbers(study):
    result = study
    plots = {plot.name: plot for plot in evaluation_page.plots_of(result)}
    assert list(plots) == [
        "efficiency_jets", "efficiency_mass", "calibration", "probability_cut", "purity",
        "resolution", "flow", "mass_t", "mass_W",
    ]  # fmt: skip
    for name in ("efficiency_mass", "efficiency_jets"):
        for k, method in enumerate(("$looking$:steps", "$looking$:one_shot", "chi2")):
            rows = [row for row in plots[name].rows if row["series"] == method]
            inclusive = result.efficiency(result.methods[k])["event"]["inclusive"]
            values = [row["event efficiency"] for row in rows]
            assert min(values) <= inclusive.value <= max(values)
            assert all(row["low"] <= row["event efficiency"] <= row["high"] for row in rows)
    purity, kept = (plots["probability_cut"].rows[k]["share"] for k in (99, 199))  # all right answers are kept
    right = result.efficiency(result.methods[0])["event"]["inclusive"]
    assert purity * kept == pytest.approx(right.value)
    with styled():
        for plot in plots.values():
            figure = plot.draw()
            for axes in figure.axes:
                assert axes.has_data() or axes.texts
    legend = [text.get_text() for text in plots["mass_t"].draw().axes[0].get_legend().get_texts()]
    parts = ("steps, right", "steps, wrong", "steps, event incomplete", "one_shot")
    names = {rf"\$looking\$:{what}" for what in parts}
    assert set(legend) == names | {"chi2"}


def test_long_flows_are_merged_and_still_conserved():
    steps = np.random.default_rng(2).random((500, 5)) < 0.8
    counts = flows.shortened(flow(steps))
    assert [list(each) for each in counts] == [
        ["+", "-"], ["++", "+-", "x"], ["+++", "++-", "x"], ["++++", "+++-", "x"], ["+++++", "++++-", "x"]
    ]  # fmt: skip
    for before, now in pairwise(counts):
        links = flows.links(before, now)
        assert {new: sum(n for _, x, n in links if x == new) for new in now} == now
        assert {old: sum(n for x, _, n in links if x == old) for old in before} == before
    stages = ["W"] * 4 + ["t"]
    plot = flows.flow_plot("many", {"stages": stages, "one_shot": flow(steps), "steps": flow(steps)})
    with styled():
        assert "500" in plot.caption
        assert plot.draw().axes[0].texts
    assert flows.flow_plot("none", {"stages": stages}) is None


def test_flows_of_negative_weights_are_drawn():
    """Histories whose weights add up to less than nothing are left out, and the rest is conserved."""
    steps = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], dtype=float)
    found = flow(steps, weight=np.array([3.0, 2.0, 1.5, -1.0]))
    assert found[0] == {"+": 5.0, "-": 0.5}
    plot = flows.flow_plot("signed", {"stages": ["W", "t"], "one_shot": found, "steps": found})
    assert [row["events"] for row in plot.rows[:6]] == [5.0, 0.5, 3.0, 2.0, 1.5, -1.0]
    with styled():
        texts = [text.get_text() for text in plot.draw().axes[0].texts]
    assert any("1.5" in text for text in texts)
    assert not any("-1" in text for text in texts)


# -- the page and the files --------------------------------------------------------------------------------


def test_the_page_has_the_numbers_and_stands_alone(page, study):
    result = study
    text = page.read_text()
    cell = result.efficiency(result.methods[0])["event"]["inclusive"]
    assert f"{cell.value:.4f}" in text
    assert f"{cell.correct} of {cell.total}" in text
    assert text.count('<svg role="img"') == 9
    known = result.counted("calibration", result.methods[0])["event"]
    assert "event efficiency, of complete events" in text
    assert "right answers, of all events" in text
    assert f"{known.right.mean():.4f}" in text
    assert f"{known.right.sum()} of {len(known.right)}; mean probability" in text
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:,|#)""", text)
    assert "default-src 'none'" in text
    assert len(text) < 2_000_000


def test_markup_in_names_is_text(page):
    text = page.read_text()
    assert "<i>" not in text
    assert "<u>" not in text
    assert "events &lt;i&gt;&amp;.h5" in text
    assert "pt=&lt;u&gt;x&lt;/u&gt;" in text


def test_the_gallery_is_in_the_page(page, study):
    found = re.search(r'<script type="application/json" id="records">(.*?)</script>', page.read_text(), re.DOTALL)
    records = json.loads(found[1])
    gallery = study.counted("gallery", study.methods[0])
    numbers = [e.number for kind in GROUPS for e in gallery[kind]]
    assert [record["name"] for record in records] == [f"event {number}" for number in numbers]
    assert [record["right"] for record in records[: 2 * GALLERY]] == [True] * GALLERY + [False] * GALLERY
    for record, kind in zip(records, np.repeat(GROUPS, GALLERY), strict=True):
        exhibit = next(e for e in gallery[kind] if f"event {e.number}" == record["name"])
        assert record["event_probability"] == pytest.approx(exhibit.event_probability, abs=1e-3)


@pytest.mark.parametrize("share", [0.3, None])
def test_next_to_nothing_makes_a_page_without_empty_panels(share, decays, mass_model, tmp_path):
    """No event with every jet labelled, and no event at all."""
    events = decays(20)[:0] if share is None else decays(20, labelled=share)
    path = str(written(tmp_path / "events.h5", events))
    result = evaluate([path], [mass_model])
    of_all = {"calibration", "purity", "mass_t", "mass_W"}
    assert {plot.name for plot in evaluation_page.plots_of(result)} <= (set() if share is None else of_all)
    evaluation_page.write_report(tmp_path / "page.html", result)
    text = (tmp_path / "page.html").read_text()
    assert "nothing to count" in text
    assert "Gallery" not in text
    assert f"{len(events)} events with truth, 0 complete" in text
    assert "no figures of complete events" in text


def test_answers_of_others_are_reported_without_a_model(decays, mass_model, tmp_path):
    events = decays(40, floor=15.0)
    path = str(written(tmp_path / "events.h5", events))
    reconstruct_files([path], str(tmp_path / "answers.parquet"), mass_model)
    result = evaluate([path], assignments=[tmp_path / "answers.parquet"], select=True)
    own = evaluate([path], [mass_model])
    evaluation_page.write_report(tmp_path / "page.html", result)
    data = re.search(r'id="records">(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)[1]
    records = json.loads(data)
    assert {len(record["frames"]) for record in records} == {1}
    numbers = [int(record["name"].split()[1]) for record in records]
    assert all(events.selected[number] for number in numbers)
    counted, every = (each.counted("candidates", each.methods[0]) for each in (result, own))
    assert len(counted.mass) == events.selected.sum() < len(every.mass)
    assert np.isfinite(counted.mass[counted.complete]).all()
    assert counted.complete.sum() == events.select().complete.sum()


def test_plots_are_written_as_pdf_png_and_csv(study, tmp_path, monkeypatch):
    result = study
    some = [plot for plot in evaluation_page.plots_of(result) if plot.name in ("flow", "mass_W")]
    monkeypatch.setattr(evaluation_page, "plots_of", lambda *_: some)
    files = evaluation_page.write_plots(tmp_path / "plots", result)
    names = sorted(f"{n}{s}" for n in ("flow", "mass_W") for s in (".csv", ".pdf", ".png"))
    assert sorted(path.name for path in files) == ["efficiencies.csv", *names]
    assert sorted(entry.name for entry in (tmp_path / "plots").iterdir()) == sorted(p.name for p in files)
    with (tmp_path / "plots" / "mass_W.csv").open() as file:
        rows = list(csv.DictReader(file))
    counted = result.counted("candidates", result.methods[0])
    right = counted.mass[:, [1, 3]][counted.right[:, [1, 3]]]
    mine = [row for row in rows if row["series"] == "$looking$:steps, right"]
    low, high = float(mine[0]["from"]), float(mine[-1]["to"])
    (column,) = (name for name in mine[0] if name.startswith("candidates"))
    assert sum(float(row[column]) for row in mine) == ((right >= low) & (right < high)).sum()
    with (tmp_path / "plots" / "efficiencies.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 3 * 3 * 4


# -- the verb ----------------------------------------------------------------------------------------------


def test_evaluate_writes_a_report(command, decays, tmp_path, monkeypatch, capsys):
    path = written(tmp_path / "events.h5", decays(30))
    monkeypatch.setattr(sys, "argv", ["pairton", "evaluate", "<events>\udcff.h5"])  # a name that is no UTF-8
    drawn = []
    monkeypatch.setattr(evaluation_page, "plots_of", lambda *_: drawn)
    assert command("evaluate", path, "--report", tmp_path / "page.html", "--plots", tmp_path / "plots") == 0
    text = (tmp_path / "page.html").read_text()
    assert "pairton evaluate &#39;&lt;events&gt;?.h5&#39;" in text
    assert "There is no flow" in text
    assert (tmp_path / "plots" / "efficiencies.csv").exists()
    assert "event" in capsys.readouterr().out


def test_numbers_survive_a_report_that_fails(command, decays, tmp_path, monkeypatch, capsys):
    path = written(tmp_path / "events.h5", decays(30))

    def fails(*_, **__):
        raise OutputError("no space left")

    monkeypatch.setattr(evaluation_page, "write_report", fails)
    numbers = tmp_path / "numbers.json"
    assert command("evaluate", path, "--report", tmp_path / "page.html", "--json", numbers) == 2
    assert json.loads(numbers.read_text())["complete"] == 30
    shown = capsys.readouterr()
    assert "30 complete" in shown.out
    assert "no space left" in shown.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--report", "page.txt"), "page.txt: the report must end in .html"),
        (("--report", "nowhere/page.html"), "there is no folder nowhere"),
        (("--plots", "events.h5"), "events.h5 is a file, but plots need a folder"),
        (("--plots", "no/where"), "there is no folder no"),
    ],
)
def test_outputs_are_checked_before_the_work(options, message, command, decays, tmp_path, capsys, monkeypatch):
    written(tmp_path / "events.h5", decays(3))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "pairton.evaluation.evaluating.evaluate", lambda *_, **__: pytest.fail("the work has begun")
    )
    assert command("evaluate", "events.h5", *options) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_without_the_extra_the_work_does_not_begin(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mplhep", None)
    with pytest.raises(MissingExtraError, match=r"needs mplhep"):
        evaluation_page.check_outputs(tmp_path / "page.html", None)
