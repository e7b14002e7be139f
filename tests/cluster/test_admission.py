"""Who does not finish a handshake cannot take descriptors from those who do."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import zmq

from ikebana.cluster import admission, authentication, codec
from ikebana.cluster.authentication import CLIENTS, MAX_FRAME_BYTES, MEMBERS, KeyPair, Socket, Sockets
from ikebana.cluster.network import ListenAddress, host_of, port_of

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
SOON = 5.0


@pytest.fixture(params=["127.0.0.1", "::1"])
def host(request: pytest.FixtureRequest) -> str:
    if request.param == "::1":
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    return str(request.param)


@pytest.fixture
def server(host: str) -> Iterator[Sockets]:
    sockets = Sockets(KeyPair.new(), ListenAddress(host))
    yield sockets
    sockets.close()


@pytest.fixture
def open_sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def raw(endpoint: str, stack: ExitStack, data: bytes = b"") -> socket.socket:
    """A connection that sends some bytes, and then nothing."""
    connection = socket.create_connection((host_of(endpoint), port_of(endpoint)), timeout=SOON)
    stack.enter_context(connection)
    if data:
        connection.sendall(data)
    return connection


def is_closed(connection: socket.socket, seconds: float = 0.0) -> bool:
    """Whether the other side closes a connection within some time."""
    end = time.monotonic() + seconds
    while True:
        if select.select([connection], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                if not connection.recv(4096):
                    return True
            except OSError:
                return True
        elif time.monotonic() >= end:
            return False


def client_of(server: Sockets, endpoint: str, keys: KeyPair, kind: int = zmq.DEALER) -> tuple[Sockets, Socket]:
    sockets = Sockets(keys)
    return sockets, sockets.connect(kind, endpoint, server._keys.public)


def exchange(listening: Socket, connected: Socket) -> str:
    """Send a message, and return the user that the other side sees."""
    codec.send(connected, [b"message"])
    assert listening.poll(SOON * 1000)
    listening.recv()
    frame = listening.recv(copy=False)
    assert frame.bytes == b"message"
    return str(frame.get("User-Id"))


@pytest.mark.parametrize("half", [b"", GREETING[:5], GREETING, GREETING + b"\x04\xc8\x05HELLO" + bytes(60)])
def test_unfinished_handshakes_end(
    host: str, half: bytes, monkeypatch: pytest.MonkeyPatch, open_sockets: ExitStack
) -> None:
    monkeypatch.setattr(authentication, "HANDSHAKE_SECONDS", 0.3)
    sockets = Sockets(KeyPair.new(), ListenAddress(host))
    open_sockets.callback(sockets.close)
    _, endpoint = sockets.listen(zmq.ROUTER, CLIENTS)
    connection = raw(endpoint, open_sockets, half)
    assert is_closed(connection, SOON)


def test_the_default_time_is_seconds() -> None:
    assert 1 <= admission.HANDSHAKE_SECONDS <= 30


def test_500_unfinished_handshakes_keep_nobody_out(server: Sockets, open_sockets: ExitStack) -> None:
    keys = KeyPair.new()
    server.allow(CLIENTS, [keys.public])
    listening, endpoint = server.listen(zmq.ROUTER, CLIENTS)
    idle = [raw(endpoint, open_sockets, GREETING if at % 2 else b"") for at in range(500)]
    sockets, connected = client_of(server, endpoint, keys)
    open_sockets.callback(sockets.close)
    assert exchange(listening, connected) == keys.public.decode()
    end = time.monotonic() + SOON
    while (alive := [c for c in idle if not is_closed(c)]) and len(alive) > admission.MAX_UNFINISHED:
        assert time.monotonic() < end, f"{len(alive)} are still open"
        idle = alive
    raw(endpoint, open_sockets)
    assert exchange(listening, connected) == keys.public.decode()  # what was connected before stays connected


def test_members_connect_once(server: Sockets, open_sockets: ExitStack) -> None:
    keys = KeyPair.new()
    server.allow(MEMBERS, [keys.public])
    listening, endpoint = server.listen(zmq.ROUTER, expected=1)
    sockets, connected = client_of(server, endpoint, keys)
    open_sockets.callback(sockets.close)
    exchange(listening, connected)
    for _ in range(3):
        assert is_closed(raw(endpoint, open_sockets), SOON)
    exchange(listening, connected)


def test_keys_are_allowed_and_forgotten_while_a_socket_listens(server: Sockets, open_sockets: ExitStack) -> None:
    first, second = KeyPair.new(), KeyPair.new()
    listening, endpoint = server.listen(zmq.ROUTER, CLIENTS)
    for keys, others in ((first, second), (second, first)):
        server.allow(CLIENTS, [keys.public])
        sockets, connected = client_of(server, endpoint, keys)
        open_sockets.callback(sockets.close)
        assert exchange(listening, connected) == keys.public.decode()
        sockets, rejected = client_of(server, endpoint, others)
        open_sockets.callback(sockets.close)
        watch = Sockets.watch(rejected)
        codec.send(rejected, [b"message"])
        assert watch.poll(SOON * 1000)
        assert not codec.is_readable(listening)


def test_a_frame_that_is_too_large_ends_its_connection_only(server: Sockets, open_sockets: ExitStack) -> None:
    keys = KeyPair.new()
    server.allow(CLIENTS, [keys.public])
    listening, endpoint = server.listen(zmq.ROUTER, CLIENTS)
    (a, good), (b, bad) = (client_of(server, endpoint, keys) for _ in range(2))
    for sockets in (a, b):
        open_sockets.callback(sockets.close)
    exchange(listening, good)
    watch = Sockets.watch(bad)
    bad.send(bytes(MAX_FRAME_BYTES + 1))
    assert watch.poll(SOON * 1000)
    exchange(listening, good)
