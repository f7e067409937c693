"""A training of seconds."""

import pytest


@pytest.fixture
def small_recipe():
    """As a YAML file would have it."""
    return {
        "topology": "ttbar_allhad",
        "network": {"blocks": 1, "single_width": 8, "single_heads": 2, "pair_width": 8, "pair_heads": 2},
        "data": {"train_fraction": 0.5, "validation_fraction": 0.3},
        "optimiser": {"steps": 4, "batch": 16},
        "run": {"accelerator": "cpu", "validate_every": 2, "save_every": 2, "log_every": 1},
    }
