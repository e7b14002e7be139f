"""Authenticated and encrypted sockets, for the processes of one cluster and its clients (ZeroMQ with CURVE).

Every process of a cluster has its own key pair, and so has every job of a client. When a connection is made, both sides
prove that they have their keys. A connection whose key is not allowed *at that socket* is rejected before any of its
bytes reach the code that handles messages, and so is one without keys (`ikebana.cluster.admission`). All traffic is
encrypted.

Connections can be monitored: `watch` returns a socket that becomes readable once a connection is lost. This happens at
once when the other process has ended, and with `heartbeat` also when nothing was received from it for 20 s. ZeroMQ's
own threads send and answer heartbeats, so a process that is busy computing is not taken for dead. Every received frame
counts, and large messages are split into frames of `MAX_FRAME_BYTES` (`ikebana.cluster.codec`), so neither is one that
sends a large message over a slow link, as long as a frame arrives every 20 s. Larger frames are not accepted: what
others can make a process allocate before they are authenticated is bounded.

Cost: encryption takes 3 us a frame, and 1.5 ns a byte in the background (80 MB took 0.26 s with encryption and 0.13 s
without). Queues are unbounded: no message is dropped for lack of space, and senders are never blocked. Not guaranteed:
delivery over a connection that breaks while both processes are alive.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import zmq

from ikebana.cluster.admission import HANDSHAKE_SECONDS, Admission
from ikebana.cluster.network import ListenAddress, endpoint, port_of, resolve, resolved
from ikebana.errors import DataflowError, IkebanaError

Socket: TypeAlias = "zmq.Socket[bytes]"

MEMBERS, CLIENTS, NEW_WORKERS = b"members", b"clients", b"new workers"
"""Which keys may connect to a socket: its ZAP domain."""

LOST_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
"""Events after which a connection is unusable."""

READABLE = int(zmq.POLLIN)
"""The event that a message can be received; a plain integer, because operations on ZeroMQ's enum take 7 us."""

MAX_FRAME_BYTES = 512 << 10
"""Larger frames are not accepted."""

_HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS = 1000, 20_000
"""How often heartbeats are sent, and after how long a silence a connection is lost."""

_CLIENT_HANDSHAKE_MS = 30_000
"""How long the side that connects waits for the other: longer than a process that listens gives a handshake."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The key pair of one process, or of one job of a client."""

    public: bytes
    secret: bytes = field(repr=False)

    @staticmethod
    def new() -> KeyPair:
        """A new key pair."""
        return KeyPair(*zmq.curve_keypair())


class Sockets:
    """All sockets of one process of a cluster, or of a client."""

    def __init__(self, keys: KeyPair, address: ListenAddress | None = None, *, heartbeat: bool = False) -> None:
        """`address` is where the sockets listen; None if none of them does."""
        self._keys, self._address, self._heartbeat = keys, address, heartbeat
        self._context = zmq.Context()
        self._admission = Admission(self._context) if address is not None else None

    def allow(self, domain: bytes, keys: Iterable[bytes] | None) -> None:
        """Allow only these public keys to connect to the sockets of a domain; with None, all keys."""
        assert self._admission is not None
        self._admission.allow(domain, keys)

    def listen(self, kind: int, domain: bytes = MEMBERS, *, expected: int | None = None) -> tuple[Socket, str]:
        """A listening socket, to which the keys of a domain may connect, and its endpoint.

        `expected` is how many connections it will ever have, if that is known.
        """
        assert self._address is not None and self._admission is not None
        try:
            address = resolve(self._address.bind or self._address.host)
        except IkebanaError:
            self.close()
            raise
        socket = self._new(kind, address)
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.ZAP_DOMAIN, domain)
        socket.set(zmq.HANDSHAKE_IVL, round(HANDSHAKE_SECONDS * 1000))
        self._bind(socket, address)
        port = port_of(socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0"))
        self._admission.guard(socket, endpoint(address, port), expected)
        return socket, endpoint(self._address.host if self._address.bind else address, port)

    def _bind(self, socket: Socket, address: str) -> None:
        """Bind a socket to the first free port."""
        assert self._address is not None
        for port in self._address.candidates():
            try:
                socket.bind(endpoint(address, port))
                return
            except zmq.ZMQError as error:
                failure = error
                if error.errno != errno.EADDRINUSE:
                    break
        self.close()
        ports = self._address.ports
        if ports is not None and failure.errno == errno.EADDRINUSE:
            raise DataflowError(
                f"no port from {ports[0]} to {ports[1]} is free on {address!r}",
                hint="give a larger range: the driver needs two ports, and so does every worker of a host",
            ) from failure
        raise DataflowError(
            f"cannot listen on {self._address.bind or self._address.host!r}",
            detail=str(failure),
            hint="give an address of this machine",
        ) from failure

    def connect(self, kind: int, endpoint: str, key: bytes, identity: bytes = b"") -> Socket:
        """A socket connected to the process whose public key is `key`."""
        return self._connect(kind, endpoint, key, identity)[0]

    def connect_watched(self, kind: int, endpoint: str, key: bytes, events: int = LOST_EVENTS) -> tuple[Socket, Socket]:
        """A connected socket, and one that becomes readable after any of the events: see `watch`.

        No event is missed. ZeroMQ does not try again after a key was rejected, so there is one event at most, which may
        come before a call of `watch` that follows `connect`.
        """
        socket, monitor = self._connect(kind, endpoint, key, events=events)
        assert monitor is not None
        return socket, monitor

    def _connect(
        self, kind: int, endpoint: str, key: bytes, identity: bytes = b"", events: int = 0
    ) -> tuple[Socket, Socket | None]:
        address = resolved(endpoint)
        socket = self._new(kind, address)
        socket.set(zmq.CURVE_SERVERKEY, key)
        socket.set(zmq.HANDSHAKE_IVL, _CLIENT_HANDSHAKE_MS)
        if identity:
            socket.set(zmq.IDENTITY, identity)
        monitor = self.watch(socket, events) if events else None
        socket.connect(address)
        return socket, monitor

    @staticmethod
    def watch(socket: Socket, events: int = LOST_EVENTS) -> Socket:
        """A socket that becomes readable after any of the events. It may be polled by any one thread."""
        return socket.get_monitor_socket(events)

    def _new(self, kind: int, address: str) -> Socket:
        socket = self._context.socket(kind)
        for option in (zmq.SNDHWM, zmq.RCVHWM, zmq.LINGER):
            socket.set(option, 0)
        socket.set(zmq.IPV6, int("[" in address or address.count(":") > 1))
        socket.set(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        socket.set(zmq.CURVE_PUBLICKEY, self._keys.public)
        socket.set(zmq.CURVE_SECRETKEY, self._keys.secret)
        if self._heartbeat:
            socket.set(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
            socket.set(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
        return socket

    def close(self) -> None:
        """Close all sockets, and drop messages that were not sent yet."""
        if self._admission is not None:
            self._admission.close()
        self._context.destroy(linger=0)
