"""Solving the bodies of rules: atoms, equations, conditions, negations and aggregates become collections.

A body is solved from left to right. The *solutions* are a collection with a column for each variable that is still
needed. Atoms are joined in the order of the plan (`ikebana.datalog.body_plans`); equations, conditions, negated atoms
and aggregates follow as soon as their variables are known. Solutions may have multiplicities: a set is made of them at
the end, in the relation. Only an aggregate needs each solution exactly once; its body keeps all variables, so that no
two solutions are equal.

Cost: independent of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ikebana.datalog import functors, syntax
from ikebana.datalog.body_plans import BodyPlan, Parts, missing_variables
from ikebana.datalog.check import needed_variables, shared_variables
from ikebana.datalog.collections import (
    UNIT,
    computed_columns,
    filtered,
    joined,
    unit_field,
    with_unit,
)
from ikebana.datalog.orders import SearchPattern
from ikebana.datalog.storage import Storage
from ikebana.datalog.types import Primitive, type_of
from ikebana.engine.collection import Arrangement, Collection, constant
from ikebana.expressions import Expression, Literal
from ikebana.operators.expression_steps import Computed
from ikebana.operators.join import JoinColumns
from ikebana.reducers import sums

_TARGET = "#target"


@dataclass(frozen=True)
class BodySource:
    """A relation that a body reads: its rows, inside a loop or outside, its columns, and what they hold."""

    rows: Collection
    columns: tuple[str, ...]
    types: tuple[Primitive, ...]


@dataclass
class _Rows:
    """Solutions: a collection with a column for each variable; or a pattern of a relation, not yet selected from."""

    collection: Collection
    pattern: SearchPattern | None = None
    columns: tuple[str, ...] = ()
    """Of a pattern: the columns of the relation."""

    @property
    def variables(self) -> list[str]:
        return self.collection.columns if self.pattern is None else [name for name, _ in self.pattern.columns]

    def index(self, key: Sequence[str]) -> Arrangement:
        """The rows indexed by variables."""
        return self.collection.arrange_by([self.column(name) for name in key])

    def column(self, variable: str) -> str:
        """The name of a variable's column."""
        return variable if self.pattern is None else self.columns[self.pattern.column_of(variable)]

    def solutions(self, wanted: Iterable[str]) -> Collection:
        """The rows with a column for each wanted variable."""
        return computed_columns(self.collection, {name: self.column(name) for name in wanted})


