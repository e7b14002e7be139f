"""The driver's connections to its workers: one socket, which all threads send with, and the thread that receives.

Any thread can queue items to send (`send`), or send a request and wait until the call is complete (`call`). A thread
that has queued an item sends all that is queued, in order, and the items for the same worker as one message; if another
thread is at the socket, that thread does it. The connection thread receives what workers send, and wakes the threads
that wait. So a thread that waits for a slow answer does not block others. If many threads wait, the connection thread
also sends: the items of many threads are then few messages.

The socket is guarded by a lock. A thread that holds it only sends or receives, and never waits. Interrupts are deferred
meanwhile, so that a caller can be interrupted at any point without leaving half a message behind. The connection thread
waits for the socket's descriptor, which needs no lock. ZeroMQ signals a message there only once, perhaps while another
thread sends: that thread then wakes the connection thread. Workers on this host send small messages through a pipe
(`ikebana.cluster.links`), which only the connection thread reads.

Items queued with `hold` are sent together with the next item that is not held, so they cost no message of their own.

End. The thread ends when the connections are closed, or when a worker has ended: it then stops the other workers and
closes the sockets, and every pending or later call raises the same error. All of this happens in the connection thread.
The thread holds no reference to its users, so that losing the last reference can close the connections.

Cost: being woken by the connection thread adds some 0.03 ms to a request. Where many threads ask at once, most of the
time goes into waiting for the interpreter's lock: whoever releases it, in a system call or in Arrow, has to wait for it
again. So a request is sent without asking the operating system whether the workers live; the connection thread notices
their end anyway.
"""

from __future__ import annotations

import inspect
import itertools
import os
import socket
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil
from typing import Any, NoReturn, Self

import zmq

from ikebana.cluster import RESTART_HINT, Listener, codec, ignore
from ikebana.cluster.authentication import MEMBERS, Socket, Sockets
from ikebana.cluster.enrolment import Enrolment
from ikebana.cluster.hosts import WorkerHost
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.cluster.links import DRIVER, InOrder, Link
from ikebana.cluster.network import host_of
from ikebana.cluster.pipes import PipeReader
from ikebana.cluster.protocol import (
    Ask,
    CancelRequest,
    Crash,
    Notification,
    PeerAddresses,
    Ready,
    Refusal,
    Reply,
    StopProcess,
    WorkerHello,
)
from ikebana.cluster.shared_memory import SharedMemory
from ikebana.cluster.wakeups import Wakeup
from ikebana.errors import DataflowError, DroppedError, WorkerLostError

_PROCESS_CHECK_SECONDS = 0.5
"""How often the processes are checked (seconds). Usually an exit is noticed at once, through `exit_fds`."""

_MAX_HELD_ITEMS = 64
"""How many items are held at most, before they are sent."""

_FEW_CALLS = 4
"""If more calls are pending, threads leave sending to the connection thread."""

_CRASH_REPORT_SECONDS = 0.3
"""How long to wait for the crash report of a worker that has ended."""

_CLOSE_SECONDS = 20.0
"""How long `close` waits for the thread. It only gives up if the thread itself is waiting for the caller."""


