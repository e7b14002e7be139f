"""Drivers that the tests run in their own processes: `python -m tests.spark.scripts <name> ...`.

They print a line of JSON for each event that the test waits for.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession

from ikebana.cluster.inprocess import InProcess
from ikebana.errors import DataflowError, DroppedError
from ikebana.spark import SparkWorkers, connect, loading, spark_session
from tests.clusters import all_end, endless
from tests.spark.interrupted import SLOTS, on_our_spark, on_users_spark
from tests.spark.programs import program


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def executor_of(pid: int) -> psutil.Process:
    """The Java process that runs a worker's task."""
    return next(process for process in psutil.Process(pid).parents() if "java" in process.name())


def lose_an_executor(master: str) -> None:
    """The same results; then an executor is killed; then Spark replaces it, and the next cluster waits for it."""
    spark = spark_session.start(0, config={"spark.master": master, "spark.executor.memory": "512m"})
    with SparkWorkers(spark, 2) as cluster:
        java = executor_of(cluster.pids[0]).cmdline()[0]
        say(same=program(cluster) == program(InProcess(1)), java=java)
    cluster = SparkWorkers(spark, 2)
    view, pids = endless(cluster), cluster.pids
    start = time.monotonic()
    os.kill(executor_of(pids[0]).pid, signal.SIGKILL)
    try:
        view.read()
    except DataflowError as error:
        say(error=str(error), seconds=time.monotonic() - start, ended=all_end(pids))
    cluster.close()
    again = SparkWorkers(spark, 2)
    say(pids=again.pids)
    time.sleep(1000)


def compute(master: str) -> None:
    """The same results on another cluster, while another job runs; ends without closing anything."""
    spark = spark_session.start(
        0, config={"spark.master": master, "spark.cores.max": 4, "spark.executor.memory": "512m"}
    )
    cluster = SparkWorkers(spark, 2)
    say(same=program(cluster) == program(InProcess(1)))
    say(sum=sum(spark.sparkContext.parallelize(range(10), 2).map(lambda number: number * 2).collect()))
    say(pids=cluster.pids)


def use_a_stopped_session() -> None:
    session = connect(workers=1, config={"spark.app.name": "mine", "spark.master": "local[3]"})
    assert session.spark.sparkContext.appName == "mine" and session.spark.sparkContext.uiWebUrl is None
    table = session.create_table("t", "a BIGINT")
    view = session.view("v", table.count("a"))
    session.spark.stop()
    for call in (view.to_df, view.collect, table.to_arrow, session.views, lambda: session.sql("SELECT 1")):
        try:
            call()
        except DroppedError as error:
            assert "was stopped" in str(error), error
        else:
            raise AssertionError(call)
    session.close()


def attempts_and_interrupts(folder: str) -> None:
    """Tasks that fail at first, then interrupts on the user's SparkSession, then one that ends the driver.

    One process does all of it, because Java and Spark take most of a minute to start and to become fast.
    """
    spark = spark_session.start(0, config={**SLOTS, "spark.master": "local[6, 3]"})  # a task may fail twice
    attempt_twice(spark)
    on_users_spark(spark, Path(folder), say_interrupted)
    use_a_stopped_session()
    say(refused=True)
    cluster = SparkWorkers(workers=1)
    view = endless(cluster)
    say(waits=True, pids=cluster.pids)
    view.read()


def attempt_twice(spark: SparkSession) -> None:
    """Loads and follows where every task fails at first, after half of its rows."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 50)
    with patch.object(loading, "CHUNK_ROWS", 100), connect(spark, workers=2) as session:
        table, bag = session.create_table("t", "id BIGINT", key="id"), session.create_table("bag", "id BIGINT")
        table.load(spark.range(0, 1000, 1, 2).mapInArrow(failing_at_first, "id BIGINT"))
        bag.load(table.to_df().mapInArrow(failing_at_first, "id BIGINT"))
        rows = [source.to_arrow().num_rows for source in (table, bag)]
        failed = failed_tasks(spark.sparkContext.statusTracker())
        say(rows=rows, sum=sum(bag.to_arrow()["id"].to_pylist()), failed=failed)
        stream = spark.readStream.format(session.format).load("bag").mapInArrow(failing_at_first, "id BIGINT")
        copy = session.create_table("copy", "id BIGINT")
        following = copy.follow(stream)
        following.wait()
        say(copied=copy.to_arrow().num_rows, active=following.query.isActive)
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def interrupts(folder: str) -> None:
    """Interrupts of all calls that wait, on a SparkSession that Ikebana has started."""
    on_our_spark(Path(folder), say_interrupted)


def say_interrupted() -> None:
    say(interrupted=True)


def failed_tasks(tracker: Any) -> int:
    jobs = [tracker.getJobInfo(job_id) for job_id in tracker.getJobIdsForGroup()]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage is not None)


def failing_at_first(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows; at the first attempt half of them, and then an error."""
    context = TaskContext.get()
    assert context is not None
    for at, batch in enumerate(batches):
        if at == 5 and context.attemptNumber() == 0:
            raise RuntimeError("a bad start")
        yield batch


if __name__ == "__main__":
    {
        "lose_an_executor": lose_an_executor,
        "compute": compute,
        "attempts_and_interrupts": attempts_and_interrupts,
        "interrupts": interrupts,
    }[sys.argv[1]](*sys.argv[2:])
