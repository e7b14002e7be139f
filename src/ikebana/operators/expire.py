"""Expire: the rows that are valid now, by a clock that is an input like any other.

A row is valid from one point in time to another: `valid_from <= now < valid_until`, either of which may be null, or not
be asked for: then there is no such bound. `now` is the one value in a collection of one row, the clock, whose value may
only grow: whoever advances the clock replaces its row, at an epoch, and at that epoch rows become valid and expire.

Contract. At every epoch the output is the rows, with their multiplicities, that are valid at what the clock shows at
that epoch; while the clock has no row yet, none. Rows that are late, those that expire before they come, never appear.
Each change of a row counts for itself: a row may be taken away before it is valid, while it is, or after.

Workers. A change of the clock is told to all of them, in one message to each peer in each sweep. Rows stay where they
are. (What is taken away comes to the worker that it was added at, in all streams but raw inputs; where it does not, the
two are only added up by whoever reads the output, and both wait until their time has come.)

State: for each row what happens to it in the future, that it becomes valid or that it expires, in order of the time at
which it does (`Pending`). Rows that are valid for ever, or expired, take no room.

Cost: a change of the clock costs what it releases; a change of a row, being sorted into what waits, on average as often
as the number of rows that wait can be halved. Not guaranteed: a bound for a single visit, in which all that waits may
be sorted together. There are no such collections inside loops, nor clocks that go back: those fail the dataflow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.columns import integers, validity
from ikebana.encoding.lanes import Lane, constant
from ikebana.errors import DataflowError
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.exchange import Exchange
from ikebana.operators.protocol import Operator, Steps
from ikebana.operators.span import Span
from ikebana.operators.streams import Stream
from ikebana.trace import Updates
from ikebana.trace.updates import consolidate

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""Before all that a clock can show, and after."""


