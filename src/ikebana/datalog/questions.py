"""Questions: an atom whose arguments are bound or free, such as `tc(x, ?)`.

| argument | meaning |
|---|---|
| `x` | a parameter: a value is given when the question is asked |
| `5`, `"a"` | a constant |
| `?` | free: the answer has all its values |
| `?y` | free, with a name: arguments of the same name are equal |
| `_` | any value, which the answer leaves out |

Cost: linear in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ikebana.datalog.check import Relation, check_rules
from ikebana.datalog.errors import did_you_mean, error_at
from ikebana.datalog.parser import parse_atom
from ikebana.datalog.storage import Storage
from ikebana.datalog.syntax import Atom, Constant, Expression, Rule, Variable, Wildcard
from ikebana.datalog.types import Primitive

CONSTANT = "constant "
"""The names of parameters that stand for constants begin like this; parameters of users have no spaces."""


@dataclass(frozen=True)
class Question:
    """A question to a relation."""

    text: str
    relation: Relation
    bound: Mapping[int, str]
    """The parameter of each bound argument, by place; constants are parameters, too."""
    types: Mapping[str, Primitive]
    """The types of the parameters."""
    constants: Mapping[str, int | float | str]
    """The values of the parameters that stand for constants."""
    equal: tuple[tuple[int, int], ...]
    """Pairs of places with equal values."""
    left_out: frozenset[int]
    """Places that are not part of the answer."""

    @property
    def adornment(self) -> str:
        """`b` for a bound and `f` for a free argument, for each."""
        return "".join("b" if place in self.bound else "f" for place in range(self.relation.arity))

    @property
    def parameters(self) -> list[str]:
        """The parameters that a user gives values to."""
        return [name for name in self.types if name not in self.constants]

    @property
    def shown(self) -> list[int]:
        """The places that the answer shows."""
        return [place for place in range(self.relation.arity) if place not in self.left_out]

    def with_constants(self, values: Mapping[str, int | float | str]) -> Question:
        """The question with values for some of its parameters, which are constants from now on."""
        return replace(self, constants={**self.constants, **values})


def parse_question(text: str, relations: Mapping[str, Relation], storage: Storage) -> Question:
    """Parse and check a question.

    >>> edge = Relation("edge", ("x", "y"), ("number", "number"))
    >>> question = parse_question("edge(a, ?)", {"edge": edge}, Storage())
    >>> question.adornment, question.parameters
    ('bf', ['a'])
    """
    atom = parse_atom(text)
    relation = relations.get(atom.relation)
    if relation is None:
        hint = did_you_mean(atom.relation, relations)
        raise error_at(atom.position, f'there is no relation "{atom.relation}"', hint=hint)
    if len(atom.arguments) != relation.arity:
        what = f'"{relation.name}" has {relation.arity} arguments, not {len(atom.arguments)}'
        raise error_at(atom.position, what, hint=f"it is declared as {relation}")
    bound: dict[int, str] = {}
    types: dict[str, Primitive] = {}
    constants: dict[str, int | float | str] = {}
    named: dict[str, int] = {}
    equal: list[tuple[int, int]] = []
    for place, (argument, kind) in enumerate(zip(atom.arguments, relation.types, strict=True)):
        match argument:
            case Wildcard() | Variable(name="?"):
                pass
            case Variable(name=name) if name.startswith("?"):
                if name in named:
                    _check_same(argument, relation.types[named[name]], kind)
                    equal.append((named[name], place))
                named.setdefault(name, place)
            case Variable(name=name):
                if name in types:
                    _check_same(argument, types[name], kind)
                bound[place], types[name] = name, kind
            case Constant():
                name = f"{CONSTANT}{place}"
                bound[place], types[name] = name, kind
                constants[name] = _value(argument, place, relation, storage)
            case _:
                hint = "an argument is a parameter, a constant, ? or _"
                raise error_at(argument.position, f"{argument} cannot be an argument of a query", hint=hint)
    if all(isinstance(argument, Wildcard) for argument in atom.arguments):
        hint = "write ? for arguments that the answer shows, or read the relation"
        raise error_at(atom.position, f"{atom} selects no arguments", hint=hint)
    left_out = frozenset(place for place, part in enumerate(atom.arguments) if isinstance(part, Wildcard))
    return Question(str(atom), relation, bound, types, constants, tuple(equal), left_out)


def _check_same(argument: Variable, one: Primitive, other: Primitive) -> None:
    if one != other:
        what = f'"{argument.name}" is a {one} and a {other}'
        raise error_at(argument.position, what, hint="use one name for each of them")


def _value(constant: Constant, place: int, relation: Relation, storage: Storage) -> int | float | str:
    """The value of a constant in the type of its argument."""
    alone = Relation(relation.name, (relation.attributes[place],), (relation.types[place],))
    (rule,) = check_rules([Rule(Atom(relation.name, (constant,)))], {relation.name: alone})
    checked: Expression = rule.head.arguments[0]
    assert isinstance(checked, Constant)
    if not storage.fits(checked.value, relation.types[place]):
        raise error_at(constant.position, f"{constant} is too large for a {relation.types[place]}")
    return checked.value
