"""A Spark data source: tables and views of a session as batch DataFrames, and as streams of changes.

    spark.read.format("ikebana").load("late orders")              # the answer as of now
    spark.read.format("ikebana").option("epoch", 12).load(...)    # at an epoch that is still held
    spark.readStream.format("ikebana").option("changes", True).load("late orders")   # with columns `epoch` and `diff`

A task for each worker reads that worker's shard directly. Which epoch is read is decided by the driver, which a task
asks through a worker (`Inquire`), once for each action on a DataFrame: the first task that asks gets the last closed
epoch, and so do all other tasks of the same action, whichever tables and views they read, however late they start or
often they are repeated. The driver holds that epoch on all workers until the action has ended, in whichever way, which
it sees within `LOOK` seconds (`ikebana.spark.executions`). The next action on the same DataFrame is another question,
and reads what there is by then, as it would from a file or a database; whoever wants several actions to see the same
holds an epoch and reads at that.

Where Spark does not say to which action a task belongs (RDDs, `toLocalIterator`), all tasks that read a table or view
for one DataFrame see one epoch, which is held until nobody has asked for it for `LEASE` seconds. What a stream holds is
let go when it has not asked for anything for `STREAM_LEASE` seconds.

A stream starts with the answer as it is, as rows of the epoch at which it starts. Each micro-batch has the changes of
the epochs that were closed when it was planned; what Spark has committed is let go. Without the option `changes` it has
rows alone, which is right for answers that only grow: a row that goes away is refused. A stream that is started again
from a checkpoint goes on only where nothing is lost in between.

Planning. A DataFrame that shows the present says so in the metadata of its columns: of which session and of which
table or view it is (`TABLE`, `SESSION`), and which one of those that have had the name (`IDENTITY`). That is how it is
recognised when a view is made of it. One of a table that was dropped is refused, whatever has its name now.

Multiplicities. In a batch a row comes as often as it counts; a negative count is refused.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ikebana.cluster.client import Client, ClientCredentials
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.views import plain_rows
from ikebana.errors import DataflowError, IkebanaError, SchemaError, TimeError
from ikebana.operators.changes import Fields
from ikebana.operators.row_errors import raise_present
from ikebana.runtime.messages import Demand, Hold, Inquire, Inquiry, Read, ReadChanges, ReadErrors, Release, Reply, Wait
from ikebana.spark.executions import Executions
from ikebana.spark.types import arrow_schema, spark_schema
from ikebana.sql.planned import IDENTITY, TABLE

LEASE = 600.0
"""For so many seconds an epoch is held for tasks of which it is not known whether there will be more."""

LOOK = 0.2
"""So often (seconds) the driver looks whether actions have ended."""

_REMEMBERED = 10_000
"""So many actions that have ended are remembered, for tasks that do not know it yet."""

STREAM_LEASE = 3600.0
"""For so many seconds a stream may pause."""

FORMAT = "ikebana"

SESSION = "ikebana.session"
"""The metadata of a column that says whose table or view it is of."""

_CHANGES = (pa.field("epoch", pa.int64(), nullable=False), pa.field("diff", pa.int64(), nullable=False))
"""What streams of changes have besides the columns of the answer."""


# What planning asks, and what the driver answers.


@dataclass(frozen=True, slots=True)
class Question:
    """How a table or view is to be read: what is asked, its name, and an epoch if one is meant."""

    what: str  # "describe", "check", "snapshot", "begin", "latest" or "done"
    name: str
    epoch: int | None = None
    hold: int = 0
    identity: str | None = None  # of the one that is meant, of those that have had the name
    reader: str = ""  # of a snapshot: all that ask in this name see one epoch
    execution: int | None = None  # of a snapshot: the action of Spark's that reads


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table or view is read: its dataflow, an epoch, and what holds it."""

    dataflow: str
    fields: Fields
    epoch: int
    hold: int


@dataclass(frozen=True, slots=True)
class Readable:
    """A table or view: the name that it has, its identity, the dataflow that has its rows, and their columns."""

    name: str
    identity: str
    dataflow: str
    fields: Fields


