"""Texts in programs: strings of bytes that stay where they are, by address and length in one integer.

A slot has the address of the first byte in its lower 48 bits and the number of bytes in the upper 16. Longer texts have
no such reference, and a program that meets one fails.

Contract: whoever makes a reference keeps the bytes where they are while a program may read them. Bytes have no end
mark, and are compared one by one.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.hashing import mix
from ikebana.kernels.layout import ADDRESS_BITS
from ikebana.kernels.pointers import load, load_byte, store_byte

_ADDRESS = (1 << ADDRESS_BITS) - 1
_LENGTH = (1 << (64 - ADDRESS_BITS)) - 1


@helper
def reference(address, length):
    """The integer that stands for a text."""
    return np.int64(np.uint64(address) | (np.uint64(length) << np.uint64(ADDRESS_BITS)))


@helper
def address_of_text(text):
    return text & _ADDRESS


@helper
def length_of_text(text):
    return (text >> ADDRESS_BITS) & _LENGTH


@helper
def same_bytes(a, b, length):
    """Whether so many bytes at two addresses are equal."""
    at = 0
    while at + 8 <= length:
        if load(a + at) != load(b + at):
            return False
        at += 8
    while at < length:
        if load_byte(a + at) != load_byte(b + at):
            return False
        at += 1
    return True


@helper
def same_text(a, b):
    if a == b:
        return True
    length = length_of_text(a)
    return length == length_of_text(b) and same_bytes(address_of_text(a), address_of_text(b), length)


@helper
def starts_with(text, part):
    length = length_of_text(part)
    return length <= length_of_text(text) and same_bytes(address_of_text(text), address_of_text(part), length)


@helper
def ends_with(text, part):
    length = length_of_text(part)
    skipped = length_of_text(text) - length
    return skipped >= 0 and same_bytes(address_of_text(text) + skipped, address_of_text(part), length)


@helper
def contains(text, part):
    length, start, wanted = length_of_text(part), address_of_text(text), address_of_text(part)
    for at in range(length_of_text(text) - length + 1):
        if same_bytes(start + at, wanted, length):
            return True
    return False


@helper
def copy_text(text, address):
    """Copy the bytes of a text to an address; return the reference to the copy."""
    start, length = address_of_text(text), length_of_text(text)
    for at in range(length):
        store_byte(address + at, load_byte(start + at))
    return reference(address, length)


@helper
def hash_of_text(text):
    """What `ikebana.kernels.hashing.hash_bytes` mixes in for a text."""
    start, length = address_of_text(text), length_of_text(text)
    end = start + length
    part = mix(np.uint64(length) + np.uint64(1))
    while start + 8 <= end:
        part = mix(part ^ np.uint64(load(start))) * np.uint64(0x9E3779B97F4A7C15)
        start += 8
    word = np.uint64(0)
    for byte in range(end - start):
        word |= np.uint64(load_byte(start + byte)) << np.uint64(8 * byte)
    return mix(part ^ word)


@kernel("void(lane, lane_out, bytes_out)")
def gather_texts(texts, offsets, out):
    """Copy the bytes of texts, one after the other, to `out`, and their ends to `offsets`, which starts with 0."""
    end = 0
    for row in range(len(texts)):
        start, length = address_of_text(texts[row]), length_of_text(texts[row])
        for at in range(length):
            out[end + at] = load_byte(start + at)
        end += length
        offsets[row + 1] = end
