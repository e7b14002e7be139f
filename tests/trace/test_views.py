"""Views of a trace are the model's operators, applied to what the trace holds, without another index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import model
from ikebana.encoding import Schema
from ikebana.operators import Arrange
from ikebana.time import Antichain, Time
from ikebana.trace import Reader
from ikebana.trace.views import Advanced, Filtered
from tests.trace import compare
from tests.trace.strategies import Domain, Script, examples, readable, scripts
from tests.trace.trace_run import TraceRun, slow_spines

Collection = dict[Any, int]


class View(NamedTuple):
    """How a reader is seen differently, and the same in the model, on collections of ((k,), (v, w))."""

    of: Callable[[Reader], Reader]
    model: Callable[[Collection], Collection]


def number(row: Any) -> int:
    """What the computed column holds."""
    return row[0][0] * 10 + (len(row[1][1]) if row[1][1] is not None else -1)


def numbered(columns: dict[str, pa.Array]) -> dict[str, Any]:
    lengths = pc.fill_null(pc.utf8_length(columns["w"]), -1).cast(pa.int64())
    return {"v": pc.add(pc.multiply(columns["k"], 10), lengths), "w": columns["w"]}


COLUMNS = [pa.field("v", pa.int64(), nullable=False), pa.field("w", pa.string())]
VIEWS = {
    "filter": View(
        lambda r: r.filter(lambda c: pc.equal(pc.bit_wise_and(pc.add(c["k"], c["v"]), 1), 0)),
        lambda c: model.filter(c, lambda row: (row[0][0] + row[1][0]) % 2 == 0),
    ),
    "filter on a column with nulls": View(
        lambda r: r.filter(lambda c: pc.not_equal(c["w"], "a")),  # null where w is
        lambda c: model.filter(c, lambda row: row[1][1] not in (None, "a")),
    ),
    "filter by numpy": View(
        lambda r: r.filter(lambda c: np.asarray(c["k"]) > 1), lambda c: model.filter(c, lambda row: row[0][0] > 1)
    ),
    "project to fewer values": View(
        lambda r: r.project(COLUMNS, lambda c: {"v": np.zeros(len(c["k"]), int), "w": c["w"]}),
        lambda c: model.map(c, lambda row: (row[0], (0, row[1][1]))),
    ),
    "project to computed values": View(
        lambda r: r.project(COLUMNS, numbered),
        lambda c: model.map(c, lambda row: (row[0], (number(row), row[1][1]))),
    ),
    "project to names": View(lambda r: r.project(["v", "w"]), lambda c: c),
    "negate": View(lambda r: r.negate(), model.negate),
    "enter": View(lambda r: r.enter(), lambda c: c),
}
ENDS = {  # change the columns, so that no other view can follow
    "nothing": View(lambda r: r, lambda c: c),
    "project": View(lambda r: r.project(["w"]), lambda c: model.map(c, lambda row: (row[0], (row[1][1],)))),
    "project away": View(lambda r: r.project([]), lambda c: model.map(c, lambda row: (row[0], ()))),
    "swap": View(lambda r: r.project(["w", "v"]), lambda c: model.map(c, lambda row: (row[0], row[1][::-1]))),
    "project to other types": View(
        lambda r: r.project({"n": pa.int8(), "b": pa.bool_()}, lambda c: {"n": c["k"], "b": pc.is_null(c["w"])}),
        lambda c: model.map(c, lambda row: (row[0], (row[0][0], row[1][1] is None))),
    ),
}


def domain(hash_bits: int) -> Domain:
    schema = Schema({"k": pa.int64()}, COLUMNS, hash_bits=hash_bits)
    texts = [None, "", "a", "bb"]
    return Domain(schema, [(n,) for n in range(4)], [(n % 3, texts[n % 4]) for n in range(6)])


def seen(handle: Reader, views: list[View]) -> Reader:
    for view in views:
        handle = view.of(handle)
    return handle


@examples(2, quick=1)
@given(
    scripts(st.sampled_from([64, 1]).map(domain), burst=8),
    st.lists(st.sampled_from(list(VIEWS)), max_size=3),
    st.sampled_from(list(ENDS)),
)
def test_oracle_views(script: Script, names: list[str], end: str) -> None:
    views = [*(VIEWS[name] for name in names), ENDS[end]]
    rounds = names.count("enter")
    with slow_spines(script.head):
        world = TraceRun(script)
        for step in script.steps:
            world.take(step)
        for handle, frontier in world.handles:
            view = seen(handle, views)
            for probe in script.probes:
                times = readable(frontier, world.upper, world.dimensions)
                if not times:
                    continue
                at = times[probe % len(times)]
                inside: Time = (*at, *(probe % 3 for _ in range(rounds)))
                collection = {data: diff for data, (diff,) in compare.accumulate(world.updates, at).items()}
                for step in views:
                    collection = step.model(collection)
                expected = {data: (diff,) for data, diff in collection.items()}
                assert compare.collection(view.read(inside), view.schema) == expected
                keys = [key for n, key in enumerate(world.domain.keys) if probe >> n & 1]
                assert compare.looked_up(view, keys, inside) == compare.with_keys(expected, keys)


def test_oracle_views_of_a_hashed_key() -> None:
    """The key's payload stays with it when the values are replaced, also where hashes collide."""
    arrange = Arrange(Schema({"k": pa.string()}, {"v": pa.string()}, hash_bits=0))
    handle = arrange.handle()
    arrange.update({"k": ["a", "b", "b"], "v": ["x", "y", "z"]}, (0,))
    arrange.advance((1,))
    lengths = handle.project({"n": pa.int64()}, lambda c: {"n": pc.utf8_length(c["v"]).cast(pa.int64())})
    assert compare.collection(lengths.read((0,)), lengths.schema) == {(("a",), (1,)): (1,), (("b",), (1,)): (2,)}
    assert lengths.lookup({"k": ["b", "c"]}, (0,)).to_pydict() == {"k": ["b"], "n": [1], "diff": [2]}
    none = handle.project([]).negate()
    assert none.read((0,)).sort_by("k").to_pydict() == {"k": ["a", "b"], "diff": [-1, -2]}


