"""Memory that processes on one host share, for what is too large to be sent.

A sender copies the frames of a large message into a *segment* and sends a descriptor in their place, a few bytes that
say where they are. The receiver maps the segment, once, and has arrays on top of it, read-only, as it would have on top
of frames. When the last of these is gone the segment is free, and the sender uses it again: fresh pages cost ten
times what copying into used ones does, so segments are kept as long as there is traffic. `rest` gives them back.

*Nothing can be left behind.* Segments are memory without a name (`memfd_create`): in no folder, and gone with the last
process that has it open or mapped, however processes end. A receiver opens a sender's segment through `/proc`, which
the kernel allows to processes of the same user, and of none other but root.

*The same host* is not guessed but tried. Each process has a *ledger*, a small piece of memory like the others, with
a random token in it. A process that could read another's token (`meet`) says what it has read, and only to one that
says the right thing segments are sent (`link`). Other machines, and containers with processes of their own, fail this.

*The ledger* also has a byte for each segment, which the sender clears before it sends and the receiver sets when the
segment is free again. So giving back costs no message.

*Bounds.* The segments of a process have at most `_LIMIT` bytes, and there are `_SEGMENTS` of them at most (each takes
two file descriptors here and one there), in equal parts for each link. What does not fit, and everything where the
system has no such memory or no more of it, is left to the sockets. Memory is allocated before it is written to, so
that want of it is an error here rather than a signal later. A receiver that holds more than half of a link's
segments is told to copy what comes, and to free it at once: what it keeps for long is in its own memory.

Cost: 10 us a message on each side; copying takes 0.1 ns a byte, and 1 ns the first time a segment is used. Sockets take
0.8 ns a byte, in two processes at once. Not guaranteed: that a fork of a receiver can use arrays after the receiver has
dropped them (`copies` is for receivers whose arrays go anywhere); anything on processors that delay reads beyond the
system call that comes before a segment is marked as free.
"""

from __future__ import annotations

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
"""Where a ledger is: a process, and a file descriptor of it."""

SHARED = 64 << 10
"""Messages whose large frames have so many bytes together are shared; sockets will do for smaller ones."""

_LIMIT = 512 << 20
_SEGMENTS = 64
_SMALLEST = 256 << 10
_ALIGNMENT = 64
_TOKEN = 32
_NAME = "ikebana"  # shown by tools
_LEASED, _FREE = 0, 1
_PAUSE = 1.0
"""After the system had no memory to share, it is not asked again for so long (seconds)."""

_DESCRIPTOR = struct.Struct("<4sIIIIQQ?")
_MARK = b"mem\0"  # no pickle begins with it


