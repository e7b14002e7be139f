"""The kernels of packed rows and of sets of groups compute what their twins in `naive` do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.kernels.layout import (
    ASCENDING,
    DIFF_FIELD,
    FIELD_CELLS,
    GROUP_CELLS,
    KEY_FIELD,
    KEY_LOW,
    MEASURE_CELLS,
    MEASURED,
    SLOT_CELLS,
    SLOTS_USED,
    TAKEN,
    TIX_FIELD,
    VAL_FIELD,
)
from tests.kernels import naive
from tests.kernels.naive import Update

LEAST, GREATEST = -(2**63), 2**63 - 1
NUMBERS = st.integers(-2, 2) | st.sampled_from([LEAST, LEAST + 1, GREATEST]) | st.integers(LEAST, GREATEST)
LANES = st.sampled_from([st.just(0), st.integers(0, 1), st.integers(-3, 3), NUMBERS])
TIMES = 3


def spread(array: np.ndarray) -> np.ndarray:
    """The same array as every other cell of a larger one."""
    return np.repeat(array, 2)[::2]


def as_constant(array: np.ndarray) -> np.ndarray:
    """The same array as a single cell, if all its cells are equal."""
    if not len(array) or (array != array[0]).any():
        return array
    return np.broadcast_to(array[:1], array.shape)


LAYOUTS = st.sampled_from([np.copy, spread, as_constant])


@st.composite
def some_updates(draw, least: int = 0) -> list[Update]:
    """Updates with one diff lane, in any order, or in order."""
    key, val, diff = draw(LANES), draw(LANES), draw(LANES)
    update = st.tuples(key, st.just(0), val, st.integers(0, TIMES - 1), st.tuples(diff))
    updates = draw(st.lists(update, min_size=least, max_size=30))
    return sorted(updates) if draw(st.booleans()) else updates


def lanes_of(updates: list[Update], layout) -> tuple[np.ndarray, ...]:
    """The keys, values, times and diffs of updates."""
    key, val, diff = (np.array(lane, np.int64) for lane in _fields(updates))
    tix = np.array([time for *_, time, _ in updates], np.int32)
    return layout(key), layout(val), layout(tix), layout(diff)


def _fields(updates: list[Update]) -> tuple[list[int], list[int], list[int]]:
    return [u[0] for u in updates], [u[2] for u in updates], [u[4][0] for u in updates]


@given(some_updates(least=1), some_updates(), LAYOUTS)
def test_twin_measure_rows(first, second, layout):
    measure = np.zeros(MEASURE_CELLS, np.int64)
    kernels.measure_rows(*lanes_of(first, layout), measure)
    ascending, bounds = naive.measure_rows(first)
    assert (bool(measure[ASCENDING]), measure[KEY_LOW:].tolist()) == (ascending, bounds)
    kernels.measure_rows(*lanes_of(second, layout), measure)
    assert measure[KEY_LOW:].tolist() == naive.measure_rows(first + second)[1]
    assert measure[MEASURED] == len(first) + len(second)
    assert bool(measure[ASCENDING]) == (ascending and not second)


def fields_of(updates: list[Update]) -> tuple[np.ndarray, list[int]]:
    """The fields of the packed rows, and the bits of each."""
    fields, widths = np.zeros(FIELD_CELLS, np.int64), []
    named = zip((KEY_FIELD, VAL_FIELD, DIFF_FIELD), _fields(updates), strict=True)
    lanes = [(field, min(lane), max(lane)) for field, lane in named]
    for field, low, high in sorted([*lanes, (TIX_FIELD, 0, TIMES - 1)]):
        fields[field], fields[field + 1] = low, (high - low).bit_length()
        widths.append((high - low).bit_length())
    return fields, widths


def fit(updates: list[Update]) -> bool:
    return sum(fields_of(updates)[1]) <= 64


@given(some_updates(least=1).filter(fit), st.permutations(range(TIMES)), LAYOUTS)
def test_twin_pack_rows(updates, rank, layout):
    fields, widths = fields_of(updates)
    packed = np.empty(len(updates), np.uint64)
    kernels.pack_rows(*lanes_of(updates, layout), np.array(rank, np.int32), fields, packed)
    assert packed.tolist() == naive.pack_rows(updates, rank, widths)


def packed_rows(updates: list[Update]) -> tuple[np.ndarray, np.ndarray]:
    """The packed rows of updates, and their fields."""
    fields, widths = fields_of(updates)
    return np.array(naive.pack_rows(updates, list(range(TIMES)), widths), np.uint64), fields


def unpacked(packed: np.ndarray, fields: np.ndarray) -> list[tuple[int, int, int]]:
    """The key, value and time of packed rows, by the kernel."""
    rows = len(packed)
    key, val, tix = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int32)
    kernels.unpack_rows(packed, fields, key, val, tix)
    return list(zip(key.tolist(), val.tolist(), tix.tolist(), strict=True))


@given(some_updates(least=1).filter(fit))
def test_twin_unpack_rows(updates):
    assert unpacked(*packed_rows(updates)) == naive.unpack_rows(updates)
    packed, fields = packed_rows(updates)
    val, nothing = np.empty(len(updates), np.int64), np.empty(0, np.int64)
    kernels.unpack_rows(packed, fields, nothing, val, nothing.astype(np.int32))
    assert val.tolist() == [val for _, val, _ in naive.unpack_rows(updates)]


@given(some_updates(least=1).filter(fit))
def test_twin_add_up_packed(updates):
    packed, fields = packed_rows(updates)
    packed.sort()
    totals = np.empty(len(packed), np.int64)
    rows = kernels.add_up_packed(packed, fields, totals)
    expected = naive.add_up_packed(updates)
    assert unpacked(packed[:rows], fields) == naive.unpack_rows(expected)
    assert totals[:rows].tolist() == [diff for *_, (diff,) in expected]


GROUPS = st.lists(st.tuples(st.integers(-2, 2) | NUMBERS, st.integers(-70, 70) | NUMBERS), max_size=40)


def table_of(slots: int) -> np.ndarray:
    return np.zeros(SLOT_CELLS * slots, np.int64)


def add(table: np.ndarray, state: np.ndarray, groups: list[tuple[int, int]], layout) -> list[int]:
    """Add groups with the kernel, until the table is full; return the new ones."""
    key, val = (layout(np.array(lane, np.int64)) for lane in ([g[0] for g in groups], [g[1] for g in groups]))
    rows = np.full(len(groups), -1)
    added = kernels.add_groups(table, state, key, val, rows)
    return rows[:added].tolist()


@given(st.lists(GROUPS, max_size=3), LAYOUTS, st.sampled_from([8, 128]))
def test_twin_add_groups(parts, layout, slots):
    table, state = table_of(slots), np.zeros(GROUP_CELLS, np.int64)
    known: set[tuple[int, int]] = set()
    for groups in parts:
        added = add(table, state, groups, layout)
        taken = groups[: state[TAKEN]]
        assert added == naive.add_groups(known, taken)
        known.update(taken)
        blocks = {(key, val >> 6) for key, val in known}
        assert state[SLOTS_USED] == len(blocks) <= 5 * slots // 8
        if len(taken) < len(groups):
            key, val = groups[len(taken)]
            assert len(blocks) == 5 * slots // 8 and (key, val >> 6) not in blocks


@given(GROUPS, LAYOUTS)
def test_twin_copy_groups(groups, layout):
    table, larger, state = table_of(64), table_of(128), np.zeros(GROUP_CELLS, np.int64)
    add(table, state, groups, layout)
    kernels.copy_groups(table, larger)
    copied = naive.copy_groups(set(groups[: state[TAKEN]]))
    probes = [*sorted(copied), (0, 1 << 40)]
    assert add(larger, state, probes, layout) == naive.add_groups(copied, probes)