class Expire(Operator[Stream]):
    """Driver: reads rows and the clock, writes `out`."""

    def __init__(
        self,
        source: Stream,
        clock: Stream,
        valid_from: str,
        valid_until: str,
        *,
        exchange: Exchange | None = None,
    ) -> None:
        """`valid_from` and `valid_until` name columns; an empty name is none."""
        self._source, self._clock, self._exchange = source, clock, exchange
        self._from, self._until = valid_from, valid_until
        self._shown, self._pending = ClockState(clock.fields), Pending(source.fields, source.lanes)
        self.out = Stream(source.fields, 1, source.lanes)

    def visit(self, span: Span) -> Steps:
        """What becomes valid and what expires, by rows that come or by the clock."""
        told = self._clock.changes.keyed(self._shown.schema)
        arrived = [told]
        if self._exchange is not None:
            arrived = yield from self._exchange.broadcast(told)
        shown = self._shown.move(Updates.concat(arrived))
        parts = [self._come(self._source.changes, shown)] if len(self._source.changes) else []
        if shown.moved:
            parts.append(self._pending.take(shown))
        parts = [part for part in parts if len(part)]
        self.out.changes = Changes.concat(parts) if parts else self.out.nothing

    def _come(self, changes: Changes, shown: Shown) -> Changes:
        """The changes of rows that are valid when they come; what happens to rows later is kept."""
        start, end = self._bound(changes, self._from, LEAST + 1), self._bound(changes, self._until, GREATEST)
        now = shown.at(changes.times[:, 0])[changes.tix]
        will_be = (start > now) & (start < end)
        is_valid = (start <= now) & (now < end)
        self._pending.add(changes.where(will_be), start[will_be])
        will_expire = (is_valid | will_be) & (end < GREATEST)
        self._pending.add(changes.where(will_expire).negated(), end[will_expire])
        return changes.where(is_valid)

    def _bound(self, changes: Changes, name: str, otherwise: int) -> Lane:
        """A bound of each row as a number."""
        if not name:
            return constant(otherwise, len(changes))
        array = changes.named[name]
        return np.where(validity(array), integers(array), otherwise) if array.null_count else integers(array)

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed and self._clock.closed


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What a clock shows in a sweep: `values[i]` from `epochs[i - 1]` on, and `values[0]` before; all ascending."""

    epochs: Lane
    values: Lane

    @property
    def moved(self) -> bool:
        """Whether it shows more than one value."""
        return len(self.epochs) > 0

    def at(self, epochs: Lane) -> Lane:
        """What it shows at some epochs."""
        return self.values[np.searchsorted(self.epochs, epochs, "right")]

    def reaches(self, values: Lane) -> Lane:
        """The positions of the epochs at which it first shows some values or more, all of which it comes to show."""
        return np.searchsorted(self.values[1:], values)


class ClockState:
    """A collection of one row, whose value grows."""

    def __init__(self, fields: Fields) -> None:
        self.schema = Schema(fields)
        self._now, self._counts = LEAST, dict[int, int]()

    def move(self, changes: Updates) -> Shown:
        """What it shows in a sweep, given its changes."""
        if not len(changes):
            return Shown(np.empty(0, np.int64), np.array([self._now]))
        net = consolidate(changes).updates
        rows = sorted(zip(net.times[net.tix, 0].tolist(), net.key.tolist(), net.diffs[0].tolist(), strict=True))
        epochs, values = list[int](), [self._now]
        for epoch, changed in groupby(rows, itemgetter(0)):
            for _, value, diff in changed:
                self._count(value, diff)
            if self._counts or self._now > LEAST:
                self._now = self._one(epoch)
                epochs.append(epoch)
                values.append(self._now)
        return Shown(np.array(epochs, np.int64), np.array(values, np.int64))

    def _count(self, value: int, diff: int) -> None:
        count = self._counts.pop(value, 0) + diff
        if count:
            self._counts[value] = count

    def _one(self, epoch: int) -> int:
        """The value, if it is one, and not before the last one."""
        if list(self._counts.values()) != [1]:
            raise DataflowError(
                f"the clock does not show one time at epoch {epoch}",
                detail=f"it has the rows {self._words(self._counts)}",
                hint="replace its one row, in one transaction",
            )
        (value,) = self._counts
        if value < self._now:
            raise DataflowError(
                f"the clock goes back at epoch {epoch}",
                detail=f"from {self._words([self._now])} to {self._words([value])}",
                hint="let it show the same time, or a later one: what has expired is not kept",
            )
        return value

    def _words(self, values: Any) -> str:
        lane = np.array(list(values), np.int64)
        (shown,) = self.schema.key.decode(lane, ())
        return ", ".join(map(str, shown)) or "none"


class Pending:
    """Changes that wait for a clock, in order of what it has to show.

    They are in a few sorted runs, each at least twice as long as the next. Taking what is due takes rows from the front
    of each; a run whose rows are mostly gone is cut. Runs that have grown too alike are put together, and then equal
    changes are added up, and those that cancel vanish.
    """

    def __init__(self, fields: Fields, lanes: int) -> None:
        taken = [field.name for field in fields]
        due = pa.field(_unlike("due", taken), pa.int64(), nullable=False)
        diffs = [_unlike(f"diff {lane}", taken) for lane in range(lanes)]
        self._schema, self._fields = Schema([due], fields, diffs=diffs), fields
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, changes: Changes, due: Lane) -> None:
        """Keep changes until the clock shows the time at which each is due."""
        if not len(changes):
            return
        fields = (*self._schema.key.fields, *self._fields)
        keyed = changes.with_columns(fields, (pa.array(due), *changes.columns)).keyed(self._schema)
        run = consolidate(replace(keyed, times=np.zeros((1, 1), np.int64), tix=constant(0, len(keyed), np.int32)))
        self._put(run.updates)

    def _put(self, run: Updates) -> None:
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = consolidate(Updates.concat([self._runs.pop().rest(), run])).updates
        if len(run):
            self._runs.append(_Run(run))

    def take(self, shown: Shown) -> Changes:
        """The changes that are due, each at the epoch at which the clock gets there; they wait no longer."""
        due = [run.take(int(shown.values[-1])) for run in self._runs]
        self._runs = [run for run in self._runs if len(run)]
        found = consolidate(Updates.concat([Updates.empty(self._schema, 1), *due])).updates
        at = shown.reaches(found.key).astype(np.int32)
        made = replace(Changes.of_updates(found), times=shown.epochs[:, None], tix=at)
        return made.with_columns(self._fields, made.columns[1:]).pruned()


@dataclass(slots=True, eq=False)
class _Run:
    """Changes in order of when they are due, the first of them taken."""

    updates: Updates
    taken: int = 0

    def __len__(self) -> int:
        return len(self.updates) - self.taken

    def take(self, now: int) -> Updates:
        """Those due by now."""
        start, end = self.taken, int(np.searchsorted(self.updates.key, now, "right"))
        found = self.updates.take(np.arange(start, end))
        self.taken = end
        if 2 * end > len(self.updates):
            self.updates, self.taken = self.rest(), 0
        return found

    def rest(self) -> Updates:
        """Those not taken."""
        return self.updates.take(np.arange(self.taken, len(self.updates))) if self.taken else self.updates


def _unlike(name: str, taken: list[str]) -> str:
    """A name that is not taken."""
    return name if name not in taken else _unlike(f"{name}_", taken)
