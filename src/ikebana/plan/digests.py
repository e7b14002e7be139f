"""Digests of the values in plans: equal values have equal digests, different values have different digests.

A digest follows the structure of a value, never its identity:

| value | digested by |
|---|---|
| None, booleans, numbers, strings, bytes, dates, times | their `repr` |
| frozen dataclasses | the full name of the class, and the fields that take part in comparisons |
| tuples, lists, dicts, sets | their elements; of sets regardless of order |
| enumerations, classes | their full name |
| Arrow types and fields | names, types and nullability, also of nested fields |
| Arrow arrays, tables and scalars, NumPy arrays | type and content, regardless of memory layout |
| everything else, above all functions | their pickle, by `cloudpickle` |

Functions are the weak spot: the same code with the same captured values usually has the same digest, but not always,
since a pickle depends on which of its parts are the same object. The only consequence is that a node is not shared.
Instances of classes that other processes cannot import by name are pickled too.

Cost: a pass over the value, about a microsecond for each part. Frozen dataclasses of immutable values, and Arrow arrays
and tables, are digested once for each object. Not guaranteed: that digests are the same in another version.
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

Digest: TypeAlias = tuple[str, bool]
"""The digest of a value, and whether the value is immutable."""

_known: dict[int, tuple[weakref.ref[Any], str]] = {}
"""Digests of immutable objects, by `id`, as long as the objects live."""


def digest_of(value: Any) -> str:
    """A string that is the same for equal values.

    >>> digest_of(("k", 1)) == digest_of(("k", 1)), digest_of(1) == digest_of(True)
    (True, False)
    """
    return _digest(value)[0]


def _digest(value: Any) -> Digest:
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
    """Whether the fields determine an instance: its class itself, rather than a base class, is a frozen dataclass."""
    parameters = vars(kind).get("__dataclass_params__")
    return bool(parameters is not None and parameters.frozen and _is_importable(kind))


def _of_elements(value: Any, kind: type) -> Digest:
    items = [item for pair in value.items() for item in pair] if kind is dict else list(value)
    digests = [_digest(item) for item in items]
    texts = [text for text, _ in digests]
    inner = ",".join(sorted(texts) if _OPEN[kind] == "<" else texts)
    return f"{_OPEN[kind]}{inner}.", kind in (tuple, frozenset) and all(immutable for _, immutable in digests)


def _of_dataclass(value: Any, kind: type) -> Digest:
    parts, is_immutable = [_name(kind)], True
    for name in _compared(kind):
        text, immutable = _digest(getattr(value, name))
        parts.append(text)
        is_immutable &= immutable
    digest = _hashed("\0".join(parts).encode())
    if is_immutable:
        _remember(value, digest)
    return digest, is_immutable


@lru_cache(maxsize=1024)
def _compared(kind: Any) -> tuple[str, ...]:
    """The fields that take part in comparisons."""
    return tuple(field.name for field in fields(kind) if field.compare)


@lru_cache(maxsize=1024)
def _is_importable(kind: Any) -> bool:
    """Whether other processes can import a class, or function, by its name."""
    target: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        target = getattr(target, name, None)
    return bool(target is kind and kind.__module__ != "__main__")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _hashed(data: bytes) -> str:
    return "#" + hashlib.sha256(data).hexdigest()[:32]


def _remember(value: Any, digest: str) -> None:
    """Keep the digest of an object as long as it lives, if it supports weak references."""
    key = id(value)
    try:
        _known[key] = weakref.ref(value, lambda _: _known.pop(key, None)), digest
    except TypeError:  # an object with slots, and none for weak references
        return


def _of_library(value: Any, kind: type) -> Digest:
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
        digest = _of_table(value) if isinstance(value, pa.Table) else _of_array(value)
        _remember(value, digest)
        return digest, True
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
    """A digest of the Arrow message with a copy of the array, which starts at the array's first row."""
    copy = array.take(pa.array(np.arange(len(array))))
    copy = copy.combine_chunks() if isinstance(copy, pa.ChunkedArray) else copy
    message = pa.record_batch([copy], names=["values"]).serialize()
    return f"{_of_type(array.type)}[{len(array)}]{_hashed(message)}"


def _of_table(table: pa.Table) -> str:
    columns = [_of_array(column) for column in table.columns]
    return _hashed(f"{[_of_field(field) for field in table.schema]}{table.num_rows}{columns}".encode())
