"""Conditions on the present time: rows that become valid and expire by themselves.

`at >= now() - INTERVAL 5 MINUTES` holds for a row until five minutes after `at`, and then never again. Such a condition
compares something of the row with something that grows with the clock; it is solved for the time, so that each row
says when it is valid, and `Collection.expire` does the rest. Supported are comparisons with now(), with the present
date, and with either plus or minus days, hours, minutes and seconds. Months have no fixed length and are refused, as
is the time anywhere else but in a condition of a WHERE or HAVING.
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
from ikebana.sql.lowering.context import Lowering, is_clock, scalar_subqueries
from ikebana.sql.planned import CLOCK
from ikebana.sql.relation import Relation, from_collection, unique_name
from ikebana.sql.steps import not_null

_MICROSECOND = timedelta(microseconds=1)
_CONFIG = Config()
_FLIPPED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "EqualTo": "EqualTo",
}
"""What a comparison is with its sides exchanged."""


def is_temporal(tree: Tree) -> bool:
    """Whether a condition is about the present time."""
    return any(is_clock(each) for each in scalar_subqueries([tree]).values())


def while_valid(lowering: Lowering, part: Relation, conditions: Sequence[Tree]) -> Relation:
    """The rows of a part for which conditions on the present time hold, while they do."""
    bounds = [bound for each in conditions for bound in _solved(lowering, part, each)]
    columns = part.columns()
    rows = part.rows([*((name, part.outputs[each]) for each, name in columns), *_named(bounds, columns)])
    for bound, (name, _) in zip(bounds, _named(bounds, columns), strict=True):
        rows = _valid(not_null(rows, [name]), lowering.table(CLOCK).rows, name, bound)
    return from_collection(rows, columns, part.names).materialised()


@dataclass(frozen=True)
class _Bound:
    """A time before which a row is valid, or from which on it is."""

    at: Expression
    is_end: bool


def _named(bounds: Sequence[_Bound], columns: Sequence[tuple[int, str]]) -> list[tuple[str, Expression]]:
    taken = [name for _, name in columns]
    named = []
    for bound in bounds:
        taken.append(unique_name("until" if bound.is_end else "since", taken))
        named.append((taken[-1], bound.at))
    return named


def _valid(rows: Collection, clock: Collection, name: str, bound: _Bound) -> Collection:
    return rows.expire(clock, valid_until=name) if bound.is_end else rows.expire(clock, valid_from=name)


def _solved(lowering: Lowering, part: Relation, condition: Tree) -> list[_Bound]:
    """When a condition holds for a row."""
    if condition.kind not in _FLIPPED or len(condition.children) != 2:
        raise _refusal(condition)
    comparison, (left, right) = condition.kind, condition.children
    if is_temporal(right):
        comparison, left, right = _FLIPPED[comparison], right, left
    if is_temporal(right):
        raise _refusal(condition)
    value = lowering.expression(right, part.outputs)
    if comparison == "EqualTo":
        return [_bound(left, each, value) for each in ("GreaterThanOrEqual", "LessThanOrEqual")]
    return [_bound(left, comparison, value)]


def _bound(time: Tree, comparison: str, value: Expression) -> _Bound:
    """When a function of the time compares with a value as it should: `now() - 5 minutes <= at`."""
    if time.kind == "ScalarSubquery":
        later = comparison in ("LessThanOrEqual", "GreaterThan")
        return _Bound(_moved(value, _MICROSECOND) if later else value, comparison.startswith("Less"))
    if time.kind in ("TimestampAddInterval", "TimeAdd"):
        start, interval = time.children
        return _bound(start, comparison, _moved(value, -_interval(interval), time))
    if time.kind in ("DateAdd", "DateSub"):
        start, days = time.children
        count = _whole(days) * (1 if time.kind == "DateAdd" else -1)
        return _bound(start, comparison, _days_later(value, -count))
    if time.kind == "Cast" and types.is_date32(value.type):
        following = comparison in ("LessThanOrEqual", "GreaterThan")
        midnight = _midnight(_days_later(value, 1) if following else value, time)
        return _bound(time.only, "LessThan" if comparison.startswith("Less") else "GreaterThanOrEqual", midnight)
    raise _refusal(time)


def _interval(tree: Tree) -> timedelta:
    kind = str(tree.fields.get("dataType"))
    if tree.kind != "Literal" or not kind.startswith("interval ") or "month" in kind or "year" in kind:
        raise _refusal(tree)
    return timedelta(microseconds=int(tree.fields["value"]))


def _whole(tree: Tree) -> int:
    if tree.kind != "Literal":
        raise _refusal(tree)
    return int(tree.fields["value"])


def _moved(value: Expression, by: timedelta, like: Tree | None = None) -> Expression:
    """A point in time, so much later."""
    zone = {"timeZoneId": like.fields["timeZoneId"] if like is not None else "UTC"}
    tree = Tree("TimestampAddInterval", zone, ())
    return BUILDERS["TimestampAddInterval"](tree, (value, Literal(pa.duration("us"), False, by)), _CONFIG)


def _days_later(value: Expression, days: int) -> Expression:
    return BUILDERS["DateAdd"](Tree("DateAdd", {}, ()), (value, Literal(pa.int32(), False, days)), _CONFIG)


def _midnight(date: Expression, like: Tree) -> Expression:
    """When a day begins, in the time zone in which the present date was asked for."""
    tree = Tree("Cast", {"dataType": "timestamp", "timeZoneId": like.fields["timeZoneId"]}, ())
    return BUILDERS["Cast"](tree, (date,), _CONFIG)


def _refusal(tree: Tree) -> SqlError:
    return SqlError(
        "this use of the present time is not supported in a maintained view",
        detail=f"in {tree!r}",
        hint="compare a column with now(), or now() minus an interval of days, hours, minutes or seconds, in WHERE",
    )
