"""Loops: entering, variables, feedback, leaving. A loop adds a round coordinate to time.

A variable's changes at round 0 are those of its initial collection; what the body makes of it at a round,
less the initial collection, are its changes at the next round. So after r rounds it is the body applied r
times, and once a round brings no changes it never will again: the fixpoint, at every epoch at once.

Contract. `Enter` shows a collection from outside at round 0. `Variable` gives what is due at the visit's
round. `Feedback` passes the body's result to the next round. `Leave` gathers the changes of all rounds of a
sweep and drops the coordinate. The order of visits, and when a loop is done, is the business of the
dataflow, which asks `next_round`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ikebana.encoding.bad_rows import set_apart
from ikebana.encoding.lanes import is_constant
from ikebana.errors import SchemaError
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.pending import PendingChanges
from ikebana.operators.protocol import Operator
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, Stream
from ikebana.trace import timetable
from ikebana.trace.views import EnteredBatch


class Enter(Operator[Stream]):
    """A stream of the surrounding scope, inside a loop."""

    def __init__(self, source: Stream) -> None:
        self._source = source
        self.out = Stream(source.fields, source.dimensions + 1, source.lanes)

    def visit(self, span: Span) -> None:
        """Everything is there from round 0 on."""
        changes = self._source.changes
        if span.rounds[-1] or not len(changes):
            self.out.clear()
        else:
            self.out.changes = replace(changes, times=np.pad(changes.times, ((0, 0), (0, 1))))

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed


class EnterAt(Operator[Stream]):
    """A stream of the surrounding scope, inside a loop, each row from a round of its own on."""

    def __init__(self, source: Stream, delay: Callable[[dict[str, Any]], Any], errors: ErrorLog) -> None:
        self._source, self._delay, self._errors = source, delay, errors
        self.stash = PendingChanges()
        self.out = Stream(source.fields, source.dimensions + 1, source.lanes)

    def visit(self, span: Span) -> None:
        """What is due at this round."""
        parts = self.stash.pop(span)
        if not span.rounds[-1] and len(self._source.changes):
            changes = self._source.changes
            parts.append(self.stash.keep_later(self._entered(changes), span))
        self.out.changes = Changes.concat(parts) if parts else self.out.nothing

    def _entered(self, changes: Changes) -> Changes:
        """The changes at their rounds, but for rows for which the function raises."""
        entering, good, failures = set_apart(
            lambda rows: self._rounds(changes.take(rows)), len(changes), lambda: np.empty(0, np.int64)
        )
        if failures:
            self._errors.add_rows(changes, failures)
            changes = changes.take(good)
        if not len(changes):
            return self.out.nothing
        rounds, position = timetable.ranked(entering)
        times = np.column_stack([np.repeat(changes.times, len(rounds), axis=0), np.tile(rounds, len(changes.times))])
        tix = changes.tix.astype(np.int64) * len(rounds) + position
        return replace(changes, times=times, tix=tix.astype(np.int32)).pruned()

    def _rounds(self, changes: Changes) -> Any:
        """The round at which each row enters."""
        rounds = np.asarray(self._delay(changes.named), np.int64)
        if rounds.shape != (len(changes),) or rounds.min(initial=0) < 0:
            raise SchemaError(
                "the function given to enter_at must give a round for each row, 0 or later",
                detail=f"it gave {rounds.shape} rounds for {len(changes)} rows, the least {rounds.min(initial=0)}",
                hint="return an array of whole numbers as long as the columns it is given",
            )
        return rounds

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return self.stash.next_round(prefix, after)


class EnterArranged(Operator[Arranged]):
    """An arrangement of the surrounding scope, inside a loop: a view of the same trace."""

    def __init__(self, source: Arranged) -> None:
        self._source = source
        self.out = source.seen_through(EnteredBatch, dimensions=source.dimensions + 1)

    def visit(self, span: Span) -> None:
        """Its batches are there from round 0 on."""
        self.out.fresh = [] if span.rounds[-1] else [EnteredBatch(batch) for batch in self._source.fresh]

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed


class Variable(Operator[Stream]):
    """A variable of a loop: its changes at each round."""

    def __init__(self, fields: Fields, dimensions: int, lanes: int) -> None:
        self.stash = PendingChanges()
        self.out = Stream(fields, dimensions, lanes)

    def visit(self, span: Span) -> None:
        """What is due at this round."""
        parts = self.stash.pop(span)
        self.out.changes = Changes.concat(parts) if parts else self.out.nothing

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return self.stash.next_round(prefix, after)


_FEW = 1 << 14
"""So few changes are always added up: that costs less than a round in which they cancel."""


class Feedback(Operator[None]):
    """Passes a stream to a variable, at the next round; with `rounds`, only that many rounds.

    What cancels is not passed on, nor are ever more copies of a row. Where the variable is `indexed`, that is where an
    arrangement adds up its changes before anything else is made of them, many changes are left to it.
    """

    out = None

    def __init__(self, source: Stream, variable: Variable, rounds: int | None = None, *, indexed: bool = False) -> None:
        self._source, self._variable, self._rounds, self._indexed = source, variable, rounds, indexed
        self._distinct = 0  # how many changes were left when they were last consolidated

    def visit(self, span: Span) -> None:
        """Everything moves on by one round."""
        changes = self._source.changes
        if not span.rounds[-1]:
            self._distinct = 0
        if not len(changes) or span.rounds[-1] + 1 == self._rounds:
            return
        if self._is_worth_adding_up(changes):
            changes = changes.consolidated()
            self._distinct = len(changes)
        later = changes.times.copy()
        later[:, -1] += 1
        rounds = (*span.rounds[:-1], span.rounds[-1] + 1)
        self._variable.stash.put(replace(changes, times=later), rounds)

    def _is_worth_adding_up(self, changes: Changes) -> bool:
        if self._indexed and len(changes) > _FEW:
            return False
        return not is_constant(changes.diffs) or len(changes) > 2 * self._distinct  # equal diffs cannot cancel


class Leave(Operator[Stream]):
    """Gathers a loop's changes; `out` has them, in the surrounding scope, once the loop is done."""

    def __init__(self, source: Stream) -> None:
        self._source, self._parts = source, list[Changes]()
        self.out = Stream(source.fields, source.dimensions - 1, source.lanes)

    def visit(self, span: Span) -> None:
        """Inside the loop: gather."""
        if len(self._source.changes):
            self._parts.append(self._source.changes)

    def close(self) -> None:
        """After the loop's last round: hand over."""
        if not self._parts:
            self.out.clear()
            return
        changes = Changes.concat(self._parts)
        self._parts = []
        self.out.changes = changes.with_times(changes.times[:, :-1]).consolidated()
