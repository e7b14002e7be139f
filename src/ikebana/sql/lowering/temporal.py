"""Conditions on the current time: rows that become valid and expire by themselves.

`at >= now() - INTERVAL 5 MINUTES` holds for a row until five minutes after `at`, and then never again. Such a condition
compares a value of the row with one that grows with the clock. It is solved for the time, which gives the time from or
until which a row is valid, and `Collection.expire` does the rest.

Supported are comparisons with now() and the current date, plus or minus days, hours, minutes and seconds. Months have
no fixed length and are refused, as is the current time anywhere but in a condition of a WHERE or HAVING.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
from pyarrow import types

from ikebana.engine.collection import Collection
from ikebana.errors import SqlError
from ikebana.expressions import Config, Expression, Literal
from ikebana.expressions.core.base import BUILDERS
from ikebana.expressions.core.tree import Tree
from ikebana.sql.expression_steps import not_null
from ikebana.sql.lowering.context import Lowering
from ikebana.sql.lowering.trees import is_clock, scalar_subqueries
from ikebana.sql.planned import CLOCK
from ikebana.sql.relation import Relation, from_collection, unique_name

_MICROSECOND = timedelta(microseconds=1)
_CONFIG = Config()
_FLIPPED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "EqualTo": "EqualTo",
}
"""Each comparison with its operands exchanged."""


def is_temporal(tree: Tree) -> bool:
    """Whether a condition depends on the current time."""
    return any(is_clock(subquery) for subquery in scalar_subqueries([tree]).values())


def while_valid(lowering: Lowering, relation: Relation, conditions: Sequence[Tree]) -> Relation:
    """The rows of a relation while conditions on the current time hold for them."""
    bounds = [bound for condition in conditions for bound in _solved(lowering, relation, condition)]
    columns = relation.columns()
    named = _named(bounds, columns)
    rows = relation.rows([*((name, relation.outputs[attribute]) for attribute, name in columns), *named])
    for bound, (name, _) in zip(bounds, named, strict=True):
        rows = _valid(not_null(rows, [name]), lowering.table(CLOCK).rows, name, bound)
    return from_collection(rows, columns, relation.names).materialised()


@dataclass(frozen=True)
class _Bound:
    """A time until which a row is valid, or since which it is valid."""

    at: Expression
    is_end: bool


def _named(bounds: Sequence[_Bound], columns: Sequence[tuple[int, str]]) -> list[tuple[str, Expression]]:
    """The bounds as further columns."""
    taken = [name for _, name in columns]
    named = []
    for bound in bounds:
        taken.append(unique_name("until" if bound.is_end else "since", taken))
        named.append((taken[-1], bound.at))
    return named


def _valid(rows: Collection, clock: Collection, name: str, bound: _Bound) -> Collection:
    return rows.expire(clock, valid_until=name) if bound.is_end else rows.expire(clock, valid_from=name)


def _solved(lowering: Lowering, relation: Relation, condition: Tree) -> list[_Bound]:
    """The times between which a condition holds for a row."""
    if condition.kind not in _FLIPPED or len(condition.children) != 2:
        raise _refusal(condition)
    comparison, (left, right) = condition.kind, condition.children
    if is_temporal(right):
        comparison, left, right = _FLIPPED[comparison], right, left
    if is_temporal(right):
        raise _refusal(condition)
    value = lowering.expression(right, relation.outputs)
    if comparison == "EqualTo":
        return [_bound(left, inequality, value) for inequality in ("GreaterThanOrEqual", "LessThanOrEqual")]
    return [_bound(left, comparison, value)]


def _bound(time: Tree, comparison: str, value: Expression) -> _Bound:
    """The bound on the time that a comparison with a value means: `now() - 5 minutes <= at`."""
    if time.kind == "ScalarSubquery":
        is_later = comparison in ("LessThanOrEqual", "GreaterThan")
        return _Bound(_moved(value, _MICROSECOND) if is_later else value, comparison.startswith("Less"))
    if time.kind in ("TimestampAddInterval", "TimeAdd"):
        start, interval = time.children
        return _bound(start, comparison, _moved(value, -_interval(interval), time))
    if time.kind in ("DateAdd", "DateSub"):
        start, days = time.children
        count = _integer(days) * (1 if time.kind == "DateAdd" else -1)
        return _bound(start, comparison, _days_later(value, -count))
    if time.kind == "Cast" and types.is_date32(value.type):
        is_later = comparison in ("LessThanOrEqual", "GreaterThan")
        midnight = _midnight(_days_later(value, 1) if is_later else value, time)
        return _bound(time.only_child, "LessThan" if comparison.startswith("Less") else "GreaterThanOrEqual", midnight)
    raise _refusal(time)


def _interval(tree: Tree) -> timedelta:
    kind = str(tree.fields.get("dataType"))
    if tree.kind != "Literal" or not kind.startswith("interval ") or "month" in kind or "year" in kind:
        raise _refusal(tree)
    return timedelta(microseconds=int(tree.fields["value"]))


def _integer(tree: Tree) -> int:
    if tree.kind != "Literal":
        raise _refusal(tree)
    return int(tree.fields["value"])


def _moved(value: Expression, by: timedelta, like: Tree | None = None) -> Expression:
    """A timestamp, moved by an interval; in the time zone of `like`."""
    zone = {"timeZoneId": like.fields["timeZoneId"] if like is not None else "UTC"}
    tree = Tree("TimestampAddInterval", zone, ())
    return BUILDERS["TimestampAddInterval"](tree, (value, Literal(pa.duration("us"), False, by)), _CONFIG)


def _days_later(value: Expression, days: int) -> Expression:
    return BUILDERS["DateAdd"](Tree("DateAdd", {}, ()), (value, Literal(pa.int32(), False, days)), _CONFIG)


def _midnight(date: Expression, like: Tree) -> Expression:
    """The beginning of a day, in the time zone of the cast `like` of the current time to a date."""
    tree = Tree("Cast", {"dataType": "timestamp", "timeZoneId": like.fields["timeZoneId"]}, ())
    return BUILDERS["Cast"](tree, (date,), _CONFIG)


def _refusal(tree: Tree) -> SqlError:
    return SqlError(
        "this use of the current time is not supported in a maintained view",
        detail=f"in {tree!r}",
        hint="compare a column with now(), or now() minus an interval of days, hours, minutes or seconds, in WHERE",
    )
