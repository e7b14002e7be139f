"""Digests of the values that plans are made of: equal values have equal digests, different ones do not.

A digest follows the structure of a value, never its identity:

| value | digested by |
|---|---|
| None, booleans, numbers, text, bytes, dates, times | what Python prints for them |
| frozen dataclasses | their class's full name, and the fields that take part in comparisons |
| tuples, lists, dicts, sets | their elements; those of sets in any order |
| enumerations, classes | their full name |
| Arrow's types and fields | names, types and what may be null, of nested ones too |
| Arrow's arrays, tables and scalars, NumPy's arrays | type and content, however they lie in memory |
| everything else, functions above all | how `cloudpickle` sends them |

Functions are the weak spot: the same code with the same captured values mostly has the same digest, but need not, since
what is sent depends on which of its parts are one object. A miss costs a node that could have been shared, nothing
else. Classes that other processes could not import by name are no better: their instances are sent as a whole.

Cost: a pass over the value, about a microsecond a part. Frozen dataclasses made of immutable values alone, and Arrow's
arrays and tables, are digested once for each object. Not guaranteed: that digests are the same in another version.
"""

from __future__ import annotations

import hashlib
import sys
import weakref
from dataclasses import fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias

import cloudpickle
import numpy as np
import pyarrow as pa

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, Decimal, date, datetime, time, timedelta})
_OPEN: dict[Any, str] = {tuple: "(", list: "[", dict: "{", set: "<", frozenset: "<"}

Found: TypeAlias = tuple[str, bool]
"""The digest of a value, and whether the value can never change."""

_known: dict[int, tuple[weakref.ref[Any], str]] = {}
"""Digests of objects that never change, by their identity while they live."""


def digest_of(value: Any) -> str:
    """A text that is the same for equal values.

    >>> digest_of(("k", 1)) == digest_of(("k", 1)), digest_of(1) == digest_of(True)
    (True, False)
    """
    return _digest(value)[0]


def _digest(value: Any) -> Found:
    kind: Any = type(value)
    if kind in _PLAIN:
        return repr(value), True
    if kind in _OPEN:
        return _of_elements(value, kind)
    if id(value) in _known:
        return _known[id(value)][1], True
    if _is_frozen(kind):
        return _of_dataclass(value, kind)
    return _of_library(value, kind)


@lru_cache(maxsize=1024)
def _is_frozen(kind: Any) -> bool:
    """Whether instances are what their fields are: of a frozen dataclass, rather than of a class made from one."""
    how = vars(kind).get("__dataclass_params__")
    return bool(how is not None and how.frozen and _is_importable(kind))


def _of_elements(value: Any, kind: type) -> Found:
    items = [each for pair in value.items() for each in pair] if kind is dict else list(value)
    found = [_digest(each) for each in items]
    texts = [text for text, _ in found]
    inner = ",".join(sorted(texts) if _OPEN[kind] == "<" else texts)
    return f"{_OPEN[kind]}{inner}.", kind in (tuple, frozenset) and all(is_fixed for _, is_fixed in found)


def _of_dataclass(value: Any, kind: type) -> Found:
    parts, is_fixed = [_name(kind)], True
    for name in _compared(kind):
        text, fixed = _digest(getattr(value, name))
        parts.append(text)
        is_fixed &= fixed
    found = _hashed("\0".join(parts).encode())
    if is_fixed:
        _remember(value, found)
    return found, is_fixed


@lru_cache(maxsize=1024)
def _compared(kind: Any) -> tuple[str, ...]:
    """The fields that count."""
    return tuple(each.name for each in fields(kind) if each.compare)


@lru_cache(maxsize=1024)
def _is_importable(kind: Any) -> bool:
    """Whether other processes find a class, or function, by its name."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return bool(found is kind and kind.__module__ != "__main__")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _hashed(data: bytes) -> str:
    return "#" + hashlib.sha256(data).hexdigest()[:32]


def _remember(value: Any, found: str) -> None:
    """Keep the digest of an object while it lives, if that can be known."""
    key = id(value)
    try:
        _known[key] = weakref.ref(value, lambda _: _known.pop(key, None)), found
    except TypeError:  # it has slots, and none for that
        return


def _of_library(value: Any, kind: type) -> Found:
    if isinstance(value, Enum) and _is_importable(kind):
        return f"{_name(kind)}.{value.name}", True
    if isinstance(value, type) and _is_importable(value):
        return f"class {_name(value)}", True
    if isinstance(value, pa.Field):
        return _of_field(value), True
    if isinstance(value, pa.DataType):
        return _of_type(value), True
    if isinstance(value, pa.Scalar):
        return "scalar" + _of_array(pa.array([value], value.type)), True
    if isinstance(value, pa.Array | pa.ChunkedArray | pa.Table):
        found = _of_table(value) if isinstance(value, pa.Table) else _of_array(value)
        _remember(value, found)
        return found, True
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return f"{value.dtype.str}{value.shape}{_hashed(np.ascontiguousarray(value).tobytes())}", False
    return _hashed(cloudpickle.dumps(value)), False


def _of_field(field: pa.Field) -> str:
    return f"{field.name!r}:{_of_type(field.type)}{'?' if field.nullable else ''}"


@lru_cache(maxsize=1024)
def _of_flat_type(kind: pa.DataType) -> str:
    return str(kind)


def _of_type(kind: pa.DataType) -> str:
    if not kind.num_fields:
        return _of_flat_type(kind)
    inner = ",".join(_of_field(kind.field(at)) for at in range(kind.num_fields))
    return f"{_hashed(str(kind).encode())}<{inner}>"


def _of_array(array: pa.Array | pa.ChunkedArray) -> str:
    """By what Arrow would send, of a copy that starts at the array's first row."""
    copy = array.take(pa.array(np.arange(len(array))))
    copy = copy.combine_chunks() if isinstance(copy, pa.ChunkedArray) else copy
    sent = pa.record_batch([copy], names=["values"]).serialize()
    return f"{_of_type(array.type)}[{len(array)}]{_hashed(sent)}"


def _of_table(table: pa.Table) -> str:
    columns = [_of_array(column) for column in table.columns]
    return _hashed(f"{[_of_field(field) for field in table.schema]}{table.num_rows}{columns}".encode())
