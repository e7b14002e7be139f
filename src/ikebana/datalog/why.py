"""Why a fact holds, and why it does not, by the rows of the relations at one time.

    explainer.why("tc(1, 3)")            # a proof: the rule, and a proof of each of its premises
    explainer.why_not("tc(3, 1)")        # for each rule, the first literal that fails

`why` returns a proof of least height (`ikebana.datalog.proof_search`). `why_not` evaluates the literals of each rule in
the order of the text, as far as they can be evaluated, and stops at the first that no value of the variables meets.

Cost: of `why`, see there; `why_not` takes a pass over the relations of each rule in Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.datalog.check import CheckedProgram, CheckedRule, check_rules
from ikebana.datalog.equations import with_equations, without_wildcards
from ikebana.datalog.errors import did_you_mean, error_at
from ikebana.datalog.matching import Matcher, Rows, is_ready, take
from ikebana.datalog.parser import parse_atom
from ikebana.datalog.proof_search import FACT, Fact, ProofSearch, Row
from ikebana.datalog.proofs import Proof, RuleFailure, WhyNot
from ikebana.datalog.storage import Storage
from ikebana.datalog.syntax import (
    Atom,
    Constant,
    ConstantKind,
    Expression,
    Rule,
    Variable,
    variables,
)
from ikebana.datalog.types import Primitive
from ikebana.encoding.arrow import to_numpy
from ikebana.errors import DatalogError
from ikebana.expressions import ColumnBatch

_EXAMPLES = 3
"""The number of examples of values for which a literal fails."""


class Explainer:
    """Explains facts of a program by the rows of its relations at one time."""

    def __init__(self, program: CheckedProgram, rows: Rows, facts: Rows, storage: Storage) -> None:
        """`rows` returns all rows of a relation as they are stored, `facts` those that were inserted."""
        self._program, self._storage = program, storage
        self._all, self._inserted = Matcher(rows, storage), Matcher(facts, storage)

    def why(self, text: str) -> Proof:
        """A proof of least height of a fact, such as `tc(1, 5)`; raises if the fact does not hold."""
        atom, fact = self._fact(text)
        if not self._holds(fact):
            raise DatalogError(f"{atom} does not hold", hint=f'why_not("{atom}") says why')
        return ProofSearch(self, fact).proof()

    def why_not(self, text: str) -> WhyNot:
        """For each rule that might derive a fact, the first literal that fails; raises if the fact holds."""
        atom, fact = self._fact(text)
        if self._holds(fact):
            raise DatalogError(f"{atom} holds", hint=f'why("{atom}") proves it')
        rules = self._program.rules_by_head[atom.relation]
        return WhyNot(str(atom), tuple(self._failure(rule, fact) for rule in rules))

    def _fact(self, text: str) -> tuple[Atom, Fact]:
        """A fact in words and as it is stored."""
        atom = parse_atom(text)
        if atom.relation not in self._program.relations:
            hint = did_you_mean(atom.relation, self._program.relations)
            raise error_at(atom.position, f'there is no relation "{atom.relation}"', hint=hint)
        for argument in atom.arguments:
            if not isinstance(argument, Constant):
                what = f"{argument} is not a constant"
                raise error_at(argument.position, what, hint="ask about one fact, for instance tc(1, 5)")
        (checked,) = check_rules([Rule(atom)], self._program.relations)
        types = self._program.relations[atom.relation].types
        constants = [argument for argument in checked.head.arguments if isinstance(argument, Constant)]
        for constant, kind in zip(constants, types, strict=True):
            if not self._storage.fits(constant.value, kind):
                raise error_at(constant.position, f"{constant.value} is too large for a {kind}")
        return checked.head, (atom.relation, tuple(self._storage.value(constant.value) for constant in constants))

    def _holds(self, fact: Fact) -> bool:
        return bool(self.matching([fact[1]], fact[0], self._all))

    def matching(self, rows: Sequence[Row], relation: str, matcher: Matcher | None = None) -> set[int]:
        """The numbers of the rows that were inserted into a relation; with `matcher`, of those that it finds."""
        columns = self.columns(rows, relation)
        names = [f"v{place}" for place in range(len(columns))]
        types = dict(zip(names, self._program.relations[relation].types, strict=True))
        solutions = ColumnBatch({**dict(zip(names, columns, strict=True)), FACT: _numbers(len(rows))}, len(rows))
        matches = (matcher or self._inserted).extend(solutions, Atom(relation, tuple(map(Variable, names))), types, ())
        return set(matches.columns[FACT].to_pylist())

    def columns(self, rows: Sequence[Row], relation: str) -> list[pa.Array]:
        """Rows as columns."""
        kinds = map(self._storage.type, self._program.relations[relation].types)
        return [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]

    def rules_of(self, relation: str) -> list[CheckedRule]:
        """The rules of a relation, with heads without computed arguments, and with variables for wildcards."""
        relations = self._program.relations
        plain = (self._plain(rule) for rule in self._program.rules_by_head[relation])
        return [without_wildcards(rule, relations) for rule in plain]

    def _plain(self, rule: CheckedRule) -> CheckedRule:
        return with_equations(rule, self._program.relations, "b" * len(rule.head.arguments))

    def rule_text(self, relation: str, number: int) -> str:
        """A rule as it was written."""
        return str(self._program.rules_by_head[relation][number])

    def value(self, expression: Expression, rule: CheckedRule, solutions: ColumnBatch) -> pa.Array:
        """The value of an argument in each solution."""
        return self._all.value(expression, solutions, rule.types)

    def is_derived(self, relation: str) -> bool:
        return bool(self._program.rules_by_head[relation])

    def solve(self, rule: CheckedRule, solutions: ColumnBatch) -> ColumnBatch:
        return self._all.solve(rule.body, solutions, rule.types, _outer(rule))

    def head_solutions(self, rule: CheckedRule, rows: Sequence[Row], numbers: Sequence[int]) -> ColumnBatch:
        """The values of the head's variables for which the head is one of some rows."""
        relation = rule.head.relation
        columns: dict[str, pa.Array] = {FACT: pa.array(numbers, pa.int64())}
        fits = np.ones(len(rows), bool)
        for argument, column in zip(rule.head.arguments, self.columns(rows, relation), strict=True):
            match argument:
                case Constant(value=value):
                    fits &= to_numpy(pc.equal(column, pa.scalar(self._storage.value(value), column.type)))
                case Variable(name=name) if name in columns:
                    fits &= to_numpy(pc.equal(column, columns[name]))
                case Variable(name=name):
                    columns[name] = column
        return take(ColumnBatch(columns, len(rows)), np.flatnonzero(fits))

    def _failure(self, rule: CheckedRule, fact: Fact) -> RuleFailure:
        """Why a rule does not derive a fact: literals are evaluated in the order of the text, as far as possible."""
        plain = self._plain(rule)
        solutions, remaining, outer = self.head_solutions(plain, [fact[1]], [0]), list(plain.body), _outer(plain)
        if not solutions.count:
            return RuleFailure(str(rule), f"{rule.head} is never {self.shown_fact(fact)}", 0)
        while True:
            literal = next(literal for literal in remaining if is_ready(literal, solutions.columns, outer))
            remaining = [other for other in remaining if other is not literal]
            extended = self._all.extend(solutions, literal, plain.types, outer)
            if not extended.count:
                rows = range(min(_EXAMPLES, solutions.count))
                examples = (self.constants(plain, solutions, row) for row in rows)
                shown = tuple(
                    {name: str(value) for name, value in example.items() if name in rule.types} for example in examples
                )
                return RuleFailure(str(rule), str(literal), solutions.count, shown)
            solutions = extended

    # Words.

    def constants(self, rule: CheckedRule, solutions: ColumnBatch, row: int) -> dict[str, Constant]:
        """The values of the variables in a solution."""
        return {
            name: self._constant(column[row].as_py(), rule.types[name])
            for name, column in solutions.columns.items()
            if name in rule.types
        }

    def _constant(self, value: Any, kind: Primitive) -> Constant:
        if kind == "symbol" and self._storage.symbols is not None:
            value = self._storage.symbols.decode(pa.array([value], pa.int32()))[0].as_py()
        return Constant(value, _KINDS[kind])

    def shown_fact(self, fact: Fact) -> str:
        """A fact in words."""
        relation, row = fact
        kinds = self._program.relations[relation].types
        return str(Atom(relation, tuple(self._constant(value, kind) for value, kind in zip(row, kinds, strict=True))))


_KINDS: dict[Primitive, ConstantKind] = {
    "number": "integer",
    "unsigned": "integer",
    "float": "float",
    "symbol": "symbol",
}


def _numbers(count: int) -> pa.Array:
    return pa.array(np.arange(count))


def _outer(rule: CheckedRule) -> set[str]:
    """The variables of a rule outside aggregates."""
    return {name for part in (rule.head, *rule.body) for name in variables(part)}