@dataclass(slots=True)
class _Read:
    """What is held for the tasks of one action: by dataflow and epoch, None for the present, the epoch and the hold."""

    execution: int | None  # while it runs everything is held
    until: float  # else until then
    holds: dict[tuple[str, int | None], tuple[int, int]] = field(default_factory=dict)


class Desk:
    """The driver's side: answers questions, and remembers what it holds for how long.

    News must be taken quickly, and an answer may have to wait for a lock: a thread of its own gives it, which also lets
    go of what was held for long enough. It does not keep the desk alive.
    """

    def __init__(self, coordinator: Coordinator, find: Callable[[str], Readable], executions: Executions) -> None:
        self._coordinator, self._find, self._executions = coordinator, find, executions
        self.number = coordinator.new_number()
        """By which it is known to those who ask."""
        coordinator.follow(self.number, self._hear)
        self._leases: dict[int, float] = {}  # what is held for streams, and until when
        self._reads: dict[str, _Read] = {}  # what is held for actions, by who reads
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)  # who read, and has ended
        self._clock = time.monotonic
        self._inquiries: SimpleQueue[tuple[int, Inquiry] | None] = SimpleQueue()
        self._leave = weakref.finalize(self, self._inquiries.put, None)
        self._clerk = threading.Thread(
            target=_work, args=(weakref.ref(self), self._inquiries), name="ikebana desk", daemon=True
        )
        self._clerk.start()

    def _hear(self, worker: int, inquiry: Inquiry) -> None:
        self._inquiries.put((worker, inquiry))

    def reply(self, worker: int, inquiry: Inquiry) -> None:
        """Answer a question that has come from a worker."""
        try:
            reply = Reply(inquiry.ticket, self.answer(inquiry.question))
        except IkebanaError as error:
            reply = Reply(inquiry.ticket, error=error)
        except Exception as error:  # whoever asks must not wait for nothing
            told = DataflowError("the driver cannot answer", detail=f"{type(error).__name__}: {error}")
            reply = Reply(inquiry.ticket, error=told)
        with suppress(IkebanaError):  # the workers are gone
            self._coordinator.command(reply, worker)

    def close(self) -> None:
        """Answer no more. The workers have ended: whatever the thread is at ends with an error."""
        self._coordinator.unfollow(self.number)
        self._leave()
        self._clerk.join()

    def answer(self, question: Question) -> Any:
        """The answer to a question; raises if there is no such table or view, or the epoch is not to be had."""
        match question.what:
            case "describe":
                return self._find(question.name)
            case "check":
                self._found(question)
                return self._checked(question)
            case "snapshot":
                return self._snapshot(question)
            case "begin":
                return self._begin(question)
            case "latest":
                self._renew(question)
                return self._latest(question.name)
            case _:
                self._renew(question)
                dataflow = self._find(question.name).dataflow
                self._coordinator.command(Hold(question.hold, dataflow, question.epoch or 0))
                return None

    def _latest(self, name: str) -> int:
        """The last closed epoch, which is then on its way to be complete."""
        dataflow = self._find(name).dataflow
        epoch = self._coordinator.epoch - 1
        self._coordinator.command(Demand(dataflow, epoch + 1))
        return epoch

    def _renew(self, question: Question) -> None:
        """A stream is alive."""
        if question.hold not in self._leases:
            raise DataflowError(
                f"the changes of {question.name!r} are not kept any more",
                detail=f"the stream has not asked for them for {STREAM_LEASE:.0f} s",
                hint="start it again, without its checkpoint, and with a shorter trigger",
            )
        self._leases[question.hold] = self._clock() + STREAM_LEASE

    def _found(self, question: Question) -> Readable:
        """The table or view that is meant."""
        found = self._find(question.name)
        if question.identity not in (None, found.identity):
            raise DataflowError(
                f"the DataFrame reads {question.name!r}, which was dropped",
                detail="what has this name now was created later",
                hint="make the DataFrame again",
            )
        return found

    def _checked(self, question: Question) -> int:
        """The epoch that is meant, by default the last closed one; raises if it is still open."""
        last = self._coordinator.epoch - 1
        epoch = last if question.epoch is None else question.epoch
        if epoch > last:
            raise TimeError(
                f"cannot read {question.name!r} at epoch {epoch}",
                detail=f"the last closed one is {last}",
                hint="read it at that, or leave the epoch out",
            )
        return epoch

    def _begin(self, question: Question) -> Place:
        """Where a stream starts."""
        found = self._found(question)
        dataflow = found.dataflow
        with self._coordinator.lock:
            epoch = self._checked(question)
            hold = self._hold(dataflow, epoch)
        self._leases[hold] = self._clock() + STREAM_LEASE
        self._coordinator.ask(Wait(dataflow, 0))  # who reads directly now finds it held; raises if it has failed
        return Place(dataflow, found.fields, epoch, hold)

    def _hold(self, dataflow: str, epoch: int) -> int:
        """Have an epoch computed, and keep it readable."""
        hold = self._coordinator.new_number()
        self._coordinator.command(Hold(hold, dataflow, epoch))
        self._coordinator.command(Demand(dataflow, epoch + 1))
        return hold

    # Actions.

    def _snapshot(self, question: Question) -> Place:
        """Where all tasks of an action read a table or view."""
        found = self._found(question)
        dataflow = found.dataflow
        read = self._reads.get(question.reader) or self._new_read(question)
        read.until = self._clock() + LEASE
        with self._coordinator.lock:
            if (dataflow, question.epoch) not in read.holds:
                epoch = self._checked(question)
                read.holds[dataflow, question.epoch] = epoch, self._hold(dataflow, epoch)
        self._coordinator.ask(Wait(dataflow, 0))  # who reads directly now finds it held; raises if it has failed
        return Place(dataflow, found.fields, *read.holds[dataflow, question.epoch])

    def _new_read(self, question: Question) -> _Read:
        """Hold the last closed epoch of everything that an action reads."""
        execution = question.execution
        if question.reader in self._ended:
            raise DataflowError(f"the query that reads {question.name!r} has ended", hint="run it again")
        if execution is not None and not self._executions.is_running(execution):
            execution = None  # an iterator over a DataFrame: nobody knows how long it reads
        dataflows: set[str] = set()
        for name in self._read_together(execution):
            with suppress(IkebanaError):  # not of this session
                dataflows.add(self._find(name).dataflow)
        with self._coordinator.lock:  # finding a name takes the session's lock, which is never taken after this one
            read, epoch = _Read(execution, self._clock() + LEASE), self._coordinator.epoch - 1
            for dataflow in dataflows:
                read.holds[dataflow, None] = epoch, self._hold(dataflow, epoch)
        self._reads[question.reader] = read
        return read

    def _read_together(self, execution: int | None) -> set[str]:
        """The tables and views that an action reads, as far as Spark tells."""
        if execution is None:
            return set()
        try:
            return self._executions.tables(execution)
        except Exception:  # Spark has changed: each is held when it is asked for
            return set()

    def _has_ended(self, read: _Read) -> bool:
        if read.until <= self._clock():
            return True
        if read.execution is None:
            return False
        try:
            if not self._executions.is_running(read.execution):
                return True
        except Exception:  # Java cannot be asked now; the lease ends some time
            return False
        read.until = self._clock() + LEASE
        return False

    def expire(self) -> float | None:
        """Let go of what is not needed any more; returns in how many seconds there is more to see to."""
        for reader in [reader for reader, read in self._reads.items() if self._has_ended(read)]:
            read = self._reads.pop(reader)
            if read.execution is not None:
                self._ended.append(reader)
            self._release(hold for _, hold in read.holds.values())
        now = self._clock()
        ended = [hold for hold, until in self._leases.items() if until <= now]
        for hold in ended:
            del self._leases[hold]
        self._release(ended)
        next_looks = [now + LOOK for read in self._reads.values() if read.execution is not None]
        next_ends = [*self._leases.values(), *(read.until for read in self._reads.values()), *next_looks]
        return max(0.0, min(next_ends) - now) if next_ends else None

    def _release(self, holds: Iterable[int]) -> None:
        for hold in holds:
            with suppress(IkebanaError):  # the workers are gone
                self._coordinator.command(Release(hold))


