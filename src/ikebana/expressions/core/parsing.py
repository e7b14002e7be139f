"""Casts from strings: numbers, booleans, dates and timestamps in the forms that Spark accepts; null for all others.

Columns are split by regular expressions and converted by Arrow, both vectorised. Only decimals with an exponent or more
than 18 digits, and hexadecimal doubles, are parsed row by row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Mask, from_numpy, to_numpy, unpack_bits, validity
from ikebana.encoding.lanes import Array
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.buffers import is_true
from ikebana.expressions.numbers import decimals
from ikebana.expressions.temporal import zones

_BLANK = "".join(map(chr, [*range(33), 127]))  # the characters that Spark trims
_JAVA_BLANK = _BLANK[:-1]  # the characters that Java trims

_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")

_DATE = r"(?s)^(?P<sign>[+-]?)(?P<y>\d{4,7})(?:-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2})(?:[ T].*)?)?)?$"
_TIME = r"(?P<H>\d{1,2})(?::(?P<M>\d{1,2})(?::(?P<S>\d{1,2})(?P<f>\.\d*)?(?P<zone>[^\d.].*)?)?)?"
_TIMESTAMP = rf"^(?P<sign>[+-]?)(?P<y>\d{{4,6}})(?:-(?P<m>\d{{1,2}})(?:-(?P<d>\d{{1,2}})(?:[ T]{_TIME})?)?)?$"
_TIME_ALONE = r"^(?:T\d{1,2}|\d{1,2}:\d{1,2})(?::\d{1,2}){0,2}(?:\.\d*)?(?:[^\d.:].*)?$"
_INTEGER = r"^(?P<sign>[+-]?)(?P<digits>\d+)$"
_PLAIN_INTEGER = r"^-?\d+$"
_PLAIN_DATE = r"^\d{4}-\d\d-\d\d$"
_PLAIN_TIMESTAMP = r"^\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?$"
_TRUNCATED = r"^(?P<sign>[+-]?)(?P<digits>\d*)(?:\.\d*)?$"
_DECIMAL = r"^(?P<sign>[+-]?)(?P<integral>\d*)(?:\.(?P<fraction>\d*))?(?P<exponent>(?:[eE][+-]?\d+)?)$"
_FLOAT = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?$"
_HEXADECIMAL = r"^[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?\d+[dDfF]?$"
_NAMED = {"inf": "inf", "+inf": "inf", "infinity": "inf", "+infinity": "inf", "-inf": "-inf", "-infinity": "-inf"}
_NAMED["nan"] = "nan"

# The range of timestamps, as days and microseconds.
_FIRST, _LAST = divmod(-(2**63), zones.DAY), divmod(2**63 - 1, zones.DAY)


def to_boolean(strings: pa.Array) -> pa.Array:
    """Parse booleans."""
    words = pc.utf8_lower(pc.utf8_trim(strings, _BLANK))
    trues = pc.is_in(words, value_set=pa.array(_TRUE))
    return pc.if_else(pc.or_(trues, pc.is_in(words, value_set=pa.array(_FALSE))), trues, pa.scalar(None, pa.bool_()))


def to_integer(strings: pa.Array, kind: pa.DataType, *, truncate: bool) -> pa.Array:
    """Parse integers; with `truncate` a fractional part is dropped, else it is invalid."""
    plain = _parse_plain(strings, _PLAIN_INTEGER, kind)
    if plain is not None:
        return plain
    parts = _parts(strings, _TRUNCATED if truncate else _INTEGER)
    trimmed = pc.utf8_trim(strings, _BLANK)
    parts["digits"] = _null_where(parts["digits"], pc.is_in(trimmed, value_set=pa.array(["", "+", "-"])))
    digits = pc.utf8_ltrim(parts["digits"], "0")
    digits = _null_where(digits, pc.greater(pc.binary_length(digits), 19))
    magnitudes, valid = _number(digits, pa.uint64()), validity(digits)
    negative = is_true(pc.equal(parts["sign"], "-"))
    limits = np.iinfo(kind.to_pandas_dtype())
    fits = np.where(negative, magnitudes <= np.uint64(-int(limits.min)), magnitudes <= np.uint64(limits.max))
    signed = np.where(negative, np.uint64(0) - magnitudes, magnitudes).view(np.int64)
    return from_numpy(kind, signed, fits if valid is None else fits & valid)


def to_float(strings: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse floats or doubles."""
    trimmed = pc.utf8_trim(strings, _JAVA_BLANK)
    plain = pc.match_substring_regex(trimmed, _FLOAT)
    if pc.all(plain).as_py():
        return pc.utf8_rtrim(trimmed, "dDfF").cast(kind)
    numbers = pc.if_else(plain, pc.utf8_rtrim(trimmed, "dDfF"), pa.scalar(None, pa.string()))
    words = pc.utf8_lower(trimmed)
    for name, value in _NAMED.items():
        numbers = pc.if_else(pc.equal(words, name), value, numbers)
    parsed = numbers.cast(kind)
    hexadecimal = is_true(pc.match_substring_regex(trimmed, _HEXADECIMAL))
    if not hexadecimal.any():
        return parsed
    parsed_hexadecimal = [
        float.fromhex(re.sub("[dDfF]$", "", text)) for text in trimmed.filter(pa.array(hexadecimal)).to_pylist()
    ]
    return pc.replace_with_mask(parsed, pa.array(hexadecimal), pa.array(parsed_hexadecimal, kind))


