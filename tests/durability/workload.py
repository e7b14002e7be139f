"""What engines that are killed are doing: random transactions, views that are changed, and a stream that is followed.

Everything is reported before and after it happens, so that a witness (`tests.durability.crashes`) knows what must be
there after a crash. Threads change different keys, so the transactions of one can be judged without those of another.
Each transaction also moves the position of its thread, which must agree with the rows.

The definitions of views and statements are entries of the catalogue, as those of a session on Spark are. A statement is
a query that is joined with a table of its values, which is not durable. The micro-batches of the stream are numbered; a
number is stored with the rows, and a follower begins with the micro-batch that it may have stored last, as Spark does.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from ikebana.engine import Engine, Table
from ikebana.engine.collection import Collection
from ikebana.engine.views import View
from ikebana.errors import ChangeError, DataflowError, FencedError, StorageError
from tests.engine.table_model import ROW, Feed, Model, apply, columns_of, create

Rows: TypeAlias = Mapping[str, Counter[ROW]]
Report: TypeAlias = Callable[..., None]
Definitions: TypeAlias = dict[tuple[str, str], str]
"""The queries of views and statements, by kind and name."""

VIEW, STATEMENT = "view", "statement"
NAMES = ("one", "two", "three")
STREAM = "stream"
"""The name of the stream's table and position."""

KEPT = 10
"""A micro-batch deletes the rows of the one that was so many before."""

TEXTS = [pa.field("v", pa.string(), nullable=True), pa.field("k", pa.string()), pa.field("n", pa.int8())]
NUMBERS = [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64(), nullable=False)]


# Tables.


def models() -> list[Model]:
    """Empty tables: with a key that is exact, with one that is hashed, and without a key."""
    return [Model("numbers", NUMBERS, ["k"]), Model("texts", TEXTS, ["k"]), Model("bag", NUMBERS, [])]


def tables_of(engine: Engine) -> list[Table]:
    """All tables, which are created if they do not exist; the last is filled by the stream."""
    return [engine.tables.get(model.name) or create(engine, model) for model in (*models(), Model(STREAM, NUMBERS, []))]


def random_row(chance: random.Random, table: int, thread: int, keys: int) -> ROW:
    """A row with one of a few keys of a thread."""
    key, value = 1000 * thread + chance.randrange(keys), chance.randrange(3)
    return (("née" * value or None, f"key {key}", value), (key, value))[table != 1]


def random_transaction(chance: random.Random, thread: int) -> list[Feed]:
    """Changes of one or several tables, some of which are not allowed; now and then a large one."""
    feeds = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        table = chance.randrange(3)
        is_large = chance.random() < 0.1
        ops = ["upsert"] * 3 + ["delete", "insert"] if table < 2 else ["insert", "insert", "insert", "delete"]
        if is_large:
            ops = ["upsert"] if table < 2 else ["insert"]
        count = chance.randrange(20, 60) if is_large else chance.randrange(1, 4)
        keys = 60 if is_large else 6
        rows = [(random_row(chance, table, thread, keys), chance.choice(ops)) for _ in range(count)]
        feeds.append(Feed(table, rows, 1, [], 0))
    return feeds


def change(engine: Engine, seed: int, thread: int, transactions: int, report: Report) -> None:
    """Apply random transactions."""
    chance, tables = random.Random(f"{seed} {thread}"), tables_of(engine)
    for number in range(transactions):
        feeds = random_transaction(chance, thread)
        position = [seed, number]
        report("begun", thread, feeds, position)
        transaction = engine.transaction()
        transaction.note = {"position": [f"thread {thread}", position]}
        try:
            for feed in feeds:
                apply(transaction, tables[feed.table], models()[feed.table], feed)
            report("committed", thread, transaction.commit())
        except ChangeError:
            report("rejected", thread)
        except StorageError as error:
            if "not known" in error.what:
                return  # it may be there
            report("failed", thread)
        except DataflowError:  # a worker has died
            report("failed", thread)
            if engine.healing is None:
                raise


# A stream.


