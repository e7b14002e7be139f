"""Interrupts of calls that wait, on Spark: a script that runs in its own process.

An interrupt is sent when a condition holds, not after a delay. After each interrupt everything must work as before.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ikebana.cluster.connections import WorkerConnections
from ikebana.spark import Session, connect
from tests.clusters import Brake, interrupted, is_running, within, workers_below
from tests.spark.sessions import SMALL

LONG = 600.0
"""How many seconds to wait for something to happen."""

SLOTS = {"spark.master": "local[6]", "spark.log.level": "OFF", **SMALL}


class Stuck(Exception):
    """Raised by the interrupt handler of an application."""


class InterruptedSession:
    """A session with a table, a view and a stream, and checks that no interrupt has changed them."""

    def __init__(self, session: Session, folder: Path, done: Callable[[], object]) -> None:
        self.session, self.spark, self._folder, self._done = session, session.spark, folder, done
        self._numbers = 0
        self.table = session.create_table("t", "id BIGINT", key="id")
        self.table.insert([(1,), (2,)])
        self.view = session.view("counted", "SELECT count(*) AS n FROM t")
        source = session.create_table("source", "id BIGINT")
        copy = session.create_table("copy", "id BIGINT")
        stream = self.spark.readStream.format(session.format).load("source")
        self.following = copy.follow(stream, trigger={"processingTime": "2 seconds"})
        self.source, self.copy, self.rows = source, copy, 2

    def brake(self) -> Brake:
        self._numbers += 1
        return Brake(self._folder / f"{id(self)} {self._numbers}")

    def slow_rows(self, brake: Brake) -> Any:
        return self.spark.range(100, 104, 1, 2).mapInArrow(brake.batches, "id BIGINT")

    def interrupted(
        self,
        wait: Callable[[], object],
        when: Callable[[], object],
        expected: type[BaseException] = KeyboardInterrupt,
        afterwards: Callable[[], object] = lambda: None,
    ) -> None:
        """Interrupt a call that waits, and check that everything works as before."""
        pids = list(self.session._cluster.pids)
        interrupted(wait, when, expected, LONG)
        afterwards()
        assert pids == self.session._cluster.pids and all(map(is_running, pids))
        self.check()
        self._done()

    def check(self) -> None:
        """Tables and views can be read and created, loads and Spark jobs work, and no task slot is lost."""
        assert within(LONG, lambda: running_tasks(self.spark) == self.session.workers), running_tasks(self.spark)
        self.rows += 1
        self.table.load(self.spark.range(self.rows, self.rows + 1, 1, 1))
        assert self.table.to_arrow().num_rows == self.rows
        assert self.view.to_arrow().to_pylist() == [{"n": self.rows}]
        other = self.session.view("other", "SELECT id FROM t WHERE id > 1")
        assert other.to_arrow().num_rows == self.rows - 1
        other.drop()
        assert self.spark.sql("SELECT sum(id) AS s FROM range(10)").first()["s"] == 45
        assert {view.name for view in self.session.views()} <= {"counted", "slow"}
        assert {table.name for table in self.session.tables()} == {"t", "source", "copy"}
        assert within(LONG, lambda: not self.session.engine.coordinator._open)  # the stream has its own

    def end(self) -> None:
        """The stream has never stopped, and Spark can read it."""
        self.source.insert([(1,), (2,)])
        self.following.wait()
        assert self.copy.to_df().count() == 2
        self.session.close()
        assert not workers_below()


def running_tasks(spark: SparkSession) -> int:
    tracker = spark.sparkContext._jsc.sc().statusTracker()  # type: ignore[union-attr]
    return sum(int(executor.numRunningTasks()) for executor in tracker.getExecutorInfos())


def on_our_spark(folder: Path, done: Callable[[], object]) -> None:
    """With a SparkSession that `connect` has started, and PySpark's interrupt handler."""
    session = connect(workers=2)
    world = InterruptedSession(session, folder, done)
    brake = world.brake()
    world.interrupted(lambda: world.table.load(world.slow_rows(brake)), brake.works)
    brake = world.brake()
    world.interrupted(lambda: world.slow_rows(brake).collect(), brake.works)  # an action of the user's
    brake = world.brake()
    world.interrupted(lambda: load_more(world, brake), brake.works)

    changes = world.view.changes(since="now")
    world.interrupted(lambda: next(changes), lambda: changes._received._waiters)
    assert next(changes)[0] < session.epoch

    context: Any = world.spark.sparkContext
    world.end()
    assert "cancelAllJobs" not in vars(context)


def load_more(world: InterruptedSession, brake: Brake) -> None:
    with world.session.transaction():
        world.table.insert([(50,)])
        world.table.load(world.slow_rows(brake))


def on_users_spark(spark: SparkSession, folder: Path, done: Callable[[], object]) -> None:
    """With the user's SparkSession, interrupt handlers other than PySpark's, and sessions of other threads."""
    interrupted_connect(spark)
    sessions: list[Session] = []
    thread = threading.Thread(target=lambda: sessions.append(connect(spark, workers=2)))
    thread.start()
    thread.join()
    (session,) = sessions
    world = InterruptedSession(session, folder, done)

    connections = session._cluster._connections
    for read in (lambda view: view.to_arrow(), lambda view: view.to_df().collect()):
        brake = world.brake()
        slow = session.view("slow", world.table.filter(brake))
        assert within(LONG, brake.works)
        world.interrupted(partial(read, slow), LongCall(connections), afterwards=brake.release)
        slow.drop()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a notebook
    brake = world.brake()
    world.interrupted(lambda: world.table.load(world.slow_rows(brake)), brake.works)
    signal.signal(signal.SIGINT, own_handler)
    brake = world.brake()
    world.interrupted(lambda: world.table.load(world.slow_rows(brake)), brake.works, Stuck)
    assert signal.getsignal(signal.SIGINT) is own_handler
    signal.signal(signal.SIGINT, before)
    world.end()
    spark.stop()


class LongCall:
    """Whether a call has been waiting for its answer for a while; those of the stream are short."""

    def __init__(self, connections: WorkerConnections) -> None:
        self._connections, self._since = connections, dict[int, float]()

    def __call__(self) -> bool:
        now = time.monotonic()
        self._since = {number: self._since.get(number, now) for number in list(self._connections._calls)}
        return any(now - since > 0.5 for since in self._since.values())


def own_handler(*_: object) -> None:
    raise Stuck


def interrupted_connect(spark: SparkSession) -> None:
    """An interrupt while workers start leaves no workers, and no job."""
    tracker = spark.sparkContext.statusTracker()

    interrupted(lambda: connect(spark, workers=2), tracker.getActiveJobsIds, seconds=LONG)
    assert within(LONG, lambda: not tracker.getActiveJobsIds() and not workers_below())
    assert within(LONG, lambda: not running_tasks(spark))
