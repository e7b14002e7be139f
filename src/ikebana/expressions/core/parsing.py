"""Strings as values: what Spark reads as a number, a truth value, a date or a time. Null is what it cannot read.

Whole columns are taken apart by regular expressions and converted by Arrow. Row by row are only decimals with an
exponent or more than 18 digits, and doubles in hexadecimal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Flags, flags_of, from_numpy, to_numpy, validity
from ikebana.encoding.lanes import Array
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.buffers import is_true
from ikebana.expressions.numbers import decimals
from ikebana.expressions.temporal import zones

_BLANK = "".join(map(chr, [*range(33), 127]))  # what Spark trims
_JAVA_BLANK = _BLANK[:-1]  # what Java trims

_TRUE = pa.array(["t", "true", "y", "yes", "1"])
_FALSE = pa.array(["f", "false", "n", "no", "0"])

_DATE = r"(?s)^(?P<sign>[+-]?)(?P<y>\d{4,7})(?:-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2})(?:[ T].*)?)?)?$"
_TIME = r"(?P<H>\d{1,2})(?::(?P<M>\d{1,2})(?::(?P<S>\d{1,2})(?P<f>\.\d*)?(?P<zone>[^\d.].*)?)?)?"
_TIMESTAMP = rf"^(?P<sign>[+-]?)(?P<y>\d{{4,6}})(?:-(?P<m>\d{{1,2}})(?:-(?P<d>\d{{1,2}})(?:[ T]{_TIME})?)?)?$"
_TIME_ALONE = r"^(?:T\d{1,2}|\d{1,2}:\d{1,2})(?::\d{1,2}){0,2}(?:\.\d*)?(?:[^\d.:].*)?$"
_WHOLE = r"^(?P<sign>[+-]?)(?P<digits>\d+)$"
_WHOLE_USUALLY = r"^-?\d+$"
_DATE_USUALLY = r"^\d{4}-\d\d-\d\d$"
_TIMESTAMP_USUALLY = r"^\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?$"
_TRUNCATED = r"^(?P<sign>[+-]?)(?P<digits>\d*)(?:\.\d*)?$"
_DECIMAL = r"^(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<rest>\d*))?(?P<exponent>(?:[eE][+-]?\d+)?)$"
_REAL = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?$"
_HEXADECIMAL = r"^[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?\d+[dDfF]?$"
_NAMED = {"inf": "inf", "+inf": "inf", "infinity": "inf", "+infinity": "inf", "-inf": "-inf", "-infinity": "-inf"}
_NAMED["nan"] = "nan"

_FIRST, _LAST = divmod(-(2**63), zones.DAY), divmod(2**63 - 1, zones.DAY)  # days and microseconds that fit 64 bits


def to_boolean(texts: pa.Array) -> pa.Array:
    """Truth values."""
    words = pc.utf8_lower(pc.utf8_trim(texts, _BLANK))
    trues = pc.is_in(words, value_set=_TRUE)
    return pc.if_else(pc.or_(trues, pc.is_in(words, value_set=_FALSE)), trues, pa.scalar(None, pa.bool_()))


def to_integer(texts: pa.Array, kind: pa.DataType, *, truncate: bool) -> pa.Array:
    """Whole numbers; `truncate` cuts off what follows a point, else there must be none."""
    usual = _usual(texts, _WHOLE_USUALLY, kind)
    if usual is not None:
        return usual
    parts = _parts(texts, _TRUNCATED if truncate else _WHOLE)
    trimmed = pc.utf8_trim(texts, _BLANK)
    parts["digits"] = _null_where(parts["digits"], pc.is_in(trimmed, value_set=pa.array(["", "+", "-"])))
    digits = pc.utf8_ltrim(parts["digits"], "0")
    digits = _null_where(digits, pc.greater(pc.binary_length(digits), 19))
    found, valid = _number(digits, pa.uint64()), validity(digits)
    negative = is_true(pc.equal(parts["sign"], "-"))
    limits = np.iinfo(kind.to_pandas_dtype())
    fits = np.where(negative, found <= np.uint64(-int(limits.min)), found <= np.uint64(limits.max))
    signed = np.where(negative, np.uint64(0) - found, found).view(np.int64)
    return from_numpy(kind, signed, fits if valid is None else fits & valid)


def to_real(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Floats and doubles."""
    trimmed = pc.utf8_trim(texts, _JAVA_BLANK)
    plain = pc.match_substring_regex(trimmed, _REAL)
    if pc.all(plain).as_py():
        return pc.utf8_rtrim(trimmed, "dDfF").cast(kind)
    numbers = pc.if_else(plain, pc.utf8_rtrim(trimmed, "dDfF"), pa.scalar(None, pa.string()))
    words = pc.utf8_lower(trimmed)
    for name, meant in _NAMED.items():
        numbers = pc.if_else(pc.equal(words, name), meant, numbers)
    found = numbers.cast(kind)
    hexadecimal = is_true(pc.match_substring_regex(trimmed, _HEXADECIMAL))
    if not hexadecimal.any():
        return found
    read = [float.fromhex(re.sub("[dDfF]$", "", each)) for each in trimmed.filter(pa.array(hexadecimal)).to_pylist()]
    return pc.replace_with_mask(found, pa.array(hexadecimal), pa.array(read, kind))


