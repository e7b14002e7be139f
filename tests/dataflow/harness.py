"""What the dataflow tests share: typed domains, engines with every knob turned, and reading views as the model does.

Tests think in small numbers: a collection's data is `(key, val)`, both numbers. A `Domain` says what the numbers
stand for, in any column types, so that one function of numbers is the user's function of columns and the
model's function of data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ikebana.cluster.inprocess import NO_FAULTS, Faults, InProcess
from ikebana.engine import Engine, Input, View
from ikebana.operators import join
from ikebana.plan import ir
from ikebana.runtime.messages import Demand
from ikebana.trace import spine
from tests.profiles import examples as examples

Row = tuple[int, int]
Values = tuple[tuple[Any, ...], ...]
PATIENCE = 200_000
"""Actions of the scheduler after which a test's dataflows must be done."""


def frozen(value: Any) -> Any:
    """A value that can be hashed, equal for equal values: of lists and structs, tuples."""
    if isinstance(value, dict):
        return tuple((name, frozen(item)) for name, item in value.items())
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


# Domains.
@dataclass(frozen=True, eq=False)
class Domain:
    """Key and value columns, and the values that numbers stand for, in ascending order with nulls first."""

    key: tuple[pa.Field, ...]
    val: tuple[pa.Field, ...]
    keys: Values
    vals: Values
    key_number: dict[tuple[Any, ...], int] = field(init=False)
    val_number: dict[tuple[Any, ...], int] = field(init=False)

    @property
    def by(self) -> list[str]:
        """The key columns."""
        return [column.name for column in self.key]

    @property
    def rest(self) -> list[str]:
        """The value columns."""
        return [column.name for column in self.val]

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (*self.key, *self.val)

    def __post_init__(self) -> None:
        """Looked up by value; made at once, since plans are told apart by what their functions have captured."""
        object.__setattr__(self, "key_number", {frozen(value): number for number, value in enumerate(self.keys)})
        object.__setattr__(self, "val_number", {frozen(value): number for number, value in enumerate(self.vals)})

    def row(self, key: int, val: int) -> Row:
        """Any two numbers as those of a row."""
        return key % len(self.keys), val % len(self.vals)

    def columns(self, rows: Sequence[Row]) -> dict[str, pa.Array]:
        """Arrow columns of rows."""
        data = [(*self.keys[k], *self.vals[v]) for k, v in rows]
        return {f.name: pa.array([row[at] for row in data], f.type) for at, f in enumerate(self.fields)}

    def numbers(self, columns: Any, rest: Sequence[str] | None = None) -> list[Row]:
        """The rows of Arrow columns by name; `rest` names the value columns where they were renamed."""
        keys = self.read_keys(columns)
        vals = zip(*(columns[name].to_pylist() for name in rest or self.rest), strict=True)
        return [(k, self.val_number[frozen(v)]) for k, v in zip(keys, vals, strict=True)]

    def read_keys(self, columns: Any) -> list[int]:
        """The keys of Arrow columns by name."""
        keys = zip(*(columns[name].to_pylist() for name in self.by), strict=True)
        return [self.key_number[frozen(key)] for key in keys]

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}: {f.type}{'?' if f.nullable else ''}" for f in self.fields)
        return f"Domain({shown}; {self.keys}, {self.vals})"


KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [-(1 << 63), -1, 0, 1, 7, (1 << 63) - 1]),
    "int8": (pa.int8(), [-128, -1, 0, 1, 2, 127]),
    "uint64": (pa.uint64(), [0, 1, 2, 3, (1 << 63), (1 << 64) - 1]),
    "bool": (pa.bool_(), [False, True]),
    "float64": (pa.float64(), [-float("inf"), -1.5, 0.0, 5e-324, 2.0, float("inf")]),
    "date32": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2020, 2, 29)]),
    "decimal128": (pa.decimal128(38, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("0.50"), Decimal("3.00")]),
    "string": (pa.string(), ["", "a", "a\0", "b", "née", "z" * 40]),
    "binary": (pa.large_binary(), [b"", b"\0", b"a", b"a\0", b"\xff"]),
}


def nulls_first(value: tuple[Any, ...]) -> Any:
    return tuple((part is not None, part) for part in value)


@st.composite
def _sides(draw: Any, letter: str, count: int, most: int) -> tuple[tuple[pa.Field, ...], Values]:
    fields, choices = [], []
    for at in range(count):
        kind, values = KINDS[draw(st.sampled_from(list(KINDS)))]
        nullable = draw(st.booleans())
        fields.append(pa.field(f"{letter}{at}", kind, nullable))
        choices.append([None, *values] if nullable else values)
    value = st.tuples(*map(st.sampled_from, choices))
    values = draw(st.lists(value, min_size=1, max_size=most, unique=True))
    return tuple(fields), tuple(sorted(values, key=nulls_first))


@st.composite
def domains(draw: Any, most: int = 5, columns: int = 2) -> Domain:
    """Any column types, with nulls."""
    key, keys = draw(_sides("k", draw(st.integers(1, columns)), most))
    val, vals = draw(_sides("v", draw(st.integers(1, columns)), most))
    return Domain(key, val, keys, vals)


