"""Extensions equal their twin, for any traces and any room."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from tests.kernels import naive
from tests.kernels.arrays import GREATEST, JUNK
from tests.kernels.program_traces import TraceTable
from tests.kernels.programs import traces
from tests.profiles import examples


@examples(2, quick=1)
@given(st.data(), st.integers(1, 3))
def test_twin_extend_rows(data: st.DataObject, number: int) -> None:
    cases = data.draw(traces(number))
    stored = sorted({update[0] for case in cases for update in case.plain.updates}) or [0]
    size = data.draw(st.integers(0, 5))
    lane = st.lists(st.sampled_from([*stored, GREATEST, 0]), min_size=size, max_size=size)
    keys = [data.draw(lane) for _ in cases]
    epochs = data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
    modes = [(data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))) for _ in cases]
    coalesced = data.draw(st.integers(0, 2))
    room, tables = data.draw(st.integers(0, 8)), [TraceTable(case) for case in cases]
    described = np.array([(table.address, *mode) for table, mode in zip(tables, modes, strict=True)], np.int64)
    state, start = np.zeros(2, np.int64), 0
    while start < size:
        out = np.full((3, room), JUNK, np.int64)
        lanes = np.array(keys, np.int64).reshape(number, size)
        written = kernels.extend_rows(described, lanes, np.array(epochs, np.int64), out, 1 << 40, coalesced, state)
        plain = [(case.plain, *mode) for case, mode in zip(cases, modes, strict=True)]
        expected, start = naive.extend_rows(plain, keys, epochs, coalesced, room, start)
        assert [tuple(row) for row in out[:, :written].T.tolist()] == expected
        assert state[0] == start
        assert (state[1] > room - written) == (start < size)
        room = max(room, int(state[1]))
    for table in tables:
        table.check()
