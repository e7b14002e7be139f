"""Group commit: transactions of durable tables, several of which share one request to the workers and one sync.

A durable transaction is *prepared*: the workers that have rows of it check it, append its changes to their logs, and
sync the logs before they answer (`ikebana.runtime.durability`). It is committed if all of them accept it. Preparing
takes as long as the disk takes. Threads that commit meanwhile wait in a queue; then one of them, the leader, prepares
all transactions of the queue in one request. Each transaction still has an epoch of its own.

A leader waits a little for others. The threads whose transactions were just committed are likely to come again, and the
first of them would lead on its own, while the others wait for the next request. So the leader waits until the queue is
as long as the larger of the last two groups, but at most for as long as the last request took, and no longer if nobody
has come for half of that time. The thread that makes the queue so long leads in its place: it is running, and the one
that waits need not be woken. A single thread never waits.

The transactions of a request are checked against the same rows. A worker reports a conflict if two of them change the
same key: then the later one is prepared again, after the earlier one has been applied.

Aborts. A transaction that a worker rejects is never complete in the logs, so recovery drops it. If the answers do not
arrive (a timeout, an interrupt, a full disk, a dead worker), the transaction may be in all logs. It is then aborted in
the driver's log, and that is synced, before the caller is told. If this fails too, nobody knows before the storage is
opened again whether the transaction is in it: the error says so, and no further transaction is accepted until then.

Epochs. Transactions of one request get consecutive epochs. The epoch of one that is not committed remains empty, if a
later one of the request is committed.

Cost: with one thread, a request and a sync for each transaction. Not guaranteed: the order in which transactions of
different threads are applied.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.cluster.wakeups import Wakeup
from ikebana.engine.coordinator import Coordinator, changed_tables, problem_error
from ikebana.engine.deadline import Deadline
from ikebana.errors import IkebanaError, StorageError
from ikebana.runtime.messages import Prepare, PrepareVerdicts, ToPrepare, Verdict
from ikebana.storage import Store

MOST_TOGETHER = 64
"""The number of transactions that are prepared in one request at most."""

_SHARE_OF_REQUEST, _LONGEST_WAIT = 0.5, 0.005
"""How long a leader waits for another thread to come, as a share of the last request, and for all, in seconds."""

_POLL_SECONDS = 0.01
"""How often a thread whose time is over checks whether its transaction is decided."""


@dataclass(slots=True, eq=False)
class Candidate:
    """A transaction that is to be committed.

    `workers` have to log it, and `note` (values of JSON) is logged with it. `check` raises if it cannot be committed
    any more, for instance because a table was dropped.
    """

    transaction: int
    parts: Any
    workers: tuple[int, ...]
    note: Any
    check: Callable[[], None]
    deadline: Deadline
    epoch: int | None = None
    error: BaseException | None = None
    leads: bool = False  # whether its thread commits the transactions of the queue
    wakeup: Wakeup = field(default_factory=Wakeup)  # for when it is over, or its thread is to lead

    @property
    def is_over(self) -> bool:
        """Whether it was committed, or is not going to be."""
        return self.epoch is not None or self.error is not None

    def end(self, error: BaseException) -> None:
        """Do not commit it."""
        self.error = error


class DurableCommits:
    """Commits the transactions of all threads. The first thread that comes, or the first that waits, leads."""

    def __init__(self, coordinator: Coordinator, store: Store, on_commit: Callable[[Candidate, int], None]) -> None:
        """`on_commit` is called for each transaction with the bytes in the longest log; it must be quick."""
        self._coordinator, self._store, self._on_commit = coordinator, store, on_commit
        self._queue: deque[Candidate] = deque()
        self._queue_lock, self._has_leader = threading.Lock(), False
        self._sizes, self._seconds = deque([1, 1], maxlen=2), 0.0  # of the last groups; of the last request
        self._expected = 1  # the length of the queue that a leader waits for
        self._gathering: Candidate | None = None  # the leader that waits for it
        self.failure: IkebanaError | None = None
        """Why no transaction is accepted any more, if that is so."""

    def commit(self, candidate: Candidate) -> int:
        """Commit a transaction, and return its epoch; raises if it is not committed."""
        try:
            self._join(candidate)
            while not candidate.is_over:
                if not candidate.leads:
                    self._wait(candidate)
                elif self._gather(candidate):
                    self._lead(candidate)
        except BaseException as error:
            while not candidate.is_over:  # another thread is committing it
                if self._withdraw(candidate):
                    raise
                candidate.wakeup.wait(_POLL_SECONDS)
            self._resign(candidate)
            if not isinstance(error, TimeoutError):
                raise
        if candidate.error is not None:
            raise candidate.error
        assert candidate.epoch is not None
        return candidate.epoch

    def _join(self, candidate: Candidate) -> None:
        """Put a candidate into the queue; it leads if no other does, or if the leader has waited for it."""
        with defer_interrupts(), self._queue_lock:
            self._queue.append(candidate)
            if self._gathering is not None and len(self._queue) >= self._expected:
                self._gathering.leads, self._gathering = False, None
                candidate.leads = True
            else:
                candidate.leads, self._has_leader = not self._has_leader, True

    def _wait(self, candidate: Candidate) -> None:
        """Wait until a candidate is over, or its thread is to lead."""
        if not candidate.wakeup.wait(candidate.deadline.seconds_or_none()):
            raise candidate.deadline.timeout_error()

    def _withdraw(self, candidate: Candidate) -> bool:
        """Take a candidate out of the queue; return whether that was possible. If it was to lead, the next one is."""
        with defer_interrupts(), self._queue_lock:
            if candidate not in self._queue:
                return False
            self._queue.remove(candidate)
            if candidate.leads:
                self._gathering = None
                self._hand_over(candidate)
            return True

    def _lead(self, candidate: Candidate) -> None:
        """Commit the transactions of the queue until the candidate is over; then another thread leads."""
        with candidate.deadline.holding(self._coordinator.lock):
            while not candidate.is_over:
                self._commit_some()
        self._resign(candidate)

    def _resign(self, candidate: Candidate) -> None:
        """Let another thread lead, if this one does."""
        with defer_interrupts(), self._queue_lock:
            if candidate.leads:
                self._hand_over(candidate)

    def _gather(self, candidate: Candidate) -> bool:
        """Wait for other threads, if there were any in the last groups; return whether the candidate still leads."""
        with defer_interrupts(), self._queue_lock:
            self._expected = max(self._sizes)
            if len(self._queue) >= self._expected:
                return True
            self._gathering, candidate.wakeup = candidate, Wakeup()
        left, arrived = min(self._seconds, _LONGEST_WAIT), 0
        end = time.perf_counter() + left
        while self._gathering is candidate and len(self._queue) > arrived and left > 0:
            arrived = len(self._queue)
            candidate.wakeup.wait(min(_SHARE_OF_REQUEST * self._seconds, left))
            left = end - time.perf_counter()
        with defer_interrupts(), self._queue_lock:
            if candidate.leads:
                self._gathering = None
            return candidate.leads

    def _hand_over(self, candidate: Candidate) -> None:
        """Let the first candidate of the queue lead, if there is one; the lock of the queue is held."""
        candidate.leads = False
        self._has_leader = bool(self._queue)
        if self._queue:
            self._queue[0].leads = True
            self._queue[0].wakeup.set()

    # With the coordinator's lock.

    def _commit_some(self) -> None:
        """Prepare the transactions of the queue, and commit those that all workers accept."""
        group: list[Candidate] = []
        try:
            with defer_interrupts(), self._queue_lock:
                group += [self._queue.popleft() for _ in range(min(len(self._queue), MOST_TOGETHER))]
            self._sizes.append(len(group))
            started = time.perf_counter()
            self._commit_together(group)
            self._seconds = time.perf_counter() - started
        except Exception as error:
            for candidate in group:
                if not candidate.is_over:
                    candidate.end(error)
        finally:
            with defer_interrupts(), self._queue_lock:
                self._queue.extendleft(candidate for candidate in reversed(group) if not candidate.is_over)
                for candidate in group:
                    if candidate.is_over:
                        candidate.wakeup.set()

    def _commit_together(self, group: Sequence[Candidate]) -> None:
        candidates = [candidate for candidate in group if self._can_be_committed(candidate)]
        if not candidates:
            return
        epoch = self._coordinator.epoch
        prepared = [
            ToPrepare(
                candidate.transaction,
                candidate.parts,
                self._store.new_transaction(),
                epoch + at,
                candidate.workers,
                candidate.note,
            )
            for at, candidate in enumerate(candidates)
        ]
        try:
            answers = self._prepare(prepared, candidates)
            self._store.check_lease()
            with defer_interrupts():
                accepted = []
                for at, (candidate, attempt) in enumerate(zip(candidates, prepared, strict=True)):
                    verdicts = [verdict for answer in answers if (verdict := answer.verdicts[at]) is not None]
                    if self._is_accepted(candidate, verdicts):
                        accepted.append((candidate, attempt))
                self._apply(accepted, max(answer.log_bytes for answer in answers))
        except BaseException as error:
            self._abort([pair for pair in zip(candidates, prepared, strict=True) if not pair[0].is_over], error)

    def _can_be_committed(self, candidate: Candidate) -> bool:
        try:
            if self.failure is not None:
                raise self.failure
            candidate.check()
        except IkebanaError as error:
            candidate.end(error)
        return not candidate.is_over

    def _prepare(self, prepared: Sequence[ToPrepare], candidates: Sequence[Candidate]) -> list[PrepareVerdicts]:
        """The answers of all workers that have to log some of the transactions."""
        workers = {worker for attempt in prepared for worker in attempt.workers}
        soonest = min((candidate.deadline for candidate in candidates), key=Deadline.seconds_left)
        worker, cluster = workers.pop() if len(workers) == 1 else None, self._coordinator.cluster
        return self._coordinator.ask_once(Prepare(tuple(prepared)), worker, cluster, soonest)

    def _is_accepted(self, candidate: Candidate, verdicts: list[Verdict]) -> bool:
        """Whether to commit a transaction; otherwise it is rejected, or left for the next request."""
        error = problem_error(verdicts)
        if error is not None:
            candidate.end(error)
            return False
        return not any(verdict.conflicts for verdict in verdicts)

    def _apply(self, accepted: Sequence[tuple[Candidate, ToPrepare]], log_bytes: int) -> None:
        """Commit transactions; workers are told of all of them by one command."""
        if not accepted:
            return
        last_changes: dict[str, int] = {}
        for candidate, attempt in accepted:
            candidate.epoch = attempt.epoch
            last_changes |= dict.fromkeys(changed_tables(candidate.parts), attempt.epoch)
        self._coordinator.definitions.last_changes.update(last_changes)
        with suppress(IkebanaError):  # a worker has ended since: the transactions come back from the logs
            applied = [(candidate.transaction, attempt.epoch) for candidate, attempt in accepted]
            self._coordinator.apply(applied, tuple(last_changes))
        for candidate, _ in accepted:
            self._on_commit(candidate, log_bytes)

    def _abort(self, undecided: Sequence[tuple[Candidate, ToPrepare]], error: BaseException) -> None:
        """Abort transactions that were sent and not decided. Those whose own time is not over may be prepared again."""
        with defer_interrupts():
            try:
                self._store.abort_all((attempt.number, attempt.epoch) for _, attempt in undecided)
            except IkebanaError as failure:
                self.failure = StorageError(
                    "it is not known whether a transaction was committed",
                    detail=f"{error}; then the storage failed: {failure}",
                    hint="open the storage directory again, and look whether the transaction was applied",
                )
                error = self.failure
        if not isinstance(error, Exception):
            raise error  # an interrupt of this thread
        for candidate, _ in undecided:
            if not isinstance(error, TimeoutError):
                candidate.end(error)
            elif not candidate.deadline.seconds_left():
                candidate.end(candidate.deadline.timeout_error())
