"""What earlier versions of sessions have stored comes back, and its rows are found by their hashes, without Spark.

`tests/spark/test_stored_sessions.py` opens the same directories as sessions. See `tests.durability.write_session`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ikebana.encoding import Schema
from ikebana.engine import Engine, Table
from ikebana.kernels import shard_rows
from ikebana.operators.changes import Changes
from ikebana.storage import Store
from ikebana.storage.inspection import check
from tests.dataflow.harness import frozen
from tests.durability.test_recovery import open_, rows
from tests.durability.write_session import DATA, KEYS, ROWS, SCHEMAS
from tests.engine.table_model import columns_of
from tests.engine.test_following import items

SESSIONS = sorted(path.name for path in DATA.iterdir())


@pytest.fixture(params=SESSIONS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a directory."""
    return Path(shutil.copytree(DATA / request.param, tmp_path / "store"))


def expected(name: str) -> dict[tuple[Any, ...], int]:
    """The rows of a table, with their multiplicities."""
    found = [frozen(cells(name, row)) for row in ROWS[name]]
    return {row: found.count(row) for row in found}


def cells(name: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row as Arrow returns it."""
    if name != "products" or row[9] is None:
        return row
    *before, (width, height), parts, picture = row
    return (*before, {"w": width, "h": height}, sorted(parts.items()), picture)


def key_of(name: str, row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(KEYS[name], row, strict=False))


def check_rows(engine: Engine) -> None:
    """All tables have their rows, and each row with a key is found by it."""
    assert set(engine.tables) == set(SCHEMAS)
    for name in ROWS:
        assert rows(engine, name) == expected(name), name
    for name in KEYS.keys() & ROWS.keys():
        for row in ROWS[name]:
            found = engine.tables[name].lookup(**key_of(name, row)).to_pylist()
            assert [frozen(tuple(entry.values())) for entry in found] == [frozen(cells(name, row))], (name, row)
    assert engine.tables["orders"].lookup(customer="bob", number=2).num_rows == 0


def given(table: Table, found: list[tuple[Any, ...]]) -> dict[str, pa.Array]:
    """Rows as the columns of a table."""
    return columns_of(list(table.spec.fields), found)


@pytest.mark.parametrize("workers", [2, 1, 3])
def test_the_tables_of_an_earlier_version_are_opened_and_changed(place: Path, workers: int) -> None:
    assert check(place) == []
    with open_(place, workers) as engine:
        check_rows(engine)
        for name in KEYS.keys() & ROWS.keys():  # a row that is not found by its key would be there twice
            table = engine.tables[name]
            data = given(table, [cells(name, row) for row in ROWS[name]])
            table.upsert(data)
            assert rows(engine, name) == expected(name), name
            table.delete({column: data[column] for column in KEYS[name]})
            assert rows(engine, name) == {}, name
            table.insert(data)
        visits = engine.tables["visits"]
        visits.delete(given(visits, ROWS["visits"]))
        visits.insert(given(visits, ROWS["visits"]))
    with open_(place, 2) as engine:
        check_rows(engine)


def test_a_subscription_of_an_earlier_version_continues(place: Path) -> None:
    with open_(place, 3) as engine:
        visits = engine.tables["visits"]
        audit = engine.install("seen", visits).changes(name="audit")
        assert items(audit) == []  # all was acknowledged
        visits.insert({"who": ["late"], "page": [None]})
        assert [changes for _, changes in items(audit)] == [{("late", None): 1}]
        waiting = {status.name: status.epoch for status in engine.subscriptions}
        bills = engine.tables["bills"]
        assert rows(engine, "bills") == {(waiting["billing"], 3): 1}, "it was acknowledged together with its bill"
        assert bills.lookup(epoch=waiting["billing"]).num_rows == 1


def test_stored_hashes_are_those_of_this_version(place: Path) -> None:
    """A change of a hash function, of the bits of a lane, or of `shard_rows` needs a new version: `HASHING`."""
    with open_(Path(shutil.copytree(place, place.with_name("other")))) as engine:
        schemas = {table.spec.stored_as: (name, table.spec.schema) for name, table in engine.tables.items()}
    with Store.open(place, shards=2) as store:
        recovery = store.recovery
        in_batches, in_logs = set[str](), set[str]()
        for stored_as, (name, schema) in schemas.items():
            assert schema is not None
            for source in recovery.batches(stored_as):
                stored = source.read().updates
                encoded = Changes.of_updates(stored).keyed(stored.schema)
                for lane, again in ((stored.key, encoded.key), (stored.val, encoded.val)):
                    assert lane.tolist() == again.tolist(), name
                assert set(shard_rows(stored.key, source.shards).tolist()) <= {source.shard}, name
                in_batches.add(name)
            for shard in range(recovery.shards):
                changed = recovery.changes(stored_as, shard)
                if changed is not None:
                    key, _, _ = schema.encode(changed.rows)
                    assert set(shard_rows(key, recovery.shards).tolist()) == {shard}, name
                    in_logs.add(name)
    assert in_batches == set(SCHEMAS) and in_logs == {"products", "orders", "people", "visits"}


def test_the_hashes_of_values_are_these() -> None:
    """Those of version 1, for values whose lanes are hashed, packed and plain."""
    texts = Schema({"a": pa.string(), "b": pa.int64()}, {})
    packed = Schema([pa.field("a", pa.int16(), nullable=True), pa.field("b", pa.float32(), nullable=False)], {})
    plain = Schema({"a": pa.int64()}, {})
    lanes = [
        texts.encode({"a": ["", "ann", "ü" * 9], "b": [0, -1, 2**62]})[0],
        packed.encode({"a": [None, -1, 7], "b": [-0.0, 1.5, float("nan")]})[0],
        plain.encode({"a": [-1, 0, 2**62]})[0],
    ]
    assert [lane.tolist() for lane in lanes] == [
        [4128374300897927581, -2490861670339991644, -8016274619668478915],
        [2147483648, 422211387129856, 422246820610048],
        [-1, 0, 4611686018427387904],
    ]
    assert [shard_rows(lane, workers).tolist() for lane in lanes for workers in (2, 3)] == [
        [0, 1, 0],
        [1, 1, 0],
        [1, 0, 0],
        [0, 0, 1],
        [1, 0, 1],
        [0, 0, 0],
    ]