def to_decimal(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals, rounded half up; what has too many digits before the point is null."""
    trimmed = pc.utf8_trim(texts, _JAVA_BLANK)
    parts = _parts(trimmed, _DECIMAL, blank="")
    lengths = pc.add(pc.binary_length(parts["whole"]), pc.binary_length(parts["rest"]))
    valid = is_true(pc.greater(lengths, 0))
    whole = pc.utf8_ltrim(parts["whole"], "0")
    digits = to_numpy(pc.binary_length(whole).fill_null(0)) + kind.scale
    slow = valid & ((digits > 18) | is_true(pc.not_equal(parts["exponent"], "")))
    if slow.any():
        unscaled = np.zeros(len(texts), object)
        unscaled[valid] = [_unscaled(each, kind) for each in trimmed.filter(pa.array(valid)).to_pylist()]
    else:
        unscaled = _unscaled_fast(whole, parts["rest"], is_true(pc.equal(parts["sign"], "-")), valid, kind.scale)
    fits = np.asarray((unscaled < 10**kind.precision) & (unscaled > -(10**kind.precision)), bool)
    return decimals.made_decimal(kind, np.where(fits, unscaled, 0), valid & fits)


def _unscaled(text: str, kind: pa.DataType) -> int:
    """A number in units of a decimal's last digit; far too large where it does not fit."""
    number = Decimal(text)
    if number.adjusted() >= 40:
        return 10**40
    if number.adjusted() < -40:
        return 0
    sign, digits, exponent = number.as_tuple()
    whole = int("".join(map(str, digits)))
    shift = int(exponent) + kind.scale
    size = whole * 10**shift if shift >= 0 else (2 * whole + 10**-shift) // (2 * 10**-shift)
    return -size if sign else size


def _unscaled_fast(whole: pa.Array, rest: pa.Array, negative: Flags, valid: Flags, scale: int) -> Array:
    padded = pc.utf8_rpad(rest, scale + 1, "0")
    kept = pc.binary_join_element_wise(whole, pc.utf8_slice_codeunits(padded, 0, scale), "")
    up = is_true(pc.greater_equal(pc.utf8_slice_codeunits(padded, scale, scale + 1), "5"))
    size = np.where(valid, _number(kept, pa.int64()), 0) + (up & valid)
    return np.where(negative, -size, size)


def to_date(texts: pa.Array) -> pa.Array:
    """Dates, as days."""
    usual = _usual(texts, _DATE_USUALLY, pa.date32())
    if usual is not None:
        return usual
    parts = _parts(texts, _DATE)
    days, valid = _days(parts)
    valid &= (days >= -(2**31)) & (days < 2**31)
    return from_numpy(pa.date32(), np.where(valid, days, 0), valid)


def to_timestamp(texts: pa.Array, zone: str) -> pa.Array:
    """Instants; those that do not name a zone are what clocks in the given one show."""
    if is_true(pc.match_substring_regex(pc.utf8_trim(texts, _BLANK), _TIME_ALONE)).any():
        raise EvaluationError(
            "a time without a date has no value in a maintained view",
            detail="Spark would take it to be of the current day",
            hint="put the date in front",
        )
    clock, valid, named = _clock(texts)
    micros = zones.to_instant(clock, zone)
    for name in pc.unique(named.drop_null()).to_pylist():
        if not name:
            continue
        here = is_true(pc.equal(named, name))
        try:
            micros[here] = zones.to_instant(clock[here], name.strip(_JAVA_BLANK))
        except SqlError:
            valid &= ~here
    valid &= np.abs(micros.astype(float) - clock.astype(float)) < 2 * zones.DAY  # else it does not fit into 64 bits
    return from_numpy(pa.timestamp("us", "UTC"), micros, valid)


def to_clock(texts: pa.Array) -> pa.Array:
    """Timestamps without a zone; a zone that is named is disregarded, but must exist."""
    clock, valid, named = _clock(texts)
    for name in pc.unique(named.drop_null()).to_pylist():
        if name and not _is_zone(name.strip(_JAVA_BLANK)):
            valid &= ~is_true(pc.equal(named, name))
    return from_numpy(pa.timestamp("us"), clock, valid)


def _is_zone(name: str) -> bool:
    try:
        zones.known(name)
        return True
    except SqlError:
        return False


def _clock(texts: pa.Array) -> tuple[Array, Flags, pa.Array]:
    """Microseconds that clocks show, where they can be read, and the zones that are named."""
    usual = _usual(texts, _TIMESTAMP_USUALLY, pa.timestamp("us"))
    if usual is not None:
        valid = flags_of(texts.is_valid())
        return np.where(valid, to_numpy(usual), 0), valid, pa.nulls(len(texts), pa.string())
    parts = _parts(texts, _TIMESTAMP)
    days, valid = _days(parts)
    hours, minutes, seconds = (_number(parts[name], pa.int64()) for name in "HMS")
    valid &= (hours < 24) & (minutes < 60) & (seconds < 60)
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.utf8_ltrim(parts["f"], "."), 6, "0"), 0, 6)
    rest = ((hours * 60 + minutes) * 60 + seconds) * zones.SECOND + _number(fraction, pa.int64())
    valid &= (days > _FIRST[0]) | ((days == _FIRST[0]) & (rest >= _FIRST[1]))
    valid &= (days < _LAST[0]) | ((days == _LAST[0]) & (rest <= _LAST[1]))
    return np.where(valid, days * zones.DAY + rest, 0), valid, parts["zone"]


