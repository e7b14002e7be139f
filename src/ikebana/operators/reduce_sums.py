"""Reductions of sums: distinct, threshold, count and linear aggregates, without looking at rows.

Where a reduction is a function of the accumulated diffs alone (`SumsReducer`), and lanes distinguish rows exactly, a
group is a pair of lanes: the key, and the value if each value is a group of its own. A visit takes the groups with
fresh input, seeks exactly their rows, by key *and* value, and adds up integers: nothing is sorted or compared.

Contract: that of `ikebana.operators.reduce`, which also explains why some pairs (group, time) are kept for later
rounds. `can_reduce_sums` decides which reductions this operator performs.

Outside loops times are totally ordered, so the output of earlier visits is the function of the earlier input: it is
computed again rather than read. Where all input of a visit is at one epoch, the sums after it are those before it and
the input, and only those before it are read. Inside loops the output of earlier visits is read, since it is not correct
yet at times that are joins of others; but only for groups with input before the visit, since others have no output.

First appearances. The times of one epoch are totally ordered, unless loops are nested. Where a sweep starts with
nothing, and all its input is inserted at one epoch, a group is therefore in the result of `distinct` from the round on
at which it first appears: the sweep keeps the set of groups that have appeared, and reads no trace. If anything else
arrives, it goes on like other sweeps.

A group for whose sums the function raises has no output, and is an error of the dataflow while it has these sums.

Cost: for each first appearance at most a probe of a hash table; for each other group with fresh input a seek into each
batch of the input (in loops also of the output) and an addition for each of the group's updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

import numpy as np

from ikebana.encoding import Schema
from ikebana.encoding import payload as payloads
from ikebana.encoding.bad_rows import separate_bad_rows
from ikebana.encoding.lanes import Array, Index, Lane, are_positive, constant, constant_diffs, gather_lane
from ikebana.encoding.spill_files import SpillFiles
from ikebana.kernels import sort_order, sum_ranges
from ikebana.operators.known_groups import KnownGroups
from ikebana.operators.pending import next_round
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.reduce import (
    InterestingTimes,
    Reduction,
    add_state_before,
    add_sweep_epochs,
    errors_of,
    joins_at_later_rounds,
    no_rows,
)
from ikebana.operators.reduce_program import lower_distinct, lower_sums
from ikebana.operators.reducers import DISTINCT, ReducedRows, Reducer, SumsReducer, Threshold
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, TraceReader
from ikebana.trace import Updates
from ikebana.trace.batch import StoredBatch, rows_of
from ikebana.trace.views import rows_in_place

ONE: Lane = np.ones(1, np.int64)


def can_reduce_sums(reducer: Reducer, source: Arranged) -> TypeGuard[SumsReducer]:
    """Whether `ReduceSums` can perform a reduction: a function of sums, over exact lanes that are stored.

    In loops only `Threshold`, which keeps the value.
    """
    schema = source.schema
    if schema.hashed or not source.is_stored or not isinstance(reducer, SumsReducer):
        return False
    return isinstance(reducer, Threshold) or not (schema.val.fields or source.dimensions > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Groups (key lane and value lane) at epochs; distinct, in order."""

    key: Lane
    val: Lane
    epoch: Lane

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, eq=False)
class GroupRows:
    """Rows of some groups: where the rows of each group start and end in `updates`."""

    updates: Updates
    starts: Lane
    ends: Lane

    @cached_property
    def group(self) -> Lane:
        """The position of the group of each row (ascending)."""
        return np.repeat(np.arange(len(self.starts)), self.ends - self.starts)

    def gathered(self) -> GroupRows:
        """The same rows, in updates that have no others."""
        return GroupRows(self.updates.take(rows_of(self.starts, self.ends)), *_successive(self.starts, self.ends))


