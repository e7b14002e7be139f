"""Schemas: typed key and value columns, and the encoding of each side as one 64-bit lane.

The columns of a key (or of a value) become a lane in one of three ways.

*Exact.* If they fit into 64 bits together (a nullable column takes one more bit), the lane is the bits of all columns,
concatenated, in an encoding that preserves their order. Nothing else is stored: the columns are
decoded from the lane. One column of integers, dates, timestamps, floats, booleans or decimals of up to 18
digits is exact, and for a signed integer that is not null the lane *is* the column.

*Hashed.* Otherwise (strings, many columns, nullable 64-bit columns) the lane is a hash, and the columns are stored
as the payload. A collision costs time, but never causes a wrong result: code that treats equal lanes as equal data
verifies the payload.

*Carried.* The value columns of rows inside a join are not encoded: nothing is hashed, and the lane is meaningless.
Such rows are ordered by their keys only, and their values cannot be compared.

Floats are made canonical, as Spark does for grouping keys: -0.0 becomes 0.0, and all NaNs become the same NaN. Maps are
made canonical too: their entries have no order (`ikebana.encoding.canonical`).

Not supported: decimals of more than 128 bits, unions, Arrow extension types. They raise an error that names the column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ikebana.encoding import canonical, columns, payload
from ikebana.encoding.lanes import Lane, constant
from ikebana.errors import SchemaError

HASHING = 1
"""The version of how values become lanes, and lanes shards. Batches and logs are stored by it, so a change of the hash
functions, of the bits of a lane or of `shard_rows` is a new version, and needs a way to read rows of the old ones."""

_CACHED_TUPLES = 256
"""A schema caches the schemas with other values for at most this many tuples of fields."""

Fields: TypeAlias = Mapping[str, Any] | Iterable[Any]
"""A `pyarrow.Schema`, a mapping from names to types, or a sequence of fields or (name, type) pairs."""

_SIGN = np.uint64(1 << 63)


class Schema:
    """Key columns, value columns and diff lanes of an arrangement.

    >>> edges = Schema(key={"src": pa.int64()}, val={"dst": pa.int64()})
    >>> people = Schema(key={"id": pa.int32()}, val=[pa.field("name", pa.string(), nullable=True)])
    >>> people
    Schema(key=[id: int32], val=[name: string?])

    Columns given as a plain type are not null; a `pyarrow.Field` may be nullable. `diffs` names the diff lanes if
    linear aggregates are stored in the diffs; by default there is one lane (`multiplicity_name`). `hash_bits` shortens
    hashes, to provoke collisions in tests. With `carry` the value columns are carried.
    """

    def __init__(
        self,
        key: Fields,
        val: Fields = (),
        *,
        diffs: Sequence[str] | None = None,
        hash_bits: int = 64,
        carry: bool = False,
    ) -> None:
        self.key, self.val = Side("key", _fields(key), hash_bits), Side("value", _fields(val), hash_bits, carry)
        self._given_diffs = diffs
        names = self.names
        self.diffs = (multiplicity_name(names),) if diffs is None else tuple(diffs)
        self._related: dict[Any, Schema] = {}  # a cache of schemas with the same key and other values
        self._by_identity: dict[tuple[bool, int], tuple[Any, Schema]] = {}  # the same by the identity of a tuple
        names = [*names, *self.diffs]
        if len(set(names)) < len(names):
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise SchemaError(
                f"the schema names {', '.join(map(repr, repeated))} more than once",
                hint="give every key column, value column and diff lane a different name",
            )
        if not self.diffs:
            raise SchemaError("the schema has no diff lane", hint="omit `diffs` for the default, one lane")

    @property
    def names(self) -> list[str]:
        """The names of the key columns, then of the value columns."""
        return [field.name for field in (*self.key.fields, *self.val.fields)]

    @property
    def hashed(self) -> bool:
        """Whether any lane is a hash, so that equal lanes have to be verified."""
        return not (self.key.exact and self.val.exact)

    def with_val(self, val: Fields) -> Schema:
        """Return a schema with the same key and diffs and other value columns."""
        return self._with_val(val, carry=False)

    def carrying(self, val: Fields) -> Schema:
        """Return a schema with the same key and diffs and other value columns, which are carried."""
        return self._with_val(val, carry=True)

    def carrying_some(self, names: Collection[str]) -> Schema:
        """Return a schema with the same key and diffs and only the named value columns, which are carried."""
        names = frozenset(names)
        schema = self._related.get(names)
        if schema is None:
            schema = self.carrying([field for field in self.val.fields if field.name in names])
            self._related[names] = schema
        return schema

    def _with_val(self, val: Fields, carry: bool) -> Schema:
        cached = self._by_identity.get((carry, id(val)))
        if cached is not None and cached[0] is val:  # the most expensive part below is to hash the fields
            return cached[1]
        fields = _fields(val)
        schema = self._related.get((carry, fields))
        if schema is None:
            bits = self.val.hash_bits
            schema = Schema(self.key.fields, fields, diffs=self._given_diffs, hash_bits=bits, carry=carry)
            self._related[carry, fields] = schema
        if isinstance(val, tuple):
            if len(self._by_identity) == _CACHED_TUPLES:
                self._by_identity.clear()
            self._by_identity[carry, id(val)] = val, schema
        return schema

    def encode(self, data: Any, rows: int | None = None) -> tuple[Lane, Lane, payload.Payload]:
        """Return the lanes and payload of `data`: a mapping of columns, an Arrow table or record batch.

        `rows` is the number of rows if the schema has no columns.
        """
        arrays = columns.match_columns(data, (*self.key.fields, *self.val.fields))
        return self.lanes(arrays, len(arrays[0]) if arrays else rows or 0)

    def lanes(self, arrays: Sequence[pa.Array], rows: int) -> tuple[Lane, Lane, payload.Payload]:
        """Return the lanes and payload of columns known to fit, in the order of `names`."""
        split = len(self.key.fields)
        key, key_payload = self.key.encode(arrays[:split], rows)
        val, val_payload = self.val.encode(arrays[split:], rows)
        return key, val, (*key_payload, *val_payload)

    def decode(self, key: Lane, val: Lane, rows_payload: payload.Payload) -> list[pa.Array]:
        """Return the columns behind lanes and payload, in the order of `names`."""
        split = self.key.payload_columns
        return [*self.key.decode(key, rows_payload[:split]), *self.val.decode(val, rows_payload[split:])]

    @cached_property
    def no_rows(self) -> tuple[Lane, Lane, payload.Payload]:
        """The lanes and payload of no rows."""
        return self.lanes([columns.empty_array(field.type) for field in (*self.key.fields, *self.val.fields)], 0)

    @cached_property
    def table_schema(self) -> pa.Schema:
        """The schema of tables of rows with their diffs, as readers get them."""
        fields = [(field.name, field.type) for field in (*self.key.fields, *self.val.fields)]
        return pa.schema([*fields, *((name, pa.int64()) for name in self.diffs)])

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_related": {}, "_by_identity": {}}
        for computed in ("no_rows", "table_schema"):
            state.pop(computed, None)
        return state

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return (self.key, self.val, self.diffs) == (other.key, other.val, other.diffs)

    def __hash__(self) -> int:
        return hash((self.key, self.val, self.diffs))

    def __repr__(self) -> str:
        diffs = "" if self._given_diffs is None else f", diffs={list(self.diffs)}"
        return f"Schema(key={self.key}, val={self.val}{diffs})"


def multiplicity_name(columns: Iterable[str]) -> str:
    """The name of the only diff lane: `diff`, with underscores if a column has this name.

    >>> multiplicity_name(["id", "diff"])
    'diff_'
    """
    taken, name = set(columns), "diff"
    while name in taken:
        name += "_"
    return name


def lane_names(count: int) -> list[str] | None:
    """The names of several diff lanes; None for one, whose name depends on the columns."""
    return [f"diff {lane}" for lane in range(count)] if count > 1 else None


def has_multiplicities(rows: pa.Table) -> bool:
    """Whether the last column of rows that were read is their multiplicity, rather than one of several diff lanes."""
    return not rows.schema.names[-1].startswith("diff ")


class Side:
    """One side of a schema, key or value: its columns and their lane."""

    def __init__(self, label: str, fields: tuple[pa.Field, ...], hash_bits: int, carried: bool = False) -> None:
        self.label, self.fields, self.hash_bits, self.carried = label, fields, hash_bits, carried
        widths = _widths(fields)
        self.exact = widths is not None and not (carried and fields)
        self.widths = widths or ()
        self.is_plain_integer = len(fields) == 1 and columns.is_plain_integer(fields[0])
        """Whether the lane is the values of the only column."""

    @property
    def payload_columns(self) -> int:
        """The number of payload columns of this side: none if the lane is exact."""
        return 0 if self.exact else len(self.fields)

    def encode(self, arrays: Sequence[pa.Array], rows: int) -> tuple[Lane, payload.Payload]:
        """Return the lane of the columns, and the payload that does not fit into it."""
        if self.carried:
            return constant(0, rows), tuple(arrays)
        if not self.exact:
            stored = tuple(canonical.canonical(array) for array in arrays)
            return self._hash(stored), stored
        if not self.fields:
            return constant(0, rows), ()
        if self.is_plain_integer:
            return columns.integers(arrays[0]), ()
        lane = columns.ordered_bits(arrays[0], self.fields[0])
        for array, field, width in zip(arrays[1:], self.fields[1:], self.widths[1:], strict=True):
            lane <<= np.uint64(width)
            lane |= columns.ordered_bits(array, field)
        if sum(self.widths) == 64:
            lane ^= _SIGN
        return lane.view(np.int64), ()

    def decode(self, lane: Lane, stored: payload.Payload) -> list[pa.Array]:
        """Return the columns of a lane and payload: the inverse of `encode`."""
        if self.carried:
            return list(stored)
        if not self.exact:
            return [canonical.declared(array, field) for array, field in zip(stored, self.fields, strict=True)]
        if self.is_plain_integer:
            return [columns.from_integers(lane, self.fields[0].type)]
        packed = np.ascontiguousarray(lane).view(np.uint64)
        packed = packed ^ _SIGN if sum(self.widths) == 64 else packed
        arrays = []
        for field, width in zip(reversed(self.fields), reversed(self.widths), strict=True):
            mask = np.uint64((1 << width) - 1)
            arrays.append(columns.from_ordered_bits(packed & mask, field))
            packed = packed >> np.uint64(width) if width < 64 else packed
        return arrays[::-1]

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
    """Return the number of bits of each column in an exact lane; None if they do not fit into one together."""
    for field in fields:
        columns.check_supported(field)
    widths = [columns.bits(field) for field in fields]
    known = tuple(width for width in widths if width is not None)
    return known if len(known) == len(fields) and sum(known) <= 64 else None


def _fields(fields: Fields) -> tuple[pa.Field, ...]:
    if isinstance(fields, tuple | list) and all([isinstance(entry, pa.Field) for entry in fields]):
        return tuple(fields)  # nearly always
    entries = fields.items() if isinstance(fields, Mapping) else fields
    return tuple(entry if isinstance(entry, pa.Field) else _field(*entry) for entry in entries)


def _field(name: str, kind: Any) -> pa.Field:
    try:
        return pa.field(name, kind, nullable=False)
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"column {name!r} is not declared with an Arrow type",
            detail=f"it is declared as {kind!r}: {error}",
            hint="give it a type such as pyarrow.int64()",
        ) from None
