"""Search for parts of texts: whether each text has some parts, one after the other, as in LIKE '%one%two%'.

Parts are found by Horspool's algorithm: the last byte of a window of the text says how far the window can move, so
that most bytes are never looked at. The caller has a table of these distances for each part.

Cost: for each text about its length over the length of the first part, in steps of a nanosecond or two.
"""

from __future__ import annotations

from ikebana.kernels.compile import helper, kernel


@helper
def _is_at(data, at, parts, first, length):
    """Whether a part, which starts at `first` in `parts`, is in the text at a position."""
    for byte in range(length):
        if data[at + byte] != parts[first + byte]:
            return False
    return True


@helper
def _end_of_next(data, at, end, parts, first, length, skips):
    """The end of the first occurrence of a part between two positions; -1 if there is none."""
    if length == 0:
        return at
    while at + length <= end:
        if _is_at(data, at, parts, first, length):
            return at + length
        at += skips[data[at + length - 1]]
    return -1


@kernel("void(index, bytes, bytes, lane, lanes, int, int, flags_out)")
def search_parts(offsets, data, parts, bounds, skips, at_start, at_end, found):
    """Write whether each text (text r is data[offsets[r]:offsets[r + 1]]) has all parts, in order, without overlap.

    Part p is parts[bounds[p]:bounds[p + 1]]; skips[p, b] is how far a search for it moves if its window ends with the
    byte b. If `at_start` is not 0, a text must start with the first part; if `at_end` is not 0, it must end with the
    last part. If both are not 0, these are different parts.
    """
    last = len(bounds) - 2
    for row in range(len(found)):
        at, end = int(offsets[row]), int(offsets[row + 1])
        for part in range(last + 1):
            first, length = bounds[part], bounds[part + 1] - bounds[part]
            if at + length > end:
                at = -1
            elif part == 0 and at_start != 0:
                at = at + length if _is_at(data, at, parts, first, length) else -1
            elif part == last and at_end != 0:
                at = end if _is_at(data, end - length, parts, first, length) else -1
            else:
                at = _end_of_next(data, at, end, parts, first, length, skips[part])
            if at < 0:
                break
        found[row] = at >= 0
