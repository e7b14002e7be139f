"""A worker process: a worker, its sockets, and the loop between them.

The loop receives messages, lets the worker do a quantum of work, sends the results, and blocks if there is nothing to
do: an idle worker uses no processor time. All messages of a step for the same peer are sent as one.

Idle time. After `_QUIET_MS` without messages and work, the worker merges its traces, a piece at a time, for as long as
nothing arrives. So a message waits for at most one piece, and none that follows soon after another waits at all.

Requests of the driver and of clients are answered as soon as possible: pending requests are tried again after every
turn in which anything happened. `Idle` is answered when a step had nothing to do. Notifications are sent to the driver
before any later answer, so that a thread that has an answer has received all earlier notifications.

An exception inside a dataflow is handled by the worker, and fails that dataflow. An exception while a request is
answered, or while a client's command is carried out, refuses that request or command. Any other exception ends the
process: it is reported to the driver first, and the other processes of the cluster end too.

Cost: a message costs its sender and its receiver about 50 us of processor time each, and as much again in ZeroMQ's own
thread. Not guaranteed: that requests of clients that have disappeared are removed before they can be answered.
"""

from __future__ import annotations

import ctypes
import gc
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
from ikebana.cluster.authentication import CLIENTS, Socket, Sockets
from ikebana.cluster.plans import KeptPlans, SealedInstall
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
from ikebana.runtime.memory_budget import Budget, default_limit, limit_process, release_unused_memory
from ikebana.runtime.messages import Command, Failed, PeerMessage
from ikebana.runtime.worker import PENDING, Worker

_MESSAGES_PER_TURN = 64
"""How many messages are taken from a socket before the worker gets a turn."""

_WORK_SECONDS = 0.001
"""How long a worker may work before its sockets are polled: polling costs as much as a short step."""

_QUIET_MS = 5
"""After this time without work, the worker begins to merge its traces."""

_IDLE_MS = 300
"""After this time without work, unused memory is returned to the system."""

_CRASH_REPORT_MS = 1000
"""How long a crashed process tries to send its report to the driver."""

_Receive: TypeAlias = Callable[[Socket, SharedMemory], Any]

_COMMANDS = get_args(Command)
_DRIVER = b""
"""The driver as the sender of a request; clients have names given by ZeroMQ, which are never empty."""


def _set_mmap_threshold() -> None:
    """Return arrays of `_MMAP_BYTES` or more to the system as soon as they are freed.

    By default, the C library raises this threshold with each such array, up to 32 MiB. If queries come and go all the
    time, more and more unused memory then accumulates between the arrays that stay.
    """
    with suppress(AttributeError, OSError):  # the C library has no such function
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


_M_MMAP_THRESHOLD, _MMAP_BYTES = -3, 4 << 20


def main() -> None:
    """Run a worker process."""
    _set_mmap_threshold()
    config = launch.read_config()
    launch.exit_with_driver(config)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # show at once what users print
    gc.freeze()  # modules and classes live for ever: without them a full collection takes 2 ms instead of 50
    code = WorkerProcess(config).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # skips the orderly shutdown of the interpreter, which takes 0.2 s longer


