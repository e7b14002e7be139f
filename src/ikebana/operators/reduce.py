"""Reduce: for each key, a function of its accumulated values; the output is an arrangement by the same key.

Contract. At every time the output accumulates to the function applied, key by key, to what the input
accumulates to. The output changes only at *interesting* times: those of the input's updates and joins of
them, some of which appear in no update. A visit evaluates the keys with fresh input, and those that an
earlier visit found to be interesting now; pairs (key, time) that are interesting at later rounds are kept
for them.

How a visit computes. Loop coordinates are fixed in a visit, so the interesting times of a key are totally
ordered by epoch. With D(t) = function(input at t) - output of earlier visits at t, the update to emit at the
i-th time is D(t_i) - D(t_{i-1}). All keys and times are evaluated together: pairs (key, time) are expanded
against the rows of their key, filtered by visibility, and added up.

The function is a `Logic` over whole columns (see `ikebana.operators.logic`).

Cost: for each interesting pair the history of its key, in a handful of vectorised passes. Keys that collide in a
hash are evaluated one after the other. A function of a huge group costs its size for each change, except aggregates
that live in the diffs, and min, max and top_k by ordered columns, which read the ends of groups only
(`ikebana.operators.ordered`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ikebana.kernels import accumulate_rows, expand_pairs, match_keys
from ikebana.operators.arrange import Arrange
from ikebana.operators.logic import Groups, Logic, TopK
from ikebana.operators.ordered import read_ends
from ikebana.operators.span import Span
from ikebana.operators.stash import Rounds, next_round
from ikebana.operators.wires import Arranged, TraceReader
from ikebana.trace import Schema, Updates, timetable
from ikebana.trace import payload as payloads
from ikebana.trace.batch import rows_of
from ikebana.trace.lanes import Array, Lane, constant
from ikebana.trace.updates import Sorted, sort_updates

Pairs = Lane
"""Interesting pairs, a row each: key lane and epoch; distinct, in order."""


class Reduce:
    """Driver: reads the source's fresh batches and trace, writes the output arrangement."""

    def __init__(self, source: Arranged, logic: Logic, name: str = "reduce", effort: str = "default") -> None:
        self.source, self.logic = source, logic
        schema = Schema(source.schema.key.fields, logic.fields(source.schema), hash_bits=source.schema.key.hash_bits)
        self._output = Arrange(schema, name=name, dimensions=source.dimensions, effort=effort)
        handle = self._output.handle()
        self.out = Arranged(schema, source.dimensions, handle.clone, lambda batch: batch)
        self._published = TraceReader(handle, lambda batch: batch)
        self._input, self._produced = source.reader(), self.out.reader()
        self._pending: dict[Rounds, list[Pairs]] = {}

    def visit(self, span: Span) -> Iterator[None]:
        """Bring the output up to date with this visit's input."""
        self.out.fresh = []
        pairs = self._interesting(span)
        if not len(pairs):
            return
        lanes = _distinct(pairs[:, 0])
        history = self._history(lanes, pairs, span)
        produced = _rows(self._produced, lanes, span, self.out.schema)
        yield
        pairs = _close(pairs, (history, produced), span)
        self._keep_later(pairs, (history, produced), span)
        for inputs, outputs in _layers(history, produced):
            self._output.push(self._change(pairs, inputs, outputs, span))
            yield
        batch = self._output.advance(span.frontier)
        if len(batch):
            self.out.fresh = [batch]

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        """The least later round at which some key is interesting."""
        return next_round(self._pending, prefix, after)

    def forget(self, epoch: int) -> None:
        """A sweep up to `epoch` is complete."""
        self._output.advance((epoch, *(0,) * (self.source.dimensions - 1)))
        for reader in (self._published, self._input, self._produced):
            reader.forget(epoch)
        self.out.closed = self.source.closed

    def drop(self) -> None:
        """Release the traces."""
        for reader in (self._published, self._input, self._produced):
            reader.drop()

    def _interesting(self, span: Span) -> Pairs:
        """Keys with fresh input, at the epochs of that input, and those kept for this visit."""
        parts = self._pending.pop(span.rounds, [])
        for batch in self.source.fresh:
            fresh = batch.gather()
            epochs = fresh.times[:, 0]
            if len(epochs) == 1:
                keys = _distinct(fresh.key)
                parts.append(np.stack([keys, np.full(len(keys), epochs[0])], axis=1))
            else:
                parts.append(_distinct_rows(np.stack([fresh.key, epochs[fresh.tix]], axis=1)))
        if len(parts) == 1:
            return parts[0]
        return _distinct_rows(np.concatenate(parts)) if parts else np.empty((0, 2), np.int64)

    def _history(self, lanes: Lane, pairs: Pairs, span: Span) -> Sorted:
        """What is known of some keys; of large groups only the end that the function looks at, where it
        looks at one.

        In loops everything is read, since all times of a key's history matter for what is interesting later.
        """
        logic, schema = self.logic, self.source.schema
        if span.rounds or not (isinstance(logic, TopK) and logic.is_ordered(schema)):
            return _rows(self._input, lanes, span, schema)

        def enough(keys: Lane, known: Sorted) -> Array:
            asked = pairs[np.isin(pairs[:, 0], keys)]
            epochs, epoch_of = np.unique(asked[:, 1], return_inverse=True)
            pair, _, sums = _accumulate(asked, known, span.times_at(epochs), epoch_of)
            there = np.bincount(pair, np.clip(sums[0], 0, 1 if logic.distinct else None), len(asked))
            short = _distinct(asked[there < logic.k, 0])
            return ~np.isin(keys, short)

        return read_ends(
            self._input.batches(),
            lanes,
            schema,
            span.dimensions,
            values=logic.k,
            greatest=logic.greatest,
            choose=lambda times: span.before(times) | span.fresh(times),
            enough=enough,
        )

    def _keep_later(self, pairs: Pairs, histories: Sequence[Sorted], span: Span) -> None:
        """Remember the pairs that are interesting at later rounds: joins with times of other rounds."""
        if not span.rounds:
            return
        for history in histories:
            updates = history.updates
            later = np.any(updates.times[:, 1:] > span.rounds, axis=1)
            if not later.any():
                continue
            rows = updates.at_times(later)
            at, row = _expand(pairs[:, 0], rows.key)
            now = span.times_at(pairs[at, 1])
            times = np.maximum(now, rows.times[rows.tix[row]])
            table, tix = timetable.distinct_times(times)
            for rounds in {tuple(time[1:]) for time in table.tolist()}:
                chosen = (table[:, 1:] == rounds).all(axis=1)[tix]
                kept = np.stack([pairs[at[chosen], 0], times[chosen, 0]], axis=1)
                self._pending.setdefault(rounds, []).append(_distinct_rows(kept))

    def _change(self, pairs: Pairs, inputs: Sorted, outputs: Sorted, span: Span) -> Updates:
        """The output updates of this visit: D(t_i) - D(t_{i-1}) for the successive times of each key."""
        epochs, epoch_of = np.unique(pairs[:, 1], return_inverse=True)
        at = span.times_at(epochs)
        pair, row, sums = _accumulate(pairs, inputs, at, epoch_of)
        wanted_pair, wanted = self._apply(pair, inputs.updates.take(row), sums)
        there_pair, there_row, there = _accumulate(pairs, outputs, at, epoch_of)
        there_updates = replace(outputs.updates.take(there_row), diffs=-there)

        pair = np.concatenate([wanted_pair, there_pair])
        change = Updates.concat([_at(wanted, at[:1]), _at(there_updates, at[:1])])
        following = np.append(pairs[1:, 0] == pairs[:-1, 0], False)[pair]
        undone = replace(change, diffs=-change.diffs).where(following)
        return Updates.concat(
            [
                _at(change, at, epoch_of[pair]),
                _at(undone, at, epoch_of[pair[following] + 1]),
            ]
        )

    def _apply(self, pair: Lane, values: Updates, sums: Lane) -> tuple[Lane, Updates]:
        """The function's output for each pair: rows of the output schema, and the pair that each belongs to."""
        made = self.logic.apply(Groups(pair, values, sums))
        keys, schema = values.take(made.rows), self.out.schema
        val, payload = schema.val.encode(made.columns, len(made.rows))
        split = schema.key.payload_columns
        updates = Updates(
            keys.times,
            keys.tix,
            made.diffs.reshape(1, -1),
            schema,
            keys.key,
            val,
            (*keys.payload[:split], *payload),
        )
        return pair[made.rows], updates


