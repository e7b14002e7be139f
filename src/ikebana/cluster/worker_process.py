"""A worker process: a worker, its sockets, and the loop between them.

The loop takes what has come, lets the worker do a quantum of work, sends what that gave, and blocks when there is
nothing to do: an idle worker uses no processor. All letters that a step has for one peer travel as one message.

Requests, of the driver and of guests, are answered as soon as they can be: those that are pending are tried again
after every turn in which anything happened. `Idle` is answered when a step had nothing to do. News go to the driver
before any answer that is given later, so that whoever has an answer has the news before it.

An exception inside a dataflow is the worker's business, and fails that dataflow; one in answering refuses that
request; one in a guest's command refuses that command. Any other ends the process: it is reported to the driver
first, and since the guard watches, all others end with it.

Cost: a message costs its sender and its receiver about 50 us each, of processor time, and as much again in
ZeroMQ's own thread. Not guaranteed: that requests of guests that have gone without a word are forgotten before they can
be answered.
"""

from __future__ import annotations

import ctypes
import os
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias, get_args

import zmq

from ikebana.cluster import codec, launch
from ikebana.cluster.authentication import GUESTS, Socket, Sockets
from ikebana.cluster.protocol import (
    Answer,
    Ask,
    CancelRequest,
    Counts,
    Crash,
    Greeting,
    Hello,
    Idle,
    Notification,
    PeerAddresses,
    Ready,
    Refusal,
    Reply,
    Stop,
)
from ikebana.cluster.shared_memory import Sender, SharedMemory
from ikebana.errors import DataflowError, IkebanaError
from ikebana.runtime.memory_budget import Budget, default_limit, give_memory_back, limit_process
from ikebana.runtime.messages import Command, Failed, PeerMessage
from ikebana.runtime.worker import PENDING, Worker

_AT_ONCE = 64
"""How many messages are taken from a socket before the worker gets a turn."""

_SPELL = 0.001
"""How long (seconds) a worker may work before its sockets are looked at: looking costs as much as a short step does."""

_REST_MS = 300
"""After so long without work, memory that is not used goes back to the system."""

_REPORT_MS = 1000
"""How long an ending process tries to get its report to the driver."""

_Receive: TypeAlias = Callable[[Socket, SharedMemory], Any]

_COMMANDS = get_args(Command)
_DRIVER = b""
"""Who asks, where it is not a guest; guests have names given by ZeroMQ, which are never empty."""


def _keep_less_memory() -> None:
    """Arrays of `_OWN_PAGES` bytes or more go back to the system as soon as they are freed.

    By itself, the C library raises that size with each such array, up to 32 MiB: then ever more memory that nobody uses
    lies between arrays that stay, where queries come and go without a pause.
    """
    with suppress(AttributeError, OSError):  # where the C library has no such function
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES)


_M_MMAP_THRESHOLD, _OWN_PAGES = -3, 4 << 20


def main() -> None:
    """Be a worker process."""
    _keep_less_memory()
    seat = launch.read_config()
    launch.exit_with_driver(seat)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what users print is seen at once
    code = WorkerProcess(seat).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the system frees memory faster than an interpreter that is taken down in order, by 0.2 s


