"""Expressions that Spark has planned, evaluated here: over a small table, row by row and all rows together.

What Spark's own values are is known from Spark itself (`tests.sql.oracle`), or from a recording of what it has answered
once (`tests.sql.recorded_expressions`).

Rows are evaluated as slices of longer arrays, so that a function that forgets offsets is found.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ikebana.errors import EvaluationError
from ikebana.expressions import Column, ColumnBatch, Config, Expression, translate
from ikebana.expressions.core.tree import Tree, parse
from ikebana.expressions.core.types import arrow_type

_SAMPLED = 5


@dataclass
class Case:
    """A text, its translation, and the rows for which it raises here."""

    text: str
    name: str
    expression: Expression | None = None
    good: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def differ(self, what: str) -> None:
        self.differences.append(f"{self.text}: {what}")


def cases_of(texts: Sequence[str]) -> list[Case]:
    """A case for each text."""
    return [Case(text, f"e{number}") for number, text in enumerate(dict.fromkeys(texts))]


def translate_cases(cases: Sequence[Case], plan: str, config: Config) -> None:
    """Translate the expressions that the texts have become in a plan, which is JSON."""
    root = parse(plan)
    aliases = {alias.fields["name"]: alias for alias in root.expressions("projectList")}
    below = _Below(root, config)
    for case in cases:
        try:
            case.expression = translate(aliases[case.name], below.leaf, below.config)
            hash(case.expression)
            assert pickle.loads(pickle.dumps(case.expression)) == case.expression, "it is not a value"
        except Exception as error:
            case.differ(f"cannot be translated: {type(error).__name__} {error}")
            case.expression = None


class EvaluatedRows:
    """Rows that expressions are evaluated for."""

    def __init__(self, table: pa.Table) -> None:
        self._columns = {name: table[name].combine_chunks() for name in table.column_names}
        self._count = len(table)

    def _rows(self, expression: Expression, numbers: Sequence[int]) -> ColumnBatch:
        """The columns that an expression reads, for some of the rows, as slices of longer arrays."""
        index = pa.array([0, *numbers, 0])
        columns = {name: self._columns[name].take(index).slice(1, len(numbers)) for name in expression.columns}
        return ColumnBatch(columns, len(numbers))

    def evaluate(self, case: Case) -> None:
        if case.expression is None:
            return
        every = list(range(self._count))
        try:
            try:
                case.expression.evaluate(self._rows(case.expression, every))
                case.good = every
            except EvaluationError:
                for row in every:
                    (case.bad if self._raises_here(case.expression, row) else case.good).append(row)
                if not case.bad:
                    case.differ("raises for all rows together, for none of them alone")
                elif not case.expression.can_raise:
                    case.differ("raises, though it says that it cannot")
            array = case.expression.evaluate(self._rows(case.expression, case.good))
            array.validate(full=True)
            self._check_alone(case, plain(array))
            case.expression.evaluate(self._rows(case.expression, []))
        except Exception as error:
            case.differ(f"fails here: {type(error).__name__} {error}")
            case.expression = None
            return
        if array.type != case.expression.type:
            case.differ(f"is said to be {case.expression.type}, and is {array.type}")
        elif len(array) != len(case.good):
            case.differ(f"has {len(array)} values for {len(case.good)} rows")
        elif array.null_count and not case.expression.nullable:
            case.differ("is null, though it says that it cannot be")
        case.values = plain(array)

    def _check_alone(self, case: Case, together: list[Any]) -> None:
        """Check for some of the rows that a row alone has the same value as among others."""
        assert case.expression is not None
        for row, value in list(zip(case.good, together, strict=True))[::_SAMPLED]:
            alone = plain(case.expression.evaluate(self._rows(case.expression, [row])))
            if alone != [value]:
                case.differ(f"row {row} {self.shown(case, row)}: {value!r} among others, {alone} alone")

    def _raises_here(self, expression: Expression, row: int) -> bool:
        try:
            expression.evaluate(self._rows(expression, [row]))
            return False
        except EvaluationError:
            return True

    def shown(self, case: Case, row: int) -> dict[str, Any]:
        assert case.expression is not None
        rows = self._rows(case.expression, [row])
        return {name: plain(rows.columns[name])[0] for name in sorted(case.expression.columns)}


class _Below:
    """The attributes of a plan's topmost projection: columns, or expressions of projections below it."""

    def __init__(self, plan: Tree, config: Config) -> None:
        self.config = config
        self._computed: dict[int, Tree] = {}
        while plan.children:
            plan = plan.only_child
            if plan.kind == "Project":
                aliases = [alias for alias in plan.expressions("projectList") if alias.kind == "Alias"]
                self._computed.update({alias.expr_id: alias for alias in aliases})

    def leaf(self, tree: Tree) -> Expression | None:
        if tree.kind != "AttributeReference":
            return None
        if tree.expr_id in self._computed:
            return translate(self._computed[tree.expr_id], self.leaf, self.config)
        return Column(arrow_type(tree.fields["dataType"]), tree.fields["nullable"], tree.fields["name"])


def plain(array: pa.Array) -> list[Any]:
    """Values that are equal only if they are identical: times as integers, floats as strings."""
    kind = array.type
    if pa.types.is_temporal(kind):
        return array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    if pa.types.is_floating(kind):
        return [None if value is None else repr(value) for value in array.to_pylist()]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return [plain(scalar.values) if scalar.is_valid else None for scalar in array]
    if pa.types.is_struct(kind):
        fields: list[Mapping[str, Any]] = [
            dict(zip(kind.names, values, strict=True)) for values in zip(*map(plain, array.flatten()), strict=True)
        ]
        return [value if valid else None for value, valid in zip(fields, array.is_valid().to_pylist(), strict=True)]
    return array.to_pylist()
