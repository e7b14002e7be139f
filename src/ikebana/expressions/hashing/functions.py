"""Spark's hash functions: `hash` (Murmur3, 32 bits) and `xxhash64`, bit for bit.

The hash of several values is computed one after the other: each one's is the seed of the next, and nulls leave it as it
is. Strings are hashed together with all others of the same length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import from_numpy, to_numpy
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, builds, function
from ikebana.expressions.core.scalars import Arguments, valid
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.numbers.decimals import unscaled

Words = Any
"""An array of unsigned numbers: of 32 bits for Murmur3, of 64 for xxHash."""


def _left(words: Words, count: int) -> Words:
    """Rotated to the left."""
    size = words.dtype.itemsize * 8
    return (words << words.dtype.type(count)) | (words >> words.dtype.type(size - count))


class Murmur3:
    """32 bits; strings by words of four bytes, then byte by byte."""

    word: Any = np.uint32
    result = pa.int32()

    @staticmethod
    def _mixed(state: Words, word: Words) -> Words:
        word = _left(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        return _left(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)

    @staticmethod
    def _finished(state: Words, length: int) -> Words:
        state = state ^ np.uint32(length)
        state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return state ^ (state >> np.uint32(16))

    def of_ints(self, number: Any, seed: Words) -> Words:
        return self._finished(self._mixed(seed, number.astype(np.int32).view(np.uint32)), 4)

    def of_longs(self, number: Any, seed: Words) -> Words:
        halves = np.ascontiguousarray(number, np.int64).view(np.uint32).reshape(-1, 2)
        return self._finished(self._mixed(self._mixed(seed, halves[:, 0]), halves[:, 1]), 8)

    def of_bytes(self, rows: Any, seed: Words) -> Words:
        """Rows of equally many bytes."""
        length = rows.shape[1]
        words = np.ascontiguousarray(rows[:, : length // 4 * 4]).view(np.uint32)
        for column in words.T:
            seed = self._mixed(seed, column)
        for column in rows[:, length // 4 * 4 :].T:
            seed = self._mixed(seed, column.astype(np.int8).astype(np.int32).view(np.uint32))
        return self._finished(seed, length)


_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(each)
    for each in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


class XxHash64:
    """64 bits; strings by four words of eight bytes at once, then by words of eight, four and one."""

    word: Any = np.uint64
    result = pa.int64()

    @staticmethod
    def _finished(state: Words) -> Words:
        state = (state ^ (state >> np.uint64(33))) * _P2
        state = (state ^ (state >> np.uint64(29))) * _P3
        return state ^ (state >> np.uint64(32))

    @staticmethod
    def _by_eight(state: Words, word: Words) -> Words:
        return _left(state ^ (_left(word * _P2, 31) * _P1), 27) * _P1 + _P4

    @staticmethod
    def _by_four(state: Words, word: Words) -> Words:
        return _left(state ^ (word.astype(np.uint64) * _P1), 23) * _P2 + _P3

    def of_ints(self, number: Any, seed: Words) -> Words:
        word = number.astype(np.int32).view(np.uint32)
        return self._finished(self._by_four(seed + _P5 + np.uint64(4), word))

    def of_longs(self, number: Any, seed: Words) -> Words:
        word = np.ascontiguousarray(number, np.int64).view(np.uint64)
        return self._finished(self._by_eight(seed + _P5 + np.uint64(8), word))

    def of_bytes(self, rows: Any, seed: Words) -> Words:
        """Rows of equally many bytes."""
        length, at = rows.shape[1], rows.shape[1] // 32 * 32
        state = self._by_blocks(rows[:, :at], seed) if at else seed + _P5
        state = state + np.uint64(length)
        eights = length - (length - at) % 8
        for column in np.ascontiguousarray(rows[:, at:eights]).view(np.uint64).T:
            state = self._by_eight(state, column)
        fours = length - (length - eights) % 4
        for column in np.ascontiguousarray(rows[:, eights:fours]).view(np.uint32).T:
            state = self._by_four(state, column)
        for column in rows[:, fours:].T:
            state = _left(state ^ (column.astype(np.uint64) * _P5), 11) * _P1
        return self._finished(state)

    @staticmethod
    def _by_blocks(rows: Any, seed: Words) -> Words:
        words = np.ascontiguousarray(rows).view(np.uint64).T
        lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
        for number, column in enumerate(words):
            lanes[number % 4] = _left(lanes[number % 4] + column * _P2, 31) * _P1
        state = _left(lanes[0], 1) + _left(lanes[1], 7) + _left(lanes[2], 12) + _left(lanes[3], 18)
        for lane in lanes:
            state = (state ^ (_left(lane * _P2, 31) * _P1)) * _P1 + _P4
        return state


Hash = Murmur3 | XxHash64
_HASHES: dict[str, Hash] = {"Murmur3Hash": Murmur3(), "XxHash64": XxHash64()}


@builds("Murmur3Hash", "XxHash64")
def _build(tree: Tree, children: Arguments, config: Config) -> Expression:
    for child in children:
        _check(child.type)
    return Call(_HASHES[tree.kind].result, False, tree.kind, children, (int(tree.fields["seed"]),))


def _check(kind: pa.DataType) -> None:
    if types.is_map(kind) or types.is_interval(kind):
        raise SqlError(f"values of type {kind} cannot be hashed")
    for number in range(kind.num_fields):
        _check(kind.field(number).type)


def _register(name: str, how: Hash) -> None:
    @function(name, lazy=True)
    def _(call: Call, rows: ColumnBatch) -> pa.Array:
        state: Words = np.full(rows.count, call.options[0] & np.iinfo(how.word).max, how.word)
        for each in call.arguments:
            state = _hashed(how, each.evaluate(rows), state)
        return from_numpy(how.result, state.view(f"i{state.dtype.itemsize}"))


for _name, _how in _HASHES.items():
    _register(_name, _how)


def _hashed(how: Hash, array: pa.Array, seed: Words) -> Words:
    """The hash of each value with its seed, which it still is where the value is null."""
    if types.is_null(array.type):
        return seed
    if types.is_struct(array.type):
        found = seed
        for field in array.flatten():
            found = _hashed(how, field, found)
    elif types.is_list(array.type):
        found = _of_lists(how, array, seed)
    else:
        found = _of_values(how, array, seed)
    there = valid(array)
    return found if there is None else np.where(there, found, seed)


def _of_values(how: Hash, array: pa.Array, seed: Words) -> Words:
    kind = array.type
    if types.is_string(kind) or types.is_binary(kind):
        return _of_texts(how, array, seed)
    if types.is_decimal(kind):
        if kind.precision <= 18:
            return how.of_longs(unscaled(array), seed)
        return _of_texts(how, pa.array([_as_bytes(each) for each in unscaled(array).tolist()], pa.binary()), seed)
    data = to_numpy(array)
    if types.is_floating(kind):
        data = np.where(data == 0, 0, data).astype(data.dtype)
        data = np.where(np.isnan(data), np.array(np.nan, data.dtype), data).view(f"i{data.dtype.itemsize}")
    return how.of_longs(data, seed) if data.dtype.itemsize == 8 else how.of_ints(data, seed)


def _as_bytes(whole: int) -> bytes:
    """As few bytes as hold a number and its sign, the first one first."""
    return whole.to_bytes((whole if whole >= 0 else ~whole).bit_length() // 8 + 1, "big", signed=True)


def _of_texts(how: Hash, array: pa.Array, seed: Words) -> Words:
    lengths = np.asarray(pc.fill_null(pc.binary_length(array), 0))
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array)]
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    found = seed.copy()
    for length in np.unique(lengths).tolist():
        here = lengths == length
        rows = data[offsets[here][:, None] + np.arange(length)]
        found[here] = how.of_bytes(rows, seed[here])
    return found


def _of_lists(how: Hash, array: pa.Array, seed: Words) -> Words:
    """One element after the other, for all lists that have as many."""
    offsets, items = np.asarray(array.offsets), array.values
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
    found = seed.copy()
    for number in range(int(lengths.max()) if len(lengths) else 0):
        here = lengths > number
        taken = items.take(pa.array(offsets[:-1][here] + number))
        found[here] = _hashed(how, taken, found[here])
    return found
