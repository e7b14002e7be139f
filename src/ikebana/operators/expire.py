"""Expire: the rows that are valid now, by a clock that is an input like any other.

A row is valid while `valid_from <= now < valid_until`. A bound that is null, or for which no column is named, does not
restrict the row. `now` is the only value of a collection with one row, the clock, which may only grow: the clock is
advanced by replacing its row, and at the epoch of that change rows become valid and expire.

Contract. At every epoch the output has the rows, with their multiplicities, that are valid at the time of the clock at
that epoch; no rows before the clock has a row. Rows that arrive after they have expired never appear. Each change of a
row is handled by itself: a row may be deleted before it is valid, while it is valid, or after.

Workers. Changes of the clock are broadcast, in one message to each peer in each sweep. Rows stay on their workers. (The
deletion of a row arrives at the worker of its insertion in all streams but raw inputs. Where it does not, both wait for
their time, and cancel only in what reads the output.)

Programs. What a change comes to is computed first, and the state changes when that is committed. So programs call the
operator: one that is undone, or tries again, leaves the state as it was.

State: the future changes of each row, that it becomes valid or expires, in order of the time at which they are due
(`Pending`). Rows that are valid for ever, or have expired, take no memory.

Cost: a change of the clock costs time in proportion to the rows that become valid or expire; a change of a row is
sorted into the pending changes, about log n times for n pending changes. Not guaranteed: a bound for a single visit, in
which all pending changes may be sorted together. Unsupported: loops, and clocks that go back, which fail the dataflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.columns import integers, valid_flags
from ikebana.encoding.lanes import Lane, constant
from ikebana.errors import DataflowError
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.exchange import Exchange
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Operator, Steps
from ikebana.operators.registers import CallResult
from ikebana.operators.span import Span
from ikebana.operators.streams import Stream
from ikebana.trace import Updates
from ikebana.trace.updates import consolidate

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""Before and after all times that a clock can have."""


class Expire(Operator[Stream]):
    """The expire operator: reads rows and the clock, writes `out`."""

    def __init__(
        self,
        source: Stream,
        clock: Stream,
        valid_from: str,
        valid_until: str,
        *,
        exchange: Exchange | None = None,
    ) -> None:
        """`valid_from` and `valid_until` name columns; an empty name stands for no bound."""
        self._source, self._clock, self._exchange = source, clock, exchange
        self._from, self._until = valid_from, valid_until
        self._clock_state, self._pending = ClockState(Schema(clock.fields)), Pending(source.fields, source.lanes)
        self.out = Stream(source.fields, 1, source.lanes)

    def visit(self, span: Span) -> Steps:
        """Emit the rows that become valid or expire, because of changed rows or of the clock."""
        ticks = [self._clock.changes.keyed(self._clock_state.schema)]
        if self._exchange is not None:
            ticks = yield from self._exchange.broadcast(ticks[0])
        self.out.changes, commit = self._changed(self._source.changes, Updates.concat(ticks))
        commit()

    def _changed(self, changes: Changes, ticks: Updates) -> CallResult:
        """The output for changes of rows and of the clock, which are noted once that is committed."""
        state, clock = self._clock_state.after(ticks)
        parts, later = list[Changes](), list[SortedRun]()
        if len(changes):
            valid, future, due = self._valid(changes, clock)
            parts.append(valid)
            later = self._pending.runs_of(future, due)
        if clock.has_advanced:
            parts.append(self._pending.due(clock, later))
        parts = [part for part in parts if len(part)]

        def commit() -> None:
            self._clock_state = state
            self._pending.advance(clock, later)

        return CallResult(Changes.concat(parts) if parts else self.out.empty, commit)

    def _valid(self, changes: Changes, clock: ClockTimes) -> tuple[Changes, Changes, Lane]:
        """The changes of rows that are valid when they arrive; their future changes, and when these are due."""
        start, end = self._bound(changes, self._from, LEAST + 1), self._bound(changes, self._until, GREATEST)
        now = clock.at(changes.times[:, 0])[changes.tix]
        will_be = (start > now) & (start < end)
        is_valid = (start <= now) & (now < end)
        will_expire = (is_valid | will_be) & (end < GREATEST)
        future = Changes.concat([changes.where(will_be), changes.where(will_expire).negated()])
        return changes.where(is_valid), future, np.concatenate([start[will_be], end[will_expire]])

    def _bound(self, changes: Changes, name: str, otherwise: int) -> Lane:
        """A bound of each row as an integer."""
        if not name:
            return constant(otherwise, len(changes))
        array = changes.named[name]
        return np.where(valid_flags(array), integers(array), otherwise) if array.null_count else integers(array)

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed and self._clock.closed

    def drop(self) -> None:
        self._pending.clear()

    def lower(self, program: ProgramBuilder) -> bool:
        source, ticks = program.stream(self._source), program.broadcast(self._clock)
        if source is None or ticks is None:
            return False
        given = source.select([field.name for field in self.out.fields]), ticks
        return program.write(self.out, program.called_with(given, self.out.fields, self.out.lanes, self._called))

    def _called(self, changes: Changes, ticks: Changes) -> CallResult:
        return self._changed(changes, ticks.keyed(self._clock_state.schema))


