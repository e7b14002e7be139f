"""The driver's line to its workers: one socket, and the thread that owns it.

Any thread hands over what is to be sent (`send`), or asks and waits for the call to be over (`call`). The line's
thread takes what was handed over, in order, bundles what is for one worker into one message, sends it, takes what
workers say, and wakes those who wait. Nobody else touches the socket, so a thread that waits for a slow answer is in
nobody's way, and a caller can be interrupted at any point without leaving half a message behind.

What is handed over with `hold` waits for the next thing that is not: it costs no message of its own.

Ends. The thread ends when the line is closed, or when a worker has ended: then it ends the others, closes the
sockets, and every call under way and every later one raises the same error. All of this happens in the line's thread
alone; it holds no reference to those who use the line, so that losing the last one can close it.

Cost: handing over to the thread and being woken by it adds 0.05 ms to a request and its answer, in the median.
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
from ikebana.cluster.interrupts import deferred
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

_LOOK = 0.5
"""Look at the processes at least this often (seconds). Their lifelines usually tell at once."""

_HELD = 64
"""So many items are held at most."""

_LAST_WORDS = 0.3
"""How long to wait for the report of a worker that has ended."""

_CLOSING = 20.0
"""How long `close` waits for the thread at most: in vain only if it is called by whom the thread waits for."""

_AGAIN = "start the engine again and load the data again"


class WorkerConnections:
    """The driver's socket, its thread, and the calls under way."""

    def __init__(self, sockets: Sockets, hosting: WorkerHost, workers: int, memory: SharedMemory) -> None:
        self._sockets, self._hosting, self.size, self._memory = sockets, hosting, workers, memory
        self._links: dict[int, Sender | None] = {}  # to workers on this host
        self._router, self.endpoint = sockets.listen(zmq.ROUTER)
        self._router.set(zmq.ROUTER_MANDATORY, 1)
        self._owner = os.getpid()
        self._out: deque[tuple[int | None, Any]] = deque()  # to whom, None for all, and what
        self._calls: dict[int, PendingCall] = {}
        self._numbers = itertools.count()
        self._said: dict[int, Any] = {}  # the last thing that a worker said unasked, news apart
        self._listener: Callable[[], Listener | None] = lambda: ignore
        self._watches: list[Socket] = []
        self._error: DataflowError | None = None
        self._closing, self._is_woken = False, False
        self._over = threading.Event()
        self._mouth, self._ear = socket.socketpair()
        for each in (self._mouth, self._ear):
            each.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="ikebana line", daemon=True)

    # Starting, in the thread that starts the cluster.

    def open(self, keys: Sequence[bytes], patience: float) -> list[Hello]:
        """Introduce the workers, whose processes have been started, to each other; returns what they said."""
        self._poller = self._new_poller()
        deadline = time.monotonic() + patience
        self._gather(Hello, deadline)
        hellos: list[Hello] = [self._said[index] for index in range(self.size)]
        if self._hosting.watches_connections:
            self._watch(hellos, keys)
        self._said = {}
        self._out.append((None, self._introduction(hellos)))
        self._send_all()
        self._gather(Ready, deadline)
        self._thread.start()
        return hellos

    def _introduction(self, hellos: Sequence[Hello]) -> PeerAddresses:
        """What all workers are told; from now on memory is shared with those that can."""
        seen = tuple(self._memory.meet(hello.ledger) for hello in hellos)
        self._links = {index: self._memory.link(hello.seen) for index, hello in enumerate(hellos)}
        return PeerAddresses(tuple(hello.endpoint for hello in hellos), tuple(hello.ledger for hello in hellos), seen)

    def _new_poller(self) -> zmq.Poller:
        poller = zmq.Poller()
        for each in (self._router, self._sockets.gate, self._ear.fileno()):
            poller.register(each, zmq.POLLIN)
        for lifeline in self._hosting.lifelines:
            poller.register(lifeline, zmq.POLLIN | zmq.POLLERR)
        return poller

    def _watch(self, hellos: Sequence[Hello], keys: Sequence[bytes]) -> None:
        """Connect to every worker, only to know when the connection is lost."""
        for hello, key in zip(hellos, keys, strict=True):
            watch = Sockets.watch(self._sockets.connect(zmq.PUSH, hello.endpoint, key))
            self._watches.append(watch)
            self._poller.register(watch, zmq.POLLIN)

    def _gather(self, kind: type[Any], deadline: float) -> None:
        while missing := [index for index in range(self.size) if not isinstance(self._said.get(index), kind)]:
            if time.monotonic() > deadline:
                raise DataflowError(
                    f"worker {missing[0]} did not start in time",
                    detail=f"{len(missing)} of {self.size} are missing",
                    hint="give it more `patience`; where Spark hosts the workers, other jobs may hold its slots",
                )
            self._pump(_LOOK)

    # For any thread.

    def listen(self, listener: Listener) -> None:
        """Give news to a function; a method does not keep its object alive."""
        self._listener = weakref.WeakMethod(listener) if inspect.ismethod(listener) else lambda: listener

    def send(self, item: Any, worker: int | None = None, *, hold: bool = False) -> None:
        """Send something to a worker, or to all."""
        self.check()
        self._out.append((worker, item))
        if not hold or len(self._out) > _HELD:
            self._wake()

    def call(self, ask: Callable[[int], Any], worker: int | None = None) -> PendingCall:
        """Send what `ask` makes of the call's number."""
        if threading.get_ident() == self._thread.ident:
            raise DataflowError(
                "a listener cannot ask",
                detail="it is called by the thread that takes the answers",
                hint="hand the news to another thread, and ask there",
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
        """Nobody waits for a call any more."""
        del self._calls[call.number]
        if not call.is_over and not self._over.is_set():
            self._out.append((None, CancelRequest(call.number)))

    def check(self) -> None:
        """Raise if the line is closed, or if a worker has ended."""
        if self._hosting.any_ended() and not self._closing and threading.get_ident() != self._thread.ident:
            self._over.wait(_CLOSING)  # the thread is about to find out how
        if self._over.is_set() or self._closing:
            raise self._fresh_error()

    def close(self) -> None:
        """End the workers, and wait until that is done; not in a fork of the process that started them."""
        if os.getpid() != self._owner or self._over.is_set():
            return
        self._closing = True
        if not self._thread.ident:
            self._end()
        elif threading.get_ident() != self._thread.ident:
            self._wake(always=True)
            self._over.wait(_CLOSING)

    def _fresh_error(self) -> Exception:
        error = self._error
        if error is None:
            return DroppedError("the workers were ended by close()", hint="start another cluster")
        return DataflowError(error.what, detail=error.detail, hint=error.hint)

    def _wake(self, *, always: bool = False) -> None:
        """Wake the line's thread. It sets the mark back before it looks at what there is, so nothing is overlooked."""
        if always or not self._is_woken:
            with deferred(), suppress(OSError):  # it is awake, with more wake-ups than it needs, or has ended
                self._is_woken = True  # never without waking it
                self._mouth.send(b"\0")

    # The thread.

    def _run(self) -> None:
        try:
            while not self._closing:
                self._pump(_LOOK)
        except DataflowError as error:
            self._error = error
        except BaseException as error:
            trace = traceback.format_exc()
            self._error = DataflowError(f"the driver's line has failed: {error}", detail=trace, hint=_AGAIN)
        self._end()

    def _pump(self, seconds: float) -> None:
        """Wait at most so long for anything to come, take what has come, and send what is to be sent."""
        events = dict(self._poller.poll(ceil(seconds * 1000)))
        if not events:
            self._memory.rest()
        if self._ear.fileno() in events:
            with suppress(BlockingIOError):
                self._ear.recv(4096)
            self._is_woken = False
            self._send_all()
        if self._sockets.gate in events:
            self._sockets.authenticate()
        self._take_mail()
        if self._closing:
            return
        ended = [index for index, watch in enumerate(self._watches) if watch in events]
        if ended or any(each in events for each in self._hosting.lifelines) or (not events and self._hosting.look()):
            self._mourn(ended)

    def _take_mail(self) -> None:
        while codec.has_mail(self._router):
            name, message = codec.receive_from(self._router, self._memory)
            index = int(name)
            match message:
                case Answer() | Refusal():
                    call = self._calls.get(message.number)
                    if call is not None:  # else nobody waits for it any more
                        call.take(index, message)
                case Notification(items):
                    for item in items:
                        self._tell(index, item)
                case _:
                    self._said[index] = message

    def _tell(self, worker: int, item: Any) -> None:
        listener = self._listener() or ignore
        try:
            listener(worker, item)
        except Exception:  # a listener's fault is not the workers'
            traceback.print_exc()

    def _send_all(self) -> None:
        """Send every worker what there is for it, as one message."""
        bundles: dict[int, list[Any]] = {}
        while self._out:
            worker, item = self._out.popleft()
            for index in range(self.size) if worker is None else (worker,):
                bundles.setdefault(index, []).append(item)
        try:
            for index, items in bundles.items():
                codec.send(self._router, self._encode(items), to=b"%d" % index, link=self._links.get(index))
        except zmq.ZMQError:
            self._mourn([])

    def _encode(self, items: list[Any]) -> codec.Frames:
        """The message; a request that cannot be written is refused in the worker's name and left out."""
        try:
            return codec.encode(items)
        except Exception:
            return codec.encode([item for item in items if self._can_be_sent(item)])

    def _can_be_sent(self, item: Any) -> bool:
        try:
            codec.encode(item)
        except Exception as error:
            what = DataflowError(f"cannot send {type(item).__name__}", detail=f"{type(error).__name__}: {error}")
            if not isinstance(item, Ask):
                raise what from error
            call = self._calls.get(item.number)
            if call is not None:  # else it was refused already, for another worker
                call.take(-1, Refusal.of(call.number, what))
            return False
        return True

    # Ends.

    def _mourn(self, lost: Sequence[int]) -> NoReturn:
        """A worker has ended, or cannot be reached: say which it was."""
        ended = self._hosting.first_ended(lost)
        if ended is None:
            raise DataflowError("a worker cannot be reached any more", detail="its connection is lost", hint=_AGAIN)
        if ended.worker is None:
            raise DataflowError("the workers have ended", detail=ended.how, hint=_AGAIN)
        report = self._last_words(ended.worker) if ended.crashed else None
        if report is not None:
            detail = f"{report.reason}\n{report.trace}"
            raise DataflowError(f"worker {ended.worker} has failed", detail=detail, hint=_AGAIN)
        detail = f"{ended.how}; its shard of every arrangement is gone"
        raise DataflowError(f"worker {ended.worker} has died", detail=detail, hint=_AGAIN)

    def _last_words(self, index: int) -> Crash | None:
        """The report of a worker that has ended: the last it sent, but perhaps not yet here."""
        deadline = time.monotonic() + _LAST_WORDS
        while (left := deadline - time.monotonic()) > 0:
            self._take_mail()
            said = self._said.get(index)
            if isinstance(said, Crash):
                return said
            self._router.poll(ceil(left * 1000))
        return None

    def _end(self) -> None:
        """End the processes, close the sockets, and wake all who wait."""
        try:
            frames = codec.encode([Stop()])
            for index in range(self.size):
                with suppress(zmq.ZMQError):  # it has ended already, or was never there
                    codec.send(self._router, frames, to=b"%d" % index)
            self._hosting.close()
        finally:
            self._sockets.close()
            self._memory.close()
            self._mouth.close()
            self._ear.close()
            self._over.set()
            for call in list(self._calls.values()):
                call.wake()


class PendingCall:
    """A request under way: it is forgotten when its block ends, answered or not."""

    def __init__(self, line: WorkerConnections, number: int, workers: Sequence[int]) -> None:
        self.number, self._line, self._workers = number, line, workers
        self._values: dict[int, Any] = {}
        self._refusal: Refusal | None = None
        self._woken = threading.Event()

    @property
    def is_over(self) -> bool:
        """Whether all workers that were asked have answered, or one has refused."""
        return len(self._values) == len(self._workers) or self._refusal is not None

    def take(self, index: int, reply: Reply) -> None:
        """A worker's reply."""
        if isinstance(reply, Refusal):
            self._refusal = reply
        else:
            self._values[index] = reply.value
        if self.is_over:
            self.wake()

    def wake(self) -> None:
        """End the waiting."""
        self._woken.set()

    def wait(self, seconds: float = float("inf")) -> bool:
        """Wait until the call is over, or for so long; returns whether it is. Raises when a worker has ended."""
        deadline = time.monotonic() + seconds
        while not self._woken.is_set() and (left := deadline - time.monotonic()) > 0:
            self._woken.wait(min(left, _LOOK))
        if not self.is_over and self._woken.is_set():
            raise self._line._fresh_error()
        return self.is_over

    def result(self) -> list[Any]:
        """The answers by worker; raises what was given in place of one."""
        if self._refusal is not None:
            raise self._refusal.error()
        return [self._values[index] for index in self._workers]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._line.forget(self)
