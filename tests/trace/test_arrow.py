"""Arrow arrays survive the way to NumPy and back, sliced or not, with nulls or without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import types

from ikebana.encoding.arrow import (
    and_validity,
    decimal_words,
    from_decimal_words,
    from_numpy,
    pack_validity,
    to_numpy,
    unpack_bits,
    validity,
)
from tests.trace.compare import array_of
from tests.trace.strategies import KINDS

FIXED_WIDTH = [kind for kind in KINDS if types.is_primitive(kind) and not types.is_decimal(kind)]
DECIMALS = [kind for kind in KINDS if types.is_decimal(kind)]


@st.composite
def arrays(draw: st.DrawFn, kinds: list[pa.DataType]) -> pa.Array:
    """An array, perhaps with nulls, that perhaps does not start at the beginning of its buffers."""
    kind = draw(st.sampled_from(kinds))
    values: st.SearchStrategy[Any] = KINDS[kind]
    drawn = draw(st.lists(values | st.none() if draw(st.booleans()) else values, max_size=20))
    array = array_of(pa.field("x", kind), drawn)
    return array.slice(draw(st.integers(0, len(array))))


@given(arrays(FIXED_WIDTH))
def test_fixed_width_values(array: pa.Array) -> None:
    back = from_numpy(array.type, to_numpy(array), validity(array))
    back.validate(full=True)
    if types.is_floating(array.type):  # NaN must equal NaN, and -0.0 differ from 0.0
        bits = pa.int32() if types.is_float32(array.type) else pa.int64()
        back, array = back.view(bits), array.view(bits)
    assert back.equals(array)


@given(arrays(DECIMALS))
def test_decimals(array: pa.Array) -> None:
    back = from_decimal_words(array.type, *decimal_words(array), validity(array))
    assert back.equals(array)


@given(arrays([pa.bool_()]), arrays([pa.int64()]))
def test_validity_is_where_no_array_is_null(one: pa.Array, other: pa.Array) -> None:
    rows = min(len(one), len(other))
    one, other = one.slice(0, rows), other.slice(0, rows)
    expected = [a.is_valid and b.is_valid for a, b in zip(one, other, strict=True)]
    valid = validity(one, other)
    assert (valid is None) == (not one.null_count and not other.null_count)
    assert valid is None or valid.tolist() == expected
    both = and_validity(validity(one), validity(other))
    assert (both is None) == (valid is None) and (both is None or both.tolist() == expected)


@pytest.mark.parametrize("rows", [0, 1, 8, 9])
def test_bitmaps_are_left_out_where_all_rows_are_valid(rows: int) -> None:
    assert pack_validity(None) is None
    assert pack_validity(np.ones(rows, bool)) is None
    assert pack_validity(np.zeros(rows + 1, bool)) is not None


def test_bits_of_a_sliced_boolean_array() -> None:
    array = pa.array([True, False, None, True] * 5)
    for start in range(len(array)):
        bits = unpack_bits(array.slice(start))
        assert [bool(bit) for bit, scalar in zip(bits, array.slice(start), strict=True) if scalar.is_valid] == [
            scalar.as_py() for scalar in array.slice(start) if scalar.is_valid
        ]
