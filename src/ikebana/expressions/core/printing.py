"""Values as strings, as Spark prints them: numbers as Java does, dates and times as ISO does, with no digits too many.

Floats have the shortest digits that are read back as the same number, which is what Java prints from version 19 on;
earlier ones print a digit more for a few. Whole columns are printed by Arrow and changed by its string functions; row
by row are only dates and times of years that do not have four digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Flags, to_numpy, validity
from ikebana.encoding.lanes import Array
from ikebana.expressions.core.buffers import is_true
from ikebana.expressions.numbers import decimals
from ikebana.expressions.temporal import zones

_TEXT = pa.string()
_NUMBER = r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<rest>\d+))?(?:e(?P<exponent>[+-]\d+))?$"
_PLAIN_LOW, _PLAIN_HIGH = 1e-3, 1e7  # between which Java prints no exponent
_YEARS = (-719_528, 2_932_896)  # days of the years 0 to 9999


def of_real(array: pa.Array) -> pa.Array:
    """Floats and doubles."""
    size = np.abs(to_numpy(array))
    with np.errstate(invalid="ignore"):
        plain = ((size >= _PLAIN_LOW) & (size < _PLAIN_HIGH)) | (size == 0)
    texts = array.cast(_TEXT)
    whole = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, ".0", ""))
    if plain.all():
        return whole
    return pc.if_else(pa.array(plain), whole, _with_exponent(texts))


def _with_exponent(texts: pa.Array) -> pa.Array:
    """Numbers as one digit, a point, more digits and an exponent; what is no number by its name."""
    parts = pc.extract_regex(texts, _NUMBER)
    sign, whole, rest, exponent = (parts.field(name) for name in ("sign", "whole", "rest", "exponent"))
    digits = pc.utf8_ltrim(pc.binary_join_element_wise(whole, rest, ""), "0")
    zeros = pc.subtract(pc.add(pc.binary_length(whole), pc.binary_length(rest)), pc.binary_length(digits))
    shift = pc.if_else(pc.equal(exponent, ""), "0", pc.utf8_ltrim(exponent, "+")).cast(pa.int32())
    power = pc.add(pc.subtract(pc.subtract(pc.binary_length(whole), zeros), 1), shift)
    digits = pc.utf8_rtrim(digits, "0")
    tail = pc.utf8_slice_codeunits(digits, 1)
    tail = pc.if_else(pc.equal(tail, ""), "0", tail)
    head = pc.utf8_slice_codeunits(digits, 0, 1)
    printed = pc.binary_join_element_wise(sign, head, ".", tail, "E", power.cast(_TEXT), "")
    for name, spark in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        printed = pc.if_else(pc.equal(texts, name), spark, printed)
    return printed


def of_decimal(array: pa.Array, plain: bool) -> pa.Array:
    """Decimals; those below a millionth have an exponent, unless plain."""
    texts = array.cast(_TEXT)
    small = is_true(pc.match_substring(texts, "E"))
    if not plain or not small.any():
        return texts
    scale = array.type.scale
    numbers = decimals.unscaled(array.filter(pa.array(small)))
    padded = pc.utf8_lpad(pa.array([str(abs(each)) for each in numbers.tolist()], _TEXT), scale, "0")
    printed = pc.binary_join_element_wise(pa.array(np.where(numbers < 0, "-0", "0")), padded, ".")
    return pc.replace_with_mask(texts, pa.array(small), printed)


def of_date(array: pa.Array) -> pa.Array:
    """Dates."""
    days, valid = to_numpy(array), validity(array)
    odd = _odd(days, valid)
    if not odd.any():
        return array.cast(_TEXT)
    texts = pa.array(np.where(odd, 0, days).astype(np.int32)).view(pa.date32()).cast(_TEXT)
    return _with_odd(texts, odd, valid, lambda row: _date(int(days[row])))


def of_clock(micros: Array, valid: Flags | None) -> pa.Array:
    """Dates and times that clocks show."""
    days, rest = micros // zones.DAY, micros % zones.DAY
    odd = _odd(days, valid)
    texts = pa.array(np.where(odd, rest, micros)).view(pa.timestamp("us")).cast(_TEXT)
    trimmed = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    texts = pc.if_else(pa.array(rest % zones.SECOND == 0), pc.utf8_slice_codeunits(texts, 0, 19), trimmed)

    def printed(row: int) -> str:
        return _date(int(days[row])) + texts[row].as_py()[10:]

    return _with_odd(texts, odd, valid, printed)


def _odd(days: Array, valid: Flags | None) -> Flags:
    found: Flags = (days < _YEARS[0]) | (days > _YEARS[1])
    return found if valid is None else found | ~valid


def _with_odd(texts: pa.Array, odd: Flags, valid: Flags | None, printed: Callable[[int], str]) -> pa.Array:
    if not odd.any():
        return texts
    there = np.ones(len(odd), bool) if valid is None else valid
    replaced: list[Any] = [printed(row) if there[row] else None for row in np.flatnonzero(odd).tolist()]
    return pc.replace_with_mask(texts, pa.array(odd), pa.array(replaced, _TEXT))


def _date(days: int) -> str:
    """A date of any year, by moving it a whole number of cycles of 400 years."""
    cycles, rest = divmod(days + 719_528, 146_097)
    year, month_day = str(np.datetime64(rest - 719_528, "D")).split("-", 1)
    number = int(year) + 400 * cycles
    sign = "-" if number < 0 else "+" if number > 9999 else ""
    return f"{sign}{abs(number):04}-{month_day}"
