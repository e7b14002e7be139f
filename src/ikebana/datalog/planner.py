"""The planner: rules become collections of the engine.

`Planner.relation` returns the plan of a relation. A relation without rules is its facts. Otherwise it is the distinct
rows of its facts and of all its rules, indexed by the columns by which rules look it up most often
(`ikebana.datalog.orders`). Relations that depend on each other are the variables of one loop: a variable holds the rows
that facts and rules offer, the body keeps the distinct ones, and joins them. Rules of the stratum that read only
earlier strata stay outside the loop.

A body is solved from left to right (`_Body`). The *solutions* are a collection with a column for each variable that is
still needed. Atoms are joined in the chosen order; equations, conditions, negated atoms and aggregates follow as soon
as their variables are known. Solutions may have multiplicities: a set is made of them at the end, in the relation. Only
an aggregate needs each solution exactly once; its body keeps all variables, so that no two solutions are equal.

Equal parts of plans are the same node, so rules, programs and other queries share the indexes of a relation.

Cost: planning takes time in proportion to the rules, independent of the data.

Not guaranteed: that a recursion with arithmetic ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ikebana.datalog import functors, syntax
from ikebana.datalog.check import (
    CheckedProgram,
    CheckedRule,
    Relation,
    grounded_variables,
    needed_variables,
    shared_variables,
)
from ikebana.datalog.collections import (
    UNIT,
    Bundle,
    computed,
    computed_columns,
    filtered,
    joined,
    unit_field,
    with_unit,
)
from ikebana.datalog.orders import Index, IndexChoice, Order, Pattern
from ikebana.datalog.storage import Storage
from ikebana.datalog.stratify import Stratum, rule_dependencies
from ikebana.datalog.types import Primitive, type_of
from ikebana.engine.collection import Arrangement, Collection, constant, iterate
from ikebana.expressions import Expression, Literal
from ikebana.operators.expression_steps import Computed
from ikebana.operators.join import JoinColumns
from ikebana.plan import ir
from ikebana.reducers import sums

_TARGET = "#target"
_PRESENT = "present"


def columns_of(relation: Relation) -> tuple[str, ...]:
    """The columns of a relation: its attributes; one column for a relation without attributes."""
    return tuple("diff_" if name == "diff" else name for name in relation.attributes) or (_PRESENT,)


@dataclass(frozen=True)
class Facts:
    """The facts of a relation: a set of rows, and the columns that are the attributes, in their order."""

    rows: Collection
    columns: tuple[str, ...]


def fields_of(relation: Relation, storage: Storage) -> list[pa.Field]:
    """The columns of a relation with their types."""
    types: tuple[Primitive, ...] = relation.types or ("number",)
    pairs = zip(columns_of(relation), types, strict=True)
    return [pa.field(name, storage.type(kind), nullable=False) for name, kind in pairs]


@dataclass(frozen=True)
class BodyPlan:
    """How a body is solved: its parts, the order of its atoms, and the plans of its aggregates by their variables."""

    parts: _Parts
    order: Order
    inner: Mapping[str, BodyPlan]

    @property
    def orders(self) -> Iterator[Order]:
        """The order of the body, and those of its aggregates."""
        yield self.order
        for plan in self.inner.values():
            yield from plan.orders


@dataclass(frozen=True)
class RulePlan:
    """How a rule is computed: the plan of its body, and the arguments of its head, with variables for aggregates."""

    rule: CheckedRule
    body: BodyPlan
    arguments: tuple[syntax.Expression, ...]


class Planner:
    """Plans the relations of a program over the collections of their facts."""

    def __init__(
        self,
        program: CheckedProgram,
        storage: Storage,
        facts: Mapping[str, Facts],
        *,
        exported: Iterable[str] | None = None,
        choice: IndexChoice | None = None,
    ) -> None:
        """`facts` are those of each relation that has any, with the types of `fields_of`.

        `exported` are the relations that are read from outside, by default all. `choice` has indexes that exist
        already, which are preferred.
        """
        self.program, self.storage, self._facts = program, storage, facts
        self.choice = choice or IndexChoice()
        self.plans = {id(rule): self._plan(rule) for rule in program.rules}
        self._exported = frozenset(program.relations if exported is None else exported)
        self._relations: dict[str, Collection] = {}
        for stratum in program.strata:
            self._compute(stratum)

    def relation(self, name: str) -> Collection:
        """The rows of a relation, a set: the rows of an arrangement, or the facts if there are no rules."""
        return self._relations[name]

    def stored(self, name: str) -> Arrangement:
        """The arrangement that holds the rows of a relation."""
        rows = self._relations[name]
        return (
            Arrangement(rows.node.source) if isinstance(rows.node, ir.AsStream) else rows.arrange(*self.columns(name))
        )

    # Orders, before any plan is built: the choice of indexes is one for all rules.

    def _plan(self, rule: CheckedRule) -> RulePlan:
        """The plan of a rule. Aggregates in its head become equations of the body."""
        arguments: list[syntax.Expression] = []
        equations: list[syntax.Comparison] = []
        for at, argument in enumerate(rule.head.arguments):
            if any(True for _ in syntax.aggregates(argument)):
                variable = syntax.Variable(f"#head{at}", argument.position)
                equations.append(syntax.Comparison("=", variable, argument, argument.position))
                argument = variable
            arguments.append(argument)
        body = self._plan_body((*rule.body, *equations), itertools.count(), set(), set())
        return RulePlan(rule, body, tuple(arguments))

    def _plan_body(
        self, literals: Iterable[syntax.Literal], numbers: Iterator[int], outer: set[str], known: set[str]
    ) -> BodyPlan:
        parts = _Parts(literals, numbers)
        order = self.choice.order(parts.patterns, known, parts.definitions)
        variables = parts.variables | outer
        inner = {
            name: self._plan_body(
                aggregate.body,
                numbers,
                set(shared_variables(aggregate, variables)),
                _missing(aggregate, variables),
            )
            for name, aggregate in parts.aggregates
        }
        return BodyPlan(parts, order, inner)

    # Strata.

    def _compute(self, stratum: Stratum) -> None:
        if stratum.is_recursive:
            self._compute_loop(stratum)
            return
        (name,) = stratum.relations
        rules = self.program.rules_by_head[name]
        if not rules and name in self._facts:
            self._relations[name] = self._facts[name].rows
        else:
            offered = [*self._facts_of(name), *(self._head(rule, {}) for rule in rules)]
            self._relations[name] = self._distinct(name, self._concat(name, offered))

    def _compute_loop(self, stratum: Stratum) -> None:
        members = set(stratum.relations)
        outside: dict[str, list[CheckedRule]] = {name: [] for name in stratum.relations}
        inside: dict[str, list[CheckedRule]] = {name: [] for name in stratum.relations}
        for name in stratum.relations:
            for rule in self.program.rules_by_head[name]:
                is_inside = any(read.relation in members for read in rule_dependencies(rule.rule))
                (inside if is_inside else outside)[name].append(rule)
        starts = {
            name: self._concat(name, [*self._facts_of(name), *(self._head(rule, {}) for rule in outside[name])])
            for name in stratum.relations
        }
        known: dict[str, Collection] = {}

        def body(variables: dict[str, Collection]) -> dict[str, Collection]:
            known.update({name: self._distinct(name, offered) for name, offered in variables.items()})
            return {
                name: self._concat(name, [starts[name], *(self._head(rule, known) for rule in inside[name])])
                for name in stratum.relations
            }

        results = iterate(body, starts)
        loop = next(iter(results.values())).node.loop  # type: ignore[attr-defined]
        left = {name: Collection(ir.make(ir.Leave, source=known[name].node, loop=loop)) for name in stratum.relations}
        self._relations.update(self._stored(stratum, left))

    def _stored(self, stratum: Stratum, left: Mapping[str, Collection]) -> dict[str, Collection]:
        """The results of a loop, in arrangements.

        A dataflow maintains one arrangement. So if several relations of a loop are read from outside, the loop would be
        computed once for each; instead its results are kept in one arrangement, with a column for the relation.
        """
        used = [name for name in stratum.relations if name in self._exported or self._is_read_elsewhere(name, stratum)]
        if len(used) <= 1:
            return {name: self._arranged(name, rows).rows() for name, rows in left.items()}
        bundle = Bundle([(name, left[name]) for name in stratum.relations])
        stored = bundle.collection().arrange_by(bundle.key).rows()
        return {name: self._arranged(name, bundle.part(stored, name)).rows() for name in stratum.relations}

    def _is_read_elsewhere(self, name: str, stratum: Stratum) -> bool:
        return any(
            read.relation == name
            for rule in self.program.rules
            if rule.head.relation not in stratum.relations
            for read in rule_dependencies(rule.rule)
        )

    def columns(self, name: str) -> tuple[str, ...]:
        """The columns of a relation's rows that are its attributes, in their order."""
        if name in self._facts and not self.program.rules_by_head[name]:
            return self._facts[name].columns
        return columns_of(self.program.relations[name])

    def _facts_of(self, name: str) -> list[Collection]:
        facts = self._facts.get(name)
        if facts is None:
            return []
        names = columns_of(self.program.relations[name])
        return [computed_columns(facts.rows, dict(zip(names, facts.columns, strict=True)))]

    def _concat(self, name: str, offered: Sequence[Collection]) -> Collection:
        if not offered:
            schema = pa.schema(fields_of(self.program.relations[name], self.storage))
            return constant(schema.empty_table())
        return offered[0].concat(*offered[1:]) if len(offered) > 1 else offered[0]

    def _primary(self, name: str) -> tuple[str, ...]:
        columns = self.columns(name)
        return tuple(columns[at] for at in self.choice.primary_key(name)) or columns

    def _distinct(self, name: str, offered: Collection) -> Collection:
        return offered.distinct(*self._primary(name))

    def _arranged(self, name: str, rows: Collection) -> Arrangement:
        return rows.arrange_by(self._primary(name))

    # Rules.

    def _head(self, rule: CheckedRule, known: Mapping[str, Collection]) -> Collection:
        """The rows that a rule derives; `known` are the relations of its own stratum, inside the loop."""
        relation, plan = self.program.relations[rule.head.relation], self.plans[id(rule)]
        arguments = plan.arguments
        wanted = {name for argument in arguments for name in syntax.variables(argument)}
        solver = _Body(self, rule.types, known)
        solutions = solver.solve(plan.body, wanted)
        values = [functors.translated(argument, solver.types, self.storage) for argument in arguments]
        unit = Literal(self.storage.type("number"), False, 0)
        named = tuple(zip(columns_of(relation), values or [unit], strict=True))
        return computed(solutions, named)

    def source(self, name: str, known: Mapping[str, Collection]) -> Collection:
        """The rows of a relation, inside a loop or outside."""
        return known[name] if name in known else self._relations[name]


