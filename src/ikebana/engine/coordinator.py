"""The coordinator: the one place in the driver where epochs advance, for whatever number of threads.

It owns the workers, the present epoch and the transactions' numbers. What must be one step is done under its `lock`:
reading the epoch and sending what depends on it, checking a transaction and committing it. Waiting for workers is done
without the lock, except for a verdict: transactions are checked and committed one at a time, so that each is checked
against all that were committed before it.

Workers take commands in the order in which they were sent, all in the same order. So whatever is sent under the lock
meets every worker at the same epoch.

Workers of this process do nothing by themselves: they work when somebody asks, one thread at a time.

Interrupts (Ctrl-C) end the waiting for workers, and nothing else: what is sent together is sent
(`ikebana.cluster.interrupts`). A transaction that is interrupted before all its verdicts are there is aborted.

Cost: committing takes one request to the workers that have rows of the transaction, and one command to all.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ikebana.cluster import Cluster
from ikebana.cluster.inprocess import InProcess
from ikebana.cluster.interrupts import deferred
from ikebana.engine.deadline import Deadline
from ikebana.errors import ChangeError, TimeError
from ikebana.runtime.messages import Abort, Advance, Check, Command, Commit, Problem, Request, Verdict

_EXAMPLES = 3
_WHY = {
    "exists": (
        "cannot insert into table {table!r}: {rows} with a key that exists already",
        "use upsert to replace rows, or delete them first",
    ),
    "twice": (
        "cannot insert into table {table!r}: {rows} with a key that was inserted before in the same transaction",
        "insert each key once, or use upsert, with which the last row counts",
    ),
    "memory": (
        "cannot insert into table {table!r}: there is no memory for {rows} or more",
        "drop views or rows, or give the workers more memory: memory=...",
    ),
    "missing": (
        "cannot delete from table {table!r}: {rows} that {are} not there",
        "delete only what is there",
    ),
}


class Coordinator:
    """The driver's side of W workers."""

    def __init__(self, cluster: Cluster, timeout: float | None = None) -> None:
        self.cluster, self.epoch, self.timeout = cluster, 0, timeout
        self.lock = threading.RLock()
        self.mine = threading.local()  # what is under way in a thread
        self._turn: AbstractContextManager[Any] = threading.RLock() if isinstance(cluster, InProcess) else nullcontext()
        self._numbers, self._open, self._lost = itertools.count(), set[int](), deque[int]()
        self._followers: dict[int, weakref.WeakMethod[Callable[[int, Any], None]]] = {}
        cluster.listen(self._hear)

    # Workers.

    def command(self, command: Command, worker: int | None = None) -> None:
        """Send a command to every worker, or to one."""
        with self._turn:
            self.cluster.command(command, worker)

    def deadline(self, timeout: float | None, what: str) -> Deadline:
        """The time that a call has: so many seconds, or as many as is usual here."""
        return Deadline(self.timeout if timeout is None else timeout, what)

    def ask(self, request: Request, worker: int | None = None, deadline: Deadline | None = None) -> list[Any]:
        """The answers of all workers, or of one; raises when they have not come in time."""

        def work() -> list[Any]:
            with self._turn:
                return self.cluster.ask(request, worker)

        return work() if deadline is None else deadline.run(work)

    def run(self, deadline: Deadline | None = None) -> None:
        """Work until nothing is left to do."""

        def work() -> None:
            with self._turn:
                self.cluster.run()

        return work() if deadline is None else deadline.run(work)

    @property
    def is_driven(self) -> bool:
        """Whether workers work only when somebody asks."""
        return isinstance(self.cluster, InProcess)

    def new_number(self) -> int:
        """A number that nothing else has."""
        return next(self._numbers)

    # News.

    def follow(self, number: int, listener: Callable[[int, Any], None]) -> None:
        """Give news with a number to a method: which worker they are from, and what they are. It must be quick.

        That does not keep the method's object alive.
        """
        self._followers[number] = weakref.WeakMethod(listener)

    def unfollow(self, number: int) -> None:
        """Nobody waits for news with a number any more."""
        self._followers.pop(number, None)

    def _hear(self, worker: int, item: Any) -> None:
        follower = self._followers.get(item.number)
        listener = follower() if follower is not None else None
        if listener is not None:
            listener(worker, item)

    # Epochs.

    def advance(self, epoch: int | None = None) -> int:
        """Close the present epoch, or all before `epoch`; returns the epoch that is now open."""
        with self.lock, deferred():
            target = self.epoch + 1 if epoch is None else epoch
            if target < self.epoch:
                raise TimeError(f"cannot go back to epoch {target}", detail=f"the present epoch is {self.epoch}")
            self.epoch = target
            self.command(Advance(target))
            return target

    # Transactions.

    def begin(self) -> int:
        """The number of a new transaction."""
        with self.lock, deferred():
            while self._lost:
                self.abort(self._lost.popleft())
            number = self.new_number()
            self._open.add(number)
            return number

    def commit(
        self, transaction: int, parts: Any, workers: Sequence[int] | None = None, deadline: Deadline | None = None
    ) -> int:
        """Apply a transaction everywhere, or raise and leave everything as it was; returns its epoch.

        `parts` are those that count, as in `Check`; `workers` those that may have rows, None if any may. What is not
        checked in time is not applied.
        """
        with self.lock:
            try:
                _raise(self._verdicts(Check(transaction, parts), workers, deadline))
            except BaseException:
                self.abort(transaction)
                raise
            with deferred():
                epoch, self.epoch = self.epoch, self.epoch + 1
                self.command(Commit(transaction, epoch + 1, self._ended(transaction)))
            return epoch

    def _verdicts(self, check: Check, workers: Sequence[int] | None, deadline: Deadline | None) -> list[Verdict]:
        if workers is not None and len(workers) <= 1:
            return [verdict for worker in workers for verdict in self.ask(check, worker, deadline)]
        return self.ask(check, deadline=deadline)

    def abort(self, transaction: int) -> None:
        """Drop a transaction everywhere."""
        with self.lock, deferred():
            self.command(Abort(transaction, self._ended(transaction)))

    def abandon(self, transaction: int) -> None:
        """Nobody has a transaction any more: drop it some time. Waits for nothing, wherever it is called."""
        self._lost.append(transaction)

    def _ended(self, transaction: int) -> int:
        """A transaction has ended; returns the oldest that has not."""
        self._open.discard(transaction)
        return min(self._open, default=transaction + 1)


def _raise(verdicts: list[Verdict]) -> None:
    """Raise the first kind of problem that any worker found, with the rows of all of them."""
    problems = [problem for verdict in verdicts for problem in verdict.problems]
    if not problems:
        return
    first = problems[0]
    alike = [each for each in problems if (each.table, each.why) == (first.table, first.why)]
    others = {(each.table, each.why): each for each in problems if each not in alike}
    raise _error(first, alike, len(others))


def _error(first: Problem, alike: list[Problem], others: int) -> ChangeError:
    rows = sum(each.rows for each in alike)
    examples = [example for each in alike for example in each.examples][:_EXAMPLES]
    what, hint = _WHY[first.why]
    what = what.format(table=first.table, rows=f"{rows} row{'s' if rows > 1 else ''}", are="are" if rows > 1 else "is")
    listed = "; ".join(f"({example})" for example in examples)
    detail = f"{'for instance ' if rows > len(examples) else ''}{listed}"
    if others:
        detail += f"; and {others} other kind{'s' if others > 1 else ''} of problem"
    return ChangeError(what, detail=detail, hint=f"{hint}; nothing of the transaction was applied")
