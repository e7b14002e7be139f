"""A worker: one of W equal peers, owner of one shard of every arrangement. A state machine without I/O.

Commands and peer messages go in (`command`, `deliver`), messages for peers come out (`outbox`), and `step` does a
bounded amount of work. The transport carries the messages. The worker itself never waits, sleeps or reads the clock
(except to measure memory now and then), so a test can produce every interleaving of workers.

The parts of a worker: its inputs and tables (`ikebana.runtime.inputs`), the dataflows themselves
(`ikebana.runtime.dataflow`), which of them work next, and what is done in idle time (`ikebana.runtime.scheduling`),
reading their results (`ikebana.runtime.results`), following them (`ikebana.runtime.subscribers`), and durable tables
(`ikebana.runtime.durable_tables`).

Requests. `answer` returns the answer, or `PENDING`: then the transport tries again later. What the driver must learn
without asking goes into `notifications`, in order.

Faults. If an expression or a function raises for a row, the row becomes an error of its dataflow, which continues
without it; readers receive the errors with the rows (`Shard`). Any other exception inside a dataflow fails the dataflow
on all workers, together with all dataflows that import its arrangement: reading them raises. Other dataflows continue,
and arrangements that the failed one had imported are released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ikebana import kernels
from ikebana.encoding.spill_files import SpillFiles
from ikebana.errors import DataflowError, TimeError
from ikebana.operators.row_errors import errors_at
from ikebana.plan import ir
from ikebana.runtime import joint_sweeps
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.durability import Durability
from ikebana.runtime.durable_tables import DurableTables
from ikebana.runtime.holds import history_size
from ikebana.runtime.inputs import Inputs
from ikebana.runtime.joint_sweeps import JointSweeps
from ikebana.runtime.memory_budget import Budget, array_bytes
from ikebana.runtime.messages import (
    ACCEPTED,
    Abort,
    Advance,
    AskDriver,
    BeginSnapshot,
    Check,
    CheckAndCommit,
    CloseInput,
    Command,
    Commit,
    CopyRows,
    CountKeys,
    CreateInput,
    CreateTable,
    DataflowEvent,
    DataflowFailed,
    DataflowMessage,
    Demand,
    DriverAnswer,
    DriverQuestion,
    DropTable,
    Fail,
    Failed,
    HistorySize,
    Hold,
    Install,
    JointMessage,
    KeepHistory,
    Keys,
    Lookup,
    OpenStorage,
    PeerMessage,
    Ping,
    Prepare,
    Push,
    Read,
    ReadChanges,
    ReadErrors,
    Release,
    ReplaceTable,
    Request,
    Restore,
    Resume,
    Retire,
    SnapshotStatus,
    Stage,
    Status,
    StorageRequest,
    Subscribe,
    TrimStorage,
    Unsubscribe,
    Wait,
    WaitAll,
)
from ikebana.runtime.results import Results, distinct_keys, status_of
from ikebana.runtime.scheduling import Scheduler
from ikebana.runtime.staging import check_stage
from ikebana.runtime.subscribers import Subscriptions
from ikebana.runtime.transactions import OpenTransactions
from ikebana.runtime.workspaces import Workspaces
from ikebana.time import Time

MAX_RETIRED = 10_000
"""How many retired dataflows a worker remembers. A message of an older one would be kept, and never read."""

PENDING: Any = object()
"""What `Worker.answer` returns if a request cannot be answered yet."""

SLOW_SECONDS = 10.0
"""An epoch that takes a dataflow more seconds of work than this on one worker is reported to the driver."""


class Worker:
    """Worker `index` of `workers` peers."""

    def __init__(
        self,
        index: int,
        workers: int,
        effort: str = "default",
        budget: Budget | None = None,
        open_storage: Callable[[str, int, int, int], Durability] = Durability.open,
        spill: SpillFiles | None = None,
    ) -> None:
        """`open_storage` opens a worker's shard: of a place, an incarnation, a worker and the number of workers.

        `spill` is where large batches are; without it, all batches are in memory.
        """
        kernels.load()
        self._open_storage, self._spill = open_storage, spill
        self.index, self.workers, self._effort = index, workers, effort
        self._workspaces = Workspaces(index, workers)
        self.outbox: deque[tuple[int, PeerMessage]] = deque()
        self.notifications: deque[Any] = deque()  # to the driver
        self.flows: dict[str, Dataflow] = {}
        joint: JointSweeps | None = None
        if workers > 1 and joint_sweeps.ENABLED:
            joint = JointSweeps(index, workers, self.flows, self._workspaces, self._send, self._fail_with)
        self._joint = joint
        self.failures: dict[str, str] = {}
        self.epoch = 0
        self._by_digest: dict[str, Dataflow] = {}
        self._inputs, self._results = Inputs(), Results(self._flow)
        self.scheduler = Scheduler(
            self.flows,
            joint,
            budget or Budget(),
            may_fail=lambda flow: not self._inputs.is_primary(flow.plan),  # inputs and tables never fail
            report=self._report,
            fail=self._fail_with,
        )
        self._transactions = OpenTransactions()
        self._durable = DurableTables(index, self._inputs, self._transactions, self._flow)
        self._subscriptions = Subscriptions(self.notifications.append)
        self._questions: dict[int, DriverAnswer | None] = {}  # of clients to the driver, by ticket, and its answers
        self._kept: int | None = None  # the epoch from which on all dataflows keep their results, if they do
        self._undelivered: dict[str, list[PeerMessage]] = {}  # of dataflows that are not installed yet
        self._retired: dict[str, None] = {}  # the last dataflows that were retired, oldest first

    # Commands and peer messages.

    def command(self, command: Command) -> None:
        """Carry out a command of the driver."""
        match command:
            case CreateInput(name, fields, dataflow):
                self._inputs.create(name, fields, dataflow)
            case CloseInput(name):
                for reader in self._inputs.close(name):
                    self.scheduler.note(self.flows[reader])
            case Push(name, changes):
                self._inputs.push(name, changes)
            case Advance(epoch):
                self._advance(epoch)
            case Install(name, plan, memory, owner):
                self._install(name, ir.with_owner(plan, owner) if owner else plan, memory)
            case Demand(name, epoch):
                if name in self.flows:
                    self.flows[name].demand(epoch)
            case Fail(name, reason):
                self._fail(name, reason, notify_peers=False)
            case Retire(name):
                self._retire(name)
            case Subscribe() | Resume() | Unsubscribe() | Hold() | Release() | DriverAnswer():
                self._serve_reader(command)
            case _:
                self._change_tables(command)

    def _change_tables(self, command: Command) -> None:
        match command:
            case CreateTable(table):
                self._inputs.create_table(table)
            case ReplaceTable(table):
                self._inputs.replace_table(table)
            case CopyRows(name, source, values):
                if self.epoch:  # else no transaction was committed yet
                    rows = self.read(source, (self.epoch - 1,))
                    self._inputs.push_copied(self._inputs.tables[name], rows, values, self.epoch)
                    self._durable.begin_history(self._inputs.tables[name], self.epoch)
            case DropTable(name):
                self._inputs.drop_table(name)
            case Stage(columns=columns):
                reason = self.scheduler.budget.rejection(array_bytes(columns))
                if reason is not None:
                    self._transactions.refuse(command, reason)
                elif self._transactions.stage(command):
                    self._durable.stage(command)
            case Commit(transactions, oldest, changed):
                for transaction, epoch in transactions:
                    for name, changes in self._durable.end(transaction):
                        self._inputs.push_to_table(name, changes, epoch)
                self._durable.forget(oldest)
                self._advance(transactions[-1][1] + 1)
                if self._joint is not None:
                    names = [dataflow for table in changed for dataflow in self._inputs.readers(table)]
                    self._joint.expect([self.flows[name] for name in names if name in self.flows])
            case Abort(transaction, oldest):
                self._durable.end(transaction)
                self._durable.forget(oldest)
            case BeginSnapshot(epoch):
                self._durable.begin_snapshot(epoch)
            case KeepHistory(kept):
                self._keep_history(kept)

    def stage_checked(self, stage: Stage) -> None:
        """Stage rows of a client, after checking that they fit the table: a client is not trusted to have done so."""
        table = self._inputs.tables.get(stage.table)
        if table is None:
            raise DataflowError(f"there is no table {stage.table!r}", hint="it was dropped during the transaction")
        check_stage(table, stage, self.index, self.workers)
        self.command(stage)

    def _serve_reader(self, command: Command) -> None:
        match command:
            case Subscribe(number, name):
                try:
                    flow, past = self._flow(name), self._results.past(command) if command.past else None
                    self._subscriptions.open(command, flow, past)
                except (DataflowError, TimeError) as error:
                    self._subscriptions.refuse(number, str(error))
            case Resume():
                self._subscriptions.resume(command)
            case Unsubscribe(number):
                self._subscriptions.close(number)
            case Hold(number, name, at):
                if name in self.flows:
                    self._results.hold(number, self.flows[name], at)
                    self.scheduler.has_other_readers(name)
            case Release(number):
                released = self._results.release(number)
                if released is not None:
                    self.scheduler.has_other_readers(released)
            case DriverAnswer(ticket):
                if ticket in self._questions:
                    self._questions[ticket] = command

    def _advance(self, epoch: int) -> None:
        """Close the epochs before this one, and wake the dataflows that have changes, or have waited for that."""
        self.epoch = epoch
        for name in self._inputs.advance(epoch):
            self.scheduler.wake(name)
        if self.workers > 1:
            self._advance_followed(epoch)

    def _advance_followed(self, epoch: int) -> None:
        """Let dataflows with subscribers that need no other workers get as far as those on workers with changes.

        Such a dataflow would do nothing without changes of its own, and subscribers wait for all workers.
        """
        for name in self._subscriptions.followed():
            flow = self.flows.get(name)
            if flow is not None and flow.is_local:
                flow.demand(epoch)

    def deliver(self, message: PeerMessage) -> None:
        """Take a message from a peer."""
        if isinstance(message, JointMessage):
            assert self._joint is not None
            self._joint.deliver(message)
            return
        name = message.dataflow
        if name in self._retired or name in self.failures:
            return
        if isinstance(message, Failed):
            self._fail(name, message.reason, notify_peers=False)
        elif name in self.flows:
            self.flows[name].deliver(message)
            self.scheduler.note(self.flows[name])
        else:
            self._undelivered.setdefault(name, []).append(message)  # its install command is still on the way

    def step(self) -> bool:
        """Let every dataflow that is awake do one quantum of work. Return whether there was any."""
        return self.scheduler.step(self.epoch)

    def _report(self, flow: Dataflow) -> None:
        """Tell the driver and subscribers how far a dataflow has got."""
        if flow.lower != flow.reported:
            flow.reported = flow.lower
            self._notify_events(flow)
            self._subscriptions.on_sweep(flow.name)
            self.scheduler.has_moved(flow)

    def _notify_events(self, flow: Dataflow) -> None:
        """Tell the driver if a dataflow has got errors or lost them, or if its last epoch was slow."""
        is_logged = any([reader.log.epochs for reader in flow.error_readers])
        has_errors = is_logged and bool(errors_at(flow.error_readers, flow.lower - 1))
        if has_errors != flow.has_errors:
            flow.has_errors = has_errors
            self.notifications.append(DataflowEvent(flow.name, "errors", flow.lower))
        if flow.busy_seconds > SLOW_SECONDS and flow.sweeps > 1:
            self.notifications.append(DataflowEvent(flow.name, "slow", flow.lower, flow.busy_seconds))
        flow.busy_seconds = 0.0

    def merge_some(self) -> bool:
        """Use idle time for a piece of merging or compaction of one dataflow. Return whether there may be more."""
        return self.scheduler.merge_some()

    # Requests.

    def answer(self, request: Request) -> Any:
        """Return the answer to a request, or `PENDING`. Raises an `IkebanaError` if there can be no answer."""
        match request:
            case Ping(name):
                self._flow(name)  # raises if it has failed
                return None
            case Wait(name, epoch):
                return None if self.complete(name) >= epoch else PENDING
            case WaitAll(names, epoch):
                return None if all([self.complete(name) >= epoch for name in names]) else PENDING
            case Read(name, at, wait=wait):
                return PENDING if wait and self.complete(name) <= at[0] else self._results.answer(request)
            case Lookup():
                return self._lookup(request)
            case ReadErrors(name, epoch, hold):
                last = self.complete(name) - 1
                epoch = last if epoch is None else epoch
                return self._results.errors(name, epoch, hold) if epoch <= last else PENDING
            case ReadChanges():
                return self._results.changes(request) if self.complete(request.dataflow) > request.at else PENDING
            case Check():
                return self._check(request)
            case CheckAndCommit(check, commit):
                verdict = self._check(check)
                if verdict == ACCEPTED:
                    self.command(commit)
                return verdict
            case AskDriver():
                return self._inquire(request)
            case HistorySize(name, after):
                return history_size(self._flow(name), after)
            case CountKeys(name):
                return distinct_keys(self._flow(name).batches())
            case Status():
                return [status_of(flow, self.index, self.epoch) for flow in self.flows.values()]
            case OpenStorage(place, incarnation):
                self._durable.open(self._open_storage(place, incarnation, self.index, self.workers))
                return None
            case Prepare() | Restore() | SnapshotStatus() | TrimStorage():
                return self._use_storage(request)
        raise DataflowError(
            f"worker {self.index} does not know the request {request!r}",
            hint="send a request of `ikebana.runtime.messages`; all processes must run the same version of ikebana",
        )

    def _inquire(self, request: AskDriver) -> Any:
        """Pass a question on to the driver; once the driver has answered, return its answer."""
        ticket = request.ticket
        if ticket not in self._questions:
            self._questions[ticket] = None
            self.notifications.append(DriverQuestion(request.number, ticket, request.question, request.client))
        reply = self._questions[ticket]
        if reply is None:
            return PENDING
        del self._questions[ticket]
        if reply.error is not None:
            raise reply.error
        return reply.value

    def _lookup(self, request: Lookup) -> Any:
        """The rows of some keys, once the epoch is complete; until then, all workers are asked to complete it."""
        name, epoch = request.dataflow, request.epoch
        flow = self._flow(name)
        if flow.lower <= epoch:
            flow.demand(epoch + 1)
            return PENDING
        return self._results.look_up(request, self.epoch)

    def complete(self, name: str) -> int:
        """The epoch before which all epochs of a dataflow are complete on this worker."""
        return self._flow(name).lower

    def read(self, name: str, at: Time, keys: Keys | None = None) -> pa.Table:
        """This worker's shard of a dataflow's result at the last complete time, or at a time that is held."""
        return self._results.read(name, at, keys)

    def _check(self, check: Check) -> Any:
        """The verdict on a transaction, once the traces of its tables contain all changes committed before."""
        return self._durable.check(check, self.epoch) if self._durable.can_check(check) else PENDING

    def _use_storage(self, request: StorageRequest) -> Any:
        match request:
            case Prepare():
                prepared = self._durable.prepare(request)
                return PENDING if prepared is None else prepared
            case Restore():
                return self._durable.restore(
                    request, self.epoch, self._kept, self._spill, lambda plan: self._by_digest[plan.digest]
                )
            case SnapshotStatus(epoch):
                return self._durable.write_snapshot(epoch, self._has_completed)
            case TrimStorage(covered):
                return self._durable.storage.trim(covered)

    def _has_completed(self, name: str, epoch: int) -> bool:
        """Whether a dataflow has completed an epoch, if it still exists."""
        return name not in self.flows or self.flows[name].lower > epoch

    def _keep_history(self, epoch: int | None) -> None:
        self._kept = epoch
        for flow in self.flows.values():
            flow.keep_history(epoch)
            self.scheduler.has_other_readers(flow.name)

    def close(self) -> None:
        """Release the files of the worker's shard."""
        self._durable.close()

    # Dataflows.

    def _flow(self, name: str) -> Dataflow:
        if name in self.failures:
            raise DataflowError(
                f"dataflow {name!r} has failed",
                detail=self.failures[name],
                hint="drop it, fix the function or the data, and create it again",
            )
        if name not in self.flows:
            raise DataflowError(f"there is no dataflow {name!r}", hint="install it first")
        return self.flows[name]

    def _install(self, name: str, plan: ir.Node, memory: int | None) -> None:
        if name in self.failures:  # it has failed on another worker already
            return
        try:
            flow = Dataflow(
                name,
                plan,
                worker=self.index,
                workers=self.workers,
                send=self._send,
                find=lambda node: self._by_digest.get(node.digest),
                find_input=lambda node: self._inputs.source(name, plan, node, self.epoch),
                wake=lambda: self.scheduler.wake(name),
                workspaces=self._workspaces,
                effort=self._effort,
                spill=self._spill,
                is_placed=self._inputs.has_rows_of_one(name),
                memory=memory,
                closed=self.epoch,
                kept=self._kept,
            )
        except Exception as error:  # a plan that cannot be rendered: only this dataflow fails
            self._fail(name, f"{type(error).__name__}: {error}", notify_peers=True)
            return
        self.flows[name] = flow
        self.scheduler.add(flow)
        self._by_digest.setdefault(plan.digest, flow)
        for message in self._undelivered.pop(name, []):
            self.deliver(message)

    def _retire(self, name: str) -> None:
        """Drop a dataflow. Messages of peers that have not dropped it yet are ignored."""
        self._retired[name] = None
        if len(self._retired) > MAX_RETIRED:
            del self._retired[next(iter(self._retired))]
        self._undelivered.pop(name, None)
        self.failures.pop(name, None)
        self._remove(name)

    def _send(self, peer: int, message: DataflowMessage | JointMessage) -> None:
        self.outbox.append((peer, message))

    def _fail_with(self, flow: Dataflow, error: Exception) -> None:
        """Fail a dataflow in which an exception was raised, if it has not failed before."""
        if self.flows.get(flow.name) is flow:
            self._fail(flow.name, f"{type(error).__name__}: {error}", notify_peers=True)

    def _fail(self, name: str, reason: str, *, notify_peers: bool) -> None:
        """Fail a dataflow, and with it all dataflows that import its arrangement."""
        failed = self.flows.get(name)
        self.failures[name] = reason
        self.notifications.append(DataflowFailed(name))
        self.notifications.append(DataflowEvent(name, "failed"))
        self._remove(name, f"it has failed: {reason}")
        if notify_peers:
            for peer in range(self.workers):
                if peer != self.index:
                    self.outbox.append((peer, Failed(name, self.index, reason)))
        for flow in [flow for flow in self.flows.values() if failed in flow.imported]:
            if flow.name in self.flows:
                self._fail(flow.name, reason, notify_peers=True)

    def _remove(self, name: str, why: str = "it was dropped") -> None:
        self._inputs.forget(name)
        flow = self.flows.pop(name, None)
        if flow is not None:
            self._subscriptions.on_end(name, why)
            self._results.release_all(name)
            flow.drop()
            self.scheduler.forget(flow)
            if self._by_digest.get(flow.plan.digest) is flow:
                del self._by_digest[flow.plan.digest]
