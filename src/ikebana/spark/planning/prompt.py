"""Long answers from Java without a pause: a cure for what py4j suffers on Linux.

Java writes an answer in pieces of 8 kB and waits, before the last one, until the ones before were acknowledged; the
kernel here waits 40 ms before it acknowledges. A plan's JSON is longer than that, so each would cost 44 ms instead of
one. While `prompt_answers` lasts, the kernel is told before each read to acknowledge at once.

Only the connection of the calling thread is concerned, and it is put back as it was. Where py4j is built otherwise
than expected, or the system has no such option, nothing is done, and answers come as slowly as they did.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_BUFFER = 1 << 16


@contextmanager
def prompt_answers(gateway: Any) -> Iterator[None]:
    """Let Java's answers to this thread come without a pause, for as long as the context lasts."""
    connection = _connection(gateway)
    if connection is None:
        yield
        return
    before = connection.stream
    connection.stream = prompt = io.BufferedReader(_Prompt(connection.socket), _BUFFER)
    try:
        yield
    finally:
        if connection.stream is prompt and not prompt.closed:  # py4j closes a connection that has failed
            connection.stream = before  # nothing is left in the other: Java says nothing after an answer


def _connection(gateway: Any) -> Any:
    """This thread's connection, if it is what it is expected to be."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return None
    try:
        connection = gateway._gateway_client.get_thread_connection()
    except AttributeError:
        return None
    expected = isinstance(getattr(connection, "socket", None), socket.socket) and hasattr(connection, "stream")
    return connection if expected else None


class _Prompt(io.RawIOBase):
    """What a socket receives, acknowledged at once."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__()
        self._peer = peer

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # holds for one acknowledgement
        return self._peer.recv_into(buffer)
