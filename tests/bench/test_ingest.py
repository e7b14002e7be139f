"""The benchmarks on Spark, at a tiny scale: they report what they promise, and what is wrong does not pass."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ikebana.cli import main
from ikebana_bench import ingest
from tests.spark.sessions import spark as spark  # the session that all tests share

TPCH = ["--scale=0.001", "--files=2", "--workers=1"]
INSERT = ["ingest-insert", "--batches=3", "--rows=1_000", "--workers=2"]
LATENCY = [
    *("ingest-latency", "--events=1_000", "--items=500", "--groups=20", "--batch=100", "--views=3", "--idle=3"),
    *("--changes=4", "--large-changes=2", "--streaming=1", "--workers=2"),
]

on_spark = pytest.mark.spark


def run(options: list[str], folder: Path) -> tuple[int, dict[str, Any]]:
    file = folder / "out.json"
    status = main(["bench", *options, "--json", str(file)])
    return status, json.loads(file.read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tpch")


@pytest.mark.thorough
class TestOnSpark:
    pytestmark = on_spark

    def test_load(self, spark: SparkSession, data: Path, tmp_path: Path) -> None:
        status, document = run(["ingest-load", *TPCH, "--repeats=1", f"--data={data}"], tmp_path)
        assert (status, document["verified"]) == (0, True)
        metrics = {"table_rows", "rows_per_s", "load_best_s", "spark_own_best_s", "spark_ratio", "driver_growth_bytes"}
        results = document["results"]
        assert {f"{table}_{metric}" for table in ("orders", "lineitem") for metric in metrics} <= results.keys()
        assert (results["orders_table_rows"], results["lineitem_table_rows"]) == (1_500, 6_005)
        assert results["orders_load_cpu_s"] > 0
        assert "orders_target_ratio" in results

    def test_follow(self, spark: SparkSession, data: Path, tmp_path: Path) -> None:
        status, document = run(["ingest-follow", *TPCH, f"--data={data}"], tmp_path)
        assert (status, document["verified"]) == (0, True)
        results = document["results"]
        for table in ("orders", "lineitem"):
            assert results[f"{table}_epochs"] == 2
            assert results[f"{table}_rows_per_s"] > 0

    def test_insert(self, spark: SparkSession, tmp_path: Path) -> None:
        status, document = run(INSERT, tmp_path)
        assert (status, document["verified"]) == (0, True)
        for size in (1, 100, 10_000):
            assert document["results"][f"batch_{size}_rows_per_s"] > 0
            assert len(document["results"][f"batch_{size}_insert_ms"]["x"]) == 3

    def test_latency(self, spark: SparkSession, tmp_path: Path) -> None:
        partitions = spark.conf.get("spark.sql.shuffle.partitions")
        status, document = run(LATENCY, tmp_path)
        assert (status, document["verified"]) == (0, True)
        results = document["results"]
        for name in ("alone", "together", "among_idle", "streaming"):
            for size in ("1_row", "100_rows"):
                assert {f"{name}_{size}_p50_ms", f"{name}_{size}_p99_ms", f"{name}_{size}_ms"} <= results.keys()
        assert {"alone_1_row_target_ratio", "together_1_row_target_ratio", "together_memory_ratio"} <= results.keys()
        assert results["among_idle_1_row_slowdown_ratio"] > 0
        assert results["streaming_1_row_over_ours_ratio"] > 1
        assert results["together_resident_bytes"] > 0
        assert spark.conf.get("spark.sql.shuffle.partitions") == partitions
        assert not spark.streams.active

    def test_first_answer(self, spark: SparkSession, tmp_path: Path) -> None:
        status, document = run(["first-answer", "--rows=2_000", "--workers=2"], tmp_path)
        assert (status, document["verified"]) == (0, True)
        results = document["results"]
        assert {"first_s", "indexed_s", "attached_s", "spark_s", "resident_over_held_ratio"} <= results.keys()
        assert not spark.catalog.listTables(), "the benchmark leaves no temporary views"

    def test_wrong_sums_do_not_pass(self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ingest.Events, "sums", lambda self, least=0: {0: 1})
        status, document = run([*INSERT, "--largest=1"], tmp_path)
        assert (status, document["verified"], document["results"]) == (1, False, {})


def test_tpch_is_made_once(tmp_path: Path) -> None:
    folder = ingest.tpch(tmp_path / "new", 0.001, 2)
    assert len(pq.read_table(folder / "orders", columns=["o_orderkey"])) == 1_500
    stamp = folder.stat().st_mtime_ns
    assert ingest.tpch(tmp_path / "new", 0.001, 2) == folder
    assert folder.stat().st_mtime_ns == stamp
    assert list((tmp_path / "new").iterdir()) == [folder]


def test_without_its_maker_tpch_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *arguments, **options: None)
    assert main(["bench", "ingest-load", "--data", str(tmp_path)]) == 1
    assert "tpchgen-cli" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sums_of_events() -> None:
    events = ingest.Events(items=5, groups=2, seed=0)
    batches = [events.batch(100, least=1), events.batch(3)]
    rows = [row for batch in batches for row in zip(batch["item"], batch["amount"], strict=True)]
    for least in (0, 60, 1_000):
        wanted: dict[int, int] = {}
        for item, amount in rows:
            if amount >= least:
                group = int(events.group_of[item])
                wanted[group] = wanted.get(group, 0) + int(amount)
        assert events.sums(least) == wanted
    assert [batch["id"].tolist() for batch in batches] == [list(range(100)), [100, 101, 102]]