# Bodies.


class _Parts:
    """The literals of a body: patterns, and what is to be applied once its variables are known.

    Expressions in atoms become equations; aggregates become variables, each with the aggregate that computes it.
    """

    def __init__(self, body: Iterable[syntax.Literal], numbers: Iterator[int]) -> None:
        """`numbers` make the names of new variables different from all others of the rule."""
        self._numbers = numbers
        self.patterns: list[Pattern] = []
        self.comparisons: list[syntax.Comparison] = []
        self.negations: list[Pattern] = []
        self.aggregates: list[tuple[str, syntax.Aggregate]] = []
        self.fresh: dict[str, syntax.Expression | tuple[str, int]] = {}
        for literal in body:
            match literal:
                case syntax.Atom():
                    self.patterns.append(self._with_variable(self._pattern(literal)))
                case syntax.Negation(atom=atom):
                    self.negations.append(self._pattern(atom))
                case syntax.Comparison():
                    left, right = self._without_aggregates(literal.left), self._without_aggregates(literal.right)
                    self.comparisons.append(replace(literal, left=left, right=right))

    def _new(self, kind: str) -> str:
        return f"#{kind}{next(self._numbers)}"

    def _pattern(self, atom: syntax.Atom) -> Pattern:
        columns: dict[str, int] = {}
        constants, repeats = [], []
        for at, argument in enumerate(atom.arguments):
            match argument:
                case syntax.Wildcard():
                    pass
                case syntax.Constant():
                    constants.append((at, argument))
                case syntax.Variable(name=name):
                    if name in columns:
                        repeats.append((columns[name], at))
                    columns.setdefault(name, at)
                case _:
                    name = self._new("argument")
                    columns[name] = at
                    self.fresh[name] = (atom.relation, at)
                    left = syntax.Variable(name, argument.position)
                    right = self._without_aggregates(argument)
                    self.comparisons.append(syntax.Comparison("=", left, right, argument.position))
        return Pattern(atom, tuple(columns.items()), tuple(constants), tuple(repeats))

    def _with_variable(self, pattern: Pattern) -> Pattern:
        """A pattern with at least one variable, so that its solutions have a column."""
        if pattern.columns:
            return pattern
        name = self._new("present")
        self.fresh[name] = (pattern.atom.relation, 0)
        return replace(pattern, columns=((name, 0),))

    def _without_aggregates(self, expression: syntax.Expression) -> syntax.Expression:
        match expression:
            case syntax.Aggregate():
                name = self._new("aggregate")
                self.aggregates.append((name, expression))
                self.fresh[name] = expression
                return syntax.Variable(name, expression.position)
            case syntax.Call():
                arguments = tuple(self._without_aggregates(argument) for argument in expression.arguments)
                return replace(expression, arguments=arguments)
            case syntax.Cast():
                return replace(expression, expression=self._without_aggregates(expression.expression))
            case _:
                return expression

    @property
    def variables(self) -> set[str]:
        """The variables of the body, other than those that occur only inside aggregates."""
        names = {variable for pattern in (*self.patterns, *self.negations) for variable in pattern.variables}
        for comparison in self.comparisons:
            names.update(syntax.variables(comparison))
        return names

    @property
    def definitions(self) -> list[tuple[str, frozenset[str]]]:
        """The variables that equations may define, with the variables that they need."""
        return [
            (side.name, frozenset(syntax.variables(other)))
            for comparison in self.comparisons
            if comparison.operator == "="
            for side, other in ((comparison.left, comparison.right), (comparison.right, comparison.left))
            if isinstance(side, syntax.Variable)
        ]


