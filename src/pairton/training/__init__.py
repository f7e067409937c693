"""Training with torch and Lightning Fabric: from a recipe and labelled events to a model."""

from pairton.training.recipes import Recipe, load_recipe, parse_recipe
from pairton.training.runs import train

__all__ = ["Recipe", "load_recipe", "parse_recipe", "train"]
