"""Lookup, or half join: a stream probes an arrangement as of its own times, and keeps no index of itself.

Contract. A change of the stream at a time meets the arrangement's updates that come before it, or at the
same time unless `strict`; output is at the join of the two times, diffs multiplied. "Before" is a total
order: by visit, and within a visit by epoch. So of two collections, the lookups of the changes of each in
the other, one of them strict, make up their join; and n-way joins are made of lookups alone, without any
intermediate index (`natural_join`).

Versions. A trace has several updates of a row that has changed: the row as it was, its retraction, the row as it is.
Updates that a probe cannot tell apart are added up before they meet it, so that it meets the distinct rows at its
time. Without that, each of n lookups in a row would multiply the changes by the number of versions.

Cost: as for a join of the visit's changes with the arrangement: keys are matched by galloping, and the rest follows
the distinct rows at the times of the probes. Where a row has several versions, its values are compared; a sweep over e
epochs that change the same row compares e versions with e probes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ikebana.encoding import Schema
from ikebana.encoding.lanes import Array, Lane
from ikebana.kernels import sort_order
from ikebana.operators.changes import Changes
from ikebana.operators.exchange import Exchange
from ikebana.operators.join import QUANTUM, Pairs, Result, emit, join_updates
from ikebana.operators.pending import PendingChanges
from ikebana.operators.protocol import Operator, Steps
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, Stream, TraceReader
from ikebana.trace import Batch, Updates, timetable
from ikebana.trace.batch import rows_of
from ikebana.trace.updates import Sorted, consolidate, sorted_by_key

Stored = list[tuple[Batch, Lane]]
"""Stored batches, and some rows of each."""


class Lookup(Operator[Stream]):
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
    ) -> None:
        self._source, self._schema, self._result, self._strict = source, schema, result, strict
        self._exchange, self._reader = exchange, index.reader()
        self._stash = PendingChanges()
        lanes = max(source.lanes, len(index.schema.diffs))
        self.out = Stream(result.fields(schema, index.schema), source.dimensions, lanes)

    def visit(self, span: Span) -> Steps:
        """Send this visit's changes to the owners of their keys, and probe there."""
        changes = self._source.changes
        updates = changes.keyed(self._schema) if len(changes) else None
        if self._exchange is None:
            arrived = [] if updates is None else [updates]
        else:
            arrived = yield from self._exchange.by_key(updates)
        parts = self._stash.pop(span)
        if arrived:
            probes = sorted_by_key(Updates.concat(arrived))
            for pairs in self._pairs(probes, span):
                made = emit(pairs, self._result, self.out.fields)
                parts.append(self._stash.keep_later(made, span))
                yield None
        self.out.changes = Changes.concat(parts) if parts else self.out.nothing

    def _pairs(self, probes: Updates, span: Span) -> Iterator[Pairs]:
        """Probes and the rows that they find, a bounded number at a time."""
        for parts in stored_rows(probes, self._reader):
            if has_versions(parts):
                yield from self._versioned_pairs(probes, parts, span)
                continue
            rows = self._reader.pick(parts)
            rows = rows.at_times(span.seen(rows.times))
            order = np.argsort(rows.key, kind="stable") if len(parts) > 1 else None
            for pairs in join_updates(probes, rows, order):
                yield self._visible(pairs, span)

    def _versioned_pairs(self, probes: Updates, parts: Stored, span: Span) -> Iterator[Pairs]:
        """The same where rows may have several versions: those that a probe cannot tell apart are added up."""
        rows = self._reader.gather(parts)
        rows = rows.at_times(span.seen(rows.times))
        if not span.rounds:
            rows = rows.with_times(self._settled_times(probes, rows, span))
        known = consolidate(rows)
        values = same_values(known)
        for pairs in join_updates(probes, known.updates):
            found = self._visible(pairs, span)
            yield added_up(found, values) if values is not None else found

    def _settled_times(self, probes: Updates, rows: Updates, span: Span) -> Lane:
        """The rows' times, those that come before all probes made equal; outside loops."""
        epochs, first = rows.times[:, 0], probes.times[:, 0].min()
        before_all = epochs < first if self._strict else epochs <= first
        return np.where((before_all | span.before(rows.times))[:, None], span.lower - 1, rows.times)

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
        return self._stash.next_round(prefix, after)

    def forget(self, epoch: int) -> None:
        self._reader.forget(epoch)
        self.out.closed = self._source.closed

    def drop(self) -> None:
        self._reader.drop()


