"""Rewrites expressions of an optimised plan whose JSON would lack a part of their meaning.

| expression | what the JSON lacks | instead |
|---|---|---|
| try_add, try_cast and others | that an error becomes null | a call of `try_Add`, `try_Cast` |
| the same inside other functions | that an error is raised, or not | a call of `ansi_Cast`, `legacy_Cast` |
| try_sum, try_avg | the same | `Sum` and `Average` of a call of `try` |
| LIKE with another ESCAPE than a backslash | the character | a call of `like` with three arguments |
| LIKE ALL, LIKE ANY | the patterns | a call of `LikeAll` etc. with the patterns as further arguments |
| constants that are arrays, structs and maps | the value | the expression that constructs it |
| constants that are binaries | the value | a call of `binary` with hexadecimal digits |
| PIVOT | the values of the columns | `PivotFirst` of `coalesce(column, value, value, ...)` |
| from_json | its options | a call of `from_json`: the text, a null of the type, names and values of options |
| to_json | everything | a call of `to_json`: the value, names and values of options |

Calls of functions that Spark does not have are `UnresolvedFunction`s, as the plan is not resolved again.

Cost: a second JSON, and a few calls of Java for each expression of the plan; only for plans that need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ikebana.spark.planning.catalyst import _SUBQUERY_CLASS, scala_items

if TYPE_CHECKING:
    from ikebana.spark.planning.catalyst import Catalyst, PlanningSession

_TRY = re.compile(r"\btry_\w+\(")
_EXPRESSIONS = r'"class":"org\.apache\.spark\.sql\.catalyst\.expressions\.'
_INCOMPLETE = re.compile(
    _EXPRESSIONS
    + r'(?:Like|(?:Not)?Like(?:All|Any)|JsonToStructs|StructsToJson|objects\.Invoke|aggregate\.PivotFirst)"'
    + "|"
    + _EXPRESSIONS
    + r'Literal","num-children":0,"value":"(?:[^"\\]|\\.)*","dataType":(?:"binary"|\{)'
)
_ARITHMETIC = ("Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder", "Pmod")
_BACKSLASH = "\\"
_NESTED = {"array", "struct", "map", "binary"}
_SHOWN_ARRAY = re.compile("array<(tinyint|smallint|int|bigint|float|double)>")
"""The types of arrays whose values the JSON has."""


def needs_rewriting(analyzed: str, json: str) -> bool:
    """Whether a plan may have such expressions, given the text of the analysed plan and the optimised plan's JSON."""
    return _TRY.search(analyzed) is not None or _INCOMPLETE.search(json) is not None


