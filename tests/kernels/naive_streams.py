"""The instructions on streams, in ordinary Python: rows are filtered, appended, exchanged, entered and fed back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ikebana.kernels import opcodes
from tests.kernels.naive_state import Row, State, Stop
from tests.kernels.words import signed


def clear(state: State, count: int) -> None:
    """No rows."""
    state.counts[count] = 0


def negate(state: State, count: int, from_: int, to: int) -> None:
    """Diffs with their sign changed."""
    state.write(count, [to], [(signed(-diff),) for (diff,) in state.rows(count, [from_])])


def round_(state: State, count: int, to: int) -> None:
    """The present round, in each row."""
    state.write(count, [to], [(state.round,) for _ in state.rows(count, [])])


def filter_(state: State, source: int, target: int, flag: int, null: int, columns: int, *slots: int) -> None:
    """The rows whose flag is set, and not null."""
    flags = [is_set and not is_null for is_set, is_null in state.rows(source, [flag, null])]
    rows = zip(state.rows(source, slots[::2]), flags, strict=True)
    state.write(target, slots[1::2], [row for row, is_kept in rows if is_kept])


def append(state: State, source: int, target: int, columns: int, *slots: int) -> None:
    """The rows of the source, after those of the target."""
    state.append(target, slots[1::2], state.rows(source, slots[::2]))


def exchange(state: State, source: int, target: int, key: int, columns: int, *slots: int) -> None:
    """The rows of all workers whose keys this worker owns; here there are no others."""
    state.write(target, slots[columns : 2 * columns], state.rows(source, slots[:columns]))


def call(state: State, target: int, function: int, registers: int, *sources: int) -> None:
    """The rows that a function makes of some; here as many as in the first register, and it writes nothing."""
    state.counts[target] = state.counts[sources[0]]


def take(state: State, pending: int, target: int, rounds: int, columns: int, *slots: int) -> None:
    """The pending rows of the present round go to the target."""
    state.append(target, slots[1::2], taken(state, pending, rounds, slots[::2]))


def taken(state: State, pending: int, rounds: int, slots: Sequence[int]) -> list[Row]:
    """Remove the pending rows of the present round, and return them."""
    waiting = state.rows(pending, [rounds, *slots])
    state.write(pending, [rounds, *slots], [row for row in waiting if row[0] != state.round])
    return [row[1:] for row in waiting if row[0] == state.round]


def enter(state: State, source: int, target: int) -> None:
    """The same rows in round 0, none in later rounds."""
    state.counts[target] = 0 if state.round else state.counts[source]


def enter_at(
    state: State, source: int, target: int, pending: int, rounds: int, delays: int, columns: int, *slots: int
) -> None:
    """Each row in the round that is its delay; a negative delay raises."""
    from_, to, later = slots[::3], slots[1::3], slots[2::3]
    for delay, *row in state.rows(source, [delays, *from_]):
        if delay < 0:
            raise Stop(opcodes.RAISED)
        if delay == 0:
            state.append(target, to, [tuple(row)])
        else:
            state.append(pending, [rounds, *later], [(delay, *row)])


def feedback(state: State, source: int, pending: int, last: int, rounds: int, columns: int, *slots: int) -> None:
    """The rows wait for the next round, unless the present one is the last."""
    if state.round + 1 != last:
        rows = [(state.round + 1, *row) for row in state.rows(source, slots[::2])]
        state.append(pending, [rounds, *slots[1::2]], rows)


def consolidate(state: State, source: int, target: int, columns: int, lanes: int, *slots: int) -> None:
    """The distinct rows in order, with the sums of their diffs, if not zero."""
    from_, to = slots[: columns + lanes], slots[columns + lanes :]
    state.write(target, to, added_up(state.rows(source, from_), columns))


def added_up(rows: Iterable[Row], columns: int) -> list[Row]:
    """Rows, each with so many columns and then diffs: in order, equal ones added up, those that cancel left out."""
    diffs: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        diffs[row[:columns]].append(row[columns:])
    sums = [(*row, *(signed(sum(lane)) for lane in zip(*parts, strict=True))) for row, parts in sorted(diffs.items())]
    return [row for row in sums if any(row[columns:])]
