"""A metric from outside the package: one class, found in the table, the JSON, the page and the figures."""

import csv

import numpy as np
import pytest

import pairton
from pairton.evaluation.evaluation import METRICS, Metric, register_metric
from pairton.evaluation.plots import Plot, new_figure
from pairton.report.page import write_plots, write_report


class HardestJet(Metric):
    """How often the hardest jet is assigned to any particle."""

    name, title = "hardest", "The hardest jet"

    def count(self, chunk, method):
        hardest = np.asarray([np.argmax(pt) for pt in chunk.events.jets.pt])
        assigned = chunk.answers[method.name].assignment == hardest[:, None]
        return {"events": len(chunk.events), "assigned": int(assigned.any(axis=1).sum())}

    def result(self, evaluation, method):
        counted = evaluation.counted(self.name, method)  # of all chunks
        return counted | {"share": counted["assigned"] / counted["events"]}

    def plots(self, evaluation):
        rows = [{"method": method.name, **result} for method, result in evaluation.results(self.name)]

        def draw():
            figure = new_figure(4, 3)
            figure.subplots().bar([row["method"] for row in rows], [row["share"] for row in rows])
            return figure

        yield Plot(self.name, self.title, "Share of events in which it is assigned.", draw, rows)


@pytest.fixture
def registered():
    register_metric(HardestJet())
    yield
    del METRICS["hardest"]


def test_a_metric_is_in_the_table_the_json_the_page_and_the_figures(registered, decays, mass_model, tmp_path):
    events = decays(5000)  # two chunks
    result = pairton.evaluate(events, mass_model, baselines=["chi2"])
    hardest = np.asarray(events.jets.pt).argmax(axis=1)
    count = int((pairton.reconstruct(events, mass_model).assignment == hardest[:, None]).any(axis=1).sum())
    found = result.to_dict()["methods"]["masses"]["hardest"]
    assert found == {"events": 5000, "assigned": count, "share": count / 5000}
    assert "The hardest jet" in result.table()
    write_report(tmp_path / "page.html", result)
    page = (tmp_path / "page.html").read_text()
    assert '<section id="hardest">' in page
    assert 'id="figure-hardest"' in page
    write_plots(tmp_path / "plots", result)
    with (tmp_path / "plots" / "hardest.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["masses", "chi2"]
    with pytest.raises(pairton.errors.ConfigError, match="already is a metric 'hardest'"):
        register_metric(HardestJet())
