"""Layouts: of packed rows (`ikebana.kernels.consolidate`), samples of keys (`ikebana.kernels.seek`), filters
(`ikebana.kernels.filters`), sets of groups (`ikebana.kernels.groups`), the state of a merge (`ikebana.kernels.merge`),
and the tables that describe traces to programs, with their memtables (`ikebana.kernels.addresses`).

Kernels and their callers agree on these numbers. The module imports nothing, so that callers need not load kernels.
"""

from __future__ import annotations

MEASURED, ASCENDING, KEY_LOW, KEY_HIGH, VAL_LOW, VAL_HIGH, DIFF_LOW, DIFF_HIGH = range(8)
"""What is known of rows: how many were measured, whether they are in order and all different, and the least and the
greatest entry of each lane."""

MEASURE_CELLS = 8

KEY_FIELD, VAL_FIELD, TIX_FIELD, DIFF_FIELD = 0, 2, 4, 6
"""The fields of packed rows, from the highest bits to the lowest: the least entry of each, and next to it the bits."""

FIELD_CELLS = 8

SAMPLED = 64
"""The number of rows for each key of a sample (`ikebana.kernels.seek`)."""

FILTERED = 8
"""The number of rows for each word of a filter (`ikebana.kernels.filters`)."""

SLOTS_USED, TAKEN = range(2)
"""The state of a set of groups: the slots that are not empty, and the rows taken in the last call."""

GROUP_CELLS = 2

SLOT_CELLS = 3

AT_A, AT_B, WRITTEN, FINAL, DISORDERED, VARIED, LAST, PAIRS = range(8)
"""The cells of the state of a merge."""

MERGE_CELLS = 8

BATCHES, CAPACITY, LANES, SAVED, COLUMNS, KEY_COLUMNS, HEAP, HEAP_END, SAVED_HEAP, WANTED_BYTES = range(10)
"""The header: number of batches with the memtable, rows that fit into the memtable, diff lanes, and the number of rows
that the memtable had before the present program wrote to it (-1 if it has not); payload columns, and how many of them
belong to the key; the addresses of the next free byte for the memtable's texts and of the end of the space for them,
the former as it was before the present program; and the bytes that the last insertion lacked."""

HEADER = 10

GREATEST = (1 << 63) - 1

ROWS, KEY, KEY_STEP, VAL, VAL_STEP, TIX, TIX_STEP, EPOCH, EPOCH_STEP, ROUND, ROUND_STEP = range(11)
DIFF, DIFF_STEP, DIFF_LANE_STEP = range(11, 14)
CELLS = 14

FORM, PLACE, STEP, DATA, NULLS, NULL_BIT = range(6)
COLUMN_CELLS = 6
"""The cells of each payload column of a batch, after those of its lanes: `ikebana.kernels.payloads`."""

SLOT, TEXT_SLOT, SIGNED, UNSIGNED, FLOAT, WIDE, TEXT = range(7)
"""The forms of payload columns: slots as in registers, and arrays of integers, floats, decimals of 128 bits, texts."""

KEY_LANE, VAL_LANE, EPOCH_LANE, ROUND_LANE, FIRST_DIFF_LANE = range(5)
"""The lanes of a memtable. Each lane has twice its capacity: the second half keeps rows that may have to be
restored."""

ADDRESS_BITS = 48
"""The bits of an address in the reference to a text; the others have its length (`ikebana.kernels.texts`)."""

ENTRY_LABEL, ENTRY_POSITION, ENTRY_ROWS, ENTRY_SIZE = range(4)
ENTRY_HEADER = 4
"""The first integers of the rows of an exchange in a message (`ikebana.kernels.exchanges`): whose rows they are, the
position of the instruction, their number, and the number of integers of all."""