class SharedMemory:
    """What one process shares with others, and what others share with it."""

    def __init__(self, links: int, *, copies: bool = False) -> None:
        """`links` is to how many processes it sends; `copies` if arrays that are received shall be its own."""
        self._copies = copies
        self._links: list[Sender] = []
        self._inlets: dict[Address, _Receiver] = {}
        self._slots = max(1, _SEGMENTS // max(1, links))
        self._limit = _LIMIT // max(1, links)
        self._token = secrets.token_bytes(_TOKEN)
        self.address: Address | None = None
        """Where others find the ledger; nowhere if there is no memory to share."""
        with suppress(AttributeError, OSError):  # no such system, or no memory
            self._ledger = _Segment(_TOKEN + links * self._slots)
            self._ledger.memory[:_TOKEN] = self._token
            self.address = os.getpid(), self._ledger.file

    def meet(self, address: Sequence[int] | None) -> bytes:
        """Get ready to receive from another process; returns its token, or nothing if it cannot be reached."""
        if not address:
            return b""
        pid, file = address
        try:
            inlet = _Receiver(pid, file, copies=self._copies)
        except (OSError, ValueError):
            return b""
        self._inlets[pid, file] = inlet
        return inlet.token

    def link(self, seen: bytes) -> Sender | None:
        """A way to send to a process that has seen this token here; none if that is the wrong one."""
        if self.address is None or not secrets.compare_digest(seen, self._token):
            return None
        first = _TOKEN + len(self._links) * self._slots
        link = Sender(self.address, self._ledger, range(first, first + self._slots), self._limit)
        self._links.append(link)
        return link

    def frames(self, descriptor: bytes) -> list[Any]:
        """The frames that a descriptor stands for."""
        _, pid, ledger, file, slot, serial, capacity, copy = _DESCRIPTOR.unpack_from(descriptor)
        sizes = np.frombuffer(descriptor, np.uint64, offset=_DESCRIPTOR.size).tolist()
        inlet = self._inlets.get((pid, ledger))
        if inlet is None:
            raise DataflowError("a message is in the memory of a process that is not known here")
        return inlet.frames(_Place(file, slot, serial, capacity), sizes, copy=copy)

    def rest(self) -> None:
        """Give back what is not in use."""
        for link in self._links:
            link.rest()
        for inlet in self._inlets.values():
            inlet.rest()

    def close(self) -> None:
        """Give everything back, but for what arrays refer to."""
        for link in self._links:
            link.close()
        self._links.clear()
        self._inlets.clear()
        if self.address is not None:
            self.address = None
            self._ledger.close()


def is_descriptor(frame: bytes) -> bool:
    """Whether the first frame of a message is a descriptor rather than a pickle."""
    return frame.startswith(_MARK)


# Sending.


class _Segment:
    """A piece of memory without a name. Raises `OSError` if there is none."""

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
        whole = np.frombuffer(self.memory, np.uint8)
        for frame, start in zip(frames, starts, strict=True):
            whole[start : start + len(frame)] = frame

    def close(self) -> None:
        os.close(self.file)
        self.memory.close()


class Sender:
    """What a process sends to one other."""

    def __init__(self, address: Address, ledger: _Segment, slots: range, limit: int) -> None:
        self._address, self._ledger, self._limit = address, ledger, limit
        self._unused = list(slots)
        self._most = len(slots)
        self._segments: list[_Segment] = []
        self._serial = 0
        self._wait_until = 0.0

    def share(self, frames: Sequence[Any]) -> bytes | None:
        """Copy frames into shared memory; returns the descriptor that stands for them, or nothing if they must be sent.

        They will be received once, and in the order in which they are sent.
        """
        arrays = [np.frombuffer(frame, np.uint8) for frame in frames]
        sizes = [len(array) for array in arrays]
        starts = _starts(sizes)
        if starts[-1] < SHARED:
            return None
        segment = self._take(starts[-1])
        if segment is None:
            return None
        segment.write(arrays, starts[:-1])
        leased = [each for each in self._segments if not self._is_free(each)]
        copy = 2 * len(leased) > self._most or 2 * sum(each.capacity for each in leased) > self._limit
        place = segment.file, segment.slot, segment.serial, segment.capacity
        return _DESCRIPTOR.pack(_MARK, *self._address, *place, copy) + np.array(sizes, np.uint64).tobytes()

    def _is_free(self, segment: _Segment) -> bool:
        return self._ledger.memory[segment.slot] == _FREE

    def _take(self, size: int) -> _Segment | None:
        """A segment for so many bytes, not free any more: the smallest that will do, or else a new one."""
        free = [each for each in self._segments if self._is_free(each)]
        fitting = [each for each in free if size <= each.capacity <= max(4 * size, _SMALLEST)]
        found = min(fitting, key=lambda each: each.capacity, default=None) or self._new(_capacity(size), free)
        if found is not None:
            self._ledger.memory[found.slot] = _LEASED
        return found

    def _new(self, capacity: int, free: list[_Segment]) -> _Segment | None:
        """A new segment, in place of free ones if there are too many; none if they have no room either."""
        if 2 * capacity > self._limit or time.monotonic() < self._wait_until:
            return None
        while not self._unused or sum(each.capacity for each in self._segments) + capacity > self._limit:
            if not free:
                return None
            self._drop(free.pop(0))
        self._serial += 1
        try:
            segment = _Segment(capacity, self._unused[-1], self._serial)
        except OSError:
            self._wait_until = time.monotonic() + _PAUSE
            return None
        self._unused.pop()
        self._segments.append(segment)
        return segment

    def _drop(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        self._unused.append(segment.slot)
        segment.close()

    def rest(self) -> None:
        """Give back segments that are free."""
        for segment in [each for each in self._segments if self._is_free(each)]:
            self._drop(segment)

    def close(self) -> None:
        """Give back all segments, also those under way."""
        for segment in list(self._segments):
            self._drop(segment)


def _starts(sizes: Sequence[int]) -> list[int]:
    """Where frames of these sizes begin in a segment, and where the last ends."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT)
    return starts


def _capacity(size: int) -> int:
    """How large a segment for so many bytes is made: a quarter larger at most, so that others fit it too.

    >>> [_capacity(size) >> 10 for size in (1, 1 << 20, 1_100_000, 5_000_000)]
    [256, 1024, 1280, 5120]
    """
    step = max(_SMALLEST, 1 << (size - 1).bit_length()) // 8
    return max(_SMALLEST, -(-size // step) * step)


# Receiving.


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a segment is: what its sender's descriptor says."""

    file: int
    slot: int
    serial: int
    capacity: int


class _Receiver:
    """What a process receives from one other. Raises `OSError` or `ValueError` if the other is out of reach."""

    def __init__(self, pid: int, ledger: int, *, copies: bool) -> None:
        self._pid, self._owner, self._copies = pid, os.getpid(), copies
        self._ledger = _mapped(pid, ledger, 0, os.O_RDWR)
        self.token: bytes = self._ledger[:_TOKEN]
        self._segments: dict[int, tuple[int, mmap.mmap]] = {}  # by slot: the serial number, and the memory
        self._leases: dict[int, weakref.ref[Array]] = {}  # by slot

    def frames(self, place: _Place, sizes: Sequence[int], *, copy: bool) -> list[Any]:
        whole: Array = np.frombuffer(self._segment(place), np.uint8)
        starts = _starts(sizes)
        parts = [whole[start : start + size] for start, size in zip(starts, sizes, strict=False)]
        if copy or self._copies:
            parts = [part.copy() for part in parts]
            self._free(place.slot)
        else:
            self._leases[place.slot] = weakref.ref(whole, lambda _: self._free(place.slot))
        return parts

    def _segment(self, place: _Place) -> mmap.mmap:
        serial, memory = self._segments.get(place.slot, (0, None))
        if memory is None or serial != place.serial:
            memory = _mapped(self._pid, place.file, place.capacity, os.O_RDONLY)
            self._segments[place.slot] = place.serial, memory
        return memory

    def _free(self, slot: int) -> None:
        """Nobody here refers to a segment any more; in a fork, somebody in the process that has forked may."""
        self._leases.pop(slot, None)
        if os.getpid() == self._owner:
            self._ledger[slot] = _FREE

    def rest(self) -> None:
        """Give back the mappings of segments to which no array refers."""
        self._segments = {slot: found for slot, found in self._segments.items() if slot in self._leases}


def _mapped(pid: int, file: int, capacity: int, mode: int) -> mmap.mmap:
    """The memory behind a file descriptor of another process; all of it for 0."""
    path = f"/proc/{pid}/fd/{file}"
    if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
        raise ValueError(f"{path} is something else")  # of a stranger, on another host than was meant
    here = os.open(path, mode | os.O_CLOEXEC)
    try:
        access = mmap.PROT_READ | (mmap.PROT_WRITE if mode == os.O_RDWR else 0)
        return mmap.mmap(here, capacity, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0), access)
    finally:
        os.close(here)