@dataclass(frozen=True, slots=True, eq=False)
class ClockTimes:
    """The times of a clock in a sweep: `values[i]` from `epochs[i - 1]` on, `values[0]` before; all ascending."""

    epochs: Lane
    values: Lane

    @property
    def now(self) -> int:
        """The last time."""
        return int(self.values[-1])

    @property
    def has_advanced(self) -> bool:
        """Whether the clock has changed in the sweep."""
        return len(self.epochs) > 0

    def at(self, epochs: Lane) -> Lane:
        """The times of the clock at some epochs."""
        return self.values[np.searchsorted(self.epochs, epochs, "right")]

    def reaches(self, values: Lane) -> Lane:
        """For each value, which the clock reaches, the position in `epochs` of the first epoch at or after it."""
        return np.searchsorted(self.values[1:], values)


class ClockState:
    """The rows of a clock at some epoch: a collection of one row, whose value grows."""

    def __init__(self, schema: Schema, now: int = LEAST, counts: Mapping[int, int] | None = None) -> None:
        self.schema, self._now, self._counts = schema, now, dict(counts or {})

    def after(self, changes: Updates) -> tuple[ClockState, ClockTimes]:
        """The clock after the changes of a sweep, and its times in the sweep."""
        if not len(changes):
            return self, ClockTimes(np.empty(0, np.int64), np.array([self._now]))
        net = consolidate(changes).updates
        rows = sorted(zip(net.times[net.tix, 0].tolist(), net.key.tolist(), net.diffs[0].tolist(), strict=True))
        state, epochs, values = ClockState(self.schema, self._now, self._counts), list[int](), [self._now]
        for epoch, changed in groupby(rows, itemgetter(0)):
            for _, value, diff in changed:
                state._count(value, diff)
            if state._counts or state._now > LEAST:
                state._now = state._only_value(epoch)
                epochs.append(epoch)
                values.append(state._now)
        return state, ClockTimes(np.array(epochs, np.int64), np.array(values, np.int64))

    def _count(self, value: int, diff: int) -> None:
        count = self._counts.pop(value, 0) + diff
        if count:
            self._counts[value] = count

    def _only_value(self, epoch: int) -> int:
        """The value of the clock's only row; an error if there is not exactly one, or if the clock goes back."""
        if list(self._counts.values()) != [1]:
            raise DataflowError(
                f"the clock does not have exactly one row at epoch {epoch}",
                detail=f"its rows are {self._text(self._counts)}",
                hint="replace its row in a single transaction",
            )
        (value,) = self._counts
        if value < self._now:
            raise DataflowError(
                f"the clock goes back at epoch {epoch}",
                detail=f"from {self._text([self._now])} to {self._text([value])}",
                hint="set the clock to the same time or a later one: expired rows are not kept",
            )
        return value

    def _text(self, values: Any) -> str:
        lane = np.array(list(values), np.int64)
        (column,) = self.schema.key.decode(lane, ())
        return ", ".join(map(str, column)) or "none"


