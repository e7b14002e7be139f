"""64-bit hashes of columns, for the lanes of data that does not fit into 64 bits, and for sharding by key.

The values of each column are mixed into a running hash per row; a null is mixed in as a special constant. The mixing
function is the finaliser of SplitMix64, a bijection on 64 bits: rows that differ in a single column of integers
never collide.

Not guaranteed: the absence of collisions. Code that uses a hash as a lane must verify matches on the data itself.
Not cryptographic: adversarial data can make operators slow, but not their results wrong.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.pointers import load, load_byte

NULL_PART = np.uint64(0x9E3779B97F4A7C15)  # not 0, which is mix(0) and thus the part of the value -1


@helper
def mix(x):
    """Return the finaliser of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@helper
def combine(running, part):
    """Mix the part of a column into a running hash."""
    return np.int64(mix(np.uint64(running) * np.uint64(0x9E3779B97F4A7C15) + part))


@kernel("void(lane, flags, lane_out)")
def hash_integers(values, valid, hashes):
    """Mix a column of integers into the running hashes; `valid` is 0 where the value is null."""
    for row in range(len(values)):
        part = mix(np.uint64(values[row]) + np.uint64(1)) if valid[row] != 0 else NULL_PART
        hashes[row] = combine(hashes[row], part)


@helper
def hash_of_bytes(start, length):
    """The part of so many bytes at an address: their number, whole words, what is left."""
    end = start + length
    part = mix(np.uint64(length) + np.uint64(1))
    while start + 8 <= end:
        part = mix(part ^ np.uint64(load(start))) * np.uint64(0x9E3779B97F4A7C15)
        start += 8
    word = np.uint64(0)
    for byte in range(end - start):
        word |= np.uint64(load_byte(start + byte)) << np.uint64(8 * byte)
    return mix(part ^ word)


@kernel("void(lane, bytes, flags, lane_out)")
def hash_bytes(offsets, data, valid, hashes):
    """Mix a column of byte strings (string r is data[offsets[r]:offsets[r + 1]]) into the running hashes."""
    first = np.int64(data.ctypes.data)
    for row in range(len(hashes)):
        part = NULL_PART
        if valid[row] != 0:
            part = hash_of_bytes(first + offsets[row], offsets[row + 1] - offsets[row])
        hashes[row] = combine(hashes[row], part)


@kernel("lane_new(lane, int)")
def shard_rows(lane, shards):
    """Return the shard of each key lane: the worker that owns it."""
    out = np.empty(len(lane), np.int64)
    if shards & (shards - 1) == 0:  # a power of two: the same without divisions, which take most of the time
        for row in range(len(lane)):
            out[row] = np.int64(mix(np.uint64(lane[row])) & np.uint64(shards - 1))
        return out
    for row in range(len(lane)):
        out[row] = np.int64(mix(np.uint64(lane[row])) % np.uint64(shards))
    return out