def test_invariance_views_hold_no_index() -> None:
    arrange = Arrange(Schema({"k": pa.int64()}, {"v": pa.int64()}))
    handle = arrange.handle()
    for epoch in range(5):
        arrange.update({"k": np.arange(300 << epoch), "v": np.arange(300 << epoch)}, (epoch,))
        arrange.advance((epoch + 1,))
    held, batches = handle.nbytes, handle.batches()
    view = handle.filter(lambda c: np.asarray(c["k"]) < 7).negate().project(["v"]).enter()
    assert view.read((4, 0)).num_rows == 7
    assert (handle.nbytes, handle.readers) == (held, 1)
    for ours, theirs in zip(view.batches(), batches, strict=True):
        inner: Any = ours
        while hasattr(inner, "batch"):
            assert len(inner) == len(theirs)
            inner = inner.batch
        assert inner is theirs


def test_oracle_views_follow_their_handle() -> None:
    arrange = Arrange(Schema({"k": pa.int64()}), name="keys")
    handle = arrange.handle()
    view = handle.negate().enter()
    assert (view.frontier, view.upper, view.name) == (Antichain.of((0, 0)), Antichain.of((0, 0)), "keys")
    arrange.update({"k": [1]}, (3,))
    arrange.advance((4,))
    handle.advance((2,))
    assert (view.frontier, view.upper) == (Antichain.of((2, 0)), Antichain.of((4, 0)))
    assert view.read((3, 9)).to_pydict() == {"k": [1], "diff": [-1]}
    assert compare.triples(view.updates()) == [(((1,), ()), (3, 0), (-1,))]


class CountingPredicate:
    """A predicate that counts the rows for which it is evaluated."""

    def __init__(self, is_total: bool) -> None:
        self.is_total, self.rows = is_total, 0

    def __call__(self, columns: dict[str, pa.Array]) -> Any:
        self.rows += len(columns["k"])
        return pc.less(columns["k"], 2)


@pytest.mark.parametrize("is_advanced", [False, True])
@pytest.mark.parametrize(("is_total", "evaluated"), [(True, 4), (False, 4 + 4 + 2)])
def test_a_batch_caches_for_which_rows_a_total_predicate_holds(
    is_total: bool, evaluated: int, is_advanced: bool
) -> None:
    arrange = Arrange(Schema(key={"k": pa.int64()}, val={"s": pa.large_string()}))
    arrange.update({"k": [0, 1, 2, 3], "s": ["a", "b", "c", "d"]}, (0,))
    predicate = CountingPredicate(is_total)
    batch = arrange.advance((1,))
    view = Filtered(Advanced(batch, Antichain.of((5,))) if is_advanced else batch, predicate)
    picked = [view.pick(rows).columns()["s"].to_pylist() for rows in (None, None, np.array([1, 2]))]
    assert picked == [["a", "b"], ["a", "b"], ["b"]]
    assert predicate.rows == evaluated
