"""Engines that are killed, and what must be in their storage directory afterwards.

A `Victim` is a process with an engine on a storage directory. It reports what it finds, then changes tables in several
threads, changes views and statements, follows a stream (`tests.durability.workload`), and consumes the changes of a
view (`tests.durability.audit`). It reports each step before and after it, until it is killed. A `Witness` follows the
reports, and knows what the next victim must find: everything that was acknowledged, nothing that was rejected, and of
what was under way when the process was killed each step entirely or not at all.
"""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, table_storage
from ikebana.engine.healing import RESTARTS
from ikebana.errors import StorageError
from ikebana.storage import early_rows, faults, lease
from ikebana.storage.faults import Fault, FaultPoint
from tests.durability.audit import Audit, AuditWitness
from tests.durability.conftest import FEW_BYTES
from tests.durability.workload import (
    QUERIES,
    STREAM,
    Definitions,
    Report,
    Views,
    change,
    change_views,
    follow,
    followed_rows,
    guarded,
    models,
    rows_of,
    states,
    tables_of,
)
from tests.engine.table_model import Feed, Model, expected
from tests.storage.short_leases import LEASE_SECONDS, SETTLING_SECONDS

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.durability.preloaded"])

PATIENCE = 60.0
"""Seconds after which a victim should have reported something."""

FULL_FOR = 5
"""How many operations fail in a row while a disk is full."""


# The process that is killed.


@dataclass(frozen=True)
class Life:
    """What a victim does. `fault` is the point at which it kills itself (`ikebana.storage.faults`), if not "".

    `full` is a point, and the time that it is reached, at which the disk is full for a while. A victim that reaches the
    end of its life closes its engine.
    """

    place: str
    seed: int
    workers: int = 1
    threads: int = 2
    transactions: int = 30
    fault: str = ""
    full: str = ""
    snapshot_bytes: int = 20_000


def live(life: Life, pipe: Connection) -> None:
    """The main function of a victim."""
    table_storage.SNAPSHOT_BYTES = life.snapshot_bytes
    table_storage._RETRY_SECONDS = 0.01
    early_rows.EARLY_BYTES = FEW_BYTES
    logging.getLogger("ikebana").setLevel(logging.ERROR)  # a full disk is expected
    lease.LEASE_SECONDS, lease.SETTLING_SECONDS = LEASE_SECONDS, SETTLING_SECONDS
    lock = threading.Lock()

    def report(*message: Any) -> None:
        with lock:
            pipe.send(message)

    with ExitStack() as stack:
        if life.fault or life.full:
            stack.enter_context(faults.installed(_faults(life)))
        try:
            engine = Engine(life.workers, storage=life.place, restores_history=True)
            tables_of(engine)
            views, audit = Views(engine), Audit(engine)
        except StorageError:  # the disk is full
            if not life.full:
                raise
            return
        report("found", found(engine, views, audit))
        work(engine, views, audit, life, report)
        with suppress(StorageError):
            engine.close()


def _faults(life: Life) -> Fault:
    """The function for fault points: a disk that is full for a while, and an end."""
    kill = faults.kill_at(life.fault) if life.fault else lambda point, path: None
    name, _, first = life.full.partition(":")
    reached = 0

    def fault(point: FaultPoint, path: str) -> None:
        nonlocal reached
        kill(point, path)
        if point.value == name:
            reached += 1
            if int(first) <= reached < int(first) + FULL_FOR:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return fault


