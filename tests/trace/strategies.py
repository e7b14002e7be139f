"""What the trace tests draw: times, frontiers, typed columns, and scripts of what happens to a trace.

A script is a list of plain steps that name handles and data by number, so that it shrinks to few and small
ones; `tests.trace.trace_run` plays it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ikebana.encoding import Schema
from ikebana.time import Antichain, Time
from ikebana.trace import EFFORT
from tests.profiles import examples as examples

TOP = {1: 23, 2: 9, 3: 5}  # by the number of coordinates: the greatest that occurs
HASTE = {**EFFORT, "one": 1, "none": 0}  # correct with less effort than there is, too: merges stay unfinished
Offset = tuple[int, ...]


# Times. Scripts say how far to move from where a frontier is.
@cache
def grid(dimensions: int, size: int) -> list[Time]:
    return list(product(range(size), repeat=dimensions))


def offsets(dimensions: int) -> SearchStrategy[list[Offset]]:
    """Where the elements of a frontier go: several for each, where there are several coordinates."""
    offset = st.sampled_from(grid(dimensions, 3))
    return st.lists(offset, min_size=1, max_size=1 if dimensions == 1 else 3)


def moved(time: Time, offset: Offset) -> Time:
    return tuple(min(a + b, TOP[len(time)]) for a, b in zip(time, offset, strict=True))


def advanced(frontier: Antichain, offsets: list[Offset]) -> Antichain:
    """A later frontier, of at most four elements."""
    return Antichain(list(Antichain(moved(f, o) for f in frontier for o in offsets))[:4])


@cache
def readable(frontier: Antichain, upper: Antichain, dimensions: int) -> list[Time]:
    """The times at which a handle at `frontier` can be read when the trace is at `upper`."""
    every = np.array(grid(dimensions, TOP[dimensions] + 1))

    def beyond(antichain: Antichain) -> Any:
        return np.any([(every >= np.array(f)).all(axis=1) for f in antichain] or np.zeros((1, len(every))), 0)

    return [tuple(time) for time in every[beyond(frontier) & ~beyond(upper).astype(bool)].tolist()]


# Typed columns. Values of dates and times are drawn as the integers behind them: Python's own types do not
# reach as far as Arrow's.
def _integers(bits: int, signed: bool = True) -> SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(max(low, -2), 2) | st.sampled_from([low, high]) | st.integers(low, high)


def _decimals(precision: int, scale: int) -> SearchStrategy[Decimal]:
    most = 10**precision - 1
    whole = st.integers(-2, 2) | st.sampled_from([-most, most]) | st.integers(-most, most)
    return whole.map(lambda number: Decimal(f"{number}E{-scale}"))


def _floats(width: int) -> SearchStrategy[float]:
    special = st.sampled_from([0.0, -0.0, float("nan"), -float("nan"), float("inf"), -float("inf")])
    return special | st.floats(width=width)


_DAY = 24 * 60 * 60
_TEXT = st.sampled_from(["", "a", "b", "a\0", "b" * 9]) | st.text(max_size=12)
_BYTES = st.sampled_from([b"", b"\0", b"a"]) | st.binary(max_size=12)

KINDS: dict[pa.DataType, SearchStrategy[Any]] = {
    pa.int64(): _integers(64),
    pa.int32(): _integers(32),
    pa.int16(): _integers(16),
    pa.int8(): _integers(8),
    pa.uint8(): _integers(8, signed=False),
    pa.uint16(): _integers(16, signed=False),
    pa.uint32(): _integers(32, signed=False),
    pa.uint64(): _integers(64, signed=False),
    pa.bool_(): st.booleans(),
    pa.float32(): _floats(32),
    pa.float64(): _floats(64),
    pa.date32(): _integers(32),
    pa.date64(): _integers(32).map(lambda day: day * _DAY * 1000),
    pa.timestamp("s"): _integers(64),
    pa.timestamp("us"): _integers(64),
    pa.timestamp("ns", tz="Europe/Paris"): _integers(64),
    pa.time32("ms"): st.integers(0, _DAY * 10**3 - 1),
    pa.time64("ns"): st.integers(0, _DAY * 10**9 - 1),
    pa.duration("ms"): _integers(64),
    pa.decimal128(5, 2): _decimals(5, 2),
    pa.decimal128(18, 0): _decimals(18, 0),
    pa.decimal128(19, 3): _decimals(19, 3),
    pa.decimal128(38, 10): _decimals(38, 10),
    pa.string(): _TEXT,
    pa.large_string(): _TEXT,
    pa.binary(): _BYTES,
    pa.large_binary(): _BYTES,
    pa.binary(3): st.binary(min_size=3, max_size=3),
}


def fields(name: str) -> SearchStrategy[pa.Field]:
    kinds = st.sampled_from(list(KINDS))
    return st.builds(lambda kind, nullable: pa.field(name, kind, nullable), kinds, st.booleans())


def values(field: pa.Field) -> SearchStrategy[Any]:
    """Values of a field as `tests.trace.compare.array_of` takes them."""
    return st.none() | KINDS[field.type] if field.nullable else KINDS[field.type]


def rows_of(columns: tuple[pa.Field, ...], count: int) -> SearchStrategy[list[tuple[Any, ...]]]:
    row = st.tuples(*map(values, columns))
    return st.lists(row, min_size=count, max_size=count)


class Domain(NamedTuple):
    """A schema, and the keys and values that a script's numbers stand for."""

    schema: Schema
    keys: list[tuple[Any, ...]]
    vals: list[tuple[Any, ...]]