class Rewriting:
    """Rewrites the expressions of one plan."""

    def __init__(self, catalyst: Catalyst, session: PlanningSession) -> None:
        self._catalyst, self._session = catalyst, session
        self._expressions = catalyst.jvm.org.apache.spark.sql.catalyst.expressions
        self._functions = catalyst.object("org.apache.spark.sql.catalyst.analysis.UnresolvedFunction")
        self._literals = catalyst.object("org.apache.spark.sql.catalyst.expressions.Literal")

    def apply(self, plan: Any) -> Any:
        """The plan, with all such expressions rewritten."""
        pairs = self._pairs(self._walk_plan(plan))
        return plan.transformAllExpressionsWithSubqueries(self._catalyst.scala_map(pairs)) if pairs else plan

    def _pairs(self, expressions: Iterator[Any]) -> list[tuple[Any, Any]]:
        """Expressions that are rewritten, and what they are replaced by."""
        rewritten = ((expression, self._rewritten(expression)) for expression in expressions)
        return [(expression, replacement) for expression, replacement in rewritten if replacement is not None]

    def _walk_plan(self, plan: Any) -> Iterator[Any]:
        for expression in scala_items(plan.expressions()):
            yield from self._walk(expression)
        for child in scala_items(plan.children()):
            yield from self._walk_plan(child)

    def _walk(self, expression: Any) -> Iterator[Any]:
        yield expression
        if self._catalyst.is_instance(_SUBQUERY_CLASS, expression):
            yield from self._walk_plan(expression.plan())
        for child in scala_items(expression.children()):
            yield from self._walk(child)

    def _rewritten(self, expression: Any) -> Any | None:
        """What an expression is replaced by; None if the JSON has everything."""
        kind = str(expression.getClass().getSimpleName())
        rewrite = _REWRITES.get(kind)
        return None if rewrite is None else rewrite(self, kind, expression)

    def _call(self, name: str, arguments: Sequence[Any]) -> Any:
        return self._functions.apply(name, self._catalyst.seq(arguments), False)

    def _text(self, text: str | None) -> Any:
        """A constant string."""
        string = self._literals.apply(text or "")
        return self._expressions.Literal(None, string.dataType()) if text is None else string

    # Errors that become null.

    def operator(self, kind: str, expression: Any) -> Any | None:
        """An operator that is null where it would raise, or raises although others do not, or the other way round."""
        mode = str(expression.evalMode().toString()).lower()
        if mode == ("ansi" if self._session.config.ansi else "legacy"):
            return None
        arguments = scala_items(expression.children())
        if kind == "Cast":
            arguments.append(self._expressions.Literal(None, expression.dataType()))
        return self._call(f"{mode}_{kind}", arguments)

    def try_aggregate(self, kind: str, expression: Any) -> Any | None:
        """A sum that is null where it would overflow."""
        if not str(expression.toString()).startswith("try_"):
            return None
        return expression.withNewChildren(self._catalyst.seq([self._call("try", scala_items(expression.children()))]))

    # Patterns.

    def like(self, kind: str, expression: Any) -> Any | None:
        """LIKE with an escape character of its own."""
        escape = str(expression.escapeChar())
        if escape == _BACKSLASH:
            return None
        return self._call("like", [*scala_items(expression.children()), self._text(escape)])

    def several_patterns(self, kind: str, expression: Any) -> Any | None:
        """LIKE with several patterns."""
        patterns = [
            None if pattern is None else str(pattern.toString()) for pattern in scala_items(expression.patterns())
        ]
        return self._call(kind, [*scala_items(expression.children()), *map(self._text, patterns)])

    # Constants.

    def literal(self, name: str, expression: Any) -> Any | None:
        """A constant that is an array, a struct, a map or a binary."""
        kind = expression.dataType()
        type_name = str(kind.typeName())
        if type_name not in _NESTED or expression.value() is None:
            return None
        if type_name == "binary":
            return self._call("binary", [self._text(str(expression.sql())[2:-1])])
        is_plain = str(expression.value().getClass().getSimpleName()) != "UnsafeArrayData"
        if not is_plain:
            elements = expression.value().toObjectArray(kind.elementType())
            data = self._catalyst.jvm.org.apache.spark.sql.catalyst.util.GenericArrayData(elements)
            expression = self._expressions.Literal(data, kind)
        if _SHOWN_ARRAY.fullmatch(str(kind.simpleString())):
            return None if is_plain else expression
        (constructed,) = self._session.expressions(expression.sql())
        if not constructed.dataType().equals(kind):
            (constructed,) = self._session.expressions(f"CAST({expression.sql()} AS {kind.sql()})")
        inner = self._pairs(self._walk(constructed))
        return constructed.transform(self._catalyst.scala_map(inner)) if inner else constructed

    # PIVOT.

    def pivot(self, kind: str, expression: Any) -> Any | None:
        """The column of a PIVOT, with the values that become columns."""
        column = expression.pivotColumn()
        literals = [self._value(value, column.dataType()) for value in scala_items(expression.pivotColumnValues())]
        named = self._expressions.Coalesce(self._catalyst.seq([column, *literals]))
        return expression.withNewChildren(self._catalyst.seq([named, expression.valueColumn()]))

    def _value(self, value: Any, kind: Any) -> Any:
        """A value as Spark has it inside, as an expression."""
        if isinstance(value, int) and not isinstance(value, bool):
            return self._integer(value, kind)
        literal = self._literals.create(value, kind)
        return self.literal("Literal", literal) or literal

    def _integer(self, value: int, kind: Any) -> Any:
        """An integer of a type: a number, a date or a time, whose width Python does not know."""
        name = str(kind.typeName())
        text = {"date": f"date_from_unix_date({value})", "timestamp": f"timestamp_micros({value})"}.get(
            name, f"{value}"
        )
        (expression,) = self._session.expressions(f"CAST({text} AS {kind.sql()})")
        return expression

    # JSON.

    def from_json(self, kind: str, expression: Any) -> Any | None:
        """from_json, with its options."""
        null = self._expressions.Literal(None, expression.dataType())
        return self._call("from_json", [expression.child(), null, *self._options(expression.options())])

    def to_json(self, kind: str, expression: Any) -> Any | None:
        """to_json, which Spark calls as a method of an object that has the options; None for other methods."""
        evaluator = expression.targetObject().value() if hasattr(expression.targetObject(), "value") else None
        if evaluator is None or not str(evaluator.getClass().getSimpleName()).startswith("StructsToJson"):
            return None
        return self._call("to_json", [*scala_items(expression.arguments()), *self._options(evaluator.options())])

    def _options(self, options: Any) -> list[Any]:
        """Names and values in turn."""
        pairs = scala_items(options.toSeq())
        return [self._text(str(part)) for pair in pairs for part in (pair._1(), pair._2())]


_REWRITES: dict[str, Callable[[Rewriting, str, Any], Any | None]] = {
    **dict.fromkeys((*_ARITHMETIC, "Cast"), Rewriting.operator),
    "Sum": Rewriting.try_aggregate,
    "Average": Rewriting.try_aggregate,
    "Like": Rewriting.like,
    **dict.fromkeys(("LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"), Rewriting.several_patterns),
    "Literal": Rewriting.literal,
    "PivotFirst": Rewriting.pivot,
    "JsonToStructs": Rewriting.from_json,
    "Invoke": Rewriting.to_json,
}
"""By the simple name of the class."""