class ReduceSums(Reduction):
    """The reduce operator for functions of sums: reads the source's fresh batches and trace, maintains the output."""

    def __init__(
        self,
        source: Arranged,
        reducer: SumsReducer,
        schema: Schema,
        errors: ErrorLog,
        name: str = "reduce sums",
        effort: str = "default",
        spill: SpillFiles | None = None,
    ) -> None:
        super().__init__(source, reducer, schema, errors, name, effort, spill)
        self._function = reducer
        self._produced = self._open(self.out) if source.dimensions > 1 else None
        self._pending: dict[Rounds, list[Points]] = {}
        self._known: KnownGroups | None = None  # all groups with output, while a sweep has only first appearances
        self._known_epoch = 0  # the epoch of all of them
        self._known_from = -1  # the first epoch of the sweep that has begun to look for first appearances

    def visit(self, span: Span) -> Iterator[None]:
        self.out.fresh = []
        first_appearances = self._first_appearances(span)
        if first_appearances is not None:
            self._arrange.push(first_appearances)
            yield from self._seal(span)
            return
        at_one_epoch = self._at_one_epoch(span)
        if at_one_epoch is not None:
            self._arrange.push(at_one_epoch)
            yield
            yield from self._seal(span)
            return
        points = self._interesting(span)
        if not len(points):
            return
        first = _first_of_each(points)
        key, val = points.key[first], points.val[first]
        inputs, outputs = _seek(self._input, key, val), list[GroupRows]()
        pairs = np.stack([np.cumsum(first) - 1, points.epoch], axis=1)
        if self._produced is None:
            moments = InterestingTimes.of(add_state_before(pairs, span), span)
        else:
            inputs = [part.gathered() for part in inputs]
            outputs = self._outputs(inputs, key, val, span)
            pairs = add_sweep_epochs(pairs, [(part.group, part.updates) for part in (*inputs, *outputs)], span)
            moments = InterestingTimes.of(pairs, span)
            self._keep_later(moments, (*inputs, *outputs), key, val, span)
        self._arrange.push(self._change(moments, inputs, outputs, key, val))
        yield
        yield from self._seal(span)

    def _first_appearances(self, span: Span) -> Updates | None:
        """The output of this visit, if the sweep has only first appearances up to now and has fresh input."""
        fresh = self.source.fresh
        if self._function != DISTINCT or self.source.dimensions > 2 or not fresh:
            return None
        if self._known_from != span.lower:
            is_first = self._input.rows == sum(map(len, fresh)) and not self._published.rows
            self._known, self._known_from = KnownGroups() if is_first else None, span.lower
            self._known_epoch = int(fresh[0].times[0, 0])
        known, self._known = self._known, None
        if known is None or len(fresh) > 1 or len(fresh[0].times) > 1 or self._pending:
            return None
        updates = fresh[0].gather()
        if updates.times[0, 0] != self._known_epoch or not are_positive(updates.diffs):
            return None
        if not isinstance(fresh[0], StoredBatch) and not _is_distinct(updates.key, updates.val):
            return None  # history of several epochs, of which the sweep sees one
        if span.rounds:
            self._known = known
            updates = updates.take(known.add(updates.key, updates.val))
        return replace(updates, schema=self.out.schema, diffs=constant_diffs(ONE, len(updates)))

    def _at_one_epoch(self, span: Span) -> Updates | None:
        """The output of this visit, if all input arrives at one epoch, outside loops; None otherwise.

        The sums before the epoch are those of the trace, and the sums after it have the fresh input in addition.
        """
        fresh = self.source.fresh
        if self._produced is not None or len(fresh) != 1:
            return None
        updates = fresh[0].gather()
        if len(updates.times) != 1 or not _is_distinct(updates.key, updates.val):
            return None
        groups = len(updates)
        at = span.times_at(np.array([span.lower - 1, int(updates.times[0, 0])]))
        history = _seek(self._input, updates.key, updates.val, lambda times: times[:, 0] < span.lower)
        before = _sums(np.arange(groups), constant(0, groups, np.int32), at, history, len(updates.diffs))
        sums = np.repeat(before, 2, axis=1)
        sums[:, 1::2] += updates.diffs
        is_new = np.tile([False, True], groups)
        moments = InterestingTimes(np.repeat(np.arange(groups), 2), at, is_new.astype(np.int32), is_new, is_new)
        return self._output(moments, sums, [], updates.key, updates.val)

    def forget(self, epoch: int) -> None:
        super().forget(epoch)
        self._known, self._known_from = None, -1

    def _outputs(self, inputs: Sequence[GroupRows], key: Lane, val: Lane, span: Span) -> list[GroupRows]:
        """The output so far of some groups. Groups without input before this visit have none, and are not sought."""
        assert self._produced is not None
        is_old = np.zeros(len(key), bool)
        for part in inputs:
            fresh = span.fresh(part.updates.times)
            is_old[part.group if not fresh.any() else part.group[~fresh[part.updates.tix]]] = True
        if not is_old.any():
            return []
        parts = []
        for part in _seek(self._produced, key[is_old], val[is_old]):
            starts, ends = np.zeros(len(key), np.int64), np.zeros(len(key), np.int64)
            starts[is_old], ends[is_old] = part.starts, part.ends
            parts.append(GroupRows(part.updates, starts, ends).gathered())
        return parts

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return next_round(self._pending, prefix, after)

    def lower(self, program: ProgramBuilder) -> bool:
        source, index = program.arranged(self.source), program.index(self.out.schema, self.trace)
        if source is None or index is None:
            return False
        if self._function == DISTINCT:
            is_written = lower_distinct(program, source, index)
        else:
            is_written = lower_sums(program, source, index, self._function)
        return is_written and program.write(self.out, index)

    def _interesting(self, span: Span) -> Points:
        """The groups with fresh input at the epochs of that input, and the points kept for this visit."""
        parts = self._pending.pop(span.rounds, [])
        for batch in self.source.fresh:
            fresh = batch.gather()
            parts.append(Points(fresh.key, fresh.val, fresh.times[:, 0][fresh.tix]))
        return parts[0] if len(parts) == 1 else _distinct(parts)

    def _keep_later(
        self, moments: InterestingTimes, histories: Sequence[GroupRows], key: Lane, val: Lane, span: Span
    ) -> None:
        """Keep the groups that are interesting at later rounds."""
        later: dict[Rounds, list[Points]] = {}
        for history in histories:
            for rounds, group, epochs in joins_at_later_rounds(moments, history.group, history.updates, span):
                later.setdefault(rounds, []).append(Points(key[group], val[group], epochs))
        for rounds, parts in later.items():
            points = _distinct(parts)
            if len(points):
                self._pending.setdefault(rounds, []).append(points)

    def _change(
        self, moments: InterestingTimes, inputs: list[GroupRows], outputs: list[GroupRows], key: Lane, val: Lane
    ) -> Updates:
        """The output updates of this visit."""
        sums = _sums(moments.group, moments.tix, moments.at, inputs, len(self.source.schema.diffs))
        return self._output(moments, sums, outputs, key, val)

    def _output(self, moments: InterestingTimes, sums: Lane, outputs: list[GroupRows], key: Lane, val: Lane) -> Updates:
        """The output updates of this visit, given the sums at each moment."""
        nonzero = np.flatnonzero(sums.any(axis=0))
        result, good = self._apply(moments, sums, nonzero, key, val)
        rows = good[result.rows]
        if not isinstance(self._function, Threshold):
            return self._replaced(moments, rows, result, key)
        multiplicity = np.zeros(len(moments), np.int64)
        multiplicity[rows] = result.diffs
        if outputs:
            multiplicity -= _sums(moments.group, moments.tix, moments.at, outputs, 1)[0]
        return self._corrected(moments, multiplicity, key, val)

    def _apply(
        self, moments: InterestingTimes, sums: Lane, nonzero: Lane, key: Lane, val: Lane
    ) -> tuple[ReducedRows, Lane]:
        """The function's output for the moments `nonzero`, and those of them for which it does not raise.

        Inside loops an exception fails the dataflow: errors are not retracted there.
        """
        if self._produced is not None:
            return self._function.of_sums(sums[:, nonzero]), nonzero
        function, schema = self._function, self.source.schema
        result, good, failures = separate_bad_rows(
            lambda rows: function.of_sums(sums[:, nonzero[rows]]), len(nonzero), lambda: no_rows(function, schema)
        )
        if failures:
            of_moments = [replace(failure, row=int(nonzero[failure.row])) for failure in failures]
            group = moments.group[[failure.row for failure in of_moments]]
            shown = dict(zip(schema.names, schema.decode(key[group], val[group], ()), strict=True))
            self._log(moments, errors_of(of_moments, shown))
        return result, nonzero[good]

    def _corrected(self, moments: InterestingTimes, lacking: Lane, key: Lane, val: Lane) -> Updates:
        """Updates of the groups whose multiplicity changes: by D(t_i) - D(t_{i-1}), with D(t) what it lacks at t."""
        change = lacking.copy()
        change[1:] -= np.where(moments.follows[1:], lacking[:-1], 0)
        rows = np.flatnonzero((change != 0) & moments.is_new)
        group, tix = moments.group[rows], moments.tix[rows]
        return Updates(moments.at, tix, change[rows].reshape(1, -1), self.out.schema, key[group], val[group], ())

    def _replaced(self, moments: InterestingTimes, rows: Lane, result: ReducedRows, key: Lane) -> Updates:
        """A value for each moment: inserted at its time, and deleted at the group's next time."""
        schema, group = self.out.schema, moments.group[rows]
        val, payload = schema.val.encode(result.columns, len(rows))
        starts = np.flatnonzero(moments.is_new[rows])
        ends = np.flatnonzero(np.append(moments.follows, False)[rows + 1])
        shown = np.concatenate([starts, ends])
        tix = moments.tix[np.concatenate([rows[starts], rows[ends] + 1])]
        diffs = np.repeat([1, -1], [len(starts), len(ends)]).reshape(1, -1)
        return Updates(
            moments.at, tix, diffs, schema, key[group[shown]], gather_lane(val, shown), payloads.take(payload, shown)
        )