def _rows(reader: TraceReader, lanes: Lane, span: Span, schema: Schema) -> Sorted:
    """Everything known of some keys up to this visit, in order."""
    parts = [batch.gather(rows_of(*batch.seek(lanes))) for batch in reader.batches()]
    known = [part.at_times(span.before(part.times) | span.fresh(part.times)) for part in parts]
    known = [part for part in known if len(part)]
    return sort_updates(Updates.concat(known) if known else Updates.empty(schema, span.dimensions))


def _close(pairs: Pairs, histories: Sequence[Sorted], span: Span) -> Pairs:
    """With the epochs of this sweep at which a key changed in earlier rounds, after its first interesting one."""
    if span.upper - span.lower <= 1:
        return pairs
    parts = [pairs]
    for history in histories:
        updates = history.updates
        flags = np.all(updates.times[:, 1:] <= span.rounds, axis=1) & (updates.times[:, 0] >= span.lower)
        rows = updates.at_times(flags)
        first = pairs[np.searchsorted(pairs[:, 0], rows.key), 1]
        epochs = rows.times[:, 0][rows.tix]
        parts.append(np.stack([rows.key, epochs], axis=1)[epochs > first])
    return _distinct_rows(np.concatenate(parts))


def _accumulate(pairs: Pairs, history: Sorted, at: Lane, epoch_of: Lane) -> tuple[Lane, Lane, Lane]:
    """What each pair sees: for each value with a non-zero sum the pair, a row with that value, and the sums."""
    updates = history.updates
    pair, row = _expand(pairs[:, 0], updates.key)
    visible = np.all(updates.times[:, None, :] <= at[None, :, :], axis=2)
    seen = visible[updates.tix[row], epoch_of[pair]]
    if not seen.all():
        pair, row = pair[seen], row[seen]
    first, sums = accumulate_rows(
        pair,
        updates.val[row],
        history.ident[row],
        constant(0, len(row), np.int32),
        updates.diffs[:, row],
        np.ones(1, np.uint8),
    )
    return pair[first], row[first], sums