def stored_rows(probes: Updates, reader: TraceReader) -> Iterator[Stored]:
    """The rows of a trace that have the keys of some probes: all rows of a key together, about `QUANTUM` at a time."""
    found = reader.match(probes.key)
    for first, last in _ranges_of_probes([ranges for _, ranges in found]):
        parts = []
        for batch, ranges in found:
            start, end = np.searchsorted(ranges[:, 0], (first, last))
            if start < end:
                parts.append((batch, rows_of(ranges[start:end, 2], ranges[start:end, 3])))
        yield parts


def _ranges_of_probes(matches: list[Lane]) -> Iterator[tuple[int, int]]:
    """Ranges of probes that find about `QUANTUM` rows at most, given what `Batch.match` says of each batch."""
    if not matches:
        return
    everything = np.concatenate(matches)
    probe, sizes = everything[:, 0], everything[:, 3] - everything[:, 2]
    end = int(probe.max()) + 1
    if int(sizes.sum()) <= QUANTUM:
        yield 0, end
        return
    order = np.argsort(probe, kind="stable")
    probe, through = probe[order], np.cumsum(sizes[order])
    start, done = 0, 0
    while start < end:
        at = int(np.searchsorted(through, done + QUANTUM, side="right"))
        last = int(probe[at]) if at < len(probe) else end
        if last <= start:  # one key has more rows than that
            after = int(np.searchsorted(probe, start, side="right"))
            last = int(probe[after]) if after < len(probe) else end
        yield start, last
        start, done = last, int(through[np.searchsorted(probe, last) - 1])


def has_versions(parts: Stored) -> bool:
    """Whether stored rows may be versions of each other: two of them agree in the lanes of key and value."""
    if len(parts) == 1 and len(parts[0][0].times) == 1:
        return False
    lanes = [(batch.window(0, len(batch)), rows) for batch, rows in parts]  # type: ignore[attr-defined]
    key = np.concatenate([window.key[rows] for window, rows in lanes])
    if len(key) < 2:
        return False
    val = np.concatenate([window.val[rows] for window, rows in lanes])
    order = sort_order(key, val, np.zeros(len(key), np.int32))
    key, val = key[order], val[order]
    return bool(((key[1:] == key[:-1]) & (val[1:] == val[:-1])).any())


def same_values(rows: Sorted) -> Lane | None:
    """A number for each row, the same for rows of equal key and value; None if there are no two such rows."""
    key, val, ident = rows.updates.key, rows.updates.val, rows.ident
    differs = (key[1:] != key[:-1]) | (val[1:] != val[:-1]) | (ident[1:] != ident[:-1])
    return None if differs.all() else np.append(0, np.cumsum(differs))


def added_up(pairs: Pairs, values: Lane) -> Pairs:
    """The pairs of a probe with equal values, at equal times, as one; those that cancel left out."""
    if not len(pairs.a_rows):
        return pairs
    a, b, value = pairs.a, pairs.b, values[pairs.b_rows]
    _, tix = timetable.joined(a.times, a.tix[pairs.a_rows], b.times, b.tix[pairs.b_rows])
    order = sort_order(pairs.a_rows, value, np.ascontiguousarray(tix, np.int32))
    starts = np.flatnonzero(_differs_from_the_one_before(pairs.a_rows[order], value[order], tix[order]))
    sums = np.add.reduceat(b.diffs[:, pairs.b_rows[order]], starts, axis=1)
    left = np.flatnonzero(sums.any(axis=0))
    chosen = order[starts[left]]
    rows = replace(b.take(pairs.b_rows[chosen]), diffs=sums[:, left])
    return Pairs(a, pairs.a_rows[chosen], rows, np.arange(len(chosen)))


def _differs_from_the_one_before(*lanes: Array) -> Array:
    """Flags the rows that differ from the row before in some lane; the first does."""
    flags = np.ones(len(lanes[0]), bool)
    flags[1:] = np.logical_or.reduce([lane[1:] != lane[:-1] for lane in lanes])
    return flags
