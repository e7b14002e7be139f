"""A worker process: a worker, its sockets, and the loop between them.

The loop receives messages, lets the worker do a quantum of work, sends the results, and blocks if there is nothing to
do: an idle worker uses no processor time. All messages of a step for the same peer are sent as one.

Idle time. After `_QUIET_MS` without messages and work, the worker imports the modules that plans mention, and then
merges its traces, a piece at a time, for as long as nothing arrives. So a message waits for at most one piece, and none
that follows soon after another waits at all.

Requests of the driver and of clients are answered as soon as possible: pending requests are tried again after every
turn in which anything happened. Look-ups that the driver has sent together are also answered together, in one message.
`Idle` is answered when a step had nothing to do. Notifications are sent to the driver before any later answer, so that
a thread that has an answer has received all earlier notifications.

An exception inside a dataflow is handled by the worker, and fails that dataflow. An exception while a request is
answered, or while a client's rows are staged, refuses that request. Any other exception ends the process: it is
reported to the driver first, and the other processes of the cluster end too.

Clients are not trusted. What they send is never unpickled (`ikebana.cluster.client_protocol`), and every request is
checked against the grant of the client's key (`ikebana.cluster.client_keys`). A client that sends what cannot be
decoded is logged, told so, and not listened to any more; others are not affected.

Cost: a message through a socket costs its sender and its receiver about 50 us of processor time each, and as much again
in ZeroMQ's own thread; one through a pipe (`ikebana.cluster.pipes`) a fourth of that. Not guaranteed: that requests of
clients that have disappeared are removed before they can be answered; a client can have at most `_MAX_PENDING` of them.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import zmq

from ikebana.cluster import client_protocol, codec, launch
from ikebana.cluster.authentication import CLIENTS, MEMBERS, Socket, Sockets
from ikebana.cluster.client_keys import KnownKeys
from ikebana.cluster.client_protocol import ClientQuestion, ClientRequest, VersionError, Welcome
from ikebana.cluster.enrolment import enrol
from ikebana.cluster.links import DRIVER, InOrder, Link
from ikebana.cluster.pipes import PipeReader
from ikebana.cluster.plain import UndecodableError
from ikebana.cluster.plans import KeptPlans, SealedInstall
from ikebana.cluster.protocol import (
    Ask,
    CancelRequest,
    Counts,
    Crash,
    Greeting,
    Idle,
    Notification,
    PeerAddresses,
    Ready,
    Refusal,
    Reply,
    Response,
    SetGrant,
    StopProcess,
    WorkerHello,
)
from ikebana.cluster.shared_memory import SharedMemory
from ikebana.encoding.spill_files import SpillFiles
from ikebana.errors import DataflowError, IkebanaError
from ikebana.runtime.memory_budget import (
    default_limit,
    keep_freed_memory,
    limit_process,
    release_if_mostly_unused,
    release_unused_memory,
    worker_budget,
)
from ikebana.runtime.messages import AskDriver, Failed, Lookup, PeerMessage, Stage
from ikebana.runtime.worker import PENDING, Worker

_MESSAGES_PER_TURN = 64
"""How many messages are taken from a socket before the worker gets a turn."""

_WORK_SECONDS = 0.001
"""How long a worker may work before its sockets are polled: polling costs as much as a short step."""

_QUIET_MS = 5
"""After this time without work, the worker begins to merge its traces."""

_IDLE_MS = 300
"""After this time without work, unused memory is returned to the system."""

_MEMORY_CHECK_SECONDS = 10.0
"""How often a worker that is never idle checks whether it keeps much unused memory."""

_CRASH_REPORT_MS = 1000
"""How long a crashed process tries to send its report to the driver."""

_MAX_PENDING = 64
"""How many requests of a client may be unanswered."""

_MAX_REJECTED = 10_000
"""How many clients that are not listened to any more are remembered."""

USED_BY_PLANS = ("ikebana.expressions", "ikebana.operators.expression_steps", "ikebana.reducers.sums.aggregating")
"""Modules that are imported in idle time: together they take 80 ms, for which the first query would have to wait."""

_log = logging.getLogger(__name__)

_DRIVER = b""
"""The driver as the sender of a request; clients have names given by ZeroMQ, which are never empty."""


def _raise_descriptor_limit() -> None:
    """Use as many file descriptors as the system allows: clients, and segments of shared memory, need many."""
    try:
        import resource
    except ImportError:  # not Unix
        return
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


_MOST_DESCRIPTORS = 1 << 16


def main() -> None:
    """Run a worker process."""
    _raise_descriptor_limit()
    config = launch.read_config()
    launch.exit_with_driver(config)
    if not config.secret:
        try:
            config = enrol(config)
        except DataflowError as error:  # the driver has ended, or was interrupted: it says so itself
            sys.exit(str(error))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # show at once what users print
    gc.set_threshold(50_000, 20, 20)  # dataflows make little garbage in cycles, and searches for it delay small changes
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
        self._sockets = Sockets(config.keys, config.listen_address, heartbeat=config.watches_connections)
        self._sockets.allow(MEMBERS, members)
        connections = config.workers - 1 + config.watches_connections  # of the peers, and perhaps of the driver
        self._inbox, self._endpoint = self._sockets.listen(zmq.PULL, expected=connections)
        self._clients, self._client_endpoint = self._sockets.listen(zmq.ROUTER, CLIENTS)
        driver_key = config.driver_key.encode()
        self._driver = self._sockets.connect(zmq.DEALER, config.driver, driver_key, b"%d" % config.index)
        self._to_driver, self._to_peers = Link(self._driver, config.index), dict[int, Link]()
        self._memory, self._pipe = SharedMemory(config.workers), PipeReader()
        self._arrived = InOrder(self._memory)
        self._poller = zmq.Poller()
        for source in (self._driver, self._inbox, self._clients, self._pipe.fileno()):
            self._poller.register(source, zmq.POLLIN)
        self._readable: set[Any] | None = None  # where something has arrived; None if that is not known
        self._stop_watching: list[Callable[[], None]] = []
        if config.watches_connections:
            self._stop_watching.append(launch.exit_with([Sockets.watch(self._driver)]))
        limit = default_limit(config.workers) if config.memory is None else config.memory
        keep_freed_memory(limit)
        limit_process(limit)
        self._spill = None if config.spill is None else SpillFiles(config.spill, config.spill_bytes)
        budget = worker_budget(limit, config.view_memory, self._spill)
        self.worker = Worker(config.index, config.workers, config.effort, budget, spill=self._spill)
        self._plans = KeptPlans()
        self._sent = self._received = self._taken = 0
        self._pending: dict[tuple[bytes, int], Any] = {}  # requests, by sender and number
        self._keys = KnownKeys()
        self._rejected_clients: dict[bytes, None] = {}  # that have sent what cannot be decoded, oldest first
        self._replies: list[Reply] = []  # to requests of the driver, not sent yet
        self._idle: list[Idle] = []
        self._check_memory_at = 0.0
        self._unimported = list(USED_BY_PLANS)
        self._stopped = False

    def run(self) -> int:
        """Serve until the driver sends `StopProcess`. Return the exit code."""
        try:
            if self._spill is not None:
                self._spill.open()
            self._join()
            while not self._stopped:
                self._turn()
        except BaseException as error:
            reason = traceback.format_exception_only(error)[-1].strip()
            self._to_driver.send(Crash(reason, traceback.format_exc()))
            self._close(linger=_CRASH_REPORT_MS)
            traceback.print_exc()
            return launch.EXIT_CODE_CRASHED
        self._close()
        return 0

    def _close(self, linger: int = 0) -> None:
        self.worker.close()
        for stop in self._stop_watching:
            stop()
        self._driver.close(linger=linger)
        self._sockets.close()
        self._pipe.close()

    def _join(self) -> None:
        """Connect to the driver and to all peers."""
        token = self._memory.attach(self._config.control_block)
        addresses = self._memory.address, token, self._pipe.address
        self._to_driver.send(WorkerHello(self._endpoint, self._client_endpoint, os.getpid(), *addresses))
        peers: PeerAddresses = self._next(self._driver)[0]
        self._to_driver.share(self._memory.connect(peers.tokens[self._config.index]), peers.pipe)
        for index, endpoint in enumerate(peers.endpoints):
            if index != self._config.index:
                key = self._config.worker_keys[index].encode()
                socket = self._sockets.connect(zmq.PUSH, endpoint, key)
                peer = self._to_peers[index] = Link(socket, self._config.index)
                token = self._memory.attach(peers.control_blocks[index])
                peer.send(Greeting(self._config.index, token, self._pipe.address))
        if self._config.watches_connections:
            watches = [Sockets.watch(peer.socket) for peer in self._to_peers.values()]
            self._stop_watching.append(launch.exit_with(watches, grace=True))
        for _ in self._to_peers:
            greeting: Greeting = self._next(self._inbox)
            self._to_peers[greeting.sender].share(self._memory.connect(greeting.token), greeting.pipe)
        self._to_driver.send(Ready())

    def _next(self, socket: Socket) -> Any:
        """Wait for the next message on a socket, of a process that does not know our pipe yet."""
        while not codec.is_readable(socket):
            self._block()
        ((_, message),) = self._arrived.take(codec.receive_frames(socket))
        return message

    def _turn(self) -> None:
        """Receive, work and send once; if there is nothing left to do, answer `Idle` and wait."""
        received = self._receive_all()
        worked = self._work()
        self._send_results()
        if worked or received:
            self._retry_pending()
        if not worked:
            for idle in self._idle:
                self._reply(_DRIVER, Response(idle.number, Counts(self._sent, self._received, self._taken)))
            self._idle = []
            self._send_replies()
            if not self._stopped:
                self._readable = self._block()

    def _work(self) -> bool:
        """Let the worker work for a while, or until it has something to send. Return whether it had anything to do."""
        if not self.worker.step():
            return False
        now = time.perf_counter()
        if now > self._check_memory_at:
            release_if_mostly_unused()
            self._check_memory_at = now + _MEMORY_CHECK_SECONDS
        end = now + _WORK_SECONDS
        while not (self.worker.outbox or self.worker.notifications) and time.perf_counter() < end:
            if not self.worker.step():
                break
        return True

    def _block(self) -> set[Any]:
        """Wait until something arrives; after a while, merge traces, and then release unused memory.

        Return the sockets at which something has arrived, and the pipe's file descriptor if it has there.
        """
        events = self._poller.poll(_QUIET_MS)
        while not events and self._use_idle_time():
            events = self._poller.poll(0)
        events = events or self._poller.poll(_IDLE_MS)
        if not events:
            self._memory.trim()
            release_unused_memory()
            events = self._poller.poll()
        return {source for source, _ in events}

    def _use_idle_time(self) -> bool:
        """Do a piece of the work that nobody waits for. Return whether there may be more."""
        if self._unimported:
            import_module(self._unimported.pop())
            if not self._unimported and not self.worker.flows:  # the objects of dataflows do not live for ever
                gc.freeze()
            return True
        return self.worker.merge_some()

    def _receive_all(self) -> bool:
        """Handle the messages that have arrived. Return whether there were any."""
        readable, self._readable = self._readable, None
        if readable is None:  # the last turn has not waited; asking once for all sockets is cheaper than each
            readable = {source for source, _ in self._poller.poll(0)}
        if not readable:
            return False
        received = self._pipe.fileno() in readable and self._receive_from_pipe()
        for socket in (self._driver, self._inbox):
            received |= socket in readable and self._receive(socket)
        self._send_replies()
        received |= self._clients in readable and self._receive_from_clients()
        return received

    def _receive(self, socket: Socket) -> bool:
        """Handle the messages that have arrived at a socket, up to a limit. Return whether there were any."""
        for count in range(_MESSAGES_PER_TURN):
            if not codec.is_readable(socket):
                return count > 0
            self._handle(codec.receive_frames(socket))
        return True

    def _receive_from_pipe(self) -> bool:
        """Handle the messages that have arrived through the pipe. Return whether there were any."""
        messages = self._pipe.receive()
        for message in messages:
            self._handle([message])
        return bool(messages)

    def _handle(self, frames: codec.Frames) -> None:
        """Handle a message of the driver or of a peer, once its turn has come."""
        for sender, items in self._arrived.take(frames):
            if sender == DRIVER:
                self._handle_driver(items)
            else:
                self._deliver(items)

    # Peer messages and notifications.

    def _deliver(self, messages: list[PeerMessage]) -> None:
        self._received += len(messages)
        for message in messages:
            self.worker.deliver(message)

    def _send_results(self) -> None:
        """Send what the worker has to say, first to its peers: they wait for that, and then notify the driver, too."""
        self._send_to_peers()
        self._send_notifications()

    def _send_to_peers(self) -> None:
        outbox = self.worker.outbox
        self._sent += len(outbox)
        bundles: dict[int, list[PeerMessage]] = {}
        while outbox:
            peer, message = outbox.popleft()
            bundles.setdefault(peer, []).append(message)
        for peer, messages in bundles.items():
            self._to_peers[peer].send(messages)

    def _send_notifications(self) -> None:
        if self.worker.notifications:
            items = list(self.worker.notifications)
            self.worker.notifications.clear()
            self._to_driver.send(Notification(items))

    # The driver.

    def _handle_driver(self, items: list[Any]) -> None:
        for item in items:
            match item:
                case Ask():
                    self._taken += 1
                    self._ask(_DRIVER, item)
                case CancelRequest(number):
                    self._pending.pop((_DRIVER, number), None)
                case SetGrant(number, key, grant):
                    self._sockets.allow(CLIENTS, self._keys.set(key, grant))
                    self._reply(_DRIVER, Response(number))
                case Idle():
                    self._idle.append(item)
                case StopProcess():
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
            self.worker.outbox.extend((peer, failed) for peer in self._to_peers)
        else:
            self.worker.command(command)

    # Clients.

    def _receive_from_clients(self) -> bool:
        """Handle the messages of clients that have arrived, up to a limit. Return whether there were any."""
        for count in range(_MESSAGES_PER_TURN):
            if not codec.is_readable(self._clients):
                return count > 0
            client, first = self._clients.recv(), self._clients.recv(copy=False)
            key = str(first.get("User-Id")).encode()  # of the key with which the client has connected
            frames = codec.receive_frames(self._clients, first)
            if client not in self._rejected_clients:
                self._handle_client(client, key, frames)
        return True

    def _handle_client(self, client: bytes, key: bytes, frames: codec.Frames) -> None:
        try:
            message = client_protocol.decode_request(frames)
        except UndecodableError as error:
            self._reject(client, error)
        except Exception as error:  # whatever a client sends, it must not end this process
            self._reject(client, UndecodableError("a message is not valid", detail=f"{type(error).__name__}: {error}"))
        else:
            if isinstance(message, CancelRequest):
                self._pending.pop((client, message.number), None)
            else:
                self._taken += 1
                self._ask_of_client(client, key, message.number, message.request)

    def _reject(self, client: bytes, error: UndecodableError) -> None:
        """Refuse everything that a client sends from now on."""
        _log.warning("worker %d rejects a client: %s (%s)", self._config.index, error.what, error.detail)
        self._rejected_clients[client] = None
        if len(self._rejected_clients) > _MAX_REJECTED:
            del self._rejected_clients[next(iter(self._rejected_clients))]
        for pending in [pending for pending in self._pending if pending[0] == client]:
            del self._pending[pending]
        number = error.number if isinstance(error, VersionError) else 0
        self._reply(client, Refusal.of(number, DataflowError(error.what, detail=error.detail, hint=error.hint)))

    def _ask_of_client(self, client: bytes, key: bytes, number: int, request: ClientRequest) -> None:
        """Answer a client's request, if its key allows that."""
        try:
            server = self._keys.check(key, request)
            match request:
                case client_protocol.ClientHello():
                    self._reply(client, Response(number, Welcome()))
                case Stage():
                    self.worker.stage_checked(request)
                    self._reply(client, Response(number))
                case ClientQuestion(content):
                    self._ask_later(client, number, AskDriver(server, secrets.randbits(62), content, key))
                case _:
                    self._ask_later(client, number, request)
        except Exception as error:
            self._reply(client, Refusal.of(number, _as_ikebana_error(error, request)))

    def _ask_later(self, client: bytes, number: int, request: Any) -> None:
        if sum(sender == client for sender, _ in self._pending) >= _MAX_PENDING:
            raise DataflowError(f"a client has {_MAX_PENDING} unanswered requests", hint="wait for answers first")
        self._ask(client, Ask(number, request))

    # Requests.

    def _ask(self, sender: bytes, ask: Ask) -> None:
        if not self._try_to_answer(sender, ask.number, ask.request):
            self._pending[sender, ask.number] = ask.request

    def _retry_pending(self) -> None:
        for (sender, number), request in list(self._pending.items()):
            if self._try_to_answer(sender, number, request):
                del self._pending[sender, number]
        self._send_replies()

    def _try_to_answer(self, sender: bytes, number: int, request: Any) -> bool:
        """Answer or refuse a request, if that is possible yet. Return whether it was."""
        if not isinstance(request, Lookup):  # it may take long, and other answers should not wait
            self._send_replies()
        try:
            value = self.worker.answer(request)
        except Exception as error:
            self._reply(sender, Refusal.of(number, _as_ikebana_error(error, request)))
            return True
        if value is PENDING:
            return False
        self._reply(sender, Response(number, value))
        return True

    def _reply(self, sender: bytes, reply: Reply) -> None:
        """Send a reply to a client; keep one to the driver for `_send_replies`."""
        if sender == _DRIVER:
            self._replies.append(reply)
        else:
            codec.send(self._clients, _encoded(reply, client_protocol.encode_reply), to=sender)

    def _send_replies(self) -> None:
        """Send the driver all replies to its requests, as one message if possible."""
        replies, self._replies = self._replies, []
        if not replies:
            return
        self._send_notifications()
        try:
            messages = [codec.encode(replies)]
        except Exception:  # at least one of them cannot be sent
            messages = [_encoded(reply, lambda reply: codec.encode([reply])) for reply in replies]
        for frames in messages:
            self._to_driver.send_frames(frames)


def _encoded(reply: Reply, encode: Callable[[Reply], codec.Frames]) -> codec.Frames:
    """The frames of a reply; if it cannot be encoded, those of a refusal."""
    try:
        return encode(reply)
    except Exception as error:
        return encode(Refusal.of(reply.number, _as_ikebana_error(error, reply)))


def _as_ikebana_error(error: Exception, request: Any) -> IkebanaError:
    """The error itself, or an error that names the request that failed."""
    if isinstance(error, IkebanaError):
        return error
    shortened = textwrap.shorten(repr(request), 120)
    return DataflowError(f"cannot answer {shortened}", detail=f"{type(error).__name__}: {error}")
