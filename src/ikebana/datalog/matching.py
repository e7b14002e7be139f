"""Matching: the solutions of bodies over relations in memory, for questions about single facts.

A set of solutions is a batch of columns named like variables. `Matcher.extend` extends it by one literal: an atom adds
the variables of its matching rows, a comparison or a negated atom keeps some solutions, an equation adds a variable.
`Matcher.solve` does that for all literals of a body.

Invariant: columns hold values as they are stored (`ikebana.datalog.storage`).

Cost: an atom takes a pass over its relation in Arrow, some ten milliseconds for a million rows, and time in proportion
to the matches; after a few passes the relation is sorted, and atoms take time in proportion to the matches alone.
Nothing is done row by row in Python.

Not guaranteed: a good order for bodies with many atoms that share no variables. Programs are planned elsewhere; this is
for explaining single facts (`ikebana.datalog.why`), where most variables are known from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.datalog import functors
from ikebana.datalog.check import needed_variables
from ikebana.datalog.storage import Storage
from ikebana.datalog.syntax import (
    Aggregate,
    Atom,
    Call,
    Cast,
    Comparison,
    Constant,
    Expression,
    Literal,
    Negation,
    Variable,
    Wildcard,
)
from ikebana.datalog.types import Primitive, type_of
from ikebana.encoding.arrow import from_numpy, to_numpy
from ikebana.encoding.lanes import Lane
from ikebana.expressions import ColumnBatch

Types = Mapping[str, Primitive]
Rows = Callable[[str], ColumnBatch]
"""The rows of a relation, by name: a column for each attribute, in their order."""

_AGGREGATE = "aggregate "
"""The names of columns for aggregates begin like this; variables have no spaces."""


def one_solution() -> ColumnBatch:
    """The solution of an empty body."""
    return ColumnBatch({}, 1)


def take(batch: ColumnBatch, rows: Lane) -> ColumnBatch:
    """Some solutions, by number."""
    numbers = pa.array(rows)
    return ColumnBatch({name: column.take(numbers) for name, column in batch.columns.items()}, len(rows))


def is_ready(literal: Literal, bound: Iterable[str], outer: Iterable[str]) -> bool:
    """Whether a literal can be evaluated once some variables are bound."""
    known = set(bound)
    match literal:
        case Atom(arguments=arguments):
            computed = (part for part in arguments if isinstance(part, Call | Cast))
            return all(needed_variables(part, outer) <= known for part in computed)
        case Negation():
            return needed_variables(literal, outer) <= known
    return needed_variables(literal, outer) <= known or _equation(literal, known, outer) is not None


def _equation(literal: Comparison, bound: set[str], outer: Iterable[str]) -> tuple[str, Expression] | None:
    """The variable that an equation binds, and its value."""
    if literal.operator == "=":
        for side, other in ((literal.left, literal.right), (literal.right, literal.left)):
            if isinstance(side, Variable) and side.name not in bound and needed_variables(other, outer) <= bound:
                return side.name, other
    return None


class Matcher:
    """Evaluates literals over the rows of relations."""

    def __init__(self, rows: Rows, storage: Storage) -> None:
        self._rows, self._storage = rows, storage
        self._relations: dict[str, ColumnBatch] = {}
        self._indexes: dict[tuple[str, tuple[int, ...]], _Index] = {}

    def solve(self, body: Sequence[Literal], solutions: ColumnBatch, types: Types, outer: Iterable[str]) -> ColumnBatch:
        """The solutions of a body that extend given ones; `outer` are the variables of the rule outside aggregates."""
        remaining = list(body)
        while remaining:
            bound = set(solutions.columns)
            ready = [literal for literal in remaining if is_ready(literal, bound, outer)]
            literal = min(ready, key=lambda literal: self._cost(literal, bound))
            remaining = [other for other in remaining if other is not literal]
            solutions = self.extend(solutions, literal, types, outer)
        return solutions

    def extend(self, solutions: ColumnBatch, literal: Literal, types: Types, outer: Iterable[str]) -> ColumnBatch:
        """The solutions that also satisfy a literal that `is_ready`."""
        match literal:
            case Atom():
                return self._atom(solutions, literal, types)
            case Negation(atom=atom):
                _, matched = self._matches(solutions, atom, types)
                return take(solutions, np.setdiff1d(np.arange(solutions.count), matched))
        return self._comparison(solutions, literal, types, outer)

    def _cost(self, literal: Literal, bound: set[str]) -> tuple[int, int, int]:
        """How late a literal is evaluated: conditions first, then atoms with few unknown arguments and few rows."""
        if not isinstance(literal, Atom):
            return 0, 0, 0
        unknown = sum(
            not isinstance(part, Constant) and getattr(part, "name", None) not in bound for part in literal.arguments
        )
        return 1, unknown, self._stored(literal.relation).count

    def value(self, expression: Expression, solutions: ColumnBatch, types: Types) -> pa.Array:
        """The value of an expression without aggregates in each solution."""
        value = functors.translated(expression, types, self._storage).evaluate(solutions)
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value

    # Atoms.

    def _stored(self, relation: str) -> ColumnBatch:
        if relation not in self._relations:
            self._relations[relation] = self._rows(relation)
        return self._relations[relation]

    def _atom(self, solutions: ColumnBatch, atom: Atom, types: Types) -> ColumnBatch:
        rows, numbers = self._matches(solutions, atom, types)
        result, same = take(solutions, numbers), np.ones(len(rows), bool)
        positions = pa.array(rows)
        for argument, column in zip(atom.arguments, self._stored(atom.relation).columns.values(), strict=True):
            if isinstance(argument, Variable) and argument.name not in solutions.columns:
                values = column.take(positions)
                if argument.name in result.columns:  # the variable occurs twice in the atom
                    same &= to_numpy(pc.equal(values, result.columns[argument.name]))
                else:
                    result = ColumnBatch({**result.columns, argument.name: values}, result.count)
        return result if same.all() else take(result, np.flatnonzero(same))

    def _matches(self, solutions: ColumnBatch, atom: Atom, types: Types) -> tuple[Lane, Lane]:
        """Pairs of a row of the relation and a solution that agree in the arguments that have values."""
        stored = self._stored(atom.relation)
        columns = list(stored.columns.values())
        values: dict[int, pa.Array] = {}
        for place, argument in enumerate(atom.arguments):
            is_free = isinstance(argument, Variable) and argument.name not in solutions.columns
            if not is_free and not isinstance(argument, Wildcard):
                values[place] = self.value(argument, solutions, types).cast(columns[place].type)
        key = atom.relation, tuple(values)
        if key not in self._indexes:
            self._indexes[key] = _Index([columns[place] for place in values], stored.count)
        return self._indexes[key].matches(list(values.values()), solutions.count)

    # Comparisons and aggregates.

    def _comparison(
        self, solutions: ColumnBatch, literal: Comparison, types: Types, outer: Iterable[str]
    ) -> ColumnBatch:
        names = dict(types)
        left, solutions = self._without_aggregates(literal.left, solutions, names, outer)
        right, solutions = self._without_aggregates(literal.right, solutions, names, outer)
        literal = replace(literal, left=left, right=right)
        equation = _equation(literal, set(solutions.columns), outer)
        if equation is not None:
            name, expression = equation
            value = self.value(expression, solutions, names).cast(self._storage.type(names[name]))
            columns = {**solutions.columns, name: value}
        else:
            flags = functors.condition(literal, names, self._storage).evaluate(solutions)
            solutions = take(solutions, np.flatnonzero(to_numpy(_array(flags))))
            columns = solutions.columns
        added = names.keys() - types.keys()
        return ColumnBatch({name: columns[name] for name in columns if name not in added}, solutions.count)

    def _without_aggregates(
        self, expression: Expression, solutions: ColumnBatch, types: dict[str, Primitive], outer: Iterable[str]
    ) -> tuple[Expression, ColumnBatch]:
        """The expression with columns, which are added to the solutions, in place of aggregates."""
        match expression:
            case Aggregate():
                name = f"{_AGGREGATE}{len(types)}"
                types[name] = type_of(expression, types)
                return Variable(name), self._aggregate(expression, name, solutions, types, outer)
            case Call(arguments=arguments):
                parts = []
                for argument in arguments:
                    part, solutions = self._without_aggregates(argument, solutions, types, outer)
                    parts.append(part)
                return replace(expression, arguments=tuple(parts)), solutions
            case Cast(expression=inner):
                inner, solutions = self._without_aggregates(inner, solutions, types, outer)
                return replace(expression, expression=inner), solutions
        return expression, solutions

    def _aggregate(
        self, aggregate: Aggregate, name: str, solutions: ColumnBatch, types: Types, outer: Iterable[str]
    ) -> ColumnBatch:
        """The solutions with the value of an aggregate; without those for which it has none."""
        group = f"{name} group"  # the number of a solution of the surrounding body
        start = {**solutions.columns, group: pa.array(np.arange(solutions.count))}
        inner = self.solve(aggregate.body, ColumnBatch(start, solutions.count), types, outer)
        own = [column for column in inner.columns if column not in solutions.columns]
        inner = take(inner, _first_rows(inner, own))
        groups = to_numpy(inner.columns[group])
        values = None if aggregate.target is None else self.value(aggregate.target, inner, types)
        has_value, result = _aggregated(aggregate.function, groups, values, solutions.count)
        kind = self._storage.type(types[name])
        value = result.cast(kind) if isinstance(result, pa.Array) else from_numpy(kind, result.astype(_dtype(kind)))
        return take(ColumnBatch({**solutions.columns, name: value}, solutions.count), np.flatnonzero(has_value))


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    return np.dtype(kind.to_pandas_dtype())


class _Index:
    """Finds the rows with given values in some columns.

    The first searches are hash joins, which pass over all rows; if there are more, the rows are sorted, provided that
    the columns are integers that fit into 64 bits together.
    """

    PASSES = 4
    """The number of searches that pass over all rows: sorting takes about as long."""

    def __init__(self, columns: Sequence[pa.Array], count: int) -> None:
        self._columns, self._count = columns, count
        self._searches = 0
        self._sorted: tuple[Lane, Lane] | None = None  # the packed values in order, and their rows
        bits = [column.type.bit_width if pa.types.is_integer(column.type) else 65 for column in columns]
        self._can_sort = 0 < sum(bits) <= 64

    def matches(self, values: Sequence[pa.Array], count: int) -> tuple[Lane, Lane]:
        """Pairs of a row and the number of the values that it has; all pairs if there are no columns."""
        if not values:
            return np.tile(np.arange(self._count), count), np.repeat(np.arange(count), self._count)
        self._searches += 1
        if self._can_sort and self._searches > self.PASSES:
            return self._search_sorted(values)
        return _joined(self._columns, values)

    def _search_sorted(self, values: Sequence[pa.Array]) -> tuple[Lane, Lane]:
        if self._sorted is None:
            packed = _packed(self._columns)
            order = np.argsort(packed, kind="stable")
            self._sorted = packed[order], order
        known, order = self._sorted
        wanted = _packed(values)
        starts, ends = np.searchsorted(known, wanted), np.searchsorted(known, wanted, side="right")
        counts = ends - starts
        offsets = np.repeat(starts - np.append(0, np.cumsum(counts)[:-1]), counts)
        return order[offsets + np.arange(len(offsets))], np.repeat(np.arange(len(wanted)), counts)


def _packed(columns: Sequence[pa.Array]) -> Lane:
    """Columns of at most 64 bits together as one; equal values are equal, their order is of no importance."""
    lane = to_numpy(columns[0]).astype(np.int64)
    for column in columns[1:]:
        width = column.type.bit_width
        lane = (lane << width) | (to_numpy(column).astype(np.int64) & ((1 << width) - 1))
    return lane


def _joined(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> tuple[Lane, Lane]:
    """The pairs of row numbers of equal rows."""
    keys = [f"key{number}" for number in range(len(left))]
    one = pa.table([*left, pa.array(np.arange(len(left[0])))], [*keys, "left"])
    other = pa.table([*right, pa.array(np.arange(len(right[0])))], [*keys, "right"])
    pairs = one.join(other, keys, join_type="inner", use_threads=False)
    return pairs["left"].to_numpy(), pairs["right"].to_numpy()


def _first_rows(batch: ColumnBatch, names: Sequence[str]) -> Lane:
    """The numbers of the first rows with their values in some columns."""
    table = pa.table({**{name: batch.columns[name] for name in names}, " row": pa.array(np.arange(batch.count))})
    return np.sort(table.group_by(list(names)).aggregate([(" row", "min")])[" row_min"].to_numpy())


def _aggregated(function: str, groups: Lane, values: pa.Array | None, count: int) -> tuple[Any, Any]:
    """Whether each group has a value, and the values: an array with an entry for each group."""
    counts = np.bincount(groups, minlength=count)
    if function == "count":
        return np.ones(count, bool), counts
    assert values is not None
    if function in ("min", "max"):
        order = pc.sort_indices(values, sort_keys=[("", "ascending" if function == "min" else "descending")])
        present, first = np.unique(groups[to_numpy(order)], return_index=True)
        positions = np.zeros(count, np.int64)
        positions[present] = to_numpy(order)[first]
        return counts > 0, values.take(pa.array(positions)) if len(values) else pa.nulls(count, values.type)
    numbers = to_numpy(values)
    sums = np.zeros(count, np.float64 if numbers.dtype.kind == "f" or function == "mean" else np.int64)
    np.add.at(sums, groups, numbers)
    if function == "sum":
        return np.ones(count, bool), sums
    with np.errstate(all="ignore"):
        return counts > 0, sums / counts
