"""The kinds of ONNX files, by name. Register one of your own with `register_target`."""

from pairton._common.configuration import register
from pairton.errors import ConfigError, nearest, shown
from pairton.export.targets.spanet import SpanetTarget
from pairton.export.targets.step import StepTarget
from pairton.export.targets.target import Target, some_events
from pairton.export.targets.whole import WholeTarget

__all__ = ["TARGETS", "Target", "get_target", "register_target", "some_events"]

TARGETS: dict[str, type[Target]] = {target.name: target for target in (StepTarget, WholeTarget, SpanetTarget)}


def register_target(target: type[Target]) -> type[Target]:
    """Make an export target available under its name. Use it as a decorator."""
    register(TARGETS, target.name, target, "export target")
    return target


def get_target(name: str) -> type[Target]:
    """Return the target registered under a name."""
    if name not in TARGETS:
        known = ", ".join(TARGETS)
        raise ConfigError(f"no export target {shown(name)}: choose one of {known}{nearest(name, TARGETS)}")
    return TARGETS[name]