class WorkerConnections:
    """The driver's socket, its thread, and the pending calls."""

    def __init__(self, sockets: Sockets, host: WorkerHost, workers: int, memory: SharedMemory) -> None:
        self._sockets, self._host, self.size, self._memory = sockets, host, workers, memory
        self._router, self.endpoint = sockets.listen(zmq.ROUTER, expected=workers)
        self._links = [Link(self._router, DRIVER, b"%d" % index) for index in range(workers)]
        self._pipe, self._arrived = PipeReader(), InOrder(memory)
        self._hosts: list[str] = []  # of each worker
        self._router.set(zmq.ROUTER_MANDATORY, 1)
        self._router_fd = int(self._router.get(zmq.FD))
        self._socket_lock = threading.Lock()
        self._is_open = True  # the socket
        self._must_send = False  # whether an item was queued that is not to be held
        self._failure: Exception | None = None  # of sending, for the connection thread
        self._owner = os.getpid()
        self._out: deque[tuple[int | None, Any]] = deque()  # the worker, or None for all, and the item to send
        self._calls: dict[int, PendingCall] = {}
        self._numbers = itertools.count()
        self._last_message: dict[int, Any] = {}  # by worker: its last `WorkerHello`, `Ready` or `Crash`
        self._listener: Callable[[], Listener | None] = lambda: ignore
        self._watches: list[Socket] = []
        self._error: WorkerLostError | None = None
        self._on_death: Callable[[], None] = lambda: None
        self._closing, self._wakeup_pending = False, False
        self._ended = threading.Event()
        self._wakeup_sender, self._wakeup_receiver = socket.socketpair()
        for end in (self._wakeup_sender, self._wakeup_receiver):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="ikebana connections", daemon=True)

    # Start, in the thread that starts the cluster.

    def enrol(self, enrolment: Enrolment, deadline: float) -> None:
        """Wait until all workers have enrolled."""
        poller = self._new_poller()
        poller.register(enrolment.socket, zmq.POLLIN)
        while not enrolment.is_complete:
            self._check_deadline(enrolment.missing, deadline)
            events = dict(poller.poll(ceil(_PROCESS_CHECK_SECONDS * 1000)))
            enrolment.take_messages()
            self._check_exits(events)
        self.allow(enrolment.worker_keys)  # workers connect as soon as they are told
        enrolment.confirm()

    def allow(self, keys: Sequence[bytes]) -> None:
        """Allow the workers that have these public keys to connect."""
        self._sockets.allow(MEMBERS, keys)

    def open(
        self, keys: Sequence[bytes], deadline: float, check: Callable[[], None] = lambda: None
    ) -> list[WorkerHello]:
        """Connect the workers, whose processes have been started, with each other. Return their greetings.

        `check` is called again and again while workers are missing; it may raise.
        """
        self._poller = self._new_poller()
        self._gather(WorkerHello, deadline, check)
        hellos: list[WorkerHello] = [self._last_message[index] for index in range(self.size)]
        self._hosts = [host_of(hello.endpoint) for hello in hellos]
        if self._host.watches_connections:
            self._watch(hellos, keys)
        self._last_message = {}
        self._out.append((None, self._peer_addresses(hellos)))
        self._send_queued()
        for link, hello in zip(self._links, hellos, strict=True):  # from now on, memory is shared on this host
            link.share(self._memory.connect(hello.token), hello.pipe)
        self._gather(Ready, deadline)
        self._thread.start()
        return hellos

    def _peer_addresses(self, hellos: Sequence[WorkerHello]) -> PeerAddresses:
        """The addresses to send to all workers."""
        tokens = tuple(self._memory.attach(hello.control_block) for hello in hellos)
        endpoints = tuple(hello.endpoint for hello in hellos)
        control_blocks = tuple(hello.control_block for hello in hellos)
        return PeerAddresses(endpoints, control_blocks, tokens, self._pipe.address)

    def _new_poller(self) -> zmq.Poller:
        poller = zmq.Poller()
        for readable in (self._router_fd, self._pipe.fileno(), self._wakeup_receiver.fileno()):
            poller.register(readable, zmq.POLLIN)
        for fd in self._host.exit_fds:
            poller.register(fd, zmq.POLLIN | zmq.POLLERR)
        return poller

    def _watch(self, hellos: Sequence[WorkerHello], keys: Sequence[bytes]) -> None:
        """Connect to every worker, only in order to notice when the connection is lost."""
        for hello, key in zip(hellos, keys, strict=True):
            _, watch = self._sockets.connect_watched(zmq.PUSH, hello.endpoint, key)
            self._watches.append(watch)
            self._poller.register(watch, zmq.POLLIN)

    def _gather(self, kind: type[Any], deadline: float, check: Callable[[], None] = lambda: None) -> None:
        """Wait until every worker has sent a message of a kind."""
        while missing := [index for index in range(self.size) if not isinstance(self._last_message.get(index), kind)]:
            check()
            self._check_deadline(missing, deadline)
            self._pump(_PROCESS_CHECK_SECONDS)

    def _check_deadline(self, missing: Sequence[int], deadline: float) -> None:
        if time.monotonic() > deadline:
            raise DataflowError(
                f"worker {missing[0]} did not start in time",
                detail=f"{len(missing)} of {self.size} workers are missing",
                hint="give a longer `start_timeout`; if Spark runs the workers, other jobs may occupy its slots, or "
                "executors cannot connect to the driver",
            )

    # For any thread.

    def listen(self, listener: Listener) -> None:
        """Call a function with every notification. A bound method does not keep its object alive."""
        self._listener = weakref.WeakMethod(listener) if inspect.ismethod(listener) else lambda: listener

    def watch(self, on_death: Callable[[], None]) -> None:
        """Call a function when a worker has died, and everything has ended, by the thread of the connections."""
        self._on_death = on_death
        if self._error is not None:
            on_death()

    def send(self, item: Any, worker: int | None = None, *, hold: bool = False) -> None:
        """Send an item to a worker, or to all. With `hold`, it may wait for the next item."""
        self.check()
        self._queue(item, worker, hold=hold)

    def _queue(self, item: Any, worker: int | None, *, hold: bool = False) -> None:
        self._out.append((worker, item))
        if hold and len(self._out) <= _MAX_HELD_ITEMS:
            return
        if len(self._calls) <= _FEW_CALLS:
            self._send_queued()
        else:
            self._must_send = True
            self._wake()

    def call(self, ask: Callable[[int], Any], worker: int | None = None) -> PendingCall:
        """Send the request that `ask` creates from the number of the call."""
        if threading.current_thread() is self._thread:
            raise DataflowError(
                "a listener cannot send requests",
                detail="it is called by the thread that receives the answers",
                hint="hand the notification to another thread, and ask there",
            )
        call = PendingCall(self, next(self._numbers), range(self.size) if worker is None else (worker,))
        self._calls[call.number] = call
        try:
            self._check_open()  # if a worker has ended, the connection thread is going to wake this one
            self._queue(ask(call.number), worker)
        except BaseException:
            self.forget(call)
            raise
        return call

    def forget(self, call: PendingCall) -> None:
        """Remove a call, and cancel its request if it is unanswered."""
        del self._calls[call.number]
        if not call.is_over and not self._ended.is_set():
            self._out.append((None, CancelRequest(call.number)))

    def check(self) -> None:
        """Raise if the connections are closed, or if a worker has ended."""
        if self._host.any_ended() and not self._closing and threading.current_thread() is not self._thread:
            self._ended.wait(_CLOSE_SECONDS)  # the thread is about to find out why
        self._check_open()

    def _check_open(self) -> None:
        """Raise if the connections are closed, or are known to be lost."""
        if self._ended.is_set() or self._closing:
            raise self._new_error()

    def close(self) -> None:
        """End the workers, and wait until they have ended. Does nothing in a fork of the driver."""
        if os.getpid() != self._owner or self._ended.is_set():
            return
        self._closing = True
        if not self._thread.ident:
            self._end()
        elif threading.current_thread() is not self._thread:
            self._wake(always=True)
            self._ended.wait(_CLOSE_SECONDS)

    def _new_error(self) -> Exception:
        error = self._error
        if error is None:
            return DroppedError("the workers were ended by close()", hint="start another cluster")
        return WorkerLostError(error.what, detail=error.detail, hint=error.hint)

    def _send_queued(self) -> None:
        """Send all queued items; if another thread is at the socket, it does that when it is done.

        Never raises: if sending fails, the connection thread finds out why, and ends the workers.
        """
        self._must_send = True
        with defer_interrupts():
            while self._must_send and self._socket_lock.acquire(blocking=False):
                has_arrived = False
                try:
                    self._must_send = False
                    if self._is_open:
                        self._send_all()
                        has_arrived = codec.is_readable(self._router)
                except Exception as error:
                    self._failure = error
                finally:
                    self._socket_lock.release()
                if has_arrived or self._failure is not None:
                    self._wake()

    def _wake(self, *, always: bool = False) -> None:
        """Wake the connection thread. It resets `_wakeup_pending` before it looks at the socket, so it misses none."""
        if always or not self._wakeup_pending:
            with defer_interrupts(), suppress(OSError):  # the socket is full of wake-ups, or the thread has ended
                self._wakeup_pending = True  # only together with the wake-up
                self._wakeup_sender.send(b"\0")

    # The thread.

    def _run(self) -> None:
        try:
            while not self._closing:
                self._pump(_PROCESS_CHECK_SECONDS)
        except WorkerLostError as error:
            self._error = error
        except BaseException as error:
            trace = traceback.format_exc()
            self._error = WorkerLostError(
                f"the driver's connections have failed: {error}", detail=trace, hint=RESTART_HINT
            )
        self._end()
        if self._error is not None:
            self._on_death()

    def _pump(self, seconds: float) -> None:
        """Wait for events for at most `seconds`, and take what has arrived."""
        events = dict(self._poller.poll(ceil(seconds * 1000)))
        if not events:
            with self._socket_lock:
                self._memory.trim()
        if self._wakeup_receiver.fileno() in events:
            with suppress(BlockingIOError):
                self._wakeup_receiver.recv(4096)
            self._wakeup_pending = False
        self._receive_all()
        if self._failure is not None:
            self._raise_failure(self._failure)
        if not self._closing:
            self._check_exits(events)

    def _check_exits(self, events: dict[Any, int]) -> None:
        """Raise if a worker has ended, according to the events of the poller."""
        ended = [index for index, watch in enumerate(self._watches) if watch in events]
        if ended or any(fd in events for fd in self._host.exit_fds) or (not events and self._host.check_processes()):
            self._raise_death(ended)

    def _receive_all(self) -> None:
        for content in self._pipe.receive():
            self._take([content])
        while (frames := self._receive()) is not None:
            self._take(frames)

    def _receive(self) -> codec.Frames | None:
        """The next message that has arrived at the socket."""
        with self._socket_lock:
            if not self._is_open or not codec.is_readable(self._router):
                frames = None
            else:
                self._router.recv()  # the sender, which the message names too
                frames = codec.receive_frames(self._router)
        if self._must_send:  # by a thread that has found the lock taken
            self._send_queued()
        return frames

    def _take(self, frames: codec.Frames) -> None:
        """Take what has arrived, and all messages whose turn has come by that."""
        for index, message in self._arrived.take(frames):
            match message:
                case list():
                    self._take_replies(index, message)
                case Notification(items):
                    for item in items:
                        self._notify(index, item)
                case _:
                    self._last_message[index] = message

    def _take_replies(self, worker: int, replies: list[Reply]) -> None:
        for reply in replies:
            call = self._calls.get(reply.number)
            if call is not None:  # else it was cancelled
                call.take(worker, reply)

    def _notify(self, worker: int, item: Any) -> None:
        listener = self._listener() or ignore
        try:
            listener(worker, item)
        except Exception:  # errors of the listener must not end the workers
            traceback.print_exc()

    def _send_all(self) -> None:
        """Send every worker its queued items, as one message."""
        bundles: dict[int, list[Any]] = {}
        while self._out:
            worker, item = self._out.popleft()
            for index in range(self.size) if worker is None else (worker,):
                bundles.setdefault(index, []).append(item)
        encoded: dict[tuple[int, ...], codec.Frames] = {}  # workers mostly get the same items
        for index, items in bundles.items():
            same = tuple(map(id, items))
            frames = encoded[same] = encoded.get(same) or self._encode(items)
            try:
                self._links[index].send_frames(frames)
            except zmq.ZMQError as error:
                raise _UnreachableError(index) from error

    def _encode(self, items: list[Any]) -> codec.Frames:
        """The frames of a message. A request that cannot be encoded is refused here, and left out."""
        try:
            return codec.encode(items)
        except Exception:
            return codec.encode([item for item in items if self._can_be_sent(item)])

    def _can_be_sent(self, item: Any) -> bool:
        try:
            codec.encode(item)
        except Exception as error:
            refusal = DataflowError(f"cannot send {type(item).__name__}", detail=f"{type(error).__name__}: {error}")
            if not isinstance(item, Ask):
                raise refusal from error
            call = self._calls.get(item.number)
            if call is not None:  # else it was refused already, for another worker
                call.take(-1, Refusal.of(call.number, refusal))
            return False
        return True

    # End.

    def _raise_failure(self, failure: Exception) -> NoReturn:
        """Raise an error for what has failed while a thread was sending."""
        if isinstance(failure, _UnreachableError):
            self._raise_death([failure.worker])
        raise failure

    def _raise_death(self, lost: Sequence[int]) -> NoReturn:
        """Raise an error for a worker that has ended or cannot be reached; `lost` are the lost connections."""
        ended = self._host.first_ended(lost)
        if ended is None:
            which = f"worker {lost[0]} on {self._hosts[lost[0]]}" if lost and self._hosts else "a worker"
            raise WorkerLostError(f"{which} cannot be reached", detail="its connection is lost", hint=RESTART_HINT)
        if ended.worker is None:
            raise WorkerLostError("the workers have ended", detail=ended.how, hint=RESTART_HINT)
        report = self._crash_report(ended.worker) if ended.crashed else None
        where = f" (on {self._hosts[ended.worker]})" if self._hosts else ""
        if report is not None:
            detail = f"{report.reason}{where}\n{report.trace}"
            raise WorkerLostError(f"worker {ended.worker} has failed", detail=detail, hint=RESTART_HINT)
        detail = f"{ended.how}{where}; its shard of every arrangement is lost"
        raise WorkerLostError(f"worker {ended.worker} has died", detail=detail, hint=RESTART_HINT)

    def _crash_report(self, index: int) -> Crash | None:
        """The crash report of a worker that has ended; it may not have arrived yet."""
        deadline = time.monotonic() + _CRASH_REPORT_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            self._receive_all()
            message = self._last_message.get(index)
            if isinstance(message, Crash):
                return message
            self._router.poll(ceil(left * 1000))
        return None

    def _end(self) -> None:
        """End the processes, close the sockets, and wake all waiting threads."""
        try:
            frames = codec.encode([StopProcess()])
            with self._socket_lock:
                for index in range(self.size):
                    with suppress(zmq.ZMQError):  # it has ended already, or never started
                        self._links[index].send_frames(frames)
            self._host.close()
        finally:
            with self._socket_lock:
                self._is_open = False
                self._sockets.close()
                self._memory.close()
                self._pipe.close()
                for link in self._links:
                    link.close()
            self._wakeup_sender.close()
            self._wakeup_receiver.close()
            self._ended.set()
            for call in list(self._calls.values()):
                call.wake()


