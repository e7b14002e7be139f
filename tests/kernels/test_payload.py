"""The kernels that gather payload compute what their twins do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.kernels.layout import ADDRESS_BITS
from tests.kernels import naive
from tests.kernels.arrays import FLAGS, JUNK, LAYOUTS, NUMBERS, STRINGS, bytes_of, flags, lane, offsets_of
from tests.kernels.program_traces import address_of


@st.composite
def payloads(draw, cell: st.SearchStrategy) -> tuple[list, list, list[int]]:
    """Rows of two sources, and which of them to gather, counted through both."""
    a, b = draw(st.lists(cell, max_size=12)), draw(st.lists(cell, max_size=12))
    rows = st.lists(st.integers(0, len(a) + len(b) - 1)) if a or b else st.just([])
    return a, b, draw(rows)


@given(
    st.integers(1, 17).flatmap(
        lambda width: st.tuples(st.just(width), payloads(st.binary(min_size=width, max_size=width)))
    ),
    st.integers(0, 3),
    LAYOUTS,
)
def test_twin_gather_fixed(case, at, layout):
    width, (a, b, rows) = case
    before, after = at * width, (at + len(rows)) * width
    out = np.full(after + width, JUNK, np.uint8)
    kernels.gather_fixed(bytes_of(a), bytes_of(b), len(a), width, layout(lane(rows)), out, at)
    assert out[before:after].tobytes() == b"".join(naive.gather_fixed(a, b, rows))
    assert (out[:before] == JUNK).all() and (out[after:] == JUNK).all()


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.tuples(st.just(width), payloads(st.lists(NUMBERS, min_size=width, max_size=width)))
    ),
    st.integers(0, 3),
    LAYOUTS,
)
def test_twin_gather_words(case, at, layout):
    width, (a, b, rows) = case
    out = np.full((at + len(rows) + 1) * width, JUNK, np.int64)
    a_lane, b_lane = (np.ascontiguousarray(layout(lane([word for row in side for word in row]))) for side in (a, b))
    kernels.gather_words(a_lane, b_lane, len(a), width, np.ascontiguousarray(layout(lane(rows))), out, at)
    expected = [word for row in naive.gather_words(a, b, rows) for word in row]
    assert out.tolist() == [JUNK] * at * width + expected + [JUNK] * width


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.tuples(
            st.just(width),
            payloads(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=width, max_size=width)),
        )
    ),
    st.integers(0, 3),
)
def test_twin_gather_halves(case, at):
    width, (a, b, rows) = case
    out = np.full((at + len(rows) + 1) * width, JUNK, np.int32)
    sides = (np.array([word for row in side for word in row], np.int32) for side in (a, b))
    kernels.gather_halves(*sides, len(a), width, lane(rows), out, at)
    expected = [word for row in naive.gather_halves(a, b, rows) for word in row]
    assert out.tolist() == [JUNK] * at * width + expected + [JUNK] * width


def bitmap(bits: list[int], offset: int) -> np.ndarray:
    """Arrow's bitmap of the bits, after `offset` others; no bytes if all are 1."""
    return np.packbits([0] * offset + bits, bitorder="little") if 0 in bits else flags([])


@given(payloads(FLAGS), *[st.integers(0, 20)] * 2, st.integers(0, 3), LAYOUTS)
def test_twin_gather_bits(case, a_offset, b_offset, at, layout):
    a, b, rows = case
    out = np.full(at + len(rows) + 1, JUNK, np.uint8)
    kernels.gather_bits(
        *(bitmap(a, a_offset), a_offset, bitmap(b, b_offset), b_offset),
        *(len(a), layout(lane(rows)), out, at),
    )
    assert out.tolist() == [JUNK] * at + naive.gather_bits(a, b, rows) + [JUNK]


