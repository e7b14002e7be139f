"""Expressions: functions of a row's columns, computed for many rows at once.

An `Expression` is a value: it can be compared, sent to workers, and is part of what a plan's node is. It knows its
type, and whether it may be null. `evaluate` gives an Arrow array of exactly that type, with one entry for each row.

There are columns, literals and calls. A `Call` names a function in `FUNCTIONS`, which is given its arguments as arrays;
a *lazy* one is given the expressions instead, and decides for which rows it evaluates them: what CASE, AND, OR and
COALESCE do not reach must not raise. Expressions of Catalyst's are translated by builders, registered by the name of
Catalyst's class (`builds`): a builder is given the translated children, and knows the type of the result.

Semantics are Spark's. In ANSI mode (`Config.ansi`), what overflows, divides by zero or cannot be cast raises an
`EvaluationError`; otherwise it wraps or is null, as Spark says. Modes are in the call: the same text under another
mode is another expression.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.bad_rows import BadRows
from ikebana.encoding.lanes import Lane
from ikebana.errors import EvaluationError, IkebanaError, SqlError
from ikebana.expressions.core.tree import Tree


@dataclass(frozen=True)
class Config:
    """What the session of a query had set: it decides what expressions mean."""

    ansi: bool = True
    time_zone: str = "UTC"
    decimal_precision_loss: bool = True
    """Whether results of decimal arithmetic give up digits after the point where they would need more than 38."""


@dataclass(frozen=True, eq=False)
class ColumnBatch:
    """Columns by name, all of the same length."""

    columns: dict[str, pa.Array]
    count: int
    positions: Lane | None = None
    """Where each row is among those that a step of a dataflow was given, if they are some of these."""

    @staticmethod
    def of(columns: dict[str, pa.Array]) -> ColumnBatch:
        """Rows of at least one column, as a step of a dataflow was given them."""
        return ColumnBatch.given(columns, len(next(iter(columns.values()))))

    @staticmethod
    def given(columns: dict[str, pa.Array], count: int) -> ColumnBatch:
        """Rows as a step of a dataflow was given them."""
        return ColumnBatch(columns, count, np.arange(count))

    def where(self, flags: Any) -> ColumnBatch:
        """The rows that a NumPy array of flags marks."""
        mask, positions = pa.array(flags), None if self.positions is None else self.positions[flags]
        columns = {name: column.filter(mask) for name, column in self.columns.items()}
        return ColumnBatch(columns, int(np.count_nonzero(flags)), positions)

    def keeping(self, names: Container[str | None]) -> ColumnBatch:
        """The same rows with some of their columns."""
        columns = {name: column for name, column in self.columns.items() if name in names}
        return ColumnBatch(columns, self.count, self.positions)


@dataclass(frozen=True)
class Expression(ABC):
    """A function of rows."""

    type: pa.DataType
    nullable: bool

    @abstractmethod
    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        """A value of the expression's type for each row."""

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The expressions it is made of."""
        return ()

    def with_inputs(self, inputs: tuple[Expression, ...]) -> Expression:
        """The same function of other expressions."""
        assert not inputs and not self.inputs
        return self

    @property
    def can_raise(self) -> bool:
        """Whether evaluating it may raise: then it must not be asked about rows that do not concern it."""
        return any(each.can_raise for each in self.inputs)

    def walk(self) -> Iterable[Expression]:
        """This expression and all that it is made of."""
        yield self
        for each in self.inputs:
            yield from each.walk()

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that it depends on."""
        return frozenset(each.name for each in self.walk() if isinstance(each, Column))


