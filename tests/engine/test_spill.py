"""Engines whose batches are in spill files answer like all others, tell what is where, and leave nothing behind."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine
from ikebana.errors import WorkerLostError
from ikebana.spark.memory_use import memory_infos
from tests.clusters import SOON, is_running, within
from tests.dataflow import test_oracle_dataflows
from tests.dataflow.dataflow_run import play, scripts
from tests.dataflow.expressions import loops, programs
from tests.dataflow.harness import INTEGERS, STRINGS, Setup, cluster_of, examples, setups
from tests.engine import test_oracle_tables
from tests.spilling import IN_MEMORY, open_files

ORDERS = {"id": pa.int64(), "region": pa.string(), "total": pa.int64()}


@pytest.fixture
def place() -> Iterator[Path]:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder) / "spill"


@contextmanager
def spilling(setup: Setup) -> Iterator[Setup]:
    """The setup, with all batches in files."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield replace(setup, spill=folder)


# The same answers.


@examples(0.4)
@given(setups(3), st.sampled_from([INTEGERS, STRINGS]), programs(depth=1, most=5), st.data())
def test_oracle_dataflow_in_files(setup: Setup, domain: Any, program: Any, data: Any) -> None:
    with spilling(setup) as setup:
        play(setup, domain, program, data.draw(scripts(domain, program, most=8)))


@examples(0.3)
@given(setups(2), loops(), st.data())
def test_oracle_loop_in_files_at_every_epoch(setup: Setup, program: Any, data: Any) -> None:
    with spilling(setup) as setup:
        test_oracle_dataflows.test_oracle_loop_at_every_epoch.hypothesis.inner_test(setup, program, data)  # type: ignore[attr-defined]


@examples(0.4)
@given(st.data(), setups(3), st.booleans())
def test_oracle_transactions_in_files(data: Any, setup: Setup, by_clients: bool) -> None:
    with spilling(setup) as setup:
        test_oracle_tables.test_oracle_transactions.hypothesis.inner_test(data, setup, by_clients, 1 << 20)  # type: ignore[attr-defined]


# What is where.


def orders(start: int, end: int) -> pa.Table:
    ids = np.arange(start, end)
    regions = pc.binary_join_element_wise("region", pa.array(ids % 50).cast(pa.string()), " ")
    return pa.table({"id": ids, "region": regions, "total": ids % 1000})


def fill(engine: Engine, rows: int = 20_000) -> None:
    """A table that is loaded in parts, a view that has an index of its own, and deletions."""
    table = engine.table("orders", ORDERS, "id")
    engine.install("by region", table.sum("region", "total"))
    for start in range(0, rows, 4_000):
        table.insert(orders(start, start + 4_000))
    table.delete({"id": range(0, rows, 2)})
    engine.run()


def check(engine: Engine, rows: int = 20_000) -> None:
    kept = orders(0, rows).filter(pc.equal(pc.bit_wise_and(pa.array(np.arange(rows)), 1), 1))
    assert engine.tables["orders"].lookup(id=rows - 1).num_rows == 1
    assert engine.tables["orders"].lookup(id=rows - 2).num_rows == 0
    totals = kept.group_by("region").aggregate([("total", "sum")])
    expected = dict(zip(totals["region"].to_pylist(), totals["total_sum"].to_pylist(), strict=True))
    seen = engine.views["by region"].to_arrow()
    assert dict(zip(*(seen.columns[at].to_pylist() for at in range(2)), strict=True)) == expected


@pytest.mark.parametrize("workers", [1, 3])
def test_reports_tell_what_is_in_files(place: Path, workers: int) -> None:
    with Engine(workers, spill=str(place), spill_bytes=50_000) as engine:
        fill(engine)
        check(engine)
        statuses = engine.status()
        infos = {info.name: info for info in memory_infos(engine.catalog, statuses)}
        assert 0.7 * infos["orders"].own < infos["orders"].mapped <= infos["orders"].own
        assert infos["by region"].mapped == 0  # it is small
        for worker in cluster_of(engine).workers:
            for flow in worker.flows.values():
                status = next(s for s in statuses if (s.worker, s.dataflow) == (worker.index, flow.name))
                assert flow.own_bytes == status.bytes + status.inner_bytes - status.mapped_bytes
    with Engine(workers) as engine:
        fill(engine)
        assert not any(status.mapped_bytes for status in engine.status())


@pytest.mark.parametrize("workers", [1, 2])
def test_tables_come_back_from_storage_into_files(place: Path, workers: int) -> None:
    """As they are stored if the number of workers is the same, otherwise as spill files."""
    options: Any = {"storage": str(place / "store"), "spill": str(place / "spill"), "spill_bytes": 10_000}
    place.mkdir()
    with Engine(1, **options) as engine:
        fill(engine)
    gc.collect()
    with Engine(workers, **options) as engine:
        assert bool(open_files(place / "spill")) == (workers != 1)
        table = engine.tables["orders"]
        engine.install("by region", table.sum("region", "total"))
        check(engine)
        dataflow = table.spec.dataflow
        statuses = [status for status in engine.status() if status.dataflow == dataflow]
        assert all(status.mapped_bytes > 0.8 * status.bytes for status in statuses) and len(statuses) == workers


# Processes.


@pytest.mark.usefixtures("forked_workers")
def test_nothing_is_left_behind_by_processes_however_they_end(place: Path) -> None:
    for is_killed in (False, True):
        with Engine(cluster=(cluster := Processes(2, spill=str(place), spill_bytes=50_000))) as engine:
            fill(engine)
            check(engine)
            assert all(open_files(place, pid) for pid in cluster.pids) and list(place.iterdir()) == []
            if is_killed:
                os.kill(cluster.pids[1], signal.SIGKILL)
                with pytest.raises(WorkerLostError):
                    engine.run()
        assert within(SOON, lambda: not any(map(is_running, cluster.pids)))
        assert list(place.iterdir()) == []


@pytest.mark.usefixtures("forked_workers")
def test_a_worker_process_says_that_it_cannot_use_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorkerLostError, match="cannot use the spill directory"):
        Processes(1, spill=str(tmp_path / "file"))
