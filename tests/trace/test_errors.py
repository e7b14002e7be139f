"""Bad input raises an error that says what, where and what to do, and leaves the trace as it was."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from ikebana.encoding import Schema
from ikebana.errors import DroppedError, IkebanaError, SchemaError, TimeError
from ikebana.operators import Arrange
from ikebana.time import Antichain
from ikebana.trace import Handle, Updates
from tests.trace import compare

SCHEMA = Schema({"k": pa.int64()}, [pa.field("v", pa.string(), nullable=True)])
GOOD = {"k": [1], "v": ["x"]}


def opened() -> tuple[Arrange, Handle]:
    """An arrangement sealed up to 5 with more in its buffer, and a handle at 4."""
    arrange = Arrange(SCHEMA, name="things")
    handle = arrange.handle()
    arrange.update({"k": [1, 2, 2], "v": ["a", None, "b"]}, [(3,), (4,), (7,)])
    arrange.advance((5,))
    handle.advance((4,))
    return arrange, handle


def state(arrange: Arrange, handle: Handle) -> Any:
    updates = compare.triples(handle.updates())
    return updates, arrange.frontier, handle.frontier, handle.upper, handle.readers, handle.nbytes, repr(handle)


class Bad(NamedTuple):
    """Something to do that must fail, how, and words that the error must have."""

    act: Callable[[Arrange, Handle], Any]
    error: type[IkebanaError]
    words: str


def update(data: Any = None, time: Any = (5,), diff: Any = 1) -> Callable[[Arrange, Handle], Any]:
    return lambda arrange, _: arrange.update(GOOD if data is None else data, time, diff)


def read(view: Callable[[Handle], Any], at: Any = (4,)) -> Callable[[Arrange, Handle], Any]:
    return lambda _, handle: view(handle).read(at)


BAD = {
    # Columns.
    "ragged": Bad(update({"k": [1, 2], "v": ["x"]}), SchemaError, "different lengths 'k' has 2 rows 'v' has 1 rows"),
    "missing": Bad(update({"k": [1]}), SchemaError, "missing: 'v' give exactly the columns 'k', 'v'"),
    "unknown": Bad(update({**GOOD, "w": [1]}), SchemaError, "unknown: 'w' give exactly"),
    "misspelt": Bad(update({"K": [1], "v": ["x"]}), SchemaError, "missing: 'k' unknown: 'K'"),
    "twice in a table": Bad(
        update(pa.table([[1], ["x"], ["y"]], names=["k", "v", "v"])), SchemaError, "table names 'v' twice"
    ),
    "no columns": Bad(update([1]), SchemaError, "cannot read columns from a list mapping"),
    "wrong type": Bad(
        update({"k": ["a"], "v": ["x"]}), SchemaError, "column 'k' int64 it is 'a', of type str: convert"
    ),
    "wrong type in a row": Bad(
        update({"k": [1, "a" * 500], "v": ["x", "y"]}), SchemaError, "'k' int64 row 1 has 'aaa of type str: convert"
    ),
    "wrong arrow type": Bad(update({"k": pa.array(["1"]), "v": ["x"]}), SchemaError, "'k' int64 type string convert"),
    "wrong numpy type": Bad(update({"k": np.array([1.0]), "v": ["x"]}), SchemaError, "'k' int64 type double convert"),
    "fractions": Bad(update({"k": [1.5], "v": ["x"]}), SchemaError, "'k' int64 1.5, of type float: not an integer"),
    "decimals": Bad(
        update({"k": [Decimal("1.5")], "v": ["x"]}), SchemaError, "'k' int64 Decimal('1.5'), not an integer"
    ),
    "booleans": Bad(update({"k": [True], "v": ["x"]}), SchemaError, "'k' int64 bool convert"),
    "too large": Bad(update({"k": [2**63], "v": ["x"]}), SchemaError, "'k' int64 too large"),
    "unsigned too large": Bad(
        update({"k": np.array([2**63], np.uint64), "v": ["x"]}), SchemaError, "'k' int64 uint64 not in range"
    ),
    "no column": Bad(update({"k": 1, "v": ["x"]}), SchemaError, "'k' int64 not iterable"),
    "two dimensions": Bad(update({"k": np.ones((1, 1), int), "v": ["x"]}), SchemaError, "'k' 1-dimensional"),
    "null": Bad(update({"k": [1, None], "v": ["x", "y"]}), SchemaError, "'k' null in row 1 not null nullable=True"),
    "all null": Bad(update({"k": pa.nulls(1), "v": ["x"]}), SchemaError, "'k' null in row 0"),
    "other schema": Bad(
        lambda a, h: a.push(Updates.of(Schema({"k": pa.int64()}), {"k": [1]}, (5,))),
        SchemaError,
        "'things' Schema(key=[k: int64], val=[]) val=[v: string?] with the schema of the arrangement",
    ),
    # Diffs.
    "fractional diff": Bad(update(diff=1.5), SchemaError, "diff lane 'diff' integers 1.5 scale"),
    "text diff": Bad(update(diff="x"), SchemaError, "diff lane 'diff' integers 'x'"),
    "no diff": Bad(update(diff=None), SchemaError, "diff lane 'diff' integers None"),
    "large diff": Bad(update(diff=2**63), SchemaError, "diff lane 'diff' 64-bit"),
    "larger diff": Bad(update(diff=[2**70]), SchemaError, "diff lane 'diff' 64-bit"),
    "nested diffs": Bad(update(diff=[[1]]), SchemaError, "diff lane 'diff' integers one for each"),
    "too many diffs": Bad(update(diff=[1, 2]), SchemaError, "diff lane 'diff' 2 entries for 1 rows"),
    "unknown diff lane": Bad(update(diff={"n": 1}), SchemaError, "given: 'n' known: 'diff' mapping"),
    # Times.
    "number as time": Bad(update(time=5), TimeError, "not a time 5 tuple"),
    "no time": Bad(update(time=None), TimeError, "not a time None tuple"),
    "fractional time": Bad(update(time=(5.5,)), TimeError, "not a time (5.5,) integers"),
    "fractional times": Bad(update(time=np.array([[5.0]])), TimeError, "not a time integers"),
    "empty time": Bad(update(time=()), TimeError, "not a time ()"),
    "large time": Bad(update(time=(2**63,)), TimeError, "not a time 64 bits"),
    "ragged times": Bad(update(time=[(5,), (5, 6)]), TimeError, "not a time a time for each row"),
    "too many times": Bad(update(time=[(5,), (6,)]), SchemaError, "1 rows and 2 times"),
    "too many coordinates": Bad(update(time=(5, 0)), TimeError, "'things' 2 coordinates have 1 loop"),
    "late": Bad(update(time=(4,)), TimeError, "(4,) 'things' frontier is {(5,)} beyond"),
    "one of them late": Bad(
        update({"k": [1, 2], "v": ["x", "y"]}, [(9,), (2,)]), TimeError, "(2,) 'things' frontier is {(5,)}"
    ),
    "before all times": Bad(update(time=(-1,)), TimeError, "(-1,) 'things' frontier is {(5,)}"),
    # Frontiers.
    "backwards": Bad(lambda a, h: a.advance((4,)), TimeError, "'things' {(4,)} {(5,)} already only advance"),
    "other dimensions": Bad(lambda a, h: a.advance((6, 0)), TimeError, "(5,) (6, 0) 1 coordinates 2 loop"),
    "number as frontier": Bad(lambda a, h: a.advance(6), TimeError, "not a time: 6 tuple"),
    "handle backwards": Bad(
        lambda a, h: h.advance((3,)), TimeError, "'things' {(3,)} {(4,)} already keep another handle"
    ),
    "handle in other dimensions": Bad(
        lambda a, h: h.advance(Antichain.of((6, 0))), TimeError, "(4,) (6, 0) 1 coordinates 2"
    ),
    "handle to a number": Bad(lambda a, h: h.advance(6), TimeError, "not a time: 6 tuple"),
    # Reading.
    "behind": Bad(read(lambda h: h, (3,)), TimeError, "'things' at (3,) frontier is {(4,)} keep a handle"),
    "ahead": Bad(read(lambda h: h, (5,)), TimeError, "'things' at (5,) yet before {(5,)} advance its input"),
    "looking behind": Bad(lambda a, h: h.lookup({"k": [1]}, (3,)), TimeError, "'things' (3,) {(4,)}"),
    "looking ahead": Bad(lambda a, h: h.lookup({"k": [1]}, (7,)), TimeError, "'things' (7,) {(5,)}"),
    "behind in a view": Bad(read(lambda h: h.enter(), (3, 9)), TimeError, "'things' (3, 9) {(4, 0)}"),
    "outside a view": Bad(read(lambda h: h.enter(), (4,)), TimeError, "(4,) (4, 0) 1 coordinates"),
    "at a number": Bad(read(lambda h: h, 4), TimeError, "not a time: 4"),
    "at a fraction": Bad(read(lambda h: h, (4.5,)), TimeError, "not a time: (4.5,)"),
    "unknown key column": Bad(lambda a, h: h.lookup({"K": [1]}, (4,)), SchemaError, "missing: 'k' unknown: 'K'"),
    "value as key": Bad(lambda a, h: h.lookup(GOOD, (4,)), SchemaError, "unknown: 'v' exactly the columns 'k'"),
    "wrong type of key": Bad(lambda a, h: h.lookup({"k": ["a"]}, (4,)), SchemaError, "column 'k' int64"),
    "null key": Bad(lambda a, h: h.lookup({"k": [None]}, (4,)), SchemaError, "column 'k' null in row 0"),
    # Views.
    "short predicate": Bad(
        read(lambda h: h.filter(lambda c: np.array([True]))), SchemaError, "predicate (1,) bool 2 rows"
    ),
    "number predicate": Bad(
        read(lambda h: h.filter(lambda c: np.asarray(c["k"]))), SchemaError, "predicate int64 boolean for each row"
    ),
    "arrow number predicate": Bad(read(lambda h: h.filter(lambda c: c["k"])), SchemaError, "predicate int64"),
    "text predicate": Bad(read(lambda h: h.filter(lambda c: c["v"])), SchemaError, "predicate object"),
    "no predicate": Bad(read(lambda h: h.filter(lambda c: None)), SchemaError, "predicate () 2 rows"),
    "unknown projection": Bad(lambda a, h: h.project(["w"]), SchemaError, "'things' no value column 'w' are 'v'"),
    "key projection": Bad(lambda a, h: h.project(["k"]), SchemaError, "'things' no value column 'k' are 'v'"),
    "projection twice": Bad(lambda a, h: h.project(["v", "v"]), SchemaError, "'v' more than once"),
    "projection that computes no columns": Bad(
        read(lambda h: h.project({"n": pa.int64()}, lambda c: [1, 2])), SchemaError, "projection by name list 'n'"
    ),
    "projection that misses one": Bad(
        read(lambda h: h.project({"n": pa.int64()}, lambda c: {})), SchemaError, "missing: 'n'"
    ),
    "ragged projection": Bad(
        read(lambda h: h.project({"n": pa.int64()}, lambda c: {"n": [1]})),
        SchemaError,
        "different lengths 'n' has 1 rows",
    ),
    # Ownership.
    "second first handle": Bad(lambda a, h: a.handle(), DroppedError, "first handle on 'things' clone()"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_explained_and_changes_nothing(name: str) -> None:
    bad = BAD[name]
    arrange, handle = opened()
    before = state(arrange, handle)
    with pytest.raises(bad.error) as caught:
        bad.act(arrange, handle)
    explained(caught.value, bad.words)
    assert state(arrange, handle) == before
    works(arrange, handle)


def explained(error: IkebanaError, words: str) -> None:
    """The error has all the words, a hint, and prints its parts one below the other."""
    text = str(error)
    assert [word for word in words.split() if word not in text] == []
    assert error.what and error.hint
    assert text.splitlines()[0] == error.what.splitlines()[0] and f"  hint: {error.hint}" in text
    assert len(text) < 1000


def works(arrange: Arrange, handle: Handle) -> None:
    """The arrangement and its handle go on as if nothing had happened."""
    arrange.update({"k": [3], "v": ["c"]}, (6,))
    arrange.advance((8,))
    assert compare.collection(handle.read((6,)), SCHEMA) == {
        ((1,), ("a",)): (1,),
        ((2,), (None,)): (1,),
        ((3,), ("c",)): (1,),
    }
    assert handle.lookup({"k": [2]}, (7,)).to_pydict() == {"k": [2, 2], "v": [None, "b"], "diff": [1, 1]}


def test_errors_with_much_data_stay_short() -> None:
    arrange, _ = opened()
    many = list(range(100_000))
    for data, time, diff in [
        ({"k": many, "v": ["x"]}, (5,), 1),
        ({"k": many, "v": ["x"] * len(many)}, (5,), [0.5] * len(many)),
        ({"k": many, "v": ["x"] * len(many)}, [0.5] * len(many), 1),
        ({"k": ["a"] * len(many), "v": many}, (5,), 1),
    ]:
        with pytest.raises(IkebanaError) as caught:
            arrange.update(data, time, diff)
        explained(caught.value, "")


# After the end.
AFTER_DROP: dict[str, Callable[[Handle], Any]] = {
    "frontier": lambda h: h.frontier,
    "upper": lambda h: h.upper,
    "nbytes": lambda h: h.nbytes,
    "readers": lambda h: h.readers,
    "batches": lambda h: h.batches(),
    "updates": lambda h: h.updates(),
    "read": lambda h: h.read((4,)),
    "lookup": lambda h: h.lookup({"k": [1]}, (4,)),
    "advance": lambda h: h.advance((9,)),
    "clone": lambda h: h.clone(),
    "rows_moved": lambda h: h.rows_moved,
    "import": lambda h: h.import_(),
    "view": lambda h: h.negate().read((4,)),
    "view's frontier": lambda h: h.enter().frontier,
    "view's import": lambda h: h.negate().import_(),
}


@pytest.mark.parametrize("name", AFTER_DROP)
def test_use_after_drop(name: str) -> None:
    arrange, handle = opened()
    dropped = handle.clone()
    view = dropped.negate()
    dropped.drop()
    dropped.drop()  # twice does nothing
    before = state(arrange, handle)
    with pytest.raises(DroppedError) as caught:
        AFTER_DROP[name](dropped)
    explained(caught.value, "'things' was dropped clone()")
    with pytest.raises(DroppedError):
        view.read((4,))
    assert dropped.dropped and "dropped" in repr(dropped) and dropped.schema == SCHEMA
    assert state(arrange, handle) == before
    works(arrange, handle)


def test_update_after_close() -> None:
    arrange, handle = opened()
    assert len(arrange.close()) == 1
    before = state(arrange, handle)
    for act in (lambda: arrange.update(GOOD, (9,)), lambda: arrange.advance((9,))):
        with pytest.raises(TimeError) as caught:
            act()
        explained(caught.value, "'things'")
    with pytest.raises(TimeError, match="it is closed"):
        arrange.update(GOOD, (9,))
    assert len(arrange.close()) == 0  # twice does nothing
    assert state(arrange, handle) == before and handle.upper == Antichain()
    assert handle.read((1000,)).num_rows == 3


# Things that cannot be made.
MADE: dict[str, Bad] = {
    "list": Bad(lambda *_: Schema({"k": pa.list_(pa.float16())}), SchemaError, "column 'k' list halffloat cannot be"),
    "wide decimal": Bad(lambda *_: Schema({"k": pa.decimal256(50)}), SchemaError, "column 'k' decimal256 decimal128"),
    "half float": Bad(lambda *_: Schema({"k": pa.float16()}), SchemaError, "column 'k' halffloat cannot"),
    "null type": Bad(lambda *_: Schema({}, [pa.field("v", pa.null())]), SchemaError, "column 'v' null cannot"),
    "interval": Bad(lambda *_: Schema({"k": pa.month_day_nano_interval()}), SchemaError, "column 'k' interval"),
    "dictionary": Bad(
        lambda *_: Schema({"k": pa.dictionary(pa.int8(), pa.string())}), SchemaError, "column 'k' dictionary"
    ),
    "python type": Bad(
        lambda *_: Schema({"k": int}), SchemaError, "column 'k' Arrow type <class 'int'> pyarrow.int64()"
    ),
    "twice": Bad(lambda *_: Schema({"k": pa.int8()}, {"k": pa.int8()}), SchemaError, "names 'k' more than once"),
    "no diff lane": Bad(lambda *_: Schema({"k": pa.int8()}, diffs=()), SchemaError, "no diff lane"),
    "effort": Bad(lambda *_: Arrange(SCHEMA, effort="utmost", name="x"), SchemaError, "'utmost' 'x' eager lazy"),
    "dimensions": Bad(lambda *_: Arrange(SCHEMA, dimensions=0), TimeError, "0 coordinates at least 1"),
}


@pytest.mark.parametrize("name", MADE)
def test_things_that_cannot_be_made(name: str) -> None:
    with pytest.raises(MADE[name].error) as caught:
        MADE[name].act(*opened())
    explained(caught.value, MADE[name].words)