def _days(parts: Mapping[str, pa.Array]) -> tuple[Array, Flags]:
    """Days since 1970 of dates in parts, and which exist."""
    year = _number(parts["y"], pa.int64())
    year = np.where(is_true(pc.equal(parts["sign"], "-")), -year, year)
    month, day = (_number(parts[name], pa.int64(), 1) for name in "md")
    valid = (month >= 1) & (month <= 12) & (day >= 1)
    months = (year - 1970) * 12 + np.where(valid, month, 1) - 1
    first, following = (each.astype("M8[M]").astype("M8[D]").view(np.int64) for each in (months, months + 1))
    valid &= day <= following - first
    known = validity(parts["y"])
    return first + day - 1, valid if known is None else valid & known


# Parts of texts.


def _usual(texts: pa.Array, pattern: str, kind: pa.DataType) -> pa.Array | None:
    """What Arrow reads, if all texts are of the form in which it reads as Spark does; else None."""
    if not pc.all(pc.match_substring_regex(texts, pattern)).as_py():
        return None
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:  # a day that does not exist, a number that is too large
        return None


def _parts(texts: pa.Array, pattern: str, blank: str = _BLANK) -> dict[str, pa.Array]:
    """What the groups of a pattern match in trimmed texts; null where the whole does not."""
    found = pc.extract_regex(pc.utf8_trim(texts, blank) if blank else texts, pattern)
    return dict(zip(found.type.names, found.flatten(), strict=True))


def _null_where(array: pa.Array, flags: pa.Array) -> pa.Array:
    return pc.if_else(flags.fill_null(False), pa.scalar(None, array.type), array)


def _number(digits: pa.Array, kind: pa.DataType, default: int = 0) -> Array:
    """Digits as whole numbers; the default where there are none."""
    given: Any = pc.if_else(pc.equal(digits, "").fill_null(True), str(default), digits)
    return to_numpy(given.cast(kind))
