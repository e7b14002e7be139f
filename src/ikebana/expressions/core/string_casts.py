"""Casts to strings and to bytes, as Spark prints values.

Only bytes that are not UTF-8 raise an error, in both modes. Cost: one pass over the column.
The formats themselves are in `ikebana.expressions.core.printing`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import to_numpy, validity
from ikebana.errors import EvaluationError
from ikebana.expressions.core import printing
from ikebana.expressions.core.base import Call
from ikebana.expressions.core.conversions import conversion
from ikebana.expressions.temporal import zones


@conversion("integer string", "boolean string")
def _plain_string(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@conversion("float string")
def _float_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_float(array)


@conversion("decimal string")
def _decimal_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_decimal(array, plain=call.options[0])


@conversion("date string")
def _date_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_date(array)


@conversion("timestamp string")
def _timestamp_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_local_time(zones.to_clock(to_numpy(array), call.options[1]), validity(array))


@conversion("timestamp_ntz string")
def _timestamp_ntz_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_local_time(to_numpy(array), validity(array))


@conversion("binary string")
def _binary_string(call: Call, array: pa.Array) -> pa.Array:
    try:
        return array.cast(call.type)
    except pa.ArrowInvalid:
        raise EvaluationError(
            f"{call.arguments[0]} is not valid UTF-8",
            detail="binary values are cast to strings only if they are UTF-8",
            hint="use base64() or hex() instead of the cast",
        ) from None


@conversion("string binary")
def _string_binary(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@conversion("integer binary")
def _integer_binary(call: Call, array: pa.Array) -> pa.Array:
    """The bytes of an integer in big-endian order."""
    data = to_numpy(array).byteswap()
    width = data.dtype.itemsize
    fixed = pa.Array.from_buffers(pa.binary(width), len(data), [None, pa.py_buffer(np.ascontiguousarray(data))])
    return pc.if_else(array.is_valid(), fixed.cast(call.type), pa.scalar(None, call.type))
