"""Why a fact holds, and why it does not: proofs from the rows of the relations.

    tc(1, 3)    tc(x, z) :- tc(x, y), edge(y, z).
    ├─ tc(1, 2)    tc(x, y) :- edge(x, y).
    │  └─ edge(1, 2)
    └─ edge(2, 3)

The *height* of a fact that was inserted is 0, and that of a derived fact is one more than that of its highest premise,
by the rule and the values for which this is least. `Explainer.why` returns a proof of least height. Negated atoms,
comparisons and aggregates are premises without a proof of their own; they add nothing to the height.

Search. The rules are read backwards: for the facts of each level, all premises that the relations contain are looked
up, a level at a time; these are the facts of the next level. Heights are passed back as soon as they are known. A proof
of height h uses no facts below level h, so the search ends at the level where no proof can be lower than the one that
was found. Every fact is looked up once, so it ends for recursive rules, too.

Cost: for each level and rule, a pass over the relations of its body in Arrow (`ikebana.datalog.matching`). What is done
in Python is in proportion to the premises of the facts that a proof of that height could use.

Not guaranteed: which of several proofs of least height is returned.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.datalog.check import CheckedProgram, CheckedRule, check_rules
from ikebana.datalog.equations import with_equations, without_wildcards
from ikebana.datalog.errors import did_you_mean, error_at
from ikebana.datalog.matching import Matcher, Rows, is_ready, take
from ikebana.datalog.parser import parse_atom
from ikebana.datalog.storage import Storage
from ikebana.datalog.syntax import (
    Aggregate,
    Atom,
    Call,
    Cast,
    Comparison,
    Constant,
    ConstantKind,
    Expression,
    Literal,
    Negation,
    Rule,
    Variable,
    Wildcard,
    variables,
)
from ikebana.datalog.types import Primitive
from ikebana.encoding.arrow import to_numpy
from ikebana.errors import DatalogError
from ikebana.expressions import ColumnBatch

Row = tuple[Any, ...]
Fact = tuple[str, Row]
"""A relation and a row, as it is stored."""

_FACT = " fact"
"""A column with the number of the fact that a solution derives; variables have no spaces."""

_EXAMPLES = 3
"""The number of examples of values for which a literal fails."""


@dataclass(frozen=True)
class Proof:
    """A fact, and why it holds: the rule and its premises, or no rule if the fact was inserted."""

    fact: str
    height: int
    rule: str | None = None
    premises: tuple[Proof | str, ...] = ()
    """Proofs of the atoms, and the conditions that hold, with values in place of variables."""
    is_repeated: bool = False
    """Whether the proof of the fact is found earlier in the tree, and left out here."""

    def to_dict(self) -> dict[str, Any]:
        """The proof as nested dictionaries."""
        root: dict[str, Any] = {}
        waiting: list[tuple[Proof, dict[str, Any]]] = [(self, root)]
        while waiting:
            proof, result = waiting.pop()
            result |= proof._head()
            if proof.rule is not None and not proof.is_repeated:
                premises = result["premises"] = [
                    {} if isinstance(p, Proof) else {"condition": p} for p in proof.premises
                ]
                pairs = zip(proof.premises, premises, strict=True)
                waiting += [(premise, entry) for premise, entry in pairs if isinstance(premise, Proof)]
        return root

    def to_json(self) -> str:
        """The proof as JSON, with the structure of `to_dict`."""
        parts: list[str] = []
        waiting: list[Proof | str] = [self]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                parts.append(part)
                continue
            head = json.dumps(part._head(), ensure_ascii=False)
            if part.rule is None or part.is_repeated:
                parts.append(head)
                continue
            parts.append(f'{head[:-1]}, "premises": [')
            waiting.append("]}")
            for number, premise in reversed(list(enumerate(part.premises))):
                is_proof = isinstance(premise, Proof)
                waiting.append(premise if is_proof else json.dumps({"condition": premise}, ensure_ascii=False))
                if number:
                    waiting.append(", ")
        return "".join(parts)

    def _head(self) -> dict[str, Any]:
        """All but the premises."""
        result: dict[str, Any] = {"fact": self.fact, "height": self.height}
        if self.rule is not None:
            result["rule"] = self.rule
        return {**result, "repeated": True} if self.is_repeated else result

    def __str__(self) -> str:
        lines: list[str] = []
        waiting: list[tuple[Proof | str, str, str]] = [(self, "", "")]  # with what its line and those below begin
        while waiting:
            part, first, rest = waiting.pop()
            if isinstance(part, str):
                lines.append(first + part)
                continue
            rule = "" if part.rule is None else f"    {part.rule}"
            lines.append(f"{first}{part.fact}{rule}{' (see above)' if part.is_repeated else ''}")
            for number, premise in reversed(list(enumerate(part.premises, start=1))):
                is_last = number == len(part.premises)
                branch, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
                waiting.append((premise, rest + branch, rest + below))
        return "\n".join(lines)


@dataclass(frozen=True)
class Failure:
    """A rule that does not derive a fact: the first literal that fails, and for which values of variables."""

    rule: str
    literal: str
    count: int
    """For how many values of the variables of the literals before it the literal is evaluated."""
    examples: tuple[Mapping[str, str], ...] = ()

    def __str__(self) -> str:
        if not self.count:
            return f"{self.rule}\n  does not match: {self.literal}"
        shown = "; ".join(", ".join(f"{name} = {value}" for name, value in one.items()) for one in self.examples)
        others = self.count - len(self.examples)
        more = f" (and {others} other{'s' if others > 1 else ''})" if others else ""
        return f"{self.rule}\n  {self.literal} fails" + (f" for {shown}{more}" if shown else "")


@dataclass(frozen=True)
class WhyNot:
    """A fact that does not hold, and why each rule of its relation fails to derive it."""

    fact: str
    failures: tuple[Failure, ...]

    def to_dict(self) -> dict[str, Any]:
        """The reasons as nested dictionaries."""
        failures = [
            {"rule": f.rule, "literal": f.literal, "count": f.count, "examples": [dict(one) for one in f.examples]}
            for f in self.failures
        ]
        return {"fact": self.fact, "failures": failures}

    def to_json(self) -> str:
        """The reasons as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        if not self.failures:
            return f"{self.fact} was not inserted, and no rule derives its relation"
        lines = [f"{self.fact} was not inserted, and no rule derives it:"]
        lines += [f"  {line}" for failure in self.failures for line in str(failure).splitlines()]
        return "\n".join(lines)


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
        return _Search(self, fact).proof()

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
        solutions = ColumnBatch({**dict(zip(names, columns, strict=True)), _FACT: _numbers(len(rows))}, len(rows))
        matches = (matcher or self._inserted).extend(solutions, Atom(relation, tuple(map(Variable, names))), types, ())
        return set(matches.columns[_FACT].to_pylist())

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
        columns: dict[str, pa.Array] = {_FACT: pa.array(numbers, pa.int64())}
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

    def _failure(self, rule: CheckedRule, fact: Fact) -> Failure:
        """Why a rule does not derive a fact: literals are evaluated in the order of the text, as far as possible."""
        plain = self._plain(rule)
        solutions, remaining, outer = self.head_solutions(plain, [fact[1]], [0]), list(plain.body), _outer(plain)
        if not solutions.count:
            return Failure(str(rule), f"{rule.head} is never {self.shown_fact(fact)}", 0)
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
                return Failure(str(rule), str(literal), solutions.count, shown)
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


