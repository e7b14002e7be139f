"""A large message on a slow link is not silence. The time limits are short, so that the tests are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import zmq

from ikebana.cluster import authentication, codec
from ikebana.cluster.authentication import CLIENTS, KeyPair, Socket, Sockets
from ikebana.cluster.network import ListenAddress
from tests.cluster.links import SlowLink

TIMEOUT_MS = 250
RATE = 512 << 10
MESSAGE_BYTES = 512 << 10
"""Takes four times as long as a silence may last."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Socket, Socket, Socket]]:
    """A listening socket, one that is connected to it over a slow link, and one that tells if the link is lost."""
    monkeypatch.setattr(authentication, "_HEARTBEAT_MS", 20)
    monkeypatch.setattr(authentication, "_HEARTBEAT_TIMEOUT_MS", TIMEOUT_MS)
    keys = KeyPair.new()
    server, client = Sockets(KeyPair.new(), ListenAddress("127.0.0.1"), heartbeat=True), Sockets(keys, heartbeat=True)
    server.allow(CLIENTS, [keys.public])
    listening, endpoint = server.listen(zmq.ROUTER, CLIENTS)
    with SlowLink(endpoint, RATE) as link:
        connected = client.connect(zmq.DEALER, link.endpoint, server._keys.public)
        yield listening, connected, Sockets.watch(connected)
    client.close()
    server.close()


def test_a_large_message_takes_longer_than_a_silence_may(
    ends: tuple[Socket, Socket, Socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "PART_BYTES", 16 << 10)
    listening, connected, lost = ends
    payload = np.random.default_rng(0).integers(0, 256, MESSAGE_BYTES, np.uint8)
    codec.send(connected, codec.encode({"array": payload}))
    assert listening.poll(10_000)
    name, message = listening.recv(), codec.decode(codec.receive_frames(listening))
    assert (message["array"] == payload).all()
    codec.send(listening, codec.encode(payload), to=name)
    assert connected.poll(10_000)
    assert (codec.decode(codec.receive_frames(connected)) == payload).all()
    assert not lost.poll(0)


def test_without_parts_it_would_be_silence(
    ends: tuple[Socket, Socket, Socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "PART_BYTES", 1 << 30)
    listening, connected, lost = ends
    codec.send(connected, [b"x"])
    assert listening.poll(10_000)
    codec.send(connected, [bytes(MESSAGE_BYTES - 1024)])
    assert lost.poll(10_000)


@pytest.mark.parametrize("parts", [0, 1, 2, 5])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_frames_survive_being_split(monkeypatch: pytest.MonkeyPatch, parts: int, more: int) -> None:
    monkeypatch.setattr(codec, "PART_BYTES", 20_000)
    monkeypatch.setattr(codec, "LARGE", 5_000)
    sizes = [max(0, parts * 20_000 + more), 3, 20_000, 0, max(0, parts * 20_000 + more)]
    frames = [np.random.default_rng(at).bytes(size) for at, size in enumerate(sizes)]
    context = zmq.Context()
    one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    try:
        one.bind("inproc://parts")
        other.connect("inproc://parts")
        codec.send(one, frames)
        codec.send(one, frames[:1])
        assert [bytes(frame) for frame in codec.receive_frames(other)] == frames
        assert [bytes(frame) for frame in codec.receive_frames(other, other.recv(copy=False))] == frames[:1]
    finally:
        context.destroy(linger=0)