def _same(kind: pa.DataType, nullable: bool, values: Sequence[Any]) -> Domain:
    """A domain whose keys and values are of one type."""
    both = tuple((value,) for value in values)
    fields = (pa.field("k0", kind, nullable), pa.field("v0", kind, nullable))
    return Domain(fields[:1], fields[1:], both, both)


INTEGERS = _same(pa.int64(), False, range(5))
STRINGS = _same(pa.string(), False, ["", "a", "b", "bb"])
NULLS = _same(pa.string(), True, [None, "", "a", "b"])
NESTED = Domain(
    (pa.field("k0", pa.list_(pa.int64())),),
    (pa.field("v0", pa.struct([pa.field("a", pa.list_(pa.string())), pa.field("b", pa.int8())])),),
    ((None,), ([],), ([None],), ([1],), ([1, 2],)),
    ((None,), ({"a": [], "b": None},), ({"a": [], "b": 1},), ({"a": [None, ""], "b": 1},), ({"a": ["x"], "b": 0},)),
)
SMALL = _same(pa.int8(), True, [None, -1, 0, 1])


# Engines.
@dataclass(frozen=True)
class Setup:
    """What must not matter: workers, the scheduler's choices, what goes wrong, merging, sharing, quanta, hashes, and
    where batches are: `spill` is a directory for all of them, however small."""

    workers: int = 1
    seed: int = 0
    faults: Faults = NO_FAULTS
    effort: str = "default"
    share: bool = True
    head: int = 256
    quantum: int = 1 << 19
    hash_bits: int = 64
    spill: str | None = None


HASTE = {**spine.EFFORT, "one": 1, "none": 0}


def faults() -> SearchStrategy[Faults]:
    """Anything that goes wrong, some of it often; nothing first."""
    return st.builds(
        Faults,
        delay=st.sampled_from([0, 0.05, 0.3]),
        reorder=st.sampled_from([0, 0.2, 1]),
        pause=st.sampled_from([0, 0.05, 0.3]),
        longest=st.sampled_from([50, 5]),
    )


def setups(workers: int = 4) -> SearchStrategy[Setup]:
    """Any setup; simple ones first."""
    return st.builds(
        Setup,
        workers=st.integers(1, workers),
        seed=st.integers(0, 3),
        faults=faults(),
        effort=st.sampled_from(["default", "eager", "lazy", "one", "none"]),
        share=st.sampled_from([True, True, False]),
        head=st.sampled_from([256, 1, 2, 4]),
        quantum=st.sampled_from([1 << 19, 1, 3]),
        hash_bits=st.sampled_from([64, 64, 0, 2]),
    )


@contextmanager
def engine_of(setup: Setup) -> Iterator[Engine]:
    """An engine, with the constants that a setup changes changed while it lives."""
    hash_bits = ir.Arrange.__dataclass_fields__["hash_bits"]
    with (
        patch.object(spine, "HEAD", setup.head),
        patch.dict(spine.EFFORT, HASTE),
        patch.object(join, "QUANTUM", setup.quantum),
        patch.object(join, "SMALL_BATCH_ROWS", setup.quantum),
        patch.object(hash_bits, "default", setup.hash_bits),
    ):
        cluster = InProcess(
            setup.workers,
            seed=setup.seed,
            effort=setup.effort,
            faults=setup.faults,
            spill=setup.spill,
            spill_bytes=1,
        )
        yield Engine(share=setup.share, cluster=cluster)


def cluster_of(engine: Engine) -> InProcess:
    assert isinstance(engine.cluster, InProcess)
    return engine.cluster


def settle(engine: Engine) -> None:
    """Run until nothing is left to do, and use idle time for a moment; fail rather than hang."""
    assert cluster_of(engine).run_some(PATIENCE), "the dataflows do not come to rest"
    for worker in cluster_of(engine).workers:
        worker.merge_some()


# Reading.
def collected(table: pa.Table) -> dict[tuple[Any, ...], int]:
    """The collection in a table, each row once, no diff zero."""
    *columns, diffs = table.columns
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True)) if columns else [()] * table.num_rows
    rows = [frozen(row) for row in rows]
    assert len(set(rows)) == len(rows), "a row is there twice"
    assert all(diffs.to_pylist()), "a diff is zero"
    return dict(zip(rows, diffs.to_pylist(), strict=True))


def read(view: View) -> dict[tuple[Any, ...], int]:
    """A view's rows and their diffs at the last closed epoch; fails rather than hangs."""
    engine = view._coordinator
    engine.cluster.command(Demand(view.dataflow, engine.epoch))
    settle(engine)
    return collected(view.read())


def pairs_input(engine: Engine, name: str = "pairs") -> Input:
    """An input of two whole numbers, `k` and `v`."""
    return engine.input(name, {"k": pa.int64(), "v": pa.int64()})


def pairs(*rows: tuple[int, int]) -> dict[str, list[int]]:
    """Rows as the columns of such an input."""
    return {"k": [k for k, _ in rows], "v": [v for _, v in rows]}
