"""Admission: which connections a process accepts, decided by a thread that is never busy with anything else.

ZeroMQ asks on the socket `zap` (ZeroMQ Authentication Protocol) whether a key is allowed. Each listening socket belongs
to a *domain*, and each domain has its own set of allowed keys. The answer names the key as the user of the connection,
so that the receiver of a message knows which key has sent it.

Connections that have not been authenticated cannot do much, and not for long:

- A handshake must end within `HANDSHAKE_SECONDS`, or ZeroMQ closes the connection.
- If more than `MAX_UNFINISHED` handshakes of a socket are unfinished, the oldest of these connections is closed. So
  idle connections do not keep others out.
- A socket for the members of a cluster expects a known number of connections. Once it has them, every further
  connection is closed at once: members connect when the cluster starts, and never again.

The thread learns of connections from ZeroMQ's events. An event of a new connection tells its file descriptor; the
descriptor may have been closed in the meantime, and even belong to another new connection of the same socket, which is
then closed in its place. ZeroMQ does not tell which connection has finished its handshake, only that one has. The
system tells how much it has received on a connection: a client that does not know the public key of this process cannot
send more than `_UNFINISHED_BYTES` before ZeroMQ closes its connection. A connection that succeeds and ends within
`HANDSHAKE_SECONDS` counts twice, so the number of unfinished handshakes may be underestimated.

Cost: a few system calls for each connection. The compiled kernels of a worker leave the interpreter to this thread, so
that handshakes go on however busy the worker is.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from ikebana.cluster.network import host_of, port_of

HANDSHAKE_SECONDS = 10.0
"""How long a handshake may take."""

MAX_UNFINISHED = 128
"""How many handshakes of a socket may be unfinished at a time."""

_UNFINISHED_BYTES = 64 + 202
"""A client first sends a greeting and a `HELLO` of these sizes (ZMTP 3.1, CURVE); more follows in a handshake."""

_TCP_INFO_BYTES, _BYTES_RECEIVED_AT, _BYTES_RECEIVED = 192, 128, struct.Struct("=Q")
"""Where Linux tells how many bytes were received: `tcpi_bytes_received` of `struct tcp_info`."""

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
_READABLE = int(zmq.POLLIN)


@dataclass(slots=True)
class _Listener:
    """What is known about the connections of a listening socket."""

    monitor: zmq.Socket[bytes]
    endpoint: str  # on which it listens
    expected: int | None  # how many connections there will be; None if that is not known
    clock: Callable[[], float]
    recent: dict[int, float] = field(default_factory=dict)  # when new connections were accepted, by descriptor
    successes: deque[float] = field(default_factory=deque)  # when handshakes have ended well
    finished: int = 0  # how many handshakes have ended well so far

    def take_events(self) -> list[int]:
        """Take all events, and return the descriptors of new connections that are to be closed."""
        refused: list[int] = []
        while int(self.monitor.get(zmq.EVENTS)) & _READABLE:
            event = parse_monitor_message(self.monitor.recv_multipart())
            descriptor, now = event["value"], self.clock()
            match event["event"]:
                case zmq.EVENT_ACCEPTED:
                    self.recent.pop(descriptor, None)  # so that the oldest are first
                    self.recent[descriptor] = now
                    if self.expected is not None and self.finished >= self.expected:
                        refused.append(descriptor)
                    elif self._unfinished(now) > MAX_UNFINISHED:
                        refused.append(self._oldest_unfinished())
                case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self.finished += 1
                    self.successes.append(now)
                case zmq.EVENT_DISCONNECTED:
                    self.recent.pop(descriptor, None)
                    refused = [other for other in refused if other != descriptor]
        return refused

    def _unfinished(self, now: float) -> int:
        """How many handshakes are unfinished; forgets connections that are older than any such handshake."""
        horizon = now - HANDSHAKE_SECONDS
        while self.successes and self.successes[0] < horizon:
            self.successes.popleft()
        while self.recent and next(iter(self.recent.values())) < horizon:
            del self.recent[next(iter(self.recent))]
        return len(self.recent) - len(self.successes)

    def _oldest_unfinished(self) -> int:
        """Forget the oldest connection whose handshake is certainly unfinished, or else the newest; return it."""
        unfinished = (descriptor for descriptor in self.recent if is_unfinished(descriptor, self.endpoint))
        descriptor = next(unfinished, next(reversed(self.recent)))
        del self.recent[descriptor]
        return descriptor


class Admission:
    """The thread that admits connections to the listening sockets of one ZeroMQ context."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], clock: Callable[[], float] = time.monotonic) -> None:
        """Must exist before any socket of the context listens: otherwise ZeroMQ would accept every key."""
        self._zap = context.socket(zmq.REP)
        self._zap.bind(_ZAP_ENDPOINT)
        self._clock = clock
        self._allowed: dict[bytes, frozenset[bytes] | None] = {}  # by domain; None for all keys
        self._listeners: list[_Listener] = []
        self._wakeup_sender, self._wakeup_receiver = socket.socketpair()
        self._is_closing = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="ikebana admission", daemon=True)
        self._thread.start()

    def allow(self, domain: bytes, keys: Iterable[bytes] | None) -> None:
        """Allow only these public keys in a domain, from now on; with None, all keys."""
        self._allowed[domain] = None if keys is None else frozenset(z85.decode(key) for key in keys)

    def guard(self, listening: zmq.Socket[bytes], endpoint: str, expected: int | None) -> None:
        """Limit the connections of a socket that is about to listen, or listens."""
        listener = _Listener(listening.get_monitor_socket(_EVENTS), endpoint, expected, self._clock)
        with self._lock:
            self._listeners.append(listener)
        self._wakeup_sender.send(b"\0")

    def close(self) -> None:
        """End the thread. The sockets that it has used can be closed afterwards."""
        if not self._is_closing:
            self._is_closing = True
            self._wakeup_sender.send(b"\0")
            self._thread.join()
            self._wakeup_sender.close()
            self._wakeup_receiver.close()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._zap, zmq.POLLIN)
        poller.register(self._wakeup_receiver.fileno(), zmq.POLLIN)
        known = 0
        while True:
            events = dict(poller.poll())
            if self._wakeup_receiver.fileno() in events:
                self._wakeup_receiver.recv(64)
                if self._is_closing:
                    return
            with self._lock:
                listeners = list(self._listeners)
            for listener in listeners[known:]:
                poller.register(listener.monitor, zmq.POLLIN)
            known = len(listeners)
            if self._zap in events:
                self._authenticate()
            for listener in listeners:
                for descriptor in listener.take_events():
                    _close_connection(descriptor, listener.endpoint)

    def _authenticate(self) -> None:
        """Answer whether keys are allowed."""
        while int(self._zap.get(zmq.EVENTS)) & _READABLE:
            version, request, domain, _address, _identity, mechanism, *credentials = self._zap.recv_multipart()
            allowed = self._allowed.get(domain, frozenset())
            is_curve = mechanism == b"CURVE" and len(credentials) == 1
            if is_curve and (allowed is None or credentials[0] in allowed):
                reply = [b"200", b"OK", z85.encode(credentials[0]), b""]
            else:
                reply = [b"400", b"not of this cluster", b"", b""]
            self._zap.send_multipart([version, request, *reply])


@contextmanager
def _connection(descriptor: int, endpoint: str) -> Iterator[socket.socket | None]:
    """The connection of a listening socket behind a descriptor; None if it is something else, or closed.

    Needs no further descriptor, since there may be none left.
    """
    family = socket.AF_INET6 if ":" in host_of(endpoint) else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        port = -1
        with suppress(OSError):
            port = connection.getsockname()[1]
        yield connection if port == port_of(endpoint) else None
    finally:
        connection.detach()


def _close_connection(descriptor: int, endpoint: str) -> None:
    """Close a connection: ZeroMQ sees its end."""
    with suppress(OSError), _connection(descriptor, endpoint) as connection:
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)


def is_unfinished(descriptor: int, endpoint: str) -> bool:
    """Whether so little was received on a connection that its handshake cannot be finished; only Linux tells."""
    if sys.platform != "linux":
        return False
    with suppress(OSError, struct.error), _connection(descriptor, endpoint) as connection:
        if connection is not None:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            return int(_BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0]) < _UNFINISHED_BYTES
    return False
