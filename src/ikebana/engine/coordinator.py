"""The coordinator: the one place in the driver where epochs advance, for any number of threads.

The coordinator owns the workers, the open epoch and the numbers of transactions. Steps that belong together are taken
under its `lock`: reading the epoch and sending messages that depend on it, checking a transaction and committing it.
Threads wait for workers without holding the lock, with one exception: transactions are checked and committed one at a
time, so that each is checked against all that were committed before it.

All workers receive commands in the same order, the order in which they were sent. Commands that are sent under the lock
therefore reach every worker at the same epoch. `epoch` changes after the command that closes an epoch was sent, so a
thread that asks about a closed epoch, with or without the lock, asks workers that know of it.

Workers of this process do not run by themselves: they work inside `ask` and `run`, for one thread at a time.

An interrupt (Ctrl-C) ends waiting for workers, and nothing else: messages that belong together are all sent
(`ikebana.cluster.interrupts`). A transaction that is interrupted before all its verdicts have arrived is aborted.

Cost: a commit takes one request to the workers that have rows of the transaction, and one command to all workers.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ikebana.cluster import Cluster
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.engine.deadline import Deadline
from ikebana.errors import ChangeError, TimeError
from ikebana.runtime.messages import Abort, Advance, Check, Command, Commit, Problem, Request, Verdict

_MAX_EXAMPLES = 3
"""The number of rejected rows that an error shows."""

_CLOSINGS = 10_000
"""Of how many epochs the coordinator remembers when they were closed."""

_PROBLEMS = {
    "exists": (
        "cannot insert into table {table!r}: {rows} with a key that exists already",
        "use upsert to replace rows, or delete them first",
    ),
    "twice": (
        "cannot insert into table {table!r}: {rows} with a key that was inserted before in the same transaction",
        "insert each key once, or use upsert, with which the last row of a key wins",
    ),
    "memory": (
        "cannot insert into table {table!r}: not enough memory for {rows} or more",
        "drop views or rows, or give the workers more memory: memory=...",
    ),
    "missing": (
        "cannot delete from table {table!r}: {rows} that {verb} not exist",
        "delete only rows that exist",
    ),
}
"""The message and the hint for each kind of problem."""


class Coordinator:
    """The driver's side of a cluster of workers."""

    def __init__(self, cluster: Cluster, timeout: float | None = None) -> None:
        """`timeout` is the default limit, in seconds, of calls that wait for workers; None for no limit."""
        self.cluster, self.epoch, self.timeout = cluster, 0, timeout
        self.lock = threading.RLock()
        self._cluster_lock: AbstractContextManager[Any] = nullcontext() if cluster.runs_by_itself else threading.RLock()
        self._numbers, self._open, self._abandoned = itertools.count(), set[int](), deque[int]()
        self._listeners: dict[int, weakref.WeakMethod[Callable[[int, Any], None]]] = {}
        self._pushes = itertools.count(1)
        self._closings: deque[tuple[int, float]] = deque(maxlen=_CLOSINGS)  # the last epochs, and when they were closed
        cluster.listen(self._on_notification)

    # Workers.

    def command(self, command: Command, worker: int | None = None) -> None:
        """Send a command to every worker, or to one."""
        with self._cluster_lock:
            self.cluster.command(command, worker)

    def deadline(self, timeout: float | None, what: str) -> Deadline:
        """Return a deadline in `timeout` seconds, or else the default limit; `what` names the call in errors."""
        return Deadline(self.timeout if timeout is None else timeout, what)

    def ask(self, request: Request, worker: int | None = None, deadline: Deadline | None = None) -> list[Any]:
        """Return the answers of all workers, or of one; raise if they have not arrived by the deadline."""

        def work() -> list[Any]:
            with self._cluster_lock:
                return self.cluster.ask(request, worker)

        return work() if deadline is None else deadline.run(work)

    def run(self, deadline: Deadline | None = None) -> None:
        """Let the workers work until nothing is left to do."""

        def work() -> None:
            with self._cluster_lock:
                self.cluster.run()

        return work() if deadline is None else deadline.run(work)

    def new_number(self) -> int:
        """Return a number that identifies a transaction, a hold or a subscription in messages to workers."""
        return next(self._numbers)

    def next_worker(self) -> int:
        """Return the worker that takes the next push to an input: each in turn. Arranging moves rows to owners."""
        return next(self._pushes) % self.cluster.size

    # Notifications of workers.

    def add_listener(self, number: int, listener: Callable[[int, Any], None]) -> None:
        """Call a method with the sender and each notification that carries a number. The method must be quick.

        The coordinator does not keep the method's object alive.
        """
        self._listeners[number] = weakref.WeakMethod(listener)

    def remove_listener(self, number: int) -> None:
        """Ignore notifications that carry a number from now on."""
        self._listeners.pop(number, None)

    def _on_notification(self, worker: int, notification: Any) -> None:
        reference = self._listeners.get(notification.number)
        listener = reference() if reference is not None else None
        if listener is not None:
            listener(worker, notification)

    # Epochs.

    def advance(self, epoch: int | None = None) -> int:
        """Close the open epoch, or with `epoch` all epochs before that one; return the epoch that is now open."""
        with self.lock, defer_interrupts():
            target = self.epoch + 1 if epoch is None else epoch
            if target < self.epoch:
                raise TimeError(
                    f"cannot go back to epoch {target}",
                    detail=f"epoch {self.epoch} is open, and all epochs before it are closed",
                )
            self.command(Advance(target))
            self._open_epoch(target)
            return target

    def _open_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._closings.append((epoch - 1, time.monotonic()))

    def seconds_since(self, epoch: int) -> float:
        """Return how many seconds ago an epoch was closed: 0 if it is open.

        Of an epoch that is no longer remembered, it was at least so long ago.
        """
        times = [at for closed, at in list(self._closings) if closed >= epoch]
        return time.monotonic() - times[0] if times else 0.0

    # Transactions.

    def begin(self) -> int:
        """Begin a transaction; return its number."""
        with self.lock, defer_interrupts():
            while self._abandoned:
                self.abort(self._abandoned.popleft())
            number = self.new_number()
            self._open.add(number)
            return number

    def commit(
        self, transaction: int, parts: Any, workers: Sequence[int] | None = None, deadline: Deadline | None = None
    ) -> int:
        """Apply a transaction on all workers and return its epoch, or raise and change nothing.

        `parts` are the parts to apply, as in `Check`; `workers` are the workers that may have rows of the transaction,
        None if any may. A transaction that is not checked by the deadline is not applied.
        """
        with self.lock:
            try:
                _raise_problems(self._verdicts(Check(transaction, parts), workers, deadline))
            except BaseException:
                self.abort(transaction)
                raise
            with defer_interrupts():
                epoch = self.epoch
                self.command(Commit(transaction, epoch + 1, self._end(transaction)))
                self._open_epoch(epoch + 1)
            return epoch

    def _verdicts(self, check: Check, workers: Sequence[int] | None, deadline: Deadline | None) -> list[Verdict]:
        if workers is not None and len(workers) <= 1:
            return [verdict for worker in workers for verdict in self.ask(check, worker, deadline)]
        return self.ask(check, deadline=deadline)

    def abort(self, transaction: int) -> None:
        """Discard a transaction on all workers."""
        with self.lock, defer_interrupts():
            self.command(Abort(transaction, self._end(transaction)))

    def abandon(self, transaction: int) -> None:
        """Abort a transaction when the next one begins. Never waits, so that finalizers can call it."""
        self._abandoned.append(transaction)

    def _end(self, transaction: int) -> int:
        """Record that a transaction has ended; return the oldest that has not."""
        self._open.discard(transaction)
        return min(self._open, default=transaction + 1)