def _expand(probes: Lane, keys: Lane) -> tuple[Lane, Lane]:
    """All (probe, row) with equal keys, of two lanes in order: probe by probe, rows in order."""
    ranges = match_keys(probes, keys)
    count = int(((ranges[:, 1] - ranges[:, 0]) * (ranges[:, 3] - ranges[:, 2])).sum())
    probe, row = np.empty(count, np.int64), np.empty(count, np.int64)
    expand_pairs(ranges, probe, row, np.zeros(2, np.int64))
    return probe, row


def _layers(history: Sorted, produced: Sorted) -> Iterator[tuple[Sorted, Sorted]]:
    """Inputs and outputs such that in each layer a key lane stands for one key: one layer unless hashes collide."""
    if history.updates.schema.key.exact or not _mixed(history.updates, produced.updates):
        yield history, produced
        return
    names = [_key_names(side.updates) for side in (history, produced)]
    ranks = {name: rank for rank, name in enumerate(sorted({*names[0], *names[1]}))}
    for rank in range(len(ranks)):
        flags = [np.array([ranks[name] == rank for name in side], bool) for side in names]
        yield _where(history, flags[0]), _where(produced, flags[1])


def _mixed(history: Updates, produced: Updates) -> bool:
    """Whether some key lane stands for more than one key."""
    keys = history.schema.key.payload_columns
    lane = np.concatenate([history.key, produced.key])
    order = np.argsort(lane, kind="stable")
    a, b = order[:-1], order[1:]
    near = np.flatnonzero(lane[a] == lane[b])
    both = payloads.concat([history.payload[:keys], produced.payload[:keys]])
    left, right = payloads.take(both, a[near]), payloads.take(both, b[near])
    return not payloads.rows_equal(left, right, len(near)).all()


def _key_names(updates: Updates) -> list[tuple[bytes, ...]]:
    """A name for each row's key, equal exactly for equal keys."""
    return payloads.cells(updates.payload[: updates.schema.key.payload_columns])


def _where(rows: Sorted, flags: Array) -> Sorted:
    return Sorted(rows.updates.where(flags), rows.ident[flags], rows.collided)


def _at(updates: Updates, table: Lane, tix: Array | None = None) -> Updates:
    """The same updates at other times: positions in a table, or all at its first."""
    positions = constant(0, len(updates), np.int32) if tix is None else tix.astype(np.int32)
    return replace(updates, times=table, tix=positions)


def _distinct(lane: Lane) -> Lane:
    """The distinct entries of a lane in order."""
    return lane[np.append(True, lane[1:] != lane[:-1])] if len(lane) else lane


def _distinct_rows(pairs: Pairs) -> Pairs:
    return timetable.distinct_times(pairs)[0] if len(pairs) else pairs
