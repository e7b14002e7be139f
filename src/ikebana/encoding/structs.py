"""Fields of structs, checked as columns are: what is missing and what is unknown, by path.

Arrow leaves out fields that a struct does not have and makes null of those that are missing, which would lose data
without a word. Paths are written as Spark writes them: `address.zip`, `lines.element.price`, `rates.value.year`.

Cost: nothing for columns without structs. Types are compared, not values, where a column is Arrow's; Python's values
are looked at one by one, as Arrow does when it makes a column of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.errors import SchemaError

MISSING, UNKNOWN = "missing", "unknown"

Stray = tuple[str, str]
"""What is wrong with a field, and its path."""


@lru_cache(maxsize=4096)
def has_structs(kind: pa.DataType) -> bool:
    """Whether values of a type have fields somewhere."""
    return bool(types.is_struct(kind)) or any(has_structs(kind.field(at).type) for at in range(kind.num_fields))


def check_values(values: Iterable[Any], field: pa.Field) -> None:
    """Raise if Python's values for a column have other fields than its type, at any depth."""
    if has_structs(field.type):
        _raise(dict.fromkeys(stray for value in values for stray in _in_value(value, field.type, field.name)), field)


def check_type(given: pa.DataType, field: pa.Field) -> None:
    """Raise if a type has other fields than a column's, at any depth. Whether they are of its types is not asked."""
    if has_structs(field.type):
        _raise(dict.fromkeys(_in_type(given, field.type, field.name)), field)


def _in_value(value: Any, kind: pa.DataType, path: str) -> Iterator[Stray]:
    if value is None or not has_structs(kind):
        return
    if types.is_struct(kind):
        if isinstance(value, Mapping):
            names = [each.name for each in kind]
            yield from ((UNKNOWN, f"{path}.{name}") for name in value if name not in names)
            yield from ((MISSING, f"{path}.{name}") for name in names if name not in value)
            for each in kind:
                yield from _in_value(value.get(each.name), each.type, f"{path}.{each.name}")
    elif types.is_map(kind):
        for key, item in value.items() if isinstance(value, Mapping) else value:
            yield from _in_value(key, kind.key_type, f"{path}.key")
            yield from _in_value(item, kind.item_type, f"{path}.value")
    elif isinstance(value, list | tuple | np.ndarray):
        for item in value:
            yield from _in_value(item, kind.value_type, f"{path}.element")


def _in_type(given: pa.DataType, kind: pa.DataType, path: str) -> Iterator[Stray]:
    if types.is_struct(given) and types.is_struct(kind):
        there, names = {each.name: each.type for each in given}, [each.name for each in kind]
        yield from ((UNKNOWN, f"{path}.{name}") for name in there if name not in names)
        yield from ((MISSING, f"{path}.{name}") for name in names if name not in there)
        for each in kind:
            if each.name in there:
                yield from _in_type(there[each.name], each.type, f"{path}.{each.name}")
    elif types.is_map(given) and types.is_map(kind):
        yield from _in_type(given.key_type, kind.key_type, f"{path}.key")
        yield from _in_type(given.item_type, kind.item_type, f"{path}.value")
    elif _is_list(given) and _is_list(kind):
        yield from _in_type(given.value_type, kind.value_type, f"{path}.element")


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _raise(strays: Iterable[Stray], field: pa.Field) -> None:
    by_what: dict[str, list[str]] = {}
    for what, path in strays:
        by_what.setdefault(what, []).append(path)
    if by_what:
        raise SchemaError(
            f"the fields of column {field.name!r} do not fit the schema",
            detail="; ".join(f"{what}: {', '.join(map(repr, by_what[what]))}" for what in sorted(by_what)),
            hint=f"give exactly the fields of {field.type}, None for those that have no value",
        )
