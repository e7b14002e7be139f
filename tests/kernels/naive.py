"""A plain twin for every kernel, of the same name: what it computes, in ordinary Python and the fewest words.

Twins take and return lists, tuples and integers. Tables of times are lists of tuples. Updates are tuples
`(key, ident, val, time, diffs)`, where `time` is a position in a table and `diffs` has an entry for each
diff lane; so the order of tuples is the order of a batch. Kernels that write into arrays have twins that
return what is written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from tests.kernels import naive_extensions, naive_program
from tests.kernels.naive_state import PlainTrace
from tests.kernels.words import WORDS, signed

Time = tuple[int, ...]
Update = tuple[int, int, int, int, tuple[int, ...]]


# Times.
def advance_times(times: list[Time], frontier: list[Time]) -> list[Time]:
    """Each time's representative: the meet, over the frontier's elements, of its join with them."""
    if not frontier:
        return times
    return [tuple(min(max(x, f[c]) for f in frontier) for c, x in enumerate(time)) for time in times]


def times_beyond(times: list[Time], frontier: list[Time]) -> list[bool]:
    """For each time whether some element of the frontier is at most it, in every coordinate."""
    return [any(all(x <= y for x, y in zip(f, time, strict=True)) for f in frontier) for time in times]


def times_visible(times: list[Time], at: Time) -> list[bool]:
    """For each time whether it is at most `at`, in every coordinate."""
    return [all(x <= y for x, y in zip(time, at, strict=True)) for time in times]


def rank_times(times: list[Time]) -> tuple[list[Time], list[int]]:
    """The distinct times in order, and the position of each among them."""
    table = sorted(set(times))
    return table, [table.index(time) for time in times]


def union_times(a: list[Time], b: list[Time]) -> tuple[list[Time], list[int], list[int]]:
    """The times of either table, each once, in order; and where in it the times of a are, and those of b."""
    table = sorted({*a, *b})
    return table, [table.index(time) for time in a], [table.index(time) for time in b]


# Updates.
def sort_leading(key: list[int], val: list[int], tix: list[int]) -> list[int]:
    """The rows in order of key, value, time; equal rows as they were.

    The kernel may leave long runs to further rounds; this is the order when `sort_order` has done them.
    """
    return sorted(range(len(key)), key=lambda row: (key[row], val[row], tix[row]))


def pack_leading(key: list[int], val: list[int], tix: list[int]) -> tuple[list[int], int, int]:
    """For each row the bits of its key, value and time, less their least, as far as there is room before its position.

    Also the bits of a position, and how many bits there was no room for. Nothing if the rows are in order.
    """
    if sort_leading(key, val, tix) == list(range(len(key))):
        return [], 0, 0
    whole, total = [0] * len(key), 0
    for lane in (key, val, tix):
        width = (max(lane) - min(lane)).bit_length()
        whole = [bits << width | entry - min(lane) for bits, entry in zip(whole, lane, strict=True)]
        total += width
    row_bits = (len(key) - 1).bit_length()
    dropped = max(0, total + row_bits - 64)
    return [(bits >> dropped) << row_bits | row for row, bits in enumerate(whole)], row_bits, dropped


def radix_sorted(words: list[int]) -> list[int]:
    """The numbers in ascending order."""
    return sorted(words)


def order_packed(packed: list[int], row_bits: int, key: list[int], val: list[int], tix: list[int]) -> list[int]:
    """The rows whose numbers, in order, are given, in order of key, value, time; see `sort_leading` on long runs."""
    rows = [number & ((1 << row_bits) - 1) for number in packed]
    return sorted(rows, key=lambda row: (key[row], val[row], tix[row]))


def consolidate_rows(updates: list[Update]) -> list[Update]:
    """Updates of equal data and time added up, where the first of them is; zeros are left out.

    >>> consolidate_rows([(1, 0, 5, 0, (1,)), (2, 0, 5, 0, (1,)), (2, 0, 5, 0, (-1,)), (1, 0, 5, 0, (1,))])
    [(1, 0, 5, 0, (2,))]
    """
    totals: dict[tuple[int, ...], list[int]] = {}
    for *data_and_time, diffs in updates:
        total = totals.setdefault(tuple(data_and_time), [0] * len(diffs))
        for lane, diff in enumerate(diffs):
            total[lane] = signed(total[lane] + diff)
    return [(*data_and_time, tuple(total)) for data_and_time, total in totals.items() if any(total)]


def measure_rows(updates: list[Update]) -> tuple[bool, list[int]]:
    """Whether updates are in order and differ in data or time; the least and greatest key, value and diff, in turn."""
    lanes = zip(*((key, val, diffs[0]) for key, _, val, _, diffs in updates), strict=True)
    ascending = all(a[:4] < b[:4] for a, b in pairwise(updates))
    return ascending, [bound for lane in lanes for bound in (min(lane), max(lane))]


def pack_rows(updates: list[Update], rank: list[int], widths: list[int]) -> list[int]:
    """Key, value, rank of the time and diff of each update, less the least of each, as one number.

    `widths` are the numbers of bits of the four.
    """
    rows = [(key, val, rank[time], diffs[0]) for key, _, val, time, diffs in updates]
    lows = [min(lane) for lane in zip(*rows, strict=True)]
    lows[2] = 0
    packed = []
    for row in rows:
        number = 0
        for entry, low, width in zip(row, lows, widths, strict=True):
            number = number << width | (entry - low)
        packed.append(number)
    return packed


def add_up_packed(updates: list[Update]) -> list[Update]:
    """In order, equal updates added up, those that cancel left out."""
    return consolidate_rows(sorted(updates))


def unpack_rows(updates: list[Update]) -> list[tuple[int, int, int]]:
    """The key, value and time of each update."""
    return [(key, val, time) for key, _, val, time, _ in updates]


# Sets of groups.
def add_groups(known: set[tuple[int, int]], groups: list[tuple[int, int]]) -> list[int]:
    """The positions of the groups that are new: neither known nor among the groups before them."""
    return [at for at, group in enumerate(groups) if group not in known and group not in groups[:at]]


def copy_groups(known: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The same groups."""
    return set(known)