def batch_of(number: int) -> list[ROW]:
    """The rows that a micro-batch inserts; none, now and then."""
    return [(number, at) for at in range(random.Random(number).randrange(4))] if number >= 0 else []


def follow(engine: Engine, batches: int, report: Report) -> None:
    """Take the micro-batches after the last one that is stored."""
    assert engine.storage is not None
    positions = engine.storage.positions
    first = max(0, positions.get(STREAM, 0))
    for number in range(first, first + batches):
        if number > positions.get(STREAM, -1):
            report("following", number)
            try:
                _take_batch(engine, number)
            except StorageError as error:
                if "not known" not in error.what:
                    report("not followed")
                return
            except DataflowError:  # a worker has died
                report("not followed")
                raise
            report("followed", number)


def _take_batch(engine: Engine, number: int) -> None:
    inserted, deleted, note = batch_of(number), batch_of(number - KEPT), {"position": [STREAM, number]}
    if inserted or deleted:
        with engine.transaction() as transaction:
            transaction.note = note
            ops = ["insert"] * len(inserted) + ["delete"] * len(deleted)
            engine.tables[STREAM].change(columns_of(NUMBERS, inserted + deleted), ops)
    else:
        assert engine.storage is not None
        engine.storage.store_note(note)


def followed_rows(position: int) -> Counter[ROW]:
    """The rows that are there after a micro-batch."""
    return Counter(row for number in range(position - KEPT + 1, position + 1) for row in batch_of(number))


# Views and statements.


@dataclass(frozen=True)
class Query:
    """A query over the tables by name, its columns, and its answer."""

    build: Callable[[Mapping[str, Table]], Collection]
    columns: list[str]
    answer: Callable[[Rows], Counter[ROW]]


def _sums(rows: Rows) -> Counter[ROW]:
    sums: Counter[Any] = Counter()
    for key, value in rows["numbers"]:
        sums[value] += key
    return Counter((value, sums[value]) for value in {value for _, value in rows["numbers"]})


def _counts(table: str, column: int) -> Callable[[Rows], Counter[ROW]]:
    def answer(rows: Rows) -> Counter[ROW]:
        counts: Counter[Any] = Counter()
        for row, copies in rows[table].items():
            counts[row[column]] += copies
        return Counter(counts.items())

    return answer


def _joined(rows: Rows) -> Counter[ROW]:
    values = dict(rows["numbers"].keys())
    return Counter({(k, values[k], w): copies for (k, w), copies in rows["bag"].items() if k in values})


QUERIES = {
    "sums": Query(lambda tables: tables["numbers"].sum("v", "k"), ["v", "sum"], _sums),
    "copies": Query(lambda tables: tables["bag"].count("k"), ["k", "count"], _counts("bag", 0)),
    "texts": Query(lambda tables: tables["texts"].count("n"), ["n", "count"], _counts("texts", 2)),
    "arrivals": Query(lambda tables: tables[STREAM].count("k"), ["k", "count"], _counts(STREAM, 0)),
    "joined": Query(
        lambda tables: tables["numbers"].join(tables["bag"].select("k", w="v"), "k"), ["k", "v", "w"], _joined
    ),
    "few": Query(
        lambda tables: tables["values"].join(tables["numbers"], "v"),
        ["k", "v"],
        lambda rows: Counter({row: 1 for row in rows["numbers"] if row[1] < 2}),
    ),
}
BY_KIND = {VIEW: [name for name in QUERIES if name != "few"], STATEMENT: ["few"]}