class WorkerProcess:
    """A worker and its sockets."""

    def __init__(self, config: launch.WorkerConfig) -> None:
        self._config, own_key = config, config.keys.public.decode()
        members = [key.encode() for key in (config.driver_key, *config.worker_keys) if key != own_key]
        clients = [config.client_key.encode()]
        heartbeat = config.watches_connections
        self._sockets = Sockets(config.keys, members, config.host, clients=clients, heartbeat=heartbeat)
        self._inbox, self._endpoint = self._sockets.listen(zmq.PULL)
        self._clients, self._client_endpoint = self._sockets.listen(zmq.ROUTER, CLIENTS)
        driver_key = config.driver_key.encode()
        self._driver = self._sockets.connect(zmq.DEALER, config.driver, driver_key, b"%d" % config.index)
        self._peers: dict[int, Socket] = {}
        self._memory = SharedMemory(config.workers)
        self._shared_senders: dict[int, Sender | None] = {}  # to peers on this host
        self._shared_sender_to_driver: Sender | None = None
        self._poller = zmq.Poller()
        for socket in (self._sockets.zap, self._driver, self._inbox, self._clients):
            self._poller.register(socket, zmq.POLLIN)
        self._stop_watching: list[Callable[[], None]] = []
        if config.watches_connections:
            self._stop_watching.append(launch.exit_with([Sockets.watch(self._driver)]))
        limit = default_limit(config.workers) if config.memory is None else config.memory
        limit_process(limit)
        self.worker = Worker(config.index, config.workers, config.effort, Budget(limit, config.view_memory))
        self._plans = KeptPlans()
        self._sent = self._received = self._taken = 0
        self._pending: dict[tuple[bytes, int], Any] = {}  # requests, by sender and number
        self._idle: list[Idle] = []
        self._stopped = False

    def run(self) -> int:
        """Serve until the driver sends `Stop`. Return the exit code."""
        try:
            self._join()
            while not self._stopped:
                self._turn()
        except BaseException as error:
            reason = traceback.format_exception_only(error)[-1].strip()
            codec.send(self._driver, codec.encode(Crash(reason, traceback.format_exc())))
            self._close(linger=_CRASH_REPORT_MS)
            traceback.print_exc()
            return launch.EXIT_CODE_CRASHED
        self._close()
        return 0

    def _close(self, linger: int = 0) -> None:
        for stop in self._stop_watching:
            stop()
        self._driver.close(linger=linger)
        self._sockets.close()

    def _join(self) -> None:
        """Connect to the driver and to all peers."""
        token = self._memory.attach(self._config.control_block)
        self._send_to_driver(Hello(self._endpoint, self._client_endpoint, os.getpid(), self._memory.address, token))
        peers: PeerAddresses = self._next(self._driver)[0]
        self._shared_sender_to_driver = self._memory.connect(peers.tokens[self._config.index])
        for index, endpoint in enumerate(peers.endpoints):
            if index != self._config.index:
                key = self._config.worker_keys[index].encode()
                self._peers[index] = self._sockets.connect(zmq.PUSH, endpoint, key)
                token = self._memory.attach(peers.control_blocks[index])
                codec.send(self._peers[index], codec.encode(Greeting(self._config.index, token)))
        if self._config.watches_connections:
            watches = [Sockets.watch(peer) for peer in self._peers.values()]
            self._stop_watching.append(launch.exit_with(watches, grace=True))
        while len(self._shared_senders) < len(self._peers):
            greeting: Greeting = self._next(self._inbox)
            self._shared_senders[greeting.sender] = self._memory.connect(greeting.token)
        self._send_to_driver(Ready())

    def _next(self, socket: Socket) -> Any:
        """Wait for the next message on a socket."""
        while not codec.is_readable(socket):
            self._block()
        return codec.receive(socket)

    def _turn(self) -> None:
        """Receive, work and send once; if there is nothing left to do, answer `Idle` and wait."""
        self._sockets.authenticate()
        received = self._receive(self._driver, self._handle_driver)
        received |= self._receive(self._inbox, self._deliver)
        received |= self._receive(self._clients, self._handle_client, codec.receive_from)
        worked = self._work()
        self._send_results()
        if worked or received:
            self._retry_pending()
        if not worked:
            for idle in self._idle:
                self._reply(_DRIVER, Answer(idle.number, Counts(self._sent, self._received, self._taken)))
            self._idle = []
            if not self._stopped:
                self._block()

    def _work(self) -> bool:
        """Let the worker work for a while, or until it has something to send. Return whether it had anything to do."""
        if not self.worker.step():
            return False
        end = time.perf_counter() + _WORK_SECONDS
        while not (self.worker.outbox or self.worker.notifications) and time.perf_counter() < end:
            if not self.worker.step():
                break
        return True

    def _block(self) -> None:
        """Wait until something arrives; after a while, merge traces, and then release unused memory."""
        events = self._poller.poll(_QUIET_MS)
        while not events and self.worker.merge_some():
            events = self._poller.poll(0)
        events = events or self._poller.poll(_IDLE_MS)
        if not events:
            self._memory.trim()
            release_unused_memory()
            events = self._poller.poll()
        for socket, _ in events:
            if socket is self._sockets.zap:
                self._sockets.authenticate()

    def _receive(self, socket: Socket, handle: Callable[[Any], None], receive: _Receive = codec.receive) -> bool:
        """Handle the messages that have arrived, up to a limit. Return whether there were any."""
        for count in range(_MESSAGES_PER_TURN):
            if not codec.is_readable(socket):
                return count > 0
            handle(receive(socket, self._memory))
        return True

    # Peer messages and notifications.

    def _deliver(self, messages: list[PeerMessage]) -> None:
        self._received += len(messages)
        for message in messages:
            self.worker.deliver(message)

    def _send_results(self) -> None:
        self._send_notifications()
        outbox = self.worker.outbox
        if not outbox:
            return
        self._sent += len(outbox)
        bundles: dict[int, list[PeerMessage]] = {}
        while outbox:
            peer, message = outbox.popleft()
            bundles.setdefault(peer, []).append(message)
        for peer, messages in bundles.items():
            codec.send(self._peers[peer], codec.encode(messages), shared=self._shared_senders[peer])

    def _send_notifications(self) -> None:
        if self.worker.notifications:
            items = list(self.worker.notifications)
            self.worker.notifications.clear()
            self._send_to_driver(Notification(items))

    # The driver.

    def _handle_driver(self, items: list[Any]) -> None:
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
                case SealedInstall():
                    self._taken += 1
                    self._install(item)
                case _:
                    self._taken += 1
                    self.worker.command(item)

    def _install(self, sealed: SealedInstall) -> None:
        """Install a dataflow. If its plan cannot be unpickled here, the dataflow fails on all workers."""
        try:
            command = self._plans.open(sealed)
        except Exception as error:
            failed = Failed(sealed.dataflow, self._config.index, f"{type(error).__name__}: {error}")
            self.worker.deliver(failed)
            self.worker.outbox.extend((peer, failed) for peer in self._peers)
        else:
            self.worker.command(command)

    def _send_to_driver(self, message: Any) -> None:
        codec.send(self._driver, codec.encode(message), shared=self._shared_sender_to_driver)

    # Clients.

    def _handle_client(self, received: tuple[bytes, Ask | CancelRequest]) -> None:
        client, ask = received
        if isinstance(ask, CancelRequest):
            self._pending.pop((client, ask.number), None)
            return
        self._taken += 1
        if not isinstance(ask.request, _COMMANDS):
            self._ask(client, ask)
            return
        try:
            self.worker.command(ask.request)
        except Exception as error:
            self._reply(client, Refusal.of(ask.number, _as_ikebana_error(error, ask.request)))
        else:
            self._reply(client, Answer(ask.number))

    # Requests.

    def _ask(self, sender: bytes, ask: Ask) -> None:
        if not self._try_to_answer(sender, ask.number, ask.request):
            self._pending[sender, ask.number] = ask.request

    def _retry_pending(self) -> None:
        for (sender, number), request in list(self._pending.items()):
            if self._try_to_answer(sender, number, request):
                del self._pending[sender, number]

    def _try_to_answer(self, sender: bytes, number: int, request: Any) -> bool:
        """Answer or refuse a request, if that is possible yet. Return whether it was."""
        try:
            value = self.worker.answer(request)
        except Exception as error:
            self._reply(sender, Refusal.of(number, _as_ikebana_error(error, request)))
            return True
        if value is PENDING:
            return False
        self._reply(sender, Answer(number, value))
        return True

    def _reply(self, sender: bytes, reply: Reply) -> None:
        try:
            frames = codec.encode(reply)
        except Exception as error:
            frames = codec.encode(Refusal.of(reply.number, _as_ikebana_error(error, reply)))
        if sender == _DRIVER:
            self._send_notifications()
            codec.send(self._driver, frames, shared=self._shared_sender_to_driver)
        else:
            codec.send(self._clients, frames, to=sender)


def _as_ikebana_error(error: Exception, request: Any) -> IkebanaError:
    """The error itself, or an error that names the request that failed."""
    if isinstance(error, IkebanaError):
        return error
    shortened = textwrap.shorten(repr(request), 120)
    return DataflowError(f"cannot answer {shortened}", detail=f"{type(error).__name__}: {error}")