def merge_rows(
    a: list[Update], b: list[Update], a_rank: list[int], b_rank: list[int], compacted: list[int]
) -> list[Update]:
    """The updates of both sides with their new times, consolidated and in order."""
    moved = [(*data, compacted[a_rank[time]], diffs) for *data, time, diffs in a]
    moved += [(*data, compacted[b_rank[time]], diffs) for *data, time, diffs in b]
    return sorted(consolidate_rows(moved))


def merge_timed(a: list[Update], b: list[Update]) -> list[Update]:
    """The updates of both sides, whose times are those of the output, consolidated and in order."""
    return sorted(consolidate_rows(a + b))


def merge_untimed(a: list[Update], b: list[Update]) -> list[Update]:
    """The updates of both sides at one time, consolidated and in order."""
    return sorted(consolidate_rows([(*data, 0, diffs) for *data, _, diffs in a + b]))


def merge_untimed_sums(a: list[Update], b: list[Update]) -> list[Update]:
    """The same as `merge_untimed`, of rows with several diff lanes."""
    return merge_untimed(a, b)


def accumulate_rows(updates: list[Update], visible: list[int]) -> list[tuple[int, tuple[int, ...]]]:
    """The first row of each (key, ident, val) and the sum of its diffs at visible times, if not zero."""
    groups: dict[tuple[int, ...], tuple[int, list[int]]] = {}
    for row, (*data, time, diffs) in enumerate(updates):
        _, total = groups.setdefault(tuple(data), (row, [0] * len(diffs)))
        for lane, diff in enumerate(diffs):
            total[lane] = signed(total[lane] + (diff if visible[time] else 0))
    return [(row, tuple(total)) for row, total in groups.values() if any(total)]


def sum_ranges(
    moments: list[tuple[int, Time]], ranges: list[tuple[int, int]], rows: list[tuple[Time, tuple[int, ...]]]
) -> list[list[int]]:
    """For each moment, a group and a time, the sum in each lane of the diffs that it sees in the range of the group."""
    visible = [
        [diffs for time, diffs in rows[slice(*ranges[group])] if all(a <= b for a, b in zip(time, at, strict=True))]
        for group, at in moments
    ]
    return [[signed(sum(lane)) for lane in zip(*diffs, strict=True)] for diffs in visible]


def add_by_group(rows: list[tuple[int, int, int]], groups: int) -> list[int]:
    """For each group, the sum of the diffs of its rows, each multiplied by its factor."""
    return [signed(sum(diff * factor for group, diff, factor in rows if group == number)) for number in range(groups)]


# Keys.
def seek_ranges(lane: list[int], probes: list[int]) -> tuple[list[int], list[int]]:
    """For each probe how many keys are less than it, and how many are not greater: its rows lie between."""
    return [sum(key < p for key in lane) for p in probes], [sum(key <= p for key in lane) for p in probes]


