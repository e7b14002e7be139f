"""Expressions: functions of the columns of a row, evaluated for many rows at once.

An `Expression` is an immutable value: it can be compared, sent to workers, and is part of the identity of a plan node.
It has a type and a nullability. `evaluate` returns an Arrow array of exactly that type, with one entry per row.

An expression is a column, a literal or a call. A `Call` names a function in `FUNCTIONS`. Most functions receive their
arguments as arrays. A *lazy* function receives the argument expressions instead and decides for which rows to evaluate
them: rows that CASE, AND, OR or COALESCE skip must not raise. Builders translate Catalyst's expressions; they are
registered by the name of the Catalyst class (`builds`), receive the translated children, and determine the result type.

The semantics are Spark's. In ANSI mode (`Config.ansi`), an overflow, a division by zero or an invalid cast raises an
`EvaluationError`; otherwise the result wraps or is null, as in Spark. The mode is part of the call: the same SQL in
another mode is a different expression.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.bad_rows import BadRows
from ikebana.encoding.lanes import Lane
from ikebana.errors import EvaluationError, IkebanaError, SqlError
from ikebana.expressions.core.tree import Tree


@dataclass(frozen=True)
class Config:
    """The settings of the Spark session that affect the meaning of expressions."""

    ansi: bool = True
    time_zone: str = "UTC"
    decimal_precision_loss: bool = True
    """Whether decimal arithmetic reduces the scale of results that would need more than 38 digits."""


CASE_HINT = "exclude such values with CASE WHEN ... THEN ... END"
"""The hint of errors that are raised in both modes."""

ANSI_HINT = f"{CASE_HINT}, or create the view with spark.sql.ansi.enabled=false"
"""The hint of errors that are raised in ANSI mode only."""


@dataclass(frozen=True, eq=False)
class ColumnBatch:
    """Columns by name, all of the same length."""

    columns: dict[str, pa.Array]
    count: int
    positions: Lane | None = None
    """The position of each row in the input of the dataflow step, if they are some of its rows."""
    is_input: bool = False
    """Whether the rows are all rows of that input, so that nobody has to list their positions."""

    @staticmethod
    def from_columns(columns: dict[str, pa.Array]) -> ColumnBatch:
        """The input of a dataflow step, which has at least one column."""
        return ColumnBatch.from_input(columns, len(next(iter(columns.values()))))

    @staticmethod
    def from_input(columns: dict[str, pa.Array], count: int) -> ColumnBatch:
        """The input of a dataflow step."""
        return ColumnBatch(columns, count, is_input=True)

    def filter(self, flags: Any) -> ColumnBatch:
        """The rows where `flags`, a Boolean NumPy array, is true."""
        mask = pa.array(flags)
        columns = {name: column.filter(mask) for name, column in self.columns.items()}
        return ColumnBatch(columns, int(np.count_nonzero(flags)), self.input_positions(np.flatnonzero(flags)))

    def input_positions(self, rows: Lane) -> Lane | None:
        """The positions of some rows in the input of the dataflow step; None if they are not input rows."""
        if self.is_input:
            return rows
        return None if self.positions is None else self.positions[rows]

    def select(self, names: Container[str | None]) -> ColumnBatch:
        """The same rows with only the columns in `names`."""
        columns = {name: column for name, column in self.columns.items() if name in names}
        return ColumnBatch(columns, self.count, self.positions, self.is_input)


@dataclass(frozen=True)
class Expression(ABC):
    """A function of rows."""

    type: pa.DataType
    nullable: bool

    @abstractmethod
    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        """An array of the expression's type with one value per row."""

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The argument expressions."""
        return ()

    def with_inputs(self, inputs: tuple[Expression, ...]) -> Expression:
        """The same function applied to other expressions."""
        assert not inputs and not self.inputs
        return self

    @property
    def raises(self) -> bool:
        """Whether the function itself may raise."""
        return False

    @cached_property
    def can_raise(self) -> bool:
        """Whether evaluation may raise; if so, it must be evaluated only for the rows that need it."""
        return self.raises or any(argument.can_raise for argument in self.inputs)

    def walk(self) -> Iterable[Expression]:
        """This expression and all expressions below it, in pre-order."""
        waiting: list[Expression] = [self]
        while waiting:
            expression = waiting.pop()
            yield expression
            waiting += reversed(expression.inputs)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names of the columns that the expression reads."""
        return frozenset(node.name for node in self.walk() if isinstance(node, Column))


@dataclass(frozen=True)
class Column(Expression):
    """The value of a column."""

    name: str

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        return rows.columns[self.name]

    def __str__(self) -> str:
        return self.name


def repeated(scalar: pa.Scalar, count: int) -> pa.Array:
    """An array of equal values; Arrow cannot repeat nested values zero times."""
    return pa.repeat(scalar, count) if count else pa.array([], scalar.type)


