"""Reduce: for each key, a function of its accumulated values; the output is an arrangement by the same key.

Contract. At every time the output accumulates to the function, applied key by key to what the input accumulates to.

Interesting times. The output of a key can change only at the times of its input's updates and at joins of these times.
A join may be a time at which no update occurs. With times (epoch, round) and updates of one key at a and b:

    round ^
          |
        2 |    a=(1,2)    (3,2)   <- interesting: the first time at which both a and b are visible
          |
        0 |               b=(3,0)
          +---------------------> epoch

A visit evaluates the keys with fresh input, and the keys that an earlier visit has found to be interesting now. Pairs
(key, time) that are interesting at later rounds are kept until these rounds are visited.

How a visit computes. Loop coordinates are fixed in a visit, so the interesting times t_1 < t_2 < ... of a key are
totally ordered by epoch. Let D(t) = function(input at t) - output of earlier visits at t: what the output lacks at t.
The update to emit at t_i is D(t_i) - D(t_{i-1}). All keys and times are evaluated together: pairs (key, time) are
expanded against the rows of their key, filtered by visibility, and added up.

Outside loops times are totally ordered, and the output of earlier visits is the function of the earlier input.
Compiled functions are computed again for the earlier input, and the output is not read. Python functions are not: they
cost more than reading.

The function is a `Reducer` over whole columns (`ikebana.operators.reducers`). Functions of sums alone have an operator
of their own, `ikebana.operators.reduce_sums`.

Errors. A group for which the function raises has no output, and is an error of the dataflow
(`ikebana.operators.row_errors`) from that time on until the group changes. Where the output of earlier visits is read,
the errors of earlier visits are remembered.

Cost: for each interesting pair the history of its key, in a fixed number of vectorised passes. Keys that collide in a
hash are evaluated one after the other. A function of a large group costs the group's size for each change, except
aggregates that are accumulated in the diffs, and min, max and top_k by ordered columns, which read only the ends of
groups (`ikebana.operators.ordered`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding import payload as payloads
from ikebana.encoding.bad_rows import RowFailure, separate_bad_rows
from ikebana.encoding.columns import empty_array
from ikebana.encoding.lanes import Array, Index, Lane, constant
from ikebana.encoding.spill_files import SpillFiles
from ikebana.kernels import accumulate_rows, expand_pairs, match_keys, opcodes
from ikebana.operators import registers
from ikebana.operators.arrange import Maintainer
from ikebana.operators.ordered import read_ends
from ikebana.operators.pacing import Pace
from ikebana.operators.pending import next_round
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.reduce_program import lower_called, lower_distinct, lower_sums
from ikebana.operators.reducers import (
    DISTINCT,
    Groups,
    PythonReducer,
    ReducedRows,
    Reducer,
    SumsReducer,
    Threshold,
    TopK,
)
from ikebana.operators.row_errors import ErrorLog, RowError, row_errors
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, TraceReader
from ikebana.time import Time
from ikebana.trace import Updates, time_tables
from ikebana.trace.batch import rows_of
from ikebana.trace.updates import NO_KEYS, Sorted, sort_updates

Pairs = Lane
"""Interesting pairs, one per row: key lane (or position of a group) and epoch; distinct, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class InterestingTimes:
    """The interesting pairs (group, time) of a visit, each called a *moment*; in order of group, then time."""

    group: Lane  # the key lane, or the position of a group
    at: Lane  # a table of times
    tix: Index  # the position of each moment's time in the table
    follows: Array  # whether the previous moment is an earlier one of the same group
    is_new: Array  # whether the time is one of this visit, rather than the state before the visit

    @staticmethod
    def of(pairs: Pairs, span: Span) -> InterestingTimes:
        """The pairs at times of a visit."""
        group, epoch = pairs[:, 0], pairs[:, 1]
        epochs, tix = time_tables.rank_integers(epoch)
        follows = np.zeros(len(pairs), bool)
        np.equal(group[1:], group[:-1], out=follows[1:])
        return InterestingTimes(group, span.times_at(epochs), tix, follows, epoch >= span.lower)

    def __len__(self) -> int:
        return len(self.group)


