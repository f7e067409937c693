"""Training (torch and Lightning Fabric): recipe and labelled events in, a model out."""

from pairton.training.recipes import Recipe, load_recipe, parse_recipe
from pairton.training.runs import train

__all__ = ["Recipe", "load_recipe", "parse_recipe", "train"]
