"""The driver's connections to its workers: one socket, and the thread that owns it.

Any thread can queue items to send (`send`), or send a request and wait until the call is complete (`call`). The
connection thread takes the items in order, bundles those for the same worker into one message, sends the messages,
receives what workers send, and wakes the threads that wait. No other thread touches the socket, so a thread that waits
for a slow answer does not block others, and a caller can be interrupted at any point without leaving half a message
behind.

Items queued with `hold` are sent together with the next item that is not held, so they cost no message of their own.

End. The thread ends when the connections are closed, or when a worker has ended: it then stops the other workers and
closes the sockets, and every pending or later call raises the same error. All of this happens in the connection thread.
The thread holds no reference to its users, so that losing the last reference can close the connections.

Cost: passing a request to the thread, and being woken by it, adds 0.05 ms in the median.
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

from ikebana.cluster import Listener, codec, ignore
from ikebana.cluster.authentication import Socket, Sockets
from ikebana.cluster.hosts import WorkerHost
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.cluster.protocol import (
    Answer,
    Ask,
    CancelRequest,
    Crash,
    Hello,
    Notification,
    PeerAddresses,
    Ready,
    Refusal,
    Reply,
    Stop,
)
from ikebana.cluster.shared_memory import Sender, SharedMemory
from ikebana.errors import DataflowError, DroppedError

_PROCESS_CHECK_SECONDS = 0.5
"""How often the processes are checked (seconds). Usually an exit is noticed at once, through `exit_fds`."""

_MAX_HELD_ITEMS = 64
"""How many items are held at most, before they are sent."""

_CRASH_REPORT_SECONDS = 0.3
"""How long to wait for the crash report of a worker that has ended."""

_CLOSE_SECONDS = 20.0
"""How long `close` waits for the thread. It only gives up if the thread itself is waiting for the caller."""

_RESTART_HINT = "start the engine again and load the data again"


class WorkerConnections:
    """The driver's socket, its thread, and the pending calls."""

    def __init__(self, sockets: Sockets, host: WorkerHost, workers: int, memory: SharedMemory) -> None:
        self._sockets, self._host, self.size, self._memory = sockets, host, workers, memory
        self._shared_senders: dict[int, Sender | None] = {}  # to workers on this host
        self._router, self.endpoint = sockets.listen(zmq.ROUTER)
        self._router.set(zmq.ROUTER_MANDATORY, 1)
        self._owner = os.getpid()
        self._out: deque[tuple[int | None, Any]] = deque()  # the worker, or None for all, and the item to send
        self._calls: dict[int, PendingCall] = {}
        self._numbers = itertools.count()
        self._last_message: dict[int, Any] = {}  # by worker: its last `Hello`, `Ready` or `Crash`
        self._listener: Callable[[], Listener | None] = lambda: ignore
        self._watches: list[Socket] = []
        self._error: DataflowError | None = None
        self._closing, self._wakeup_pending = False, False
        self._ended = threading.Event()
        self._wakeup_sender, self._wakeup_receiver = socket.socketpair()
        for end in (self._wakeup_sender, self._wakeup_receiver):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="ikebana connections", daemon=True)

    # Start, in the thread that starts the cluster.

    def open(self, keys: Sequence[bytes], timeout: float) -> list[Hello]:
        """Connect the workers, whose processes have been started, with each other. Return their greetings."""
        self._poller = self._new_poller()
        deadline = time.monotonic() + timeout
        self._gather(Hello, deadline)
        hellos: list[Hello] = [self._last_message[index] for index in range(self.size)]
        if self._host.watches_connections:
            self._watch(hellos, keys)
        self._last_message = {}
        self._out.append((None, self._peer_addresses(hellos)))
        self._send_all()
        self._gather(Ready, deadline)
        self._thread.start()
        return hellos

    def _peer_addresses(self, hellos: Sequence[Hello]) -> PeerAddresses:
        """The addresses to send to all workers. From now on, memory is shared with workers on this host."""
        tokens = tuple(self._memory.attach(hello.control_block) for hello in hellos)
        self._shared_senders = {index: self._memory.connect(hello.token) for index, hello in enumerate(hellos)}
        endpoints = tuple(hello.endpoint for hello in hellos)
        return PeerAddresses(endpoints, tuple(hello.control_block for hello in hellos), tokens)

    def _new_poller(self) -> zmq.Poller:
        poller = zmq.Poller()
        for readable in (self._router, self._sockets.zap, self._wakeup_receiver.fileno()):
            poller.register(readable, zmq.POLLIN)
        for fd in self._host.exit_fds:
            poller.register(fd, zmq.POLLIN | zmq.POLLERR)
        return poller

    def _watch(self, hellos: Sequence[Hello], keys: Sequence[bytes]) -> None:
        """Connect to every worker, only in order to notice when the connection is lost."""
        for hello, key in zip(hellos, keys, strict=True):
            watch = Sockets.watch(self._sockets.connect(zmq.PUSH, hello.endpoint, key))
            self._watches.append(watch)
            self._poller.register(watch, zmq.POLLIN)

    def _gather(self, kind: type[Any], deadline: float) -> None:
        """Wait until every worker has sent a message of a kind."""
        while missing := [index for index in range(self.size) if not isinstance(self._last_message.get(index), kind)]:
            if time.monotonic() > deadline:
                raise DataflowError(
                    f"worker {missing[0]} did not start in time",
                    detail=f"{len(missing)} of {self.size} workers are missing",
                    hint="give a longer `start_timeout`; if Spark runs the workers, other jobs may occupy its slots",
                )
            self._pump(_PROCESS_CHECK_SECONDS)

    # For any thread.

    def listen(self, listener: Listener) -> None:
        """Call a function with every notification. A bound method does not keep its object alive."""
        self._listener = weakref.WeakMethod(listener) if inspect.ismethod(listener) else lambda: listener

    def send(self, item: Any, worker: int | None = None, *, hold: bool = False) -> None:
        """Send an item to a worker, or to all. With `hold`, it may wait for the next item."""
        self.check()
        self._out.append((worker, item))
        if not hold or len(self._out) > _MAX_HELD_ITEMS:
            self._wake()

    def call(self, ask: Callable[[int], Any], worker: int | None = None) -> PendingCall:
        """Send the request that `ask` creates from the number of the call."""
        if threading.get_ident() == self._thread.ident:
            raise DataflowError(
                "a listener cannot ask",
                detail="it is called by the thread that receives the answers",
                hint="hand the notification to another thread, and ask there",
            )
        call = PendingCall(self, next(self._numbers), range(self.size) if worker is None else (worker,))
        self._calls[call.number] = call
        try:
            self.send(ask(call.number), worker)
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
        if self._host.any_ended() and not self._closing and threading.get_ident() != self._thread.ident:
            self._ended.wait(_CLOSE_SECONDS)  # the thread is about to find out why
        if self._ended.is_set() or self._closing:
            raise self._new_error()

    def close(self) -> None:
        """End the workers, and wait until they have ended. Does nothing in a fork of the driver."""
        if os.getpid() != self._owner or self._ended.is_set():
            return
        self._closing = True
        if not self._thread.ident:
            self._end()
        elif threading.get_ident() != self._thread.ident:
            self._wake(always=True)
            self._ended.wait(_CLOSE_SECONDS)

    def _new_error(self) -> Exception:
        error = self._error
        if error is None:
            return DroppedError("the workers were ended by close()", hint="start another cluster")
        return DataflowError(error.what, detail=error.detail, hint=error.hint)

    def _wake(self, *, always: bool = False) -> None:
        """Wake the connection thread. It resets `_wakeup_pending` before it takes items, so it misses none."""
        if always or not self._wakeup_pending:
            with defer_interrupts(), suppress(OSError):  # the socket is full of wake-ups, or the thread has ended
                self._wakeup_pending = True  # only together with the wake-up
                self._wakeup_sender.send(b"\0")

    # The thread.

    def _run(self) -> None:
        try:
            while not self._closing:
                self._pump(_PROCESS_CHECK_SECONDS)
        except DataflowError as error:
            self._error = error
        except BaseException as error:
            trace = traceback.format_exc()
            self._error = DataflowError(
                f"the driver's connections have failed: {error}", detail=trace, hint=_RESTART_HINT
            )
        self._end()

    def _pump(self, seconds: float) -> None:
        """Wait for events for at most `seconds`, send what is queued, and take what has arrived."""
        events = dict(self._poller.poll(ceil(seconds * 1000)))
        if not events:
            self._memory.trim()
        if self._wakeup_receiver.fileno() in events:
            with suppress(BlockingIOError):
                self._wakeup_receiver.recv(4096)
            self._wakeup_pending = False
            self._send_all()
        if self._sockets.zap in events:
            self._sockets.authenticate()
        self._receive_all()
        if self._closing:
            return
        ended = [index for index, watch in enumerate(self._watches) if watch in events]
        if ended or any(fd in events for fd in self._host.exit_fds) or (not events and self._host.check_processes()):
            self._raise_death(ended)

    def _receive_all(self) -> None:
        while codec.is_readable(self._router):
            name, message = codec.receive_from(self._router, self._memory)
            index = int(name)
            match message:
                case Answer() | Refusal():
                    call = self._calls.get(message.number)
                    if call is not None:  # else it was cancelled
                        call.take(index, message)
                case Notification(items):
                    for item in items:
                        self._notify(index, item)
                case _:
                    self._last_message[index] = message

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
        try:
            for index, items in bundles.items():
                same = tuple(map(id, items))
                frames = encoded[same] = encoded.get(same) or self._encode(items)
                codec.send(self._router, frames, to=b"%d" % index, shared=self._shared_senders.get(index))
        except zmq.ZMQError:
            self._raise_death([])

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

    def _raise_death(self, lost: Sequence[int]) -> NoReturn:
        """Raise an error for a worker that has ended or cannot be reached; `lost` are the lost connections."""
        ended = self._host.first_ended(lost)
        if ended is None:
            raise DataflowError("a worker cannot be reached", detail="its connection is lost", hint=_RESTART_HINT)
        if ended.worker is None:
            raise DataflowError("the workers have ended", detail=ended.how, hint=_RESTART_HINT)
        report = self._crash_report(ended.worker) if ended.crashed else None
        if report is not None:
            detail = f"{report.reason}\n{report.trace}"
            raise DataflowError(f"worker {ended.worker} has failed", detail=detail, hint=_RESTART_HINT)
        detail = f"{ended.how}; its shard of every arrangement is gone"
        raise DataflowError(f"worker {ended.worker} has died", detail=detail, hint=_RESTART_HINT)

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
            frames = codec.encode([Stop()])
            for index in range(self.size):
                with suppress(zmq.ZMQError):  # it has ended already, or never started
                    codec.send(self._router, frames, to=b"%d" % index)
            self._host.close()
        finally:
            self._sockets.close()
            self._memory.close()
            self._wakeup_sender.close()
            self._wakeup_receiver.close()
            self._ended.set()
            for call in list(self._calls.values()):
                call.wake()


class PendingCall:
    """A request and its answers. When its `with` block ends it is removed, answered or not."""

    def __init__(self, connections: WorkerConnections, number: int, workers: Sequence[int]) -> None:
        self.number, self._connections, self._workers = number, connections, workers
        self._values: dict[int, Any] = {}
        self._refusal: Refusal | None = None
        self._woken = threading.Event()

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
        self._woken.set()

    def wait(self, seconds: float = float("inf")) -> bool:
        """Wait until the call is over, for at most `seconds`. Return whether it is; raises if a worker has ended."""
        deadline = time.monotonic() + seconds
        while not self._woken.is_set() and (left := deadline - time.monotonic()) > 0:
            self._woken.wait(min(left, _PROCESS_CHECK_SECONDS))
        if not self.is_over and self._woken.is_set():
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
