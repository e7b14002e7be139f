"""A Spark data source: tables and views of a session as batch DataFrames, and as streams of changes.

    spark.read.format("ikebana").load("late orders")              # the answer as of now
    spark.read.format("ikebana").option("epoch", 12).load(...)    # at an epoch that is still held
    spark.readStream.format("ikebana").option("changes", True).load("late orders")   # with columns `epoch` and `diff`

A task for each worker reads that worker's shard directly. Which epoch is read is decided when Spark plans the first
action on a DataFrame, by the driver: planning happens in a process of Spark's, which asks the driver through a worker
(`Inquire`). The driver holds that epoch on all workers for `LEASE` seconds, so that tasks that start late, or again,
find it. Spark does not tell when a DataFrame is done with, or a stream: what a stream holds is let go when it has not
asked for anything for `STREAM_LEASE` seconds.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ikebana.coordinator import Coordinator
from ikebana.dataflow.messages import Demand, Hold, Inquire, Inquiry, Read, ReadChanges, Release, Reply, Wait
from ikebana.dataflow.transport.guest import Guest, Invitation
from ikebana.errors import DataflowError, IkebanaError, SchemaError, TimeError
from ikebana.operators.changes import Fields
from ikebana.spark.types import arrow_schema, spark_schema
from ikebana.sql.planned import IDENTITY, TABLE
from ikebana.views import plain_rows

LEASE = 600.0
"""For so many seconds what a DataFrame shows can be read."""

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

    what: str  # "describe", "snapshot", "begin", "latest" or "done"
    name: str
    epoch: int | None = None
    hold: int = 0
    identity: str | None = None  # of the one that is meant, of those that have had the name


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


class Desk:
    """The driver's side: answers questions, and remembers what it holds for how long.

    News must be taken quickly, and an answer may have to wait for a lock: a thread of its own gives it, which also lets
    go of what was held for long enough. It does not keep the desk alive.
    """

    def __init__(self, coordinator: Coordinator, find: Callable[[str], Readable]) -> None:
        self._coordinator, self._find = coordinator, find
        self.number = coordinator.new_number()
        """By which it is known to those who ask."""
        coordinator.follow(self.number, self._hear)
        self._leases: dict[int, float] = {}  # what is held, and until when
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
            case "snapshot":
                return self._place(question, lease=LEASE)
            case "begin":
                return self._place(question, lease=STREAM_LEASE)
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

    def _place(self, question: Question, lease: float) -> Place:
        found = self._find(question.name)
        if question.identity not in (None, found.identity):
            raise DataflowError(
                f"the DataFrame reads {question.name!r}, which was dropped",
                detail="what has this name now was created later",
                hint="make the DataFrame again",
            )
        dataflow = found.dataflow
        with self._coordinator.lock:
            last = self._coordinator.epoch - 1
            epoch = last if question.epoch is None else question.epoch
            if epoch > last:
                raise TimeError(
                    f"cannot read {question.name!r} at epoch {epoch}",
                    detail=f"the last closed one is {last}",
                    hint="read it at that, or leave the epoch out",
                )
            hold = self._coordinator.new_number()
            self._coordinator.command(Hold(hold, dataflow, epoch))
            self._coordinator.command(Demand(dataflow, epoch + 1))
        self._leases[hold] = self._clock() + lease
        self._coordinator.ask(Wait(dataflow, 0))  # who reads directly now finds it held; raises if it has failed
        return Place(dataflow, found.fields, epoch, hold)

    def expire(self) -> float | None:
        """Let go of what was held for long enough; returns in how many seconds there is more."""
        now = self._clock()
        for hold in [hold for hold, until in self._leases.items() if until <= now]:
            del self._leases[hold]
            with suppress(IkebanaError):  # the workers are gone
                self._coordinator.command(Release(hold))
        return max(0.0, min(self._leases.values()) - now) if self._leases else None


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

    invitation: Invitation
    desk: int

    @property
    def session(self) -> str:
        """A text that tells the session from others."""
        return hashlib.sha256(repr((self.invitation.worker_keys, self.desk)).encode()).hexdigest()[:16]

    def ask(self, question: Question) -> Any:
        """The driver's answer."""
        with Guest(self.invitation) as guest:
            return guest.ask(0, Inquire(self.desk, secrets.randbits(62), question))


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
            return _Reader(address, self._name(), identity, self._epoch(), arrow_schema(schema))

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

        def _wants_changes(self) -> bool:
            return str(self.options.get("changes", "false")).lower() == "true"

    return Source


@dataclass
class _Shard(InputPartition):
    """One worker's part of what is read."""

    worker: int
    place: Place
    after: int = -1  # of a stream: changes at later epochs, up to `until`; at the place's epoch everything there is
    until: int = -1


class _Reader(DataSourceReader):
    """Reads a table or view at an epoch."""

    def __init__(self, address: Address, name: str, identity: str | None, epoch: int | None, schema: pa.Schema) -> None:
        self._address, self._name, self._identity = address, name, identity
        self._epoch, self._schema = epoch, schema

    def partitions(self) -> list[InputPartition]:
        place = self._address.ask(Question("snapshot", self._name, self._epoch, identity=self._identity))
        return [_Shard(worker, place) for worker in range(self._address.invitation.size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Shard)
        place = partition.place
        with Guest(self._address.invitation) as guest:
            found = guest.ask(partition.worker, Read(place.dataflow, (place.epoch,), place.hold, wait=True)).rows
        yield from _batches(plain_rows(found, self._name), self._schema)


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
        with Guest(self._address.invitation) as guest:
            for epochs, changes in self._changes(guest, partition):
                if self._with_changes:
                    rows = changes.append_column("epoch", pa.array(epochs, pa.int64()))
                else:
                    rows = _only_added(changes, self._name)
                yield from _batches(rows, self._schema)

    def _changes(self, guest: Guest, shard: _Shard) -> Iterator[tuple[Any, pa.Table]]:
        """The epochs of changes, and the changes: at first all that there is."""
        place, after = shard.place, shard.after
        if after < place.epoch:
            found = guest.ask(shard.worker, Read(place.dataflow, (place.epoch,), place.hold, wait=True)).rows
            after = place.epoch
            yield np.full(len(found), after), found
        if shard.until > after:
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
