"""A training of seconds."""

import copy

import pytest

from random_objects import RECIPE


@pytest.fixture
def small_recipe():
    """As a YAML file would have it."""
    return copy.deepcopy(RECIPE)
