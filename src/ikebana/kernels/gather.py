"""Copy payload rows into preallocated buffers, a bounded number of rows in each call.

A merge writes the payload of its output into buffers allocated once, in Arrow's layout, piece by piece as
rows become final. Arrow's own `take` creates a new array in each call, and concatenating these at the end would copy
everything at once. The rows of the second source are numbered after those of the first, as in `merge_rows`.

Cost: the rows and bytes copied. Not checked: that the output is large enough, and that `offsets_out[at]` is the end of
the strings already copied.
"""

from __future__ import annotations

from ikebana.kernels.compile import kernel


@kernel("void(bytes, bytes, int, int, lane, bytes_out, int)")
def gather_fixed(a, b, a_rows, width, rows, out, at):
    """Copy rows of `width` bytes to `out`, from row `at` on."""
    for position in range(len(rows)):
        row = rows[position]
        target = (at + position) * width
        if row < a_rows:
            for byte in range(width):
                out[target + byte] = a[row * width + byte]
        else:
            for byte in range(width):
                out[target + byte] = b[(row - a_rows) * width + byte]


@kernel("void(run, run, int, int, run, cells, int)")
def gather_words(a, b, a_rows, width, rows, out, at):
    """Copy rows of `width` 64-bit words to `out`, from row `at` on."""
    for position in range(len(rows)):
        row = rows[position]
        target = (at + position) * width
        for word in range(width):
            out[target + word] = a[row * width + word] if row < a_rows else b[(row - a_rows) * width + word]


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
    end = offsets_out[at]
    for position in range(len(rows)):
        row = rows[position]
        if row < a_rows:
            for byte in range(a_offsets[row], a_offsets[row + 1]):
                out[end] = a[byte]
                end += 1
        else:
            for byte in range(b_offsets[row - a_rows], b_offsets[row - a_rows + 1]):
                out[end] = b[byte]
                end += 1
        offsets_out[at + position + 1] = end
