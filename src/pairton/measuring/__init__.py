"""What is measured on simulated events: efficiencies of a tagger, and transfer functions of the kinematic fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

__all__ = ["rounded_yaml"]


def rounded_yaml(plain: Mapping[str, Any], digits: int) -> str:
    """Plain data as YAML, with so many significant digits.

    >>> rounded_yaml({"cuts": [1 / 3], "name": "mine"}, 2)
    'cuts: [0.33]\\nname: mine\\n'
    """

    def short(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: short(item) for key, item in value.items()}
        if isinstance(value, list):
            return [short(item) for item in value]
        return float(f"{value:.{digits}g}") if isinstance(value, float) else value

    how: Any = {"sort_keys": False, "default_flow_style": None, "width": 10_000, "allow_unicode": True}
    return str(yaml.safe_dump(short(plain), **how))