class Reduction(Maintainer):
    """Base of the reduction operators: they read an arrangement and maintain another."""

    def __init__(
        self,
        source: Arranged,
        reducer: Reducer,
        schema: Schema,
        errors: ErrorLog,
        name: str,
        effort: str,
        spill: SpillFiles | None,
    ) -> None:
        """`schema` is that of the output: the key of the source, and the columns that the reducer computes."""
        self.source, self.reducer, self._errors = source, reducer, errors
        super().__init__(source, schema, name, effort, spill)
        self._input = self._open(source)

    def _log(self, moments: InterestingTimes, failed: Failed) -> None:
        """Log errors of groups: each lasts from its moment until the next moment of the group."""
        epochs, followed = moments.at[:, 0][moments.tix], np.append(moments.follows, False)
        for moment, error in failed:
            if moments.is_new[moment]:
                self._errors.add(error, int(epochs[moment]), 1)
            if followed[moment + 1]:
                self._errors.add(error, int(epochs[moment + 1]), -1)


Failed = list[tuple[int, RowError]]
"""Errors of groups, each with the position of its moment."""


def errors_of(failures: Sequence[RowFailure], columns: Mapping[str, pa.Array]) -> Failed:
    """The errors of groups: the row of each failure is a moment, and the columns have one entry for each failure."""
    errors = row_errors(failures, columns)
    return [(failure.row, error) for failure, error in zip(failures, errors, strict=True)]


class KnownErrors:
    """The errors of groups that earlier visits have logged, with their times, by key lane."""

    def __init__(self) -> None:
        self._history: dict[int, Counter[tuple[RowError, Time]]] = {}

    def __bool__(self) -> bool:
        return bool(self._history)

    def change(self, moments: InterestingTimes, failed: Failed) -> Iterator[tuple[RowError, Time, int]]:
        """The changes of errors in a visit, with their times: D(t_i) - D(t_{i-1}), if the log lacks D(t) at t."""
        errors: dict[int, Counter[RowError]] = {}
        for moment, error in failed:
            errors.setdefault(moment, Counter())[error] += 1
        affected = np.isin(moments.group, [*self._history, *(moments.group[moment] for moment in errors)])
        before: Counter[RowError] = Counter()
        new: list[tuple[int, RowError, Time, int]] = []
        for at in np.flatnonzero(affected).tolist():
            lane, time = int(moments.group[at]), tuple(moments.at[moments.tix[at]].tolist())
            lacking = errors.get(at, Counter())
            lacking.subtract(self._at(lane, time))
            change = lacking.copy()
            if moments.follows[at]:
                change.subtract(before)
            new += [(lane, error, time, diff) for error, diff in change.items() if diff]
            before = lacking
        for lane, error, time, diff in new:
            self._history.setdefault(lane, Counter())[error, time] += diff
            yield error, time, diff

    def _at(self, lane: int, time: Time) -> Counter[RowError]:
        """The errors of a key at a time."""
        errors: Counter[RowError] = Counter()
        for (error, since), diff in self._history.get(lane, {}).items():
            if all(a <= b for a, b in zip(since, time, strict=True)):
                errors[error] += diff
        return errors

    def forget(self, epoch: int) -> None:
        """Merge all epochs before `epoch` into the last of them."""
        for lane, history in list(self._history.items()):
            merged: Counter[tuple[RowError, Time]] = Counter()
            for (error, time), diff in history.items():
                merged[error, (max(time[0], epoch - 1), *time[1:])] += diff
            self._history[lane] = Counter({entry: diff for entry, diff in merged.items() if diff})
            if not self._history[lane]:
                del self._history[lane]


