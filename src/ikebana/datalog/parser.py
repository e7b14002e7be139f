"""From text to a syntax tree: `parse`.

The grammar (`grammar.lark`) is that of Soufflé's core. A transformer turns the parser's productions into the values of
`ikebana.datalog.syntax`, with bodies in disjunctive normal form. What Ikebana does not support is refused here by name,
as far as the syntax shows it.

Cost: linear in the text, except that the rules for nested `;` multiply. The parser's tables are built once for each
process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lark
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError

from ikebana.datalog import syntax
from ikebana.datalog.errors import error_at, not_supported
from ikebana.datalog.preprocessor import Line, Preprocessor
from ikebana.datalog.syntax import Atom, Call, Comparison, Constant, Literal, Negation, Position
from ikebana.errors import DatalogError


def parse(text: str, source: str = "<text>", *, defines: Mapping[str, str] | None = None) -> syntax.Program:
    """Parse a program. Included files are relative to the working directory.

    >>> program = parse(".decl edge(x: number, y: number)  edge(1, 2).  edge(y, x) :- edge(x, y).")
    >>> for rule in program.rules:
    ...     print(rule)
    edge(1, 2).
    edge(y, x) :- edge(x, y).
    """
    preprocessor = Preprocessor()
    preprocessor.define(defines or {})
    preprocessor.read(text, source)
    return _parse_lines(preprocessor.lines, "start")


def parse_file(
    path: str | Path, *, defines: Mapping[str, str] | None = None, include: Sequence[str | Path] = ()
) -> syntax.Program:
    """Parse the program in a file. Included files are relative to the including file, or in a folder of `include`."""
    preprocessor = Preprocessor([Path(folder) for folder in include])
    preprocessor.define(defines or {})
    preprocessor.read_file(Path(path))
    return _parse_lines(preprocessor.lines, "start")


def parse_source(
    program: str | Path, *, defines: Mapping[str, str] | None = None, include: Sequence[str | Path] = ()
) -> syntax.Program:
    """Parse a program: a path (a `Path`, or a string that ends in `.dl`), or its text."""
    if isinstance(program, Path) or (program.endswith(".dl") and "\n" not in program):
        return parse_file(program, defines=defines, include=include)
    return parse(program, defines=defines)


def parse_atom(text: str, source: str = "<query>") -> Atom:
    """Parse a single atom, as in queries.

    >>> print(parse_atom('edge(1, _)'))
    edge(1, _)
    """
    return _parse_lines([Line(line, source, number) for number, line in enumerate(text.splitlines(), 1)], "atom")


def parse_rule(text: str, source: str = "<rule>") -> tuple[syntax.Rule, ...]:
    """Parse a single rule or fact, which may stand for several rules (see `ikebana.datalog.syntax`)."""
    program = _parse_lines([Line(line, source, number) for number, line in enumerate(text.splitlines(), 1)], "start")
    return program.rules


@cache
def _grammar() -> lark.Lark:
    text = (Path(__file__).parent / "grammar.lark").read_text()
    return lark.Lark(text, parser="lalr", start=["start", "atom"], propagate_positions=True, maybe_placeholders=True)


def _parse_lines(lines: Sequence[Line], start: str) -> Any:
    lines = lines or [Line("", "<text>", 1)]
    try:
        tree = _grammar().parse("\n".join(line.text for line in lines), start=start)
    except UnexpectedToken as error:
        raise _unexpected_token(error, lines) from None
    except UnexpectedCharacters as error:
        at = lines[error.line - 1].position(error.column)
        hint = 'close the string with "' if error.char == '"' else "remove it, or put it into a string"
        raise error_at(at, f"unexpected character {error.char!r}", hint=hint) from None
    try:
        return _Builder(lines).transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, DatalogError):
            raise error.orig_exc from None
        raise


_NAMES = {
    "$END": "the end of the program",
    "IDENT": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "DOT": "'.'",
    "COMMA": "','",
    "LPAR": "'('",
    "RPAR": "')'",
    "COLON": "':'",
    "SEMICOLON": "';'",
    "EQUAL": "'='",
    "RELATION": "a comparison",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "__ANON_0": "':-'",
    "QUALIFIER": "a qualifier",
}


def _unexpected_token(error: UnexpectedToken, lines: Sequence[Line]) -> DatalogError:
    token = error.token
    if token.type == "$END":
        last = next((line for line in reversed(lines) if line.text.strip()), lines[-1])
        position, what = last.position(len(last.text.rstrip()) + 1), "the program ends unexpectedly"
    else:
        position = lines[token.line - 1].position(token.column, len(token))
        what = f"unexpected {str(token)!r}"
    return error_at(position, what, hint=_expected(error))


def _expected(error: UnexpectedToken) -> str:
    """A hint at what would be right."""
    accepted = set(error.accepts or error.expected)
    if error.token.type == "LPAR" and {"ADDITIVE", "COMMA"} & accepted:
        functors = "cat, strlen, substr, ord, to_number, to_string, to_float, min, max"
        return f"only functors can be called inside arguments ({functors}); atoms are separated by ','"
    if {"DOT", "COMMA"} <= accepted and error.token.type in ("IDENT", "$END", "__ANON_0", "DIRECTIVE", "DECL"):
        return "end the clause before with '.', or separate literals by ','"
    names = sorted({_NAMES[name] for name in accepted if name in _NAMES})
    return f"expected {' or '.join(names)}" if 0 < len(names) <= 6 else ""


# From productions to values.


@dataclass(frozen=True, slots=True)
class _Body:
    """A body in disjunctive normal form."""

    alternatives: tuple[tuple[Literal, ...], ...]


def _alternatives(term: Literal | _Body) -> tuple[tuple[Literal, ...], ...]:
    return term.alternatives if isinstance(term, _Body) else ((term,),)


def _conjunction(terms: Iterable[Literal | _Body]) -> _Body:
    product = itertools.product(*(_alternatives(term) for term in terms))
    return _Body(tuple(tuple(itertools.chain.from_iterable(parts)) for parts in product))


def _negated_literal(literal: Literal) -> Literal:
    match literal:
        case Atom():
            return Negation(literal, literal.position)
        case Negation(atom=atom):
            return atom
        case Comparison(operator=operator, left=left, right=right, position=position):
            return Comparison(syntax.INVERSE[operator], left, right, position)


def _negated(term: Literal | _Body) -> _Body:
    """By De Morgan: each alternative must fail, each by one of its literals."""
    return _conjunction(
        _Body(tuple((_negated_literal(literal),) for literal in alternative)) for alternative in _alternatives(term)
    )


@dataclass(frozen=True, slots=True)
class _Override:
    relation: str


class _Nothing:
    """A unit that has no meaning for results."""


_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    '"': '"',
    "\\": "\\",
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
}


def _unescaped(text: str) -> str:
    parts, at = [], 0
    while (backslash := text.find("\\", at)) >= 0:
        escaped = text[backslash + 1]
        parts += [text[at:backslash], _ESCAPES.get(escaped, "\\" + escaped)]
        at = backslash + 2
    return "".join(parts) + text[at:]


def _integer(text: str) -> int:
    digits = text.removesuffix("u")
    return int(digits, {"0x": 16, "0b": 2}.get(digits[:2], 10))


_REFUSED = {
    "[": ("records are", "give the fields columns of their own"),
    "nil": ("records are", "give the fields columns of their own"),
    "$": ("algebraic data types and the counter $ are", "use a column for each field"),
    "@": ("user-defined functors are", "compute the values in the facts"),
    "range": ("the generator range is", "use a relation of numbers"),
    "autoinc": ("the counter autoinc is", "number the facts themselves"),
    "recursive_iteration_cnt": ("recursive_iteration_cnt is", ""),
    ".functor": ("user-defined functors are", "compute the values in the facts"),
    ".lattice": ("lattices are", "use min or max over a relation of candidates"),
    ".once": (".once is", "guard the file by #ifndef and #define"),
}


@lark.v_args(meta=True)
class _Builder(lark.Transformer[lark.Token, syntax.Program]):
    """Turns productions into values. Each method has the name of a production."""

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__()
        self._lines = lines

    def _at(self, where: Any) -> Position:
        """The position of a production or token, up to the end of its first line."""
        if getattr(where, "line", None) is None:  # an empty production
            return self._lines[-1].position()
        line = self._lines[where.line - 1]
        end = where.end_column if where.end_line == where.line else len(line.text.rstrip()) + 1
        return line.position(where.column, max(1, end - where.column))

    # Programs.

    def start(self, meta: Any, units: list[Any]) -> syntax.Program:
        return _program(units)

    def declaration(self, meta: Any, parts: list[Any]) -> list[Any]:
        names = [part for part in parts if isinstance(part, lark.Token)]
        attributes = next((part for part in parts if isinstance(part, tuple)), ())
        qualifiers = frozenset(part for part in parts if type(part) is str)
        units: list[Any] = []
        for name in names:
            units.append(syntax.RelationDeclaration(str(name), attributes, qualifiers, self._at(name)))
            for kind in ("input", "output", "printsize"):
                if kind in qualifiers:
                    units.append(syntax.Directive(kind, str(name), (), self._at(name)))
        return units

    def qualifier(self, meta: Any, parts: list[Any]) -> str:
        if parts[0] == "eqrel":
            raise not_supported(self._at(meta), "equivalence relations (eqrel) are", "write rules for the closure")
        return parts[0].value

    def choice(self, meta: Any, parts: list[Any]) -> None:
        raise not_supported(self._at(meta), "choice domains are", "use min or max to choose a row")

    def attributes(self, meta: Any, parts: list[syntax.Attribute]) -> tuple[syntax.Attribute, ...]:
        return tuple(parts)

    def attribute(self, meta: Any, parts: list[Any]) -> syntax.Attribute:
        return syntax.Attribute(str(parts[0]), parts[1], self._at(meta))

    def subtype(self, meta: Any, parts: list[Any]) -> syntax.TypeDeclaration:
        return syntax.TypeDeclaration(str(parts[0]), (parts[1],), True, self._at(meta))

    def union(self, meta: Any, parts: list[Any]) -> syntax.TypeDeclaration:
        return syntax.TypeDeclaration(str(parts[0]), tuple(parts[1:]), False, self._at(meta))

    def plain_type(self, meta: Any, parts: list[Any]) -> syntax.TypeDeclaration:
        return syntax.TypeDeclaration(str(parts[0]), ("symbol",), True, self._at(meta))

    symbol_type = plain_type

    def number_type(self, meta: Any, parts: list[Any]) -> syntax.TypeDeclaration:
        return syntax.TypeDeclaration(str(parts[0]), ("number",), True, self._at(meta))

    def record_type(self, meta: Any, parts: list[Any]) -> None:
        raise not_supported(self._at(meta), "record types are", "give the fields columns of their own")

    def adt_type(self, meta: Any, parts: list[Any]) -> None:
        raise not_supported(self._at(meta), "algebraic data types are", "use a column for each field")

    def directive(self, meta: Any, parts: list[Any]) -> list[syntax.Directive]:
        kind = parts[0][1:]
        if kind == "limitsize":
            hint = "remove it: relations are always complete"
            raise not_supported(self._at(meta), ".limitsize is", hint)
        return [syntax.Directive(kind, name, options, position) for name, options, position in parts[1:]]

    def directive_target(self, meta: Any, parts: list[Any]) -> tuple[str, Any, Position]:
        return parts[0], tuple(part for part in parts[1:] if part is not None), self._at(meta)

    def option(self, meta: Any, parts: list[Any]) -> tuple[str, str]:
        name, value = parts
        return str(name), _unescaped(value[1:-1]) if value.type == "STRING" else str(value)

    def pragma(self, meta: Any, parts: list[Any]) -> _Nothing:
        return _Nothing()

    def refused_directive(self, meta: Any, parts: list[Any]) -> None:
        raise not_supported(self._at(meta), *_REFUSED[parts[0].split()[0]])

    # Components.

    def component(self, meta: Any, parts: list[Any]) -> syntax.Component:
        kind, *rest = parts
        bases = tuple(part for part in rest if isinstance(part, syntax.ComponentType))
        units = [part for part in rest if part is not None and not isinstance(part, syntax.ComponentType)]
        overrides = tuple(unit.relation for unit in units if isinstance(unit, _Override))
        return syntax.Component(kind, bases, _program(units), overrides, self._at(meta))

    def component_type(self, meta: Any, parts: list[Any]) -> syntax.ComponentType:
        return syntax.ComponentType(str(parts[0]), tuple(part for part in parts[1:] if part), self._at(meta))

    def override(self, meta: Any, parts: list[Any]) -> _Override:
        return _Override(str(parts[0]))

    def instance(self, meta: Any, parts: list[Any]) -> syntax.Instance:
        return syntax.Instance(str(parts[0]), parts[1], self._at(meta))

    # Rules.

    def fact(self, meta: Any, parts: list[Any]) -> syntax.Rule:
        return syntax.Rule(parts[0], (), self._at(meta))

    def rule(self, meta: Any, parts: list[Any]) -> list[syntax.Rule]:
        heads, body = parts[0], parts[1]
        position = self._at(meta)
        return [syntax.Rule(head, literals, position) for head in heads for literals in body.alternatives]

    def heads(self, meta: Any, parts: list[Atom]) -> list[Atom]:
        return parts

    def plan(self, meta: Any, parts: list[Any]) -> _Nothing:
        return _Nothing()

    plan_order = plan

    def subsumption(self, meta: Any, parts: list[Any]) -> None:
        raise not_supported(self._at(meta), "subsumption is", "use min or max over a relation of candidates")

    def disjunction(self, meta: Any, parts: list[_Body]) -> _Body:
        return _Body(tuple(itertools.chain.from_iterable(part.alternatives for part in parts)))

    def conjunction(self, meta: Any, parts: list[Literal | _Body]) -> _Body:
        return _conjunction(parts)

    def negation(self, meta: Any, parts: list[Literal | _Body]) -> Literal | _Body:
        term = parts[0]
        if isinstance(term, Atom):
            return Negation(term, self._at(meta))
        return _negated(term)

    def comparison(self, meta: Any, parts: list[Any]) -> Comparison:
        left, operator, right = parts
        return Comparison(operator.value, left, right, self._at(meta))

    def constraint(self, meta: Any, parts: list[Any]) -> Comparison:
        operator, left, right = parts
        return Comparison(operator.value, left, right, self._at(meta))

    def true(self, meta: Any, parts: list[Any]) -> _Body:
        return _Body(((),))

    def false(self, meta: Any, parts: list[Any]) -> _Body:
        return _Body(())

    def atom(self, meta: Any, parts: list[Any]) -> Atom:
        return Atom(parts[0], tuple(parts[1] or ()), self._at(meta))

    def arguments(self, meta: Any, parts: list[syntax.Expression]) -> list[syntax.Expression]:
        return parts

    def qualified_name(self, meta: Any, parts: list[Any]) -> str:
        return ".".join(parts)

    # Expressions.

    def binary(self, meta: Any, parts: list[Any]) -> Call:
        left, operator, right = parts
        return Call(operator.value, (left, right), self._at(meta))

    def minus(self, meta: Any, parts: list[Any]) -> syntax.Expression:
        operand = parts[1]
        if isinstance(operand, Constant) and operand.kind in ("integer", "float"):
            return Constant(-operand.value, operand.kind, self._at(meta))  # type: ignore[operator]
        return Call("neg", (operand,), self._at(meta))

    def unary(self, meta: Any, parts: list[Any]) -> Call:
        return Call(parts[0].value, (parts[1],), self._at(meta))

    def variable(self, meta: Any, parts: list[Any]) -> syntax.Variable:
        return syntax.Variable(str(parts[0]), self._at(meta))

    def wildcard(self, meta: Any, parts: list[Any]) -> syntax.Wildcard:
        return syntax.Wildcard(self._at(meta))

    def number(self, meta: Any, parts: list[Any]) -> Constant:
        return Constant(_integer(parts[0]), "integer", self._at(meta))

    def unsigned(self, meta: Any, parts: list[Any]) -> Constant:
        return Constant(_integer(parts[0]), "unsigned", self._at(meta))

    def float(self, meta: Any, parts: list[Any]) -> Constant:
        return Constant(float(parts[0]), "float", self._at(meta))

    def string(self, meta: Any, parts: list[Any]) -> Constant:
        return Constant(_unescaped(parts[0][1:-1]), "symbol", self._at(meta))

    def call(self, meta: Any, parts: list[Any]) -> Call:
        return Call(parts[0].value, tuple(parts[1] or ()), self._at(meta))

    def min_max(self, meta: Any, parts: list[Any]) -> Call:
        functor, first, rest = parts
        if functor not in ("min", "max"):
            raise error_at(self._at(meta), f"{functor} is an aggregate", hint=f"write {functor} x : {{ ... }}")
        return Call(functor.value, (first, *rest), self._at(meta))

    def cast(self, meta: Any, parts: list[Any]) -> syntax.Cast:
        return syntax.Cast(parts[1], parts[2], self._at(meta))

    def aggregate(self, meta: Any, parts: list[Any]) -> syntax.Aggregate:
        function, target, body = parts
        position = self._at(meta)
        if (target is None) != (function == "count"):
            example = f"{function} : {{ ... }}" if function == "count" else f"{function} x : {{ ... }}"
            wrong = "has no target" if function == "count" else "needs a target"
            raise error_at(position, f"the aggregate {function} {wrong}", hint=f"write {example}")
        if len(body.alternatives) != 1:
            hint = "give the disjunction a relation of its own, and aggregate over that relation"
            raise not_supported(position, "a disjunction inside an aggregate is", hint)
        return syntax.Aggregate(function.value, target, body.alternatives[0], position)

    def aggregate_body(self, meta: Any, parts: list[Any]) -> _Body:
        return parts[0] if isinstance(parts[0], _Body) else _Body(((parts[0],),))

    def refused_expression(self, meta: Any, parts: list[Any]) -> None:
        raise not_supported(self._at(meta), *_REFUSED[parts[0].value])


def _program(units: Iterable[Any]) -> syntax.Program:
    flat = [part for unit in units for part in (unit if isinstance(unit, list) else [unit])]

    def of(kind: type) -> tuple[Any, ...]:
        return tuple(part for part in flat if isinstance(part, kind))

    return syntax.Program(
        of(syntax.TypeDeclaration),
        of(syntax.RelationDeclaration),
        of(syntax.Rule),
        of(syntax.Directive),
        of(syntax.Component),
        of(syntax.Instance),
    )