def _seek(reader: TraceReader, key: Lane, val: Lane, choose: Callable[[Lane], Array] | None = None) -> list[GroupRows]:
    """All updates of some groups, one part for each batch; also updates of a shared trace at epochs still to come.

    With `choose`, batches are left out that have none of the times that it flags in a table of times.
    """
    parts = []
    for batch in reader.batches():
        if choose is not None and not choose(batch.times).any():
            continue
        starts, ends = batch.seek_values(key, val)
        if np.array_equal(starts, ends):
            continue
        rows = rows_in_place(batch)
        if rows is not None:
            parts.append(GroupRows(rows, starts, ends))
        else:
            parts.append(GroupRows(batch.gather(rows_of(starts, ends)), *_successive(starts, ends)))
    return parts


def _successive(starts: Lane, ends: Lane) -> tuple[Lane, Lane]:
    """Ranges of the same sizes, one directly after the other."""
    new_ends = np.cumsum(ends - starts)
    return new_ends - (ends - starts), new_ends


def _sums(group: Lane, tix: Index, at: Lane, history: Sequence[GroupRows], lanes: int) -> Lane:
    """The sums of the diffs that are visible at each moment, a group and a time, indexed by (lane, moment)."""
    sums = np.zeros((lanes, len(group)), np.int64)
    for part in history:
        rows = part.updates
        sum_ranges(group, tix, at, part.starts, part.ends, rows.tix, rows.diffs, rows.times, sums)
    return sums


def _is_distinct(key: Lane, val: Lane) -> bool:
    """Whether all groups, which are in order, are different."""
    is_same = key[1:] == key[:-1]
    return not is_same.any() or not (is_same & (val[1:] == val[:-1])).any()


def _first_of_each(points: Points) -> Array:
    """Flags for the first point of each group."""
    first = np.ones(len(points), bool)
    first[1:] = (points.key[1:] != points.key[:-1]) | (points.val[1:] != points.val[:-1])
    return first


def _distinct(parts: Sequence[Points]) -> Points:
    """The points of all parts, in order, each once."""
    if not parts:
        nothing = np.empty(0, np.int64)
        return Points(nothing, nothing, nothing)
    key, val, epoch = (np.concatenate([getattr(part, name) for part in parts]) for name in ("key", "val", "epoch"))
    order = sort_order(key, val, (epoch - epoch.min(initial=0)).astype(np.int32))
    key, val, epoch = key[order], val[order], epoch[order]
    is_new = np.ones(len(key), bool)
    is_new[1:] = (key[1:] != key[:-1]) | (val[1:] != val[:-1]) | (epoch[1:] != epoch[:-1])
    return Points(key[is_new], val[is_new], epoch[is_new])