class _UnreachableError(Exception):
    """A message cannot be sent to a worker."""

    def __init__(self, worker: int) -> None:
        super().__init__(worker)
        self.worker = worker


class PendingCall:
    """A request and its answers. When its `with` block ends it is removed, answered or not."""

    def __init__(self, connections: WorkerConnections, number: int, workers: Sequence[int]) -> None:
        self.number, self._connections, self._workers = number, connections, workers
        self._values: dict[int, Any] = {}
        self._refusal: Refusal | None = None
        self._wakeup = Wakeup()

    @property
    def is_over(self) -> bool:
        """Whether all workers have answered, or one has refused."""
        return len(self._values) == len(self._workers) or self._refusal is not None

    def take(self, index: int, reply: Reply) -> None:
        """Record a worker's reply."""
        if isinstance(reply, Refusal):
            self._refusal = reply
        else:
            self._values[index] = reply.value
        if self.is_over:
            self.wake()

    def wake(self) -> None:
        """Wake the thread that waits."""
        self._wakeup.set()

    def wait(self, seconds: float = float("inf")) -> bool:
        """Wait until the call is over, for at most `seconds`. Return whether it is; raises if a worker has ended."""
        deadline = time.monotonic() + seconds
        while not self._wakeup.is_set and (left := deadline - time.monotonic()) > 0:
            self._wakeup.wait(min(left, _PROCESS_CHECK_SECONDS))
        if not self.is_over and self._wakeup.is_set:
            raise self._connections._new_error()
        return self.is_over

    def result(self) -> list[Any]:
        """The answers in the order of the workers; raises if one has refused."""
        if self._refusal is not None:
            raise self._refusal.error()
        return [self._values[index] for index in self._workers]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connections.forget(self)