class BodySolver:
    """Solves bodies of one rule."""

    def __init__(self, sources: Callable[[str], BodySource], types: Mapping[str, Primitive], storage: Storage) -> None:
        """`sources` returns the relation of a name, `types` are those of the rule's variables."""
        self._sources, self._storage = sources, storage
        self.types = dict(types)

    def solve(
        self, plan: BodyPlan, wanted: set[str], given: Collection | None = None, *, keep_all: bool = False
    ) -> Collection:
        """The solutions of a body with columns for the wanted variables, or for all.

        With `given`, the solutions extend the rows of that collection.
        """
        self._add_types(plan.parts)
        order, todo = plan.order, _Todo(plan.parts, wanted, keep_all)
        rows = None if given is None else _Rows(given)
        for pattern, key in zip(order.patterns, order.keys, strict=True):
            todo.patterns.remove(pattern)
            atom = self._atom(pattern)
            rows = atom if rows is None else _Rows(self._join(rows, atom, key, todo))
            if rows.pattern is None or self._defines_keys(rows, todo):
                rows = _Rows(self._apply(rows, todo, plan))
        if rows is None:
            rows = _Rows(constant(pa.table({UNIT: pa.array([0], pa.int8())}, pa.schema([unit_field()]))))
        return self._apply(rows, todo, plan)

    def _add_types(self, parts: Parts) -> None:
        for name, origin in parts.fresh.items():
            if isinstance(origin, tuple):
                relation, at = origin
                self.types[name] = self._sources(relation).types[at]
            else:
                self.types[name] = type_of(origin, self.types)
        for comparison in parts.comparisons:
            for side, other in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
                if isinstance(side, syntax.Variable) and side.name not in self.types:
                    self.types[side.name] = type_of(other, self.types)

    # Atoms.

    def _atom(self, pattern: SearchPattern) -> _Rows:
        """The rows of a relation that satisfy the conditions of a pattern."""
        source = self._sources(pattern.atom.relation)
        columns, types = source.columns, [self._storage.type(kind) for kind in source.types]
        conditions = [
            functors.compared(
                "=", functors.column(columns[at], types[at]), functors.translated(value, self.types, self._storage)
            )
            for at, value in pattern.constants
        ]
        conditions += [
            functors.compared(
                "=", functors.column(columns[one], types[one]), functors.column(columns[other], types[other])
            )
            for one, other in pattern.repeats
        ]
        return _Rows(filtered(source.rows, conditions), pattern, columns)

    def _defines_keys(self, rows: _Rows, todo: _Todo) -> bool:
        """Whether an equation defines a variable that a waiting pattern has, from the variables of the rows."""
        known = set(rows.variables)
        waiting = {name for pattern in todo.patterns for name in pattern.variables}
        return any(name in waiting for name, _, _ in todo.definitions(known))

    def _join(self, rows: _Rows, atom: _Rows, key: tuple[int, ...] | None, todo: _Todo) -> Collection:
        """Join solutions with a pattern on the variables that they have in common."""
        assert atom.pattern is not None
        known = set(rows.variables)
        names = [atom.pattern.name_of(at) for at in key or ()]
        names += sorted((known & atom.pattern.variables) - set(names))
        needed = todo.needed([*rows.variables, *(name for name in atom.variables if name not in known)])
        of_left = tuple((name, rows.column(name)) for name in needed if name in known)
        of_right = tuple((name, atom.column(name)) for name in needed if name not in known)
        return joined(rows.index(names), atom.index(names), JoinColumns(tuple(needed), of_left, of_right))

    # Everything else.

    def _apply(self, rows: _Rows, todo: _Todo, plan: BodyPlan) -> Collection:
        """Apply what can be applied to solutions, as long as there is something."""
        solutions = rows.solutions(todo.needed(rows.variables))
        while True:
            known = set(solutions.columns)
            definition = next(iter(todo.definitions(known)), None)
            ready = [comparison for comparison in todo.comparisons if set(syntax.variables(comparison)) <= known]
            negation = next((negation for negation in todo.negations if negation.variables <= known), None)
            aggregate = next(
                (
                    (name, part)
                    for name, part in todo.aggregates
                    if set(shared_variables(part, todo.variables)) <= known
                ),
                None,
            )
            if ready:
                todo.comparisons = [comparison for comparison in todo.comparisons if comparison not in ready]
                conditions = [functors.condition(comparison, self.types, self._storage) for comparison in ready]
                solutions = filtered(solutions, conditions)
            elif definition is not None:
                name, comparison, value = definition
                todo.comparisons.remove(comparison)
                solutions = self._extended(solutions, name, value)
            elif negation is not None:
                todo.negations.remove(negation)
                solutions = self._without(solutions, negation)
            elif aggregate is not None and not todo.patterns:
                todo.aggregates.remove(aggregate)
                solutions = self._aggregated(solutions, *aggregate, todo, plan.inner[aggregate[0]])
            else:
                break
        return computed_columns(solutions, {name: name for name in todo.needed(solutions.columns)})

    def _columns(self, solutions: Collection) -> list[tuple[str, Expression]]:
        return [(field.name, functors.column(field.name, field.type)) for field in solutions.node.columns]

    def _extended(self, solutions: Collection, name: str, value: syntax.Expression) -> Collection:
        expression = functors.translated(value, self.types, self._storage)
        return solutions.step(Computed((*self._columns(solutions), (name, expression))))

    def _without(self, solutions: Collection, negation: SearchPattern) -> Collection:
        """The solutions for which no row matches a negated atom."""
        atom = self._atom(negation)
        names = sorted(negation.variables, key=negation.column_of)
        if names:
            if len(names) == len(atom.columns):
                keys = atom.index(names)
            else:
                keys = atom.solutions(names).distinct(*names).arrange_by(names)
            left = solutions.arrange_by(names)
        else:
            keys = with_unit(atom.collection).select(UNIT).distinct(UNIT).arrange_by([UNIT])
            left = with_unit(solutions).arrange_by([UNIT])
        columns = tuple((name, name) for name in solutions.columns)
        matched = joined(left, keys, JoinColumns(tuple(solutions.columns), columns, ()))
        return solutions.concat(matched.negate())

    # Aggregates.

    def _aggregated(
        self, solutions: Collection, name: str, aggregate: syntax.Aggregate, todo: _Todo, plan: BodyPlan
    ) -> Collection:
        """The solutions, each with the value of an aggregate; without those for which the aggregate has none."""
        shared = shared_variables(aggregate, todo.variables)
        groups = self._groups(solutions, name, aggregate, shared, todo, plan)
        left = solutions if shared else with_unit(solutions)
        key = list(shared) or [UNIT]
        columns = tuple((column, column) for column in solutions.columns)
        result = JoinColumns((*solutions.columns, name), columns, ((name, name),))
        matched = joined(left.arrange_by(key), groups.arrange_by(key), result)
        if aggregate.function not in ("count", "sum"):
            return matched
        kind = self._storage.type(self.types[name])
        others = solutions.concat(matched.select(*solutions.columns).negate())
        zero = Literal(kind, False, 0.0 if pa.types.is_floating(kind) else 0)
        return matched.concat(others.step(Computed((*self._columns(solutions), (name, zero)))))

    def _groups(
        self,
        solutions: Collection,
        name: str,
        aggregate: syntax.Aggregate,
        shared: tuple[str, ...],
        todo: _Todo,
        plan: BodyPlan,
    ) -> Collection:
        """The value of an aggregate for each combination of the shared variables that has solutions inside."""
        missing = sorted(missing_variables(aggregate, todo.variables))
        given = solutions.select(*missing).distinct(*missing) if missing else None
        inside = BodySolver(self._sources, self.types, self._storage)
        target = aggregate.target
        wanted = {*shared, *(() if target is None else syntax.variables(target))}
        is_extreme = aggregate.function in ("min", "max")
        rows = inside.solve(plan, wanted, given, keep_all=not is_extreme)
        if not shared:
            rows = with_unit(rows)
        key = shared or (UNIT,)
        if target is None:
            return self._cast(sums.aggregate(rows, key, ((name, sums.Count()),)), name)
        value = functors.translated(target, inside.types, self._storage)
        if pa.types.is_unsigned_integer(value.type) and not is_extreme:
            value = functors.Functor(pa.int64(), False, "as", (value,))
        named = {column: expression for column, expression in self._columns(rows) if column in key}
        rows = rows.step(Computed((*named.items(), (_TARGET, value))))
        if is_extreme:
            best = rows.min(key, _TARGET) if aggregate.function == "min" else rows.max(key, _TARGET)
            return computed_columns(best, {**{column: column for column in key}, name: _TARGET})
        kind = sums.Sum if aggregate.function == "sum" else sums.Mean
        call = kind(_TARGET, value.type, column_nullable=False, ansi=False)
        return self._cast(sums.aggregate(rows, key, ((name, call),)), name)

    def _cast(self, groups: Collection, name: str) -> Collection:
        """Groups with the value of an aggregate in the type of its variable."""
        kind = self._storage.type(self.types[name])
        columns = dict(self._columns(groups))
        value = columns[name]
        if value.type == kind:
            return groups
        return groups.step(Computed(tuple({**columns, name: functors.Functor(kind, False, "as", (value,))}.items())))