def _work(desk: weakref.ref[Desk], inquiries: SimpleQueue[tuple[int, Inquiry] | None]) -> None:
    """What the desk's thread does."""
    patience: float | None = None
    while True:
        worker, inquiry = -1, None
        with suppress(Empty):
            found = inquiries.get(timeout=patience)
            if found is None:
                return
            worker, inquiry = found
        here = desk()
        if here is None:
            return
        if inquiry is not None:
            here.reply(worker, inquiry)
        patience = here.expire()
        del here


@dataclass(frozen=True, slots=True)
class Address:
    """Where a session can be asked: its workers, and the number of its desk."""

    invitation: ClientCredentials
    desk: int

    @property
    def session(self) -> str:
        """A text that tells the session from others."""
        return hashlib.sha256(repr((self.invitation.worker_keys, self.desk)).encode()).hexdigest()[:16]

    def ask(self, question: Question, timeout: float | None = None) -> Any:
        """The driver's answer, for which a worker may have to be waited for."""
        with Client(self.invitation, timeout=timeout) as guest:
            return guest.ask(0, self.inquire(question))

    def inquire(self, question: Question) -> Inquire:
        """The question, as any worker passes it on."""
        return Inquire(self.desk, secrets.randbits(62), question)


def register(spark: SparkSession, address: Address, name: str = FORMAT) -> None:
    """Make a session's tables and views known to Spark under a format's name."""
    spark.dataSource.register(_source(name, address))


