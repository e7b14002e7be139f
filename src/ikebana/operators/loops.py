"""Loops: entering, variables, feedback, leaving. A loop adds a round coordinate to time.

The changes of a variable at round 0 are those of its initial collection. Its changes at the next round are those of the
body's result for it, less the initial collection. So after r rounds the variable is the body applied r times; once a
round brings no changes, no later round will: the fixpoint is reached, at every epoch at once.

Contract. `Enter` shows a collection from outside at round 0. `Variable` gives the changes that are due at the visit's
round. `Feedback` passes the body's result to the next round. `Leave` collects the changes of all rounds of a sweep and
drops the coordinate. The order of visits, and the end of a loop, are decided by `ikebana.plan.scopes.LoopScope`, which
asks all operators for their `next_round`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ikebana.encoding.bad_rows import separate_bad_rows
from ikebana.encoding.lanes import is_constant
from ikebana.errors import SchemaError
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.pending import PendingChanges
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Operator
from ikebana.operators.registers import ColumnSlots, Rows
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, Stream
from ikebana.trace import time_tables
from ikebana.trace.views import EnteredBatch


class Enter(Operator[Stream]):
    """A stream of the surrounding scope, inside a loop."""

    def __init__(self, source: Stream) -> None:
        self._source = source
        self.out = Stream(source.fields, source.dimensions + 1, source.lanes)

    def visit(self, span: Span) -> None:
        changes = self._source.changes
        if span.rounds[-1] or not len(changes):
            self.out.clear()
        else:
            self.out.changes = replace(changes, times=np.pad(changes.times, ((0, 0), (0, 1))))

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed

    def lower(self, program: ProgramBuilder) -> bool:
        source = program.stream(self._source)
        return source is not None and program.write(self.out, replace(source, count=program.entered(source.count)))


class EnterAt(Operator[Stream]):
    """A stream of the surrounding scope, inside a loop, each row from a round of its own on."""

    def __init__(self, source: Stream, delay: Callable[[dict[str, Any]], Any], errors: ErrorLog) -> None:
        self._source, self._delay, self._errors = source, delay, errors
        self._pending = PendingChanges()
        self.out = Stream(source.fields, source.dimensions + 1, source.lanes)

    def visit(self, span: Span) -> None:
        parts = self._pending.pop(span)
        if not span.rounds[-1] and len(self._source.changes):
            changes = self._source.changes
            parts.append(self._pending.keep_later(self._entered(changes), span))
        self.out.changes = Changes.concat(parts) if parts else self.out.empty

    def _entered(self, changes: Changes) -> Changes:
        """The changes at the rounds at which they enter; without the rows for which the function raises."""
        entering, good, failures = separate_bad_rows(
            lambda rows: self._rounds(changes.take(rows)), len(changes), lambda: np.empty(0, np.int64)
        )
        if failures:
            self._errors.add_rows(changes, failures)
            changes = changes.take(good)
        if not len(changes):
            return self.out.empty
        rounds, position = time_tables.rank_integers(entering)
        times = np.column_stack([np.repeat(changes.times, len(rounds), axis=0), np.tile(rounds, len(changes.times))])
        tix = changes.tix.astype(np.int64) * len(rounds) + position
        return replace(changes, times=times, tix=tix.astype(np.int32)).pruned()

    def _rounds(self, changes: Changes) -> Any:
        """The round at which each row enters."""
        rounds = np.asarray(self._delay(changes.named), np.int64)
        if rounds.shape != (len(changes),) or rounds.min(initial=0) < 0:
            raise SchemaError(
                "the function given to enter_at must return a round for each row, 0 or later",
                detail=f"it returned {rounds.shape} rounds for {len(changes)} rows, the least {rounds.min(initial=0)}",
                hint="return an array of integers with one entry for each row",
            )
        return rounds

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return self._pending.next_round(prefix, after)

    def lower(self, program: ProgramBuilder) -> bool:
        source = program.stream(self._source)
        if source is None or not isinstance(self._delay, LoweredDelay):
            return False
        source = replace(source, count=program.entered(source.count))
        delay = self._delay.lower(program, source)
        return delay is not None and program.write(self.out, program.delayed(source, delay))


@runtime_checkable
class LoweredDelay(Protocol):
    """A function from rows to the rounds at which they enter that can be written as instructions of a program."""

    def lower(self, program: ProgramBuilder, rows: Rows) -> ColumnSlots | None:
        """The slots of the round of each row."""
        ...


class EnterArranged(Operator[Arranged]):
    """An arrangement of the surrounding scope, inside a loop: a view of the same trace."""

    def __init__(self, source: Arranged) -> None:
        self._source = source
        self.out = source.seen_through(lambda batch: EnteredBatch(batch), dimensions=source.dimensions + 1)

    def visit(self, span: Span) -> None:
        self.out.fresh = [] if span.rounds[-1] else [EnteredBatch(batch) for batch in self._source.fresh]

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed

    def lower(self, program: ProgramBuilder) -> bool:
        index = program.arranged(self._source)
        if index is None:
            return False
        fresh = replace(index.fresh, count=program.entered(index.fresh.count))
        return program.write(self.out, replace(index, fresh=fresh))


class Variable(Operator[Stream]):
    """A variable of a loop: its changes at each round."""

    def __init__(self, fields: Fields, dimensions: int, lanes: int) -> None:
        self._pending = PendingChanges()
        self.out = Stream(fields, dimensions, lanes)

    def put(self, changes: Changes, rounds: Rounds) -> None:
        """Add changes of the variable at later rounds."""
        self._pending.put(changes, rounds)

    def visit(self, span: Span) -> None:
        self.out.parts = self._pending.pop(span)

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return self._pending.next_round(prefix, after)

    def lower(self, program: ProgramBuilder) -> bool:
        rows = program.rows(self.out.fields, self.out.lanes)
        return rows is not None and program.write_variable(self, self.out, rows)


CHEAP_TO_CONSOLIDATE_ROWS = 1 << 14
"""Up to this number, changes are always consolidated: that costs less than a round in which they cancel."""


class Feedback(Operator[None]):
    """Passes a stream to a variable at the next round; with `rounds`, up to that number of rounds.

    Changes are consolidated, so that changes that cancel, and growing numbers of copies of a row, are not passed on.
    Where the variable is `indexed` (an arrangement consolidates its changes before anything else is computed from
    them), many changes are left to the arrangement.
    """

    out = None

    def __init__(self, source: Stream, variable: Variable, rounds: int | None = None, *, indexed: bool = False) -> None:
        self._source, self._variable, self._rounds, self._indexed = source, variable, rounds, indexed
        self._distinct = 0  # number of changes after the last consolidation

    def visit(self, span: Span) -> None:
        if not span.rounds[-1]:
            self._distinct = 0
        if not self._source.parts or span.rounds[-1] + 1 == self._rounds:
            return
        rounds = (*span.rounds[:-1], span.rounds[-1] + 1)
        for changes in self._passed_on():
            later = changes.times.copy()
            later[:, -1] += 1
            self._variable.put(replace(changes, times=later), rounds)

    def _passed_on(self) -> list[Changes]:
        """The changes of this visit, consolidated if that pays."""
        parts = self._source.parts
        rows = sum(map(len, parts))
        if self._indexed and rows > CHEAP_TO_CONSOLIDATE_ROWS:
            return parts
        changes = self._source.changes
        if is_constant(changes.diffs) and rows <= 2 * self._distinct:  # equal diffs cannot cancel
            return parts
        changes = changes.consolidated()
        self._distinct = len(changes)
        return [changes]

    def lower(self, program: ProgramBuilder) -> bool:
        source = program.stream(self._source)
        if source is None:
            return False
        program.feed_back(self._variable, source if self._indexed else program.consolidated(source), self._rounds)
        return True


class Leave(Operator[Stream]):
    """Collects the changes of all rounds of a loop; `out`, in the surrounding scope, has them once the loop is done.

    The changes are consolidated, unless their diffs are equal, which cannot cancel.
    """

    def __init__(self, source: Stream) -> None:
        self._source, self._parts = source, list[Changes]()
        self.out = Stream(source.fields, source.dimensions - 1, source.lanes)

    def visit(self, span: Span) -> None:
        """Collect the changes of a round."""
        self._parts += self._source.parts

    def lower(self, program: ProgramBuilder) -> bool:
        source = program.stream(self._source)
        if source is None:
            return False
        collected = program.copied(source)
        program.append(source, collected)
        program.leave(self.out, collected)
        return True

    def close(self) -> None:
        """After the last round: write `out`."""
        if not self._parts:
            self.out.clear()
            return
        changes = Changes.concat(self._parts)
        self._parts = []
        changes = changes.with_times(changes.times[:, :-1])
        self.out.changes = changes if is_constant(changes.diffs) else changes.consolidated()
