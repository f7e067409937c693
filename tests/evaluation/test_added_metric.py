"""A metric from outside the package: one class, found in the table, in the JSON and on the page."""

import csv

import numpy as np
import pytest

import pairton
from pairton.evaluation.registry import METRICS, Metric, register_metric
from pairton.report.evaluation_page import write_plots, write_report
from pairton.report.picture import new_figure
from pairton.report.style import Plot


class HardestJet(Metric):
    """How often the hardest jet is assigned to any particle."""

    name, title = "hardest_jet", "The hardest jet"

    def count(self, chunk, method):
        hardest = np.asarray([np.argmax(pt) for pt in chunk.events.jets.pt])
        assigned = chunk.answers[method.name].assignment == hardest[:, None]
        return {"events": len(chunk.events), "assigned": int(assigned.any(axis=1).sum())}

    def result(self, evaluation, method):
        counted = evaluation.counted(self.name, method)
        return counted | {"share": counted["assigned"] / counted["events"]}

    def plots(self, evaluation):
        rows = [{"method": m.name, **evaluation.result(self.name, m)} for m in evaluation.methods]

        def draw():
            figure = new_figure(4, 3)
            figure.subplots().bar([row["method"] for row in rows], [row["share"] for row in rows])
            return figure

        yield Plot(self.name, self.title, "Share of events in which it is assigned.", draw, rows)


@pytest.fixture
def registered():
    register_metric(HardestJet())
    yield
    del METRICS["hardest_jet"]


def test_a_metric_is_in_the_table_the_json_and_the_page(registered, decays, mass_model, tmp_path):
    events = decays(5000, extra=2)  # two chunks
    result = pairton.evaluate(events, mass_model, baselines=["chi2"])
    reco = pairton.reconstruct(events, mass_model)
    hardest = np.asarray(events.jets.pt).argmax(axis=1)
    count = int((reco.assignment == hardest[:, None]).any(axis=1).sum())
    found = result.to_dict()["methods"]["masses"]["hardest_jet"]
    assert found == {"events": 5000, "assigned": count, "share": count / 5000}
    assert "The hardest jet" in result.table()
    assert f"{count / 5000:.3f}" in result.table()
    write_report(tmp_path / "page.html", result)
    page = (tmp_path / "page.html").read_text()
    assert '<section id="hardest_jet">' in page
    assert f"{count / 5000:.4f}" in page
    assert 'id="figure-hardest_jet"' in page
    write_plots(tmp_path / "plots", result)
    with (tmp_path / "plots" / "hardest_jet.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["masses", "chi2"]


def test_a_name_is_taken_once(registered):
    with pytest.raises(pairton.errors.ConfigError, match="already is a metric 'hardest_jet'"):
        register_metric(HardestJet())
