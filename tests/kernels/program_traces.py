"""Traces of random programs, with payload: for the compiled interpreter, and for its twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ikebana.kernels import layout
from ikebana.kernels.layout import FIRST_DIFF_LANE, HEADER, ROWS, SAVED
from tests.kernels.arrays import GREATEST, JUNK, LEAST
from tests.kernels.naive_state import Payload, PlainTrace, Update, payload_of, text_of
from tests.kernels.words import signed

SMALL_DIFFS = {1: [(1,), (-1,), (3,)], 2: [(1, 1), (-1, 3), (3, -1)]}
TRACE_DIFFS = {1: [*SMALL_DIFFS[1], (LEAST + 1,), (GREATEST,)], 2: [*SMALL_DIFFS[2], (LEAST + 1, 1), (1, GREATEST)]}
"""All odd, so that no product with other diffs than 0 is 0, which it is open whether a probe leaves out."""
REGISTER_DIFFS = {1: [*TRACE_DIFFS[1], (LEAST,)], 2: [*TRACE_DIFFS[2], (0, -1), (LEAST, 2)]}
ROUNDS = 4
"""Rows of traces, and pending rows, are at rounds before this one."""


TEXTS = [b"", b"a", b"abc", b"more than eight bytes", b"more than eight bites"]
_TEXT_BYTES = np.frombuffer(b"".join(TEXTS), np.uint8)
REFERENCES = [
    signed(int(_TEXT_BYTES.ctypes.data) + sum(map(len, TEXTS[:at])) | len(text) << layout.ADDRESS_BITS)
    for at, text in enumerate(TEXTS)
]
"""Slots that refer to these texts."""


def payload_cell(kind: str, column: int, lane: int, variant: int) -> int | bytes | None:
    """A value of a payload column, for rows with this lane."""
    digit = (lane + column + 2 * variant) % (1 + len(TEXTS))
    if not digit:
        return None
    return TEXTS[digit - 1] if kind == "t" else 1000 * digit - 3000


def payload_cells(kinds: str, keys: int, key: int, val: int, variant: int) -> Payload:
    lanes = [key if at < keys else val for at in range(len(kinds))]
    return tuple(payload_cell(kind, at, lanes[at], variant) for at, kind in enumerate(kinds))


def slots_of(cell: int | bytes | None) -> tuple[int, int]:
    """The value and the null flag of a cell."""
    if cell is None:
        return 0, 1
    return (REFERENCES[TEXTS.index(cell)] if isinstance(cell, bytes) else cell), 0


@dataclass(frozen=True)
class TraceCase:
    """A trace: its memtable, with room for so many rows, and its batches; and how their lanes lie in memory."""

    lanes: int
    has_rounds: bool
    room: int
    memtable: list[Update]
    batches: list[list[Update]]
    layouts: list[int]
    payload: str = ""
    keys: int = 0
    heap: int = 0

    @property
    def plain(self) -> PlainTrace:
        settled = [update for batch in self.batches for update in batch]
        return PlainTrace(self.room, settled, list(self.memtable), self.heap, self.keys)


class TraceTable:
    """A trace as the interpreter reads it: a table of addresses (`ikebana.kernels.layout`)."""

    def __init__(self, case: TraceCase) -> None:
        self._case, self._arrays, self._heaps, self._room = case, list[np.ndarray](), list[np.ndarray](), case.room
        first = FIRST_DIFF_LANE + case.lanes
        self._memtable = np.full((first + 2 * len(case.payload), 2 * case.room), JUNK, np.int64)
        self._memtable[:first, : len(case.memtable)] = lanes_of(case.memtable, case.lanes)
        for row, update in enumerate(case.memtable):
            self._memtable[first:, row] = [slot for cell in payload_of(update) for slot in slots_of(cell)]
        cells = [1 + len(case.batches), case.room, case.lanes, -1, len(case.payload), case.keys]
        cells += [*self._new_heap(case.heap), *self._memtable_cells(len(case.memtable))]
        for batch, layout_ in zip(case.batches, case.layouts, strict=True):
            cells += self._cells(lanes_of(batch, case.lanes), layout_)
            for at, kind in enumerate(case.payload):
                cells += self._column_cells(kind, [payload_of(update)[at] for update in batch])
        self._table = np.array(cells, np.int64)
        self._batches = [array.copy() for array in self._arrays]

    @property
    def address(self) -> int:
        return address_of(self._table)

    def _new_heap(self, size: int) -> list[int]:
        """The cells of a header for a heap of so many bytes, which is followed by some that must not change."""
        self._heaps.append(np.full(size + 8, JUNK, np.uint8))
        start = address_of(self._heaps[-1])
        return [start, start + size, start, 0]

    def grow(self) -> None:
        """Make room for the texts that the last insertion has lacked room for, or else for more rows."""
        header, cells = self._table[:HEADER], slice(HEADER, HEADER + len(self._memtable_cells(0)))
        if header[layout.WANTED_BYTES]:
            size = header[layout.WANTED_BYTES] + header[layout.HEAP_END] - header[layout.HEAP]
            header[layout.HEAP : layout.WANTED_BYTES + 1] = self._new_heap(int(size))
            return
        old, room = self._memtable, self._room
        self._room = 2 * room + 1
        self._memtable = np.full((len(old), 2 * self._room), JUNK, np.int64)
        self._memtable[:, :room] = old[:, :room]
        self._memtable[:, self._room : self._room + room] = old[:, room:]
        self._table[cells] = self._memtable_cells(int(self._table[HEADER + ROWS]))
        header[layout.CAPACITY] = self._room

    def _memtable_cells(self, rows: int) -> list[int]:
        pitch = self._memtable.strides[0]
        key, val, epoch, round_, diff = (address_of(self._memtable) + pitch * lane for lane in range(5))
        cells = [rows, key, 8, val, 8, 0, 0, epoch, 8, round_, 8, diff, 8, pitch]
        for at, kind in enumerate(self._case.payload):
            place = diff + pitch * (self._case.lanes + 2 * at)
            cells += [layout.TEXT_SLOT if kind == "t" else layout.SLOT, place, 8, 0, place + pitch, 0]
        return cells

    def _column_cells(self, kind: str, cells: Sequence[int | bytes | None]) -> list[int]:
        """The cells of a payload column of a batch, which starts at the third bit of its bitmap of nulls."""
        valid = np.array([0, 0, 0, *(cell is not None for cell in cells)], np.uint8)
        nulls = np.packbits(valid, bitorder="little")
        if kind == "t":
            texts = [cell if isinstance(cell, bytes) else b"" for cell in cells]
            values = np.cumsum([0, *map(len, texts)], dtype=np.int64)
            data = np.frombuffer(b"".join(texts) + b"!", np.uint8).copy()
        else:
            values, data = np.array([cell or 0 for cell in cells], np.int64), np.zeros(1, np.uint8)
        self._arrays += [nulls, values, data]
        form = layout.TEXT if kind == "t" else layout.SIGNED
        return [form, address_of(values), 8, address_of(data), address_of(nulls), 3]

    def _cells(self, lanes: np.ndarray, layout: int) -> list[int]:
        """The cells of a batch; the digits of the layout say how each lane lies in memory."""
        times, tix = np.unique(lanes[2:4], axis=1, return_inverse=True)
        table = np.ascontiguousarray(times.T if self._case.has_rounds else times.T[:, :1])
        key, val = laid_out(lanes[0], layout), laid_out(lanes[1], layout >> 2)
        diffs = laid_out(lanes[4:], layout >> 4)
        positions = laid_out(tix.reshape(-1).astype(np.int32), layout >> 6)
        self._arrays += [key, val, diffs, positions, table]
        step, round_ = table.strides[0], address_of(table) + 8 if self._case.has_rounds else 0
        return [
            *(lanes.shape[1], address_of(key), key.strides[0], address_of(val), val.strides[0]),
            *(address_of(positions), positions.strides[0], address_of(table), step, round_, step),
            *(address_of(diffs), diffs.strides[1], diffs.strides[0]),
        ]

    def read_memtable(self) -> list[Update]:
        """The rows of the memtable, as the twin has them."""
        rows, first = int(self._table[HEADER + ROWS]), FIRST_DIFF_LANE + self._case.lanes
        return [self._update(row, first) for row in self._memtable[:, :rows].T.tolist()]

    def _update(self, row: list[int], first: int) -> Update:
        pairs = zip(self._case.payload, row[first::2], row[first + 1 :: 2], strict=True)
        payload = tuple(None if null else text_of(value) if kind == "t" else value for kind, value, null in pairs)
        return (*row[:4], tuple(row[4:first]), *([payload] if payload else []))

    def check(self) -> None:
        """The table and the batches are as they were."""
        assert self._table[SAVED] == -1, "a program has not marked the memtable as complete"
        assert all((heap[-8:] == JUNK).all() for heap in self._heaps), "a program has written beyond the heap"
        assert all(map(np.array_equal, self._arrays, self._batches)), "a program has written to a batch"


def lanes_of(updates: Sequence[Update], lanes: int) -> np.ndarray:
    """Updates as lanes: key, value, epoch, round, diffs."""
    return np.array([(*update[:4], *update[4]) for update in updates], np.int64).reshape(-1, 4 + lanes).T


def address_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def laid_out(array: np.ndarray, layout: int) -> np.ndarray:
    """The same cells one after the other, apart from each other, backward, or, if they are equal, as one cell."""
    chosen = layout % 4
    if chosen == 1:
        cells = np.full((*array.shape[:-1], 3 * array.shape[-1]), JUNK, array.dtype)
        cells[..., ::3] = array
        return cells[..., ::3]
    if chosen == 2:
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if chosen == 3 and array.size and (array == array[..., :1]).all():
        cell = np.ascontiguousarray(array[..., :1])
        return as_strided(cell, array.shape, (*cell.strides[:-1], 0))
    return np.ascontiguousarray(array)