def _missing(aggregate: syntax.Aggregate, outer: Iterable[str]) -> set[str]:
    """The variables of the rule that an aggregate refers to, and that its own body does not ground."""
    shared = set(shared_variables(aggregate, outer))
    variables = syntax.inner_variables(aggregate)
    return shared - grounded_variables(aggregate.body, (), variables)


@dataclass
class _Rows:
    """Solutions: a collection with a column for each variable; or a pattern of a relation, not yet selected from."""

    collection: Collection
    pattern: Pattern | None = None
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


class _Body:
    """Solves bodies of one rule."""

    def __init__(self, planner: Planner, types: Mapping[str, Primitive], known: Mapping[str, Collection]) -> None:
        """`known` are the relations of the rule's own stratum, inside the loop."""
        self._planner, self._known, self._storage = planner, known, planner.storage
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

    def _add_types(self, parts: _Parts) -> None:
        for name, origin in parts.fresh.items():
            if isinstance(origin, tuple):
                relation, at = origin
                types = self._planner.program.relations[relation].types or ("number",)
                self.types[name] = types[at]
            else:
                self.types[name] = type_of(origin, self.types)
        for comparison in parts.comparisons:
            for side, other in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
                if isinstance(side, syntax.Variable) and side.name not in self.types:
                    self.types[side.name] = type_of(other, self.types)

    # Atoms.

    def _atom(self, pattern: Pattern) -> _Rows:
        """The rows of a relation that satisfy the conditions of a pattern."""
        relation = self._planner.program.relations[pattern.atom.relation]
        columns, collection = self._planner.columns(relation.name), self._planner.source(relation.name, self._known)
        types = [self._storage.type(kind) for kind in relation.types or ("number",)]
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
        return _Rows(filtered(collection, conditions), pattern, columns)

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

    def _without(self, solutions: Collection, negation: Pattern) -> Collection:
        """The solutions for which no row matches a negated atom."""
        atom = self._atom(negation)
        relation = self._planner.program.relations[negation.atom.relation]
        names = sorted(negation.variables, key=negation.column_of)
        if names:
            if len(names) == len(columns_of(relation)):
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
        missing = sorted(_missing(aggregate, todo.variables))
        given = solutions.select(*missing).distinct(*missing) if missing else None
        inside = _Body(self._planner, self.types, self._known)
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

    def __init__(self, parts: _Parts, wanted: set[str], keep_all: bool) -> None:
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


def index_users(plans: Iterable[RulePlan]) -> dict[Index, list[str]]:
    """The rules that read each index."""
    users: dict[Index, list[str]] = {}
    for plan in plans:
        for index in (index for order in plan.body.orders for index in order.indexes):
            users.setdefault(index, []).append(str(plan.rule))
    return users
