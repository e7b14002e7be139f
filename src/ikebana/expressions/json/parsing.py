"""from_json: JSON texts as structs, arrays and maps of a type.

As in Spark's mode PERMISSIVE: a field whose value does not have the type is null, while the other fields have their
values; an array or map with such an element is null; a text that is not JSON becomes a struct of nulls, or null if the
type is an array or a map. Dates and timestamps are read like by a cast.

Cost: Python reads each distinct text once.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import is_instant, is_local_timestamp
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, Config, Expression, Literal, builds, function
from ikebana.expressions.core.parsing import to_date, to_timestamp, to_timestamp_ntz
from ikebana.expressions.core.scalars import Arguments, map_distinct
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.json.texts import JsonText, MalformedText, compact

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "+INF": math.inf, "INF": math.inf, "+Infinity": math.inf}
_SPECIAL |= {"-Infinity": -math.inf, "-INF": -math.inf}
_DIGITS = Context(prec=100)


Reader = Callable[[JsonText, int], Any]
"""Reads the value at a position of a text."""


class _Mismatch(Exception):
    """A value does not have the type."""


@builds("from_json")
def _build_from_json(tree: Tree, children: Arguments, config: Config) -> Expression:
    """The arguments are the text, a null of the type, then names and values of options."""
    text, kind, *options = children
    names = [str(option.value) for option in options[::2] if isinstance(option, Literal)]
    unsupported = sorted(set(names) - {"mode"}) or [
        f"mode={option.value}"
        for option in options[1::2]
        if isinstance(option, Literal) and str(option.value).upper() != "PERMISSIVE"
    ]
    if unsupported:
        raise SqlError(
            f"from_json with the option {unsupported[0]!r} is not supported in a maintained view",
            hint="leave the option out, or compute the value before loading it",
        )
    return Call(kind.type, True, "from_json", (text,), (config.time_zone,))


@function("from_json")
def _from_json(call: Call, text: pa.Array) -> pa.Array:
    (zone,) = call.options
    read = _reader(call.type, zone)
    return map_distinct(lambda value: _parsed(value, call.type, read, zone), call.type, text)


def _parsed(text: str, kind: pa.DataType, read: Reader, zone: str) -> Any:
    """The value of a text; None if there is none. An object counts as an array of one struct."""
    if not text.strip():
        return None
    source = JsonText(text)
    nothing = {field.name: None for field in kind} if types.is_struct(kind) else None
    try:
        position = source.skip_space(0)
        source.skip(position)  # a text that is not JSON to its end has no value
        if types.is_list(kind) and types.is_struct(kind.value_type) and source.peek(position) == "{":
            return [_reader(kind.value_type, zone)(source, position)]
        value = read(source, position)
        return nothing if value is None else value
    except (MalformedText, _Mismatch):
        return nothing


def _reader(kind: pa.DataType, zone: str) -> Reader:
    """A function that reads a value of a type; it raises `_Mismatch` for values of other types."""
    read = _reader_of_values(kind, zone)

    def read_or_null(source: JsonText, position: int) -> Any:
        return None if source.text.startswith("null", position) else read(source, position)

    return read_or_null


def _reader_of_values(kind: pa.DataType, zone: str) -> Reader:
    if types.is_struct(kind):
        return _struct_reader({field.name: _reader(field.type, zone) for field in kind})
    if types.is_list(kind):
        return _list_reader(_reader(kind.value_type, zone))
    if types.is_map(kind):
        return _map_reader(kind, _reader(kind.item_type, zone))
    if types.is_string(kind):
        return _string
    if types.is_boolean(kind):
        return _boolean
    if types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return lambda source, position: _integer(source, position, limit)
    if types.is_floating(kind):
        return _float
    if types.is_decimal(kind):
        return lambda source, position: _decimal(source, position, kind)
    if types.is_binary(kind):
        return _binary
    if types.is_date(kind) or types.is_timestamp(kind):
        return _time_reader(kind, zone)
    raise SqlError(f"from_json of type {kind} is not supported in a maintained view", hint="read it as a string")


def _struct_reader(fields: dict[str, Reader]) -> Reader:
    def read(source: JsonText, position: int) -> Any:
        if source.peek(position) != "{":
            raise _Mismatch
        values: dict[str, Any] = dict.fromkeys(fields)
        for name, at in source.entries(position):
            if name in fields:
                try:
                    values[name] = fields[name](source, at)
                except _Mismatch:
                    values[name] = None
        return values

    return read


def _list_reader(element: Reader) -> Reader:
    def read(source: JsonText, position: int) -> Any:
        if source.peek(position) != "[":
            raise _Mismatch
        return [element(source, at) for at in source.elements(position)]

    return read


def _map_reader(kind: pa.DataType, value: Reader) -> Reader:
    if not types.is_string(kind.key_type):
        raise SqlError("from_json of maps whose keys are not strings is not supported in a maintained view")

    def read(source: JsonText, position: int) -> Any:
        if source.peek(position) != "{":
            raise _Mismatch
        return list({name: value(source, at) for name, at in source.entries(position)}.items())

    return read


def _string(source: JsonText, position: int) -> str:
    """A string; another value as JSON."""
    return source.string(position)[0] if source.peek(position) in ('"', "'") else compact(source, position)


def _text(source: JsonText, position: int) -> str:
    if source.peek(position) not in ('"', "'"):
        raise _Mismatch
    return source.string(position)[0]


def _boolean(source: JsonText, position: int) -> bool:
    end = source.word(position)
    if not end:
        raise _Mismatch
    return source.text[position:end] == "true"


def _written_number(source: JsonText, position: int) -> str:
    if source.peek(position) in ("{", "[", '"', "'", "t", "f"):
        raise _Mismatch
    return source.number(position)[0]


def _integer(source: JsonText, position: int, limit: int) -> int:
    try:
        number = int(_written_number(source, position))
    except ValueError:
        raise _Mismatch from None
    if not -limit <= number < limit:
        raise _Mismatch
    return number


def _float(source: JsonText, position: int) -> float:
    written = _text(source, position) if source.peek(position) in ('"', "'") else _written_number(source, position)
    if written in _SPECIAL:
        return _SPECIAL[written]
    if source.peek(position) in ('"', "'"):
        raise _Mismatch
    return float(written)


def _decimal(source: JsonText, position: int, kind: pa.DataType) -> Decimal:
    written = _text(source, position) if source.peek(position) in ('"', "'") else _written_number(source, position)
    try:
        number = Decimal(written).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, _DIGITS)
    except InvalidOperation:
        raise _Mismatch from None
    if not number.is_finite() or len(number.as_tuple().digits) > kind.precision:
        raise _Mismatch
    return number


def _binary(source: JsonText, position: int) -> bytes:
    try:
        return base64.b64decode(_text(source, position), validate=True)
    except binascii.Error:
        raise _Mismatch from None


def _time_reader(kind: pa.DataType, zone: str) -> Reader:
    def read(source: JsonText, position: int) -> Any:
        if is_instant(kind) and source.peek(position).isdigit():
            return _integer(source, position, 1 << 63) * 1_000_000
        text = pa.array([_text(source, position)])
        if types.is_date(kind):
            value = to_date(text)[0]
        else:
            value = to_timestamp_ntz(text)[0] if is_local_timestamp(kind) else to_timestamp(text, zone)[0]
        if not value.is_valid:
            raise _Mismatch
        return value.value

    return read
