"""Merge two sorted runs of updates into one, compacting times, a bounded number of rows in each call.

Rows are in order of (key, ident, value, time). The time positions of each side are translated twice: to
`rank`, the position among the times of both sides, which determines the order in which rows are taken; and
by `compacted`, to the position of the time's compaction representative in the table of the output,
which is written. Rows with equal data and equal new time are added up; those that cancel are removed.

Compaction preserves the order of times of a single coordinate, but may permute times of several coordinates; the rows
of one (key, value) whose new times are out of order are sorted when the last of them has been taken.

A call sees the sides through windows that start where the last call stopped, and have `limit` rows or all remaining
rows: a shorter window would be mistaken for the end of its side. `state` carries a merge from
call to call; its cells are the positions `AT_A`, `AT_B` (rows taken from each side), `WRITTEN` (rows
written), `FINAL` (rows that will not change any more: all except those of the current group), the flags
`DISORDERED` (the current group is out of order) and `VARIED` (final rows differ in their diffs), `LAST` (the
row taken last) and `PAIRS`.

Hashed lanes may be equal where the data is not. So the kernel also lists pairs of neighbouring rows from
the two sides with equal keys, or, if only values are hashed, with equal keys and values; the caller verifies
them on the data. Neighbours suffice, as equality is transitive.

Without idents there are faster kernels: for times that all become one, and for times whose order compaction keeps,
which is the order of all times of a single coordinate.

Cost: a call takes at most `limit` rows, 10-40 ns each, or 5-15 ns in the faster kernels. Not bounded by `limit`:
sorting one disordered group, and the caller's work for final rows, since all rows of a group become final together.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.consolidate import is_zero
from ikebana.kernels.layout import AT_A, AT_B, DISORDERED, FINAL, LAST, PAIRS, VARIED, WRITTEN


@helper
def _swap_later(tix, diffs, row, gap):
    tix[row], tix[row + gap] = tix[row + gap], tix[row]
    for lane in range(diffs.shape[0]):
        diffs[lane, row], diffs[lane, row + gap] = diffs[lane, row + gap], diffs[lane, row]


@helper
def _sort_times(tix, diffs, lo, hi):
    """Shell sort in place: groups are short, and even a long group is far from quadratic cost."""
    gap = 1
    while gap < (hi - lo) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for end in range(lo + gap, hi):
            row = end - gap
            while row >= lo and tix[row] > tix[row + gap]:
                _swap_later(tix, diffs, row, gap)
                row -= gap
        gap //= 3


@helper
def _add_up(tix, diffs, lo, hi):
    """Consolidate the rows of one group, sorted by time, in place; return their new end."""
    out = lo
    for row in range(lo, hi):
        if out > lo and tix[out - 1] == tix[row]:
            for lane in range(diffs.shape[0]):
                diffs[lane, out - 1] += diffs[lane, row]
            continue
        if out > lo and is_zero(diffs, out - 1):
            out -= 1
        tix[out] = tix[row]
        for lane in range(diffs.shape[0]):
            diffs[lane, out] = diffs[lane, row]
        out += 1
    if out > lo and is_zero(diffs, out - 1):
        out -= 1
    return out


@helper
def _end_group(tix, diffs, lo, hi, disordered, last_zero):
    """Bring the rows of a complete group into their final form; return their new end."""
    if disordered:
        _sort_times(tix, diffs, lo, hi)
        return _add_up(tix, diffs, lo, hi)
    return hi - 1 if last_zero else hi


@helper
def _vary(diffs, lo, hi):
    """Whether the diff of any row differs from that of the first row of the output."""
    for row in range(lo, hi):
        for lane in range(diffs.shape[0]):
            if diffs[lane, row] != diffs[lane, 0]:
                return True
    return False


@kernel(
    "int(lane, lane, lane, index, lanes, lane, lane, lane, index, lanes, index, index, index,"
    " lane_out, lane_out, lane_out, index_out, lanes_out, lane_out, lanes_out, lane_out, int, int, int, int)"
)
def merge_rows(
    a_key, a_val, a_ident, a_tix, a_diffs,
    b_key, b_val, b_ident, b_tix, b_diffs,
    a_rank, b_rank, compacted,
    key_out, val_out, ident_out, tix_out, diffs_out, src_out, pairs_out,
    state, a_rows, b_rows, limit, exact_keys,
):  # fmt: skip
    """Take up to `limit` more rows of the two sides, which have `a_rows` and `b_rows` rows; return how many were taken.

    The rows of side b are numbered after those of side a. `src_out` gets, for each row written, a row with the same
    data. `pairs_out` has two rows of `limit` cells, or of none if lanes are exact and nothing has to be verified. If
    `exact_keys` is not 0, rows that differ in value need not be verified either.
    """
    a_base, b_base = state[AT_A], a_rows + state[AT_B]
    i, j, out, final = np.int64(0), np.int64(0), state[WRITTEN], state[FINAL]
    disordered, varied = state[DISORDERED] != 0, state[VARIED] != 0
    a_end, b_end, lanes = len(a_key), len(b_key), diffs_out.shape[0]
    verify, pairs, last_src = pairs_out.shape[1] > 0, 0, state[LAST]
    last_key, last_val, last_ident, last_tix = np.int64(0), np.int64(0), np.int64(0), np.int32(0)
    last_zero = False
    if out > final:
        last_key, last_val, last_ident = key_out[out - 1], val_out[out - 1], ident_out[out - 1]
        last_tix, last_zero = tix_out[out - 1], is_zero(diffs_out, out - 1)
    taken = 0
    while taken < limit and (i < a_end or j < b_end):
        if j >= b_end:
            from_a = True
        elif i >= a_end:
            from_a = False
        elif a_key[i] != b_key[j]:
            from_a = a_key[i] < b_key[j]
        elif a_ident[i] != b_ident[j]:
            from_a = a_ident[i] < b_ident[j]
        elif a_val[i] != b_val[j]:
            from_a = a_val[i] < b_val[j]
        else:
            from_a = a_rank[a_tix[i]] <= b_rank[b_tix[j]]
        if from_a:
            key, val, ident, tix, src = (
                a_key[i],
                a_val[i],
                a_ident[i],
                compacted[a_rank[a_tix[i]]],
                a_base + i,
            )
        else:
            key, val, ident, tix, src = (
                b_key[j],
                b_val[j],
                b_ident[j],
                compacted[b_rank[b_tix[j]]],
                b_base + j,
            )

        if verify:
            is_near = key == last_key and ident == last_ident and (val == last_val or exact_keys == 0)
            if is_near and out > final and (last_src < a_rows) != from_a:
                pairs_out[0, pairs], pairs_out[1, pairs] = last_src, src
                pairs += 1
            last_src = src

        same_update = False
        if out > final and key == last_key and val == last_val and ident == last_ident:
            same_update = tix == last_tix
            disordered = disordered or tix < last_tix
            if same_update or last_zero:
                out -= 1
        else:
            out = _end_group(tix_out, diffs_out, final, out, disordered, last_zero)
            varied = varied or _vary(diffs_out, final, out)
            final, disordered = out, False
        last_zero = True
        for lane in range(lanes):
            diff = a_diffs[lane, i] if from_a else b_diffs[lane, j]
            if same_update:
                diff += diffs_out[lane, out]
            diffs_out[lane, out] = diff
            last_zero = last_zero and diff == 0
        if not same_update:
            key_out[out], val_out[out], ident_out[out] = key, val, ident
            tix_out[out], src_out[out] = tix, src
            last_key, last_val, last_ident, last_tix = key, val, ident, tix
        out += 1
        if from_a:
            i += 1
        else:
            j += 1
        taken += 1
    if a_base + i == a_rows and b_base + j == a_rows + b_rows and out > final:
        out = _end_group(tix_out, diffs_out, final, out, disordered, last_zero)
        varied = varied or _vary(diffs_out, final, out)
        final, disordered = out, False
    state[AT_A], state[AT_B], state[WRITTEN], state[FINAL] = a_base + i, b_base + j - a_rows, out, final
    state[DISORDERED], state[VARIED], state[LAST], state[PAIRS] = disordered, varied, last_src, pairs
    return taken


@helper
def _choose(mask, one, other):
    """Return `one` if all bits of the mask are set, and `other` if none is: a branch would often be mispredicted."""
    return (one & mask) | (other & ~mask)


@helper
def _is_near(key, val, last_key, last_val, exact_keys):
    """Whether two neighbouring rows have to be verified if they are from different sides."""
    return key == last_key and (val == last_val or exact_keys == 0)


@helper
def _end_untimed(a, b, a_rows, b_rows, at, start, open_, diffs_out, state):
    """Close the current group if all rows have been taken, and note how far the merge is."""
    final, varied = at, state[VARIED] != 0
    if open_ and a == a_rows and b == b_rows:
        open_ = False
        final = at if is_zero(diffs_out, at) else at + 1
    varied = varied or _vary(diffs_out, start, final)
    state[AT_A], state[AT_B], state[FINAL], state[WRITTEN], state[VARIED] = a, b, final, final + open_, varied


@kernel("int(run, run, lane, run, run, lane, cells, cells, slots, cells, slots, lane_out, int, int, int, int)")
def merge_untimed(
    a_key, a_val, a_diff, b_key, b_val, b_diff,
    key_out, val_out, diffs_out, src_out, pairs_out,
    state, a_rows, b_rows, limit, exact_keys,
):  # fmt: skip
    """Like `merge_rows`, if all times become one, there are no idents and one diff lane: up to ten times as fast.

    The current group has one row, the last one written, which is removed if its diff is zero once it is complete.
    `src_out` may be empty. `val_out` may be `key_out` if `a_val` is `a_key` and `b_val` is `b_key`.
    """
    a_base, b_base, start = state[AT_A], a_rows + state[AT_B], state[FINAL]
    i, j, diff_out = np.int64(0), np.int64(0), diffs_out[0]
    a_end, b_end, at = len(a_key), len(b_key), start if state[WRITTEN] > start else start - 1
    verify, has_src, pairs, last_src = pairs_out.shape[1] > 0, len(src_out) > 0, 0, state[LAST]
    last_key, last_val = np.int64(0), np.int64(0)
    if at == start:  # the group at row `at` is open; before the first one, `at` is less than `start`
        last_key, last_val = key_out[at], val_out[at]
    while i + j < limit and i < a_end and j < b_end:
        from_a = np.int64((a_key[i] < b_key[j]) | ((a_key[i] == b_key[j]) & (a_val[i] <= b_val[j])))
        key, val = _choose(-from_a, a_key[i], b_key[j]), _choose(-from_a, a_val[i], b_val[j])
        diff, src = _choose(-from_a, a_diff[i], b_diff[j]), _choose(-from_a, a_base + i, b_base + j)
        i += from_a
        j += 1 - from_a
        if verify:
            is_near = at >= start and _is_near(key, val, last_key, last_val, exact_keys)
            if is_near and (last_src < a_rows) != (from_a != 0):
                pairs_out[0, pairs], pairs_out[1, pairs] = last_src, src
                pairs += 1
            last_src = src
        if key == last_key and val == last_val and at >= start:
            diff_out[at] += diff
        else:
            if at < start or diff_out[at] != 0:
                at += 1
            key_out[at], val_out[at], diff_out[at] = key, val, diff
            if has_src:
                src_out[at] = src
            last_key, last_val = key, val
    while i + j < limit and (i < a_end or j < b_end):
        from_a = np.int64(i < a_end)
        if from_a:
            key, val, diff, src = a_key[i], a_val[i], a_diff[i], a_base + i
        else:
            key, val, diff, src = b_key[j], b_val[j], b_diff[j], b_base + j
        i += from_a
        j += 1 - from_a
        if verify:
            is_near = at >= start and _is_near(key, val, last_key, last_val, exact_keys)
            if is_near and (last_src < a_rows) != (from_a != 0):
                pairs_out[0, pairs], pairs_out[1, pairs] = last_src, src
                pairs += 1
            last_src = src
        if key == last_key and val == last_val and at >= start:
            diff_out[at] += diff
        else:
            if at < start or diff_out[at] != 0:
                at += 1
            key_out[at], val_out[at], diff_out[at] = key, val, diff
            if has_src:
                src_out[at] = src
            last_key, last_val = key, val
    _end_untimed(a_base + i, b_base + j - a_rows, a_rows, b_rows, max(at, start), start, at >= start, diffs_out, state)
    state[LAST], state[PAIRS] = last_src, pairs
    return i + j


@kernel(
    "int(run, run, halves, lane, run, run, halves, lane, cells, cells, halves_out, slots, cells, slots, lane_out,"
    " int, int, int, int)"
)
def merge_timed(
    a_key, a_val, a_time, a_diff, b_key, b_val, b_time, b_diff,
    key_out, val_out, time_out, diffs_out, src_out, pairs_out,
    state, a_rows, b_rows, limit, exact_keys,
):  # fmt: skip
    """Like `merge_untimed`, with times: the positions of new times, in which rows of equal data are in order."""
    a_base, b_base, start = state[AT_A], a_rows + state[AT_B], state[FINAL]
    i, j, diff_out = np.int64(0), np.int64(0), diffs_out[0]
    a_end, b_end, at = len(a_key), len(b_key), start if state[WRITTEN] > start else start - 1
    verify, has_src, pairs, last_src = pairs_out.shape[1] > 0, len(src_out) > 0, 0, state[LAST]
    last_key, last_val, last_time = np.int64(0), np.int64(0), np.int64(0)
    if at == start:  # the group at row `at` is open; before the first one, `at` is less than `start`
        last_key, last_val, last_time = key_out[at], val_out[at], np.int64(time_out[at])
    while i + j < limit and (i < a_end or j < b_end):
        if i < a_end and j < b_end:
            is_least = (a_val[i] < b_val[j]) | ((a_val[i] == b_val[j]) & (a_time[i] <= b_time[j]))
            from_a = np.int64((a_key[i] < b_key[j]) | ((a_key[i] == b_key[j]) & is_least))
            key, val = _choose(-from_a, a_key[i], b_key[j]), _choose(-from_a, a_val[i], b_val[j])
            diff, src = _choose(-from_a, a_diff[i], b_diff[j]), _choose(-from_a, a_base + i, b_base + j)
            time = _choose(-from_a, np.int64(a_time[i]), np.int64(b_time[j]))
        elif i < a_end:
            from_a, time = np.int64(1), np.int64(a_time[i])
            key, val, diff, src = a_key[i], a_val[i], a_diff[i], a_base + i
        else:
            from_a, time = np.int64(0), np.int64(b_time[j])
            key, val, diff, src = b_key[j], b_val[j], b_diff[j], b_base + j
        i += from_a
        j += 1 - from_a
        if verify:
            is_near = at >= start and _is_near(key, val, last_key, last_val, exact_keys)
            if is_near and (last_src < a_rows) != (from_a != 0):
                pairs_out[0, pairs], pairs_out[1, pairs] = last_src, src
                pairs += 1
            last_src = src
        if key == last_key and val == last_val and time == last_time and at >= start:
            diff_out[at] += diff
        else:
            if at < start or diff_out[at] != 0:
                at += 1
            key_out[at], val_out[at], time_out[at], diff_out[at] = key, val, time, diff
            if has_src:
                src_out[at] = src
            last_key, last_val, last_time = key, val, time
    _end_untimed(a_base + i, b_base + j - a_rows, a_rows, b_rows, max(at, start), start, at >= start, diffs_out, state)
    state[LAST], state[PAIRS] = last_src, pairs
    return i + j


@kernel("int(run, run, lanes, run, run, lanes, cells, cells, slots, cells, slots, lane_out, int, int, int, int)")
def merge_untimed_sums(
    a_key, a_val, a_diffs, b_key, b_val, b_diffs,
    key_out, val_out, diffs_out, src_out, pairs_out,
    state, a_rows, b_rows, limit, exact_keys,
):  # fmt: skip
    """Like `merge_untimed`, with any number of diff lanes."""
    a_base, b_base, start = state[AT_A], a_rows + state[AT_B], state[FINAL]
    i, j, at, lanes = np.int64(0), np.int64(0), start, diffs_out.shape[0]
    open_, a_end, b_end = state[WRITTEN] > start, len(a_key), len(b_key)
    verify, pairs, last_src = pairs_out.shape[1] > 0, 0, state[LAST]
    last_key, last_val = np.int64(0), np.int64(0)
    if open_:
        last_key, last_val = key_out[at], val_out[at]
    while i + j < limit and (i < a_end or j < b_end):
        if i < a_end and j < b_end:
            from_a = a_key[i] < b_key[j] or (a_key[i] == b_key[j] and a_val[i] <= b_val[j])
        else:
            from_a = i < a_end
        key, val = (a_key[i], a_val[i]) if from_a else (b_key[j], b_val[j])
        src = a_base + i if from_a else b_base + j
        if verify:
            is_near = open_ and _is_near(key, val, last_key, last_val, exact_keys)
            if is_near and (last_src < a_rows) != from_a:
                pairs_out[0, pairs], pairs_out[1, pairs] = last_src, src
                pairs += 1
            last_src = src
        is_next = not (open_ and key == last_key and val == last_val)
        if is_next:
            if open_ and not is_zero(diffs_out, at):
                at += 1
            key_out[at], val_out[at] = key, val
            if len(src_out) > 0:
                src_out[at] = src
            open_, last_key, last_val = True, key, val
        for lane in range(lanes):
            diff = a_diffs[lane, i] if from_a else b_diffs[lane, j]
            diffs_out[lane, at] = diff if is_next else diffs_out[lane, at] + diff
        if from_a:
            i += 1
        else:
            j += 1
    _end_untimed(a_base + i, b_base + j - a_rows, a_rows, b_rows, at, start, open_, diffs_out, state)
    state[LAST], state[PAIRS] = last_src, pairs
    return i + j
