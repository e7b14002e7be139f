"""Copy payload rows into preallocated buffers, a bounded number of rows in each call.

A merge writes the payload of its output into buffers allocated once, in Arrow's layout, piece by piece as
rows become final. Arrow's own `take` creates a new array in each call, and concatenating these at the end would copy
everything at once. The rows of the second source are numbered after those of the first, as in `merge_rows`.

Cost: the rows and bytes copied. Not checked: that the output is large enough, and that `offsets_out[at]` is the end of
the strings already copied.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.texts import copy_bytes


@helper
def _gather_cells(a, b, a_rows, rows, out):
    """Copy rows of one cell each. Both sources are read for each row, since nothing predicts which of them has it."""
    if len(a) == 0 or len(b) == 0:
        for position in range(len(rows)):
            row = rows[position]
            out[position] = a[row] if row < a_rows else b[row - a_rows]
        return
    for position in range(len(rows)):
        row = rows[position]
        is_first = row < a_rows
        one, other = a[row if is_first else 0], b[0 if is_first else row - a_rows]
        out[position] = one if is_first else other


@helper
def _gather_rows(a, b, a_rows, width, rows, out, at):
    """Copy rows of `width` cells to `out`, from row `at` on."""
    if width == 1:
        _gather_cells(a, b, a_rows, rows, out[at : at + len(rows)])
        return
    for position in range(len(rows)):
        row = rows[position]
        target = (at + position) * width
        for cell in range(width):
            out[target + cell] = a[row * width + cell] if row < a_rows else b[(row - a_rows) * width + cell]


@kernel("void(bytes, bytes, int, int, lane, bytes_out, int)")
def gather_fixed(a, b, a_rows, width, rows, out, at):
    """Copy rows of `width` bytes to `out`, from row `at` on."""
    _gather_rows(a, b, a_rows, width, rows, out, at)


@kernel("void(halves, halves, int, int, run, halves_out, int)")
def gather_halves(a, b, a_rows, width, rows, out, at):
    """Copy rows of `width` 32-bit words to `out`, from row `at` on."""
    _gather_rows(a, b, a_rows, width, rows, out, at)


@kernel("void(run, run, int, int, run, cells, int)")
def gather_words(a, b, a_rows, width, rows, out, at):
    """Copy rows of `width` 64-bit words to `out`, from row `at` on."""
    _gather_rows(a, b, a_rows, width, rows, out, at)


@kernel("void(bytes, int, bytes, int, int, lane, flags_out, int)")
def gather_bits(a, a_offset, b, b_offset, a_rows, rows, out, at):
    """Copy bits of rows to bytes of 0 or 1, from row `at` of `out` on. An empty bitmap is all ones."""
    for position in range(len(rows)):
        row = rows[position]
        bits, bit = (a, a_offset + row) if row < a_rows else (b, b_offset + row - a_rows)
        out[at + position] = (bits[bit >> 3] >> (bit & 7)) & 1 if len(bits) > 0 else 1


@kernel("void(lane, bytes, lane, bytes, int, lane, lane_out, bytes_out, int)")
def gather_strings(a_offsets, a, b_offsets, b, a_rows, rows, offsets_out, out, at):
    """Append byte strings to `out`, after row `at - 1`, and their ends to `offsets_out`."""
    a_start, b_start, target = np.int64(a.ctypes.data), np.int64(b.ctypes.data), np.int64(out.ctypes.data)
    end = offsets_out[at]
    for position in range(len(rows)):
        row = rows[position]
        if row < a_rows:
            source, length = a_start + a_offsets[row], a_offsets[row + 1] - a_offsets[row]
        else:
            row -= a_rows
            source, length = b_start + b_offsets[row], b_offsets[row + 1] - b_offsets[row]
        copy_bytes(source, target + end, length)
        end += length
        offsets_out[at + position + 1] = end
