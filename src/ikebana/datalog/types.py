"""Types: declared names resolved to the four primitive types, and the type of every expression of a rule.

Variables, constants and functors of a rule are typed together: what is compared or computed with each other has one
type (`TypedRule` unites them in classes). The attributes of relations fix the types of their arguments. A class that
nothing fixes has type `number`. Subtypes of a primitive type are all alike: they document a program, and are not
checked against each other.

Cost: nearly linear in the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal as OneOf
from typing import TypeAlias

from ikebana.datalog import syntax
from ikebana.datalog.errors import did_you_mean, error_at, not_supported
from ikebana.datalog.syntax import Position

Primitive: TypeAlias = OneOf["number", "unsigned", "float", "symbol"]

PRIMITIVES: tuple[Primitive, ...] = ("number", "unsigned", "float", "symbol")
NUMERIC = frozenset[Primitive](["number", "unsigned", "float"])
INTEGER = frozenset[Primitive](["number", "unsigned"])
ANY = frozenset[Primitive](PRIMITIVES)
_NUMBER, _UNSIGNED = frozenset[Primitive](["number"]), frozenset[Primitive](["unsigned"])
_FLOAT, _SYMBOL = frozenset[Primitive](["float"]), frozenset[Primitive](["symbol"])


@dataclass(frozen=True, slots=True)
class Signature:
    """The types that arguments and result of a functor may have; if they are `same`, all have one type."""

    arguments: tuple[frozenset[Primitive], ...]
    result: frozenset[Primitive]
    same: bool = False
    variadic: bool = False


def _same(types: frozenset[Primitive], arity: int, *, variadic: bool = False) -> Signature:
    return Signature((types,) * arity, types, same=True, variadic=variadic)


SIGNATURES: dict[str, Signature] = {
    "+": _same(ANY, 2),  # of symbols, their concatenation
    **{functor: _same(NUMERIC, 2) for functor in ("-", "*", "/", "^")},
    **{functor: _same(INTEGER, 2) for functor in ("%", "band", "bor", "bxor", "bshl", "bshr", "bshru")},
    **{functor: _same(INTEGER, 2) for functor in ("land", "lor", "lxor")},
    "neg": _same(frozenset(["number", "float"]), 1),
    "bnot": _same(INTEGER, 1),
    "lnot": _same(INTEGER, 1),
    "min": _same(ANY, 2, variadic=True),
    "max": _same(ANY, 2, variadic=True),
    "cat": _same(_SYMBOL, 2, variadic=True),
    "strlen": Signature((_SYMBOL,), _NUMBER),
    "substr": Signature((_SYMBOL, _NUMBER, _NUMBER), _SYMBOL),
    "ord": Signature((_SYMBOL,), _NUMBER),
    "to_number": Signature((ANY,), _NUMBER),
    "to_unsigned": Signature((ANY,), _UNSIGNED),
    "to_float": Signature((ANY,), _FLOAT),
    "to_string": Signature((ANY,), _SYMBOL),
    "itof": Signature((_NUMBER,), _FLOAT),
    "itou": Signature((_NUMBER,), _UNSIGNED),
    "utof": Signature((_UNSIGNED,), _FLOAT),
    "utoi": Signature((_UNSIGNED,), _NUMBER),
    "ftoi": Signature((_FLOAT,), _NUMBER),
    "ftou": Signature((_FLOAT,), _UNSIGNED),
}
"""The functors, by name."""


# Declared types.


class TypeNames:
    """The declared types by name, resolved to primitive types."""

    def __init__(self, declarations: Iterable[syntax.TypeDeclaration]) -> None:
        self._declared: dict[str, syntax.TypeDeclaration] = {}
        for declaration in declarations:
            if declaration.name in self._declared or declaration.name in PRIMITIVES:
                raise error_at(declaration.position, f'type "{declaration.name}" is declared twice')
            self._declared[declaration.name] = declaration
        self._resolved: dict[str, Primitive] = {name: name for name in PRIMITIVES}
        for declaration in self._declared.values():
            self.resolve(declaration.name, declaration.position)

    def resolve(self, name: str, position: Position, above: tuple[str, ...] = ()) -> Primitive:
        """The primitive type of a type; the position is that of the name."""
        if name in self._resolved:
            return self._resolved[name]
        declaration = self._declared.get(name)
        if declaration is None:
            hint = did_you_mean(name, [*PRIMITIVES, *self._declared])
            raise error_at(position, f'there is no type "{name}"', hint=hint)
        if name in above:
            cycle = " -> ".join((*above[above.index(name) :], name))
            raise error_at(declaration.position, f'type "{name}" is defined by itself', detail=cycle)
        primitives = {self.resolve(base, declaration.position, (*above, name)) for base in declaration.bases}
        if len(primitives) > 1:
            what = f'type "{name}" unites {" and ".join(sorted(primitives))}'
            raise error_at(declaration.position, what, hint="unite types of the same kind only")
        self._resolved[name] = primitives.pop()
        return self._resolved[name]


# Types of expressions.


@dataclass(eq=False)
class _Class:
    """Expressions that have one type: one of `types`. `origin` says where that comes from."""

    types: frozenset[Primitive] = ANY
    origin: str = ""
    parent: _Class | None = None

    def root(self) -> _Class:
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def type(self) -> Primitive:
        """The type; where several are possible, the first in the order of `PRIMITIVES`."""
        return next(name for name in PRIMITIVES if name in self.root().types)


class RuleTypes:
    """Infers the types of one rule. Variables are those of the whole rule, aggregates included."""

    def __init__(self, relations: Mapping[str, tuple[Primitive, ...]], names: TypeNames) -> None:
        self._relations, self._names = relations, names
        self._variables: dict[str, _Class] = {}
        self._constants: dict[int, _Class] = {}  # by identity: equal constants may have different types

    @property
    def variables(self) -> dict[str, Primitive]:
        """The types of the variables."""
        return {name: member.type for name, member in self._variables.items()}

    def literal(self, literal: syntax.Literal) -> None:
        match literal:
            case syntax.Atom():
                self.atom(literal)
            case syntax.Negation():
                self.atom(literal.atom)
            case syntax.Comparison():
                left, right = self._expression(literal.left), self._expression(literal.right)
                if literal.operator.lstrip("!") in ("match", "contains"):
                    self._restrict(left, _SYMBOL, literal.operator, literal.left.position)
                    self._restrict(right, _SYMBOL, literal.operator, literal.right.position)
                else:
                    self._unite(left, right, literal.position)

    def atom(self, atom: syntax.Atom) -> None:
        for at, (argument, kind) in enumerate(zip(atom.arguments, self._relations[atom.relation], strict=True), 1):
            if not isinstance(argument, syntax.Wildcard):
                origin = f"argument {at} of {atom.relation} is a {kind}"
                self._restrict(self._expression(argument), frozenset([kind]), origin, argument.position)

    def _expression(self, expression: syntax.Expression) -> _Class:
        match expression:
            case syntax.Variable(name=name):
                return self._variables.setdefault(name, _Class())
            case syntax.Constant(kind=kind):
                return self._constants.setdefault(id(expression), _constant_class(kind))
            case syntax.Call():
                return self._call(expression)
            case syntax.Cast():
                return self._cast(expression)
            case syntax.Aggregate():
                return self._aggregate(expression)
            case _:
                raise error_at(expression.position, "_ has no value here", hint="use a variable")

    def _call(self, call: syntax.Call) -> _Class:
        signature = SIGNATURES[call.functor]
        arity = len(signature.arguments)
        given = len(call.arguments)
        if given < arity or (given > arity and not signature.variadic):
            raise error_at(call.position, f"{call.functor} takes {arity} arguments, not {given}")
        last = signature.arguments[-1]
        wanted = (*signature.arguments, *((last,) * (given - arity)))
        result = _Class(signature.result, f"{call.functor} gives a {_listed(signature.result)}")
        for argument, types in zip(call.arguments, wanted, strict=True):
            member = self._expression(argument)
            self._restrict(member, types, f"{call.functor} takes a {_listed(types)}", argument.position)
            if signature.same:
                self._unite(result, member, call.position)
        return result

    def _cast(self, cast: syntax.Cast) -> _Class:
        target = self._names.resolve(cast.type, cast.position)
        source = self._expression(cast.expression)
        allowed = INTEGER if target in INTEGER else frozenset([target])
        if not source.root().types & allowed:
            hint = "use to_number, to_string, itof or ftoi to convert values"
            raise not_supported(cast.position, f"as() from {_listed(source.root().types)} to {target} is", hint)
        self._restrict(source, allowed, f"as() to {target}", cast.position)
        return _Class(frozenset([target]), f"as() gives a {target}")

    def _aggregate(self, aggregate: syntax.Aggregate) -> _Class:
        for literal in aggregate.body:
            self.literal(literal)
        if aggregate.target is None:
            return _Class(_NUMBER, "count gives a number")
        target = self._expression(aggregate.target)
        if aggregate.function in ("sum", "mean"):
            self._restrict(target, NUMERIC, f"{aggregate.function} takes numbers", aggregate.target.position)
        return _Class(_FLOAT, "mean gives a float") if aggregate.function == "mean" else target

    def _restrict(self, member: _Class, types: frozenset[Primitive], origin: str, position: Position) -> None:
        self._unite(member, _Class(types, origin), position)

    def _unite(self, left: _Class, right: _Class, position: Position) -> None:
        first, second = left.root(), right.root()
        if first is second:
            return
        types = first.types & second.types
        if not types:
            detail = "\n".join(origin for origin in (first.origin, second.origin) if origin)
            what = f"types do not agree: {_listed(first.types)} and {_listed(second.types)}"
            raise error_at(position, what, detail=detail, hint=_conversion(first.types | second.types))
        if second.types == types and first.types != types:
            first.origin = second.origin
        first.types, second.parent = types, first
        first.origin = first.origin or second.origin

    # The result.

    def typed(self, rule: syntax.Rule) -> syntax.Rule:
        """The rule with a type for every constant."""
        head = self._typed_atom(rule.head)
        return replace(rule, head=head, body=tuple(self._typed_literal(literal) for literal in rule.body))

    def _typed_atom(self, atom: syntax.Atom) -> syntax.Atom:
        return replace(atom, arguments=tuple(map(self._typed, atom.arguments)))

    def _typed_literal(self, literal: syntax.Literal) -> syntax.Literal:
        match literal:
            case syntax.Atom():
                return self._typed_atom(literal)
            case syntax.Negation():
                return replace(literal, atom=self._typed_atom(literal.atom))
            case syntax.Comparison():
                return replace(literal, left=self._typed(literal.left), right=self._typed(literal.right))

    def _typed(self, expression: syntax.Expression) -> syntax.Expression:
        match expression:
            case syntax.Constant(kind="integer", value=value):
                kind = self._constants[id(expression)].type
                return replace(expression, kind=kind, value=float(value) if kind == "float" else value)
            case syntax.Call():
                return replace(expression, arguments=tuple(map(self._typed, expression.arguments)))
            case syntax.Cast():
                kind = self._names.resolve(expression.type, expression.position)
                return replace(expression, expression=self._typed(expression.expression), type=kind)
            case syntax.Aggregate():
                target = None if expression.target is None else self._typed(expression.target)
                body = tuple(self._typed_literal(literal) for literal in expression.body)
                return replace(expression, target=target, body=body)
            case _:
                return expression


def _constant_class(kind: syntax.ConstantKind) -> _Class:
    if kind == "integer":
        return _Class(NUMERIC, "an integer")
    return _Class(frozenset([kind]), f"a constant of type {kind}")


def _listed(types: Iterable[Primitive]) -> str:
    return " or ".join(name for name in PRIMITIVES if name in types)


def _conversion(types: frozenset[Primitive]) -> str:
    if "symbol" in types:
        return "convert with to_number or to_string"
    return "convert with itof, itou, utof, utoi, ftoi or ftou, or write constants as 1.0 or 1u"


def type_of(expression: syntax.Expression, variables: Mapping[str, Primitive]) -> Primitive:
    """The type of an expression of a checked rule."""
    match expression:
        case syntax.Variable(name=name):
            return variables[name]
        case syntax.Constant(kind=kind):
            assert kind != "integer", "a rule that was not checked"
            return kind
        case syntax.Call(functor=functor, arguments=arguments):
            signature = SIGNATURES[functor]
            return type_of(arguments[0], variables) if signature.same else next(iter(signature.result))
        case syntax.Cast(type=kind):
            return kind  # type: ignore[return-value]
        case syntax.Aggregate(function=function, target=target):
            if function == "mean":
                return "float"
            return "number" if target is None else type_of(target, variables)
        case _:
            raise AssertionError("a wildcard has no type")
