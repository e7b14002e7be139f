"""`format_string` (printf): values written into a text, as Java's Formatter does.

The text must be a literal. Whole numbers may be written as %d, %x, %X and %o, floats as %f, strings, whole
numbers and booleans as %s, with a width, a precision and the flags `-`, `0`, `,`, `+` and space; %c, %e, %g, dates and
positions are refused when the query is created. Nulls are written "null". It is computed by Python, once for each
distinct combination of values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import types

from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, Config, Expression, Literal, builds, function
from ikebana.expressions.core.scalars import Arguments, each_distinct_with_nulls
from ikebana.expressions.core.tree import Tree

_SPECIFIER = re.compile(r"%([-0,+ ]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")
_WIDE = Context(prec=700)


@dataclass(frozen=True)
class _Part:
    """How a value is written; text that stands for itself has no letter."""

    letter: str
    flags: str = ""
    width: int = 0
    precision: int | None = None
    text: str = ""


@lru_cache(maxsize=256)
def _parts(pattern: str) -> tuple[_Part, ...]:
    return tuple(_lexed(pattern))


def _lexed(pattern: str) -> Iterator[_Part]:
    at = 0
    while at < len(pattern):
        if pattern[at] != "%":
            end = pattern.find("%", at)
            end = len(pattern) if end < 0 else end
            yield _Part("", text=pattern[at:end])
            at = end
            continue
        found = _SPECIFIER.match(pattern, at)
        if not found:
            raise _refusal(pattern, pattern[at : at + 3])
        if found[0] in ("%%", "%n"):
            yield _Part("", text="%" if found[0] == "%%" else "\n")
        else:
            precision = None if found[3] is None else int(found[3])
            yield _Part(found[4], found[1], int(found[2] or 0), precision)
        at = found.end()


def _refusal(pattern: str, part: str) -> SqlError:
    return SqlError(
        f"the format {pattern!r} is not supported in a maintained view",
        detail=f"{part!r} does not fit the value, or is not supported",
        hint="use %s for strings, %d for whole numbers and %f for others",
    )


def _fits(part: _Part, kind: pa.DataType) -> bool:
    match part.letter:
        case "d":
            return types.is_integer(kind) and part.precision is None
        case "x" | "X" | "o":
            return types.is_integer(kind) and part.precision is None and not set(part.flags) & set(",+ ")
        case "f":
            return types.is_floating(kind)  # Spark cannot write its decimals
        case "s" | "S":
            plain = types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind)
            return plain and not set(part.flags) - {"-"}
    return False


@builds("FormatString")
def _build(tree: Tree, children: Arguments, config: Config) -> Expression:
    pattern, *given = children
    if not isinstance(pattern, Literal):
        raise SqlError("a format that is not constant is not supported in a maintained view", hint="write a literal")
    if pattern.value is None:
        return Literal(pa.string(), True, None)
    wanted = [each for each in _parts(pattern.value) if each.letter]
    if len(wanted) > len(given):
        raise _refusal(pattern.value, "%" + wanted[-1].letter)
    for part, value in zip(wanted, given, strict=False):
        if not _fits(part, value.type) or ("0" in part.flags and not part.width):
            raise _refusal(pattern.value, "%" + part.letter)
    kinds = tuple(each.type.bit_width if types.is_integer(each.type) else 0 for each in given)
    return Call(pa.string(), False, "printf", tuple(given[: len(wanted)]), (pattern.value, kinds[: len(wanted)]))


@function("printf", lazy=True)
def _printf(call: Call, rows: Any) -> pa.Array:
    pattern, sizes = call.options
    if not call.arguments:
        return pa.repeat(pa.scalar("".join(each.text for each in _parts(pattern))), rows.count)

    def written(*values: Any) -> str:
        given = iter(zip(values, sizes, strict=True))
        return "".join(_written(each, *next(given)) if each.letter else each.text for each in _parts(pattern))

    return each_distinct_with_nulls(written, call.type, *(each.evaluate(rows) for each in call.arguments))


def _written(part: _Part, value: Any, size: int) -> str:
    if value is None or part.letter in "sS":
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        text = text if part.precision is None else _cut(text, part.precision)
        return _aligned(part, text.upper() if part.letter in "SX" else text)
    if part.letter in "xXo":
        digits = format(value & (2**size - 1), part.letter)
        return _aligned(part, digits.rjust(part.width, "0") if "0" in part.flags else digits)
    return _number(part, value)


def _number(part: _Part, value: Any) -> str:
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        sign = "" if value != value else "-" if value < 0 else "+" if "+" in part.flags else ""
        return _aligned(part, "NaN" if value != value else f"{sign}Infinity")
    if part.letter == "f":
        places = 6 if part.precision is None else part.precision
        exact = Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _WIDE)
        digits, negative = f"{abs(exact):,.{places}f}", exact.is_signed()
    else:
        digits, negative = f"{abs(value):,}", value < 0
    digits = digits if "," in part.flags else digits.replace(",", "")
    sign = "-" if negative else "+" if "+" in part.flags else " " if " " in part.flags else ""
    if "0" in part.flags:
        digits = digits.rjust(part.width - len(sign), "0")
    return _aligned(part, sign + digits)


def _aligned(part: _Part, text: str) -> str:
    """With spaces, as many as lack: characters beyond the first 65536 count twice, as in Java."""
    spaces = " " * (part.width - len(text.encode("utf-16-le")) // 2)
    return text + spaces if "-" in part.flags else spaces + text


def _cut(text: str, units: int) -> str:
    return text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore")
