"""The benchmarks of TPC-H, at a tiny scale: they report what they promise, and wrong answers do not pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ikebana.cli import main
from ikebana.errors import IkebanaError
from ikebana.spark import Session, connect
from ikebana_bench.measure import Series
from ikebana_bench.tpch import serving
from ikebana_bench.tpch.batch import TpchBatch
from ikebana_bench.tpch.feeding import columns_of
from ikebana_bench.tpch.installing import indexes
from ikebana_bench.tpch.interactive import Feed, QuerySchedule, TpchInteractive
from ikebana_bench.tpch.rates import TpchRates
from ikebana_bench.tpch.schemas import KEYS, QUERIES, SCHEMAS, TABLES, numbers, tables_of
from ikebana_bench.tpch.serving import FROM_LINEITEM, WITHOUT_LINEITEM
from tests.spark.sessions import spark as spark  # the session that all tests share

INSTALL = ["tpch-install", "--scale=0.01", "--queries=6,13", "--repeats=1", "--workers=2"]
INTERACTIVE = [
    *("tpch-interactive", "--scale=0.01", "--queries=1,3,13,16", "--active=2", "--rounds=4", "--every=2"),
    *("--rows=10", "--workers=1", "--checks=1"),
]
RATES = ["tpch-rates", "--scale=0.01", "--queries=3,13", "--batch=10_000", "--workers=1"]
BATCH = ["tpch-batch", "--scale=0.01", "--queries=5", "--files=1", "--workers=1"]

on_spark = pytest.mark.spark


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tpch")


def run(options: list[str], data: Path, folder: Path) -> tuple[int, dict[str, Any]]:
    file = folder / "out.json"
    status = main(["bench", *options, f"--data={data}", "--json", str(file)])
    return status, json.loads(file.read_text())


class TestOnSpark:
    pytestmark = on_spark

    @pytest.mark.thorough
    @pytest.mark.parametrize(("lineitem", "shared"), [("stream", "shared"), ("table", "no-shared")])
    def test_install(self, spark: SparkSession, data: Path, tmp_path: Path, lineitem: str, shared: str) -> None:
        status, document = run([*INSTALL, f"--lineitem={lineitem}", f"--{shared}"], data, tmp_path)
        assert (status, document["verified"]) == (0, True)
        results = document["results"]
        metrics = {"java_cold_ms", "prepare_ms", "cached_ms", "install_ms", "answer_ms", "again_ms", "rows"}
        assert {f"q{number}_{metric}" for number in (6, 13) for metric in metrics} <= results.keys()
        assert results["q13_install_ms"] <= results["q13_answer_ms"]
        assert results["q13_rows"] > 1
        assert results["q6_rows"] == 1
        assert len(results["from_lineitem_answer_ms"]["x"]) == 1
        assert results["loaded_held_bytes"] > 0

    @pytest.mark.thorough
    def test_an_index_that_is_built_again_does_not_pass(
        self, spark: SparkSession, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        view = Session.view

        def private(session: Session, name: str, text: str) -> Any:
            return view(session, name, text, share=not name.endswith("again"))

        monkeypatch.setattr(Session, "view", private)
        status, document = run([*INSTALL, "--queries=3"], data, tmp_path)
        assert (status, document["verified"]) == (1, False)

    def test_interactive(self, spark: SparkSession, data: Path, tmp_path: Path) -> None:
        status, document = run(INTERACTIVE, data, tmp_path)
        assert (status, document["verified"]) == (0, True)
        results = document["results"]
        for setting in ("shared", "unshared"):
            assert results[f"{setting}_all_installs"] == 2 + 2
            assert results[f"{setting}_rounds"] == len(results[f"{setting}_over_time_bytes"]["x"]) == 4
            assert results[f"{setting}_update_p50_ms"] > 0
        assert {"update_unshared_over_shared_ratio", "memory_unshared_over_shared_ratio"} <= results.keys()

    @pytest.mark.thorough
    def test_interactive_ends_in_time(self, spark: SparkSession, data: Path, tmp_path: Path) -> None:
        options = [*INTERACTIVE, "--sharing=shared", "--seconds=0.000001"]
        status, document = run(options, data, tmp_path)
        assert (status, document["results"]["shared_rounds"]) == (0, 1)
        assert not any(name.startswith("unshared") for name in document["results"])

    @pytest.mark.parametrize("tables", ["keyed", pytest.param("streams", marks=pytest.mark.thorough)])
    def test_rates(self, spark: SparkSession, data: Path, tmp_path: Path, tables: str) -> None:
        status, document = run([*RATES, f"--tables={tables}"], data, tmp_path)
        assert (status, document["verified"]) == (0, True)
        results = document["results"]
        for number in (3, 13):
            assert results[f"q{number}_workers_1_tuples_per_s"] > 0
            assert results[f"q{number}_workers_1_cpu_s"] > 0

    def test_batch(self, spark: SparkSession, data: Path, tmp_path: Path) -> None:
        status, document = run(BATCH, data, tmp_path)
        assert (status, document["verified"]) == (0, True)
        results = document["results"]
        parts = results["q5_plan_s"] + results["q5_read_s"] + results["q5_feed_s"]
        assert results["q5_elapsed_s"] == pytest.approx(parts, rel=0.01)
        assert results["q5_spark_ratio"] == pytest.approx(results["q5_spark_s"] / results["q5_elapsed_s"])

    def test_wrong_answers_do_not_pass(
        self, spark: SparkSession, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(serving, "wrong", lambda number, actual, expected: "the answer is wrong")
        status, document = run([*INTERACTIVE, "--rounds=1"], data, tmp_path)
        assert (status, document["verified"], document["results"]) == (1, False, {})

    def test_indexes_are_those_of_kept_tables(self, spark: SparkSession) -> None:
        with connect(spark, workers=1) as session:
            serving.create(session, stream=True)
            before = indexes(session)
            assert before == {((name,), tuple(KEYS[name])): 1 for name in TABLES if name != "lineitem"}
            session.view("first", "SELECT o_clerk FROM orders, lineitem WHERE o_orderkey = l_orderkey")
            assert indexes(session) == before
            session.view("second", "SELECT c_name FROM customer, orders WHERE o_custkey = c_custkey")
            assert indexes(session) - before


def test_numbers_of_queries() -> None:
    assert numbers("all") == list(QUERIES)
    assert numbers("22, 3,3") == [22, 3]
    for wrong in ("", "0", "23", "q1", "1,,2"):
        with pytest.raises(IkebanaError, match="no queries"):
            numbers(wrong)


def test_what_queries_read() -> None:
    """As their texts say, in which no alias has the name of a table that is not read."""
    for number in QUERIES:
        assert ("lineitem" in tables_of(number)) == (number in FROM_LINEITEM) == (number not in WITHOUT_LINEITEM)
        for name in tables_of(number):
            assert set(KEYS[name]) <= set(columns_of(number, name))
            assert columns_of(number, name, used=False) == SCHEMAS[name].names
    assert tables_of(20) == ["nation", "supplier", "part", "partsupp", "lineitem"]
    assert columns_of(13, "orders") == ["o_orderkey", "o_custkey", "o_comment"]


class TestFeed:
    def feed(self) -> Feed:
        sizes = {name: 10 for name in TABLES} | {"supplier": 3, "lineitem": 100}
        return Feed({name: pa.table({"n": range(size)}) for name, size in sizes.items()}, 0.5, 2)

    def test_every_row_comes_once_in_order(self) -> None:
        feed = self.feed()
        for name in TABLES:
            rows = feed.snapshot(0)[name]["n"].to_pylist()
            for number in range(1, 40):
                rows += feed.round(number).get(name, pa.table({"n": []}))["n"].to_pylist()
                assert feed.snapshot(number)[name]["n"].to_pylist() == rows
            assert rows == list(range(len(rows)))
            assert feed.round(40) == {}

    def test_small_tables_are_there_at_first(self) -> None:
        assert feed_sizes(self.feed().snapshot(0)) == {
            **{name: 5 for name in TABLES},
            **{"region": 10, "nation": 10, "supplier": 2, "lineitem": 50},
        }
        assert feed_sizes(self.feed().round(1)) == {
            **{name: 2 for name in TABLES if name not in ("region", "nation")},
            **{"supplier": 1},
        }

    def test_a_window(self) -> None:
        assert self.feed().between("lineitem", 1, 3)["n"].to_pylist() == [52, 53, 54, 55]
        assert self.feed().between("lineitem", 3, 3).num_rows == 0


def feed_sizes(rows: dict[str, pa.Table]) -> dict[str, int]:
    return {name: table.num_rows for name, table in rows.items()}


def test_query_schedules_are_the_same_for_a_seed_and_keep_as_many() -> None:
    first, again = QuerySchedule(list(QUERIES), 10, 3), QuerySchedule(list(QUERIES), 10, 3)
    for _ in range(100):
        before = set(first.active)
        retired, replacement = first.next()
        assert (retired, replacement) == again.next()
        assert retired in before and replacement not in before
        assert set(first.active) == before - {retired} | {replacement}
    with pytest.raises(IkebanaError, match="cannot be active"):
        QuerySchedule([1, 2], 2, 0)


def test_figure_1_has_three_panels() -> None:
    series = Series((1.0, 2.0), (2.0**30, 2.0**31))
    results = {f"shared_{name}": series for name in ("install_ms", "update_ms", "over_time_bytes")}
    panels = TpchInteractive().figures(results)
    assert [(panel.y_scale, list(panel.curves)) for panel in panels] == [
        ("log", ["shared"]),
        ("log", ["shared"]),
        ("linear", ["shared"]),
    ]
    assert panels[2].curves["shared"].y == (1.0, 2.0)


def test_figures_with_a_point_for_each_query() -> None:
    series = Series((1.0, 22.0), (1e5, 1e6))
    (rates,) = TpchRates().figures({"workers_1_tuples_per_s": series, "workers_1_min_tuples_per_s": 1e5})
    assert (rates.curves, rates.points) == ({"workers 1": series}, True)
    (batch,) = TpchBatch().figures({"elapsed_s": series, "spark_s": series})
    assert list(batch.curves) == ["ikebana", "Spark SQL"]
