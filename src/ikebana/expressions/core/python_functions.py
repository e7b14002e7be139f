"""Python functions of the user's, as expressions.

A function is held as the bytes that it was pickled to: two expressions are the same if these are. Spark evaluates a
function of plain values row by row, with None for null, and a function of pandas (or of Arrow) for whole columns; so
does `PythonFunction`. It must be deterministic: a row that is deleted is computed again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.errors import BadEntries, EvaluationError, SqlError
from ikebana.expressions.core.base import ColumnBatch, Expression, blame

BY_ROW = (100, 101)
"""Spark's codes of functions of values, and of values that are sent as Arrow."""

OF_PANDAS = 200
"""Spark's code of functions of pandas series."""


@dataclass(frozen=True)
class PythonFunction(Expression):
    """A function of Python's, what it is called, its arguments, and how Spark would call it (`evalType`)."""

    name: str
    pickled: bytes
    arguments: tuple[Expression, ...]
    eval_type: int = 100

    def __post_init__(self) -> None:
        if self.eval_type not in (*BY_ROW, OF_PANDAS):
            raise SqlError(
                f'the Python function "{self.name}" is of a kind that is not supported in a maintained view',
                detail=f"its evalType is {self.eval_type}",
                hint="use a scalar function of values (udf) or of pandas series (pandas_udf)",
            )

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return self.arguments

    def with_inputs(self, inputs: tuple[Expression, ...]) -> Expression:
        return replace(self, arguments=inputs)

    @property
    def can_raise(self) -> bool:
        return True

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        columns = [each.evaluate(rows) for each in self.arguments]
        try:
            function = _unpickled(self.pickled)
            if self.eval_type == OF_PANDAS:
                return self._of_pandas(function, columns, rows.count)
            return self._by_row(function, columns, rows.count)
        except EvaluationError as error:
            blame(error, rows, by_row=True)
            raise
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> EvaluationError:
        return EvaluationError(
            f'the Python function "{self.name}" failed',
            detail=f"{type(error).__name__}: {error}",
            hint="it is called for every row that reaches it, also for nulls (None)",
        )

    def _by_row(self, function: Callable[..., Any], columns: list[pa.Array], count: int) -> pa.Array:
        lists = [each.to_pylist() for each in columns]
        results: list[Any] = []
        errors: dict[int, Exception] = {}
        for at, arguments in enumerate(zip(*lists, strict=True) if lists else [()] * count):
            try:
                results.append(function(*arguments))
            except Exception as error:
                errors[at] = error
        if errors:
            first = next(iter(errors.values()))
            raised = self._error(first)
            raised.bad_entries = BadEntries(np.array(list(errors)), count, lambda at: self._error(errors[at]))
            raise raised from first
        return self._typed(results)

    def _typed(self, results: list[Any]) -> pa.Array:
        """As Spark does without Arrow, what is not of the declared type is null; anything is a string."""
        if pa.types.is_string(self.type):
            return pa.array([None if each is None else str(each) for each in results], self.type)
        try:
            return pa.array(results, self.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            if self.eval_type != BY_ROW[0]:
                raise
        return pa.array([_or_null(each, self.type) for each in results], self.type)

    def _of_pandas(self, function: Callable[..., Any], columns: list[pa.Array], count: int) -> pa.Array:
        result = function(*(each.to_pandas() for each in columns))
        if len(result) != count:
            raise EvaluationError(
                f'the Python function "{self.name}" returned {len(result)} values for {count} rows',
                hint="a function of series returns a series of the same length",
            )
        found = pa.Array.from_pandas(result, type=self.type)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


def _or_null(value: Any, kind: pa.DataType) -> Any:
    """A value, or null if it is not of a type."""
    wanted = bool if pa.types.is_boolean(kind) else int if pa.types.is_integer(kind) else float
    if (pa.types.is_primitive(kind) and type(value) is not wanted) or (
        pa.types.is_integer(kind) and not -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1)
    ):
        return None
    return value


@lru_cache(maxsize=256)
def _unpickled(pickled: bytes) -> Callable[..., Any]:
    """The function; of what Spark pickles, which has its type too, the function."""
    found = pickle.loads(pickled)
    return found[0] if isinstance(found, tuple) else found
