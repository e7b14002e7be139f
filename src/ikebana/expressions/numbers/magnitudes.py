"""Magnitudes: the sign, the exponent and some leading bits of a number, as an integer.

Contract: magnitudes keep the order. If the magnitude of one value is less than that of another value of the same type,
so is the value; values of different magnitude may be compared by it, in the order of Spark: NaN is the greatest, and
zeros are equal. The magnitude of null is null. Values of equal magnitude with some bits have equal ones with fewer.

All numbers of a magnitude with n bits agree in the n bits after their first one, so they differ by at most one part in
2 ** n.

Cost: a few operations of NumPy for each column.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import decimal_words, from_numpy, to_numpy, validity
from ikebana.encoding.columns import ordered_bits
from ikebana.encoding.lanes import Array
from ikebana.expressions.core.base import Call, Expression, function

MANTISSA_BITS = 52
"""The bits of a double after its sign and exponent."""

_DOUBLE = pa.field("double", pa.float64(), nullable=False)


def has_magnitude(kind: pa.DataType) -> bool:
    """Whether values of a type have magnitudes: numbers, dates and timestamps."""
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal128(kind)
    return is_number or types.is_date32(kind) or types.is_timestamp(kind)


def magnitude(value: Expression, bits: int) -> Expression:
    """The magnitude, with so many leading bits, of a value whose type has magnitudes."""
    return Call(pa.int64(), value.nullable, "magnitude", (value,), (bits,))


@function("magnitude")
def _magnitudes(call: Call, values: pa.Array) -> pa.Array:
    (bits,) = call.options
    shifted = ordered_bits(pa.array(_as_doubles(values)), _DOUBLE) >> np.uint64(MANTISSA_BITS - bits)
    return from_numpy(pa.int64(), shifted.astype(np.int64), validity(values))


def _as_doubles(values: pa.Array) -> Array:
    """The values, of decimals the unscaled ones, rounded to doubles; arbitrary where the column is null.

    Every step rounds to the nearest number, so it keeps the order.
    """
    if types.is_decimal128(values.type):
        low, high = decimal_words(values)
        return np.where(high == low >> 63, low.astype(np.float64), high * 2.0**64 + low.view(np.uint64))
    return to_numpy(values).astype(np.float64)
