"""The planner: rules become collections of the engine.

`Planner.relation` returns the plan of a relation. A relation without rules is its facts. Otherwise it is the distinct
rows of its facts and of all its rules, indexed by the columns by which rules look it up most often
(`ikebana.datalog.orders`). Relations that depend on each other are the variables of one loop: a variable holds the rows
that facts and rules offer, the body keeps the distinct ones, and joins them. Rules of the stratum that read only
earlier strata stay outside the loop.

The bodies of rules are planned by `ikebana.datalog.body_plans` and solved by `ikebana.datalog.bodies`.

Equal parts of plans are the same node, so rules, programs and other queries share the indexes of a relation.

Cost: planning takes time in proportion to the rules, independent of the data.

Not guaranteed: that a recursion with arithmetic ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ikebana.datalog import functors, syntax
from ikebana.datalog.bodies import BodySolver, BodySource
from ikebana.datalog.body_plans import BodyPlan, plan_body
from ikebana.datalog.check import CheckedProgram, CheckedRule
from ikebana.datalog.collections import (
    Bundle,
    Facts,
    columns_of,
    computed,
    computed_columns,
    fields_of,
    types_of,
)
from ikebana.datalog.orders import IndexChoice, RelationIndex
from ikebana.datalog.storage import Storage
from ikebana.datalog.stratify import Stratum, rule_dependencies
from ikebana.engine.collection import Arrangement, Collection, constant, iterate
from ikebana.expressions import Literal
from ikebana.plan import ir


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
        body = plan_body((*rule.body, *equations), self.choice)
        return RulePlan(rule, body, tuple(arguments))

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
        solver = BodySolver(lambda name: self._source(name, known), rule.types, self.storage)
        solutions = solver.solve(plan.body, wanted)
        values = [functors.translated(argument, solver.types, self.storage) for argument in arguments]
        unit = Literal(self.storage.type("number"), False, 0)
        named = tuple(zip(columns_of(relation), values or [unit], strict=True))
        return computed(solutions, named)

    def _source(self, name: str, known: Mapping[str, Collection]) -> BodySource:
        rows = known[name] if name in known else self._relations[name]
        return BodySource(rows, self.columns(name), types_of(self.program.relations[name]))


def index_users(plans: Iterable[RulePlan]) -> dict[RelationIndex, list[str]]:
    """The rules that read each index."""
    users: dict[RelationIndex, list[str]] = {}
    for plan in plans:
        for index in (index for order in plan.body.orders for index in order.indexes):
            users.setdefault(index, []).append(str(plan.rule))
    return users
