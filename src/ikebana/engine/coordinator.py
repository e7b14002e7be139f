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
(`ikebana.cluster.interrupts`). A transaction that is interrupted before all its verdicts have arrived is aborted,
unless all its rows are on one worker, which may have committed it already.

Dead workers. If workers can be replaced (`ikebana.engine.healing`), `command` and `ask` do not fail when a worker has
died. New workers will be told everything that commands have said (`definitions`, and the open epoch), so `command` does
not wait for them; `ask` waits until they have taken the place of the old ones, and asks them. Whoever waits replaces
the workers, under the lock. Messages that make sense to the old workers only (those of a transaction that was begun
with them) go to a given cluster: `send`, `ask_once`.

Cost: if all rows of a transaction are on one worker, a commit takes one request, by which this worker checks the
transaction and commits it, and a command to the others. Otherwise, or if the commit has a time limit, it takes a
request to the workers that have rows, and a command to all workers.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ikebana.cluster import Cluster
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.engine.deadline import Deadline
from ikebana.engine.definitions import Definitions
from ikebana.engine.epoch_times import EpochTimes, now_us
from ikebana.engine.retention import Retentions
from ikebana.errors import ChangeError, DroppedError, IkebanaError, TimeError, WorkerLostError
from ikebana.runtime.messages import (
    Abort,
    Advance,
    Check,
    CheckAndCommit,
    Command,
    Commit,
    Demand,
    Problem,
    Request,
    Verdict,
)

if TYPE_CHECKING:
    from ikebana.engine.durable_commits import DurableCommits
    from ikebana.engine.healing import Healing
    from ikebana.engine.named_subscriptions import NamedSubscriptions
    from ikebana.engine.subscriptions import Subscription

_MAX_EXAMPLES = 3
"""The number of rejected rows that an error shows."""

