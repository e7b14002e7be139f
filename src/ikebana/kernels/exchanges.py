"""Exchanges of programs: rows of a register to the messages for the workers that own them, and back.

A message is an array of integers. An *entry* has the rows of one exchange for one worker:

    label, position of the instruction, rows, integers of the entry, then each sent slot of all rows, bytes of texts

The slots of texts have offsets into these bytes in place of addresses; that of an empty text, or of a null, is 0.

Contract: nothing is written beyond the end of a buffer or of a register. The rows that a worker keeps are copied to the
register of arriving rows, which the rows of other workers are then appended to.

Cost: a hash for each row, twice, and a copy of its slots and texts.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.hashing import mix
from ikebana.kernels.layout import ADDRESS_BITS, ENTRY_HEADER, ENTRY_POSITION, ENTRY_ROWS, ENTRY_SIZE
from ikebana.kernels.opcodes import DONE, FULL
from ikebana.kernels.texts import copy_text, length_of_text


@helper
def owner_of(key, workers):
    """The worker that owns a key lane, as `ikebana.kernels.hashing.shard_rows` says."""
    return np.int64(mix(np.uint64(key)) % np.uint64(workers))


@helper
def size_of_entry(rows, width, text_bytes):
    """The number of integers of an entry."""
    return ENTRY_HEADER + rows * width + (text_bytes + 7) // 8


@kernel("int(cells, int, slots, cells, int, slots, cells, int, int)")
def send_rows(code, pc, arena, counts, worker, buffers, used, label, address):
    """Append the rows of an exchange to the buffers of the workers that own their keys; keep the rows of `worker`.

    `buffers` has a buffer for each worker, the first of them at an address, and `used` the integers in each. Returns 0,
    or how long buffers must be, if one is too short: then nothing has been written.
    """
    source, target, key, width = code[pc + 2], code[pc + 3], code[pc + 4], code[pc + 5]
    sent, arriving, is_text = pc + 6, pc + 6 + width, pc + 6 + 2 * width
    workers, room = buffers.shape
    rows = counts[source]
    shares, text_bytes = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
    for row in range(rows):
        owner = owner_of(arena[key, row], workers)
        shares[owner] += 1
        for lane in range(width):
            if code[is_text + lane] != 0:
                text_bytes[owner] += length_of_text(arena[code[sent + lane], row])
    longest = 0
    for peer in range(workers):
        if peer != worker and shares[peer] > 0:
            longest = max(longest, used[peer] + size_of_entry(shares[peer], width, text_bytes[peer]))
    if longest > room:
        return longest
    for peer in range(workers):
        if peer != worker and shares[peer] > 0:
            start = used[peer]
            buffers[peer, start], buffers[peer, start + ENTRY_POSITION] = label, pc
            buffers[peer, start + ENTRY_ROWS] = shares[peer]
            buffers[peer, start + ENTRY_SIZE] = size_of_entry(shares[peer], width, text_bytes[peer])
    written, texts_written = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
    for row in range(rows):
        owner = owner_of(arena[key, row], workers)
        at, share, first = written[owner], shares[owner], used[owner] + ENTRY_HEADER
        written[owner] += 1
        for lane in range(width):
            value = arena[code[sent + lane], row]
            if owner == worker:
                arena[code[arriving + lane], at] = value
                continue
            if code[is_text + lane] != 0:
                length = length_of_text(value)
                if length > 0:
                    offset = texts_written[owner]
                    copy_text(value, address + 8 * (owner * room + first + share * width) + offset)
                    texts_written[owner] += length
                    value = np.int64(np.uint64(offset) | (np.uint64(length) << np.uint64(ADDRESS_BITS)))
                else:
                    value = 0
            buffers[owner, first + lane * share + at] = value
    counts[target] = shares[worker]
    for peer in range(workers):
        if peer != worker and shares[peer] > 0:
            used[peer] += size_of_entry(shares[peer], width, text_bytes[peer])
    return 0


@kernel("int(cells, slots, cells, lane, int, int)")
def receive_rows(code, arena, counts, message, at, address):
    """Append the rows of the entry at a position of a message, which is at an address; return `FULL` without room."""
    pc, rows = message[at + ENTRY_POSITION], message[at + ENTRY_ROWS]
    target, width = code[pc + 3], code[pc + 5]
    arriving, is_text = pc + 6 + width, pc + 6 + 2 * width
    start, first = counts[target], at + ENTRY_HEADER
    if start + rows > arena.shape[1]:
        return FULL
    texts = address + 8 * (first + rows * width)
    for lane in range(width):
        slot = code[arriving + lane]
        for row in range(rows):
            value = message[first + lane * rows + row]
            if code[is_text + lane] != 0 and value != 0:
                value += texts
            arena[slot, start + row] = value
    counts[target] = start + rows
    return DONE
