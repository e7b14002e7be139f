"""to_json: structs, arrays and maps as JSON texts, and get_json_object: a value in a JSON text by its path.

Fields of structs that are null are left out; null elements and values are written. Timestamps have three digits of
seconds and the offset of the session's time zone.

Unsupported: options of to_json other than ignoreNullFields, intervals, wildcards in paths.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import is_instant, to_numpy, validity
from ikebana.errors import SqlError
from ikebana.expressions.core import printing
from ikebana.expressions.core.base import Call, Config, Expression, Literal, builds, function
from ikebana.expressions.core.scalars import Arguments, Value, map_distinct, maps, null_where_invalid
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.json.texts import JsonText, MalformedText, compact, quoted
from ikebana.expressions.nested.lists import Lists
from ikebana.expressions.temporal import zones

_STRING = pa.string()
_IGNORE_NULLS = "ignoreNullFields"
_STEP = re.compile(r"\.([^.\[]+)|\['([^']*)'\]|\[(\d+)\]")


@builds("to_json")
def _build_to_json(tree: Tree, children: Arguments, config: Config) -> Expression:
    """The arguments are the value, then names and values of options."""
    value, *options = children
    given = {
        str(name.value).lower(): str(option.value).lower()
        for name, option in zip(options[::2], options[1::2], strict=True)
        if isinstance(name, Literal) and isinstance(option, Literal)
    }
    ignores_nulls = given.pop(_IGNORE_NULLS.lower(), "true") == "true"
    if given:
        raise SqlError(
            f"to_json with the option {next(iter(given))!r} is not supported in a maintained view",
            hint="leave the option out, or format the values first",
        )
    return Call(_STRING, True, "to_json", (value,), (config.time_zone, ignores_nulls))


@function("to_json")
def _to_json(call: Call, array: pa.Array) -> pa.Array:
    return null_where_invalid(_Generator(*call.options).texts(array), validity(array))


class _Generator:
    """Writes columns as JSON; the text of null is null."""

    def __init__(self, zone: str, ignores_nulls: bool) -> None:
        self._zone, self._ignores_nulls = zone, ignores_nulls

    def texts(self, array: pa.Array) -> pa.Array:
        """A text for each value."""
        kind = array.type
        if types.is_struct(kind):
            return self._structs(array)
        if types.is_list(kind):
            lists = Lists.from_array(array)
            return self._wrapped("[", Lists(lists.counts, self._written(lists.items)), "]", array)
        if types.is_map(kind):
            return self._maps(array)
        if types.is_boolean(kind) or types.is_integer(kind):
            return array.cast(_STRING)
        if types.is_floating(kind):
            return _floats(array)
        if types.is_decimal(kind):
            return map_distinct(lambda number: str(number), _STRING, array)
        return self._quoted(array)

    def _quoted(self, array: pa.Array) -> pa.Array:
        return map_distinct(quoted, _STRING, self._strings(array))

    def _strings(self, array: pa.Array) -> pa.Array:
        """Values that JSON has no type for, as strings."""
        kind = array.type
        if types.is_string(kind):
            return array
        if types.is_binary(kind):
            return map_distinct(lambda data: base64.b64encode(data).decode(), _STRING, array)
        if types.is_date(kind):
            return printing.of_date(array)
        if types.is_timestamp(kind):
            return self._times(array)
        if types.is_boolean(kind) or types.is_integer(kind):
            return array.cast(_STRING)
        raise SqlError(f"to_json of {kind} is not supported in a maintained view", hint="cast it to a string first")

    def _times(self, array: pa.Array) -> pa.Array:
        micros, valid = to_numpy(array), validity(array)
        clock = zones.to_clock(micros, self._zone) if is_instant(array.type) else micros
        milliseconds = clock // 1000 * 1000
        text = printing.of_local_time(milliseconds // zones.SECOND * zones.SECOND, valid)
        fraction = pc.utf8_lpad(pa.array(milliseconds % zones.SECOND // 1000).cast(_STRING), 3, "0")
        text = pc.binary_join_element_wise(pc.replace_substring(text, " ", "T"), fraction, ".")
        if not is_instant(array.type):
            return text
        offset = (clock - micros) // zones.SECOND
        return pc.binary_join_element_wise(text, pa.array([_offset(int(seconds)) for seconds in offset], _STRING), "")

    def _written(self, array: pa.Array) -> pa.Array:
        """The texts, with null written as such."""
        return self.texts(array).fill_null("null")

    def _wrapped(self, left: str, lists: Lists, right: str, array: pa.Array) -> pa.Array:
        joined = pc.binary_join(lists.to_array(pa.list_(_STRING)), ",")
        return null_where_invalid(pc.binary_join_element_wise(left, joined, right, ""), validity(array))

    def _maps(self, array: pa.Array) -> pa.Array:
        keys, values = Lists.from_map_keys(array), Lists.from_map_values(array)
        entries = pc.binary_join_element_wise(self._quoted(keys.items), self._written(values.items), ":")
        return self._wrapped("{", Lists(keys.counts, entries), "}", array)

    def _structs(self, array: pa.Array) -> pa.Array:
        count = len(array.type)
        columns = []
        for field, column in zip(array.type, array.flatten(), strict=True):
            text = self.texts(column) if self._ignores_nulls else self._written(column)
            columns.append(pc.binary_join_element_wise(quoted(field.name), text, ":"))
        order = np.arange(count * len(array)).reshape(count, len(array)).T.ravel()
        items = pa.concat_arrays([pa.nulls(0, _STRING), *columns]).take(pa.array(order))
        return self._wrapped("{", Lists(np.full(len(array), count), items).drop_nulls(), "}", array)


def _floats(array: pa.Array) -> pa.Array:
    """Numbers as Java writes them; those that JSON does not have are strings."""
    texts = printing.of_float(array)
    is_special = pc.match_substring_regex(texts, "[a-z]")
    return pc.if_else(is_special, pc.binary_join_element_wise('"', texts, '"', ""), texts)


def _offset(seconds: int) -> str:
    """An offset from UTC, in hours, minutes, and seconds if there are any.

    >>> _offset(-19800), _offset(0)
    ('-05:30', 'Z')
    """
    if not seconds:
        return "Z"
    minutes, rest = divmod(abs(seconds), 60)
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" + (f":{rest:02}" if rest else "")


# Paths.


def _check_path(arguments: Arguments) -> None:
    path = arguments[1]
    if not isinstance(path, Literal) or "*" in str(path.value):
        raise SqlError(
            "get_json_object with a path that is not constant, or has a *, is not supported in a maintained view",
            hint="use from_json with a type, and transform its arrays",
        )


@maps("GetJsonObject", gives=_STRING, nullable=True, check=_check_path)
def _get_json_object(call: Call, text: Value, path: Value) -> pa.Array:
    return map_distinct(_found, _STRING, text, path)


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[str | int, ...] | None:
    """The names and positions of a path such as `$.a[0]['b']`; None if it is not valid."""
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return None
        name = match[1] if match[1] is not None else match[2]
        steps.append(int(match[3]) if match[3] is not None else name)
        position = match.end()
    return tuple(steps)


def _found(text: str, path: str) -> str | None:
    """The value at a path: a string without quotes, other values as JSON; None if there is none."""
    steps, source = _steps(path), JsonText(text)
    if steps is None:
        return None
    try:
        position = source.skip_space(0)
        place = _place(source, position, steps)
        source.skip(position)
        if place is None or (steps and source.text.startswith("null", place)):
            return None
        if source.peek(place) in ('"', "'"):
            return source.string(place)[0]
        return compact(source, place)
    except MalformedText:
        return None


def _place(source: JsonText, position: int, steps: Sequence[str | int]) -> int | None:
    """The position of the value at a path."""
    for step in steps:
        if isinstance(step, int):
            places = source.elements(position) if source.peek(position) == "[" else ()
            place = next((at for number, at in enumerate(places) if number == step), None)
        else:
            entries = source.entries(position) if source.peek(position) == "{" else ()
            place = next((at for name, at in entries if name == step), None)
        if place is None:
            return None
        position = place
    return position
