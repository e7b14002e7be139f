"""Values formatted as strings: format_string (printf) and format_number.

format_string formats as Java's Formatter does. The format must be a literal. Supported conversions: %d, %x, %X, %o of
integers, %f of floats, %s and %S of strings, integers and booleans, with a width, a precision and the flags `-`, `0`,
`,`, `+` and space. Nulls are formatted as "null". The conversions %c, %e, %g and %t, decimals, and argument indices are
refused when the query is created.

format_number inserts commas between thousands and rounds half to even, unlike %f, which rounds half up. A format
pattern instead of a number of decimal places is not supported.

Cost: Python formats each distinct combination of arguments once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import types

from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, Literal, builds, function
from ikebana.expressions.core.scalars import Arguments, Value, map_distinct, map_distinct_with_nulls, maps
from ikebana.expressions.core.tree import Tree

_STRING = pa.string()
_EXACT = Context(prec=700)
"""Precision for all digits of a float or decimal with up to `_MAX_PLACES` decimal places."""


# format_string.

_SPECIFIER = re.compile(r"%([-0,+ ]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")


@dataclass(frozen=True)
class _Part:
    """A format specifier, or literal text (then the conversion is empty)."""

    conversion: str
    flags: str = ""
    width: int = 0
    precision: int | None = None
    text: str = ""


@lru_cache(maxsize=256)
def _parse_format(pattern: str) -> tuple[_Part, ...]:
    return tuple(_parts(pattern))


def _parts(pattern: str) -> Iterator[_Part]:
    at = 0
    while at < len(pattern):
        if pattern[at] != "%":
            end = pattern.find("%", at)
            end = len(pattern) if end < 0 else end
            yield _Part("", text=pattern[at:end])
            at = end
            continue
        match = _SPECIFIER.match(pattern, at)
        if not match:
            raise _unsupported(pattern, pattern[at : at + 3])
        if match[0] in ("%%", "%n"):
            yield _Part("", text="%" if match[0] == "%%" else "\n")
        else:
            precision = None if match[3] is None else int(match[3])
            yield _Part(match[4], match[1], int(match[2] or 0), precision)
        at = match.end()


def _unsupported(pattern: str, specifier: str) -> SqlError:
    return SqlError(
        f"the format {pattern!r} of format_string is not supported in a maintained view",
        detail=f"{specifier!r} is not supported, or not for the type of its argument",
        hint="use %s for strings, %d for integers and %f for floats; cast other values to STRING",
    )


def _is_supported(part: _Part, kind: pa.DataType) -> bool:
    """Whether a specifier is supported for arguments of a type."""
    match part.conversion:
        case "d":
            return types.is_integer(kind) and part.precision is None
        case "x" | "X" | "o":
            return types.is_integer(kind) and part.precision is None and not set(part.flags) & set(",+ ")
        case "f":
            return types.is_floating(kind)  # Spark fails for decimals
        case "s" | "S":
            is_simple = types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind)
            return is_simple and not set(part.flags) - {"-"}
    return False


@builds("FormatString")
def _build(tree: Tree, children: Arguments, config: Config) -> Expression:
    pattern, *arguments = children
    if not isinstance(pattern, Literal):
        raise SqlError(
            "format_string with a format that is not constant is not supported in a maintained view",
            detail=f"the format is {pattern}",
            hint="write the format as a literal",
        )
    if pattern.value is None:
        return Literal(_STRING, True, None)
    specifiers = [part for part in _parse_format(pattern.value) if part.conversion]
    if len(specifiers) > len(arguments):
        raise _unsupported(pattern.value, "%" + specifiers[-1].conversion)
    for part, value in zip(specifiers, arguments, strict=False):
        if not _is_supported(part, value.type) or ("0" in part.flags and not part.width):
            raise _unsupported(pattern.value, "%" + part.conversion)
    used = tuple(arguments[: len(specifiers)])
    bits = tuple(value.type.bit_width if types.is_integer(value.type) else 0 for value in used)
    return Call(_STRING, False, "printf", used, (pattern.value, bits))


@function("printf", lazy=True)
def _printf(call: Call, rows: ColumnBatch) -> pa.Array:
    pattern, bits = call.options
    parts = _parse_format(pattern)
    if not call.arguments:
        return pa.repeat(pa.scalar("".join(part.text for part in parts)), rows.count)

    def formatted(*values: Any) -> str:
        arguments = iter(zip(values, bits, strict=True))
        return "".join(_formatted(part, *next(arguments)) if part.conversion else part.text for part in parts)

    return map_distinct_with_nulls(formatted, call.type, *(value.evaluate(rows) for value in call.arguments))


def _formatted(part: _Part, value: Any, bits: int) -> str:
    if value is None or part.conversion in "sS":
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        text = text if part.precision is None else _truncated(text, part.precision)
        return _aligned(part, text.upper() if part.conversion in "SX" else text)
    if part.conversion in "xXo":
        digits = format(value & (2**bits - 1), part.conversion)
        return _aligned(part, digits.rjust(part.width, "0") if "0" in part.flags else digits)
    return _formatted_number(part, value)


def _formatted_number(part: _Part, value: Any) -> str:
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        sign = "" if value != value else "-" if value < 0 else "+" if "+" in part.flags else ""
        return _aligned(part, "NaN" if value != value else f"{sign}Infinity")
    if part.conversion == "f":
        places = 6 if part.precision is None else part.precision
        rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _EXACT)
        digits, negative = f"{abs(rounded):,.{places}f}", rounded.is_signed()
    else:
        digits, negative = f"{abs(value):,}", value < 0
    digits = digits if "," in part.flags else digits.replace(",", "")
    sign = "-" if negative else "+" if "+" in part.flags else " " if " " in part.flags else ""
    if "0" in part.flags:
        digits = digits.rjust(part.width - len(sign), "0")
    return _aligned(part, sign + digits)


def _aligned(part: _Part, text: str) -> str:
    """Pad with spaces to the width, which counts UTF-16 code units, as in Java."""
    spaces = " " * (part.width - len(text.encode("utf-16-le")) // 2)
    return text + spaces if "-" in part.flags else spaces + text


def _truncated(text: str, units: int) -> str:
    """The first UTF-16 code units of a text."""
    return text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore")


# format_number.

_MAX_PLACES = 300


def _check_places(arguments: Arguments) -> None:
    if not types.is_integer(arguments[1].type):
        raise SqlError(
            "format_number with a pattern is not supported in a maintained view",
            detail=f"the pattern is {arguments[1]}",
            hint="give the number of decimal places instead",
        )


@maps("FormatNumber", gives=_STRING, nullable=True, check=_check_places, raises=True)
def _format_number(call: Call, value: Value, places: Value) -> pa.Array:
    return map_distinct(_with_commas, _STRING, value, places)


def _with_commas(value: Any, places: int) -> str | None:
    if places < 0:
        return None
    if places > _MAX_PLACES:
        raise EvaluationError(
            f"format_number cannot format {value} with {places} decimal places",
            hint=f"use at most {_MAX_PLACES} decimal places",
        )
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return "NaN" if value != value else "∞" if value > 0 else "-∞"
        return f"{_rounded(value, places):,.{places}f}"
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN, _EXACT):,.{places}f}"


def _rounded(value: float, places: int) -> Decimal:
    """The shortest decimal representation of a float, rounded half to even.

    If it ends in a half that the float is not exactly, it is rounded to the side on which the float is, as in Java.
    """
    shortest, exact, step = Decimal(repr(value)), Decimal(value), Decimal(1).scaleb(-places)
    mode = ROUND_HALF_EVEN
    lower = shortest.quantize(step, ROUND_DOWN, _EXACT)
    if exact != shortest and abs(shortest - lower) * 2 == step:
        mode = ROUND_UP if abs(exact) > abs(shortest) else ROUND_DOWN
    return shortest.quantize(step, mode, _EXACT)