def _raise_problems(verdicts: list[Verdict]) -> None:
    """Raise if workers found problems: an error about the first kind of problem, with the rows of all workers."""
    problems = [problem for verdict in verdicts for problem in verdict.problems]
    if not problems:
        return
    first = problems[0]
    same_kind = [problem for problem in problems if (problem.table, problem.reason) == (first.table, first.reason)]
    other_kinds = {(problem.table, problem.reason) for problem in problems if problem not in same_kind}
    raise _change_error(same_kind, len(other_kinds))


def _change_error(problems: list[Problem], other_kinds: int) -> ChangeError:
    """The error for problems of one kind with one table."""
    rows = sum(problem.rows for problem in problems)
    examples = [example for problem in problems for example in problem.examples][:_MAX_EXAMPLES]
    what, hint = _PROBLEMS[problems[0].reason]
    what = what.format(
        table=problems[0].table,
        rows=f"{rows} row{'s' if rows > 1 else ''}",
        verb="do" if rows > 1 else "does",
    )
    detail = "; ".join(f"({example})" for example in examples)
    if rows > len(examples):
        detail = f"for instance {detail}"
    if other_kinds:
        detail += f"; and {other_kinds} other kind{'s' if other_kinds > 1 else ''} of problem"
    return ChangeError(what, detail=detail, hint=f"{hint}; nothing of the transaction was applied")