def work(engine: Engine, views: Views, audit: Audit, life: Life, report: Report) -> None:
    """Change tables and views, and follow a stream, until all threads have ended; consume the changes of a view."""
    is_over = threading.Event()
    consumer = threading.Thread(target=guarded(audit.run, report), args=(is_over,), daemon=True)
    consumer.start()
    changes = [(change, (engine, life.seed, number, life.transactions)) for number in range(life.threads)]
    others = [(follow, (engine, life.transactions)), (change_views, (views, life.seed, life.transactions // 4))]
    threads = [
        threading.Thread(target=guarded(function, report), args=arguments, daemon=True)
        for function, arguments in (*changes, *others)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    is_over.set()
    consumer.join()


def found(engine: Engine, views: Views, audit: Audit) -> dict[str, Any]:
    """The contents of tables, views and statements, the positions, the epoch, and what was consumed."""
    assert engine.storage is not None
    positions = engine.storage.positions.items()
    return {
        "audit": audit.state(),
        "rows": rows_of(engine),
        "definitions": views.definitions(),
        "views": views.contents(),
        "positions": {name: value for name, value in positions if not name.startswith("subscription ")},
        "epoch": engine.epoch,
    }


# The process that watches.


@dataclass
class Witness:
    """What was acknowledged, and what was under way."""

    tables: list[Model] = field(default_factory=models)
    positions: dict[str, Any] = field(default_factory=dict)
    definitions: Definitions = field(default_factory=dict)
    epoch: int = -1
    audit: AuditWitness = field(default_factory=AuditWitness)
    pending: dict[int, tuple[list[Feed], Any]] = field(default_factory=dict)  # by thread
    pending_definition: tuple[str, str, str | None] | None = None
    pending_batch: int | None = None
    transactions: int = 0
    batches: int = 0
    view_changes: int = 0
    kills: int = 0
    reached: Counter[str] = field(default_factory=Counter)  # fault points at which victims were killed

    def take(self, message: tuple[Any, ...]) -> None:
        """Take a report of a victim."""
        match message:
            case ("found", found):
                self.check(found)
            case ("begun", thread, feeds, position):
                self.pending[thread] = feeds, position
            case ("committed", thread, epoch):
                feeds, position = self.pending.pop(thread)
                after = expected(self.tables, feeds)
                assert after is not None, "a transaction that is not allowed was committed"
                self.tables, self.positions[f"thread {thread}"] = after, position
                self.epoch, self.transactions = max(epoch, self.epoch), self.transactions + 1
            case ("rejected", thread):
                feeds, _ = self.pending.pop(thread)
                assert expected(self.tables, feeds) is None, "a transaction that is allowed was rejected"
            case ("failed", thread):
                del self.pending[thread]
            case ("wrong", error):
                raise AssertionError(error)
            case _:
                self._take_other(message)

    def _take_other(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("following", number):
                self.pending_batch = number
            case ("followed", number):
                self.positions[STREAM], self.pending_batch, self.batches = number, None, self.batches + 1
            case ("not followed",):
                self.pending_batch = None
            case ("defining", kind, name, query):
                self.pending_definition = kind, name, query
            case ("defined",):
                self.definitions, self.pending_definition = self._defined(), None
                self.view_changes += 1
            case ("not defined",):
                self.pending_definition = None
            case ("delivered", epoch, changes):
                self.audit.deliver(epoch, changes)
            case ("acknowledged",):
                self.audit.acknowledge()

    def _defined(self) -> Definitions:
        """The definitions with the change that is under way."""
        if self.pending_definition is None:
            return self.definitions
        kind, name, query = self.pending_definition
        others = {key: value for key, value in self.definitions.items() if key != (kind, name)}
        return others if query is None else {**others, (kind, name): query}

    def check(self, found: dict[str, Any]) -> None:
        """Compare what a victim has found with what must be there, and go on from it."""
        self._check_stream(found)
        self.audit.check(found["audit"])
        for tables, positions in self._possible():
            rows = {table.name: table.rows for table in tables}
            if rows == found["rows"] and positions == found["positions"]:
                break
        else:
            raise AssertionError(f"found {found}, expected {self.tables} with or without {self.pending}")
        assert found["definitions"] in (self.definitions, self._defined()), f"found {found}, expected {self}"
        assert found["epoch"] > self.epoch, f"epoch {found['epoch']} after {self.epoch}"
        for key, query in found["definitions"].items():
            answer = QUERIES[query].answer({**found["rows"], STREAM: followed_rows(self.positions.get(STREAM, -1))})
            assert found["views"][key] == answer, f"{key} has {found['views'][key]} instead of {answer}"
        self.tables, self.positions, self.pending = tables, positions, {}
        self.definitions, self.pending_definition = found["definitions"], None

    def _check_stream(self, found: dict[str, Any]) -> None:
        """Compare the rows of the stream, and its position; what was under way is decided."""
        last, position = self.positions.get(STREAM, -1), found["positions"].get(STREAM, -1)
        assert position in (last, self.pending_batch), f"the stream is at {position} instead of {last}"
        assert found["rows"].pop(STREAM) == followed_rows(position), f"the rows of the stream differ at {position}"
        if position >= 0:
            self.positions[STREAM] = position
        self.pending_batch = None

    def _possible(self) -> Iterator[tuple[list[Model], dict[str, Any]]]:
        """All states in which the tables may be: each pending transaction has happened, or not."""
        for happened in states(self.pending):
            tables: list[Model] | None = self.tables
            positions = dict(self.positions)
            for thread, (feeds, position) in happened.items():
                if tables is not None:
                    tables = expected(tables, feeds)
                    positions[f"thread {thread}"] = position
            if tables is not None:
                yield tables, positions


def run(life: Life, witness: Witness, kill_after: float | None = None) -> bool:
    """Let a victim live, kill it after some seconds if that is asked for; return whether it was killed."""
    reading, writing = _forks.Pipe(duplex=False)
    process = _forks.Process(target=live, args=(life, writing), daemon=True)
    process.start()
    writing.close()
    killer = None
    if kill_after is not None:
        killer = threading.Timer(kill_after, lambda: _kill(process.pid))
        killer.daemon = True
    try:
        while reading.poll(PATIENCE):
            message = reading.recv()
            if message[0] == "found" and killer is not None:
                killer.start()
            witness.take(message)
        raise AssertionError("a victim reports nothing")
    except (EOFError, OSError):  # it has ended, perhaps amid a report
        pass
    finally:
        if killer is not None:
            killer.cancel()
        _kill(process.pid)
        process.join()
    was_killed = process.exitcode == -signal.SIGKILL
    assert was_killed or process.exitcode == 0, f"a victim has ended with {process.exitcode}"
    witness.kills += was_killed
    if was_killed and life.fault:
        witness.reached[life.fault.partition(":")[0]] += 1
    return was_killed


def run_with_workers(
    place: str, seed: int, workers: int, witness: Witness, kill_after: float, heals: bool = False
) -> None:
    """Change tables in this process, and kill one of its worker processes after some seconds.

    Here a transaction that fails has not happened: the driver lives, and says so. If the engine `heals`, it goes on
    with other workers for a while.
    """
    chance, lock, errors = random.Random(seed), threading.Lock(), list[AssertionError]()

    def report(*message: Any) -> None:
        with lock:
            try:
                witness.take(message)
            except AssertionError as error:
                errors.append(error)

    cluster = Processes(workers)
    victim = cluster.pids[chance.randrange(workers)]
    restarts = RESTARTS if heals else 0
    with Engine(cluster=cluster, storage=place, restarts=restarts, restores_history=True) as engine:
        tables_of(engine)
        views, audit = Views(engine), Audit(engine)
        report("found", found(engine, views, audit))
        killer = threading.Timer(kill_after, lambda: _kill(victim))
        killer.start()
        work(engine, views, audit, Life(place, seed, transactions=40 if heals else 1 << 30), report)
        killer.join()
    witness.kills += 1
    assert not errors, errors[0]


def _kill(pid: int | None) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
