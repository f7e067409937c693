"""Methods of momenta in awkward arrays (mass, deltaR, sums) by `vector`, which imports sympy where it is there."""

from __future__ import annotations

__all__ = ["leave_out", "register"]

_wanted = True


def leave_out() -> None:
    """For a program in which nobody can call them: it starts half a second earlier."""
    global _wanted
    _wanted = False


def register() -> None:
    """Give them to every array of momenta that is made from now on."""
    if _wanted:
        import vector

        vector.register_awkward()
