"""The built-in metrics, one file each; they are registered here in the order of their tables."""

from __future__ import annotations

from pairton.evaluation.metrics.background import Background
from pairton.evaluation.metrics.differences import Differences, Spread
from pairton.evaluation.metrics.efficiency import Efficiencies, Mass, Reweighted
from pairton.evaluation.metrics.flow import Flow
from pairton.evaluation.metrics.head_metrics import Heads
from pairton.evaluation.metrics.neutrino_metric import NeutrinoMomentum
from pairton.evaluation.metrics.pattern_metric import Patterns
from pairton.evaluation.metrics.probabilities import Areas, Calibration, Limit, Purity
from pairton.evaluation.metrics.resolution import Resolution
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
