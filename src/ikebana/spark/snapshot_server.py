"""The driver's side of the data source: decides which epoch a reader sees, and holds it for as long as it is needed.

Spark queries. The first task of a query that asks gets the last closed epoch, and so do all other tasks of the same
execution, whichever tables and views they read, however late they start or often they are repeated. The epoch is held
on all workers until the execution has ended in any way, which is noticed within `POLL_SECONDS`
(`ikebana.spark.executions`). Where Spark does not tell to which execution a task belongs (RDDs, `toLocalIterator`), all
tasks that read a table or view for one DataFrame see one epoch, which is held until there was no request for it for
`LEASE` seconds.

Replaced views. A reader that has begun goes on reading the dataflow of the view as it was. The dataflow is dropped when
no reader uses it any more (`drop_when_unread`).

Streams. What a stream holds is released when the stream has sent no request for `STREAM_LEASE` seconds.

Threads. A notification from a worker must be handled quickly, but an answer may have to wait for a lock. A thread of
the server therefore sends the answers, and releases holds that have expired. The thread does not keep the server alive.
Commits of writers, which may take long, have a thread each.

Keys. A request is only answered if the key of the client that has sent it allows that. Jobs get their keys here, for
what they are about to read or write (`ikebana.spark.snapshots`).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from ikebana.cluster.client_keys import ClientCredentials, IssuedKeys, allow_hold
from ikebana.cluster.plain import UndecodableError, decode, encode
from ikebana.cluster.protocol import Grant
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.subscription_readers import NamedStream
from ikebana.errors import DataflowError, IkebanaError, TimeError
from ikebana.runtime.messages import Demand, DriverAnswer, DriverQuestion, Hold, Ping, Release
from ikebana.spark.executions import Executions
from ikebana.spark.snapshots import (
    DriverReply,
    DriverRequest,
    Readable,
    SessionKeyFile,
    Snapshot,
    SnapshotRequest,
    StreamStart,
)
from ikebana.spark.writes import Writes

if TYPE_CHECKING:
    from ikebana.spark.table import Table

LEASE = 600.0
"""How many seconds an epoch is held after the last request, if it is not known when the query ends."""

STREAM_LEASE = 3600.0
"""How many seconds a stream may pause."""

POLL_SECONDS = 0.2
"""How often the server checks whether executions have ended."""

READ_SECONDS = 24 * 3600.0
"""How long a DataFrame can be read after it was planned, or last read."""

SESSION_SECONDS = 10 * 365 * 24 * 3600.0
"""How long the key of a session is valid: longer than any session."""

_CANCEL_SECONDS, _CANCEL_POLL_SECONDS = 1.0, 0.01
"""How long to wait for the end of the jobs of a query that has ended, and how often to look."""

_SESSION = ("session", "")
"""What the key of a session is for."""

_ENDED_READERS = 10_000
"""How many readers that have ended are remembered, to refuse their late tasks."""


@dataclass(slots=True)
class _Read:
    """The holds for one reader: an epoch and the number of its hold, by dataflow and requested epoch (or None)."""

    execution: int | None  # the epochs are held while it runs
    expires: float  # if there is no execution, or Spark cannot be asked
    holds: dict[tuple[str, int | None], tuple[int, int]] = field(default_factory=dict)
    readables: dict[str, Readable] = field(default_factory=dict)  # as they were at first; views may be replaced

    def uses(self, dataflow: str) -> bool:
        """Whether the reader reads a dataflow."""
        return any(held == dataflow for held, _ in self.holds)


@dataclass(slots=True)
class _Stream:
    """What a stream reads, and the epoch from which on it is held."""

    name: str
    dataflow: str
    epoch: int
    key: bytes | None = None  # of the last micro-batch
    named: NamedStream | None = None  # the subscription that it continues, if it has one


class SnapshotServer:
    """Answers the requests of readers, and manages what is held for them."""

    def __init__(
        self,
        coordinator: Coordinator,
        keys: Callable[[], IssuedKeys],
        find: Callable[[str], Readable],
        find_table: Callable[[str], Table],
        executions: Executions,
        follow: Callable[[str, str], NamedStream],
    ) -> None:
        """`keys` returns what issues keys for the workers as they are now.

        `find` returns the table or view of a name, `find_table` the table; both raise if there is none. `follow`
        continues or creates a subscription to a table or view, given its name and that of the subscription.
        """
        self._follow = follow
        self._coordinator, self._find_keys, self._find, self._executions = coordinator, keys, find, executions
        self.number = coordinator.new_number()
        """The recipient number of requests to this server."""
        self._writes = Writes(coordinator, find_table, keys, self.number)
        self._key_file = SessionKeyFile(self._session_credentials(), self.number)
        self._remove_key_file = weakref.finalize(self, self._key_file.close)
        self.address = self._key_file.address
        """How Spark's processes on this host reach this server."""
        coordinator.add_listener(self.number, self._enqueue)
        self._stream_leases: dict[int, float] = {}  # when the hold of each stream expires
        self._streams: dict[int, _Stream] = {}  # by hold
        self._replaced: SimpleQueue[tuple[str, Callable[[], object]]] = SimpleQueue()
        self._unread: list[tuple[str, Callable[[], object]]] = []  # dataflows to be dropped when no reader uses them
        self._reads: dict[str, _Read] = {}  # by reader
        self._ended: deque[str] = deque(maxlen=_ENDED_READERS)
        self._clock = time.monotonic
        self._inquiries: SimpleQueue[tuple[int, DriverQuestion | None] | None] = SimpleQueue()
        self._stop_thread = weakref.finalize(self, self._inquiries.put, None)
        self._thread = threading.Thread(
            target=_serve, args=(weakref.ref(self), self._inquiries), name="ikebana snapshots", daemon=True
        )
        self._thread.start()

    @property
    def _keys(self) -> IssuedKeys:
        return self._find_keys()

    def _session_credentials(self) -> ClientCredentials:
        return self._keys.issue(Grant(SESSION_SECONDS, server=self.number), _SESSION)

    def renew_key(self) -> None:
        """Let Spark's processes on this host reach the new workers, after the workers were replaced."""
        self._key_file.write(self._session_credentials())

    def _enqueue(self, worker: int, inquiry: DriverQuestion) -> None:
        if _is_commit(inquiry):
            threading.Thread(target=self.reply, args=(worker, inquiry), name="ikebana commit", daemon=True).start()
        else:
            self._inquiries.put((worker, inquiry))

    def drop_when_unread(self, dataflow: str, drop: Callable[[], object]) -> None:
        """Call `drop` as soon as no reader uses a dataflow."""
        self._replaced.put((dataflow, drop))
        self._inquiries.put((-1, None))  # wakes the thread, which calls `expire`

    def held(self) -> list[tuple[str, int, str]]:
        """Which tables and views are held from which epoch on, and by whom: a Spark query, a DataFrame or a stream."""
        names = {r.dataflow: r.name for read in list(self._reads.values()) for r in list(read.readables.values())}
        held = [
            (names.get(dataflow, dataflow), epoch, _reader(read))
            for read in list(self._reads.values())
            for (dataflow, _), (epoch, _) in list(read.holds.items())
        ]
        return held + [(stream.name, stream.epoch, "a stream of changes") for stream in list(self._streams.values())]

    def reply(self, worker: int, inquiry: DriverQuestion) -> None:
        """Answer a request that a worker has passed on."""
        try:
            question = decode(inquiry.question, DriverRequest)
            if question.write is not None:
                answer = self._writes.answer(question.write, inquiry.client)
            elif question.snapshot is not None:
                answer = self.answer(question.snapshot, inquiry.client)
            else:
                raise UndecodableError("a request is empty")
            reply = DriverAnswer(inquiry.ticket, encode(answer, DriverReply))
        except IkebanaError as error:
            reply = DriverAnswer(inquiry.ticket, error=error)
        except Exception as error:  # without a reply the reader would wait forever
            failure = DataflowError("the driver could not answer a reader", detail=f"{type(error).__name__}: {error}")
            reply = DriverAnswer(inquiry.ticket, error=failure)
        self._coordinator.tell(reply, worker)

    def close(self) -> None:
        """Stop answering. The workers must have ended, so that a pending call of the thread fails."""
        self._coordinator.remove_listener(self.number)
        self._stop_thread()
        self._remove_key_file()
        self._thread.join()

    def answer(self, request: SnapshotRequest, client: bytes) -> DriverReply:
        """The answer to a request of the client with a public key.

        Raises if the key does not allow it, if the table or view does not exist, or cannot be read at the epoch.
        """
        self._check_permission(request, client)
        match request.kind:
            case "describe":
                return DriverReply(readable=self._find(request.name))
            case "check":
                self._readable(request)
                self._epoch(request)
                grant = Grant(READ_SECONDS, server=self.number)
                return DriverReply(credentials=self._keys.issue(grant, ("read", request.name)))
            case "snapshot":
                snapshot = self._snapshot(request)
                self._keys.renew(client, lambda grant: allow_hold(grant, snapshot.hold, snapshot.dataflow))
                return DriverReply(snapshot=snapshot)
            case "begin":
                return DriverReply(start=self._begin_stream(request))
            case "batch":
                return DriverReply(credentials=self._begin_batch(request))
            case "latest":
                self._renew_lease(request)
                return DriverReply(number=self._latest_epoch(request.name))
            case "commit":
                self._renew_lease(request)
                stream = self._streams[request.hold]
                stream.epoch = request.epoch or 0
                if stream.named is not None:
                    stream.named.acknowledge(stream.epoch)
                self._coordinator.command(Hold(request.hold, stream.dataflow, stream.epoch))
                return DriverReply()

    def _check_permission(self, request: SnapshotRequest, client: bytes) -> None:
        """Raise unless the key is that of the session, or of a job that asks for the snapshot which it may read."""
        purpose = self._keys.purpose(client)
        if purpose != _SESSION and (request.kind != "snapshot" or purpose != ("read", request.name)):
            raise DataflowError(f"the key of this job does not allow asking for {request.kind!r} of {request.name!r}")

    def _readable(self, request: SnapshotRequest) -> Readable:
        """The table or view of a request; raises if another one has its name now."""
        readable = self._find(request.name)
        if request.identity not in (None, readable.identity):
            raise DataflowError(
                f"the DataFrame reads {request.name!r}, which was dropped",
                detail="the table or view that has this name now was created later",
                hint="create the DataFrame again",
            )
        return readable

    def _epoch(self, request: SnapshotRequest) -> int:
        """The epoch of a request, by default the last closed one; raises if it is still open."""
        last = self._coordinator.epoch - 1
        epoch = last if request.epoch is None else request.epoch
        if epoch > last:
            raise TimeError(
                f"cannot read {request.name!r} at epoch {epoch}",
                detail=f"the last closed epoch is {last}",
                hint=f"read it at epoch {last}, or leave the epoch out",
            )
        return epoch

    def _hold(self, dataflow: str, epoch: int) -> int:
        """Have an epoch computed, and keep it readable; returns the number of the hold."""
        hold = self._coordinator.new_number()
        self._coordinator.command(Hold(hold, dataflow, epoch))
        self._coordinator.command(Demand(dataflow, epoch + 1))
        return hold

    # Streams.

    def _begin_stream(self, request: SnapshotRequest) -> StreamStart:
        readable, named = self._readable(request), None
        if request.subscription:
            named = self._follow(readable.name, request.subscription)
        with self._coordinator.lock:
            epoch = self._epoch(request) if named is None else named.epoch
            hold = self._hold(readable.dataflow, epoch)
        self._stream_leases[hold] = self._clock() + STREAM_LEASE
        self._streams[hold] = _Stream(readable.name, readable.dataflow, epoch, named=named)
        self._coordinator.ask(Ping(readable.dataflow))
        snapshot = Snapshot(readable.dataflow, readable.fields, epoch, hold)
        return StreamStart(snapshot, epoch - 1, True) if named is None else _continued(snapshot, named)

    def _begin_batch(self, request: SnapshotRequest) -> ClientCredentials:
        """A key for the tasks of a micro-batch; that of the one before becomes useless."""
        self._renew_lease(request)
        stream = self._streams[request.hold]
        if stream.key is not None:
            self._keys.revoke(stream.key)
        grant = Grant(STREAM_LEASE, holds=((request.hold, stream.dataflow),))
        credentials = self._keys.issue(grant, ("read", request.name))
        stream.key = credentials.keys.public
        return credentials

    def _renew_lease(self, request: SnapshotRequest) -> None:
        if request.hold not in self._stream_leases:
            raise DataflowError(
                f"the changes of {request.name!r} are no longer kept",
                detail=f"the stream has not asked for them for {STREAM_LEASE:.0f} s",
                hint="start the stream again, without its checkpoint and with a shorter trigger",
            )
        if self._find(request.name).dataflow != self._streams[request.hold].dataflow:
            raise DataflowError(
                f"the view {request.name!r} was replaced by another query",
                hint="start the stream again, without its checkpoint",
            )
        named = self._streams[request.hold].named
        if named is not None:
            named.check()
        self._stream_leases[request.hold] = self._clock() + STREAM_LEASE

    def _latest_epoch(self, name: str) -> int:
        """The last closed epoch, after demanding that it is computed."""
        dataflow = self._find(name).dataflow
        epoch = self._coordinator.epoch - 1
        self._coordinator.command(Demand(dataflow, epoch + 1))
        return epoch

    # Queries.

    def _snapshot(self, request: SnapshotRequest) -> Snapshot:
        """Where all tasks of a reader read a table or view."""
        read = self._reads.get(request.reader) or self._new_read(request)
        readable = read.readables.get(request.name) or self._readable(request)
        read.readables[request.name] = readable
        dataflow = readable.dataflow
        read.expires = self._clock() + LEASE
        with self._coordinator.lock:
            if (dataflow, request.epoch) not in read.holds:
                epoch = self._epoch(request)
                read.holds[dataflow, request.epoch] = epoch, self._hold(dataflow, epoch)
        self._coordinator.ask(Ping(dataflow))
        return Snapshot(dataflow, readable.fields, *read.holds[dataflow, request.epoch])

    def _new_read(self, request: SnapshotRequest) -> _Read:
        """Hold the last closed epoch of all tables and views that a reader's execution reads."""
        execution = request.execution
        if execution is not None and request.reader in self._ended:
            self._end_jobs(execution)
            raise DataflowError(f"the query that reads {request.name!r} has ended", hint="run it again")
        if execution is not None and not self._executions.is_running(execution):
            execution = None  # an iterator over a DataFrame: it is not known for how long it reads
        self._readable(request)  # raises if it cannot be read
        readables: dict[str, Readable] = {}
        for name in self._names(execution):
            with suppress(IkebanaError):  # of another session
                readables[name] = self._find(name)
        with (
            self._coordinator.lock
        ):  # after `find`, which takes the session's lock: that is never taken inside this one
            read, epoch = _Read(execution, self._clock() + LEASE), self._coordinator.epoch - 1
            read.readables.update(readables)
            for dataflow in {readable.dataflow for readable in readables.values()}:
                read.holds[dataflow, None] = epoch, self._hold(dataflow, epoch)
        self._reads[request.reader] = read
        return read

    def _end_jobs(self, execution: int) -> None:
        """Cancel the jobs of a query that has ended, and wait for it, so that Spark does not log how their tasks fail.

        A job may begin after the query has ended: Spark starts the jobs of a query in several threads.
        """
        end = self._clock() + _CANCEL_SECONDS
        while self._executions.cancel_jobs(execution) and self._clock() < end:
            time.sleep(_CANCEL_POLL_SECONDS)

    def _names(self, execution: int | None) -> set[str]:
        """The names of the tables and views that an execution reads, as far as Spark tells."""
        if execution is None:
            return set()
        try:
            return self._executions.tables(execution)
        except Exception:  # another version of Spark: each table is held when it is asked for
            return set()

    # Expiry.

    def expire(self) -> float | None:
        """Release what is no longer needed; returns after how many seconds to call again, None for never."""
        for reader in [reader for reader, read in self._reads.items() if self._has_ended(read)]:
            read = self._reads.pop(reader)
            if read.execution is not None:
                self._ended.append(reader)
            self._release(hold for _, hold in read.holds.values())
        now = self._clock()
        expired = [hold for hold, expires in self._stream_leases.items() if expires <= now]
        for hold in expired:
            del self._stream_leases[hold]
            stream = self._streams.pop(hold, None)
            if stream is not None and stream.named is not None:
                stream.named.close()
        self._release(expired)
        self._drop_unread()
        polls = [now + POLL_SECONDS for read in self._reads.values() if read.execution is not None]
        times = [*self._stream_leases.values(), *(read.expires for read in self._reads.values()), *polls]
        return max(0.0, min(times) - now) if times else None

    def _drop_unread(self) -> None:
        """Drop the dataflows of replaced views that no reader uses."""
        with suppress(Empty):
            while True:
                self._unread.append(self._replaced.get_nowait())
        waiting = self._unread
        self._unread = [item for item in waiting if any(read.uses(item[0]) for read in self._reads.values())]
        for item in waiting:
            if item not in self._unread:
                with suppress(IkebanaError):  # the workers have ended
                    item[1]()

    def _has_ended(self, read: _Read) -> bool:
        if read.expires <= self._clock():
            return True
        if read.execution is None:
            return False
        try:
            if not self._executions.is_running(read.execution):
                return not self._executions.cancel_jobs(read.execution)  # their tasks go on reading until then
        except Exception:  # Java cannot be asked now; the lease expires eventually
            return False
        read.expires = self._clock() + LEASE
        return False

    def _release(self, holds: Iterable[int]) -> None:
        for hold in holds:
            self._coordinator.tell(Release(hold))


def _continued(snapshot: Snapshot, named: NamedStream) -> StreamStart:
    """Where a stream starts that has a subscription."""
    return StreamStart(snapshot, named.acknowledged, named.is_new)


def _is_commit(inquiry: DriverQuestion) -> bool:
    """Whether a question is to commit a write, which may take long."""
    with suppress(UndecodableError):
        write = decode(inquiry.question, DriverRequest).write
        return write is not None and write.kind == "commit"
    return False


def _reader(read: _Read) -> str:
    return "an RDD or iterator" if read.execution is None else f"Spark query {read.execution}"


def _serve(
    server: weakref.ref[SnapshotServer], inquiries: SimpleQueue[tuple[int, DriverQuestion | None] | None]
) -> None:
    """The loop of the server's thread; None in the queue ends it."""
    timeout: float | None = None
    while True:
        worker, inquiry = -1, None
        with suppress(Empty):
            item = inquiries.get(timeout=timeout)
            if item is None:
                return
            worker, inquiry = item
        alive = server()
        if alive is None:
            return
        if inquiry is not None:
            alive.reply(worker, inquiry)
        timeout = alive.expire()
        del alive
