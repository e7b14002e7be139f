"""Links: how a process of a cluster sends messages to another one, in order.

A message goes the cheapest way that is open to it. On one host, small messages go through the receiver's pipe
(`ikebana.cluster.pipes`); larger ones are put into shared memory (`ikebana.cluster.shared_memory`), and only a
descriptor of them goes through the pipe. Everything else goes through the socket, and so does what finds the pipe full.

*Order.* Every message begins with a header: its sender, and its number on the link. A message may overtake another one
that went a different way; `InOrder` keeps it until its predecessors have arrived.

Contract: the receiver takes every message once, in the order in which they were sent.

Cost: see `ikebana.cluster.pipes`; a header of 12 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ikebana.cluster import codec
from ikebana.cluster.authentication import Socket
from ikebana.cluster.pipes import MOST_BYTES, PipeAddress, PipeWriter
from ikebana.cluster.shared_memory import MIN_SHARED_BYTES, Sender, SharedMemory

DRIVER = -1
"""The driver as the sender of a message; workers have their index."""

_HEADER = struct.Struct("<iQ")


class Link:
    """The ways from this process to another one."""

    def __init__(self, socket: Socket, sender: int, to: bytes | None = None) -> None:
        """`sender` is this process; `to` is the receiver if the socket is a router."""
        self.socket, self._sender, self._to, self._number = socket, sender, to, 0
        self._shared: Sender | None = None
        self._pipe: PipeWriter | None = None

    def share(self, shared: Sender | None, pipe: PipeAddress | None) -> None:
        """Use shared memory and the receiver's pipe from now on. `shared` is None if it is on another host."""
        self._shared = shared
        self._pipe = PipeWriter.connect(pipe) if shared is not None else None

    @property
    def shares_memory(self) -> bool:
        """Whether the receiver is known to be on this host."""
        return self._shared is not None

    def send(self, message: Any) -> None:
        """Send a message."""
        self.send_frames(codec.encode(message))

    def send_frames(self, frames: codec.Frames) -> None:
        """Send a message that is encoded already."""
        header = _HEADER.pack(self._sender, self._number)
        self._number += 1
        if len(frames) == 1 and self._pipe is not None and self._pipe.send(header + frames[0]):
            return
        if self._shared is not None:
            descriptor = self._shared.share(frames, MIN_SHARED_BYTES if self._pipe is None else MOST_BYTES)
            if descriptor is not None:
                if self._pipe is not None and self._pipe.send(header + descriptor):
                    return
                frames = [descriptor]
        codec.send(self.socket, [header + frames[0], *frames[1:]], to=self._to)

    def close(self) -> None:
        """Close the pipe."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


class InOrder:
    """Puts the messages that a process receives into the order in which they were sent, sender by sender."""

    def __init__(self, memory: SharedMemory) -> None:
        """`memory` is shared with senders on this host."""
        self._memory = memory
        self._next: dict[int, int] = {}  # by sender
        self._early: dict[tuple[int, int], codec.Frames] = {}  # by sender and number

    def take(self, frames: codec.Frames) -> Iterator[tuple[int, Any]]:
        """Take what has arrived; yield the messages whose turn it is, with their senders."""
        sender, number = _HEADER.unpack_from(frames[0])
        frames[0] = frames[0][_HEADER.size :]
        due = self._next.get(sender, 0)
        self._early[sender, number] = frames
        while frames := self._early.pop((sender, due), []):
            due = self._next[sender] = due + 1
            yield sender, codec.decode_received(frames, self._memory)