@dataclass(eq=False, slots=True)
class _Node:
    """A fact in the search."""

    fact: Fact
    height: float = math.inf
    best: _Instance | None = None
    """The rule and values of the lowest proof so far; None if the fact was inserted."""
    used_by: list[_Instance] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Instance:
    """A rule that derives a fact for some values of its variables."""

    derives: _Node
    premises: tuple[_Node, ...]
    rule: int
    solutions: ColumnBatch
    row: int

    @property
    def height(self) -> float:
        return 1 + max((node.height for node in self.premises), default=0)


class _Search:
    """The search for a proof of one fact."""

    def __init__(self, explainer: Explainer, fact: Fact) -> None:
        self._explainer = explainer
        self._goal = _Node(fact)
        self._nodes = {fact: self._goal}
        self._rules: dict[str, list[CheckedRule]] = {}

    def proof(self) -> Proof:
        """A proof of least height."""
        level, depth = [self._goal], 0
        while level and self._goal.height > depth:
            level = self._expand(level)
            depth += 1
        return self._tree()

    # Searching.

    def _expand(self, level: Sequence[_Node]) -> list[_Node]:
        """Look up the premises of some facts; return those that are new."""
        by_relation: dict[str, list[_Node]] = {}
        for node in level:
            by_relation.setdefault(node.fact[0], []).append(node)
        new: list[_Node] = []
        for relation, nodes in by_relation.items():
            inserted = self._explainer.matching([node.fact[1] for node in nodes], relation)
            for number in inserted:
                nodes[number].height = 0
                self._pass_on(nodes[number])
            derived = [node for number, node in enumerate(nodes) if number not in inserted]
            if derived:
                for number in range(len(self._rules_of(relation))):
                    new += self._apply_backwards(relation, number, derived)
        return new

    def _rules_of(self, relation: str) -> list[CheckedRule]:
        if relation not in self._rules:
            self._rules[relation] = self._explainer.rules_of(relation)
        return self._rules[relation]

    def _apply_backwards(self, relation: str, number: int, nodes: Sequence[_Node]) -> list[_Node]:
        """Look up the premises of some facts by one rule."""
        explainer, rule = self._explainer, self._rules_of(relation)[number]
        start = explainer.head_solutions(rule, [node.fact[1] for node in nodes], range(len(nodes)))
        if not start.count:
            return []
        solutions = explainer.solve(rule, start)
        atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
        atoms = [atom for atom in atoms if explainer.is_derived(atom.relation)]
        premises = [self._rows(rule, atom, solutions) for atom in atoms]
        new: list[_Node] = []
        for row, of in enumerate(solutions.columns[_FACT].to_pylist()):
            used = tuple(
                self._node((atom.relation, rows[row]), new) for atom, rows in zip(atoms, premises, strict=True)
            )
            instance = _Instance(nodes[of], used, number, solutions, row)
            for node in used:
                node.used_by.append(instance)
            self._improve(instance)
        return new

    def _rows(self, rule: CheckedRule, atom: Atom, solutions: ColumnBatch) -> list[Row]:
        """The row of an atom in each solution."""
        values = (self._explainer.value(argument, rule, solutions).to_pylist() for argument in atom.arguments)
        return list(zip(*values, strict=True)) if atom.arguments else [()] * solutions.count

    def _node(self, fact: Fact, new: list[_Node]) -> _Node:
        node = self._nodes.get(fact)
        if node is None:
            node = self._nodes[fact] = _Node(fact)
            new.append(node)
        return node

    def _improve(self, instance: _Instance) -> None:
        """Take an instance as the proof of its fact if it is lower than the present one."""
        waiting = [instance]
        while waiting:
            instance = waiting.pop()
            if instance.height < instance.derives.height:
                instance.derives.height, instance.derives.best = instance.height, instance
                waiting += instance.derives.used_by

    def _pass_on(self, node: _Node) -> None:
        for instance in node.used_by:
            self._improve(instance)

    # The result. Proofs may be deeper than Python's stack, so they are built from below.

    def _tree(self) -> Proof:
        """The lowest proof; the proof of a fact that is used several times is shown where it comes first."""
        first_use = self._first_uses()
        proofs: dict[Fact, Proof] = {}
        for node in sorted((self._nodes[fact] for fact in first_use), key=lambda node: node.height):
            proofs[node.fact] = self._proof_of(node, proofs, first_use)
        return proofs[self._goal.fact]

    def _first_uses(self) -> dict[Fact, tuple[Fact, int]]:
        """Where each fact comes first in the text of the proof: as which premise of which fact."""
        uses: dict[Fact, tuple[Fact, int]] = {}
        waiting: list[tuple[_Node, tuple[Fact, int]]] = [(self._goal, (self._goal.fact, -1))]
        while waiting:
            node, use = waiting.pop()
            if node.fact not in uses:
                uses[node.fact] = use
                premises = list(enumerate(node.best.premises if node.best else ()))
                waiting += [(premise, (node.fact, number)) for number, premise in reversed(premises)]
        return uses

    def _proof_of(self, node: _Node, proofs: Mapping[Fact, Proof], first_use: Mapping[Fact, tuple[Fact, int]]) -> Proof:
        """The proof of a fact, given those of its premises."""
        explainer, instance = self._explainer, node.best
        fact, height = explainer.shown_fact(node.fact), int(node.height)
        if instance is None:
            return Proof(fact, height)
        rule = self._rules_of(node.fact[0])[instance.rule]
        values = explainer.constants(rule, instance.solutions, instance.row)
        numbers, premises = iter(range(len(instance.premises))), list[Proof | str]()
        for literal in rule.body:
            if not isinstance(literal, Atom):
                premises.append(str(_substituted(literal, values)))
            elif explainer.is_derived(literal.relation):
                number = next(numbers)
                used = instance.premises[number].fact
                proof = proofs[used]
                if proof.rule is not None and first_use[used] != (node.fact, number):
                    proof = replace(proof, premises=(), is_repeated=True)
                premises.append(proof)
            else:
                (row,) = self._rows(rule, literal, take(instance.solutions, np.array([instance.row])))
                premises.append(Proof(explainer.shown_fact((literal.relation, row)), 0))
        return Proof(fact, height, explainer.rule_text(node.fact[0], instance.rule), tuple(premises))


def _substituted(literal: Literal, values: Mapping[str, Constant]) -> Literal:
    """A literal with values in place of variables."""
    match literal:
        case Atom(arguments=arguments):
            return replace(literal, arguments=tuple(_with_values(argument, values) for argument in arguments))
        case Negation(atom=atom):
            return Negation(Atom(atom.relation, tuple(_with_values(argument, values) for argument in atom.arguments)))
        case Comparison(left=left, right=right):
            return replace(literal, left=_with_values(left, values), right=_with_values(right, values))


def _with_values(expression: Expression, values: Mapping[str, Constant]) -> Expression:
    match expression:
        case Variable(name=name):
            return values.get(name, expression)
        case Call(arguments=arguments):
            return replace(expression, arguments=tuple(_with_values(argument, values) for argument in arguments))
        case Cast(expression=inner):
            return replace(expression, expression=_with_values(inner, values))
        case Aggregate(target=target, body=body):
            target = None if target is None else _with_values(target, values)
            return replace(expression, target=target, body=tuple(_substituted(part, values) for part in body))
        case Constant() | Wildcard():
            return expression
