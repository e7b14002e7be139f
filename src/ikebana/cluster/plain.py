"""Plain encoding: values of declared types as JSON, without anything that could run code when it is decoded.

The schema of a message is its dataclass: `decode` accepts exactly the fields that the class declares, with values of
the declared types, and raises `UndecodableError` for everything else. Types may be int (of 64 bits), float, bool, str,
bytes, None, literals, unions with None, tuples, Arrow fields, and dataclasses of these. A `dict` stands for an object
whose form is decided later, by `from_plain`.

    encode(Point(1, "a"), Point)            # b'{"x": 1, "name": "a"}'
    decode(b'{"x": 1, "name": "a"}', Point)

Cost: that of JSON, and a few Python calls for each field.
"""

from __future__ import annotations

import base64
import json
import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from ikebana.errors import IkebanaError

T = TypeVar("T")

_INT_BITS = 64


class UndecodableError(IkebanaError):
    """A message is not of a known form."""


def encode(value: Any, kind: Any) -> bytes:
    """A value of a type as JSON."""
    return json.dumps(to_plain(value, kind), separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: Any, kind: type[T]) -> T:
    """The value of a type that `encode` has written; raises if it is anything else."""
    value: T = from_plain(parse(data), kind)
    return value


def parse(data: Any) -> Any:
    """The values of JSON in a text."""
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise UndecodableError("a message is not JSON", detail=f"{type(error).__name__}: {error}"[:200]) from None


def to_plain(value: Any, kind: Any) -> Any:
    """A value of a type as values of JSON."""
    if _is_dataclass(kind):
        return {name: to_plain(getattr(value, name), hint) for name, hint in _hints(kind).items()}
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else to_plain(value, _without_none(args))
    if origin is tuple:
        return [to_plain(item, hint) for item, hint in zip(value, _item_types(args, len(value)), strict=True)]
    if kind is bytes:
        return base64.b64encode(value).decode()
    if kind is pa.Field:
        return base64.b64encode(pa.schema([value]).serialize()).decode()
    return value


def from_plain(plain: Any, kind: Any) -> Any:
    """The value of a type that `to_plain` has turned into values of JSON; raises if it is anything else."""
    if _is_dataclass(kind):
        return _dataclass(plain, kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if plain is None else from_plain(plain, _without_none(args))
    if origin is tuple and isinstance(plain, list):
        return tuple(from_plain(item, hint) for item, hint in zip(plain, _item_types(args, len(plain)), strict=True))
    if origin is Literal and isinstance(plain, str) and plain in args:
        return plain
    if kind in (bytes, pa.Field) and isinstance(plain, str):
        return _binary(plain, kind)
    if kind is float and type(plain) in (int, float):
        return float(plain)
    if origin is dict and isinstance(plain, dict):
        return plain
    if kind in (int, bool, str) and type(plain) is kind and (kind is not int or plain.bit_length() < _INT_BITS):
        return plain
    raise UndecodableError(f"a message has {str(plain)[:60]!r} instead of a value of type {kind}")


def _dataclass(plain: Any, kind: Any) -> Any:
    hints = _hints(kind)
    if not isinstance(plain, dict) or not plain.keys() <= hints.keys():
        raise UndecodableError(f"a message is not a {kind.__name__}", detail=f"it has {str(plain)[:60]!r}")
    missing = _required(kind) - plain.keys()
    if missing:
        raise UndecodableError(f"a {kind.__name__} has no {', '.join(sorted(missing))}")
    return kind(**{name: from_plain(value, hints[name]) for name, value in plain.items()})


def _binary(plain: str, kind: Any) -> Any:
    try:
        data = base64.b64decode(plain, validate=True)
        return data if kind is bytes else pa.ipc.read_schema(pa.py_buffer(data)).field(0)
    except (ValueError, IndexError, pa.ArrowException) as error:
        raise UndecodableError("a message has invalid binary data", detail=str(error)[:200]) from None


def _is_dataclass(kind: Any) -> bool:
    return is_dataclass(kind)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _required(kind: Any) -> set[str]:
    return {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}


def _without_none(args: tuple[Any, ...]) -> Any:
    (kind,) = (arg for arg in args if arg is not types.NoneType)
    return kind


def _item_types(args: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    if len(args) == 2 and args[1] is Ellipsis:
        return (args[0],) * size
    if len(args) != size:
        raise UndecodableError(f"a message has a list of {size} values instead of {len(args)}")
    return args
