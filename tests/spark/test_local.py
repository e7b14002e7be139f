"""Workers on a local SparkSession: the same results as in one process, while other jobs run, and a clean end."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ikebana.cluster.client import Client
from ikebana.cluster.inprocess import InProcess
from ikebana.cluster.protocol import Grant
from ikebana.engine import Engine
from ikebana.errors import DataflowError, DroppedError, IkebanaError
from ikebana.operators.changes import Changes
from ikebana.runtime.messages import Ping, Push, Read
from ikebana.runtime.staging import stages
from ikebana.spark import SparkWorkers, spark_session
from ikebana.spark.barrier_job import occupied_slots
from ikebana.spark.spark_session import slots
from tests.clusters import EDGES, SOON, all_end, endless, is_running, within, workers_below
from tests.spark.programs import program
from tests.spark.sessions import SLOTS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("alone")]


def doubled(spark: SparkSession) -> list[int]:
    """Another job, in Python."""
    numbers: list[int] = spark.sparkContext.parallelize(range(6), 3).map(lambda number: 2 * number).collect()
    return numbers


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_same_answers_as_in_one_process(spark: SparkSession, workers: int) -> None:
    with SparkWorkers(spark, workers) as cluster:
        assert cluster.size == workers == len(set(cluster.pids))
        assert program(cluster) == program(InProcess(1))
        pids = cluster.pids
    assert not any(map(is_running, pids))


def test_clusters_and_other_jobs_side_by_side(spark: SparkSession) -> None:
    expected = program(InProcess(1))
    with SparkWorkers(spark, 2) as one, SparkWorkers(spark, 1) as other:
        assert program(one) == expected
        assert doubled(spark) == [0, 2, 4, 6, 8, 10]
        assert program(other) == expected
        one.close()
        assert spark.range(1000).selectExpr("sum(id)").collect()[0][0] == 499500
        other.run()
        with pytest.raises(DroppedError):
            one.run()
    assert not occupied_slots[spark.sparkContext]


def test_closing_leaves_nothing(spark: SparkSession) -> None:
    doubled(spark)
    gc.collect()
    descriptors, threads = psutil.Process().num_fds(), threading.active_count()
    cluster = SparkWorkers(spark, 2)
    pids = cluster.pids
    assert sorted(workers_below()) == sorted(pids)
    endless(cluster)
    cluster.close()
    cluster.close()
    assert not any(map(is_running, pids)) and not workers_below()
    gc.collect()
    assert within(SOON, lambda: threading.active_count() <= threads), threading.enumerate()
    assert psutil.Process().num_fds() <= descriptors + 4  # connections to Java, which PySpark keeps for later
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert doubled(spark) == [0, 2, 4, 6, 8, 10]


def test_a_cluster_that_nobody_holds_ends(spark: SparkSession) -> None:
    cluster = SparkWorkers(spark, 1)
    pids, gone = cluster.pids, weakref.ref(cluster)
    del cluster
    gc.collect()
    assert gone() is None and all_end(pids)


def test_the_active_session_is_taken(spark: SparkSession) -> None:
    spark.createDataFrame([(1,)], "id INT")  # makes it the active session, whichever was before
    with SparkWorkers() as cluster:
        assert cluster.spark is spark and 1 <= cluster.size < SLOTS
    assert doubled(spark)


# What goes wrong.


@pytest.mark.parametrize(
    ("victim", "reason"), [("worker", "killed by SIGKILL"), ("its supervisor", "Spark says: Python worker exited")]
)
def test_a_killed_process_is_noticed_by_all(spark: SparkSession, victim: str, reason: str) -> None:
    cluster = SparkWorkers(spark, 2)
    view, pids = endless(cluster), cluster.pids
    process = psutil.Process(pids[1])
    killed = process if victim == "worker" else process.parent()
    assert killed is not None
    start = time.monotonic()
    threading.Timer(0.3, os.kill, (killed.pid, signal.SIGKILL)).start()
    with pytest.raises(DataflowError, match=rf"worker 1 has died\n.*{reason}"):
        view.read()
    assert time.monotonic() - start < SOON
    assert all_end(pids)
    with pytest.raises(DataflowError, match="worker 1 has died"):
        cluster.run()
    cluster.close()
    assert doubled(spark)


def test_cancelled_jobs_end_the_workers(spark: SparkSession) -> None:
    cluster = SparkWorkers(spark, 2)
    pids = cluster.pids
    spark.sparkContext.cancelAllJobs()  # what Ctrl-C does in PySpark
    with pytest.raises(DataflowError, match=r"the workers have ended\n.*cancelled"):
        endless(cluster).read()
    assert all_end(pids)
    cluster.close()


def test_an_exception_outside_of_dataflows_is_reported(spark: SparkSession) -> None:
    cluster = SparkWorkers(spark, 2)
    fields = (pa.field("x", pa.int64(), nullable=False),)
    cluster.command(Push("nowhere", Changes.of(fields, {"x": [1]}, (0,))), 1)
    with pytest.raises(DataflowError, match=r"worker 1 has failed\n.*KeyError: 'nowhere'"):
        cluster.run()
    assert all_end(cluster.pids)


def test_too_few_slots(spark: SparkSession) -> None:
    assert slots(spark) == SLOTS
    with pytest.raises(IkebanaError, match=rf"too few task slots for {SLOTS} workers(.|\n)*local\[{SLOTS + 1}\]"):
        SparkWorkers(spark, SLOTS)
    with (
        SparkWorkers(spark, 1),
        pytest.raises(IkebanaError, match=r"of which 1 are held by workers of other sessions"),
    ):
        SparkWorkers(spark, SLOTS - 1)
    with pytest.raises(IkebanaError, match="workers=0 is not valid"):
        SparkWorkers(spark, 0)
    with pytest.raises(IkebanaError, match="cannot be hosted on"):
        SparkWorkers("no session", 1)  # type: ignore[arg-type]


def test_dynamic_allocation_is_refused_beforehand(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    conf = {"spark.dynamicAllocation.enabled": "true"}
    context = SimpleNamespace(master="spark://somewhere:7077", getConf=lambda: conf)
    monkeypatch.setattr(spark_session, "context_of", lambda spark: context)
    with pytest.raises(IkebanaError, match=r"dynamic allocation(.|\n)*spark\.dynamicAllocation\.enabled=false"):
        spark_session.check_slots(spark, 1, 0, 1.0)


def test_a_failed_start_leaves_nothing(spark: SparkSession) -> None:
    with pytest.raises(DataflowError, match=r"cannot listen on '203\.0\.113\.7'"):
        SparkWorkers(spark, 1, host="203.0.113.7")
    with pytest.raises(DataflowError, match=r"worker \d has died\n.*exit code 1"):
        SparkWorkers(spark, 2, workers_host="203.0.113.7")
    with pytest.raises(DataflowError, match=r"worker 0 did not start in time(.|\n)*start_timeout"):
        SparkWorkers(spark, 1, start_timeout=0.01)
    assert not occupied_slots[spark.sparkContext]
    assert within(SOON, lambda: not workers_below())
    assert within(SOON, lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())


# Guests.


def test_tasks_load_and_read_as_clients(spark: SparkSession) -> None:
    size, parts = 50_000, 2
    with SparkWorkers(spark, 2) as cluster:
        engine = Engine(cluster=cluster)
        table = engine.table("edges", EDGES, key="src")
        view = engine.install("by src", table)
        cluster.ask(Ping(view.dataflow))
        transaction, spec = engine.transaction(), table.spec
        number = transaction.number
        loading = cluster.keys.issue(Grant(1000.0, stages=((number, "edges"),)))

        def load(part: int) -> int:
            with Client(loading) as client:
                data = {"src": np.arange(size) + part * size, "dst": np.arange(size)}
                for worker, stage in stages(spec, data, "insert", transaction=number, part=(part, 0), workers=2):
                    client.send(worker, stage)
            return part

        context: Any = spark.sparkContext
        assert context.parallelize(range(parts), parts).map(load).collect() == list(range(parts))
        transaction._adopt(table, [((part, 0), 0) for part in range(parts)])
        epoch = transaction.commit()
        with view.hold() as held:
            reading = cluster.keys.issue(Grant(1000.0, holds=((held.number, view.dataflow),)))
            request = Read(view.dataflow, (epoch,), held.number, wait=True)

            def read(worker: int) -> int:
                with Client(reading) as client:
                    return client.ask(worker, request).rows.num_rows

            assert sum(context.parallelize(range(2), 2).map(read).collect()) == size * parts
    with pytest.raises(IkebanaError, match="worker 0 is gone"), Client(reading, timeout=5) as late:
        late.ask(0, request)
