"""Extensions equal their specification in the model, on one worker in place and on several as look-ups."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import model
from ikebana.engine import Engine
from ikebana.engine.collection import ExtensionIndex
from ikebana.errors import SchemaError
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from tests.profiles import examples

NUMBERS = st.integers(0, 3)
DATA = st.tuples(NUMBERS, NUMBERS)
CHANGES = st.lists(st.tuples(DATA, st.integers(0, 5), st.sampled_from([1, 1, 2, -1])), max_size=12)
ROWS = st.lists(st.tuples(DATA, st.integers(0, 5), st.integers(1, 5), st.integers(1, 2)), max_size=12)


def inserted_and_removed(rows: list[Any]) -> list[Any]:
    """Changes of an index, in which no row is ever removed more often than it was inserted."""
    ends = [(data, start + length, -count) for data, start, length, count in rows]
    return [(data, start, count) for data, start, _, count in rows] + ends


KINDS = {"int32": (pa.int32(), int), "int64": (pa.int64(), int), "string": (pa.string(), str)}


def columns(changes: list[Any], names: tuple[str, str], value: Any) -> dict[str, Any]:
    return {name: [value(data[at]) for data, _, _ in changes] for at, name in enumerate(names)}


@examples(2, quick=0.6)
@given(
    stream=CHANGES,
    indexes=st.tuples(ROWS, ROWS).map(lambda both: [inserted_and_removed(rows) for rows in both]),
    flags=st.tuples(*[st.booleans()] * 4),
    reads=st.lists(st.integers(1, 6), max_size=3),
    workers=st.integers(1, 3),
    kind=st.sampled_from(sorted(KINDS)),
)
def test_oracle_extensions(
    stream: list[Any],
    indexes: list[list[Any]],
    flags: tuple[bool, bool, bool, bool],
    reads: list[int],
    workers: int,
    kind: str,
) -> None:
    """All changes are given at first, and swept up to some epochs at a time."""
    type_, value = KINDS[kind]
    names = [("x", "y"), ("k", "v"), ("k", "v")]
    with Engine(workers) as engine:
        inputs = [engine.input(f"input {at}", {name: type_ for name in names[at]}) for at in range(3)]
        uses = [
            ExtensionIndex(inputs[1 + at].arrange("k"), "xy"[at], strict=flags[at], exists=flags[2 + at])
            for at in range(2)
        ]
        view = engine.install("view", inputs[0].extend("both", uses))
        for at, changes in enumerate((stream, *indexes)):
            data, times = columns(changes, names[at], value), [epoch for _, epoch, _ in changes]
            inputs[at].push(data, [diff for *_, diff in changes], times)
        for epoch in sorted({*reads, 11}):
            engine.advance(epoch)
            rows = view.read().to_pylist()
        timed = [[(data, (epoch,), diff) for data, epoch, diff in changes] for changes in (stream, *indexes)]
        expected = model.extend(timed[0], *zip(timed[1:], flags[:2], flags[2:], strict=True))
        found = {((row["x"], row["y"]), row["both"]): row["diff"] for row in rows}
        assert found == {
            (tuple(map(value, keys)), value(val)): count
            for (keys, val), count in model.accumulate(expected, (11,)).items()
        }


def test_extensions_are_look_ups_where_rows_travel() -> None:
    with Engine(2) as two, Engine() as one:
        for engine, is_in_place in ((one, True), (two, False)):
            pairs = engine.input("pairs", {"k": pa.int32(), "v": pa.int32()})
            plan = pairs.extend("w", [ExtensionIndex(pairs.arrange("k"), name) for name in ("k", "v")])
            view = engine.install("view", plan)
            assert any(isinstance(node, ir.Extend) for node in walk(view.plan)) == is_in_place
            assert ("extend by w" in engine.explain(plan)) == is_in_place


def test_indexes_may_be_seen_through_views() -> None:
    with Engine() as engine:
        pairs = engine.input("pairs", {"k": pa.int32(), "v": pa.int32()})
        large = pairs.arrange("k").filter(lambda columns: pc.greater(columns["v"], 5))
        plan = pairs.select("k").extend("w", [ExtensionIndex(pairs.arrange("k"), "k"), ExtensionIndex(large, "k")])
        view = engine.install("view", plan)
        pairs.insert({"k": [1, 1, 2], "v": [5, 6, 7]})
        engine.advance()
        rows = view.read().sort_by("w").to_pylist()
        assert rows == [{"k": 1, "w": 6, "diff": 2}, {"k": 2, "w": 7, "diff": 1}]


def test_indexes_must_fit() -> None:
    with Engine() as engine:
        pairs = engine.input("pairs", {"k": pa.int32(), "v": pa.int32()})
        wide = engine.input("wide", {"k": pa.int32(), "v": pa.int32(), "w": pa.int32()})
        other = engine.input("other", {"k": pa.int64(), "v": pa.int64()})
        for index in (wide, other):
            with pytest.raises(SchemaError):
                pairs.extend("w", [ExtensionIndex(pairs.arrange("k"), "v"), ExtensionIndex(index.arrange("k"), "k")])