class WorkerProcess:
    """A worker and its sockets."""

    def __init__(self, seat: launch.WorkerConfig) -> None:
        self._seat = seat
        members = [key.encode() for key in (seat.driver_key, *seat.worker_keys) if key != seat.keys.public.decode()]
        self._sockets = Sockets(
            seat.keys, members, seat.host, guests=[seat.guest_key.encode()], heartbeat=seat.watches_connections
        )
        self._inbox, self._endpoint = self._sockets.listen(zmq.PULL)
        self._door, self._door_endpoint = self._sockets.listen(zmq.ROUTER, GUESTS)
        self._driver = self._sockets.connect(zmq.DEALER, seat.driver, seat.driver_key.encode(), b"%d" % seat.index)
        self._peers: dict[int, Socket] = {}
        self._memory = SharedMemory(seat.workers)
        self._links: dict[int, Sender | None] = {}  # to peers on this host
        self._link_to_driver: Sender | None = None
        self._poller = zmq.Poller()
        for socket in (self._sockets.gate, self._driver, self._inbox, self._door):
            self._poller.register(socket, zmq.POLLIN)
        self._end_watches: list[Callable[[], None]] = []
        if seat.watches_connections:
            self._end_watches.append(launch.end_with([Sockets.watch(self._driver)]))
        limit = default_limit(seat.workers) if seat.memory is None else seat.memory
        limit_process(limit)
        self.worker = Worker(seat.index, seat.workers, seat.effort, Budget(limit, seat.view_memory))
        self._sent = self._received = self._taken = 0
        self._pending: dict[tuple[bytes, int], Any] = {}  # by who asked, and its number there
        self._idle: list[Idle] = []
        self._stopped = False

    def run(self) -> int:
        """Serve until told to stop; returns the exit code."""
        try:
            self._join()
            while not self._stopped:
                self._turn()
        except BaseException as error:
            reason = traceback.format_exception_only(error)[-1].strip()
            codec.send(self._driver, codec.encode(Crash(reason, traceback.format_exc())))
            self._close(linger=_REPORT_MS)
            traceback.print_exc()
            return launch.CRASHED
        self._close()
        return 0

    def _close(self, linger: int = 0) -> None:
        for end_watch in self._end_watches:
            end_watch()
        self._driver.close(linger=linger)
        self._sockets.close()

    def _join(self) -> None:
        """Meet the driver and all peers."""
        seen = self._memory.meet(self._seat.ledger)
        self._tell(Hello(self._endpoint, self._door_endpoint, os.getpid(), self._memory.address, seen))
        peers: PeerAddresses = self._next(self._driver)[0]
        self._link_to_driver = self._memory.link(peers.seen[self._seat.index])
        for index, endpoint in enumerate(peers.endpoints):
            if index != self._seat.index:
                key = self._seat.worker_keys[index].encode()
                self._peers[index] = self._sockets.connect(zmq.PUSH, endpoint, key)
                seen = self._memory.meet(peers.ledgers[index])
                codec.send(self._peers[index], codec.encode(Greeting(self._seat.index, seen)))
        if self._seat.watches_connections:
            watches = [Sockets.watch(peer) for peer in self._peers.values()]
            self._end_watches.append(launch.end_with(watches, in_order=True))
        while len(self._links) < len(self._peers):
            greeting: Greeting = self._next(self._inbox)
            self._links[greeting.sender] = self._memory.link(greeting.seen)
        self._tell(Ready())

    def _next(self, socket: Socket) -> Any:
        while not codec.has_mail(socket):
            self._block()
        return codec.receive(socket)

    def _turn(self) -> None:
        self._sockets.authenticate()
        came = self._take(self._driver, self._obey)
        came |= self._take(self._inbox, self._deliver)
        came |= self._take(self._door, self._serve, codec.receive_from)
        worked = self._work()
        self._post()
        if worked or came:
            self._try_again()
        if not worked:
            for idle in self._idle:
                self._reply(_DRIVER, Answer(idle.number, Counts(self._sent, self._received, self._taken)))
            self._idle = []
            if not self._stopped:
                self._block()

    def _work(self) -> bool:
        """Let the worker work for a while, or until it has something to say; returns whether it had anything to do."""
        if not self.worker.step():
            return False
        end = time.perf_counter() + _SPELL
        while not (self.worker.outbox or self.worker.news) and time.perf_counter() < end:
            if not self.worker.step():
                break
        return True

    def _block(self) -> None:
        came = self._poller.poll(_REST_MS)
        if not came:
            self._memory.rest()
            give_memory_back()
            came = self._poller.poll()
        for socket, _ in came:
            if socket is self._sockets.gate:
                self._sockets.authenticate()

    def _take(self, socket: Socket, use: Callable[[Any], None], receive: _Receive = codec.receive) -> bool:
        """Use what has come, within limits; returns whether anything had."""
        for count in range(_AT_ONCE):
            if not codec.has_mail(socket):
                return count > 0
            use(receive(socket, self._memory))
        return True

    # Letters and news.

    def _deliver(self, letters: list[PeerMessage]) -> None:
        self._received += len(letters)
        for letter in letters:
            self.worker.deliver(letter)

    def _post(self) -> None:
        self._tell_news()
        outbox = self.worker.outbox
        if not outbox:
            return
        self._sent += len(outbox)
        bundles: dict[int, list[PeerMessage]] = {}
        while outbox:
            peer, letter = outbox.popleft()
            bundles.setdefault(peer, []).append(letter)
        for peer, letters in bundles.items():
            codec.send(self._peers[peer], codec.encode(letters), link=self._links[peer])

    def _tell_news(self) -> None:
        if self.worker.news:
            items = list(self.worker.news)
            self.worker.news.clear()
            self._tell(Notification(items))

    # The driver.

    def _obey(self, items: list[Any]) -> None:
        for item in items:
            match item:
                case Ask():
                    self._taken += 1
                    self._ask(_DRIVER, item)
                case CancelRequest(number):
                    self._pending.pop((_DRIVER, number), None)
                case Idle():
                    self._idle.append(item)
                case Stop():
                    self._stopped = True
                case codec.Sealed():
                    self._taken += 1
                    self._install(item)
                case _:
                    self._taken += 1
                    self.worker.command(item)

    def _install(self, sealed: codec.Sealed) -> None:
        """A plan that cannot be opened here fails everywhere, and fails alone."""
        try:
            command = sealed.open()
        except Exception as error:
            failed = Failed(sealed.dataflow, self._seat.index, f"{type(error).__name__}: {error}")
            self.worker.deliver(failed)
            self.worker.outbox.extend((peer, failed) for peer in self._peers)
        else:
            self.worker.command(command)

    def _tell(self, message: Any) -> None:
        codec.send(self._driver, codec.encode(message), link=self._link_to_driver)

    # Guests.

    def _serve(self, mail: tuple[bytes, Ask | CancelRequest]) -> None:
        guest, ask = mail
        if isinstance(ask, CancelRequest):
            self._pending.pop((guest, ask.number), None)
            return
        self._taken += 1
        if not isinstance(ask.request, _COMMANDS):
            self._ask(guest, ask)
            return
        try:
            self.worker.command(ask.request)
        except Exception as error:
            self._reply(guest, Refusal.of(ask.number, _as_ours(error, ask.request)))
        else:
            self._reply(guest, Answer(ask.number))

    # Requests.

    def _ask(self, who: bytes, ask: Ask) -> None:
        if not self._answered(who, ask.number, ask.request):
            self._pending[who, ask.number] = ask.request

    def _try_again(self) -> None:
        for (who, number), request in list(self._pending.items()):
            if self._answered(who, number, request):
                del self._pending[who, number]

    def _answered(self, who: bytes, number: int, request: Any) -> bool:
        try:
            value = self.worker.answer(request)
        except Exception as error:
            self._reply(who, Refusal.of(number, _as_ours(error, request)))
            return True
        if value is PENDING:
            return False
        self._reply(who, Answer(number, value))
        return True

    def _reply(self, who: bytes, reply: Reply) -> None:
        try:
            frames = codec.encode(reply)
        except Exception as error:
            frames = codec.encode(Refusal.of(reply.number, _as_ours(error, reply)))
        if who == _DRIVER:
            self._tell_news()
            codec.send(self._driver, frames, link=self._link_to_driver)
        else:
            codec.send(self._door, frames, to=who)


def _as_ours(error: Exception, request: Any) -> IkebanaError:
    """An error that says what failed; one of ours does so already."""
    if isinstance(error, IkebanaError):
        return error
    shown = textwrap.shorten(repr(request), 120)
    return DataflowError(f"cannot answer {shown}", detail=f"{type(error).__name__}: {error}")
