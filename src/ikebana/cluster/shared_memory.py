"""Shared memory between processes on one host, for messages that are too large to be sent efficiently.

A sender copies the frames of a large message into a *segment*, and sends a descriptor of a few bytes in their place.
The receiver maps the segment, once, and creates read-only arrays on top of it, as it would on top of received frames.
When the last of these arrays is gone, the segment is free, and the sender uses it again. Writing to new pages costs ten
times as much as writing to used ones, so free segments are kept while there is traffic; `trim` releases them.

*No leaks.* Segments are anonymous memory (`memfd_create`): they are in no folder, and disappear with the last process
that has them open or mapped, however the processes end. A receiver opens a sender's segment through `/proc`, which the
kernel allows only to processes of the same user, and to root.

*Same host.* Whether two processes can share memory is not guessed but tried. Each process has a *control block*, a
small segment with a random token. A process that can read another's token (`attach`) sends the token back to it, and
segments are only used for processes that have sent the right one (`connect`). Other machines, and containers with a
process namespace of their own, fail this test.

*The control block* also has a byte for each segment. The sender clears it before it sends the segment, and the receiver
sets it when the segment is free again. So freeing a segment needs no message.

*Bounds.* The segments of a process have at most `_MAX_BYTES` bytes, and there are at most `_MAX_SEGMENTS` of them (each
takes two file descriptors in the sender and one in the receiver), divided equally among the receivers. Frames that do
not fit are sent through the sockets, and so is everything where the system does not provide such memory, or has none
left. Memory is allocated before it is written to, so that a lack of memory is an error here and not a signal later. A
receiver that has no file descriptor left to map a segment uses one that it has kept for this, or waits for one. A
receiver that holds more than half of its sender's segments is told to copy the frames, and to free the segment at
once: data that it keeps for long is in its own memory.

Cost: 10 us a message on each side; copying takes 0.1 ns a byte, and 1 ns the first time a segment is used. Sockets take
0.8 ns a byte, in two processes at once. Not guaranteed: that a fork of a receiver can use arrays after the receiver has
dropped them (with `copies`, a receiver whose arrays may go anywhere gets its own); anything on processors that delay
reads beyond the system call that precedes marking a segment as free.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import struct
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ikebana.encoding.lanes import Array
from ikebana.errors import DataflowError

Address: TypeAlias = tuple[int, int]
"""The address of a control block: a process id, and a file descriptor of that process."""

MIN_SHARED_BYTES = 64 << 10
"""Messages are shared if their large frames have at least this size in total; smaller ones go through sockets."""

_MAX_BYTES = 512 << 20
_MAX_SEGMENTS = 64
_MIN_CAPACITY = 256 << 10
_ALIGNMENT = 64
_TOKEN_BYTES = 32
_NAME = "ikebana"  # shown by system tools
_LEASED, _FREE = 0, 1
_RETRY_SECONDS = 1.0
"""After the system had no memory to share, the next attempt is made after this time."""

_DESCRIPTOR_SECONDS, _DESCRIPTOR_RETRY_SECONDS = 60.0, 0.02
"""How long a receiver waits for a file descriptor if there is none, and how often it tries."""

_DESCRIPTOR = struct.Struct("<4sIIIIQQ?")
_MAGIC = b"mem\0"  # no pickle begins with it


class SharedMemory:
    """The memory that one process shares with others, and that others share with it."""

    def __init__(self, receivers: int, *, copies: bool = False) -> None:
        """`receivers` is the number of processes to send to. With `copies`, received arrays are copies."""
        self._copies, self._spare = copies, _SpareDescriptor()
        self._senders: list[Sender] = []
        self._receivers: dict[Address, _Receiver] = {}
        self._slots = max(1, _MAX_SEGMENTS // max(1, receivers))
        self._limit = _MAX_BYTES // max(1, receivers)
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self.address: Address | None = None
        """The address of the control block; None if the system has no memory to share."""
        with suppress(AttributeError, OSError):  # not supported, or no memory
            self._control_block = _Segment(_TOKEN_BYTES + receivers * self._slots)
            self._control_block.memory[:_TOKEN_BYTES] = self._token
            self.address = os.getpid(), self._control_block.file

    def attach(self, address: Sequence[int] | None) -> bytes:
        """Prepare to receive from another process. Return its token, or nothing if its memory cannot be reached."""
        if not address:
            return b""
        pid, file = address
        try:
            receiver = _Receiver(pid, file, self._spare, copies=self._copies)
        except (OSError, ValueError):
            return b""
        self._receivers[pid, file] = receiver
        return receiver.token

    def connect(self, token: bytes) -> Sender | None:
        """A sender to a process that has read `token` here; None if the token is wrong."""
        if self.address is None or not secrets.compare_digest(token, self._token):
            return None
        first = _TOKEN_BYTES + len(self._senders) * self._slots
        sender = Sender(self.address, self._control_block, range(first, first + self._slots), self._limit)
        self._senders.append(sender)
        return sender

    def frames(self, descriptor: bytes) -> list[Any]:
        """The frames that a descriptor refers to."""
        _, pid, control_block, file, slot, serial, capacity, copy = _DESCRIPTOR.unpack_from(descriptor)
        sizes = np.frombuffer(descriptor, np.uint64, offset=_DESCRIPTOR.size).tolist()
        receiver = self._receivers.get((pid, control_block))
        if receiver is None:
            raise DataflowError("a message is in the memory of a process that is not known here")
        return receiver.frames(_SegmentInfo(file, slot, serial, capacity), sizes, copy=copy)

    def trim(self) -> None:
        """Release segments and mappings that are not in use."""
        for sender in self._senders:
            sender.trim()
        for receiver in self._receivers.values():
            receiver.trim()
        self._spare.acquire()

    def close(self) -> None:
        """Release everything, except mappings that arrays refer to."""
        for sender in self._senders:
            sender.close()
        self._senders.clear()
        self._receivers.clear()
        self._spare.release()
        if self.address is not None:
            self.address = None
            self._control_block.close()


def is_descriptor(frame: Any) -> bool:
    """Whether the first frame of a message is a descriptor and not a pickle."""
    return frame[: len(_MAGIC)] == _MAGIC


# Sending.


class _Segment:
    """A piece of anonymous memory. Raises `OSError` if there is none."""

    def __init__(self, capacity: int, slot: int = 0, serial: int = 0) -> None:
        self.capacity, self.slot, self.serial = capacity, slot, serial
        self.file = os.memfd_create(_NAME)
        try:
            os.posix_fallocate(self.file, 0, capacity)
            self.memory = mmap.mmap(self.file, capacity, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        except BaseException:
            os.close(self.file)
            raise

    def write(self, frames: Sequence[Array], starts: Sequence[int]) -> None:
        content = np.frombuffer(self.memory, np.uint8)
        for frame, start in zip(frames, starts, strict=True):
            content[start : start + len(frame)] = frame

    def close(self) -> None:
        os.close(self.file)
        self.memory.close()


class Sender:
    """The segments in which a process sends to one other."""

    def __init__(self, address: Address, control_block: _Segment, slots: range, limit: int) -> None:
        self._address, self._control_block, self._limit = address, control_block, limit
        self._unused = list(slots)
        self._max_segments = len(slots)
        self._segments: list[_Segment] = []
        self._serial = 0
        self._retry_at = 0.0

    def share(self, frames: Sequence[Any], least: int = MIN_SHARED_BYTES) -> bytes | None:
        """Copy frames into shared memory. Return a descriptor of them, or None if they must be sent by socket: they
        have fewer than `least` bytes, or there is no room.

        The descriptor must be received exactly once.
        """
        arrays = [np.frombuffer(frame, np.uint8) for frame in frames]
        sizes = [len(array) for array in arrays]
        starts = _starts(sizes)
        if starts[-1] < least:
            return None
        segment = self._lease(starts[-1])
        if segment is None:
            return None
        segment.write(arrays, starts[:-1])
        leased = [lease for lease in self._segments if not self._is_free(lease)]
        copy = 2 * len(leased) > self._max_segments or 2 * sum(lease.capacity for lease in leased) > self._limit
        info = segment.file, segment.slot, segment.serial, segment.capacity
        return _DESCRIPTOR.pack(_MAGIC, *self._address, *info, copy) + np.array(sizes, np.uint64).tobytes()

    def _is_free(self, segment: _Segment) -> bool:
        return self._control_block.memory[segment.slot] == _FREE

    def _lease(self, size: int) -> _Segment | None:
        """Lease a segment for `size` bytes: the smallest free one that fits, or else a new one."""
        free = [segment for segment in self._segments if self._is_free(segment)]
        fitting = [segment for segment in free if size <= segment.capacity <= max(4 * size, _MIN_CAPACITY)]
        smallest = min(fitting, key=lambda segment: segment.capacity, default=None)
        segment = smallest or self._new(_capacity(size), free)
        if segment is not None:
            self._control_block.memory[segment.slot] = _LEASED
        return segment

    def _new(self, capacity: int, free: list[_Segment]) -> _Segment | None:
        """A new segment. Drops free segments if it would exceed the bounds; None if there is still no room."""
        if 2 * capacity > self._limit or time.monotonic() < self._retry_at:
            return None
        while not self._unused or sum(segment.capacity for segment in self._segments) + capacity > self._limit:
            if not free:
                return None
            self._drop(free.pop(0))
        self._serial += 1
        try:
            segment = _Segment(capacity, self._unused[-1], self._serial)
        except OSError:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            return None
        self._unused.pop()
        self._segments.append(segment)
        return segment

    def _drop(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        self._unused.append(segment.slot)
        segment.close()

    def trim(self) -> None:
        """Release the free segments."""
        for segment in [segment for segment in self._segments if self._is_free(segment)]:
            self._drop(segment)

    def close(self) -> None:
        """Release all segments, even those that are not received yet."""
        for segment in list(self._segments):
            self._drop(segment)


def _starts(sizes: Sequence[int]) -> list[int]:
    """Where frames of these sizes begin in a segment, and where the last one ends."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT)
    return starts


