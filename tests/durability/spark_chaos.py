"""Kill processes of a session on Spark until something is lost: `make chaos-spark`.

The session has a storage directory, and its workers run on executors in processes of their own. Two threads insert rows
and load DataFrames while a worker is killed, or its supervisor (the Python process of its task), or its executor (a
Java process). Then the session must go on with new workers, and its table and its view must have every change that was
acknowledged, and none that was refused. In the end another session, with another number of workers, must find the same.

It takes half a minute, and another half for each kill, so it is no part of `make test`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import ikebana as ik
from ikebana.errors import IkebanaError
from ikebana.spark import Session, Table, spark_session
from tests.clusters import within
from tests.spark.scripts import executor_of
from tests.storage.s3_server import S3Server

MASTER = "local-cluster[2,2,1024]"
VICTIMS = ("worker", "supervisor", "executor")
PATIENCE = 120.0
"""Seconds in which new workers should have taken the place of others."""

LOADED = 400_000
"""Rows of a load: so many that workers write them before the load is committed."""


class Writers:
    """Two threads that change a table, and what they were told about it."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark, self._table = spark, table
        self.acknowledged: set[int] = set()
        self.refused: list[IkebanaError] = []
        self._failures: list[BaseException] = []
        self._next, self._lock = 0, threading.Lock()

    def run_until(self, is_enough: Callable[[], bool], work: Callable[[], None]) -> None:
        """Change the table while some work is done, and until there is enough."""
        threads = [threading.Thread(target=self._repeat, args=(do, is_enough)) for do in (self._insert, self._load)]
        for thread in threads:
            thread.start()
        try:
            work()
        finally:
            for thread in threads:
                thread.join()
        for failure in self._failures:
            raise failure

    def _repeat(self, do: Callable[[], None], is_enough: Callable[[], bool]) -> None:
        try:
            while not is_enough():
                do()
        except BaseException as failure:
            self._failures.append(failure)

    def _insert(self) -> None:
        (number,) = self._ids(1)
        self._change([number], lambda: self._table.insert([(number, number % 3)]))

    def _load(self) -> None:
        ids = self._ids(LOADED)
        rows = self._spark.range(ids.start, ids.stop, numPartitions=2).select("id", (F.col("id") % 3).alias("v"))
        self._change(ids, lambda: self._table.load(rows))

    def _ids(self, count: int) -> range:
        with self._lock:
            self._next += count
            return range(self._next - count, self._next)

    def _change(self, ids: range | list[int], change: Callable[[], object]) -> None:
        try:
            change()
        except IkebanaError as error:  # then none of the rows may be there
            self.refused.append(error)
        else:
            self.acknowledged |= set(ids)


def check(session: Session, acknowledged: set[int]) -> None:
    """Raise unless a session has the rows that were acknowledged, in its table and in its view."""
    found = session.table("t").to_arrow()["id"].to_pylist()
    assert len(found) == len(set(found)), "rows were inserted twice"
    lost, unexpected = acknowledged - set(found), set(found) - acknowledged
    assert not lost, f"{len(lost)} rows are lost, such as {min(lost)}"
    assert not unexpected, f"{len(unexpected)} rows are there that were refused, such as {min(unexpected)}"
    counts = {row["v"]: row["n"] for row in session.view("counts").to_arrow().to_pylist()}
    expected = {v: sum(number % 3 == v for number in acknowledged) for v in range(3)}
    assert counts == {v: n for v, n in expected.items() if n}, (counts, expected)


def kill(session: Session, victim: str, chance: random.Random) -> list[int]:
    """Kill a worker, or a process that it depends on; return the processes of the workers before that."""
    pids = list(session._cluster.pids)
    worker = psutil.Process(chance.choice(pids))
    processes = {"worker": lambda: worker, "supervisor": worker.parent, "executor": lambda: executor_of(worker.pid)}
    os.kill(processes[victim]().pid, signal.SIGKILL)
    return pids


def kill_all(spark: SparkSession, place: str, chance: random.Random, kills: int) -> None:
    """Kill so many processes of a session, of each kind in turn, and check what it has after each of them."""
    with ik.connect(spark, workers=2, storage=place, restarts=1 << 30) as session:
        table = session.create_table("t", "id BIGINT, v BIGINT", key="id")
        session.view("counts", "SELECT v, count(*) AS n FROM t GROUP BY v")
        writers = Writers(spark, table)
        for number in range(kills):
            victim, is_enough = VICTIMS[number % len(VICTIMS)], threading.Event()

            def work(victim: str = victim, is_enough: threading.Event = is_enough) -> None:
                try:
                    time.sleep(chance.uniform(0, 2))
                    pids = kill(session, victim, chance)
                    assert within(PATIENCE, lambda: set(pids).isdisjoint(session._cluster.pids))
                finally:
                    is_enough.set()

            writers.run_until(is_enough.is_set, work)
            check(session, writers.acknowledged)
            print(f"{victim} killed; acknowledged rows: {len(writers.acknowledged)}", flush=True)
    with ik.connect(spark, workers=3, storage=place) as session:
        check(session, writers.acknowledged)
    print(f"survived {kills} kills, and all are there; refused changes: {len(writers.refused)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=9, help="how many processes to kill")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats the same choices")
    parser.add_argument("--s3", action="store_true", help="store on an object store")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    config = {"spark.master": MASTER, "spark.executor.memory": "512m", "spark.log.level": "OFF"}
    config |= {"spark.deploy.maxExecutorRetries": -1}  # otherwise a master gives up after ten
    with tempfile.TemporaryDirectory() as folder, S3Server() as server:
        place = server.new_uri() if arguments.s3 else str(Path(folder) / "store")
        os.environ["IKEBANA_SECRET_FILE"] = str(Path(folder) / "secret")
        spark = spark_session.start(0, name="chaos", config=config)
        try:
            kill_all(spark, place, random.Random(arguments.seed), arguments.kills)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
