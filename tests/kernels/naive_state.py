"""The state of a program that runs in ordinary Python (`naive_program`): registers, traces, and texts in slots."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any

from ikebana.kernels import opcodes
from tests.kernels.words import WORDS, signed

Row = tuple[int, ...]
Payload = tuple[int | bytes | None, ...]
Update = tuple[Any, ...]
GROUP = 5  # operands of a payload column


def text_of(reference: int) -> bytes:
    """The bytes that a slot refers to: an address of 48 bits, and the length."""
    return ctypes.string_at(reference % 2**48, reference % WORDS >> 48)


@cache
def _kept(text: bytes) -> Any:
    return ctypes.create_string_buffer(text)


def reference_to(text: bytes) -> int:
    """A slot that refers to a copy of a text, which is kept."""
    return signed(ctypes.addressof(_kept(text)) | len(text) << 48)


def payload_of(update: Update) -> Payload:
    return update[5] if len(update) > 5 else ()


class Stop(Exception):
    """A program cannot go on: its status, and the trace without room."""

    def __init__(self, status: int, trace: int = 0) -> None:
        self.status, self.trace = status, trace


@dataclass
class PlainTrace:
    """A trace: what is settled, and the memtable, in order, with room for so many rows and bytes of texts.

    The first `keys` columns of the payload are those of the key.
    """

    room: int
    settled: list[Update] = field(default_factory=list)
    memtable: list[Update] = field(default_factory=list)
    heap: int = 0
    keys: int = 0

    def grow(self, rows: int, size: int) -> None:
        """Make room for rows with so many bytes of texts, as `TraceTable.grow` does for one or the other."""
        while len(self.memtable) + rows > self.room:
            self.room = 2 * self.room + 1
        self.heap = max(size, self.heap)

    @property
    def updates(self) -> list[Update]:
        return self.memtable + self.settled


@dataclass
class State:
    """What instructions read and change: slots, counts, traces, and the present time."""

    traces: Sequence[PlainTrace]
    slots: defaultdict[int, list[int]]
    counts: list[int]
    room: int
    now: int
    grows: bool
    """Whether memtables without room get some."""
    coalesced: int = 0
    """How many epochs before `now` count as `now`."""
    round: int = 0

    def epoch(self, update: Update) -> int:
        """The epoch at which an update counts."""
        return self.now if self.now - self.coalesced <= update[2] <= self.now else update[2]

    def rows(self, count: int, slots: Sequence[int]) -> list[Row]:
        """The rows of a register; slot 0 is all zeros."""
        size = self.counts[count]
        return [tuple(self.slots[slot][row] if slot else 0 for slot in slots) for row in range(size)]

    def write(self, count: int, slots: Sequence[int], rows: Sequence[Row]) -> None:
        """Make these the rows of a register."""
        if len(rows) > self.room:
            raise Stop(opcodes.FULL)
        for at, slot in enumerate(slots):
            self.slots[slot] = [row[at] for row in rows]
        self.counts[count] = len(rows)

    def append(self, count: int, slots: Sequence[int], rows: Sequence[Row]) -> None:
        """Add rows to a register."""
        self.write(count, slots, [*self.rows(count, slots), *rows])

    def payload(self, count: int, groups: Sequence[int]) -> list[Payload]:
        """The payload of the rows of a register, whose columns are given by groups."""
        columns = [groups[at : at + GROUP] for at in range(0, len(groups), GROUP)]
        rows = self.rows(count, [slot for column in columns for slot in column[:2]])
        return [
            tuple(
                None if null else text_of(value) if column[4] else value
                for value, null, column in zip(row[::2], row[1::2], columns, strict=True)
            )
            for row in rows
        ]

    def copy(self, source: int, target: int, groups: Sequence[int], positions: Sequence[int]) -> None:
        """Copy the payload of some rows of a register to those of another."""
        columns = [groups[at : at + GROUP] for at in range(0, len(groups), GROUP)]
        for from_, null, to, to_null, _ in columns:
            rows = self.rows(source, [from_, null])
            self.write(target, [to, to_null] if to_null else [to], [rows[at] for at in positions])

    def store(self, trace: int, rows: Sequence[Row], payloads: Sequence[Payload]) -> None:
        """Add rows (key, val, diffs...) to a memtable, at the present time."""
        table = self.traces[trace]
        size = sum(len(cell) for payload in payloads for cell in payload if isinstance(cell, bytes))
        if rows and (len(table.memtable) + len(rows) > table.room or size > table.heap):
            if not self.grows:
                raise Stop(opcodes.SPILL, trace)
            table.grow(len(rows), size)
        table.heap -= size
        table.memtable += [
            (row[0], row[1], self.now, self.round, row[2:], *([payload] if payload else []))
            for row, payload in zip(rows, payloads, strict=True)
        ]
        table.memtable.sort(key=lambda update: update[:4])
        if any(_collide(a, b, table.keys) for a, b in combinations(table.memtable, 2)) and rows:
            raise Stop(opcodes.RAISED)


def _collide(a: Update, b: Update, keys: int) -> bool:
    """Whether updates are equal in a hashed lane, but not in the data behind it."""
    if a[0] != b[0]:
        return False
    first, second = payload_of(a), payload_of(b)
    return first != second if a[1] == b[1] else first[:keys] != second[:keys]
