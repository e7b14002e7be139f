"""The 22 queries of TPC-H as views: equal to Spark's own answers after changes on all eight tables.

In the profile `quick` they are compared after one round of changes, otherwise before and after each of several rounds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from ikebana.spark import Session
from ikebana.spark.answers import SparkAnswers, Top, canonical, difference
from ikebana_bench.tpch.answers import expected, wrong
from ikebana_bench.tpch.schemas import KEYS, QUERIES, SCHEMAS, TABLES, query
from ikebana_bench.tpch.stream import Changes, RefreshStream, applied
from ikebana_bench.tpch.verify import apply, install
from tests.profiles import PROFILE
from tests.sql import tpch

COMPARED = [1] if PROFILE == "quick" else [0, 1, 2, 3, 4]  # the rounds after which answers are compared


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    return tpch.sample(tmp_path_factory.mktemp("tpch"))


class TestTheStream:
    def test_it_depends_on_the_seed_alone(self, sample: dict[str, pa.Table]) -> None:
        first, again, other = (RefreshStream(sample, seed) for seed in (1, 1, 2))
        for _ in range(3):
            rounds = [stream.next_round() for stream in (first, again, other)]
            assert rounds[0] == rounds[1] != rounds[2]

    def test_it_keeps_tables_meaningful(self, sample: dict[str, pa.Table]) -> None:
        stream = RefreshStream(sample, 0)
        for number in range(5):
            before = dict(stream.snapshot)
            changes = stream.next_round()
            assert changes.keys() == set(TABLES)
            for name, change in changes.items():
                self.check_changes(before[name], name, change)
                assert stream.snapshot[name].schema == SCHEMAS[name]
                assert difference(stream.snapshot[name], applied(before[name], KEYS[name], change)) == ""
            self.check_references(stream.snapshot)
            deleted = {name for name, change in changes.items() if change.deletes.num_rows}
            assert deleted >= {"orders", "lineitem"}
            if number >= 2:
                assert deleted >= {"customer", "part", "supplier", "partsupp"}

    def check_changes(self, before: pa.Table, name: str, changes: Changes) -> None:
        """A key is changed once, and only what is there is deleted."""
        upserted, deleted = keys(changes.upserts, name), keys(changes.deletes, name)
        assert max(Counter([*upserted, *deleted]).values()) == 1
        assert set(deleted) <= set(keys(before, name))

    def check_references(self, tables: dict[str, pa.Table]) -> None:
        for name, table in tables.items():
            values = keys(table, name)
            assert len(values) == len(set(values)), name
        for name, column, other in (
            *(("nation", "n_regionkey", "region"), ("supplier", "s_nationkey", "nation")),
            *(("customer", "c_nationkey", "nation"), ("partsupp", "ps_partkey", "part")),
            *(("partsupp", "ps_suppkey", "supplier"), ("orders", "o_custkey", "customer")),
            *(("lineitem", "l_orderkey", "orders"), ("lineitem", "l_partkey", "part")),
            ("lineitem", "l_suppkey", "supplier"),
        ):
            referred = set(tables[name][column].to_pylist())
            assert referred <= set(tables[other][KEYS[other][0]].to_pylist()), (name, column)


def keys(table: pa.Table, name: str) -> list[tuple[int, ...]]:
    return list(zip(*(table[column].to_pylist() for column in KEYS[name]), strict=True))


def test_the_parts_of_a_query_with_limit() -> None:
    tops = {number: top for number in QUERIES if (top := Top.of(query(number)))}
    assert {number: (top.by, top.limit) for number, top in tops.items()} == {
        2: (("s_acctbal", "n_name", "s_name", "p_partkey"), 100),
        3: (("revenue", "o_orderdate"), 10),
        10: (("revenue",), 20),
        18: (("o_totalprice", "o_orderdate"), 100),
        21: (("numwait", "s_name"), 100),
    }
    assert all("limit" not in top.unlimited for top in tops.values())


def test_ties_under_a_limit() -> None:
    top = Top.of("select a, b from t order by a limit 2")
    assert top is not None

    def rows(*pairs: tuple[int, int]) -> pa.Table:
        return pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]})

    unlimited = rows((1, 1), (2, 2), (2, 3), (3, 4))
    assert top.difference(rows((2, 3), (1, 1)), unlimited) == top.difference(rows((1, 1), (2, 2)), unlimited) == ""
    assert "instead of" in top.difference(rows((1, 1)), unlimited)
    assert "sort columns a" in top.difference(rows((1, 1), (3, 4)), unlimited)
    assert "unexpected rows" in top.difference(rows((1, 1), (2, 9)), unlimited)


@pytest.mark.spark
class TestOnSpark:
    def test_oracle_all_queries_after_every_round(
        self, session: Session, sample: dict[str, pa.Table], tmp_path: Path
    ) -> None:
        for name in TABLES:
            session.create_table(name, SCHEMAS[name], KEYS[name]).insert(sample[name])
        views = install(session)
        batch, stream = SparkAnswers(session.spark), RefreshStream(sample, seed=7)
        before: dict[int, list[tuple[object, ...]]] = {}
        same: Counter[int] = Counter()
        problems: list[str] = []
        for number in range(max(COMPARED) + 1):
            if number:
                apply(session, stream.next_round())
            if number not in COMPARED:
                continue
            batch.write(tmp_path / str(number), stream.snapshot)
            for at in QUERIES:
                wanted = expected(batch, at)
                if problem := wrong(at, views[at].to_arrow(), wanted):
                    problems.append(f"Q{at} after round {number}: {problem}")
                after = canonical(wanted)
                assert not number or any(value is not None for row in after for value in row), f"Q{at} has no answer"
                same[at] += before.get(at) == after
                before[at] = after
        assert not problems, "\n".join(problems)
        assert not +same, "answers that a round did not change"

    def test_q3_and_q5_share_their_indexes(self, session: Session) -> None:
        """Rows of orders and customer are held once, by their keys; Q5 needs no index of orders that Q3 has not made.

        Beside these there are indexes by other columns, which lead to keys; none of them is there twice.
        """
        for view in session.views():
            session.drop_view(view.name)
        for name in set(TABLES) - {existing.name for existing in session.tables()}:
            session.create_table(name, SCHEMAS[name], KEYS[name])
        session.view("q3", query(3))
        alone = indexes(session)
        session.view("q5", query(5))
        both = indexes(session)
        for table in ("orders", "customer"):
            assert both[table, tuple(KEYS[table])] == session.workers
            assert {count for (name, _), count in both.items() if name == table} == {session.workers}
        assert {index for index in both if index[0] == "orders"} == {index for index in alone if index[0] == "orders"}


def indexes(session: Session) -> Counter[tuple[str, tuple[str, ...]]]:
    """How many arrangements there are of each table alone by each key, over all workers."""
    return Counter((*index.name, index.key) for index in session.arrangements() if len(index.name) == 1)