def seek_sampled(lane: list[int], probes: list[int]) -> tuple[list[int], list[int]]:
    """The same as `seek_ranges`: the sample only makes it faster."""
    return seek_ranges(lane, probes)


def seek_filtered(lane: list[int], probes: list[int]) -> tuple[list[int], list[int]]:
    """The same as `seek_ranges`, except that the rows of an absent probe are from 0 to 0."""
    ranges = [pair if pair[0] < pair[1] else (0, 0) for pair in zip(*seek_ranges(lane, probes), strict=True)]
    return [start for start, _ in ranges], [end for _, end in ranges]


def fill_filter(lane: list[int], words: list[int]) -> list[int]:
    """The words with two bits of each key: the upper half of its hash determines the word, the lowest bits which."""
    filled = list(words)
    for hash_ in map(mix, lane):
        filled[(hash_ >> 32) * len(words) >> 32] |= 1 << (hash_ & 63) | 1 << (hash_ >> 6 & 63)
    return filled


def narrow_ranges(
    lane: list[int], starts: list[int], ends: list[int], probes: list[int]
) -> tuple[list[int], list[int]]:
    """For each probe the rows of its range that are less than it, and those that are not greater."""
    ranges = [(start, lane[start:end], probe) for start, end, probe in zip(starts, ends, probes, strict=True)]
    return (
        [start + sum(value < probe for value in rows) for start, rows, probe in ranges],
        [start + sum(value <= probe for value in rows) for start, rows, probe in ranges],
    )


def match_keys(a: list[int], b: list[int]) -> list[tuple[int, int, int, int]]:
    """For each key in both lanes its first row in a and the one after its last, and the same in b."""
    common = sorted(set(a) & set(b))
    return [(a.index(k), a.index(k) + a.count(k), b.index(k), b.index(k) + b.count(k)) for k in common]


def expand_pairs(ranges: list[tuple[int, int, int, int]]) -> list[tuple[int, int]]:
    """For each two ranges every row of the one with every row of the other, the latter varying faster."""
    return [(a, b) for *a_range, b_start, b_end in ranges for a in range(*a_range) for b in range(b_start, b_end)]


def expand_ranges(starts: list[int], ends: list[int]) -> list[int]:
    """The rows of every range, one range after the other."""
    return [row for start, end in zip(starts, ends, strict=True) for row in range(start, end)]


# Hashes, on integers modulo 2**64.
GOLDEN = 0x9E3779B97F4A7C15
NULL = GOLDEN


def mix(x: int) -> int:
    """SplitMix64's finaliser, after its author's public C code.

    >>> hex(mix(GOLDEN))  # the first output of the generator when its seed is 0
    '0xe220a8397b1dcdaf'
    """
    x %= WORDS
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORDS
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORDS
    return x ^ x >> 31


def combine(running: int, part: int) -> int:
    """A running hash with one more column's part mixed in."""
    return signed(mix(running * GOLDEN + part))


def hash_integers(values: list[int], valid: list[int], hashes: list[int]) -> list[int]:
    """The running hashes with a column of integers mixed in; the part of a null is a constant."""
    parts = [mix(value + 1) if ok else NULL for value, ok in zip(values, valid, strict=True)]
    return [combine(running, part) for running, part in zip(hashes, parts, strict=True)]


def hash_bytes(strings: list[bytes], valid: list[int], hashes: list[int]) -> list[int]:
    """The running hashes with a column of byte strings mixed in: length, whole words, what is left."""
    parts = []
    for string, ok in zip(strings, valid, strict=True):
        part = mix(len(string) + 1)
        whole = len(string) // 8 * 8
        for start in range(0, whole, 8):
            part = mix(part ^ int.from_bytes(string[start : start + 8], "little")) * GOLDEN % WORDS
        part = mix(part ^ int.from_bytes(string[whole:], "little"))
        parts.append(part if ok else NULL)
    return [combine(running, part) for running, part in zip(hashes, parts, strict=True)]


def shard_rows(lane: list[int], shards: int) -> list[int]:
    """For each key lane the remainder of its mixed bits."""
    return [mix(key) % shards for key in lane]


# Payload.
def partition_order(numbers: list[int], parts: int) -> tuple[list[int], list[int]]:
    """The rows with each number, one number after the other, and where the rows of each number start and end."""
    order = sorted(range(len(numbers)), key=lambda row: numbers[row])
    return order, [sum(number < part for number in numbers) for part in range(parts + 1)]


def partition_words(lane: list[int], numbers: list[int], parts: int) -> list[list[int]]:
    """The entries of the rows with each number."""
    return [[entry for entry, number in zip(lane, numbers, strict=True) if number == part] for part in range(parts)]