class Reduce(Reduction):
    """The reduce operator for any function: reads the source's fresh batches and trace, maintains the output."""

    def __init__(
        self,
        source: Arranged,
        reducer: Reducer,
        schema: Schema,
        errors: ErrorLog,
        name: str = "reduce",
        effort: str = "default",
        spill: SpillFiles | None = None,
    ) -> None:
        super().__init__(source, reducer, schema, errors, name, effort, spill)
        recomputes = source.dimensions == 1 and not isinstance(reducer, PythonReducer)
        self._produced = None if recomputes else self._open(self.out)
        self._pending: dict[Rounds, list[Pairs]] = {}
        self._known_errors = KnownErrors()
        self._pace = Pace(calls_users=isinstance(reducer, PythonReducer))

    def visit(self, span: Span) -> Iterator[None]:
        self.out.fresh = []
        pairs = self._interesting(span)
        if not len(pairs):
            return
        first = np.flatnonzero(np.append(True, pairs[1:, 0] != pairs[:-1, 0]))  # of each key
        ends = np.append(first[1:], len(pairs))
        for start, end in self._pace.pieces(len(first)):
            yield from self._visit_keys(pairs[first[start] : ends[end - 1]], span)
            if self._pace.is_due(end - start):
                yield
        yield from self._seal(span)

    def _visit_keys(self, pairs: Pairs, span: Span) -> Iterator[None]:
        """Push the updates that the output of some keys lacks."""
        if self._produced is None:
            pairs = add_state_before(pairs, span)
        lanes = _distinct(pairs[:, 0])
        history = self._history(lanes, pairs, span)
        produced = self._nothing
        if self._produced is not None:
            produced = _rows(self._produced, lanes, span, self.out.schema)
        both = [(side.updates.key, side.updates) for side in (history, produced)]
        pairs = add_sweep_epochs(pairs, both, span)
        moments = InterestingTimes.of(pairs, span)
        if span.rounds:
            self._keep_later(moments, (history, produced), span)
        failed: Failed = []
        for inputs, outputs in _layers(history, produced):
            self._arrange.push(self._change(moments, inputs, outputs, failed))
            yield
        self._log_errors(moments, failed)

    @cached_property
    def _nothing(self) -> Sorted:
        """The output of earlier visits where it need not be read: empty."""
        return Sorted(Updates.empty(self.out.schema, self.source.dimensions), NO_KEYS, NO_KEYS)

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return next_round(self._pending, prefix, after)

    def lower(self, program: ProgramBuilder) -> bool:
        source, index, reducer = program.arranged(self.source), program.index(self.out.schema, self.trace), self.reducer
        if source is None or index is None:
            return False
        if reducer == DISTINCT:
            return lower_distinct(program, source, index) and program.write(self.out, index)
        if isinstance(reducer, SumsReducer) and not isinstance(reducer, Threshold):
            return lower_sums(program, source, index, reducer) and program.write(self.out, index)
        if not self._is_written_as_top(source, index):
            return lower_called(program, source, index, reducer) and program.write(self.out, index)
        assert isinstance(reducer, TopK)
        fresh, out = source.fresh, index.fresh
        pending, rounds = program.pending()
        operands = [out.count, source.trace, index.trace, out.key, out.val, *out.diffs]
        operands += [reducer.k, int(reducer.greatest), int(reducer.distinct), int(program.in_loop)]
        groups = [fresh.key, *program.some_slots(2)]  # in the source, in order, and among the pending
        program.emit(opcodes.TOP, *operands, fresh.count, program.count(), pending, rounds, *groups)
        return program.write(self.out, index)

    def _is_written_as_top(self, source: registers.IndexRegister, index: registers.IndexRegister) -> bool:
        """Whether there is an instruction for the reducer: the first values, in order, of exact lanes."""
        if not isinstance(self.reducer, TopK) or len(source.fresh.diffs) != 1 or source.views:
            return False
        if source.schema.hashed or index.schema.val != source.schema.val:
            return False
        return self.source.is_stored and self.reducer.is_ordered(self.source.schema)

    def _interesting(self, span: Span) -> Pairs:
        """The keys with fresh input at the epochs of that input, and the pairs kept for this visit."""
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
        """The input of some keys up to this visit; of large groups only the end that the function needs, if it
        needs only one end.

        In loops all rows are read, since all times in a key's history can make later times interesting.
        """
        reducer, schema = self.reducer, self.source.schema
        if span.rounds or not isinstance(reducer, TopK) or not (self.source.is_stored and reducer.is_ordered(schema)):
            return _rows(self._input, lanes, span, schema)

        def enough(keys: Lane, known: Sorted) -> Array:
            of_keys = pairs[np.isin(pairs[:, 0], keys)]
            moment, _, sums = _accumulate(InterestingTimes.of(of_keys, span), known)
            counts = np.bincount(moment, np.clip(sums[0], 0, 1 if reducer.distinct else None), len(of_keys))
            short = _distinct(of_keys[counts < reducer.k, 0])
            return ~np.isin(keys, short)

        return read_ends(
            self._input.batches(),
            lanes,
            schema,
            span.dimensions,
            values=reducer.k,
            greatest=reducer.greatest,
            choose=span.seen,
            enough=enough,
        )

    def _log_errors(self, moments: InterestingTimes, failed: Failed) -> None:
        """Log the changes of the errors of groups in this visit."""
        if self._produced is None:
            self._log(moments, failed)
        elif failed or self._known_errors:
            for error, (epoch, *rounds), diff in self._known_errors.change(moments, failed):
                self._errors.add(error._replace(rounds=tuple(rounds)), epoch, diff)

    def forget(self, epoch: int) -> None:
        super().forget(epoch)
        self._known_errors.forget(epoch)

    def _keep_later(self, moments: InterestingTimes, histories: Sequence[Sorted], span: Span) -> None:
        """Keep the pairs that are interesting at later rounds."""
        for history in histories:
            for rounds, keys, epochs in joins_at_later_rounds(moments, history.updates.key, history.updates, span):
                self._pending.setdefault(rounds, []).append(_distinct_rows(np.stack([keys, epochs], axis=1)))

    def _change(self, moments: InterestingTimes, inputs: Sorted, outputs: Sorted, failed: Failed) -> Updates:
        """The output updates of this visit: D(t_i) - D(t_{i-1}) for the successive times of each key.

        Errors of groups for which the function raises are added to `failed`.
        """
        moment, row, sums = _accumulate(moments, inputs)
        moment, correct = self._apply(moment, inputs.updates.take(row), sums, failed)
        lacking = _at(correct, moments.at[:1])
        if len(outputs.updates):
            present_at, present_row, present_sums = _accumulate(moments, outputs)
            moment = np.concatenate([moment, present_at])
            retracted = replace(outputs.updates.take(present_row), diffs=-present_sums)
            lacking = Updates.concat([lacking, _at(retracted, moments.at[:1])])
        new, followed = moments.is_new[moment], np.append(moments.follows, False)[moment + 1]
        undone = replace(lacking, diffs=-lacking.diffs).where(followed)
        return Updates.concat(
            [
                _at(lacking.where(new), moments.at, moments.tix[moment[new]]),
                _at(undone, moments.at, moments.tix[moment[followed] + 1]),
            ]
        )

    def _apply(self, moment: Lane, values: Updates, sums: Lane, failed: Failed) -> tuple[Lane, Updates]:
        """The function's output for each moment: the moment of each output row, and the rows in the output schema."""
        result, failures = applied(self.reducer, Groups(moment, values, sums))
        if failures:
            bad = values.take(np.array([failure.row for failure in failures]))
            side = bad.schema.key
            key = side.decode(bad.key, bad.payload[: side.payload_columns])
            shown = dict(zip((field.name for field in side.fields), key, strict=True))
            failed += errors_of([replace(failure, row=int(moment[failure.row])) for failure in failures], shown)
        keys, schema = values.take(result.rows), self.out.schema
        val, payload = schema.val.encode(result.columns, len(result.rows))
        split = schema.key.payload_columns
        updates = Updates(
            keys.times,
            keys.tix,
            result.diffs.reshape(1, -1),
            schema,
            keys.key,
            val,
            (*keys.payload[:split], *payload),
        )
        return moment[result.rows], updates


