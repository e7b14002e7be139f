"""Magic sets: a program rewritten so that it computes only what some questions need.

A question binds some arguments of a relation: `tc(x, ?)` has the *adornment* `bf`, for bound and free. The rewritten
program has, for each adornment in which a relation is needed,

- `tc_bf`: the rows of `tc` whose bound arguments were asked for,
- `magic_tc_bf`: the bound arguments that were asked for,
- `sup_tc_bf_1_2`: what the literals of a rule before one of these have found, for magic relations and for the rest of
  the rule (*supplementary* magic sets).

    tc(x, y) :- edge(x, y).                     tc_bf(x, y) :- seed_tc_bf(x), edge(x, y).
    tc(x, z) :- tc(x, y), edge(y, z).           tc_bf(x, z) :- tc_bf(x, y), edge(y, z).

The arguments of the questions are the rows of a relation `seed_...`, which is given from outside.

Order. Literals are evaluated in the order in which bindings reach them, which is also the order of the rewritten
bodies: conditions as soon as their variables are bound, then atoms with bound arguments, relations without rules first.
No arithmetic is done on values that come from a question alone, only on values of rows; so the rewritten program
terminates wherever the program itself does.

In full. Some relations are not rewritten but used as they are: if no argument of theirs is bound, if they are used in
an aggregate inside an aggregate, or if they are negated or aggregated and their magic relation would depend on the
result (the rewritten program would not be stratified). `MagicProgram.in_full` gives the reasons. If the relation of the
question is one of them, nothing is rewritten: the question is answered from the relation itself.

Invariant: for each row of `magic_p_a`, the rows of `p_a` with these arguments are those of `p`; `p_a` has no others.

Cost: some passes over the rules for each adornment that the question leads to. Nothing here depends on facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ikebana.datalog.check import CheckedProgram, CheckedRule, Relation, check_rules, needed_variables
from ikebana.datalog.equations import with_equations
from ikebana.datalog.stratify import dependencies, rule_dependencies, stratify
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
    Rule,
    Variable,
    Wildcard,
    aggregates,
    variables,
)
from ikebana.datalog.types import Primitive

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MagicProgram:
    """A program that answers questions of one adornment."""

    relation: str
    adornment: str
    program: CheckedProgram
    answer: str
    """The relation with the answers, `relation` itself if it is computed in full."""
    seed: str
    """The relation with the bound arguments of the questions; "" if there is none."""
    facts: Mapping[str, str]
    """For each relation with rules: the relation of the rewritten program that stands for its inserted facts."""
    in_full: Mapping[str, str]
    """The relations with rules that are used as they are, and why."""

    @property
    def is_magic(self) -> bool:
        """Whether anything is rewritten."""
        return bool(self.seed)

    def __str__(self) -> str:
        question = f"{self.relation} ({self.adornment or 'no arguments'})"
        if not self.is_magic:
            reason = self.in_full.get(self.relation, "it has no rules")
            evaluated = ", which is evaluated in full" if self.relation in self.in_full else ""
            return f"{question}: read from the relation{evaluated}: {reason}"
        lines = [f"{question}: magic sets"]
        lines += [f"  {rule}" for rule in self.program.rules]
        lines += [f"  {name} is evaluated in full: {reason}" for name, reason in self.in_full.items()]
        return "\n".join(lines)


def rewrite(program: CheckedProgram, relation: str, adornment: str, with_facts: Collection[str] = ()) -> MagicProgram:
    """Rewrite a program for questions to a relation.

    `adornment` has a letter for each argument: `b` if it is bound, `f` if it is free. `with_facts` names the relations
    with rules into which facts may be inserted as well.

    >>> from ikebana.datalog.check import check
    >>> from ikebana.datalog.parser import parse
    >>> text = ".decl e(x: number, y: number) .decl t(x: number, y: number) "
    >>> program = parse(text + "t(x, y) :- e(x, y). t(x, z) :- t(x, y), e(y, z).")
    >>> print(rewrite(check(program), "t", "fb"))
    t (fb): magic sets
      magic_t_fb(y) :- seed_t_fb(y).
      t_fb(x, y) :- magic_t_fb(y), e(x, y).
      sup_t_fb_2_1(y, z) :- magic_t_fb(z), e(y, z).
      magic_t_fb(y) :- magic_t_fb(z), e(y, z).
      t_fb(x, z) :- sup_t_fb_2_1(y, z), t_fb(x, y).
    """
    in_full: dict[str, str] = {}
    is_derived = bool(program.rules_by_head[relation])
    while is_derived and "b" in adornment and relation not in in_full:
        rewriter = _Rewriter(program, with_facts, in_full)
        rewriter.rewrite(relation, adornment)
        refused = rewriter.in_full or _unstratified(rewriter.rules, rewriter.bases)
        if not refused:
            return rewriter.result(relation, adornment)
        in_full |= refused
    if is_derived and "b" not in adornment:
        in_full[relation] = "no argument is bound"
    return MagicProgram(relation, adornment, CheckedProgram({}, (), {}, (), ()), relation, "", {}, in_full)


@dataclass(slots=True)
class _Scope:
    """Which variables are bound at a point of a body.

    `grounded` are those that have a value of a row, or a constant; the others have only a value of a question.
    """

    outer: frozenset[str]
    """The variables of the rule outside aggregates: inside an aggregate they have the values of the rule."""
    bound: set[str] = field(default_factory=set)
    grounded: set[str] = field(default_factory=set)

    def needed(self, node: Literal | Expression) -> set[str]:
        """The variables that must be bound to evaluate a condition or an expression."""
        return needed_variables(node, self.outer)

    def is_bound(self, argument: Expression) -> bool:
        """Whether an argument has a value that may be asked for."""
        match argument:
            case Variable(name=name):
                return name in self.bound
            case Constant():
                return True
            case Wildcard() | Aggregate():
                return False
        return self.needed(argument) <= self.grounded and not any(aggregates(argument))

    def binds(self, literal: Comparison) -> str | None:
        """The variable that an equation binds now, if any."""
        if literal.operator != "=":
            return None
        for side, other in ((literal.left, literal.right), (literal.right, literal.left)):
            if isinstance(side, Variable) and side.name not in self.bound and self._has_value(other):
                return side.name
        return None

    def _has_value(self, expression: Expression) -> bool:
        return self.needed(expression) <= (self.bound if isinstance(expression, Variable) else self.grounded)

    def is_ready(self, literal: Literal) -> bool:
        """Whether a literal can be evaluated; of an atom, whether its expressions can be."""
        match literal:
            case Atom(arguments=arguments):
                complex_ = (a for a in arguments if isinstance(a, Call | Cast | Aggregate))
                return all(self.needed(argument) <= self.bound for argument in complex_)
            case Negation():
                return self.needed(literal) <= self.bound
        return self.needed(literal) <= self.bound or self.binds(literal) is not None

    def add(self, literal: Literal) -> None:
        """Record what is bound after a literal."""
        if isinstance(literal, Atom):
            names = {argument.name for argument in literal.arguments if isinstance(argument, Variable)}
            self.bound |= names
            self.grounded |= names
        elif isinstance(literal, Comparison) and literal.operator == "=":
            for side, other in ((literal.left, literal.right), (literal.right, literal.left)):
                if isinstance(side, Variable) and self._has_value(other):
                    self.bound.add(side.name)
                    if self.needed(other) <= self.grounded:
                        self.grounded.add(side.name)

    def copy(self) -> _Scope:
        return _Scope(self.outer, set(self.bound), set(self.grounded))


def _ordered(literals: Sequence[Literal], scope: _Scope, is_derived: Callable[[str], bool]) -> list[Literal]:
    """Literals in the order of evaluation; `scope` is that before the first one, and is not changed."""
    scope, remaining, result = scope.copy(), list(literals), list[Literal]()

    def preference(literal: Literal) -> tuple[int, int, int]:
        """Conditions first, then atoms with bound arguments, derived ones last, then what must be computed for them."""
        if not isinstance(literal, Atom):
            asks = any(is_derived(read.relation) for read in dependencies([literal]))
            return (1, 3 if any(aggregates(literal)) else 2, 0) if asks else (0, 0, 0)
        bound = sum(map(scope.is_bound, literal.arguments))
        wildcards = sum(isinstance(argument, Wildcard) for argument in literal.arguments)
        derived = is_derived(literal.relation)
        if not bound:
            return (3 if derived else 2, 0, 0)
        is_test = bound + wildcards == len(literal.arguments)
        return (1, -1, 0) if is_test and not derived else (1, int(derived), -bound)

    while remaining:
        ready = [place for place, literal in enumerate(remaining) if scope.is_ready(literal)]
        place = min(ready or range(len(remaining)), key=lambda place: preference(remaining[place]))
        chosen = remaining.pop(place)
        result.append(chosen)
        scope.add(chosen)
    return result


class _Rewriter:
    """Rewrites rules for one adornment after another, until no new one is needed."""

    def __init__(self, program: CheckedProgram, with_facts: Collection[str], in_full: Mapping[str, str]) -> None:
        self._program, self._with_facts, self._given = program, with_facts, in_full
        self._names = set(program.relations)
        self._known: dict[tuple[str, str], tuple[str, str]] = {}  # adorned and magic relation
        self._waiting: list[tuple[str, str]] = []
        self._facts: dict[str, str] = {}
        self._seed = ""
        self.rules: list[Rule] = []
        self._relations: dict[str, Relation] = {}
        self.bases: dict[str, str] = {}  # the relation that each adorned relation is a part of
        self.in_full: dict[str, str] = {}  # relations that turn out to be needed in full

    def rewrite(self, relation: str, adornment: str) -> None:
        """Rewrite everything that questions to a relation need."""
        _, magic = self._adorned(relation, adornment)
        self._seed = self._declare(f"seed_{relation}_{adornment}", self._program.relations[relation], adornment)
        names = _variables(self._relations[self._seed])
        self.rules.append(Rule(Atom(magic, names), (Atom(self._seed, names),)))
        while self._waiting:
            self._rewrite_relation(*self._waiting.pop(0))
        if sum(rule.head.relation == magic for rule in self.rules) == 1:  # nothing but the seed: use that
            self.rules = [_renamed(rule, magic, self._seed) for rule in self.rules[1:]]

    def result(self, relation: str, adornment: str) -> MagicProgram:
        """The rewritten program, with the relations that its rules use."""
        used = {self._seed} | {rule.head.relation for rule in self.rules}
        used |= {read.relation for rule in self.rules for read in rule_dependencies(rule)}
        known = {**self._program.relations, **self._relations}
        relations = {name: known[name] for name in known if name in used}
        strata = stratify(list(relations), self.rules)
        program = CheckedProgram(relations, tuple(check_rules(self.rules, relations)), {}, (), strata)
        answer, _ = self._known[relation, adornment]
        facts = {base: name for base, name in self._facts.items() if name in used}
        in_full = {name: reason for name, reason in self._given.items() if name in used}
        return MagicProgram(relation, adornment, program, answer, self._seed, facts, in_full)

    # Relations.

    def is_derived(self, relation: str) -> bool:
        """Whether a relation is rewritten, and not given."""
        return bool(self._program.rules_by_head[relation]) and relation not in self._given

    def _declare(self, name: str, like: Relation, adornment: str = "") -> str:
        """Declare a relation with the attributes of another one, or with the bound ones."""
        adornment = adornment or "b" * like.arity
        return self._new(name, _chosen(like.attributes, adornment), _chosen(like.types, adornment))

    def _new(self, name: str, attributes: Iterable[str], types: Iterable[Primitive]) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        self._relations[name] = Relation(name, tuple(attributes), tuple(types))
        return name

    def _adorned(self, relation: str, adornment: str) -> tuple[str, str]:
        """The names of the adorned and the magic relation."""
        key = relation, adornment
        if key not in self._known:
            like = self._program.relations[relation]
            adorned = self._declare(f"{relation}_{adornment}", like)
            self._known[key] = adorned, self._declare(f"magic_{relation}_{adornment}", like, adornment)
            self.bases[adorned] = relation
            self._waiting.append(key)
        return self._known[key]

    def _rewrite_relation(self, relation: str, adornment: str) -> None:
        adorned, magic = self._known[relation, adornment]
        if relation in self._with_facts:
            if relation not in self._facts:
                self._facts[relation] = self._declare(f"facts_{relation}", self._program.relations[relation])
            row = _variables(self._program.relations[relation])
            body = (Atom(magic, _chosen(row, adornment)), Atom(self._facts[relation], row))
            self.rules.append(Rule(Atom(adorned, row), body))
        for number, rule in enumerate(self._program.rules_by_head[relation], start=1):
            _RuleRewriting(self, rule, adornment, f"{relation}_{adornment}_{number}").rewrite(adorned, magic)

    # What the rewriting of a rule needs.

    def adorn(self, atom: Atom, scope: _Scope) -> tuple[Atom, Atom | None]:
        """The atom in the rewritten program, and the question that it asks; None if the relation is given."""
        if not self.is_derived(atom.relation):
            return atom, None
        adornment = "".join("b" if scope.is_bound(argument) else "f" for argument in atom.arguments)
        if "b" not in adornment:
            self.need_in_full(atom.relation, f"no argument of {atom} is bound when it is evaluated")
            return atom, None
        adorned, magic = self._adorned(atom.relation, adornment)
        return replace(atom, relation=adorned), Atom(magic, _chosen(atom.arguments, adornment))

    def need_in_full(self, relation: str, reason: str) -> None:
        self.in_full.setdefault(relation, reason)

    def supplementary(self, name: str, types: Mapping[str, Primitive]) -> str:
        """Declare a relation for some variables."""
        return self._new(f"sup_{name}", types, types.values())

    def with_equations(self, rule: CheckedRule, adornment: str) -> CheckedRule:
        return with_equations(rule, self._program.relations, adornment)


class _RuleRewriting:
    """Rewrites one rule for one adornment."""

    def __init__(self, rewriter: _Rewriter, rule: CheckedRule, adornment: str, name: str) -> None:
        self._rewriter, self._adornment, self._name = rewriter, adornment, name
        plain = rewriter.with_equations(rule, adornment)
        self._rule, self._types = plain.rule, plain.types
        outer = {name for literal in (*self._rule.body, self._rule.head) for name in variables(literal)}
        self._scope = _Scope(frozenset(outer))
        self._prefix: list[Literal] = []  # the literals before the present one, rewritten
        self._given: list[Literal] | None = []  # all of them, as long as none of them is derived
        self._supplements = 0

    def rewrite(self, adorned: str, magic: str) -> None:
        """Add the rules for the rows of the head, and for the questions that the body asks."""
        asked = Atom(magic, _chosen(self._rule.head.arguments, self._adornment))
        self._prefix, self._given = [asked], [asked]
        self._scope.bound |= set(variables(asked))
        literals = _ordered(self._rule.body, self._scope, self._rewriter.is_derived)
        for place, literal in enumerate(literals):
            rewritten = self._rewritten(literal, literals[place:])
            self._prefix.append(rewritten)
            self._extend_given(rewritten)
            self._scope.add(literal)
        self._rewriter.rules.append(Rule(replace(self._rule.head, relation=adorned), tuple(self._prefix)))

    def _rewritten(self, literal: Literal, rest: Sequence[Literal]) -> Literal:
        match literal:
            case Atom():
                adorned, question = self._rewriter.adorn(literal, self._scope)
                if question is not None and not self._ask(question, rest) and self._prefix == [question]:
                    self._prefix.clear()  # all rows of the adorned relation were asked for
                return adorned
            case Negation(atom=atom):
                adorned, question = self._rewriter.adorn(atom, self._scope)
                if question is not None:
                    self._ask(question, rest)
                return replace(literal, atom=adorned)
        left, right = (self._with_aggregates(side, rest) for side in (literal.left, literal.right))
        return replace(literal, left=left, right=right)

    def _ask(self, question: Atom, rest: Sequence[Literal], inner: Sequence[Literal] = ()) -> bool:
        """Add a rule for a magic relation, unless it says nothing; return whether it was added."""
        if question in self._prefix:
            return False
        self._supplement(rest)
        self._rewriter.rules.append(Rule(question, (*(self._given or self._prefix), *inner)))
        return True

    def _extend_given(self, literal: Literal) -> None:
        """Note a literal. What is asked before anything was derived needs no supplementary relation.

        If it had one, the supplementary relation would be part of the recursion of the magic relation: a second
        variable of that loop, and a second result.
        """
        if self._given is not None:
            is_derived = any(read.relation in self._rewriter.bases for read in dependencies([literal]))
            self._given = None if is_derived else [*self._given, literal]

    def _supplement(self, rest: Sequence[Literal]) -> None:
        """Replace the prefix by a supplementary relation, with the variables that are still needed."""
        if len(self._prefix) < 2:
            return
        needed = {name for literal in rest for name in self._scope.needed(literal)} | set(variables(self._rule.head))
        names = sorted(needed & self._scope.bound)
        if not names:
            return
        self._supplements += 1
        types = {name: self._types[name] for name in names}
        name = self._rewriter.supplementary(f"{self._name}_{self._supplements}", types)
        atom = Atom(name, tuple(map(Variable, names)))
        self._rewriter.rules.append(Rule(atom, tuple(self._prefix)))
        self._prefix = [atom]

    # Aggregates.

    def _with_aggregates(self, expression: Expression, rest: Sequence[Literal]) -> Expression:
        """The expression with the bodies of its aggregates rewritten."""
        match expression:
            case Aggregate():
                return self._aggregate(expression, rest)
            case Call(arguments=arguments):
                return replace(expression, arguments=tuple(self._with_aggregates(a, rest) for a in arguments))
            case Cast(expression=inner):
                return replace(expression, expression=self._with_aggregates(inner, rest))
        return expression

    def _aggregate(self, aggregate: Aggregate, rest: Sequence[Literal]) -> Aggregate:
        scope, body = self._scope.copy(), list[Literal]()
        for literal in _ordered(aggregate.body, scope, self._rewriter.is_derived):
            for nested in aggregates(literal):
                for read in dependencies(nested.body):
                    if self._rewriter.is_derived(read.relation):
                        self._rewriter.need_in_full(read.relation, "it is used in an aggregate inside an aggregate")
            body.append(self._rewritten_inside(literal, scope, body, rest))
            scope.add(literal)
        return replace(aggregate, body=tuple(body))

    def _rewritten_inside(
        self, literal: Literal, scope: _Scope, before: Sequence[Literal], rest: Sequence[Literal]
    ) -> Literal:
        atom = literal.atom if isinstance(literal, Negation) else literal
        if not isinstance(atom, Atom):
            return literal
        adorned, question = self._rewriter.adorn(atom, scope)
        if question is not None:
            self._ask(question, rest, before)
        return replace(literal, atom=adorned) if isinstance(literal, Negation) else adorned


def _chosen(values: Sequence[T], adornment: str) -> tuple[T, ...]:
    """The values in bound places."""
    return tuple(value for value, letter in zip(values, adornment, strict=True) if letter == "b")


def _variables(relation: Relation) -> tuple[Variable, ...]:
    """A variable for each attribute."""
    return tuple(map(Variable, relation.attributes))


def _renamed(rule: Rule, old: str, new: str) -> Rule:
    """The rule with another name for a relation that occurs only outside negations and aggregates."""
    body = (
        replace(literal, relation=new) if isinstance(literal, Atom) and literal.relation == old else literal
        for literal in rule.body
    )
    return replace(rule, body=tuple(body))


def _unstratified(rules: Iterable[Rule], bases: Mapping[str, str]) -> dict[str, str]:
    """The relations that are negated or aggregated in a rule on which they depend, with the reason."""
    uses: dict[str, set[str]] = {}
    negative: list[tuple[str, str]] = []
    for rule in rules:
        for read in rule_dependencies(rule):
            uses.setdefault(rule.head.relation, set()).add(read.relation)
            if read.through and read.relation in bases:
                negative.append((rule.head.relation, read.relation))
    reason = "it is negated or aggregated, and what is asked of it would depend on the result"
    return {bases[used]: reason for head, used in negative if head in _reachable(used, uses)}


def _reachable(start: str, uses: Mapping[str, Iterable[str]]) -> set[str]:
    """All relations that a relation depends on, directly or not."""
    reached, waiting = {start}, [start]
    while waiting:
        new = set(uses.get(waiting.pop(), ())) - reached
        reached |= new
        waiting.extend(new)
    return reached
