"""The kernel that searches texts computes what its twin does, and LIKE on long columns what it does on short ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.expressions import Column, ColumnBatch, Literal
from ikebana.expressions.core.base import Call
from ikebana.expressions.strings import functions, regexes
from ikebana.expressions.strings.searching import TextSearch
from tests.kernels import naive
from tests.kernels.arrays import LAYOUTS, bytes_of, index, lane, offsets_of

TEXTS = st.text("ab", max_size=12).map(str.encode)


@given(st.lists(TEXTS), st.lists(TEXTS.filter(bool), max_size=3), st.booleans(), st.booleans(), TEXTS, LAYOUTS)
def test_twin_search_parts(texts, parts, at_start, at_end, skipped, layout):
    assume(len(parts) > 1 or not (at_start and at_end))
    search, found = TextSearch(tuple(parts), at_start, at_end), np.full(len(texts), 77, np.uint8)
    offsets = layout(index(offsets_of(texts, first=len(skipped)).tolist()))
    bounds = layout(lane(np.cumsum([0, *map(len, parts)]).tolist()))
    data = bytes_of([skipped, *texts])
    kernels.search_parts(offsets, data, bytes_of(parts), bounds, search._skips, int(at_start), int(at_end), found)
    ends = bool(parts) and at_start, bool(parts) and at_end
    assert found.astype(bool).tolist() == naive.search_parts(texts, parts, *ends)


@pytest.mark.parametrize("function", ["Like", "Contains"])
@given(
    pattern=st.text("ab%_é", max_size=6),
    texts=st.lists(st.none() | st.text("abé\n", max_size=10)),
    first=st.integers(0, 2),
)
def test_oracle_long_columns(function: str, pattern: str, texts: list[str | None], first: int) -> None:
    call = Call(pa.bool_(), True, function, (Column(pa.string(), True, "text"), Literal(pa.string(), False, pattern)))
    column = pa.array(texts, pa.string()).slice(first)
    rows = ColumnBatch.from_input({"text": column}, len(column))
    expected = call.evaluate(rows)
    with pytest.MonkeyPatch.context() as patch:
        for module in (functions, regexes):
            patch.setattr(module, "LEAST_ROWS", 0)
        assert call.evaluate(rows).equals(expected)