def applied(reducer: Reducer, groups: Groups) -> tuple[ReducedRows, list[RowFailure]]:
    """The output of the groups for which a function does not raise, and the failures, by the first row of the group."""
    try:
        return reducer.apply(groups), []
    except Exception:
        starts, ends = groups.starts, np.append(groups.starts[1:], len(groups.group))

        def of_some(chosen: Lane) -> ReducedRows:
            rows = rows_of(starts[chosen], ends[chosen])
            result = reducer.apply(Groups(groups.group[rows], groups.values.take(rows), groups.sums[:, rows]))
            return replace(result, rows=rows[result.rows])

        result, _, failures = separate_bad_rows(of_some, len(starts), lambda: no_rows(reducer, groups.values.schema))
        return result, [replace(failure, row=int(starts[failure.row])) for failure in failures]


def no_rows(reducer: Reducer, schema: Schema) -> ReducedRows:
    """The output of no groups."""
    return ReducedRows(NO_KEYS, [empty_array(field.type) for field in reducer.fields(schema)], NO_KEYS)


def _rows(reader: TraceReader, lanes: Lane, span: Span, schema: Schema) -> Sorted:
    """All updates of some keys up to this visit, in order."""
    matches = reader.match(lanes)
    if not matches:
        return Sorted(Updates.empty(schema, span.dimensions), NO_KEYS, NO_KEYS)
    known = reader.gather([(batch, rows_of(ranges[:, 2], ranges[:, 3])) for batch, ranges in matches])
    return sort_updates(known.at_times(span.seen(known.times)))


def add_state_before(pairs: Pairs, span: Span) -> Pairs:
    """The pairs, and for each key a pair for its state before this sweep."""
    first = np.flatnonzero(np.append(True, pairs[1:, 0] != pairs[:-1, 0]))
    at = first + np.arange(len(first))
    result, is_given = np.empty((len(pairs) + len(first), 2), np.int64), np.ones(len(pairs) + len(first), bool)
    is_given[at] = False
    result[is_given] = pairs
    result[at, 0], result[at, 1] = pairs[first, 0], span.lower - 1
    return result