def partition_halves(lane: list[int], numbers: list[int], parts: int) -> list[list[int]]:
    """The entries of the rows with each number."""
    return partition_words(lane, numbers, parts)


def gather_words(a: list[list[int]], b: list[list[int]], rows: list[int]) -> list[list[int]]:
    """The named rows, each of equally many words; b's rows are numbered after a's."""
    return [(a + b)[row] for row in rows]


def gather_halves(a: list[list[int]], b: list[list[int]], rows: list[int]) -> list[list[int]]:
    """The named rows, each of equally many words of 32 bits; b's rows are numbered after a's."""
    return [(a + b)[row] for row in rows]


def gather_fixed(a: list[bytes], b: list[bytes], rows: list[int]) -> list[bytes]:
    """The named rows, all of one width; b's rows are numbered after a's."""
    return [(a + b)[row] for row in rows]


def gather_bits(a: list[int], b: list[int], rows: list[int]) -> list[int]:
    """The named rows, each 0 or 1; b's rows are numbered after a's."""
    return [(a + b)[row] for row in rows]


def gather_texts(texts: list[bytes]) -> tuple[list[int], bytes]:
    """All texts, one after the other, and where they end."""
    return [sum(map(len, texts[:at])) for at in range(len(texts) + 1)], b"".join(texts)


def gather_strings(a: list[bytes], b: list[bytes], rows: list[int]) -> list[bytes]:
    """The named rows, of any length; b's rows are numbered after a's."""
    return [(a + b)[row] for row in rows]


Cells = list[bytes | None]


def same_fixed(a: Cells, b: Cells, a_rows: list[int], b_rows: list[int], same: list[int]) -> list[int]:
    """The flags of the pairs of rows that are equal; null, here None, equals null."""
    return [flag & (a[one] == b[other]) for flag, one, other in zip(same, a_rows, b_rows, strict=True)]


def same_strings(a: Cells, b: Cells, a_rows: list[int], b_rows: list[int], same: list[int]) -> list[int]:
    """The same for byte strings of any length."""
    return same_fixed(a, b, a_rows, b_rows, same)


# Exchanges.
def send_rows(rows: list[tuple[int, ...]], key: int, workers: int) -> list[list[tuple[int, ...]]]:
    """The rows for each worker, in order: that of the shard of the cell at `key`."""
    return [[row for row in rows if shard_rows([row[key]], workers) == [worker]] for worker in range(workers)]


def receive_rows(
    held: list[tuple[int, ...]], arriving: list[tuple[int, ...]], room: int
) -> list[tuple[int, ...]] | None:
    """The rows that are there, and then those that arrive; None if there is no room for them."""
    return held + arriving if len(held) + len(arriving) <= room else None


# Programs.
def extend_rows(
    traces: Sequence[tuple[PlainTrace, int, int]],
    keys: Sequence[Sequence[int]],
    epochs: Sequence[int],
    coalesced: int,
    room: int,
    start: int,
) -> tuple[list[tuple[int, int, int]], int]:
    """The extensions (position, value, multiplicity) of rows from `start` on, and the next row.

    It stops at a row for which there may be no room. `keys` has the keys of the rows for each trace; see
    `naive_extensions.extensions`.
    """
    extended: list[tuple[int, int, int]] = []
    for row in range(start, len(epochs)):
        own = [lane[row] for lane in keys]
        values = naive_extensions.extensions(traces, own, epochs[row], coalesced, room - len(extended))
        if values is None:
            return extended, row
        extended += [(row, val, count) for val, count in values]
    return extended, len(epochs)


def run_program(
    code: Sequence[int],
    traces: Sequence[PlainTrace],
    slots: defaultdict[int, list[int]],
    counts: list[int],
    room: int,
    now: int,
    grows: bool = True,
    coalesced: int = 0,
) -> int:
    """What each instruction does, in turn; what those are is in `naive_program`. Nothing, if one of them fails."""
    return naive_program.run(code, traces, slots, counts, room, now, grows, coalesced)


# Texts.
def search_parts(texts: list[bytes], parts: list[bytes], at_start: bool, at_end: bool) -> list[bool]:
    """Whether each text has all parts, in order and without overlap, the first and the last of them at its ends."""
    body = b".*".join(map(re.escape, parts))
    pattern = re.compile((b"" if at_start else b".*") + body + (b"" if at_end else b".*"), re.DOTALL)
    return [pattern.fullmatch(text) is not None for text in texts]
