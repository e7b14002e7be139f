"""The user's Python functions as expressions.

A function is stored as its pickled bytes; two expressions are equal if these bytes are. As in Spark, a function of
plain values is called row by row, with None for null, and a function of pandas series is called with whole columns.
Functions must be deterministic: they are called again when a row is deleted.
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
from ikebana.expressions.core.base import ColumnBatch, Expression, locate_bad_rows

BY_ROW = (100, 101)
"""Spark's `evalType` of functions of values, without and with transfer as Arrow."""

OF_PANDAS = 200
"""Spark's `evalType` of functions of pandas series."""


@dataclass(frozen=True)
class PythonFunction(Expression):
    """A call of a pickled Python function; `eval_type` is Spark's `evalType`, which says how to call it."""

    name: str
    pickled: bytes
    arguments: tuple[Expression, ...]
    eval_type: int = 100

    def __post_init__(self) -> None:
        if self.eval_type not in (*BY_ROW, OF_PANDAS):
            raise SqlError(
                f'the Python function "{self.name}" is not supported in a maintained view',
                detail=f"its evalType is {self.eval_type}",
                hint="use a scalar function of values (udf) or of pandas series (pandas_udf)",
            )

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return self.arguments

    def with_inputs(self, inputs: tuple[Expression, ...]) -> Expression:
        return replace(self, arguments=inputs)

    @property
    def raises(self) -> bool:
        return True

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        columns = [argument.evaluate(rows) for argument in self.arguments]
        try:
            function = _unpickle(self.pickled)
            if self.eval_type == OF_PANDAS:
                return self._of_pandas(function, columns, rows.count)
            return self._by_row(function, columns, rows.count)
        except EvaluationError as error:
            locate_bad_rows(error, rows, by_row=True)
            raise
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> EvaluationError:
        return EvaluationError(
            f'the Python function "{self.name}" failed',
            detail=f"{type(error).__name__}: {error}",
            hint="the function is also called with None for nulls; handle None and unexpected values in it",
        )

    def _by_row(self, function: Callable[..., Any], columns: list[pa.Array], count: int) -> pa.Array:
        lists = [column.to_pylist() for column in columns]
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
        """Convert results as Spark does without Arrow: any value to a string, else values of other types to null."""
        if pa.types.is_string(self.type):
            return pa.array([None if result is None else str(result) for result in results], self.type)
        try:
            return pa.array(results, self.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            if self.eval_type != BY_ROW[0]:
                raise
        return pa.array([_or_null(result, self.type) for result in results], self.type)

    def _of_pandas(self, function: Callable[..., Any], columns: list[pa.Array], count: int) -> pa.Array:
        result = function(*(column.to_pandas() for column in columns))
        if len(result) != count:
            raise EvaluationError(
                f'the Python function "{self.name}" returned {len(result)} values for {count} rows',
                hint="return a series of the same length as the arguments",
            )
        array = pa.Array.from_pandas(result, type=self.type)
        return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


def _or_null(value: Any, kind: pa.DataType) -> Any:
    """The value, or None if it is not a value of the type."""
    expected = bool if pa.types.is_boolean(kind) else int if pa.types.is_integer(kind) else float
    if (pa.types.is_primitive(kind) and type(value) is not expected) or (
        pa.types.is_integer(kind) and not -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1)
    ):
        return None
    return value


@lru_cache(maxsize=256)
def _unpickle(pickled: bytes) -> Callable[..., Any]:
    """Unpickle a function. Spark pickles a tuple of the function and its return type."""
    content = pickle.loads(pickled)
    return content[0] if isinstance(content, tuple) else content
