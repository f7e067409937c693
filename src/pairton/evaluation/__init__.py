"""How often the answers are right: metrics with intervals, baselines, answers of other codes."""
