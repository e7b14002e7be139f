"""Lookup, or half join: a stream probes an arrangement as of its own times, and keeps no index of itself.

Contract. A change of the stream at a time meets the arrangement's updates that come before it, or at the
same time unless `strict`; output is at the join of the two times, diffs multiplied. "Before" is a total
order: by visit, and within a visit by epoch. So of two collections, the lookups of the changes of each in
the other, one of them strict, make up their join; and n-way joins are made of lookups alone, without any
intermediate index (`natural_join`).

Cost: as for a join of the visit's changes with the arrangement: keys are matched by galloping, output bounds
the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ikebana.operators.arranging import Exchange, exchanged
from ikebana.operators.changes import Changes
from ikebana.operators.join import Pairs, Result, emit, probe_trace
from ikebana.operators.span import Span
from ikebana.operators.stash import Rounds, Stash
from ikebana.operators.wires import Arranged, Stream
from ikebana.trace import Schema, Updates
from ikebana.trace.updates import sorted_by_key


class Lookup:
    """Driver: reads a stream and an arrangement's trace, writes `out`."""

    def __init__(
        self,
        source: Stream,
        index: Arranged,
        schema: Schema,
        result: Result,
        *,
        strict: bool,
        exchange: Exchange | None = None,
        workers: int = 1,
    ) -> None:
        self._source, self._schema, self._result, self._strict = source, schema, result, strict
        self._exchange, self._workers = exchange, workers
        self._reader = index.reader()
        self._stash = Stash()
        lanes = max(source.lanes, len(index.schema.diffs))
        self.out = Stream(result.fields(schema, index.schema), source.dimensions, lanes)

    def visit(self, span: Span) -> Iterator[object]:
        """Send this visit's changes to the owners of their keys, and probe there."""
        changes = self._source.changes
        updates = changes.keyed(self._schema) if len(changes) else None
        if self._exchange is None:
            arrived = [] if updates is None else [updates]
        else:
            arrived = yield from exchanged(updates, self._exchange, self._workers)
        parts = self._stash.pop(span)
        if arrived:
            probes = sorted_by_key(Updates.concat(arrived))
            for found in probe_trace(probes, self._reader, span.seen):
                made = emit(self._visible(found, span), self._result, self.out.fields)
                parts.append(self._stash.keep_later(made, span))
                yield None
        self.out.changes = Changes.concat(parts) if parts else self.out.nothing

    def _visible(self, found: Pairs, span: Span) -> Pairs:
        """The pairs in which the arrangement's update comes before the probe."""
        before = span.before(found.b.times)
        if before.all():
            return found
        ours, theirs = found.a.times[:, None, 0], found.b.times[None, :, 0]
        earlier = theirs < ours if self._strict else theirs <= ours
        seen = earlier | before[None, :]
        flags = np.asarray(seen)[found.a.tix[found.a_rows], found.b.tix[found.b_rows]]
        if flags.all():
            return found
        return Pairs(found.a, found.a_rows[flags], found.b, found.b_rows[flags])

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        """The least later round for which output waits."""
        return self._stash.next_round(prefix, after)

    def forget(self, epoch: int) -> None:
        """A sweep up to `epoch` is complete."""
        self._reader.forget(epoch)
        self.out.closed = self._source.closed

    def drop(self) -> None:
        """Release the trace."""
        self._reader.drop()
