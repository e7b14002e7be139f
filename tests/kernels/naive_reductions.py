"""The instructions that reduce groups of rows, in ordinary Python: distinct, sums and top."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ikebana.kernels import opcodes
from tests.kernels.naive_state import Row, State, Stop, Update, payload_of
from tests.kernels.naive_streams import taken
from tests.kernels.naive_traces import check_agreement, is_seen
from tests.kernels.words import signed


def _groups(state: State, columns: int, source: int, groups: int, pending: int, rounds: int, *slots: int) -> list[Row]:
    """The distinct groups of the fresh rows and of the pending rows of this round, in order."""
    fresh, ordered, later = slots[:columns], slots[columns : 2 * columns], slots[2 * columns :]
    rows = state.rows(source, fresh)
    if pending >= 0:
        rows += taken(state, pending, rounds, later)
    state.write(groups, ordered, rows)
    return sorted(set(rows))


def _next_change(state: State, updates: Iterable[Update]) -> list[int]:
    """The first later round at which updates of earlier epochs are, if any are."""
    return sorted({update[3] for update in updates if state.epoch(update) < state.now and update[3] > state.round})[:1]


def _total(state: State, updates: Iterable[Update], mode: int = opcodes.SEEN) -> int:
    """The sum of the first diffs of the updates that count at this visit: up to its epoch and up to its round."""
    counted = [update for update in updates if is_seen(state, update, mode) and update[3] <= state.round]
    return signed(sum(update[4][0] for update in counted))


def distinct(
    state: State, target: int, given: int, produced: int, to_key: int, to_val: int, to_diff: int, *operands: int
) -> None:
    """For each group, a key and a value: one if its count is positive, minus what was there before."""
    groups, columns = operands[1:11], operands[11:]
    source, _, pending, rounds, *slots = groups
    payloads, fresh = state.payload(source, columns), state.rows(source, slots[:2])
    rows = []
    for key, val in _groups(state, 2, *groups):
        if columns:
            updates = [*state.traces[given].updates, *state.traces[produced].updates]
            same = [payload_of(update) for update in updates if update[:2] == (key, val)]
            check_agreement([payloads[fresh.index((key, val))], *same])
        inputs, outputs = (
            [update for update in state.traces[trace].updates if update[:2] == (key, val)]
            for trace in (given, produced)
        )
        if pending >= 0:
            later = _next_change(state, inputs + outputs)
            state.append(pending, [rounds, *slots[4:]], [(round_, key, val) for round_ in later])
        rows.append((key, val, signed((_total(state, inputs) > 0) - _total(state, outputs))))
    rows = [row for row in rows if row[2]]
    state.write(target, [to_key, to_val, to_diff], rows)
    positions = [fresh.index(row[:2]) for row in rows] if columns else []
    state.copy(source, target, columns, positions)
    state.store(produced, rows, [payloads[at] for at in positions] if columns else [()] * len(rows))


def sums(
    state: State,
    source: int,
    target: int,
    trace: int,
    lanes: int,
    key: int,
    to_key: int,
    to_diff: int,
    keys: int,
    *slots: int,
) -> None:
    """For each row the sums of its key before this visit, retracted, and after it; sums that begin with 0 are none."""
    diffs, to, groups = slots[:lanes], slots[lanes : 2 * lanes], slots[2 * lanes :]
    rows: list[Row] = []
    positions: list[int] = []
    own_keys = state.payload(source, groups)
    for at, (group, *changes) in enumerate(state.rows(source, [key, *diffs])):
        if len(rows) + 2 > state.room:
            raise Stop(opcodes.FULL)
        same = [payload_of(update)[:keys] for update in state.traces[trace].updates if update[0] == group]
        check_agreement([own_keys[at], *same])
        parts = [update[4] for update in state.traces[trace].updates if update[0] == group and update[2] <= state.now]
        new = [signed(sum(part[lane] for part in parts)) for lane in range(lanes)]
        old = [signed(total - change) for total, change in zip(new, changes, strict=True)]
        rows += [(group, diff, *totals) for diff, totals in ((-1, old), (1, new)) if totals[0]]
        positions += [at] * (len(rows) - len(positions))
    state.write(target, [to_key, to_diff, *to], rows)
    state.copy(source, target, groups, positions)


def top(
    state: State,
    target: int,
    given: int,
    produced: int,
    to_key: int,
    to_val: int,
    to_diff: int,
    limit: int,
    greatest: int,
    once: int,
    loops: int,
    *groups: int,
) -> None:
    """The first values of each group, minus those before: as stored, or outside loops as computed again."""
    _, _, pending, rounds, *slots = groups
    rows = []
    for (key,) in _groups(state, 1, *groups):
        inputs, outputs = (
            [update for update in state.traces[trace].updates if update[0] == key] for trace in (given, produced)
        )
        new = _first(_totals(state, inputs), limit, greatest, once)
        if loops:
            old = _totals(state, outputs)
            later = _next_change(state, inputs + outputs)
            state.append(pending, [rounds, *slots[2:]], [(round_, key) for round_ in later])
        else:
            old = _first(_totals(state, inputs, opcodes.BEFORE), limit, greatest, once)
        if max(len(new), len(old)) > state.room:
            raise Stop(opcodes.FULL)
        changes = {val: signed(new.get(val, 0) - old.get(val, 0)) for val in sorted({*new, *old})}
        rows += [(key, val, change) for val, change in changes.items() if change]
    state.write(target, [to_key, to_val, to_diff], rows)
    state.store(produced, rows, [()] * len(rows))


def _totals(state: State, updates: Sequence[Update], mode: int = opcodes.SEEN) -> dict[int, int]:
    """The count of each value, if not zero."""
    values = {val for _, val, *_ in updates}
    totals = {val: _total(state, [update for update in updates if update[1] == val], mode) for val in values}
    return {val: total for val, total in totals.items() if total}


def _first(totals: dict[int, int], limit: int, greatest: int, once: int) -> dict[int, int]:
    """The first values of positive count, `limit` in all; with `once`, each counts once."""
    chosen: dict[int, int] = {}
    for val in sorted(totals, reverse=bool(greatest)):
        places = limit - sum(chosen.values())
        if totals[val] > 0 and places > 0:
            chosen[val] = 1 if once else min(totals[val], places)
    return chosen
