"""Events that a model was trained on: it says so, and can be asked about the others alone."""

from dataclasses import replace

import numpy as np
import pytest

from pairton.errors import EventsError, PairtonWarning
from pairton.evaluation.evaluating import evaluate

FRACTIONS = (0.5, 0.25, 0.25)


@pytest.fixture
def events(decays):
    return decays(60)


@pytest.fixture
def trained_on(mass_model, monkeypatch):
    """The model, with what it says of its training."""

    def said(sources, **more):
        data = {"sources": [f"{source:016x}" for source in sources], **more}
        recipe = {"data": {"train_fraction": FRACTIONS[0], "validation_fraction": FRACTIONS[1]}}
        info = replace(mass_model.info, data=data, recipe=recipe)
        monkeypatch.setattr(type(mass_model), "info", info)
        return mass_model

    return said


def test_training_events_are_announced(events, trained_on):
    seen = int(events.in_split("train", FRACTIONS).sum())
    assert 0 < seen < 60
    sources = np.unique(events.ids[:, 0]).tolist()
    with pytest.warns(PairtonWarning, match=f"masses was trained on up to {seen} of these 60 events.*--split"):
        evaluate(events, trained_on(sources))
    evaluate(events, trained_on([source ^ 1 for source in sources]))  # others: no warning
    evaluate(events, trained_on([]))  # a model that does not say


def test_events_of_the_model_that_it_was_started_from_are_announced(events, trained_on):
    (source,) = np.unique(events.ids[:, 0]).tolist()
    seen = int(events.in_split("train", (0.8, 0.1, 0.1)).sum())
    with pytest.warns(PairtonWarning, match=f"trained on up to {seen} of these 60 events"):
        evaluate(events, trained_on([source], train_fractions={f"{source:016x}": 0.8}))


def test_a_split_is_that_of_the_model(events, trained_on):
    model = trained_on(np.unique(events.ids[:, 0]).tolist())
    totals = {}
    for name in ("train", "validation", "test"):
        result = evaluate(events, model, split=name)  # no warning: what is asked for is said
        totals[name] = int(result.to_dict()["methods"]["masses"]["efficiency"]["event"]["inclusive"]["total"])
        assert totals[name] == int((events.in_split(name, FRACTIONS) & events.complete).sum())
    assert sum(totals.values()) == int(events.complete.sum())
    with pytest.raises(EventsError, match="no split 'tset'"):
        evaluate(events, model, split="tset")
