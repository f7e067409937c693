"""The built-in metrics, registered here in the order of their tables and figures."""

from __future__ import annotations

from pairton.evaluation.evaluation import register_metric
from pairton.evaluation.metrics.candidates import Candidates, Gallery
from pairton.evaluation.metrics.efficiency import Differences, Efficiencies, Mass, Reweighted, Spread
from pairton.evaluation.metrics.flow import Flow
from pairton.evaluation.metrics.numbers import Heads, NeutrinoMomentum, Resolution
from pairton.evaluation.metrics.presence import Background, Patterns
from pairton.evaluation.metrics.probabilities import Areas, Calibration, Limit, Purity

for _metric in (
    Efficiencies(),
    Reweighted(),
    Mass(),
    Heads(),
    NeutrinoMomentum(),
    Calibration(),
    Calibration("calibration_all", "", complete=False),
    Areas(),
    Purity(),
    Patterns(),
    Background(),
    Resolution(),
    Limit(),
    Flow(),
    Differences(),
    Spread(),
    Candidates(),
    Gallery(),
):
    register_metric(_metric)
