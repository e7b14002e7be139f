"""Conversions of values from one family of types to another, by which casts are made: how they are registered and fail.

A conversion takes a whole column of one type. In ANSI mode (the first option of the call) it raises an error for the
first value that cannot be cast; otherwise such a value becomes null, or wraps, as in Spark. `CONVERSIONS` has all pairs
of families; `number_casts`, `string_casts` and `time_casts` add theirs when they are imported.

Cost: one pass over the column. Rows that are null are never the reason for an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import Mask, is_instant, is_local_timestamp, unpack_bits, validity
from ikebana.encoding.lanes import Array
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import ANSI_HINT, Call
from ikebana.expressions.core.buffers import fail_where

FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "boolean": types.is_boolean,
    "integer": types.is_integer,
    "float": types.is_floating,
    "decimal": types.is_decimal,
    "string": types.is_string,
    "binary": types.is_binary,
    "date": types.is_date,
    "timestamp": is_instant,
    "timestamp_ntz": is_local_timestamp,
    "void": types.is_null,
}
"""The families of types, and which types belong to them."""


@dataclass(frozen=True)
class Conversion:
    """How values of one family of types are cast to another, and for which types a value may fail to be cast."""

    run: Callable[[Call, pa.Array], pa.Array]
    can_fail: Callable[[pa.DataType, pa.DataType], bool]


CONVERSIONS: dict[tuple[str, str], Conversion] = {}
"""The conversions, by the families of the source and of the target."""


def conversion(
    *pairs: str, fails: bool | Callable[[pa.DataType, pa.DataType], bool] = False
) -> Callable[[Callable[[Call, pa.Array], pa.Array]], Callable[[Call, pa.Array], pa.Array]]:
    """Register a conversion for pairs of families such as "integer decimal"."""
    can_fail = fails if callable(fails) else lambda source, target: bool(fails)

    def register(run: Callable[[Call, pa.Array], pa.Array]) -> Callable[[Call, pa.Array], pa.Array]:
        for pair in pairs:
            source, target = pair.split()
            CONVERSIONS[source, target] = Conversion(run, can_fail)
        return run

    return register


def family_of(kind: pa.DataType) -> str:
    """The family of a type; "other" for types that are not cast."""
    return next((name for name, has in FAMILIES.items() if has(kind)), "other")


def cast_error(call: Call, value: Any, reason: str) -> EvaluationError:
    """The error for a value that cannot be cast."""
    return EvaluationError(
        f"cannot cast {value} from {call.arguments[0].type} to {call.type}",
        detail=f"{reason}, in {call}",
        hint=ANSI_HINT,
    )


def check_rows(call: Call, array: pa.Array, bad: Mask, reason: str) -> None:
    """In ANSI mode, raise an error if a row is bad."""
    if call.options[0]:
        fail_where(bad, validity(array), lambda row: cast_error(call, shown_value(array[row]), reason))


def shown_value(scalar: pa.Scalar) -> str:
    """A value as error messages show it."""
    try:
        return repr(scalar.as_py()) if types.is_string(scalar.type) else str(scalar.as_py())
    except (ValueError, OverflowError):  # the year is out of Python's range
        return f"the value {scalar.value}"


def parsed_values(call: Call, array: pa.Array, parsed: pa.Array) -> pa.Array:
    """The values parsed from strings; in ANSI mode, raise an error if a string could not be parsed."""
    if call.options[0] and parsed.null_count > array.null_count:
        check_rows(call, array, unpack_bits(parsed.is_null()), "it is not a valid value of that type")
    return parsed


def integer_limits(kind: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.min), int(limits.max)


def truncated_floats(numbers: Array, kind: pa.DataType) -> Array:
    """Floats truncated to integers and clamped to the range of a type; NaN becomes 0."""
    low, high = integer_limits(kind)
    numbers = np.where(np.isnan(numbers), 0.0, numbers)
    above, below = numbers >= float(high), numbers <= float(low)
    truncated = np.where(above | below, 0.0, numbers).astype(np.int64)
    return np.where(above, high, np.where(below, low, truncated))