@dataclass(frozen=True)
class Literal(Expression):
    """A constant: a Python value that Arrow can convert to the type, or None for null."""

    value: Any

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        if self.value is None:
            return pa.nulls(rows.count, self.type)
        return repeated(self.scalar, rows.count)

    @property
    def scalar(self) -> pa.Scalar:
        """The value as an Arrow scalar."""
        return pa.scalar(self.value, self.type)

    def __str__(self) -> str:
        return "null" if self.value is None else repr(self.value)


@dataclass(frozen=True)
class Call(Expression):
    """A function in `FUNCTIONS`, its arguments, and the options that affect its result (mode, pattern, time zone)."""

    function: str
    arguments: tuple[Expression, ...]
    options: tuple[Any, ...] = ()

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return self.arguments

    def with_inputs(self, inputs: tuple[Expression, ...]) -> Expression:
        return replace(self, arguments=inputs)

    @property
    def raises(self) -> bool:
        return FUNCTIONS[self.function].raises(self)

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        function = FUNCTIONS[self.function]
        try:
            if function.lazy:
                return function.run(self, rows)
            return function.run(self, *(argument.evaluate(rows) for argument in self.arguments))
        except EvaluationError as error:
            locate_bad_rows(
                error, rows, by_row=not any(pa.types.is_nested(argument.type) for argument in self.arguments)
            )
            raise

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


def locate_bad_rows(error: EvaluationError, rows: ColumnBatch, *, by_row: bool) -> None:
    """Translate the bad entries of an error to positions in the input of the dataflow step, where possible.

    The function that raised the error set `bad_entries`, which are positions in its arguments. They are rows unless an
    argument is a list (`by_row` is false) or `rows` are themselves elements of lists; then the bad rows stay unknown.
    """
    bad = error.bad_entries
    if bad is None:
        return
    error.bad_entries = None
    positions = rows.input_positions(bad.entries) if by_row and bad.count == rows.count else None
    if positions is not None:
        error.bad_rows = BadRows(positions, lambda at: bad.why(int(bad.entries[at])))


@dataclass(frozen=True, eq=False)
class Function:
    """The implementation of a function.

    `run` receives the call and its arguments as arrays or, if the function is lazy, the call and the rows. `raises`
    returns whether a call may raise for some values of its argument types.
    """

    run: Callable[..., pa.Array]
    lazy: bool = False
    raises: Callable[[Call], bool] = lambda call: False


FUNCTIONS: dict[str, Function] = {}
"""All functions by name."""


def function(
    name: str, *, lazy: bool = False, raises: Callable[[Call], bool] | bool = False
) -> Callable[[Callable[..., pa.Array]], Callable[..., pa.Array]]:
    """Register the implementation of the function `name`."""
    can_raise = raises if callable(raises) else lambda call: bool(raises)

    def register(run: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
        assert name not in FUNCTIONS, name
        FUNCTIONS[name] = Function(run, lazy, can_raise)
        return run

    return register


Builder = Callable[[Tree, tuple[Expression, ...], Config], Expression]
"""Translates a Catalyst expression, given its translated children."""

BUILDERS: dict[str, Builder] = {}
"""The builders by the name of the Catalyst class."""


def builds(*kinds: str) -> Callable[[Builder], Builder]:
    """Register the builder for Catalyst expressions of the classes `kinds`, or of what planning calls so in a plan."""

    def register(builder: Builder) -> Builder:
        for kind in kinds:
            assert kind not in BUILDERS, kind
            BUILDERS[kind] = builder
        return builder

    return register


def is_nullable(arguments: Iterable[Expression]) -> bool:
    """Whether a function that is null exactly where an argument is null may be null."""
    return any(argument.nullable for argument in arguments)


Leaf = Callable[[Tree], Expression | None]
"""Translates the expressions that depend on the surrounding plan (attributes, subqueries); None for all others."""


def translate(tree: Tree, leaf: Leaf, config: Config) -> Expression:
    """Translate a Catalyst expression; raise a `SqlError` that names the first unsupported part."""
    expression = leaf(tree)
    if expression is not None:
        return expression
    builder = BUILDERS.get(tree.called if tree.kind == "UnresolvedFunction" else tree.kind)
    if builder is None:
        raise SqlError(
            f"the expression {tree.kind} is not supported in a maintained view",
            detail=f"in {tree!r}",
            hint="compute it in a Python UDF, or when the view is read",
        )
    children = tuple([translate(child, leaf, config) for child in tree.children])
    try:
        return builder(tree, children, config)
    except SqlError:
        raise
    except Exception as error:
        raise unsupported_error(error, f"the expression {tree.kind}") from error


def unsupported_error(error: Exception, what: str) -> SqlError:
    """The `SqlError` for an unexpected exception while `what` was translated."""
    if isinstance(error, RecursionError):
        return SqlError(f"{what} is nested too deeply", hint="split the query into several views")
    if isinstance(error, IkebanaError):
        return SqlError(
            f"{what} is not supported here in a maintained view: {error.what}", detail=error.detail, hint=error.hint
        )
    return SqlError(
        f"{what} is not supported here in a maintained view",
        detail=f"{type(error).__name__}: {error}",
        hint="write the query differently, or compute this when the view is read",
    )