def _source(format_name: str, address: Address) -> type[DataSource]:
    """A data source of one session. It travels to Spark's processes by value, and the address with it."""

    class Source(DataSource):
        """Tables and views of an Ikebana session."""

        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> StructType:
            found: Readable = address.ask(Question("describe", self._name()))
            if self._wants_changes():
                return spark_schema((*found.fields, *_CHANGES))
            if self._epoch() is not None:
                return spark_schema(found.fields)
            return spark_schema(found.fields, {TABLE: found.name, IDENTITY: found.identity, SESSION: address.session})

        def reader(self, schema: StructType) -> DataSourceReader:
            if self._wants_changes():
                raise SchemaError("changes are for streams", hint="use spark.readStream, or leave out `changes`")
            identity = next((field.metadata.get(IDENTITY) for field in schema), None)
            question = Question("check", self._name(), self._epoch(), identity=identity)
            return _Reader(address, question, self._timeout(), arrow_schema(schema))

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return _StreamReader(address, self._name(), self._wants_changes(), arrow_schema(schema))

        def _name(self) -> str:
            name = self.options.get("name") or self.options.get("path")
            if not name:
                raise SchemaError("which table or view?", hint=f'use .format("{format_name}").load("its name")')
            return str(name)

        def _epoch(self) -> int | None:
            text = self.options.get("epoch")
            if text is not None and not text.lstrip("-").isdecimal():
                raise SchemaError(f"the option `epoch` is {text!r}", hint="give the number of a closed epoch")
            return None if text is None else int(text)

        def _timeout(self) -> float | None:
            text = self.options.get("timeout")
            try:
                return None if text is None else float(text)
            except ValueError:
                raise SchemaError(f"the option `timeout` is {text!r}", hint="give a number of seconds") from None

        def _wants_changes(self) -> bool:
            return str(self.options.get("changes", "false")).lower() == "true"

    return Source


@dataclass
class _Shard(InputPartition):
    """One worker's part of what a stream reads."""

    worker: int
    place: Place
    after: int  # changes at later epochs, up to `until`; at the place's epoch everything there is
    until: int


@dataclass
class _Part(InputPartition):
    """One worker's part of a table or view, at an epoch that is chosen when it is read."""

    worker: int
    plan: str  # by which all parts of one DataFrame know each other


