"""The kernels of exchanges: what one worker sends is what another receives, and what their twins say."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.kernels import layout, opcodes
from tests.kernels import naive
from tests.kernels.arrays import JUNK, NUMBERS, STRINGS
from tests.kernels.program_traces import address_of

ROOM, LABEL = 8, -5
KEY, NUMBER, TEXT = range(1, 4)  # slots that are sent; those that arrive are after them
SLOTS, SOURCE, TARGET = 7, 1, 2
Row = tuple[int, int, bytes]


def exchange() -> np.ndarray:
    """A program of one exchange, of a key, a number and a text."""
    cells = [opcodes.EXCHANGE, 0, SOURCE, TARGET, KEY, 3, KEY, NUMBER, TEXT, 4, 5, 6, 0, 0, 1]
    cells[1] = len(cells)
    return np.array(cells, np.int64)


def registers(rows: list[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An arena and counts with the rows in the source's register, and the bytes of their texts."""
    arena, counts = np.full((SLOTS, ROOM), JUNK, np.int64), np.zeros(3, np.int64)
    data = np.frombuffer(b"".join(text for _, _, text in rows) + b"end", np.uint8).copy()
    start, counts[SOURCE] = address_of(data), len(rows)
    for at, (key, number, text) in enumerate(rows):
        arena[[KEY, NUMBER, TEXT], at] = key, number, start | len(text) << layout.ADDRESS_BITS
        start += len(text)
    return arena, counts, data


def text_at(reference: int, memory: dict[int, bytes]) -> bytes:
    """The bytes that a reference refers to, in pieces of memory by address."""
    address, length = reference & (1 << layout.ADDRESS_BITS) - 1, reference >> layout.ADDRESS_BITS
    for start, piece in memory.items():
        if length and start <= address < start + len(piece):
            return piece[address - start : address - start + length]
    assert length == 0
    return b""


def arrived(arena: np.ndarray, counts: np.ndarray, *pieces: np.ndarray) -> list[Row]:
    """The rows in the target's register."""
    memory = {address_of(piece): piece.tobytes() for piece in pieces}
    cells = arena[4:7, : counts[TARGET]].T.tolist()
    return [(key, number, text_at(reference, memory)) for key, number, reference in cells]


ROWS: Any = st.lists(st.tuples(NUMBERS, NUMBERS, STRINGS.filter(lambda text: len(text) < 1 << 15)), max_size=ROOM)


def sent(rows: list[Row], worker: int, workers: int, room: int) -> tuple[Any, ...]:
    """What `send_rows` does with rows: what it returns, the messages, the registers, and the texts."""
    arena, counts, data = registers(rows)
    buffers, used = np.full((workers, room), JUNK, np.int64), np.zeros(workers, np.int64)
    needed = kernels.send_rows(exchange(), 0, arena, counts, worker, buffers, used, LABEL, address_of(buffers))
    messages = [buffers[peer, :end].copy() for peer, end in enumerate(used.tolist())]
    assert all((buffers[peer, end:] == JUNK).all() for peer, end in enumerate(used.tolist()))
    return needed, messages, arena, counts, data


@given(ROWS, st.integers(1, 4), st.integers(0, 3), st.integers(0, 40))
def test_twin_send_rows(rows: list[Row], workers: int, worker: int, room: int) -> None:
    worker %= workers
    expected = naive.send_rows(rows, 0, workers)
    needed, messages, arena, counts, data = sent(rows, worker, workers, room)
    if needed:
        assert needed > room and not any(map(len, messages))
        needed, messages, arena, counts, data = sent(rows, worker, workers, needed)
        assert not needed
    assert arrived(arena, counts, data) == expected[worker]
    for peer, message in enumerate(messages):
        if peer == worker or not expected[peer]:
            assert not len(message)
            continue
        header = message[: layout.ENTRY_HEADER].tolist()
        assert header == [LABEL, 0, len(expected[peer]), len(message)]
        other, other_counts = np.full((SLOTS, ROOM), JUNK, np.int64), np.zeros(3, np.int64)
        assert kernels.receive_rows(exchange(), other, other_counts, message, 0, address_of(message)) == opcodes.DONE
        assert arrived(other, other_counts, message) == expected[peer]


@given(ROWS, ROWS)
def test_twin_receive_rows(held: list[Row], rows: list[Row]) -> None:
    """Rows from two workers, one after the other."""
    workers = 2
    first, second = (naive.send_rows(part, 0, workers)[1] for part in (held, rows))
    arena, counts = np.full((SLOTS, ROOM), JUNK, np.int64), np.zeros(3, np.int64)
    messages = [sent(part, 0, workers, 1 << 17)[1][1] for part in (held, rows)]
    statuses = [
        kernels.receive_rows(exchange(), arena, counts, message, 0, address_of(message))
        for message in messages
        if len(message)
    ]
    expected = naive.receive_rows(first, second, ROOM)
    assert (opcodes.FULL in statuses) == (expected is None)
    assert arrived(arena, counts, *messages) == (first if expected is None else expected)
