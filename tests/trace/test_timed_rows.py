"""The times of rows: choosing rows by their times."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.trace import Updates

SCHEMA = Schema({"k": pa.int64()})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1), st.sets(st.integers(0, 3)))
def test_oracle_rows_at_some_times(rows: list[tuple[int, int]], chosen: set[int]) -> None:
    """The rows are those at the chosen times, and unless there are none, so are all times of the table."""
    updates = Updates.of(SCHEMA, {"k": [k for k, _ in rows]}, [time for _, time in rows])
    flags = np.isin(updates.times[:, 0], list(chosen))
    for kept in (updates.at_times(flags), updates.at_times(flags.astype(np.uint8))):
        assert kept.triples() == [((k,), (time,), 1) for k, time in rows if time in chosen]
        assert not len(kept) or {*kept.times[:, 0].tolist()} == {time for _, time in rows if time in chosen}
        assert kept.pruned().triples() == kept.triples()