class _Reader(DataSourceReader):
    """Reads a table or view at an epoch. Spark keeps its partitions for as long as the DataFrame lives."""

    def __init__(self, address: Address, question: Question, timeout: float | None, schema: pa.Schema) -> None:
        """`question` asks whether what is to be read can be."""
        self._address, self._question, self._timeout, self._schema = address, question, timeout, schema

    def partitions(self) -> list[InputPartition]:
        self._address.ask(self._question, self._timeout)
        plan = secrets.token_hex(8)
        return [_Part(worker, plan) for worker in range(self._address.invitation.size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        execution, name = _execution(), self._question.name
        reader = partition.plan if execution is None else f"action {execution}"
        with Client(self._address.invitation, timeout=self._timeout) as guest:
            question = replace(self._question, what="snapshot", reader=reader, execution=execution)
            place = guest.ask(0, self._address.inquire(question))
            found = _rows(guest, partition.worker, place, name)
        yield from _batches(plain_rows(found, name), self._schema)


def _rows(guest: Client, worker: int, place: Place, name: str) -> pa.Table:
    """What a worker has of a table or view; raises if that has errors."""
    shard = guest.ask(worker, Read(place.dataflow, (place.epoch,), place.hold, wait=True))
    if shard.errors:
        _check_errors(guest, place, place.epoch, name)
    return shard.rows


def _check_errors(guest: Client, place: Place, epoch: int, name: str) -> None:
    """Raise if a table or view has errors at an epoch: those of a worker may cancel those of others."""
    request = ReadErrors(place.dataflow, epoch, place.hold)
    raise_present(name, [guest.ask(worker, request) for worker in range(guest.size)])


def _execution() -> int | None:
    """The action that this task is of, if Spark tells: the outermost one."""
    context = TaskContext.get()
    found = context and (context.getLocalProperty(_ROOT) or context.getLocalProperty(_EXECUTION))
    return int(found) if found else None


_ROOT, _EXECUTION = "spark.sql.execution.root.id", "spark.sql.execution.id"


class _StreamReader(DataSourceStreamReader):
    """Reads the changes of a table or view. Offsets are epochs, up to which all was read."""

    def __init__(self, address: Address, name: str, with_changes: bool, schema: pa.Schema) -> None:
        self._address, self._name, self._with_changes, self._schema = address, name, with_changes, schema
        self._place: Place | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"epoch": self._begun().epoch - 1}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        return {"epoch": self._address.ask(Question("latest", self._name, hold=self._begun().hold))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        begun = self._begun()
        if start["epoch"] < begun.epoch - 1:
            raise DataflowError(
                f"the changes of {self._name!r} after epoch {start['epoch']} are not kept any more",
                detail=f"this stream was started again, and has held what there is from epoch {begun.epoch} on",
                hint="start it without its checkpoint",
            )
        workers = range(self._address.invitation.size)
        return [_Shard(worker, begun, start["epoch"], end["epoch"]) for worker in workers]

    def commit(self, end: dict[str, int]) -> None:
        self._address.ask(Question("done", self._name, end["epoch"], self._begun().hold))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Shard)
        with Client(self._address.invitation) as guest:
            for epochs, changes in self._changes(guest, partition):
                if self._with_changes:
                    rows = changes.append_column("epoch", pa.array(epochs, pa.int64()))
                else:
                    rows = _only_added(changes, self._name)
                yield from _batches(rows, self._schema)

    def _changes(self, guest: Client, shard: _Shard) -> Iterator[tuple[Any, pa.Table]]:
        """The epochs of changes, and the changes: at first all that there is."""
        place, after = shard.place, shard.after
        if after < place.epoch:
            found = _rows(guest, shard.worker, place, self._name)
            after = place.epoch
            yield np.full(len(found), after), found
        if shard.until > after:
            if guest.ask(shard.worker, ReadErrors(place.dataflow, shard.until, place.hold)):
                _check_errors(guest, place, shard.until, self._name)
            epochs, changes = guest.ask(shard.worker, ReadChanges(place.dataflow, after, shard.until, place.hold))
            if changes is not None:
                yield epochs, changes

    def _begun(self) -> Place:
        """Where the stream reads, held from its start on."""
        if self._place is None:
            self._place = self._address.ask(Question("begin", self._name))
        return self._place


def _only_added(changes: pa.Table, name: str) -> pa.Table:
    """The rows of some changes, if none of them goes away."""
    try:
        return plain_rows(changes, name)
    except DataflowError as error:
        raise DataflowError(
            f"rows of {name!r} go away, which a stream of rows alone cannot say",
            detail=error.detail,
            hint='use .option("changes", True), and look at the columns `epoch` and `diff`',
        ) from None


def _batches(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows exactly as Spark expects them: names, order, types and what may be null."""
    return table.select(schema.names).cast(schema).to_batches()