def add_sweep_epochs(pairs: Pairs, histories: Sequence[tuple[Lane, Updates]], span: Span) -> Pairs:
    """The pairs, and for each key the epochs of this sweep, after its first, at which it changed in earlier rounds.

    A history is a pair of a key lane (or positions of groups) and updates.
    """
    if span.upper - span.lower <= 1 or not span.rounds:
        return pairs
    parts = [pairs]
    for keys, updates in histories:
        epochs = updates.times[:, 0]
        flags = (epochs >= span.lower) & (epochs < span.upper) & np.all(updates.times[:, 1:] <= span.rounds, axis=1)
        rows = np.flatnonzero(flags[updates.tix])
        epochs = epochs[updates.tix[rows]]
        first = pairs[np.searchsorted(pairs[:, 0], keys[rows]), 1]
        parts.append(np.stack([keys[rows], epochs], axis=1)[epochs > first])
    return _distinct_rows(np.concatenate(parts))


def joins_at_later_rounds(
    moments: InterestingTimes, keys: Lane, updates: Updates, span: Span
) -> Iterator[tuple[Rounds, Lane, Lane]]:
    """The joins of the moments with the times of later rounds at which their key has changed in earlier visits.

    Yields rounds with the keys and epochs that are interesting at these rounds, possibly with repeats. `keys` are the
    key lanes of the updates, or positions of groups, in order.
    """
    later = np.any(updates.times[:, 1:] > span.rounds, axis=1)
    if not later.any() or not (later := later & span.before(updates.times)).any():
        return
    later_rows = np.flatnonzero(later[updates.tix])
    moment, row = expand(moments.group, keys[later_rows])
    table, tix = time_tables.join_times(moments.at, moments.tix[moment], updates.times, updates.tix[later_rows[row]])
    for rounds in {tuple(time[1:]) for time in table.tolist()}:
        chosen = np.flatnonzero((table[:, 1:] == rounds).all(axis=1)[tix])
        yield rounds, moments.group[moment[chosen]], table[tix[chosen], 0]


def _accumulate(moments: InterestingTimes, history: Sorted) -> tuple[Lane, Lane, Lane]:
    """What is visible at each moment: for each value with a non-zero sum the moment, a row with the value, the sums."""
    updates = history.updates
    moment, row = expand(moments.group, updates.key)
    visible = np.all(updates.times[:, None, :] <= moments.at[None, :, :], axis=2)
    seen = visible[updates.tix[row], moments.tix[moment]]
    if not seen.all():
        moment, row = moment[seen], row[seen]
    first, sums = accumulate_rows(
        moment,
        updates.val[row],
        history.ident[row],
        constant(0, len(row), np.int32),
        updates.diffs[:, row],
        np.ones(1, np.uint8),
    )
    return moment[first], row[first], sums


def expand(probes: Lane, keys: Lane) -> tuple[Lane, Lane]:
    """All pairs (probe, row) with equal keys, of two ordered lanes: probe by probe, rows in order."""
    ranges = match_keys(probes, keys)
    count = int(((ranges[:, 1] - ranges[:, 0]) * (ranges[:, 3] - ranges[:, 2])).sum())
    probe, row = np.empty(count, np.int64), np.empty(count, np.int64)
    expand_pairs(ranges, probe, row, np.zeros(2, np.int64))
    return probe, row


def _layers(history: Sorted, produced: Sorted) -> Iterator[tuple[Sorted, Sorted]]:
    """Inputs and outputs in layers: in each, a key lane stands for one key. One layer unless hashes collide."""
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
    return not payloads.same_rows(both, a[near], both, b[near]).all()


def _key_names(updates: Updates) -> list[tuple[bytes, ...]]:
    """A name for each row's key, equal exactly for equal keys."""
    return payloads.cells(updates.payload[: updates.schema.key.payload_columns])


def _where(rows: Sorted, flags: Array) -> Sorted:
    return Sorted(rows.updates.where(flags), rows.ident[flags], rows.collided)


def _at(updates: Updates, table: Lane, tix: Array | None = None) -> Updates:
    """The same updates at other times of a table, or all at its first time."""
    positions = constant(0, len(updates), np.int32) if tix is None else tix.astype(np.int32)
    return replace(updates, times=table, tix=positions)


def _distinct(lane: Lane) -> Lane:
    """The distinct entries of an ordered lane."""
    return lane[np.append(True, lane[1:] != lane[:-1])] if len(lane) else lane


def _distinct_rows(pairs: Pairs) -> Pairs:
    return time_tables.distinct_times(pairs)[0] if len(pairs) else pairs
