"""The built-in metrics, one file each; they are registered here in the order of their tables."""

from __future__ import annotations

from pairton.evaluation.metrics.efficiency import Differences, Efficiencies, Mass, Reweighted, Spread
from pairton.evaluation.metrics.flow import Flow
from pairton.evaluation.metrics.head_metrics import Heads
from pairton.evaluation.metrics.momentum_metrics import NeutrinoMomentum, Resolution
from pairton.evaluation.metrics.presence import Background, Patterns
from pairton.evaluation.metrics.probabilities import Areas, Calibration, Limit, Purity
from pairton.evaluation.registry import register_metric

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
):
    register_metric(_metric)
