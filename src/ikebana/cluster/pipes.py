"""Pipes between worker processes on one host, for the small messages of sweeps.

ZeroMQ passes a message through a thread of its own in each process, and encrypts it: some 100 us of processor time on
each side, and three changes of threads on the way. A small message between processes of one host is a write to a pipe
instead, and the receiver's own thread is woken by it.

*Address.* Each process has one pipe, from which it receives. Others open its writing end through `/proc`, which the
kernel allows only to processes of the same user, and to root. The address has the pipe's inode number: a file
descriptor that is not this pipe, because the process is on another host or in another namespace, is not used.

*Whole messages.* A message of at most `MOST_BYTES` is written entirely or not at all, however many processes write at
once. Larger messages, and those for which the pipe has no room, go through the sockets (`ikebana.cluster.codec`), and
may be overtaken by later ones: messages between workers say where they belong (`ikebana.runtime.messages`).

Cost: about 5 us of processor time on each side, without encoding. A pipe disappears with its processes.
"""

from __future__ import annotations

import os
import select
import struct
from contextlib import suppress
from typing import TypeAlias

PipeAddress: TypeAlias = tuple[int, int, int]
"""A process id, a file descriptor of that process, and the inode number of the pipe."""

_SIZE = struct.Struct("<I")

MOST_BYTES = select.PIPE_BUF - _SIZE.size
"""The size of the largest message: up to this size a pipe keeps messages of different senders apart."""

_READ_BYTES = 1 << 16  # what a pipe holds


class PipeReader:
    """The pipe from which a process receives."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()  # the writing end stays open, so that others can open it
        os.set_blocking(self._reader, False)
        self._start = b""  # of a message that has been read in part

    @property
    def address(self) -> PipeAddress:
        """What other processes need to open a `PipeWriter`."""
        return os.getpid(), self._writer, os.fstat(self._writer).st_ino

    def fileno(self) -> int:
        """The file descriptor that is readable when there are messages."""
        return self._reader

    def receive(self) -> list[bytes]:
        """The messages that have arrived."""
        try:
            content = os.read(self._reader, _READ_BYTES)
        except BlockingIOError:
            return []
        content = self._start + content
        messages, at = [], 0
        while len(content) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(content, at)
            end = at + _SIZE.size + size
            if end > len(content):
                break
            messages.append(content[at + _SIZE.size : end])
            at = end
        self._start = content[at:]
        return messages

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._reader)
        os.close(self._writer)


class PipeWriter:
    """The pipe of another process. Raises `OSError` if it cannot be opened."""

    def __init__(self, address: PipeAddress) -> None:
        pid, file, inode = address
        self._file = os.open(f"/proc/{pid}/fd/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if os.fstat(self._file).st_ino != inode:
            os.close(self._file)
            raise OSError(f"/proc/{pid}/fd/{file} is not the pipe of an ikebana worker")

    @staticmethod
    def connect(address: PipeAddress | None) -> PipeWriter | None:
        """A writer to the pipe at an address; None if there is none, or it cannot be reached."""
        if address is not None:
            with suppress(OSError):
                return PipeWriter(address)
        return None

    def send(self, message: bytes) -> bool:
        """Send a message; return whether it was sent: not if it is too large, or the pipe has no room for it."""
        if len(message) > MOST_BYTES:
            return False
        try:
            os.write(self._file, _SIZE.pack(len(message)) + message)
        except OSError:  # no room, or the process has ended
            return False
        return True

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._file)