@given(payloads(STRINGS), st.lists(STRINGS, max_size=3), STRINGS, LAYOUTS)
def test_twin_gather_strings(case, before, skipped, layout):
    a, b, rows = case
    expected = before + naive.gather_strings(a, b, rows)  # appended
    bounds, content = offsets_of(expected), b"".join(expected)
    offsets_out, out = np.full(len(bounds) + 1, JUNK), np.full(len(content) + 1, JUNK, np.uint8)
    offsets_out[: len(before) + 1] = offsets_of(before)
    out[: len(b"".join(before))] = bytes_of(before)
    kernels.gather_strings(
        *(layout(offsets_of(a, first=len(skipped))), bytes_of([skipped, *a])),
        *(layout(offsets_of(b)), bytes_of(b)),
        *(len(a), layout(lane(rows)), offsets_out, out, len(before)),
    )
    assert offsets_out.tolist() == [*bounds.tolist(), JUNK]
    assert out.tobytes() == content + bytes([JUNK])


@st.composite
def pairs(draw, value: st.SearchStrategy) -> tuple[list, list, list[int], list[int], list[int]]:
    """Values of two sources, which may be null, and pairs of their rows with flags; many pairs are equal."""
    values = draw(st.lists(value, min_size=1, max_size=3))
    cells = st.lists(st.none() | st.sampled_from(values), max_size=8)
    a, b = draw(cells), draw(cells)
    numbers = [st.integers(0, len(side) - 1) for side in (a, b)]
    rows = draw(st.lists(st.tuples(*numbers, FLAGS), max_size=12)) if a and b else []
    return a, b, *([list(column) for column in zip(*rows, strict=True)] or [[], [], []])


def stored(cells: list, offset: int, fill: bytes) -> tuple[list[bytes], np.ndarray, int]:
    """The values of a column with `fill` in place of nulls, and its bitmap of validity with the bit of row 0."""
    valid = [int(cell is not None) for cell in cells]
    return [fill if cell is None else cell for cell in cells], bitmap(valid, offset), offset


@given(
    st.integers(1, 17).flatmap(
        lambda width: st.tuples(st.just(width), pairs(st.binary(min_size=width, max_size=width)))
    ),
    *[st.integers(0, 20)] * 2,
    LAYOUTS,
)
def test_twin_same_fixed(case, a_offset, b_offset, layout):
    width, (a, b, a_rows, b_rows, same) = case
    sides = (stored(a, a_offset, b"a" * width), stored(b, b_offset, b"b" * width))
    (a_values, *a_valid), (b_values, *b_valid) = sides
    out = flags(same)
    rows = layout(lane(a_rows)), layout(lane(b_rows))
    kernels.same_fixed(bytes_of(a_values), *a_valid, bytes_of(b_values), *b_valid, width, *rows, out)
    assert out.tolist() == naive.same_fixed(a, b, a_rows, b_rows, same)


@given(pairs(STRINGS), STRINGS, *[st.integers(0, 20)] * 2, LAYOUTS)
def test_twin_same_strings(case, skipped, a_offset, b_offset, layout):
    a, b, a_rows, b_rows, same = case
    (a_values, *a_valid), (b_values, *b_valid) = stored(a, a_offset, b"a"), stored(b, b_offset, b"")
    out = flags(same)
    kernels.same_strings(
        *(layout(offsets_of(a_values, first=len(skipped))), bytes_of([skipped, *a_values]), *a_valid),
        *(layout(offsets_of(b_values)), bytes_of(b_values), *b_valid),
        *(layout(lane(a_rows)), layout(lane(b_rows)), out),
    )
    assert out.tolist() == naive.same_strings(a, b, a_rows, b_rows, same)


@given(st.lists(STRINGS, max_size=6), LAYOUTS)
def test_twin_gather_texts(texts, layout):
    data = bytes_of(texts)
    starts = address_of(data) + offsets_of(texts)[:-1]
    references = starts | lane([len(text) << ADDRESS_BITS for text in texts])
    expected, content = naive.gather_texts(texts)
    offsets, out = np.zeros(len(texts) + 1, np.int64), np.full(len(content) + 1, JUNK, np.uint8)
    kernels.gather_texts(layout(references), offsets, out)
    assert offsets.tolist() == expected
    assert out.tobytes() == content + bytes([JUNK])
