"""Expressions over columns, as in `--set muon_id=…`. They are parsed by Python, but only evaluated here.

tightId, pfRelIso04_all < 0.15        several conditions, which must all hold; a number holds if it is not 0
(quality & 3) <= 1                    comparisons, arithmetic, and &, |, ~ of conditions or of bits
HLT_IsoMu24 & (sum(Jet_pt > 30) >= 4) sum, count, any, all, min and max over the objects of an event
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from pairton.errors import ConfigError, shown

__all__ = ["NONE", "Expression"]

NONE = "none"
LONGEST = 2000  # characters of an expression
OPERATORS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.Invert: operator.invert,
    ast.USub: operator.neg,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
LISTS: Mapping[str, Callable[..., Any]] = {
    "sum": ak.sum,
    "count": ak.count,
    "any": ak.any,
    "all": ak.all,
    "min": ak.min,
    "max": ak.max,
}


@dataclass(frozen=True)
class Expression:
    """Conditions on columns, all of which must hold; `none` always holds.

    >>> tight = Expression.parse("tightId, iso < 0.15", "muon_id")
    >>> str(tight), tight.names
    ('tightId, iso < 0.15', ('tightId', 'iso'))
    >>> tight.holds({"tightId": np.array([True, True, False]), "iso": np.array([0.1, 0.2, 0.1])}, 3).tolist()
    [True, False, False]
    """

    text: str = NONE
    what: str = ""  # what it is for, in errors
    conditions: tuple[ast.expr, ...] = ()
    names: tuple[str, ...] = ()  # of the columns that it needs

    @classmethod
    def parse(cls, text: str, what: str) -> Expression:
        """Read an expression; `what` it is for is named in errors."""
        text = " ".join(text.split())
        if text.lower() == NONE:
            return cls(what=what)
        found = cls(text, what)
        try:
            if len(text) > LONGEST:
                raise ValueError
            tree = ast.parse(text, mode="eval").body
            names = dict.fromkeys(_names(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise found.error() from None
        return cls(text, what, tuple(tree.elts) if isinstance(tree, ast.Tuple) else (tree,), tuple(names))

    def error(self, why: str = "") -> ConfigError:
        """A mistake in the expression."""
        return ConfigError(
            f"{self.what}={shown(self.text)[1:-1]}: {why or 'not understood'}: write conditions on columns of the "
            f"file, such as tightId, iso < 0.15, (a > 2) & (b | c), or write {NONE}"
        )

    def holds(self, columns: Mapping[str, Any], count: int) -> npt.NDArray[np.bool_]:
        """(count,): whether all conditions hold, for columns of that length; a NaN does not."""
        good = np.ones(count, dtype=bool)
        for condition in self.conditions:
            try:
                with np.errstate(all="ignore"):
                    found = ak.to_numpy(ak.fill_none(ak.Array(np.atleast_1d(_value(condition, columns))), False))
                good &= np.broadcast_to((found != 0) & (found == found), count)
            except (ValueError, TypeError):
                raise self.error(
                    "it does not give one number for each event or object (put comparisons beside & and | in "
                    "brackets, and use any, all, sum, count, min or max on lists)"
                ) from None
        return good

    def __str__(self) -> str:
        return self.text


def _names(node: ast.AST) -> list[str]:
    """The names of columns in an expression, such as `nJet` and `Jet.PT`; ValueError if it has anything else."""
    match node:
        case ast.Name() | ast.Attribute():
            return [_dotted(node)]
        case ast.Constant(value=bool() | int() | float()):
            return []
        case ast.Call(func=ast.Name(id=name), args=[inside], keywords=[]) if name in LISTS:
            return _names(inside)
        case ast.BinOp(op=op) | ast.UnaryOp(op=op) if type(op) in OPERATORS:
            pass
        case ast.Compare(ops=ops) if all(type(op) in OPERATORS for op in ops):
            pass
        case ast.Tuple(elts=[_, *_]):
            pass
        case _:
            raise ValueError
    return [name for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) for name in _names(child)]


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if not isinstance(node, ast.Name):
        raise ValueError
    return node.id


def _value(node: ast.expr, columns: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Call(func=ast.Name(id=name), args=[inside]):
            return LISTS[name](_value(inside, columns), axis=1)
        case ast.UnaryOp(op=op, operand=inside):
            return OPERATORS[type(op)](_value(inside, columns))
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _value(left, columns), _value(right, columns)
            if isinstance(op, ast.BitAnd | ast.BitOr) and _is_condition(one) != _is_condition(other):
                raise TypeError  # as in `HLT_X & nJet >= 4`, where & comes before the comparison
            return OPERATORS[type(op)](one, other)
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(each, columns) for each in (left, *others)]
            found = [OPERATORS[type(op)](*values[k : k + 2]) for k, op in enumerate(ops)]
            for more in found[1:]:
                found[0] = found[0] & more
            return found[0]
    values = ak.Array(columns[_dotted(node)])
    is_integer = "int" in str(values.type).rpartition(" ")[2]
    return (
        ak.values_astype(values, np.int64) if is_integer else values
    )  # differences of unsigned ones may be negative


def _is_condition(value: Any) -> bool:
    """Whether values are true or false, rather than numbers."""
    kind = value.type.content if isinstance(value, ak.Array) else np.asarray(value).dtype
    return str(kind).endswith("bool")