@dataclass(frozen=True)
class Column(Expression):
    """A column as it is."""

    name: str

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        return rows.columns[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Literal(Expression):
    """The same value for every row: a Python value that Arrow turns into the type, or None."""

    value: Any

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        if self.value is None:
            return pa.nulls(rows.count, self.type)
        return pa.repeat(self.scalar, rows.count)

    @property
    def scalar(self) -> pa.Scalar:
        """The value as Arrow has it."""
        return pa.scalar(self.value, self.type)

    def __str__(self) -> str:
        return "null" if self.value is None else repr(self.value)


@dataclass(frozen=True)
class Call(Expression):
    """A function of `FUNCTIONS`, its arguments, and whatever else decides what it computes (mode, pattern, zone)."""

    function: str
    arguments: tuple[Expression, ...]
    options: tuple[Any, ...] = ()

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return self.arguments

    def with_inputs(self, inputs: tuple[Expression, ...]) -> Expression:
        return replace(self, arguments=inputs)

    @property
    def can_raise(self) -> bool:
        return FUNCTIONS[self.function].raises(self) or super().can_raise

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        function = FUNCTIONS[self.function]
        try:
            if function.lazy:
                return function.run(self, rows)
            return function.run(self, *(each.evaluate(rows) for each in self.arguments))
        except EvaluationError as error:
            blame(error, rows, by_row=not any(pa.types.is_nested(each.type) for each in self.arguments))
            raise

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


def blame(error: EvaluationError, rows: ColumnBatch, *, by_row: bool) -> None:
    """Say which rows are to blame for an error, of those that a step of a dataflow was given; or that nobody knows.

    The function that raised it has said which of its arguments' entries are: these are rows, unless the arguments are
    lists, or the rows are entries of lists.
    """
    bad = error.bad_entries
    if bad is None:
        return
    error.bad_entries = None
    if by_row and rows.positions is not None and bad.count == rows.count:
        error.bad_rows = BadRows(rows.positions[bad.entries], lambda at: bad.why(int(bad.entries[at])))


@dataclass(frozen=True, eq=False)
class Function:
    """How calls of a name are evaluated.

    `run` is given the call and its arguments as arrays; a lazy one the call and the rows. `raises` says whether a call
    may raise for values that its types allow.
    """

    run: Callable[..., pa.Array]
    lazy: bool = False
    raises: Callable[[Call], bool] = lambda call: False


FUNCTIONS: dict[str, Function] = {}
"""All functions, by name."""


def function(
    name: str, *, lazy: bool = False, raises: Callable[[Call], bool] | bool = False
) -> Callable[[Callable[..., pa.Array]], Callable[..., pa.Array]]:
    """Register how calls of a name are evaluated."""
    can = raises if callable(raises) else lambda call: bool(raises)

    def register(run: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
        assert name not in FUNCTIONS, name
        FUNCTIONS[name] = Function(run, lazy, can)
        return run

    return register


Builder = Callable[[Tree, tuple[Expression, ...], Config], Expression]
"""Catalyst's expression and its children, translated -> ours."""

BUILDERS: dict[str, Builder] = {}
"""How Catalyst's expressions are translated, by the names of their classes."""


def builds(*kinds: str) -> Callable[[Builder], Builder]:
    """Register how expressions of some classes of Catalyst's are translated."""

    def register(builder: Builder) -> Builder:
        for kind in kinds:
            assert kind not in BUILDERS, kind
            BUILDERS[kind] = builder
        return builder

    return register


def is_nullable(arguments: Iterable[Expression]) -> bool:
    """Whether a function that is null where an argument is may be null."""
    return any(each.nullable for each in arguments)


Leaf = Callable[[Tree], Expression | None]
"""Translates what only the surrounding plan knows, attributes and subqueries; None for all else."""


def translate(tree: Tree, leaf: Leaf, config: Config) -> Expression:
    """Catalyst's expression as one of ours; raises an error that names what is not supported."""
    found = leaf(tree)
    if found is not None:
        return found
    builder = BUILDERS.get(tree.kind)
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
        raise refused(error, f"the expression {tree.kind}") from error


def refused(error: Exception, what: str) -> SqlError:
    """An error that nobody expected as one that says what could not be lowered."""
    if isinstance(error, RecursionError):
        return SqlError(f"{what} is nested too deeply", hint="split the query into several views")
    if isinstance(error, IkebanaError):
        return SqlError(f"{what} cannot be maintained here: {error.what}", detail=error.detail, hint=error.hint)
    return SqlError(
        f"{what} is not supported in a maintained view as it stands here",
        detail=f"{type(error).__name__}: {error}",
        hint="write the query differently, or compute this when the view is read",
    )
