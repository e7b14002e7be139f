"""Filters: whether a lane may have a key, answered without a search.

A filter is a blocked Bloom filter: the hash of a key determines a word of 64 bits, and two bits of the word, which are
set for every key of the lane. So a key whose bits are not both set is not in the lane. With `FILTERED` rows for each
word, one in 16 of the keys that are not in the lane have both bits set by others, and are sought in vain.

Where few probes are in a lane, a filter saves most searches: a probe takes 2 ns, of which nothing waits for another
probe, while a search takes tens of nanoseconds.

Cost: 2-4 ns for each row to fill a filter, and a byte of memory for each row.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.hashing import mix
from ikebana.kernels.seek import gallop_past, seek_starts


@helper
def _word_of(hash_, words):
    """Return the number of a key's word: the upper half of the hash, scaled to the number of words."""
    return np.int64(((hash_ >> np.uint64(32)) * np.uint64(len(words))) >> np.uint64(32))


@helper
def _bits_of(hash_):
    """Return a word with the two bits of a key."""
    six = np.uint64(63)
    return np.uint64(1) << (hash_ & six) | np.uint64(1) << ((hash_ >> np.uint64(6)) & six)


@kernel("void(lane, words_out)")
def fill_filter(lane, words):
    """Set the bits of all keys of a lane. There is at least one word."""
    for row in range(len(lane)):
        hash_ = mix(np.uint64(lane[row]))
        words[_word_of(hash_, words)] |= _bits_of(hash_)


@kernel("Tuple((lane_new, lane_new))(lane, words, lane)")
def seek_filtered(lane, words, probes):
    """Like `seek_ranges`, given the filter of the lane; the rows of an absent probe are from 0 to 0."""
    wanted = np.empty(len(probes), np.int64)  # the positions of the probes that pass the filter
    count = np.int64(0)
    for p in range(len(probes)):
        hash_ = mix(np.uint64(probes[p]))
        bits = _bits_of(hash_)
        wanted[count] = p
        count += np.int64(words[_word_of(hash_, words)] & bits == bits)
    keys, found = np.empty(count, np.int64), np.empty(count, np.int64)
    for at in range(count):
        keys[at] = probes[wanted[at]]
    seek_starts(lane, keys, found)
    starts, ends = np.zeros(len(probes), np.int64), np.zeros(len(probes), np.int64)
    for at in range(count):
        start, end = found[at], gallop_past(lane, found[at], keys[at])
        if start < end:
            starts[wanted[at]], ends[wanted[at]] = start, end
    return starts, ends