Result = TypeVar("Result")

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
        self.definitions = Definitions()
        """What new workers would have to be told."""
        self.healing: Healing | None = None
        """Replaces dead workers, if that is possible."""
        self.subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        """All subscriptions, which go on with new workers."""
        self._cluster_lock: AbstractContextManager[Any] = nullcontext() if cluster.runs_by_itself else threading.RLock()
        self._numbers, self._open, self._abandoned = itertools.count(), set[int](), deque[int]()
        self._open_lock = threading.Lock()  # guards `_open`, so that transactions can begin while others are committed
        self._listeners: dict[int, weakref.WeakMethod[Callable[[int, Any], None]]] = {}
        self._pushes = itertools.count(1)
        self.epoch_times = EpochTimes()
        """When epochs were closed."""
        self.retentions = Retentions(self)
        """The histories of views and tables that are kept for a time."""
        self.durable_commits: DurableCommits | None = None
        """Commits the transactions of durable tables, if there are any (`ikebana.engine.durable_commits`)."""
        self.store_note: Callable[[Any], None] | None = None
        """Stores the note of a transaction that changes nothing that is stored, if there is a storage directory."""
        self.named_subscriptions: NamedSubscriptions | None = None
        """The named subscriptions, if there is a storage directory (`ikebana.engine.named_subscriptions`)."""
        cluster.listen(self.on_notification)

    # Workers.

    def command(self, command: Command, worker: int | None = None, *, hold: bool = False) -> None:
        """Send a command to every worker, or to one; with `hold`, perhaps only together with the next one."""
        self.definitions.note(command)
        try:
            self.send(command, worker, self.cluster, hold=hold)
        except WorkerLostError:
            if self.healing is None:
                raise
            self.healing.check()

    def send(self, command: Command, worker: int | None, cluster: Cluster, *, hold: bool = False) -> None:
        """Send a command to the workers of a cluster, or to one of them; raises if it has been replaced."""
        with self._cluster_lock:
            cluster.command(command, worker, hold=hold)

    def tell(self, command: Command, worker: int | None = None, cluster: Cluster | None = None) -> None:
        """Send a command that does not matter to workers who have ended, and never wait for other workers."""
        self.definitions.note(command)
        with suppress(WorkerLostError, DroppedError):
            self.send(command, worker, cluster or self.cluster)

    def heal(self, cluster: Cluster, error: WorkerLostError) -> None:
        """Replace a cluster of which a worker has died, or raise the error if that is not possible."""
        if self.healing is None:
            raise error
        self.healing.heal(cluster, error)

    def has_replaced(self, cluster: Cluster) -> bool:
        """Whether a worker of a cluster has died, and others have taken their place; waits until they have."""
        if self.healing is None:
            return False
        try:
            self.send(Demand("", 0), None, cluster)  # has no effect
        except WorkerLostError as error:
            self.heal(cluster, error)
            return True
        return False

    def deadline(self, timeout: float | None, what: str) -> Deadline:
        """Return a deadline in `timeout` seconds, or else the default limit; `what` names the call in errors."""
        return Deadline(self.timeout if timeout is None else timeout, what)

    def ask(self, request: Request, worker: int | None = None, deadline: Deadline | None = None) -> list[Any]:
        """Return the answers of all workers, or of one; raise if they have not arrived by the deadline."""

        def work() -> list[Any]:
            return self._with_live_workers(lambda cluster: self._ask(request, worker, cluster))

        return work() if deadline is None else deadline.run(work)

    def ask_once(
        self, request: Request, worker: int | None, cluster: Cluster, deadline: Deadline | None = None
    ) -> list[Any]:
        """Like `ask`, but of the workers of a cluster; raises if one of them has died."""

        def work() -> list[Any]:
            return self._ask(request, worker, cluster)

        return work() if deadline is None else deadline.run(work)

    def _ask(self, request: Request, worker: int | None, cluster: Cluster) -> list[Any]:
        with self._cluster_lock:
            return cluster.ask(request, worker)

    def _with_live_workers(self, work: Callable[[Cluster], Result]) -> Result:
        """The result of work with the workers; if one of them dies meanwhile, of the same work with new workers."""
        while True:
            cluster = self.cluster
            try:
                return work(cluster)
            except WorkerLostError as error:
                self.heal(cluster, error)

    def run(self, deadline: Deadline | None = None) -> None:
        """Let the workers work until nothing is left to do."""

        def run(cluster: Cluster) -> None:
            with self._cluster_lock:
                cluster.run()

        def work() -> None:
            self._with_live_workers(run)

        return work() if deadline is None else deadline.run(work)

    def new_number(self) -> int:
        """Return a number that identifies a transaction, a hold or a subscription in messages to workers."""
        return next(self._numbers)

    def next_worker(self) -> int:
        """Return the worker that takes the next push to a stream, whose rows have no owner: each in turn."""
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

    def on_notification(self, worker: int, notification: Any) -> None:
        """Take a notification of a worker."""
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
            self.open_epoch(target)
            return target

    def open_epoch(self, epoch: int) -> None:
        """Record that all epochs before this one are closed, as workers know or will be told; the lock is held."""
        self.epoch = epoch
        self.epoch_times.close(epoch - 1)

    def seconds_since(self, epoch: int) -> float:
        """Return how many seconds ago an epoch was closed: 0 if it is open.

        Of an epoch whose time is no longer known, it was at least so long ago.
        """
        closed = self.epoch_times.of(epoch)
        return 0.0 if closed is None else max(0, now_us() - closed) / 1e6

    # Transactions.

    def begin(self) -> int:
        """Begin a transaction; return its number. Does not wait for transactions that are being committed."""
        while self._abandoned:
            with suppress(IndexError):  # another thread was quicker
                abandoned = self._abandoned.popleft()
                self.abort(abandoned)
        with defer_interrupts(), self._open_lock:
            number = self.new_number()
            self._open.add(number)
            return number

    def commit(
        self, transaction: int, parts: Any, workers: Sequence[int] | None = None, deadline: Deadline | None = None
    ) -> int:
        """Apply a transaction of the present workers and return its epoch, or raise and change nothing.

        `parts` are the parts to apply, as in `Check`; `workers` are the workers that may have rows of the transaction,
        None if any may. A transaction that is not checked by the deadline is not applied.
        """
        check = Check(transaction, parts)
        with self.lock:
            if workers is not None and len(workers) == 1 and (deadline is None or deadline.seconds is None):
                return self._commit_on(workers[0], check)
            try:
                error = problem_error(self._verdicts(check, workers, deadline))
                if error is not None:
                    raise error
            except BaseException:
                self.abort(transaction)
                raise
            with defer_interrupts():
                epoch = self.epoch
                self.apply([(transaction, epoch)], changed_tables(parts))
            return epoch

    def _commit_on(self, worker: int, check: Check) -> int:
        """Apply a transaction that only one worker has rows of, by one request; the lock is held.

        If the request is interrupted, the worker may have committed the transaction. The epoch is closed in any case,
        so that the workers agree on it.
        """
        transaction, epoch = check.transaction, self.epoch
        commit = Commit(((transaction, epoch),), self._oldest_without([transaction]), changed_tables(check.parts))
        try:
            error = problem_error(self.ask_once(CheckAndCommit(check, commit), worker, self.cluster))
            if error is not None:
                raise error
            with defer_interrupts():
                self._open.discard(transaction)
                try:
                    for other in range(self.cluster.size):
                        if other != worker:
                            self.send(commit, other, self.cluster)
                finally:
                    self.open_epoch(epoch + 1)
            return epoch
        except IkebanaError:
            self.abort(transaction)
            raise
        except BaseException:
            with defer_interrupts():
                self.abort(transaction)
                self.advance()
            raise

    def apply(self, transactions: Sequence[tuple[int, int]], changed: tuple[str, ...]) -> None:
        """Apply transactions, each at the epoch for which it was checked, and close these epochs; the lock is held.

        `transactions` are pairs of transaction and epoch, in order, and `changed` are the tables that they change.
        """
        try:
            oldest = self._end([transaction for transaction, _ in transactions])
            self.send(Commit(tuple(transactions), oldest, changed), None, self.cluster)
        finally:
            self.open_epoch(transactions[-1][1] + 1)

    def _verdicts(self, check: Check, workers: Sequence[int] | None, deadline: Deadline | None) -> list[Verdict]:
        if workers is not None and len(workers) <= 1:
            return [verdict for at in workers for verdict in self.ask_once(check, at, self.cluster, deadline)]
        return self.ask_once(check, None, self.cluster, deadline)

    def abort(self, transaction: int) -> None:
        """Discard a transaction on all workers."""
        with self.lock, defer_interrupts():
            self.tell(Abort(transaction, self._end([transaction])))

    def abandon(self, transaction: int) -> None:
        """Abort a transaction when the next one begins. Never waits, so that finalizers can call it."""
        self._abandoned.append(transaction)

    def _end(self, transactions: Sequence[int]) -> int:
        """Record that transactions have ended; return the oldest that has not."""
        with self._open_lock:
            self._open.difference_update(transactions)
        return self._oldest_without(transactions)

    def _oldest_without(self, transactions: Sequence[int]) -> int:
        """The oldest transaction that has not ended, other than these."""
        with self._open_lock:
            return min(self._open.difference(transactions), default=max(transactions) + 1)


def changed_tables(parts: Any) -> tuple[str, ...]:
    """The tables of the parts of a transaction."""
    return tuple([table for table, _ in parts])


def problem_error(verdicts: list[Verdict]) -> ChangeError | None:
    """The error about the first kind of problem that workers have found, with the rows of all workers."""
    problems = [problem for verdict in verdicts for problem in verdict.problems]
    if not problems:
        return None
    first = problems[0]
    same_kind = [problem for problem in problems if (problem.table, problem.reason) == (first.table, first.reason)]
    other_kinds = {(problem.table, problem.reason) for problem in problems if problem not in same_kind}
    return _change_error(same_kind, len(other_kinds))


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
