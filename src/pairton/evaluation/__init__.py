"""Evaluation on events with truth: metrics with intervals, baselines, and answers of other programs."""
