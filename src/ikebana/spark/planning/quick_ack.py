"""Immediate TCP acknowledgements to Java: without them a long answer takes 44 ms instead of one.

Java writes an answer in pieces of 8 kB and waits, before it sends the last one, for the acknowledgement of the others
(Nagle's algorithm); Linux delays an acknowledgement by 40 ms. The JSON of a plan is longer than 8 kB. Inside
`quick_acknowledgements` the socket option `TCP_QUICKACK` is set before every read.

Only the Py4J connection of the calling thread is affected, and it is restored afterwards. Where Py4J has another
structure than expected, or the system lacks the option, nothing is done, and answers are as slow as before.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_BUFFER_BYTES = 1 << 16


@contextmanager
def quick_acknowledgements(gateway: Any) -> Iterator[None]:
    """Acknowledge Java's answers to this thread at once, inside the context."""
    connection = _connection(gateway)
    if connection is None:
        yield
        return
    before = connection.stream
    connection.stream = stream = io.BufferedReader(_QuickAckReader(connection.socket), _BUFFER_BYTES)
    try:
        yield
    finally:
        if connection.stream is stream and not stream.closed:  # Py4J closes a connection that has failed
            connection.stream = before  # no data is left in the buffer: Java sends nothing after an answer


def _connection(gateway: Any) -> Any:
    """This thread's connection, if it has the expected structure."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return None
    try:
        connection = gateway._gateway_client.get_thread_connection()
    except AttributeError:
        return None
    expected = isinstance(getattr(connection, "socket", None), socket.socket) and hasattr(connection, "stream")
    return connection if expected else None


class _QuickAckReader(io.RawIOBase):
    """Reads from a socket and acknowledges at once."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__()
        self._peer = peer

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # lasts for one acknowledgement
        return self._peer.recv_into(buffer)
