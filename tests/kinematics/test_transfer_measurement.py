"""Transfer functions measured on events whose resolution is known."""

import awkward as ak
import numpy as np
import pytest

import pairton
from pairton.cli import main
from pairton.errors import InputError
from pairton.formats import create
from pairton.kinematics.fit_settings import load_settings
from pairton.kinematics.transfer_functions import Component
from pairton.measuring.transfer_measurement import fit_components, measure_transfer, settings_text


def log_density(parts, true, measured):
    total = 0
    for part in parts:
        sigma = part.sigma(true)
        pull = (measured - part.scale * true - part.offset) / sigma
        total = total + part.share * np.exp(-0.5 * pull**2) / sigma / np.sqrt(2 * np.pi)
    return np.log(total).mean()


def test_a_mixture_is_described_as_well_as_by_itself():
    rng = np.random.default_rng(0)
    true = rng.uniform(25, 400, 6000)
    given = [
        Component(0.7, 1.0, -2.0, a=0.03, b=0.7, c=2.0),
        Component(0.27, 0.8, 5.0, a=0.15, c=3.0),
        Component(0.03, 1.0, 0.0, c=60.0),
    ]
    which = rng.choice(3, size=len(true), p=[part.share for part in given])
    mean = np.choose(which, [part.scale * true + part.offset for part in given])
    measured = rng.normal(mean, np.choose(which, [part.sigma(true) for part in given]))
    found = fit_components(true, measured, 3)
    assert sum(part.share for part in found) == pytest.approx(1)
    best = log_density(given, true, measured)
    assert log_density(found, true, measured) > best - 0.005
    assert log_density(fit_components(true, measured, 1), true, measured) < best - 0.05


def test_three_terms_of_the_resolution_are_told_apart():
    rng = np.random.default_rng(1)
    true = rng.uniform(10, 1000, 20_000)
    given = Component(1.0, 0.95, 1.0, a=0.05, b=0.8, c=3.0)
    (found,) = fit_components(true, rng.normal(0.95 * true + 1, given.sigma(true)), 1)
    assert (found.scale, found.offset) == (pytest.approx(0.95, abs=0.01), pytest.approx(1, abs=0.5))
    for energy in (20, 100, 800):
        assert found.sigma(energy) == pytest.approx(given.sigma(energy), rel=0.08)


def smeared(tops, n, tmp_path, true_energy=True):
    """A file of events with 8 % resolution of jets, 2 % of leptons, and 15 GeV of the missing energy."""
    events, neutrinos = tops("hl", n=n, seed=4, extra=1)
    rng = np.random.default_rng(5)
    objects = {}
    for kind, width in (("jet", 0.08), ("lepton", 0.02)):
        given = events.objects[kind]
        counts = ak.num(given)
        factor = ak.unflatten(rng.normal(1, width, ak.sum(counts)), counts)
        made = {name: given[name] * (factor if name in ("pt", "energy") else 1) for name in given.fields}
        if true_energy:
            made["true_energy"] = given.energy
        objects[kind] = ak.zip(made, with_name="Momentum4D")
    momentum = neutrinos[:, 0, :2] + rng.normal(0, 15, (n, 2))
    size, angle = np.hypot(*momentum.T), np.arctan2(*momentum.T[::-1])
    objects["met"] = pairton.make_met(size, angle)
    columns = {"neutrino_px": neutrinos[:, 0, 0], "neutrino_py": neutrinos[:, 0, 1]}
    path = tmp_path / "simulated.h5"
    with create(path, events.topology, {}) as writer:
        writer.write(events.replace(objects=objects, columns=columns))
    return path


def test_settings_measured_by_the_command_are_a_model(tops, tmp_path, capsys):
    path, mine = smeared(tops, 3000, tmp_path), tmp_path / "mine.yaml"
    with pytest.raises(SystemExit) as end:
        main(["measure", "transfer", str(path), "-o", str(mine)])
    assert not end.value.code, capsys.readouterr().err
    assert f"--model {mine}" in capsys.readouterr().out
    settings = load_settings(mine)
    for name, width in (("b", 0.08), ("light", 0.08), ("lepton", 0.02)):
        for each in getattr(settings.transfer, name):
            main_part = max(each.components, key=lambda part: part.share)
            assert main_part.sigma(100.0) / 100 == pytest.approx(width, rel=0.4)
    met = settings.transfer.met
    assert np.sqrt(met.b**2 * 300 + met.c**2) == pytest.approx(15, rel=0.1)
    assert "simulated.h5" in settings.about
    reco = pairton.reconstruct(pairton.read(path, topology="ttbar_semilep")[:5], model=str(mine))
    assert np.isfinite(reco.outputs["log_likelihood"]).any()
    with pytest.raises(SystemExit) as end:
        main(["measure", "transfer", str(path), "-o", str(mine)])
    assert end.value.code == 2
    assert "exists" in capsys.readouterr().err


def test_text_is_read_back(tmp_path):
    path = tmp_path / "same.yaml"
    path.write_text(settings_text(load_settings()))
    again, before = load_settings(path), load_settings()
    assert again.masses == before.masses
    assert again.transfer.met == before.transfer.met
    assert again.transfer.b[0].abs_eta == before.transfer.b[0].abs_eta


def test_events_without_true_energies_are_refused(tops, tmp_path):
    with pytest.raises(InputError, match="true_energy"):
        measure_transfer(smeared(tops, 20, tmp_path, true_energy=False))


def test_few_events_are_refused(tops, tmp_path):
    with pytest.raises(InputError, match="measure on more events"):
        measure_transfer(smeared(tops, 40, tmp_path))