def to_decimal(strings: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse decimals, rounded half up; null for too many digits before the decimal point."""
    trimmed = pc.utf8_trim(strings, _JAVA_BLANK)
    parts = _parts(trimmed, _DECIMAL, blank="")
    lengths = pc.add(pc.binary_length(parts["integral"]), pc.binary_length(parts["fraction"]))
    valid = is_true(pc.greater(lengths, 0))
    integral = pc.utf8_ltrim(parts["integral"], "0")
    digits = to_numpy(pc.binary_length(integral).fill_null(0)) + kind.scale
    slow = valid & ((digits > 18) | is_true(pc.not_equal(parts["exponent"], "")))
    if slow.any():
        unscaled = np.zeros(len(strings), object)
        unscaled[valid] = [_unscaled(text, kind) for text in trimmed.filter(pa.array(valid)).to_pylist()]
    else:
        unscaled = _unscaled_fast(integral, parts["fraction"], is_true(pc.equal(parts["sign"], "-")), valid, kind.scale)
    fits = np.asarray((unscaled < 10**kind.precision) & (unscaled > -(10**kind.precision)), bool)
    return decimals.from_unscaled(kind, np.where(fits, unscaled, 0), valid & fits)


def _unscaled(text: str, kind: pa.DataType) -> int:
    """The unscaled value of a number, rounded half up; 10**40, which fits no type, if it is larger than that."""
    number = Decimal(text)
    if number.adjusted() >= 40:
        return 10**40
    if number.adjusted() < -40:
        return 0
    sign, digits, exponent = number.as_tuple()
    integer = int("".join(map(str, digits)))
    shift = int(exponent) + kind.scale
    magnitude = integer * 10**shift if shift >= 0 else (2 * integer + 10**-shift) // (2 * 10**-shift)
    return -magnitude if sign else magnitude


def _unscaled_fast(integral: pa.Array, fraction: pa.Array, negative: Mask, valid: Mask, scale: int) -> Array:
    padded = pc.utf8_rpad(fraction, scale + 1, "0")
    digits = pc.binary_join_element_wise(integral, pc.utf8_slice_codeunits(padded, 0, scale), "")
    rounds_up = is_true(pc.greater_equal(pc.utf8_slice_codeunits(padded, scale, scale + 1), "5"))
    magnitude = np.where(valid, _number(digits, pa.int64()), 0) + (rounds_up & valid)
    return np.where(negative, -magnitude, magnitude)


def to_date(strings: pa.Array) -> pa.Array:
    """Parse dates."""
    plain = _parse_plain(strings, _PLAIN_DATE, pa.date32())
    if plain is not None:
        return plain
    parts = _parts(strings, _DATE)
    days, valid = _days(parts)
    valid &= (days >= -(2**31)) & (days < 2**31)
    return from_numpy(pa.date32(), np.where(valid, days, 0), valid)


def to_timestamp(strings: pa.Array, zone: str) -> pa.Array:
    """Parse timestamps; those without a time zone are local times in `zone`."""
    if is_true(pc.match_substring_regex(pc.utf8_trim(strings, _BLANK), _TIME_ALONE)).any():
        raise EvaluationError(
            "a time without a date cannot be cast to a timestamp in a maintained view",
            detail="Spark would add the current date, which changes",
            hint="add a date to the string",
        )
    local, valid, named = _local_times(strings)
    micros = zones.to_instant(local, zone)
    for name in pc.unique(named.drop_null()).to_pylist():
        if not name:
            continue
        in_zone = is_true(pc.equal(named, name))
        try:
            micros[in_zone] = zones.to_instant(local[in_zone], name.strip(_JAVA_BLANK))
        except SqlError:
            valid &= ~in_zone
    valid &= np.abs(micros.astype(float) - local.astype(float)) < 2 * zones.DAY  # else the instant overflowed
    return from_numpy(pa.timestamp("us", "UTC"), micros, valid)


def to_timestamp_ntz(strings: pa.Array) -> pa.Array:
    """Parse timestamps without a time zone; a time zone in the string is ignored, but must exist."""
    local, valid, named = _local_times(strings)
    for name in pc.unique(named.drop_null()).to_pylist():
        if name and not _is_zone(name.strip(_JAVA_BLANK)):
            valid &= ~is_true(pc.equal(named, name))
    return from_numpy(pa.timestamp("us"), local, valid)


def _is_zone(name: str) -> bool:
    try:
        zones.resolve_zone(name)
        return True
    except SqlError:
        return False


def _local_times(strings: pa.Array) -> tuple[Array, Mask, pa.Array]:
    """Local times in microseconds, whether each string is valid, and the time zones in the strings."""
    plain = _parse_plain(strings, _PLAIN_TIMESTAMP, pa.timestamp("us"))
    if plain is not None:
        valid = unpack_bits(strings.is_valid())
        return np.where(valid, to_numpy(plain), 0), valid, pa.nulls(len(strings), pa.string())
    parts = _parts(strings, _TIMESTAMP)
    days, valid = _days(parts)
    hours, minutes, seconds = (_number(parts[name], pa.int64()) for name in "HMS")
    valid &= (hours < 24) & (minutes < 60) & (seconds < 60)
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.utf8_ltrim(parts["f"], "."), 6, "0"), 0, 6)
    time_of_day = ((hours * 60 + minutes) * 60 + seconds) * zones.SECOND + _number(fraction, pa.int64())
    valid &= (days > _FIRST[0]) | ((days == _FIRST[0]) & (time_of_day >= _FIRST[1]))
    valid &= (days < _LAST[0]) | ((days == _LAST[0]) & (time_of_day <= _LAST[1]))
    return np.where(valid, days * zones.DAY + time_of_day, 0), valid, parts["zone"]


def _days(parts: Mapping[str, pa.Array]) -> tuple[Array, Mask]:
    """Days since 1970 from years, months and days, and whether each date exists."""
    year = _number(parts["y"], pa.int64())
    year = np.where(is_true(pc.equal(parts["sign"], "-")), -year, year)
    month, day = (_number(parts[name], pa.int64(), 1) for name in "md")
    valid = (month >= 1) & (month <= 12) & (day >= 1)
    months = (year - 1970) * 12 + np.where(valid, month, 1) - 1
    first, following = (
        month_number.astype("M8[M]").astype("M8[D]").view(np.int64) for month_number in (months, months + 1)
    )
    valid &= day <= following - first
    present = validity(parts["y"])
    return first + day - 1, valid if present is None else valid & present


# Parts of strings.


def _parse_plain(strings: pa.Array, pattern: str, kind: pa.DataType) -> pa.Array | None:
    """Arrow's cast, if all strings have a form that Arrow and Spark parse alike; else None."""
    if not pc.all(pc.match_substring_regex(strings, pattern)).as_py():
        return None
    try:
        return strings.cast(kind)
    except pa.ArrowInvalid:  # a date that does not exist or a number out of range
        return None


def _parts(strings: pa.Array, pattern: str, blank: str = _BLANK) -> dict[str, pa.Array]:
    """The groups of a pattern in the trimmed strings; null where the pattern does not match."""
    groups = pc.extract_regex(pc.utf8_trim(strings, blank) if blank else strings, pattern)
    return dict(zip(groups.type.names, groups.flatten(), strict=True))


def _null_where(array: pa.Array, flags: pa.Array) -> pa.Array:
    return pc.if_else(flags.fill_null(False), pa.scalar(None, array.type), array)


def _number(digits: pa.Array, kind: pa.DataType, default: int = 0) -> Array:
    """Strings of digits as integers; the default for empty strings and nulls."""
    filled: Any = pc.if_else(pc.equal(digits, "").fill_null(True), str(default), digits)
    return to_numpy(filled.cast(kind))
