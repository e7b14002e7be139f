"""A worker: one of W equal peers, owner of one shard of every arrangement. A state machine without I/O.

Commands and letters go in (`command`, `deliver`), letters for peers come out (`outbox`), and `step` does a
bounded amount of work. Whoever drives it carries the letters. Nothing here waits, sleeps or knows what time
it is, so every interleaving of workers can be produced by hand.

The dataflow that keeps an input's or a table's changes reads them directly; all others read its arrangement. A stream
is kept by nobody: every dataflow that reads it has an input of its own.

Requests are answered by `answer`, at once or, when that is `PENDING`, at a later try. What the driver is to know
unasked goes into `news`, in order.

Faults. Rows for which an expression or a function raises are errors of their dataflow, which goes on without them;
whoever reads is told (`Shard`). Any other exception inside a dataflow fails that dataflow, here and (by a letter) on
every worker, and those that import what it maintains; reading them raises. Others go on, and arrangements it had
imported are released.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

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
    Check,
    CloseInput,
    Command,
    Commit,
    CreateInput,
    CreateTable,
    DataflowFailed,
    DataflowMessage,
    Demand,
    DropTable,
    Failed,
    Hold,
    Inquire,
    Inquiry,
    Install,
    Keys,
    PeerMessage,
    Ping,
    Push,
    Read,
    ReadChanges,
    ReadErrors,
    Release,
    Reply,
    Request,
    Resume,
    Retire,
    Shard,
    Stage,
    Status,
    Subscribe,
    TableSpec,
    Unsubscribe,
    Wait,
    WaitAll,
)
from ikebana.runtime.subscribers import Subscriptions, changes_of, epochs_of
from ikebana.runtime.transactions import Staging
from ikebana.time import Antichain, Time
from ikebana.trace import Batch, Handle

PENDING: Any = object()
"""What `Worker.answer` returns while there is no answer yet."""


class Worker:
    """One of `workers` peers."""

    def __init__(self, index: int, workers: int, effort: str = "default", budget: Budget | None = None) -> None:
        self.index, self.workers, self._effort = index, workers, effort
        self._budget = budget or Budget()
        self.outbox: deque[tuple[int, PeerMessage]] = deque()
        self.news: deque[Any] = deque()  # for the driver
        self.flows: dict[str, Dataflow] = {}
        self._awake: dict[str, None] = {}  # in the order in which they were woken
        self.failures: dict[str, str] = {}
        self.epoch = 0
        self._by_plan: dict[str, Dataflow] = {}
        self._inputs: dict[str, dict[str, InputSource]] = {}  # of each input or table, by the dataflow that reads it
        self._fields: dict[str, Fields] = {}
        self._primary: dict[str, ir.Node] = {}
        self._tables: dict[str, TableSpec] = {}
        self._changed: dict[str, int] = {}  # the last epoch at which a table's rows here have changed
        self._staging = Staging()
        self._subscriptions = Subscriptions(self.news.append)
        self._asked: dict[int, Reply | None] = {}  # questions for the driver, by ticket, and what it answered
        self._holds: dict[int, _Held] = {}  # by number
        self._early: dict[str, list[PeerMessage]] = {}
        self._retired: set[str] = set()

    # What comes in.

    def command(self, command: Command) -> None:
        """Carry out a command of the driver."""
        match command:
            case CreateInput(name, fields):
                self._inputs[name], self._fields[name] = {}, fields
            case CloseInput(name):
                for each in self._inputs[name].values():
                    each.close()
            case Push(name, changes):
                self._push(name, changes)
            case Advance(epoch):
                self._advance(epoch)
            case Install(name, plan, memory):
                self._install(name, plan, memory)
            case Demand(name, epoch):
                if name in self.flows:
                    self.flows[name].demand(epoch)
            case Retire(name):
                self._retired.add(name)
                self._early.pop(name, None)
                self.failures.pop(name, None)
                self._remove(name)
            case Subscribe() | Resume() | Unsubscribe() | Hold() | Release() | Reply():
                self._obey_reader(command)
            case _:
                self._change_tables(command)

    def _change_tables(self, command: Command) -> None:
        match command:
            case CreateTable(table):
                self._inputs[table.name], self._fields[table.name] = {}, table.fields
                self._tables[table.name] = table
            case DropTable(name):
                for known in (self._inputs, self._fields, self._primary, self._tables, self._changed):
                    known.pop(name, None)
            case Stage(columns=columns):
                reason = self._budget.refusal(sum(column.nbytes for column in columns))
                if reason is None:
                    self._staging.stage(command)
                else:
                    self._staging.refuse(command, reason)
            case Commit(transaction, epoch, oldest):
                for name, changes in self._staging.end(transaction, oldest):
                    self._changed[name] = self.epoch
                    self._push(name, changes)
                self._advance(epoch)
            case Abort(transaction, oldest):
                self._staging.end(transaction, oldest)

    def _obey_reader(self, command: Command) -> None:
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
            case Release(number):
                if number in self._holds:
                    self._holds.pop(number).drop()
            case Reply(ticket):
                if ticket in self._asked:
                    self._asked[ticket] = command

    def _push(self, name: str, changes: Changes) -> None:
        for each in self._inputs[name].values():
            each.push(changes)

    def _advance(self, epoch: int) -> None:
        """Close the epochs before this one; those who read an input may go on."""
        self.epoch = epoch
        for inputs in self._inputs.values():
            for flow, each in inputs.items():
                each.advance(epoch)
                self._wake(flow)

    def deliver(self, letter: PeerMessage) -> None:
        """Take a letter from a peer."""
        name = letter.dataflow
        if name in self._retired or name in self.failures:
            return
        if isinstance(letter, Failed):
            self._fail(name, letter.reason, tell=False)
        elif name in self.flows:
            self.flows[name].deliver(letter)
        else:
            self._early.setdefault(name, []).append(letter)  # its install command is still on the way

    def step(self) -> bool:
        """Let every dataflow that can go on do so by one quantum; returns whether any did."""
        awake, self._awake = self._awake, {}
        for name in awake:
            flow = self.flows.get(name)
            if flow is None:
                continue
            lower, start = flow.lower, self._budget.started()
            try:
                if flow.step():
                    self._wake(name)
                self._look_at_memory(flow, self._budget.seconds_since(start))
            except Exception as error:  # a user's function, or bad data: it fails this dataflow alone
                self._fail(name, f"{type(error).__name__}: {error}", tell=True)
            if flow.lower != lower:
                self._subscriptions.on_sweep(name)
        return bool(awake)

    def _look_at_memory(self, flow: Dataflow, spent: float) -> None:
        """Raise if a dataflow uses too much; what grows is its doing, if it has worked for a while."""
        flow.unmeasured += spent
        if self._budget.is_due(flow.unmeasured):
            flow.unmeasured = 0.0
            flow.in_hand += self._budget.look()
            if all(flow.plan is not kept for kept in self._primary.values()):  # what keeps inputs and tables stays
                self._budget.check(max(0, flow.in_hand) + flow.kept_bytes, flow.memory)
            if not flow.is_sweeping:
                flow.in_hand, flow.kept_bytes = 0, flow.own_bytes

    def _wake(self, name: str) -> None:
        self._awake[name] = None

    # What readers ask.

    def answer(self, request: Request) -> Any:
        """The answer to a request, or `PENDING`; what cannot be answered raises an `IkebanaError`."""
        match request:
            case Ping(name):
                self._flow(name)  # raises if it has failed
                return None
            case Wait(name, epoch):
                return None if self.complete(name) >= epoch else PENDING
            case WaitAll(names, epoch):
                return None if all([self.complete(name) >= epoch for name in names]) else PENDING
            case Read(name, at, hold, wait, keys):
                if wait and self.complete(name) <= at[0]:
                    return PENDING
                rows = self.read(name, at, keys) if hold is None else _rows(self._held(name, hold).result, at, keys)
                return Shard(rows, self._errors(name, at[0], hold))
            case ReadErrors(name, epoch, hold):
                last = self.complete(name) - 1
                epoch = last if epoch is None else epoch
                return self._errors(name, epoch, hold) if epoch <= last else PENDING
            case ReadChanges():
                return self._changes(request) if self.complete(request.dataflow) > request.at else PENDING
            case Check():
                return self._check(request)
            case Inquire():
                return self._inquire(request)
            case Status():
                return [self._status(flow) for flow in self.flows.values()]
        raise DataflowError(
            f"worker {self.index} does not know the request {request!r}",
            hint="give a request of `ikebana.runtime.messages`; all processes must run the same version",
        )

    def _inquire(self, request: Inquire) -> Any:
        """Pass a question on to the driver, and its answer back."""
        ticket = request.ticket
        if ticket not in self._asked:
            self._asked[ticket] = None
            self.news.append(Inquiry(request.number, ticket, request.question))
        reply = self._asked[ticket]
        if reply is None:
            return PENDING
        del self._asked[ticket]
        if reply.error is not None:
            raise reply.error
        return reply.value

    def complete(self, name: str) -> int:
        """Epochs of the dataflow before this one are complete on this worker."""
        return self._flow(name).lower

    def read(self, name: str, at: Time, keys: Keys | None = None) -> pa.Table:
        """This worker's shard of a dataflow's result at a time: the last that is complete, or one that is held."""
        try:
            with self._flow(name).reader.clone() as handle:
                return _rows(handle, at, keys)
        except TimeError:
            held = self._hold_at(name, at)
            if held is None:
                raise
            return _rows(held.result, at, keys)

    def _errors(self, name: str, epoch: int, hold: int | None) -> Errors:
        """The errors of a dataflow, and of all that it imports, at an epoch that is complete."""
        held = self._hold_at(name, (epoch,)) if hold is None else self._held(name, hold)
        return errors_at(self._flow(name).error_readers if held is None else held.errors, epoch)

    def _hold_at(self, name: str, at: Time) -> _Held | None:
        """What keeps a dataflow's result readable at a time, if anything does."""
        held = (each for each in self._holds.values() if each.dataflow == name)
        return next((each for each in held if each.result.frontier.less_equal(at)), None)

    def _new_hold(self, name: str, epoch: int) -> _Held:
        """What can read a dataflow's result at an epoch, if anything that there is can."""
        flow = self.flows[name]
        result = flow.reader.clone()
        held = None if result.frontier.less_equal((epoch,)) else self._hold_at(name, (epoch,))
        if held is not None:
            result.drop()
            return held.clone()
        return _Held(name, result, [reader.clone() for reader in flow.error_readers])

    def _held(self, name: str, number: int) -> _Held:
        self._flow(name)  # raises if it has failed
        if number not in self._holds:
            raise TimeError(f"nothing is held of dataflow {name!r}", hint="read inside the block that holds it")
        return self._holds[number]

    def _changes(self, request: ReadChanges) -> Any:
        handle = self._held(request.dataflow, request.hold).result
        if not handle.frontier.less_equal((request.after,)):
            raise TimeError(
                f"cannot tell the changes of {request.dataflow!r} after epoch {request.after}",
                detail=f"epochs before {handle.frontier} are not held",
            )
        updates = epochs_of(handle.batches(), request.after + 1, request.at + 1)
        return changes_of(updates, request.after) if updates is not None else (None, None)

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
                upper=min(flow.lower, self.epoch),  # what never changes is complete for ever
            )

    def _check(self, check: Check) -> Any:
        """The verdict on a transaction, once the traces of its tables have all that was committed before.

        What was committed here is all there is in the rows that this worker owns, so it need not wait for others.
        """
        kept = [self._tables[name] for name, _ in check.parts if name in self._changed and name in self._tables]
        if any(self.complete(table.dataflow) <= self._changed[table.name] for table in kept if table.dataflow):
            return PENDING
        return self._staging.check(check, self._tables, self._batches, self.epoch)

    def _batches(self, table: TableSpec) -> list[Batch]:
        return self._flow(table.dataflow).reader.batches()

    # Dataflows.

    def _flow(self, name: str) -> Dataflow:
        if name in self.failures:
            raise DataflowError(
                f"dataflow {name!r} has failed",
                detail=self.failures[name],
                hint="retire it, mend the function or the data, and install it again",
            )
        if name not in self.flows:
            raise DataflowError(f"there is no dataflow {name!r}", hint="install it first")
        return self.flows[name]

    def _install(self, name: str, plan: ir.Node, memory: int | None) -> None:
        if name in self.failures:  # on another worker, which was faster
            return
        try:
            flow = Dataflow(
                name,
                plan,
                worker=self.index,
                workers=self.workers,
                send=self._send,
                find=lambda node: self._by_plan.get(node.digest),
                find_input=lambda node: self._find_input(name, plan, node),
                wake=lambda: self._wake(name),
                effort=self._effort,
                is_placed=any(table.dataflow == name for table in self._tables.values()),
                memory=memory,
            )
        except Exception as error:  # a plan that cannot be rendered fails alone
            self._fail(name, f"{type(error).__name__}: {error}", tell=True)
            return
        self.flows[name] = flow
        self._wake(name)
        self._by_plan.setdefault(plan.digest, flow)
        for letter in self._early.pop(name, []):
            self.deliver(letter)

    def _find_input(self, name: str, plan: ir.Node, node: ir.Source) -> InputSource | ir.Node:
        """The dataflow that keeps an input's changes reads them directly, all others through its arrangement."""
        if self._fields.get(node.name) != node.fields:
            raise DataflowError(
                f"there is no input or table {node.name!r} with these columns",
                detail="it was dropped, or belongs to another engine",
                hint="make the query again from tables that exist",
            )
        kept = self._primary.get(node.name)
        if kept is not None:
            return kept
        if node.name not in self._tables or self._tables[node.name].schema is not None:
            self._primary[node.name] = plan
        found = InputSource(node.name, self._fields[node.name])
        found.advance(self.epoch)
        self._inputs[node.name][name] = found
        return found

    def _send(self, peer: int, message: DataflowMessage) -> None:
        self.outbox.append((peer, message))

    def _fail(self, name: str, reason: str, *, tell: bool) -> None:
        """Fail a dataflow, and with it all that import what it maintains."""
        failed = self.flows.get(name)
        self.failures[name] = reason
        self.news.append(DataflowFailed(name))
        self._remove(name, f"it has failed: {reason}")
        if tell:
            for peer in range(self.workers):
                if peer != self.index:
                    self.outbox.append((peer, Failed(name, self.index, reason)))
        for flow in [flow for flow in self.flows.values() if failed in flow.imported]:
            if flow.name in self.flows:
                self._fail(flow.name, reason, tell=True)

    def _remove(self, name: str, why: str = "it was dropped") -> None:
        flow = self.flows.pop(name, None)
        if flow is not None:
            self._subscriptions.on_end(name, why)
            for number in [number for number, held in self._holds.items() if held.dataflow == name]:
                self._holds.pop(number).drop()
            flow.drop()
            for inputs in self._inputs.values():
                inputs.pop(name, None)
            if self._by_plan.get(flow.plan.digest) is flow:
                del self._by_plan[flow.plan.digest]


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """What keeps a dataflow's result, and its errors, readable from an epoch on."""

    dataflow: str
    result: Handle
    errors: list[ErrorReader]

    def clone(self) -> _Held:
        """The same, for another reader."""
        return _Held(self.dataflow, self.result.clone(), [reader.clone() for reader in self.errors])

    def advance(self, epoch: int) -> None:
        """Epochs before this one need not be readable any more."""
        if self.result.frontier.precedes(Antichain.of((epoch,))):
            self.result.advance((epoch,))
            for reader in self.errors:
                reader.forget(epoch)

    def drop(self) -> None:
        """Nothing need be readable any more."""
        self.result.drop()
        self.errors.clear()


def _rows(handle: Handle, at: Time, keys: Keys | None) -> pa.Table:
    """What a handle's trace has at a time, of all keys or of some."""
    return handle.read(at) if keys is None else handle.lookup(keys, at)
