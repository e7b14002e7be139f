"""Peers of the TPC-H benchmarks: optional, refused by name if unknown, and their answers are compared."""

from __future__ import annotations

import importlib
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ikebana.cli import main
from ikebana.errors import IkebanaError
from ikebana_bench.measure import Series
from ikebana_bench.tpch import data
from ikebana_bench.tpch.answers import expected
from ikebana_bench.tpch.feeding import columns_of
from ikebana_bench.tpch.peers import Peer, Rows, differing, has_as_many_rows, named, peer, plain
from ikebana_bench.tpch.peers.duck import Duck
from ikebana_bench.tpch.peers.pathway import PYTHON, Pathway
from ikebana_bench.tpch.rates import PEERS, TpchRates, compared
from ikebana_bench.tpch.schemas import SCHEMAS, query, tables_of
from tests.spark.sessions import spark as spark  # the session that all tests share


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tpch")


def run(tables: Path, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    file = folder / "out.json"
    status = main(["bench", *options, "--scale=0.01", "--workers=1", f"--data={tables}", "--json", str(file)])
    return status, json.loads(file.read_text())


@pytest.mark.spark
@pytest.mark.thorough
class TestOnSpark:
    def test_structured_streaming_runs_what_spark_accepts(
        self, spark: SparkSession, tables: Path, tmp_path: Path
    ) -> None:
        options = ("--peers=structured", "--queries=6,4", "--batch=40_000")
        status, document = run(tables, tmp_path, "tpch-rates", *options)
        assert (status, document["verified"]) == (0, True)
        results = document["results"]
        ours, theirs = results["q6_workers_1_tuples_per_s"], results["q6_structured_tuples_per_s"]
        assert results["q6_structured_ratio"] == pytest.approx(ours / theirs)
        assert results["structured_queries"] == 1
        assert not any(name.startswith("q4_structured") for name in results)

    def test_a_peer_with_a_wrong_answer_does_not_pass(
        self, spark: SparkSession, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Mistaken(Peer):
            name, title = "duckdb", "A mistaken one"

            def feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
                return 1.0, rows["lineitem"]

            def wrong(self, number: int, actual: pa.Table, expected: pa.Table) -> str:
                return differing(plain(actual), plain(expected))

        monkeypatch.setattr("ikebana_bench.tpch.rates.peer", lambda name, workers: Mistaken(workers))
        status, document = run(tables, tmp_path, "tpch-rates", "--peers=duckdb", "--queries=6")
        assert (status, document["verified"]) == (1, False)

    def test_batch_beside_duckdb(self, spark: SparkSession, tables: Path, tmp_path: Path) -> None:
        pytest.importorskip("duckdb")
        status, document = run(tables, tmp_path, "tpch-batch", "--peers=duckdb", "--queries=6", "--files=1")
        assert status == 0
        assert document["results"]["q6_duckdb_ratio"] > 0


def test_names_of_peers() -> None:
    assert named("none", PEERS) == []
    assert named("structured, duckdb,structured", PEERS) == ["structured", "duckdb"]
    for wrong in ("", "flink", "duckdb,", "none,duckdb"):
        with pytest.raises(IkebanaError, match="no peers") as refused:
            named(wrong, PEERS)
        assert "duckdb, pathway, structured" in refused.value.hint


def test_unknown_peers_are_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "tpch-rates", "--peers=flink"]) != 0
    assert main(["bench", "tpch-batch", "--peers=pathway"]) != 0
    assert capsys.readouterr().err.count("there are no peers") == 2


def test_a_peer_is_compared_on_the_queries_that_it_can_run() -> None:
    times = {"duckdb_tuples_per_s": 10.0, "duckdb_ratio": 2.0}
    metrics = {1: times, 2: {}, 3: times | {"duckdb_ratio": 0.5}}
    assert dict(compared("duckdb", metrics)) == {
        **{"duckdb_queries": 2, "faster_than_duckdb": 1, "duckdb_min_ratio": 0.5, "duckdb_p50_ratio": 1.25},
        **{"duckdb_tuples_per_s": Series((1.0, 3.0), (10.0, 10.0))},
    }
    assert dict(compared("duckdb", {2: {}})) == {"duckdb_queries": 0, "faster_than_duckdb": 0}


def test_the_figure_has_a_curve_for_each_peer() -> None:
    series = Series((1.0, 22.0), (1e5, 1e6))
    (panel,) = TpchRates().figures({"workers_1_tuples_per_s": series, "pathway_tuples_per_s": series})
    assert list(panel.curves) == ["workers 1", "pathway"]


def test_plain_rows_are_alike_within_what_floats_can_say() -> None:
    money, day = pa.array([Decimal("12.34")], pa.decimal128(15, 2)), pa.array([date(1995, 3, 15)])
    rows = plain(pa.table({"money": money, "day": day, "short": pa.array([1], pa.int32()), "text": ["a"]}))
    assert rows.to_pylist() == [{"money": 12.34, "day": 19950315, "short": 1, "text": "a"}]
    assert differing(rows, rows) == ""
    close = rows.set_column(0, "money", pa.array([12.34 * (1 + 1e-8)]))
    assert differing(close, rows) == ""
    far = rows.set_column(0, "money", pa.array([12.35]))
    assert "12.35" in differing(far, rows)
    assert "2 rows" in differing(pa.concat_tables([rows, rows]), rows)
    assert "columns" in differing(rows.select(["text"]), rows)


def test_duckdb_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(IkebanaError, match="DuckDB is not installed"):
        Duck(1)


def test_duckdb_answers() -> None:
    pytest.importorskip("duckdb")
    with Duck(1) as duck:
        duck.show("lineitem", SCHEMAS["lineitem"].empty_table())
        assert duck.answer(query(1)).num_rows == 0
        assert duck.answer(query(6)).num_rows == 1


@pytest.fixture(scope="module")
def pathway() -> Pathway:
    try:
        return Pathway(1)
    except IkebanaError:
        pytest.skip(f"there is no Pathway; {PYTHON} may name a Python that has it")


def test_pathway_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setenv(PYTHON, str(python))
    with pytest.raises(IkebanaError, match="Pathway is not installed"):
        peer("pathway", 1)


@pytest.mark.parametrize("number", range(1, 23))
def test_pathway_answers_as_duckdb_does(pathway: Pathway, tables: Path, number: int) -> None:
    pytest.importorskip("duckdb")
    every = data.read(data.tables(0.01, tables))
    rows = {name: every[name].select(columns_of(number, name)) for name in tables_of(number)}
    with Duck(1) as duck:
        for name, table in rows.items():
            duck.show(name, table)
        wanted = expected(duck, number)
    _, answer = pathway.feed(number, rows, 20_000)
    assert pathway.wrong(number, answer, wanted) == ""
    assert pathway.wrong(number, answer.slice(1), wanted) != "" or not answer.num_rows


def test_as_many_rows_as_the_limit_lets_through() -> None:
    rows = pa.table({"a": range(30)})
    assert has_as_many_rows(3, rows.slice(0, 10), rows)
    assert not has_as_many_rows(3, rows.slice(0, 9), rows)
    assert has_as_many_rows(3, rows.slice(0, 7), rows.slice(0, 7))
    assert has_as_many_rows(1, rows, rows)
    assert "limit 10" in query(3)
