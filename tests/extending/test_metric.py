"""A metric from outside the package: one class, found in the table, in the JSON and on the page."""

import numpy as np
import pytest

import pairton
from pairton.evaluation.registry import METRICS, Metric, register_metric
from pairton.report.evaluation_page import write_report


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


@pytest.fixture
def registered():
    register_metric(HardestJet())
    yield
    del METRICS["hardest"]


def test_a_metric_is_in_the_table_the_json_and_the_page(registered, decays, mass_model, tmp_path):
    events = decays(300)
    result = pairton.evaluate(events, mass_model)
    hardest = np.asarray(events.jets.pt).argmax(axis=1)
    count = int((pairton.reconstruct(events, mass_model).assignment == hardest[:, None]).any(axis=1).sum())
    found = result.to_dict()["methods"]["masses"]["hardest"]
    assert found == {"events": 300, "assigned": count, "share": count / 300}
    assert "The hardest jet" in result.table()
    write_report(tmp_path / "page.html", result)
    assert '<section id="hardest">' in (tmp_path / "page.html").read_text()