class Pending:
    """Future changes, in order of the time at which they are due.

    They are stored in a few sorted runs, each at least twice as long as the next. Changes that are due are taken from
    the front of each run; a run is copied once most of its rows are taken. Runs of similar length are merged and
    consolidated.
    """

    def __init__(self, fields: Fields, lanes: int) -> None:
        names = [field.name for field in fields]
        due = pa.field(_unused("due", names), pa.int64(), nullable=False)
        diffs = [_unused(f"diff {lane}", names) for lane in range(lanes)]
        self._schema, self._fields = Schema([due], fields, diffs=diffs), fields
        self._runs: list[SortedRun] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def clear(self) -> None:
        """Forget all changes."""
        self._runs.clear()

    def runs_of(self, changes: Changes, due: Lane) -> list[SortedRun]:
        """Changes, and the time at which each is due, as a run, if there are any; they are not pending yet."""
        if not len(changes):
            return []
        fields = (*self._schema.key.fields, *self._fields)
        keyed = changes.with_columns(fields, (pa.array(due), *changes.columns)).keyed(self._schema)
        run = consolidate(replace(keyed, times=np.zeros((1, 1), np.int64), tix=constant(0, len(keyed), np.int32)))
        return [SortedRun(run.updates)]

    def due(self, clock: ClockTimes, later: Sequence[SortedRun]) -> Changes:
        """The changes that are due, of those that are pending and of later ones, each at the epoch at which the clock
        reaches its time."""
        due = [run.due(clock.now) for run in (*self._runs, *later)]
        updates = consolidate(Updates.concat([Updates.empty(self._schema, 1), *due])).updates
        tix = clock.reaches(updates.key).astype(np.int32)
        changes = replace(Changes.of_updates(updates), times=clock.epochs[:, None], tix=tix)
        return changes.with_columns(self._fields, changes.columns[1:]).pruned()

    def advance(self, clock: ClockTimes, later: Sequence[SortedRun]) -> None:
        """Forget the changes that are due, and keep later ones until the clock reaches their times."""
        if clock.has_advanced:
            for run in (*self._runs, *later):
                run.forget(clock.now)
            self._runs = [run for run in self._runs if len(run)]
        for run in later:
            self._put(run.remaining())

    def _put(self, run: Updates) -> None:
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = consolidate(Updates.concat([self._runs.pop().remaining(), run])).updates
        if len(run):
            self._runs.append(SortedRun(run))


@dataclass(slots=True, eq=False)
class SortedRun:
    """Changes in order of the time at which they are due, of which the first `taken` are gone."""

    updates: Updates
    taken: int = 0

    def __len__(self) -> int:
        return len(self.updates) - self.taken

    def _end(self, now: int) -> int:
        """The position after the last change that is due."""
        return int(np.searchsorted(self.updates.key, now, "right"))

    def due(self, now: int) -> Updates:
        """The changes that are due."""
        return self.updates.take(np.arange(self.taken, self._end(now)))

    def forget(self, now: int) -> None:
        """Forget the changes that are due."""
        self.taken = self._end(now)
        if 2 * self.taken > len(self.updates):
            self.updates, self.taken = self.remaining(), 0

    def remaining(self) -> Updates:
        """The changes that are not taken."""
        return self.updates.take(np.arange(self.taken, len(self.updates))) if self.taken else self.updates


def _unused(name: str, names: list[str]) -> str:
    """The name, with underscores added until it is not among `names`."""
    return name if name not in names else _unused(f"{name}_", names)
