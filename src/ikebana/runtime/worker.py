"""A worker: one of W equal peers, owner of one shard of every arrangement. A state machine without I/O.

Commands and peer messages go in (`command`, `deliver`), messages for peers come out (`outbox`), and `step` does a
bounded amount of work. The transport carries the messages. The worker itself never waits, sleeps or reads the clock
(except to measure memory now and then), so a test can produce every interleaving of workers.

Idle time. When nothing else is to be done, the transport may call `merge_some`, which moves up to `IDLE_ROWS` rows of a
trace: it merges batches and compacts history, so that memory is freed after a slow reader has left, even if the trace
does not change any more (`ikebana.trace.spine`). It looks at one dataflow in each call, and only at dataflows of which
a trace has grown, or has a reader that has moved or left, until they have no such work. So a worker comes to rest.

Inputs and tables. One dataflow arranges the changes of an input or a table, and reads them directly; all other
dataflows import its arrangement. A stream is not stored: every dataflow that reads it has its own source.

Requests. `answer` returns the answer, or `PENDING`: then the transport tries again later. What the driver must learn
without asking goes into `notifications`, in order.

Faults. If an expression or a function raises for a row, the row becomes an error of its dataflow, which continues
without it; readers receive the errors with the rows (`Shard`). Any other exception inside a dataflow fails the dataflow
on all workers, together with all dataflows that import its arrangement: reading them raises. Other dataflows continue,
and arrangements that the failed one had imported are released.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ikebana import kernels
from ikebana.errors import DataflowError, TimeError
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.row_errors import ErrorReader, Errors, errors_at
from ikebana.operators.sources import InputSource
from ikebana.plan import ir
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.memory_budget import Budget
from ikebana.runtime.messages import (
    Abort,
    Advance,
    ArrangementStatus,
    AskDriver,
    Check,
    CloseInput,
    Command,
    Commit,
    CreateInput,
    CreateTable,
    DataflowFailed,
    DataflowMessage,
    Demand,
    DriverAnswer,
    DriverQuestion,
    DropTable,
    Failed,
    Hold,
    Install,
    Keys,
    Lookup,
    PeerMessage,
    Ping,
    Push,
    Read,
    ReadChanges,
    ReadErrors,
    Release,
    Request,
    Resume,
    Retire,
    RowsOfKeys,
    Shard,
    Stage,
    Status,
    Subscribe,
    TableSpec,
    Unsubscribe,
    Wait,
    WaitAll,
)
from ikebana.runtime.subscribers import Subscriptions, epochs_and_rows, updates_between
from ikebana.runtime.transactions import OpenTransactions
from ikebana.runtime.workspaces import Workspaces
from ikebana.time import Antichain, Time
from ikebana.trace import Handle

MAX_RETIRED = 10_000
"""How many retired dataflows a worker remembers. A message of an older one would be kept, and never read."""

PENDING: Any = object()
"""What `Worker.answer` returns if a request cannot be answered yet."""

IDLE_ROWS = 1 << 15
"""How many rows are moved at a time in idle time: half a millisecond, or a few milliseconds for rows with strings."""


class Worker:
    """Worker `index` of `workers` peers."""

    def __init__(self, index: int, workers: int, effort: str = "default", budget: Budget | None = None) -> None:
        kernels.load()
        self.index, self.workers, self._effort = index, workers, effort
        self._budget, self._workspaces = budget or Budget(), Workspaces()
        self.outbox: deque[tuple[int, PeerMessage]] = deque()
        self.notifications: deque[Any] = deque()  # to the driver
        self.flows: dict[str, Dataflow] = {}
        self._awake: dict[str, None] = {}  # in the order in which they were woken
        self._unmerged: dict[str, None] = {}  # dataflows whose traces may have work for idle time
        self.failures: dict[str, str] = {}
        self.epoch = 0
        self._by_digest: dict[str, Dataflow] = {}
        self._inputs: dict[str, dict[str, InputSource]] = {}  # by input or table, and by the dataflow that reads it
        self._fields: dict[str, Fields] = {}
        self._primary: dict[str, ir.Node] = {}  # the plan that arranges an input's or a table's changes
        self._tables: dict[str, TableSpec] = {}
        self._last_change: dict[str, int] = {}  # the last epoch at which a table's rows changed on this worker
        self._transactions = OpenTransactions()
        self._subscriptions = Subscriptions(self.notifications.append)
        self._questions: dict[int, DriverAnswer | None] = {}  # of clients to the driver, by ticket, and its answers
        self._holds: dict[int, _Hold] = {}  # by number
        self._undelivered: dict[str, list[PeerMessage]] = {}  # of dataflows that are not installed yet
        self._retired: dict[str, None] = {}  # the last dataflows that were retired, oldest first

    # Commands and peer messages.

    def command(self, command: Command) -> None:
        """Carry out a command of the driver."""
        match command:
            case CreateInput(name, fields):
                self._inputs[name], self._fields[name] = {}, fields
            case CloseInput(name):
                for source in self._inputs[name].values():
                    source.close()
            case Push(name, changes):
                self._push(name, changes)
            case Advance(epoch):
                self._advance(epoch)
            case Install(name, plan, memory, owner):
                self._install(name, ir.with_owner(plan, owner) if owner else plan, memory)
            case Demand(name, epoch):
                if name in self.flows:
                    self.flows[name].demand(epoch)
            case Retire(name):
                self._retire(name)
            case Subscribe() | Resume() | Unsubscribe() | Hold() | Release() | DriverAnswer():
                self._serve_reader(command)
            case _:
                self._change_tables(command)

    def _change_tables(self, command: Command) -> None:
        match command:
            case CreateTable(table):
                self._inputs[table.name], self._fields[table.name] = {}, table.fields
                self._tables[table.name] = table
            case DropTable(name):
                for by_table in (self._inputs, self._fields, self._primary, self._tables, self._last_change):
                    by_table.pop(name, None)
            case Stage(columns=columns):
                reason = self._budget.rejection(sum(column.nbytes for column in columns))
                if reason is None:
                    self._transactions.stage(command)
                else:
                    self._transactions.refuse(command, reason)
            case Commit(transaction, epoch, oldest):
                for name, changes in self._transactions.end(transaction, oldest):
                    self._last_change[name] = self.epoch
                    self._push(name, changes)
                self._advance(epoch)
            case Abort(transaction, oldest):
                self._transactions.end(transaction, oldest)

    def _serve_reader(self, command: Command) -> None:
        match command:
            case Subscribe(number, name):
                try:
                    self._subscriptions.open(command, self._flow(name))
                except DataflowError as error:
                    self._subscriptions.refuse(number, str(error))
            case Resume():
                self._subscriptions.resume(command)
            case Unsubscribe(number):
                self._subscriptions.close(number)
            case Hold(number, name, at):
                if name in self.flows:
                    if number not in self._holds:
                        self._holds[number] = self._new_hold(name, at)
                    self._holds[number].advance(at)
                    self._unmerged[name] = None
            case Release(number):
                if number in self._holds:
                    hold = self._holds.pop(number)
                    hold.drop()
                    self._unmerged[hold.dataflow] = None
            case DriverAnswer(ticket):
                if ticket in self._questions:
                    self._questions[ticket] = command

    def _push(self, name: str, changes: Changes) -> None:
        for source in self._inputs[name].values():
            source.push(changes)

    def _advance(self, epoch: int) -> None:
        """Close the epochs before this one, and wake the dataflows that have changes, or have waited for that."""
        self.epoch = epoch
        for sources in self._inputs.values():
            for name, source in sources.items():
                if source.advance(epoch):
                    self._awake[name] = None

    def deliver(self, message: PeerMessage) -> None:
        """Take a message from a peer."""
        name = message.dataflow
        if name in self._retired or name in self.failures:
            return
        if isinstance(message, Failed):
            self._fail(name, message.reason, notify_peers=False)
        elif name in self.flows:
            self.flows[name].deliver(message)
        else:
            self._undelivered.setdefault(name, []).append(message)  # its install command is still on the way

    def step(self) -> bool:
        """Let every dataflow that is awake do one quantum of work. Return whether there was any."""
        awake, self._awake = self._awake, {}
        now = self._budget.now
        for name in awake:
            flow = self.flows.get(name)
            if flow is None:
                continue
            start = now()
            try:
                if flow.step():
                    self._awake[name] = None
                flow.unmeasured_seconds += now() - start
                if self._budget.is_measurement_due(flow.unmeasured_seconds):
                    self._check_memory(flow)
            except Exception as error:  # a user's function, or bad data: only this dataflow fails
                self._fail(name, f"{type(error).__name__}: {error}", notify_peers=True)
            if flow.lower != flow.reported:
                flow.reported = flow.lower
                self._subscriptions.on_sweep(name)
                self._has_moved(flow)
        return bool(awake)

    def merge_some(self) -> bool:
        """Use idle time for a piece of merging or compaction of one dataflow. Return whether there may be more."""
        if not self._unmerged:
            return False
        name = next(iter(self._unmerged))
        flow, has_work = self.flows.get(name), False
        with suppress(MemoryError):  # then there is no room for the result of a merge
            has_work = flow is not None and flow.merge_some(IDLE_ROWS)
        if not has_work:
            del self._unmerged[name]
        return bool(self._unmerged)

    def _has_moved(self, flow: Dataflow) -> None:
        """Note that a dataflow has changed its traces, or as a reader the traces that it imports."""
        for moved in (flow, *flow.imported):
            if moved.name in self.flows:
                self._unmerged[moved.name] = None

    def _check_memory(self, flow: Dataflow) -> None:
        """Raise if a dataflow uses too much memory. Measured only after it has worked for a while."""
        flow.unmeasured_seconds = 0.0
        flow.grown_bytes += self._budget.measure_growth()
        if all(flow.plan is not plan for plan in self._primary.values()):  # inputs and tables never fail
            self._budget.check(max(0, flow.grown_bytes) + flow.arranged_bytes, flow.memory)
        if not flow.is_sweeping:
            flow.grown_bytes, flow.arranged_bytes = 0, flow.own_bytes

    def _wake(self, name: str) -> None:
        self._awake[name] = None

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
            case Read(name, at, hold, wait, keys, limit):
                if wait and self.complete(name) <= at[0]:
                    return PENDING
                rows = self.read(name, at, keys) if hold is None else _rows(self._hold(name, hold).result, at, keys)
                errors = self._errors(name, at[0], hold)
                return Shard(rows, errors) if limit is None else Shard(rows.slice(0, limit), errors, _total(rows))
            case Lookup():
                return self._lookup(request)
            case ReadErrors(name, epoch, hold):
                last = self.complete(name) - 1
                epoch = last if epoch is None else epoch
                return self._errors(name, epoch, hold) if epoch <= last else PENDING
            case ReadChanges():
                return self._changes(request) if self.complete(request.dataflow) > request.at else PENDING
            case Check():
                return self._check(request)
            case AskDriver():
                return self._inquire(request)
            case Status():
                return [self._status(flow) for flow in self.flows.values()]
        raise DataflowError(
            f"worker {self.index} does not know the request {request!r}",
            hint="send a request of `ikebana.runtime.messages`; all processes must run the same version of ikebana",
        )

    def _inquire(self, request: AskDriver) -> Any:
        """Pass a question on to the driver; once the driver has answered, return its answer."""
        ticket = request.ticket
        if ticket not in self._questions:
            self._questions[ticket] = None
            self.notifications.append(DriverQuestion(request.number, ticket, request.question))
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
        if not request.exact:
            epoch = max(epoch, min(flow.lower, self.epoch) - 1)  # a constant is complete at all epochs
        rows = flow.find(request.keys) if epoch == flow.lower - 1 else None
        if rows is None:
            rows = self.read(name, (epoch,), request.keys)
        return RowsOfKeys(epoch, rows, self._errors(name, epoch, None))

    def complete(self, name: str) -> int:
        """The epoch before which all epochs of a dataflow are complete on this worker."""
        return self._flow(name).lower

    def read(self, name: str, at: Time, keys: Keys | None = None) -> pa.Table:
        """This worker's shard of a dataflow's result at the last complete time, or at a time that is held."""
        try:
            with self._flow(name).reader.clone() as handle:
                return _rows(handle, at, keys)
        except TimeError:
            hold = self._hold_at(name, at)
            if hold is None:
                raise
            return _rows(hold.result, at, keys)

    def _errors(self, name: str, epoch: int, number: int | None) -> Errors:
        """The errors of a dataflow, and of all dataflows that it imports, at a complete epoch."""
        hold = self._hold_at(name, (epoch,)) if number is None else self._hold(name, number)
        return errors_at(self._flow(name).error_readers if hold is None else hold.errors, epoch)

    def _hold_at(self, name: str, at: Time) -> _Hold | None:
        """A hold that keeps a dataflow's result readable at a time, if there is one."""
        holds = (hold for hold in self._holds.values() if hold.dataflow == name)
        return next((hold for hold in holds if hold.result.frontier.less_equal(at)), None)

    def _new_hold(self, name: str, epoch: int) -> _Hold:
        """A new hold that can read a dataflow's result at an epoch, if the dataflow or another hold still can."""
        flow = self.flows[name]
        result = flow.reader.clone()
        earlier = None if result.frontier.less_equal((epoch,)) else self._hold_at(name, (epoch,))
        if earlier is not None:
            result.drop()
            return earlier.clone()
        return _Hold(name, result, [reader.clone() for reader in flow.error_readers])

    def _hold(self, name: str, number: int) -> _Hold:
        self._flow(name)  # raises if it has failed
        if number not in self._holds:
            raise TimeError(
                f"no epoch of dataflow {name!r} is held", hint="read inside the `with` block that holds the epoch"
            )
        return self._holds[number]

    def _changes(self, request: ReadChanges) -> Any:
        handle = self._hold(request.dataflow, request.hold).result
        if not handle.frontier.less_equal((request.after,)):
            raise TimeError(
                f"cannot read the changes of {request.dataflow!r} after epoch {request.after}",
                detail=f"epochs before {handle.frontier} are not held",
            )
        updates = updates_between(handle.batches(), request.after + 1, request.at + 1)
        return epochs_and_rows(updates, request.after) if updates is not None else (None, None)

    def _status(self, flow: Dataflow) -> ArrangementStatus:
        with flow.reader.clone() as handle:
            batches = handle.batches()
            since = [time[0] for batch in batches for time in batch.description.since]
            return ArrangementStatus(
                dataflow=flow.name,
                worker=self.index,
                key=tuple(field.name for field in handle.schema.key.fields),
                columns=tuple(handle.schema.names),
                rows=sum(map(len, batches)),
                bytes=handle.nbytes,
                inner_bytes=flow.inner_bytes,
                batches=len(batches),
                readers=handle.readers - 1,
                since=min(since, default=0),
                upper=min(flow.lower, self.epoch),  # a constant is complete at all epochs
                programs_run=flow.programs_run,
                visits_run=flow.visits_run,
            )

    def _check(self, check: Check) -> Any:
        """The verdict on a transaction, once the traces of its tables contain all changes committed before.

        Only this worker changes the rows that it owns, so it does not have to wait for other workers.
        """
        tables = [self._tables[name] for name, _ in check.parts if name in self._last_change and name in self._tables]
        if any(self.complete(table.dataflow) <= self._last_change[table.name] for table in tables if table.dataflow):
            return PENDING
        return self._transactions.check(check, self._tables, lambda table: self._flow(table.dataflow), self.epoch)

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
                find_input=lambda node: self._find_input(name, plan, node),
                wake=lambda: self._wake(name),
                workspaces=self._workspaces,
                effort=self._effort,
                is_placed=any(table.dataflow == name for table in self._tables.values()),
                memory=memory,
                closed=self.epoch,
            )
        except Exception as error:  # a plan that cannot be rendered: only this dataflow fails
            self._fail(name, f"{type(error).__name__}: {error}", notify_peers=True)
            return
        self.flows[name] = flow
        self._wake(name)
        self._by_digest.setdefault(plan.digest, flow)
        for message in self._undelivered.pop(name, []):
            self.deliver(message)

    def _find_input(self, name: str, plan: ir.Node, node: ir.Source) -> InputSource | ir.Node:
        """The source of an input's changes, for the dataflow that arranges them; for others, the plan to import."""
        if self._fields.get(node.name) != node.fields:
            raise DataflowError(
                f"there is no input or table {node.name!r} with these columns",
                detail="it was dropped, or belongs to another engine",
                hint="create the query again, from tables that exist",
            )
        primary = self._primary.get(node.name)
        if primary is not None:
            return primary
        if node.name not in self._tables or self._tables[node.name].schema is not None:
            self._primary[node.name] = plan
        source = InputSource(node.name, self._fields[node.name])
        source.advance(self.epoch)
        self._inputs[node.name][name] = source
        return source

    def _retire(self, name: str) -> None:
        """Drop a dataflow. Messages of peers that have not dropped it yet are ignored."""
        self._retired[name] = None
        if len(self._retired) > MAX_RETIRED:
            del self._retired[next(iter(self._retired))]
        self._undelivered.pop(name, None)
        self.failures.pop(name, None)
        self._remove(name)

    def _send(self, peer: int, message: DataflowMessage) -> None:
        self.outbox.append((peer, message))

    def _fail(self, name: str, reason: str, *, notify_peers: bool) -> None:
        """Fail a dataflow, and with it all dataflows that import its arrangement."""
        failed = self.flows.get(name)
        self.failures[name] = reason
        self.notifications.append(DataflowFailed(name))
        self._remove(name, f"it has failed: {reason}")
        if notify_peers:
            for peer in range(self.workers):
                if peer != self.index:
                    self.outbox.append((peer, Failed(name, self.index, reason)))
        for flow in [flow for flow in self.flows.values() if failed in flow.imported]:
            if flow.name in self.flows:
                self._fail(flow.name, reason, notify_peers=True)

    def _remove(self, name: str, why: str = "it was dropped") -> None:
        for sources in self._inputs.values():
            sources.pop(name, None)
        flow = self.flows.pop(name, None)
        if flow is not None:
            self._subscriptions.on_end(name, why)
            for number in [number for number, hold in self._holds.items() if hold.dataflow == name]:
                self._holds.pop(number).drop()
            flow.drop()
            self._unmerged.pop(name, None)
            self._has_moved(flow)
            if self._by_digest.get(flow.plan.digest) is flow:
                del self._by_digest[flow.plan.digest]


@dataclass(frozen=True, slots=True, eq=False)
class _Hold:
    """Keeps a dataflow's result and its errors readable from an epoch on."""

    dataflow: str
    result: Handle
    errors: list[ErrorReader]

    def clone(self) -> _Hold:
        """A second hold of the same epochs."""
        return _Hold(self.dataflow, self.result.clone(), [reader.clone() for reader in self.errors])

    def advance(self, epoch: int) -> None:
        """Release the epochs before this one."""
        if self.result.frontier.precedes(Antichain.of((epoch,))):
            self.result.advance((epoch,))
            for reader in self.errors:
                reader.forget(epoch)

    def drop(self) -> None:
        """Release all epochs."""
        self.result.drop()
        self.errors.clear()


def _rows(handle: Handle, at: Time, keys: Keys | None) -> pa.Table:
    """The rows of a handle's trace at a time, of all keys or of the given ones."""
    return handle.read(at) if keys is None else handle.lookup(keys, at)


def _total(rows: pa.Table) -> int:
    """The sum of all multiplicities; 0 if rows have several diffs each, which are not multiplicities."""
    return int(rows["diff"].to_numpy().sum()) if rows.schema.names[-1] == "diff" else 0
