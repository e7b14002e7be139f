"""Fixed bugs of traces, each with a minimal case."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest

from ikebana.encoding import Schema
from ikebana.errors import SchemaError, TimeError
from ikebana.operators import Arrange
from ikebana.time import Antichain
from ikebana.trace import Updates
from ikebana.trace.updates import consolidate_all
from tests.trace import compare
from tests.trace.trace_run import slow_spines

KEYS = Schema({"k": pa.int64()})


def test_regression_a_collision_found_late_lost_rows() -> None:
    """A merge that was half done, found a collision, and so started over was finished as if it had not."""
    schema = Schema({"k": pa.string()}, hash_bits=4)
    strings = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    by_lane: dict[int, list[str]] = {}
    for string, lane in zip(strings, Updates.of(schema, {"k": strings}, (0,)).key.tolist(), strict=True):
        by_lane.setdefault(lane, []).append(string)
    first = by_lane[min(by_lane)][0]
    one, other = by_lane[max(lane for lane in by_lane if len(by_lane[lane]) > 1)][:2]
    with slow_spines(1):
        arrange = Arrange(schema, effort="none")
        handle = arrange.handle()
        for epoch, keys in enumerate([[first, one], [first, other]]):
            arrange.update({"k": keys}, (epoch,))
            arrange.advance((epoch + 1,))
        spine = handle._trace.spine
        spine._work(spine._levels[1].merge, 1)  # begins to merge the two, with `first`
        arrange.update({"k": strings[:8]}, (2,))
        arrange.advance((3,))  # needs the room, and so finishes it
        assert sorted(handle.read((1,))["k"].to_pylist()) == sorted([first, one, other])


def test_regression_rolling_up_left_an_older_batch_below() -> None:
    """An unfinished merge that rolling up completed moved to a level that was then not rolled up."""
    with slow_spines(1):
        arrange = Arrange(KEYS, effort="none")
        handle = arrange.handle()
        following = 0
        for epoch, rows in enumerate([1, 2, 1, 5]):
            arrange.update({"k": np.arange(following, following + rows)}, (epoch,))
            following += rows
            arrange.advance((epoch + 1,))
        compare.assert_stored_well(handle.batches(), Antichain.of((0,)), following)


def test_regression_nothing_read_from_several_diff_lanes() -> None:
    """An empty trace has a column for each diff lane, too."""
    arrange = Arrange(Schema({"k": pa.int64()}, diffs=("count", "sum")))
    handle = arrange.handle()
    arrange.advance((1,))
    assert handle.read((0,)).to_pydict() == {"k": [], "count": [], "sum": []}
    assert handle.lookup({"k": [1]}, (0,)).num_rows == len(handle.updates()) == 0


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("s", tz="UTC"), pa.date32(), pa.time64("ns"), pa.duration("s")], ids=str
)
def test_regression_colliding_times_beyond_those_of_python(kind: pa.DataType) -> None:
    """Data of colliding lanes was told apart by its Python values, of which there are none for these."""
    schema = Schema({"k": kind, "n": pa.int64()}, hash_bits=0)
    edge = {32: 2**31 - 1, 64: 2**63 - 1}[kind.bit_width] if kind != pa.time64("ns") else 10**13 + 1
    columns = {"k": pa.array([edge, edge - 2], f"int{kind.bit_width}").view(kind), "n": [1, 1]}
    arrange = Arrange(schema)
    handle = arrange.handle()
    for epoch in range(2):
        arrange.update(columns, (epoch,))
        arrange.advance((epoch + 1,))
    table = handle.read((1,))
    assert sorted(compare.plain(table["k"])) == [edge - 2, edge] and table["diff"].to_pylist() == [2, 2]


def test_regression_lookup_of_a_key_column_called_diff() -> None:
    """It is a fine name where the diff lanes have others."""
    arrange = Arrange(Schema({"diff": pa.int64()}, diffs=("n", "sum")))
    handle = arrange.handle()
    arrange.update({"diff": [1, 2]}, (0,), {"n": 1, "sum": [5, 6]})
    arrange.advance((1,))
    assert handle.lookup({"diff": [2, 3]}, (0,)).to_pydict() == {"diff": [2], "n": [1], "sum": [6]}


def test_regression_times_that_do_not_occur_were_late() -> None:
    """Rows taken from others keep their table of times; only times of rows count."""
    updates = Updates.of(KEYS, {"k": [1, 2]}, [(0,), (5,)]).take(np.array([1]))
    arrange = Arrange(KEYS)
    arrange.advance((3,))
    arrange.push(updates)
    batch = arrange.close()
    assert compare.batch_triples(batch) == [(((2,), ()), (5,), (1,))] and batch.times.tolist() == [[5]]
    with pytest.raises(TimeError):
        arrange.push(updates)


def test_regression_no_updates_at_no_times() -> None:
    """An empty list of times has no dimensions that could be wrong."""
    arrange = Arrange(KEYS, dimensions=2)
    arrange.update({"k": []}, [])
    assert len(arrange.close()) == 0


def test_regression_an_import_of_a_view_kept_the_trace() -> None:
    """An import does not keep its trace alive, and neither does an import through a view."""
    gc.collect()
    gc.disable()
    try:
        arrange = Arrange(KEYS)
        handle = arrange.handle()
        imported, held = handle.negate().import_(), weakref.ref(handle._trace.spine)
        del handle
        assert held() is None and imported.take() == []
    finally:
        gc.enable()


def test_regression_an_import_of_an_entered_view_was_at_a_time_outside() -> None:
    """The frontier of the import has a coordinate for each loop that was entered."""
    arrange = Arrange(KEYS)
    handle = arrange.handle()
    arrange.advance((3,))
    assert handle.enter().enter().import_().upper == Antichain.of((3, 0, 0))


def test_regression_numbers_were_cut_to_fit() -> None:
    """Fractions and what exceeds 64 bits became other numbers."""
    arrange = Arrange(KEYS)
    for columns in ({"k": [1.5]}, {"k": [np.float64(2.0)]}):
        with pytest.raises(SchemaError):
            arrange.update(columns, (0,))
    for diff in (2**63, np.array([2**63], np.uint64)):
        with pytest.raises(SchemaError):
            arrange.update({"k": [1]}, (0,), diff)
    for time in ((0.5,), [0.5], (2**63,)):
        with pytest.raises(TimeError):
            arrange.update({"k": [1]}, time)
    with pytest.raises(TimeError):
        arrange.handle().read((0.5,))
    assert len(arrange.close()) == 0


def test_regression_an_empty_part_hid_the_part_after_it() -> None:
    """Updates in order are not sorted again; the first part, which had none, was returned for the one that had them."""
    nothing, some = Updates.empty(KEYS, 1), Updates.of(KEYS, {"k": [1, 2, 3]}, (0,))
    for parts in ([nothing, some], [some, nothing], [nothing, nothing, some]):
        assert consolidate_all(parts).updates.key.tolist() == [1, 2, 3]
    assert not len(consolidate_all([nothing, nothing]).updates)
