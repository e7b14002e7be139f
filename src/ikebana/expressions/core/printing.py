"""Casts to strings, as Spark formats them: numbers as in Java, dates and timestamps as in ISO 8601.

Floats have the shortest digits that parse back to the same number, which is what Java prints from version 19 on;
earlier versions print one digit more for some numbers. Columns are printed by Arrow and adjusted with its string
functions. Only dates and timestamps whose year does not have four digits are printed row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Mask, to_numpy, validity
from ikebana.encoding.lanes import Array
from ikebana.expressions.core.buffers import is_true
from ikebana.expressions.numbers import decimals
from ikebana.expressions.temporal import zones

_STRING = pa.string()
_NUMBER = r"^(?P<sign>-?)(?P<integral>\d+)(?:\.(?P<fraction>\d+))?(?:e(?P<exponent>[+-]\d+))?$"
_PLAIN_LOW, _PLAIN_HIGH = 1e-3, 1e7  # the range in which Java prints no exponent
_YEARS = (-719_528, 2_932_896)  # days of the years 0 to 9999


def of_float(array: pa.Array) -> pa.Array:
    """Format floats or doubles."""
    magnitude = np.abs(to_numpy(array))
    with np.errstate(invalid="ignore"):
        plain = ((magnitude >= _PLAIN_LOW) & (magnitude < _PLAIN_HIGH)) | (magnitude == 0)
    strings = array.cast(_STRING)
    with_fraction = pc.if_else(
        pc.match_substring(strings, "."), strings, pc.binary_join_element_wise(strings, ".0", "")
    )
    if plain.all():
        return with_fraction
    return pc.if_else(pa.array(plain), with_fraction, _with_exponent(strings))


def _with_exponent(strings: pa.Array) -> pa.Array:
    """Format numbers in scientific notation, and NaN and infinities by their names."""
    parts = pc.extract_regex(strings, _NUMBER)
    sign, integral, fraction, exponent = (parts.field(name) for name in ("sign", "integral", "fraction", "exponent"))
    digits = pc.utf8_ltrim(pc.binary_join_element_wise(integral, fraction, ""), "0")
    zeros = pc.subtract(pc.add(pc.binary_length(integral), pc.binary_length(fraction)), pc.binary_length(digits))
    shift = pc.if_else(pc.equal(exponent, ""), "0", pc.utf8_ltrim(exponent, "+")).cast(pa.int32())
    power = pc.add(pc.subtract(pc.subtract(pc.binary_length(integral), zeros), 1), shift)
    digits = pc.utf8_rtrim(digits, "0")
    tail = pc.utf8_slice_codeunits(digits, 1)
    tail = pc.if_else(pc.equal(tail, ""), "0", tail)
    head = pc.utf8_slice_codeunits(digits, 0, 1)
    printed = pc.binary_join_element_wise(sign, head, ".", tail, "E", power.cast(_STRING), "")
    for name, spark in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        printed = pc.if_else(pc.equal(strings, name), spark, printed)
    return printed


def of_decimal(array: pa.Array, plain: bool) -> pa.Array:
    """Format decimals; numbers below a millionth have an exponent unless `plain`."""
    strings = array.cast(_STRING)
    small = is_true(pc.match_substring(strings, "E"))
    if not plain or not small.any():
        return strings
    scale = array.type.scale
    numbers = decimals.to_unscaled(array.filter(pa.array(small)))
    padded = pc.utf8_lpad(pa.array([str(abs(number)) for number in numbers.tolist()], _STRING), scale, "0")
    printed = pc.binary_join_element_wise(pa.array(np.where(numbers < 0, "-0", "0")), padded, ".")
    return pc.replace_with_mask(strings, pa.array(small), printed)


def of_date(array: pa.Array) -> pa.Array:
    """Format dates."""
    days, valid = to_numpy(array), validity(array)
    unusual = _is_unusual(days, valid)
    if not unusual.any():
        return array.cast(_STRING)
    strings = pa.array(np.where(unusual, 0, days).astype(np.int32)).view(pa.date32()).cast(_STRING)
    return _replace_unusual(strings, unusual, valid, lambda row: _date(int(days[row])))


def of_local_time(micros: Array, valid: Mask | None) -> pa.Array:
    """Format local times, given in microseconds."""
    days, time_of_day = micros // zones.DAY, micros % zones.DAY
    unusual = _is_unusual(days, valid)
    strings = pa.array(np.where(unusual, time_of_day, micros)).view(pa.timestamp("us")).cast(_STRING)
    trimmed = pc.utf8_rtrim(pc.utf8_rtrim(strings, "0"), ".")
    strings = pc.if_else(pa.array(time_of_day % zones.SECOND == 0), pc.utf8_slice_codeunits(strings, 0, 19), trimmed)

    def printed(row: int) -> str:
        return _date(int(days[row])) + strings[row].as_py()[10:]

    return _replace_unusual(strings, unusual, valid, printed)


def _is_unusual(days: Array, valid: Mask | None) -> Mask:
    outside: Mask = (days < _YEARS[0]) | (days > _YEARS[1])
    return outside if valid is None else outside | ~valid


def _replace_unusual(strings: pa.Array, unusual: Mask, valid: Mask | None, printed: Callable[[int], str]) -> pa.Array:
    if not unusual.any():
        return strings
    is_valid = np.ones(len(unusual), bool) if valid is None else valid
    replaced: list[Any] = [printed(row) if is_valid[row] else None for row in np.flatnonzero(unusual).tolist()]
    return pc.replace_with_mask(strings, pa.array(unusual), pa.array(replaced, _STRING))


def _date(days: int) -> str:
    """Format a date of any year, by moving it by a multiple of 400 years into NumPy's range."""
    cycles, rest = divmod(days + 719_528, 146_097)
    year, month_day = str(np.datetime64(rest - 719_528, "D")).split("-", 1)
    number = int(year) + 400 * cycles
    sign = "-" if number < 0 else "+" if number > 9999 else ""
    return f"{sign}{abs(number):04}-{month_day}"
