"""Texts in programs: strings of bytes that stay where they are, by address and length in one integer.

A slot has the address of the first byte in its lower 48 bits and the number of bytes in the upper 16. Longer texts have
no such reference, and a program that meets one fails.

Contract: whoever makes a reference keeps the bytes where they are while a program may read them. Bytes have no end
mark, and are compared one by one.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.hashing import hash_of_bytes
from ikebana.kernels.layout import ADDRESS_BITS
from ikebana.kernels.pointers import load, load_byte, store, store_byte

_ADDRESS = (1 << ADDRESS_BITS) - 1
_LENGTH = (1 << (64 - ADDRESS_BITS)) - 1
_PERCENT = ord("%")


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
def is_like(text, pattern):
    """Whether a text matches a pattern in which `%` stands for any bytes, and every other byte for itself.

    After a mismatch, the last `%` takes one byte more; earlier ones need not be looked at again.
    """
    start, length = address_of_text(text), length_of_text(text)
    first, last = address_of_text(pattern), length_of_text(pattern)
    at, wanted = 0, 0
    taken, after_percent = 0, -1  # the bytes of the text before what follows the last `%`, and where that starts
    while at < length:
        byte = load_byte(first + wanted) if wanted < last else 0
        if wanted < last and byte == _PERCENT:
            wanted += 1
            taken, after_percent = at, wanted
        elif wanted < last and byte == load_byte(start + at):
            at += 1
            wanted += 1
        elif after_percent >= 0:
            taken += 1
            at, wanted = taken, after_percent
        else:
            return False
    while wanted < last and load_byte(first + wanted) == _PERCENT:
        wanted += 1
    return wanted == last


@helper
def substring(text, skipped, taken):
    """The reference to at most so many characters of a text in UTF-8, after those that are skipped."""
    start, length = address_of_text(text), length_of_text(text)
    first = end_of_characters(start, length, 0, skipped)
    return reference(start + first, end_of_characters(start, length, first, taken) - first)


@helper
def end_of_characters(start, length, at, characters):
    """Where so many characters end that begin at a place of a text, or where the text ends."""
    while at < length and characters > 0:
        at += 1
        while at < length and load_byte(start + at) & 0xC0 == 0x80:
            at += 1
        characters -= 1
    return at


@helper
def copy_bytes(source, target, length):
    """Copy so many bytes from one address to another, word by word; the last word may overlap the one before."""
    if length < 8:
        for at in range(length):
            store_byte(target + at, load_byte(source + at))
        return
    at = 0
    while at + 8 <= length:
        store(target + at, load(source + at))
        at += 8
    store(target + length - 8, load(source + length - 8))


@helper
def copy_text(text, address):
    """Copy the bytes of a text to an address; return the reference to the copy."""
    length = length_of_text(text)
    copy_bytes(address_of_text(text), address, length)
    return reference(address, length)


@helper
def hash_of_text(text):
    """What `ikebana.kernels.hashing.hash_bytes` mixes in for a text."""
    return hash_of_bytes(address_of_text(text), length_of_text(text))


@kernel("void(lane, lane_out, bytes_out)")
def gather_texts(texts, offsets, out):
    """Copy the bytes of texts, one after the other, to `out`, and their ends to `offsets`, which starts with 0."""
    end, first = 0, np.int64(out.ctypes.data)
    for row in range(len(texts)):
        length = length_of_text(texts[row])
        copy_bytes(address_of_text(texts[row]), first + end, length)
        end += length
        offsets[row + 1] = end