class Views:
    """The views and statements of an engine, as its catalogue has them."""

    def __init__(self, engine: Engine) -> None:
        """Install those that the catalogue has."""
        assert engine.storage is not None
        self._engine, self._catalog = engine, engine.storage.store.catalog
        self._open: dict[tuple[str, str], tuple[View, str]] = {}
        for kind in (VIEW, STATEMENT):
            for name, entry in self._catalog.entries(kind).items():
                self._open[kind, name] = self._install(kind, name, entry["query"]), entry["query"]

    def _install(self, kind: str, name: str, query: str, beside: View | None = None) -> View:
        tables = dict(self._engine.tables)
        if kind == STATEMENT:
            values = self._engine.table(f"values of {name}", {"b": pa.int64(), "v": pa.int64()}, "b", durable=False)
            values.insert({"b": [0, 1], "v": [0, 1]})
            tables["values"] = values
        return self._engine.install(f"{kind} {name}", QUERIES[query].build(tables), beside=beside)

    def _drop(self, kind: str, name: str, view: View) -> None:
        view.drop()
        if kind == STATEMENT:
            self._engine.drop_table(f"values of {name}")

    def definitions(self) -> Definitions:
        """The queries of all, by kind and name."""
        return {key: query for key, (_, query) in self._open.items()}

    def contents(self) -> dict[tuple[str, str], Counter[ROW]]:
        """The rows of all, by kind and name."""
        return {key: contents(self._engine, view, QUERIES[query].columns) for key, (view, query) in self._open.items()}

    def change(self, chance: random.Random, report: Report) -> None:
        """Create, replace or drop one, and check all others at one epoch."""
        kind, name = chance.choice([VIEW, VIEW, STATEMENT]), chance.choice(NAMES)
        exists = (kind, name) in self._open
        query = None if exists and (kind == STATEMENT or chance.random() < 0.5) else chance.choice(BY_KIND[kind])
        report("defining", kind, name, query)
        try:
            if query is None:
                self._forget(kind, name)
            else:
                self._define(kind, name, query)
        except FencedError:  # the lease has expired: it may be there
            raise
        except StorageError:  # the disk is full: the entry is as it was
            report("not defined")
        else:
            report("defined")

    def _forget(self, kind: str, name: str) -> None:
        self._catalog.delete(kind, name)
        self._drop(kind, name, self._open.pop((kind, name))[0])

    def _define(self, kind: str, name: str, query: str) -> None:
        """Create a view or statement, or replace the one that has the name."""
        old, _ = self._open.get((kind, name), (None, ""))
        new = self._install(kind, name, query, old)
        try:
            self._catalog.put(kind, name, {"query": query})
        except StorageError:
            self._drop(kind, name, new)
            raise
        self._open[kind, name] = new, query
        if old is not None:
            self._engine.replace(old, new)
            old.drop()

    def check(self) -> None:
        """Compare the answers with the rows of the tables at the same epoch."""
        with self._engine.coordinator.lock:
            rows = rows_of(self._engine)
            for key, found in self.contents().items():
                assert found == QUERIES[self._open[key][1]].answer(rows), f"{key} is wrong"


def change_views(views: Views, seed: int, changes: int, report: Report) -> None:
    """Change views and statements at random, and check their answers."""
    chance = random.Random(f"{seed} views")
    for _ in range(changes):
        try:
            views.change(chance, report)
        except FencedError:
            return
        views.check()


# Reading.


def rows_of(engine: Engine) -> dict[str, Counter[ROW]]:
    """The rows of all durable tables at the last closed epoch."""
    rows = {}
    for table in tables_of(engine):
        view = engine.install(f"all {table.name}", table)
        rows[table.name] = contents(engine, view, table.columns)
        view.drop()
    return rows


def contents(engine: Engine, view: View, columns: list[str]) -> Counter[ROW]:
    """The rows of a view at the last closed epoch."""
    if not engine.epoch:
        return Counter()
    return Counter(zip(*(column.to_pylist() for column in view.to_arrow().select(columns).columns), strict=True))


def guarded(work: Callable[..., None], report: Report) -> Callable[..., None]:
    """The function of a thread, which ends when a worker has died, and reports everything else that is raised."""

    def run(*arguments: Any) -> None:
        try:
            work(*arguments, report)
        except DataflowError:  # a worker has died
            return
        except BaseException:
            report("wrong", traceback.format_exc())

    return run


def states(pending: Mapping[Any, Any]) -> Iterator[dict[Any, Any]]:
    """All subsets of what is pending."""
    keys = list(pending)
    for flags in range(1 << len(keys)):
        yield {key: pending[key] for at, key in enumerate(keys) if flags >> at & 1}
