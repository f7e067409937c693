"""The built-in baselines; they are registered here."""

from __future__ import annotations

from pairton.evaluation.baselines.best_assignment import MinMass, RandomChoice
from pairton.evaluation.baselines.chi_square import MassChiSquare
from pairton.evaluation.registry import register_baseline

for _baseline in (MassChiSquare(), MinMass(), RandomChoice()):
    register_baseline(_baseline)
