"""Spark's hash functions `hash` (Murmur3, 32 bits) and `xxhash64`, with the same results bit for bit.

The hash of a value is the seed for the next value: of arguments, of fields of a struct, and of elements of an array. A
null leaves the seed as it is. Spark's Murmur3 differs from the standard one in the last bytes of a string, each of
which it mixes in separately.

Cost: strings of the same length are hashed together, and so are the elements at the same position of all arrays.

Unsupported: hashes of maps (which Spark refuses by default) and of intervals of months, days and microseconds.
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
from ikebana.expressions.core.scalars import Arguments, validity_of
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.numbers.decimals import to_unscaled

Words = Any
"""A NumPy array of unsigned integers: of 32 bits for Murmur3, of 64 bits for xxHash."""


def _rotate_left(words: Words, count: int) -> Words:
    size = words.dtype.itemsize * 8
    return (words << words.dtype.type(count)) | (words >> words.dtype.type(size - count))


class Murmur3:
    """Murmur3 with 32 bits. Strings are hashed by words of four bytes, then by single bytes."""

    word: Any = np.uint32
    result = pa.int32()

    @staticmethod
    def _mix(state: Words, word: Words) -> Words:
        word = _rotate_left(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        return _rotate_left(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)

    @staticmethod
    def _finish(state: Words, length: int) -> Words:
        state = state ^ np.uint32(length)
        state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return state ^ (state >> np.uint32(16))

    def of_ints(self, number: Any, seed: Words) -> Words:
        return self._finish(self._mix(seed, number.astype(np.int32).view(np.uint32)), 4)

    def of_longs(self, number: Any, seed: Words) -> Words:
        halves = np.ascontiguousarray(number, np.int64).view(np.uint32).reshape(-1, 2)
        return self._finish(self._mix(self._mix(seed, halves[:, 0]), halves[:, 1]), 8)

    def of_bytes(self, rows: Any, seed: Words) -> Words:
        """The hashes of strings of the same length, given as a matrix with a row of bytes for each."""
        length = rows.shape[1]
        words = np.ascontiguousarray(rows[:, : length // 4 * 4]).view(np.uint32)
        for column in words.T:
            seed = self._mix(seed, column)
        for column in rows[:, length // 4 * 4 :].T:
            seed = self._mix(seed, column.astype(np.int8).astype(np.int32).view(np.uint32))
        return self._finish(seed, length)


_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


class XxHash64:
    """xxHash with 64 bits. Strings are hashed by blocks of 32 bytes, then by words of eight, four and one bytes."""

    word: Any = np.uint64
    result = pa.int64()

    @staticmethod
    def _finish(state: Words) -> Words:
        state = (state ^ (state >> np.uint64(33))) * _P2
        state = (state ^ (state >> np.uint64(29))) * _P3
        return state ^ (state >> np.uint64(32))

    @staticmethod
    def _mix_long(state: Words, word: Words) -> Words:
        return _rotate_left(state ^ (_rotate_left(word * _P2, 31) * _P1), 27) * _P1 + _P4

    @staticmethod
    def _mix_int(state: Words, word: Words) -> Words:
        return _rotate_left(state ^ (word.astype(np.uint64) * _P1), 23) * _P2 + _P3

    def of_ints(self, number: Any, seed: Words) -> Words:
        word = number.astype(np.int32).view(np.uint32)
        return self._finish(self._mix_int(seed + _P5 + np.uint64(4), word))

    def of_longs(self, number: Any, seed: Words) -> Words:
        word = np.ascontiguousarray(number, np.int64).view(np.uint64)
        return self._finish(self._mix_long(seed + _P5 + np.uint64(8), word))

    def of_bytes(self, rows: Any, seed: Words) -> Words:
        """The hashes of strings of the same length, given as a matrix with a row of bytes for each."""
        length, at = rows.shape[1], rows.shape[1] // 32 * 32
        state = self._hash_blocks(rows[:, :at], seed) if at else seed + _P5
        state = state + np.uint64(length)
        eights = length - (length - at) % 8
        for column in np.ascontiguousarray(rows[:, at:eights]).view(np.uint64).T:
            state = self._mix_long(state, column)
        fours = length - (length - eights) % 4
        for column in np.ascontiguousarray(rows[:, eights:fours]).view(np.uint32).T:
            state = self._mix_int(state, column)
        for column in rows[:, fours:].T:
            state = _rotate_left(state ^ (column.astype(np.uint64) * _P5), 11) * _P1
        return self._finish(state)

    @staticmethod
    def _hash_blocks(rows: Any, seed: Words) -> Words:
        words = np.ascontiguousarray(rows).view(np.uint64).T
        lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
        for number, column in enumerate(words):
            lanes[number % 4] = _rotate_left(lanes[number % 4] + column * _P2, 31) * _P1
        state = (
            _rotate_left(lanes[0], 1)
            + _rotate_left(lanes[1], 7)
            + _rotate_left(lanes[2], 12)
            + _rotate_left(lanes[3], 18)
        )
        for lane in lanes:
            state = (state ^ (_rotate_left(lane * _P2, 31) * _P1)) * _P1 + _P4
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
        raise SqlError(
            f"hash and xxhash64 do not support values of type {kind}",
            hint="for a map, hash map_keys and map_values" if types.is_map(kind) else "",
        )
    for number in range(kind.num_fields):
        _check(kind.field(number).type)


def _register(name: str, algorithm: Hash) -> None:
    @function(name, lazy=True)
    def _(call: Call, rows: ColumnBatch) -> pa.Array:
        state: Words = np.full(rows.count, call.options[0] & np.iinfo(algorithm.word).max, algorithm.word)
        for argument in call.arguments:
            state = _hashed(algorithm, argument.evaluate(rows), state)
        return from_numpy(algorithm.result, state.view(f"i{state.dtype.itemsize}"))


for _name, _algorithm in _HASHES.items():
    _register(_name, _algorithm)


def _hashed(algorithm: Hash, array: pa.Array, seed: Words) -> Words:
    """The hash of each value with its seed; the seed itself where the value is null."""
    if types.is_null(array.type):
        return seed
    if types.is_struct(array.type):
        hashes = seed
        for field in array.flatten():
            hashes = _hashed(algorithm, field, hashes)
    elif types.is_list(array.type):
        hashes = _hash_lists(algorithm, array, seed)
    else:
        hashes = _hash_values(algorithm, array, seed)
    is_valid = validity_of(array)
    return hashes if is_valid is None else np.where(is_valid, hashes, seed)


def _hash_values(algorithm: Hash, array: pa.Array, seed: Words) -> Words:
    kind = array.type
    if types.is_string(kind) or types.is_binary(kind):
        return _hash_strings(algorithm, array, seed)
    if types.is_decimal(kind):
        if kind.precision <= 18:
            return algorithm.of_longs(to_unscaled(array), seed)
        return _hash_strings(
            algorithm, pa.array([_minimal_bytes(number) for number in to_unscaled(array).tolist()], pa.binary()), seed
        )
    data = to_numpy(array)
    if types.is_floating(kind):
        data = np.where(data == 0, 0, data).astype(data.dtype)
        data = np.where(np.isnan(data), np.array(np.nan, data.dtype), data).view(f"i{data.dtype.itemsize}")
    return algorithm.of_longs(data, seed) if data.dtype.itemsize == 8 else algorithm.of_ints(data, seed)


def _minimal_bytes(number: int) -> bytes:
    """The shortest big-endian two's complement representation, as Java's BigInteger.toByteArray."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _hash_strings(algorithm: Hash, array: pa.Array, seed: Words) -> Words:
    lengths = np.asarray(pc.fill_null(pc.binary_length(array), 0))
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array)]
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    hashes = seed.copy()
    for length in np.unique(lengths).tolist():
        flags = lengths == length
        rows = data[offsets[flags][:, None] + np.arange(length)]
        hashes[flags] = algorithm.of_bytes(rows, seed[flags])
    return hashes


def _hash_lists(algorithm: Hash, array: pa.Array, seed: Words) -> Words:
    """Hash the elements at one position after the other, for all lists that are long enough."""
    offsets, items = np.asarray(array.offsets), array.values
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
    hashes = seed.copy()
    for position in range(int(lengths.max()) if len(lengths) else 0):
        flags = lengths > position
        elements = items.take(pa.array(offsets[:-1][flags] + position))
        hashes[flags] = _hashed(algorithm, elements, hashes[flags])
    return hashes
