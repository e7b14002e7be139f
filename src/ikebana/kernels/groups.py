"""A set of groups, each a pair of a key lane and a value lane: a hash table with open addressing.

A slot of the table has the groups of a key and 64 neighbouring values: the key, the values without their last six bits,
and a bit for each value that is in the set. A slot without bits is empty. The number of slots is a power of two, and at
least eight. A search begins at the slot that a hash determines, except that the hash is the same for eight neighbouring
slots, which are neighbours in the table; it goes on to the next slot until it finds its own or an empty one.

Cost: for groups in order, a cache miss or two for each slot, and 2 ns for each further group of the slot; 24 bytes for
each slot. So sets in which the values of a key are dense take a few bits for each group.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.hashing import mix
from ikebana.kernels.layout import SLOT_CELLS, SLOTS_USED, TAKEN

_KEY, _BLOCK, _BITS = range(SLOT_CELLS)


@helper
def _find(table, key, block, mask):
    """Return where the slot of a key and a block of values is: the one that they have, or the empty one for them."""
    home = mix(np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(block >> 3)) << np.uint64(3)
    slot = np.int64(home | np.uint64(block & 7)) & mask
    while True:
        at = SLOT_CELLS * slot
        if table[at + _BITS] == 0 or (table[at + _KEY] == key and table[at + _BLOCK] == block):
            return at
        slot = (slot + 1) & mask


@kernel("int(cells, cells, lane, lane, lane_out)")
def add_groups(table, state, key, val, rows_out):
    """Add groups to the set, and write the rows of those that were not in it; return how many these are.

    The call ends when five eighths of the slots are taken: `state[TAKEN]` is the number of rows that were considered.
    """
    slots = len(table) // SLOT_CELLS
    used, most = state[SLOTS_USED], 5 * slots // 8
    out, row, at = 0, 0, np.int64(-1)
    while row < len(key):
        block = val[row] >> 6
        if at < 0 or table[at + _KEY] != key[row] or table[at + _BLOCK] != block:
            at = _find(table, key[row], block, slots - 1)
            if table[at + _BITS] == 0:
                if used == most:
                    break
                table[at + _KEY], table[at + _BLOCK] = key[row], block
                used += 1
        bit = np.int64(1) << (val[row] & 63)
        if table[at + _BITS] & bit == 0:
            table[at + _BITS] |= bit
            rows_out[out] = row
            out += 1
        row += 1
    state[SLOTS_USED], state[TAKEN] = used, row
    return out


@kernel("void(cells, cells)")
def copy_groups(table, larger):
    """Copy the groups of a table to an empty one that has more slots."""
    slots = len(larger) // SLOT_CELLS
    for slot in range(len(table) // SLOT_CELLS):
        at = SLOT_CELLS * slot
        if table[at + _BITS] != 0:
            to = _find(larger, table[at + _KEY], table[at + _BLOCK], slots - 1)
            for cell in range(SLOT_CELLS):
                larger[to + cell] = table[at + cell]
