"""The mixture of data, fitted without labels, on mixtures of known composition."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

import pairton
from pairton.cli import cli
from pairton.decoding.patterns import plan_of
from pairton.decoding.set_tables import true_pattern
from pairton.errors import ConfigError, EventsError, ModelError
from pairton.measuring.prior_measurement import fitted_fractions, measure_prior, prior_text, training_fractions
from pairton.reconstruction.run_settings import read_prior

SAMPLE = "sample:ttbar_allhad"


@pytest.fixture(scope="module")
def events():
    return pairton.read(SAMPLE)


def composed(events, kept):
    """A sample in which only a share of the events of each pattern is kept, and the true fractions."""
    pattern = true_pattern(events.topology, events.truth)
    rows = np.random.default_rng(2).random(len(events)) < np.asarray(kept)[pattern]
    return events[np.flatnonzero(rows)], np.bincount(pattern[rows], minlength=len(kept)) / rows.sum()


def labelled(rng, fractions, n):
    """Probabilities under equal fractions, true patterns and weights of events with two measured numbers."""
    centres = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    true = rng.choice(3, n, p=fractions)
    x = centres[true] + rng.normal(size=(n, 2))
    likelihood = np.exp(-0.5 * ((x[:, None] - centres) ** 2).sum(axis=2))
    return likelihood / likelihood.sum(axis=1, keepdims=True), true, np.ones(n)


def test_fractions_of_a_known_mixture_are_found():
    rng, truth = np.random.default_rng(1), np.array([0.7, 0.25, 0.05])
    chance = labelled(rng, truth, 20_000)[0]
    found = fitted_fractions(chance, np.full(3, 1 / 3), np.ones(len(chance)))
    assert np.abs(found - truth).max() < 0.015
    assert np.abs(chance.mean(axis=0) - truth).max() > 0.1  # what the probabilities say without a fit


def test_weights_count_and_a_pattern_that_was_never_trained_stays_absent():
    chance = labelled(np.random.default_rng(1), [0.5, 0.3, 0.2], 4000)[0]
    training = np.full(3, 1 / 3)
    twice = fitted_fractions(np.concatenate([chance, chance[:1000]]), training, np.ones(5000))
    weighted = fitted_fractions(chance, training, np.where(np.arange(4000) < 1000, 2.0, 1.0))
    np.testing.assert_allclose(twice, weighted, atol=1e-5)
    assert fitted_fractions(chance, np.array([0.5, 0.5, 0.0]), np.ones(4000))[2] == 0


def test_a_reference_of_any_mixture_tells_that_of_the_training():
    rng = np.random.default_rng(3)
    training = [training_fractions(*labelled(rng, truth, 20_000)) for truth in ([0.6, 0.3, 0.1], [0.2, 0.8, 0])]
    for found in training:
        np.testing.assert_allclose(found, 1 / 3, atol=0.02)


def test_events_that_are_their_own_reference_have_their_true_fractions(events):
    data, truth = composed(events, [0.5, 1, 1, 1, 1, 1])
    found = measure_prior(data, reference=data, bootstraps=0)
    np.testing.assert_allclose(found.fraction[truth > 0.02], truth[truth > 0.02], atol=2e-3)


@pytest.mark.parametrize("of", ["patterns", "nothing"])
def test_a_mixture_of_known_composition_is_found(events, of):
    rows = np.random.default_rng(4).random(len(events)) < 0.5
    data, truth = composed(events[np.flatnonzero(rows)], [0.3, 0.3, 0.3, 0.3, 0.3, 1.0])
    found = measure_prior(data, reference=events[np.flatnonzero(~rows)], of=of, bootstraps=20)
    nothing = found.names.index("nothing")
    away = abs(found.fraction[nothing] - truth[-1])
    assert away < 4 * found.error[nothing] < 0.4
    assert away < 0.5 * abs(found.training[nothing] - truth[-1])
    assert found.factors["nothing"] > 1.3


def test_fractions_that_a_model_stores_are_used_if_it_was_trained_on_one_selection(events, tmp_path):
    model = pairton.load_model("ttbar_allhad")
    keys = [pattern.key for pattern in plan_of(events.topology).patterns]

    def measured(**settings):
        recipe = {**model.info.recipe, "data": {"draw_acceptance": False, **settings.pop("recipe", {})}}
        info = replace(model.info, recipe=recipe, data=settings)
        return measure_prior(events, replace(model, info=info), bootstraps=0)

    with pytest.raises(ModelError, match=r"does not store.*--reference"):
        measured()
    stored = {"ttbar_allhad": dict.fromkeys(keys, 1 / len(keys))}
    with pytest.raises(ModelError, match=r"many selections.*--reference"):
        measured(patterns=stored, recipe={"draw_acceptance": True})
    found = measured(patterns=stored)
    np.testing.assert_allclose(found.training, 1 / len(keys))
    (tmp_path / "mine.yaml").write_text(prior_text(found))
    assert read_prior(tmp_path / "mine.yaml") == pytest.approx(found.factors, rel=1e-3)


def test_the_file_is_what_prior_reads(tmp_path):
    mine = tmp_path / "mine.yaml"
    done = CliRunner().invoke(cli, ["measure", "prior", SAMPLE, "--reference", SAMPLE, "-o", str(mine)])
    assert "fractions of patterns in 2" in done.output
    assert f"--prior {mine}" in done.output
    assert set(yaml.safe_load(mine.read_text())) == {"model", "events", "prior", "fractions"}
    events = pairton.read(SAMPLE)[:50]
    same = [pairton.reconstruct(events, prior=prior) for prior in (str(mine), read_prior(mine))]
    np.testing.assert_array_equal(*(reco.event_probability for reco in same))


def test_bad_input_is_one_line(events, tmp_path):
    with pytest.raises(EventsError, match="only 20 events"):
        measure_prior(events[:20], reference=events)
    with pytest.raises(ModelError, match="trained with network"):
        measure_prior(events, "iterative", reference=events)
    with pytest.raises(EventsError, match="no labels"):
        measure_prior(events, reference=events.replace(truth=None))
    with pytest.raises(ConfigError, match="one topology"):
        measure_prior(events, reference=events, of="topology")
    (tmp_path / "other.yaml").write_text("nothing: 5")
    with pytest.raises(ConfigError, match="has no prior"):
        read_prior(tmp_path / "other.yaml")