INTEGERS = Domain(
    Schema(key={"k": pa.int64()}, val={"v": pa.int64()}), [(n,) for n in range(8)], [(n,) for n in range(8)]
)


@st.composite
def domains(draw: Any, most_columns: int = 2, hash_bits: int = 64, count: int = 4) -> Domain:
    """Any schema, with some keys and values of its types."""
    key, val = (
        draw(st.tuples(*(fields(f"{side}{i}") for i in range(draw(st.integers(0, most_columns)))))) for side in "kv"
    )
    schema = Schema(key, val, hash_bits=hash_bits)
    return Domain(schema, draw(rows_of(key, count)), draw(rows_of(val, count)))


# What happens to a trace. Handles and data are named by numbers, taken modulo how many there are.
class Change(NamedTuple):
    """Updates (key, val, time, diff); times are offsets from the frontier, a diff has a number a lane.

    Then the frontier of the input advances, unless there are no offsets for it.
    """

    rows: list[tuple[int, int, Offset, tuple[int, ...]]]
    offsets: list[Offset]


class Burst(NamedTuple):
    """Many updates at one time, of data `start`, `start + 1`, ... with one diff."""

    start: int
    count: int
    time: Offset
    diff: tuple[int, ...]
    offsets: list[Offset]


class Close(NamedTuple):
    """No more updates."""


class Clone(NamedTuple):
    handle: int


class Advance(NamedTuple):
    """Advance the frontier of a handle."""

    handle: int
    offsets: list[Offset]


class Drop(NamedTuple):
    """Drop a handle, unless it is the last."""

    handle: int


class Idle(NamedTuple):
    """A moment of idle time, for this many rows."""

    rows: int


class Rest(NamedTuple):
    """Idle time until nothing is left to do."""


class MergeAll(NamedTuple):
    pass


Step = Change | Burst | Close | Clone | Advance | Drop | Idle | Rest | MergeAll


@dataclass(frozen=True)
class Script:
    """A trace and what happens to it; `probes` choose the times and keys that are looked at in between."""

    domain: Domain
    dimensions: int
    effort: str
    head: int
    steps: list[Step]
    probes: list[int]


def _one_of_each(*choices: Sequence[Any]) -> SearchStrategy[tuple[Any, ...]]:
    """A tuple with one of each, drawn as a single number: that is several times as fast."""

    def chosen(number: int) -> tuple[Any, ...]:
        result = []
        for options in choices:
            number, position = divmod(number, len(options))
            result.append(options[position])
        return tuple(result)

    return st.integers(0, prod(map(len, choices)) - 1).map(chosen)


@st.composite
def scripts(
    draw: Any,
    domain: SearchStrategy[Domain] | None = None,
    heads: tuple[int, ...] = (1, 2, 4),
    burst: int = 32,
    length: int = 16,
) -> Script:
    drawn = INTEGERS if domain is None else draw(domain)
    dimensions = draw(st.integers(1, 3))
    numbers, ahead = st.integers(0, 7), st.sampled_from(grid(dimensions, 4))
    to = offsets(dimensions)
    seal = st.one_of(st.just([]), offsets(dimensions), offsets(dimensions), offsets(dimensions))
    diffs = list(product([1, -1, 2, 0, -3], repeat=len(drawn.schema.diffs)))
    rows = _one_of_each(range(8), range(8), grid(dimensions, 4), diffs)
    changes, counts = st.lists(rows, min_size=1, max_size=6), st.integers(0, burst)
    steps = st.one_of(
        *(st.builds(Change, changes, seal) for _ in range(4)),
        *(st.builds(Burst, numbers, counts, ahead, st.sampled_from(diffs), seal) for _ in range(4)),
        st.builds(Clone, numbers),
        st.builds(Advance, numbers, to),
        st.builds(Drop, numbers),
        *(st.builds(Idle, st.integers(0, 9)) for _ in range(2)),
        st.just(Rest()),
        st.just(MergeAll()),
    )
    part, closed = st.lists(steps, max_size=length // 2), st.sampled_from([[], [Close()]])
    return Script(
        drawn,
        dimensions,
        draw(st.sampled_from(list(HASTE))),
        draw(st.sampled_from(heads)),
        draw(part) + draw(part) + draw(closed),
        draw(st.lists(st.integers(0, 999), min_size=1, max_size=5)),
    )
