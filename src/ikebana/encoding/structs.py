"""Fields of structs, checked like columns: missing and unknown fields, by path.

Arrow silently drops unknown fields of a struct and sets missing fields to null, which would lose data. Paths
are written like in Spark: `address.zip`, `lines.element.price`, `rates.value.year`.

Cost: nothing for columns without structs. For Arrow columns only types are compared; Python values are checked one by
one, as Arrow does to convert them.
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

Mismatch = tuple[str, str]
"""`MISSING` or `UNKNOWN`, and the path of the field."""


@lru_cache(maxsize=4096)
def has_structs(kind: pa.DataType) -> bool:
    """Whether a type is a struct or contains one, at any depth."""
    return bool(types.is_struct(kind)) or any(has_structs(kind.field(at).type) for at in range(kind.num_fields))


def check_values(values: Iterable[Any], field: pa.Field) -> None:
    """Raise if Python values for a column have other fields than its type, at any depth."""
    if has_structs(field.type):
        mismatches = (mismatch for value in values for mismatch in _in_value(value, field.type, field.name))
        _raise_any(dict.fromkeys(mismatches), field)


def check_type(source: pa.DataType, field: pa.Field) -> None:
    """Raise if a type has other fields than that of a column, at any depth. The types of the fields may differ."""
    if has_structs(field.type):
        _raise_any(dict.fromkeys(_in_type(source, field.type, field.name)), field)


def _in_value(value: Any, kind: pa.DataType, path: str) -> Iterator[Mismatch]:
    if value is None or not has_structs(kind):
        return
    if types.is_struct(kind):
        if isinstance(value, Mapping):
            names = [field.name for field in kind]
            yield from ((UNKNOWN, f"{path}.{name}") for name in value if name not in names)
            yield from ((MISSING, f"{path}.{name}") for name in names if name not in value)
            for field in kind:
                yield from _in_value(value.get(field.name), field.type, f"{path}.{field.name}")
    elif types.is_map(kind):
        for key, item in value.items() if isinstance(value, Mapping) else value:
            yield from _in_value(key, kind.key_type, f"{path}.key")
            yield from _in_value(item, kind.item_type, f"{path}.value")
    elif isinstance(value, list | tuple | np.ndarray):
        for item in value:
            yield from _in_value(item, kind.value_type, f"{path}.element")


def _in_type(source: pa.DataType, kind: pa.DataType, path: str) -> Iterator[Mismatch]:
    if types.is_struct(source) and types.is_struct(kind):
        present, names = {field.name: field.type for field in source}, [field.name for field in kind]
        yield from ((UNKNOWN, f"{path}.{name}") for name in present if name not in names)
        yield from ((MISSING, f"{path}.{name}") for name in names if name not in present)
        for field in kind:
            if field.name in present:
                yield from _in_type(present[field.name], field.type, f"{path}.{field.name}")
    elif types.is_map(source) and types.is_map(kind):
        yield from _in_type(source.key_type, kind.key_type, f"{path}.key")
        yield from _in_type(source.item_type, kind.item_type, f"{path}.value")
    elif _is_list(source) and _is_list(kind):
        yield from _in_type(source.value_type, kind.value_type, f"{path}.element")


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _raise_any(mismatches: Iterable[Mismatch], field: pa.Field) -> None:
    paths: dict[str, list[str]] = {}
    for what, path in mismatches:
        paths.setdefault(what, []).append(path)
    if paths:
        raise SchemaError(
            f"the fields of column {field.name!r} do not fit the schema",
            detail="; ".join(f"{what}: {', '.join(map(repr, paths[what]))}" for what in sorted(paths)),
            hint=f"give exactly the fields of {field.type}, with None for fields without a value",
        )
