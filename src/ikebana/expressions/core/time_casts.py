"""Casts to dates and timestamps, with and without time zone.

The time zone of a cast is the second option of its call. A local time that a change to summer time skips is moved
forward, and of one that occurs twice the first is meant (`ikebana.expressions.temporal.zones`).

Cost: one pass over the column, and for time zones with changes a search for each value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import and_validity, from_numpy, to_numpy, validity
from ikebana.expressions.core import parsing
from ikebana.expressions.core.base import Call
from ikebana.expressions.core.conversions import (
    check_rows,
    conversion,
    integer_limits,
    parsed_values,
    truncated_floats,
)
from ikebana.expressions.numbers import decimals
from ikebana.expressions.temporal import zones

_INT64 = pa.int64()


@conversion("string date", fails=True)
def _string_date(call: Call, array: pa.Array) -> pa.Array:
    return parsed_values(call, array, parsing.to_date(array))


@conversion("string timestamp", fails=True)
def _string_timestamp(call: Call, array: pa.Array) -> pa.Array:
    return parsed_values(call, array, parsing.to_timestamp(array, call.options[1]))


@conversion("string timestamp_ntz", fails=True)
def _string_timestamp_ntz(call: Call, array: pa.Array) -> pa.Array:
    return parsed_values(call, array, parsing.to_timestamp_ntz(array))


@conversion("timestamp date")
def _timestamp_date(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, zones.to_clock(to_numpy(array), call.options[1]) // zones.DAY, validity(array))


@conversion("timestamp_ntz date")
def _timestamp_ntz_date(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array) // zones.DAY, validity(array))


@conversion("date timestamp", "date timestamp_ntz")
def _date_timestamp(call: Call, array: pa.Array) -> pa.Array:
    midnight = to_numpy(array).astype(np.int64) * zones.DAY
    if call.type.tz is not None:
        midnight = zones.to_instant(midnight, call.options[1])
    return from_numpy(call.type, midnight, validity(array))


@conversion("timestamp timestamp_ntz")
def _timestamp_timestamp_ntz(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, zones.to_clock(to_numpy(array), call.options[1]), validity(array))


@conversion("timestamp_ntz timestamp")
def _timestamp_ntz_timestamp(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, zones.to_instant(to_numpy(array), call.options[1]), validity(array))


@conversion("integer timestamp")
def _integer_timestamp(call: Call, array: pa.Array) -> pa.Array:
    """Seconds since 1970, clamped to the range of timestamps."""
    seconds = to_numpy(array).astype(np.int64)
    low, high = integer_limits(_INT64)
    most = high // zones.SECOND
    micros = np.clip(seconds, -most, most) * zones.SECOND
    return from_numpy(
        call.type, np.where(seconds > most, high, np.where(seconds < -most, low, micros)), validity(array)
    )


@conversion("float timestamp", fails=True)
def _float_timestamp(call: Call, array: pa.Array) -> pa.Array:
    seconds = to_numpy(array).astype(np.float64)
    bad = ~np.isfinite(seconds)
    with np.errstate(all="ignore"):
        micros = seconds * zones.SECOND
    low, high = integer_limits(_INT64)
    outside = bad | ~((np.floor(micros) <= float(high)) & (np.ceil(micros) >= float(low)))
    check_rows(call, array, outside, "it is out of range")
    return from_numpy(call.type, truncated_floats(micros, _INT64), and_validity(validity(array), ~bad))


@conversion("decimal timestamp", fails=True)
def _decimal_timestamp(call: Call, array: pa.Array) -> pa.Array:
    unscaled: Any = decimals.to_unscaled(array)
    if decimals.max_magnitude(unscaled) * zones.SECOND >= 2**63:
        unscaled = decimals.as_objects(unscaled)
    micros: Any = decimals.divide_truncating(unscaled * zones.SECOND, 10**array.type.scale)
    return from_numpy(call.type, decimals.low_words(micros), validity(array))


@conversion("boolean timestamp")
def _boolean_timestamp(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array).astype(np.int64), validity(array))