class _Todo:
    """What remains to be done for a body."""

    def __init__(self, parts: Parts, wanted: set[str], keep_all: bool) -> None:
        self.patterns, self.comparisons = list(parts.patterns), list(parts.comparisons)
        self.negations, self.aggregates = list(parts.negations), list(parts.aggregates)
        self._wanted, self._keep_all = wanted, keep_all
        self.variables = parts.variables | wanted

    def needed(self, known: Sequence[str]) -> list[str]:
        """The known variables that are still needed; at least one, so that there is a column."""
        if self._keep_all:
            return list(known)
        needed = set(self._wanted)
        for pattern in (*self.patterns, *self.negations):
            needed |= pattern.variables
        for comparison in self.comparisons:
            needed.update(syntax.variables(comparison))
        for _, aggregate in self.aggregates:
            needed.update(needed_variables(aggregate, self.variables))
        return [name for name in known if name in needed] or list(known[:1])

    def definitions(self, known: set[str]) -> Iterable[tuple[str, syntax.Comparison, syntax.Expression]]:
        """Equations that define a variable by known ones."""
        computed_later = {name for name, _ in self.aggregates}
        for comparison in self.comparisons:
            if comparison.operator == "=":
                for side, value in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
                    is_new = isinstance(side, syntax.Variable) and side.name not in known | computed_later
                    if is_new and set(syntax.variables(value)) <= known:
                        yield side.name, comparison, value  # type: ignore[union-attr]
                        break