def _capacity(size: int) -> int:
    """The capacity of a new segment for `size` bytes: at most a quarter more, so that other messages fit too.

    >>> [_capacity(size) >> 10 for size in (1, 1 << 20, 1_100_000, 5_000_000)]
    [256, 1024, 1280, 5120]
    """
    step = max(_MIN_CAPACITY, 1 << (size - 1).bit_length()) // 8
    return max(_MIN_CAPACITY, -(-size // step) * step)


# Receiving.


class _SpareDescriptor:
    """A file descriptor that is kept for the moment when there is no other."""

    def __init__(self) -> None:
        self._file: int | None = None
        self.acquire()

    def acquire(self) -> None:
        """Take a descriptor, if there is one and none was taken yet."""
        if self._file is None:
            with suppress(OSError):
                self._file = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def release(self) -> None:
        """Make the descriptor available."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


@dataclass(frozen=True, slots=True)
class _SegmentInfo:
    """The part of a descriptor that identifies a segment of its sender."""

    file: int
    slot: int
    serial: int
    capacity: int


class _Receiver:
    """The segments that a process receives from one other. Raises `OSError` or `ValueError` if it cannot be reached."""

    def __init__(self, pid: int, control_block: int, spare: _SpareDescriptor, *, copies: bool) -> None:
        self._pid, self._owner, self._copies, self._spare = pid, os.getpid(), copies, spare
        self._control_block = _map(pid, control_block, 0, os.O_RDWR)
        self.token: bytes = self._control_block[:_TOKEN_BYTES]
        self._segments: dict[int, tuple[int, mmap.mmap]] = {}  # by slot: the serial number, and the memory
        self._leases: dict[int, weakref.ref[Array]] = {}  # by slot

    def frames(self, info: _SegmentInfo, sizes: Sequence[int], *, copy: bool) -> list[Any]:
        content: Array = np.frombuffer(self._segment(info), np.uint8)
        starts = _starts(sizes)
        frames = [content[start : start + size] for start, size in zip(starts, sizes, strict=False)]
        if copy or self._copies:
            frames = [frame.copy() for frame in frames]
            self._free(info.slot)
        else:
            self._leases[info.slot] = weakref.ref(content, lambda _: self._free(info.slot))
        return frames

    def _segment(self, info: _SegmentInfo) -> mmap.mmap:
        serial, memory = self._segments.get(info.slot, (0, None))
        if memory is None or serial != info.serial:
            memory = self._map_patiently(info)
            self._segments[info.slot] = info.serial, memory
        return memory

    def _map_patiently(self, info: _SegmentInfo) -> mmap.mmap:
        """Map a segment. Without a free file descriptor, use the spare one, or wait for another.

        The frames are nowhere but in the segment, so without it this process could not go on. Descriptors become free
        soon if it is unfinished connections that have taken them (`ikebana.cluster.admission`).
        """
        deadline = time.monotonic() + _DESCRIPTOR_SECONDS
        while True:
            try:
                return _map(self._pid, info.file, info.capacity, os.O_RDONLY)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() > deadline:
                    raise
            self._spare.release()
            with suppress(OSError):
                return _map(self._pid, info.file, info.capacity, os.O_RDONLY)
            time.sleep(_DESCRIPTOR_RETRY_SECONDS)

    def _free(self, slot: int) -> None:
        """Mark a segment as free: no array refers to it. Not in a fork, whose parent may still have arrays."""
        self._leases.pop(slot, None)
        if os.getpid() == self._owner:
            self._control_block[slot] = _FREE

    def trim(self) -> None:
        """Release the mappings of segments to which no array refers."""
        self._segments = {slot: segment for slot, segment in self._segments.items() if slot in self._leases}


def _map(pid: int, file: int, capacity: int, mode: int) -> mmap.mmap:
    """Map the memory behind a file descriptor of another process; all of it if `capacity` is 0."""
    path = f"/proc/{pid}/fd/{file}"
    if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
        raise ValueError(f"{path} is not shared memory of ikebana")  # the address is from another host
    own = os.open(path, mode | os.O_CLOEXEC)
    try:
        access = mmap.PROT_READ | (mmap.PROT_WRITE if mode == os.O_RDWR else 0)
        return mmap.mmap(own, capacity, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0), access)
    finally:
        os.close(own)
