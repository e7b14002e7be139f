"""Schemas: typed key and value columns, and how each side becomes one 64-bit lane.

The columns of a key (or of a value) become a lane in one of two ways.

*Exact.* If they fit into 64 bits together (a null takes a bit of its own), the lane is the columns
themselves, laid end to end, in an encoding that keeps their order. Nothing else is stored: the columns are
decoded from the lane. One column of integers, dates, timestamps, floats, booleans or decimals of up to 18
digits is such a case, and for a signed integer that is never null the lane *is* the column.

*Hashed.* Otherwise (strings, many columns, nullable 64-bit columns) the lane is a hash and the columns ride
along as the payload. A collision costs time, never a wrong answer: whoever takes equal lanes for equal data
verifies the payload.

*Carried.* The value columns of rows on their way through a join only ride along: nothing is hashed, and the lane says
nothing. Such rows are in no order but that of their keys, and cannot be compared.

Floats are made canonical on the way in, as Spark does for grouping keys: -0.0 becomes 0.0, and every NaN the
same NaN; so are maps, whose entries have no order (`ikebana.encoding.canonical`).

Not supported: decimals of more than 128 bits, unions, types of Arrow's extensions. They are refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ikebana.encoding import canonical, columns, payload
from ikebana.encoding.lanes import Lane, constant
from ikebana.errors import SchemaError

_MOST_ASKED = 256
"""So many ways in which a schema is asked for are remembered."""

Fields: TypeAlias = Mapping[str, Any] | Iterable[Any]
"""A `pyarrow.Schema`, a mapping from names to types, or a sequence of fields or (name, type) pairs."""

_SIGN = np.uint64(1 << 63)


class Schema:
    """Key columns, value columns and diff lanes of an arrangement.

    >>> edges = Schema(key={"src": pa.int64()}, val={"dst": pa.int64()})
    >>> people = Schema(key={"id": pa.int32()}, val=[pa.field("name", pa.string(), nullable=True)])
    >>> people
    Schema(key=[id: int32], val=[name: string?])

    Columns given as a plain type are never null; a `pyarrow.Field` says whether it may be. `diffs` names the
    diff lanes: one, unless linear aggregates live in the diffs. `hash_bits` narrows hashes, to provoke
    collisions in tests. With `carry` value columns only ride along.
    """

    def __init__(
        self,
        key: Fields,
        val: Fields = (),
        *,
        diffs: Sequence[str] = ("diff",),
        hash_bits: int = 64,
        carry: bool = False,
    ) -> None:
        self.key, self.val = Side("key", _fields(key), hash_bits), Side("value", _fields(val), hash_bits, carry)
        self.diffs = tuple(diffs)
        self._alike: dict[Any, Schema] = {}  # with other values: they are asked for again and again
        self._asked: dict[tuple[bool, int], tuple[Any, Schema]] = {}  # the same, by the very tuple that was given
        names = [*self.names, *self.diffs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SchemaError(
                f"the schema names {', '.join(map(repr, repeated))} more than once",
                hint="give every key column, value column and diff lane a name of its own",
            )
        if not self.diffs:
            raise SchemaError("the schema has no diff lane", hint='leave out `diffs` for the usual ("diff",)')

    @property
    def names(self) -> list[str]:
        """Names of the key columns, then of the value columns."""
        return [field.name for field in (*self.key.fields, *self.val.fields)]

    @property
    def hashed(self) -> bool:
        """Whether any lane is a hash, so that equal lanes need verifying."""
        return not (self.key.exact and self.val.exact)

    def with_val(self, val: Fields) -> Schema:
        """The same key and diffs with other value columns."""
        return self._with_val(val, carry=False)

    def carrying(self, val: Fields) -> Schema:
        """The same key and diffs with other value columns, which only ride along."""
        return self._with_val(val, carry=True)

    def carrying_some(self, names: Collection[str]) -> Schema:
        """The same key and diffs, with those of the value columns that are named, which only ride along."""
        wanted = frozenset(names)
        found = self._alike.get(wanted)
        if found is None:
            found = self.carrying([field for field in self.val.fields if field.name in wanted])
            self._alike[wanted] = found
        return found

    def _with_val(self, val: Fields, carry: bool) -> Schema:
        same = self._asked.get((carry, id(val)))
        if same is not None and same[0] is val:  # hashing fields takes longer than all else here
            return same[1]
        fields = _fields(val)
        found = self._alike.get((carry, fields))
        if found is None:
            bits = self.val.hash_bits
            found = Schema(self.key.fields, fields, diffs=self.diffs, hash_bits=bits, carry=carry)
            self._alike[carry, fields] = found
        if isinstance(val, tuple):
            if len(self._asked) == _MOST_ASKED:
                self._asked.clear()
            self._asked[carry, id(val)] = val, found
        return found

    def encode(self, data: Any, rows: int | None = None) -> tuple[Lane, Lane, payload.Payload]:
        """The lanes and payload of `data`: a mapping of columns, an Arrow table or record batch.

        `rows` says how many rows there are where no column does.
        """
        arrays = columns.matched(data, (*self.key.fields, *self.val.fields))
        return self.lanes(arrays, len(arrays[0]) if arrays else rows or 0)

    def lanes(self, arrays: Sequence[pa.Array], rows: int) -> tuple[Lane, Lane, payload.Payload]:
        """The lanes and payload of columns known to fit, in the order of `names`."""
        split = len(self.key.fields)
        key, key_payload = self.key.encode(arrays[:split], rows)
        val, val_payload = self.val.encode(arrays[split:], rows)
        return key, val, (*key_payload, *val_payload)

    def decode(self, key: Lane, val: Lane, rows_payload: payload.Payload) -> list[pa.Array]:
        """The columns behind lanes and payload, in the order of `names`."""
        split = self.key.payload_columns
        return [*self.key.decode(key, rows_payload[:split]), *self.val.decode(val, rows_payload[split:])]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_alike": {}, "_asked": {}}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return (self.key, self.val, self.diffs) == (other.key, other.val, other.diffs)

    def __hash__(self) -> int:
        return hash((self.key, self.val, self.diffs))

    def __repr__(self) -> str:
        diffs = "" if self.diffs == ("diff",) else f", diffs={list(self.diffs)}"
        return f"Schema(key={self.key}, val={self.val}{diffs})"


class Side:
    """One side of a schema, key or value: its columns and their lane."""

    def __init__(self, label: str, fields: tuple[pa.Field, ...], hash_bits: int, carried: bool = False) -> None:
        self.label, self.fields, self.hash_bits, self.carried = label, fields, hash_bits, carried
        widths = _widths(fields)
        self.exact = widths is not None and not (carried and fields)
        self._widths = widths or ()

    @property
    def payload_columns(self) -> int:
        """How many payload columns this side has: none where the lane is exact."""
        return 0 if self.exact else len(self.fields)

    def encode(self, arrays: Sequence[pa.Array], rows: int) -> tuple[Lane, payload.Payload]:
        """The lane of the columns, and the payload that it cannot hold."""
        if self.carried:
            return constant(0, rows), tuple(arrays)
        if not self.exact:
            stored = tuple(canonical.canonical(array) for array in arrays)
            return self._hash(stored), stored
        if not self.fields:
            return constant(0, rows), ()
        if self._is_plain_integer:
            return columns.integers(arrays[0]), ()
        lane = columns.ordered_bits(arrays[0], self.fields[0])
        for array, field, width in zip(arrays[1:], self.fields[1:], self._widths[1:], strict=True):
            lane = lane << np.uint64(width) | columns.ordered_bits(array, field)
        return (lane ^ _SIGN if sum(self._widths) == 64 else lane).view(np.int64), ()

    def decode(self, lane: Lane, stored: payload.Payload) -> list[pa.Array]:
        """The columns again."""
        if self.carried:
            return list(stored)
        if not self.exact:
            return [canonical.declared(array, field) for array, field in zip(stored, self.fields, strict=True)]
        if self._is_plain_integer:
            return [columns.from_integers(lane, self.fields[0].type)]
        rest = np.ascontiguousarray(lane).view(np.uint64)
        rest = rest ^ _SIGN if sum(self._widths) == 64 else rest
        arrays = []
        for field, width in zip(reversed(self.fields), reversed(self._widths), strict=True):
            mask = np.uint64((1 << width) - 1)
            arrays.append(columns.from_ordered_bits(rest & mask, field))
            rest = rest >> np.uint64(width) if width < 64 else rest
        return arrays[::-1]

    @property
    def _is_plain_integer(self) -> bool:
        return len(self.fields) == 1 and columns.is_plain_integer(self.fields[0])

    def _hash(self, stored: payload.Payload) -> Lane:
        hashes = payload.hashes(stored)
        if self.hash_bits < 64:
            hashes &= (1 << self.hash_bits) - 1
        return hashes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Side):
            return NotImplemented
        return (self.fields, self.hash_bits, self.carried) == (other.fields, other.hash_bits, other.carried)

    def __hash__(self) -> int:
        return hash((self.fields, self.hash_bits, self.carried))

    def __repr__(self) -> str:
        parts = (f"{field.name}: {field.type}{'?' if field.nullable else ''}" for field in self.fields)
        return f"[{', '.join(parts)}]"


@lru_cache(maxsize=4096)
def _widths(fields: tuple[pa.Field, ...]) -> tuple[int, ...] | None:
    """How many bits of an exact lane each column takes; None if they do not fit into one together."""
    for field in fields:
        columns.check_supported(field)
    widths = [columns.bits(field) for field in fields]
    known = tuple(width for width in widths if width is not None)
    return known if len(known) == len(fields) and sum(known) <= 64 else None


def _fields(given: Fields) -> tuple[pa.Field, ...]:
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple(each if isinstance(each, pa.Field) else _field(*each) for each in pairs)


def _field(name: str, kind: Any) -> pa.Field:
    try:
        return pa.field(name, kind, nullable=False)
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"column {name!r} is not declared with an Arrow type",
            detail=f"it is declared as {kind!r}: {error}",
            hint="give it a type such as pyarrow.int64()",
        ) from None
