"""The syntax tree of Datalog programs: immutable values with positions.

`parse` (`ikebana.datalog.parser`) produces a `Program`. Bodies are flat: the parser writes a rule with several heads,
with `;`, with parentheses or with a negated conjunction as several rules, each with one head and one conjunction of
literals (disjunctive normal form). A fact is a rule with an empty body.

Expressions are variables, wildcards, constants, calls of functors (operators are functors with the operator's name),
casts and aggregates. Literals are atoms, negated atoms and comparisons. `match` and `contains` are comparisons too.

Two nodes are equal if they are written alike: positions are not compared.

Cost: a tree is about as large as its text. Trees are hashable, and are shared rather than copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a source: lines and columns count from 1; `text` is the whole line."""

    source: str
    line: int
    column: int
    text: str = field(repr=False, default="")
    width: int = 1

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


NOWHERE = Position("<generated>", 0, 0)
"""The position of nodes that no text contains."""


# Expressions.


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, by name."""

    name: str
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`_`: a value that nothing else refers to."""

    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return "_"


ConstantKind: TypeAlias = OneOf["integer", "number", "unsigned", "float", "symbol"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant. An `integer` (`1`, `0xff`) may have any numeric type; checking a program decides for one of them."""

    value: int | float | str
    kind: ConstantKind
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        if isinstance(self.value, str):
            escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
            return f'"{escaped}"'
        return f"{self.value}u" if self.kind == "unsigned" else str(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """A functor applied to arguments; `-x` is `neg`, other operators have their own names (`+`, `band`, ...)."""

    functor: str
    arguments: tuple[Expression, ...]
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        if self.functor == "neg":
            return f"-{self.arguments[0]}"
        if self.functor in INFIX:
            return "(" + f" {self.functor} ".join(map(str, self.arguments)) + ")"
        return f"{self.functor}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Cast:
    """`as(expression, type)`: the same bits with another type."""

    expression: Expression
    type: str
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return f"as({self.expression}, {self.type})"


AggregateFunction: TypeAlias = OneOf["count", "sum", "min", "max", "mean"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the distinct solutions of a body; `count` has no target.

    A wildcard in an atom of the body counts as a variable of its own.
    """

    function: AggregateFunction
    target: Expression | None
    body: tuple[Literal, ...]
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        target = "" if self.target is None else f" {self.target}"
        return f"{self.function}{target} : {{ {', '.join(map(str, self.body))} }}"


Expression: TypeAlias = Variable | Wildcard | Constant | Call | Cast | Aggregate

INFIX = frozenset(["+", "-", "*", "/", "%", "^", "band", "bor", "bxor", "bshl", "bshr", "bshru", "land", "lor", "lxor"])
"""Functors that are written between their two arguments."""


# Literals.


@dataclass(frozen=True, slots=True)
class Atom:
    """`relation(arguments)`."""

    relation: str
    arguments: tuple[Expression, ...]
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.relation}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Negation:
    """`!atom`."""

    atom: Atom
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return f"!{self.atom}"


ComparisonOperator: TypeAlias = OneOf["=", "!=", "<", "<=", ">", ">=", "match", "contains", "!match", "!contains"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition on two expressions. `=` with a variable may also bind the variable."""

    operator: ComparisonOperator
    left: Expression
    right: Expression
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        if self.operator.lstrip("!").isalpha():
            return f"{self.operator}({self.left}, {self.right})"
        return f"{self.left} {self.operator} {self.right}"


Literal: TypeAlias = Atom | Negation | Comparison

INVERSE: dict[ComparisonOperator, ComparisonOperator] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "match": "!match",
    "!match": "match",
    "contains": "!contains",
    "!contains": "contains",
}
"""The operator that holds exactly where an operator does not."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`head :- body.`; a fact if the body is empty."""

    head: Atom
    body: tuple[Literal, ...] = ()
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    @property
    def is_fact(self) -> bool:
        return not self.body

    def __str__(self) -> str:
        return f"{self.head} :- {', '.join(map(str, self.body))}." if self.body else f"{self.head}."


# Declarations.


@dataclass(frozen=True, slots=True)
class TypeDeclaration:
    """`.type name <: base` (a subtype) or `.type name = base | base` (an alias or a union)."""

    name: str
    bases: tuple[str, ...]
    is_subtype: bool
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column of a relation: its name, and the name of its type as it is written."""

    name: str
    type: str
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RelationDeclaration:
    """`.decl name(attributes) qualifiers`."""

    name: str
    attributes: tuple[Attribute, ...]
    qualifiers: frozenset[str] = frozenset()
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    @property
    def arity(self) -> int:
        return len(self.attributes)


DirectiveKind: TypeAlias = OneOf["input", "output", "printsize"]


@dataclass(frozen=True, slots=True)
class Directive:
    """`.input`, `.output` or `.printsize` of one relation, with its options."""

    kind: DirectiveKind
    relation: str
    options: tuple[tuple[str, str], ...] = ()
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ComponentType:
    """A component with type arguments: `Name<A, B>`."""

    name: str
    arguments: tuple[str, ...] = ()
    position: Position = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name}<{', '.join(self.arguments)}>" if self.arguments else self.name


@dataclass(frozen=True, slots=True)
class Instance:
    """`.init name = type`."""

    name: str
    type: ComponentType
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Component:
    """`.comp type : bases { contents }`; `overrides` are relations whose inherited rules are left out."""

    type: ComponentType
    bases: tuple[ComponentType, ...]
    contents: Program
    overrides: tuple[str, ...] = ()
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Program:
    """A program, or the contents of a component, in the order of the text."""

    types: tuple[TypeDeclaration, ...] = ()
    relations: tuple[RelationDeclaration, ...] = ()
    rules: tuple[Rule, ...] = ()
    directives: tuple[Directive, ...] = ()
    components: tuple[Component, ...] = ()
    instances: tuple[Instance, ...] = ()


# Walking.


def expressions(node: Literal | Expression) -> Iterator[Expression]:
    """All expressions in a literal or an expression, outermost first, without those inside aggregates' bodies."""
    match node:
        case Atom(arguments=arguments):
            for argument in arguments:
                yield from expressions(argument)
        case Negation(atom=atom):
            yield from expressions(atom)
        case Comparison(left=left, right=right):
            yield from expressions(left)
            yield from expressions(right)
        case _:
            yield node
            match node:
                case Call(arguments=arguments):
                    for argument in arguments:
                        yield from expressions(argument)
                case Cast(expression=expression):
                    yield from expressions(expression)


def variables(node: Literal | Expression) -> Iterator[str]:
    """The names of the variables in a literal or an expression, without those that occur only inside aggregates."""
    return (expression.name for expression in expressions(node) if isinstance(expression, Variable))


def aggregates(node: Literal | Expression) -> Iterator[Aggregate]:
    """The aggregates in a literal or an expression, without those inside other aggregates."""
    return (expression for expression in expressions(node) if isinstance(expression, Aggregate))


def inner_variables(aggregate: Aggregate) -> set[str]:
    """The variables in the body and the target of an aggregate, also those of aggregates inside."""
    parts: tuple[Literal | Expression, ...] = aggregate.body
    if aggregate.target is not None:
        parts += (aggregate.target,)
    names: set[str] = set()
    for part in parts:
        names.update(variables(part))
        for inner in aggregates(part):
            names |= inner_variables(inner)
    return names
