"""Reductions of sums: distinct, threshold, count and linear aggregates, without looking at rows.

Where a reduction is a function of the accumulated diffs alone (`SumsReducer`), and lanes distinguish rows exactly, a
group is a pair of lanes: the key, and the value if each value is a group of its own. A visit takes the groups with
fresh input, seeks exactly their rows, by key *and* value, and adds up integers: nothing is sorted or compared.

Contract: that of `ikebana.operators.reduce`, which also explains why some pairs (group, time) are kept for later
rounds. `can_reduce_sums` decides which reductions this operator performs.

Outside loops times are totally ordered, so the output of earlier visits is the function of the earlier input: it is
computed again rather than read. Inside loops it is read, since the output is not correct yet at times that are joins of
others; but only for groups with input before the visit, since others have no output.

First appearances. The times of one epoch are totally ordered, unless loops are nested. Where a sweep starts with
nothing, and all its input is inserted at one epoch, a group is therefore in the result of `distinct` from the round on
at which it first appears: the sweep keeps the set of groups that have appeared, and reads no trace. If anything else
arrives, it goes on like other sweeps.

A group for whose sums the function raises has no output, and is an error of the dataflow while it has these sums.

Cost: for each first appearance at most a probe of a hash table; for each other group with fresh input a seek into each
batch of the input (in loops also of the output) and an addition for each of the group's updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from ikebana.encoding import payload as payloads
from ikebana.encoding.bad_rows import separate_bad_rows
from ikebana.encoding.lanes import Array, Lane, are_positive, constant_diffs, gather_lane
from ikebana.kernels import sort_order, sum_visible
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
from ikebana.trace.batch import rows_of

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


@dataclass(frozen=True, slots=True, eq=False)
class GroupUpdates:
    """Updates of some groups, with the position of the group of each (ascending)."""

    group: Lane
    updates: Updates


class ReduceSums(Reduction):
    """The reduce operator for functions of sums: reads the source's fresh batches and trace, maintains the output."""

    def __init__(
        self,
        source: Arranged,
        reducer: SumsReducer,
        errors: ErrorLog,
        name: str = "reduce sums",
        effort: str = "default",
    ) -> None:
        super().__init__(source, reducer, errors, name, effort)
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
        points = self._interesting(span)
        if not len(points):
            return
        first = _first_of_each(points)
        key, val = points.key[first], points.val[first]
        inputs = _seek(self._input, key, val)
        outputs = [] if self._produced is None else self._outputs(inputs, key, val, span)
        yield
        pairs = np.stack([np.cumsum(first) - 1, points.epoch], axis=1)
        pairs = add_sweep_epochs(pairs, [(part.group, part.updates) for part in (*inputs, *outputs)], span)
        moments = InterestingTimes.of(pairs if self._produced else add_state_before(pairs, span), span)
        if self._produced:
            self._keep_later(moments, (*inputs, *outputs), key, val, span)
        self._arrange.push(self._change(moments, inputs, outputs, key, val))
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
        if span.rounds:
            self._known = known
            updates = updates.take(known.add(updates.key, updates.val))
        return replace(updates, schema=self.out.schema, diffs=constant_diffs(ONE, len(updates)))

    def forget(self, epoch: int) -> None:
        super().forget(epoch)
        self._known, self._known_from = None, -1

    def _outputs(self, inputs: Sequence[GroupUpdates], key: Lane, val: Lane, span: Span) -> list[GroupUpdates]:
        """The output so far of some groups. Groups without input before this visit have none, and are not sought."""
        assert self._produced is not None
        is_old = np.zeros(len(key), bool)
        for part in inputs:
            fresh = span.fresh(part.updates.times)
            is_old[part.group if not fresh.any() else part.group[~fresh[part.updates.tix]]] = True
        old = np.flatnonzero(is_old)
        if len(old) == len(key):
            return _seek(self._produced, key, val)
        parts = _seek(self._produced, key[old], val[old]) if len(old) else []
        return [GroupUpdates(old[part.group], part.updates) for part in parts]

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
        self, moments: InterestingTimes, histories: Sequence[GroupUpdates], key: Lane, val: Lane, span: Span
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
        self, moments: InterestingTimes, inputs: list[GroupUpdates], outputs: list[GroupUpdates], key: Lane, val: Lane
    ) -> Updates:
        """The output updates of this visit."""
        sums = _sums(moments, inputs, len(self.source.schema.diffs))
        nonzero = np.flatnonzero(sums.any(axis=0))
        result, good = self._apply(moments, sums, nonzero, key, val)
        rows = good[result.rows]
        if not isinstance(self._function, Threshold):
            return self._replaced(moments, rows, result, key)
        multiplicity = np.zeros(len(moments), np.int64)
        multiplicity[rows] = result.diffs
        if outputs:
            multiplicity -= _sums(moments, outputs, 1)[0]
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


def _seek(reader: TraceReader, key: Lane, val: Lane) -> list[GroupUpdates]:
    """All updates of some groups, one part for each batch; also updates of a shared trace at epochs still to come."""
    parts = []
    for batch in reader.batches():
        starts, ends = batch.seek_values(key, val)
        rows = rows_of(starts, ends)
        if not len(rows):
            continue
        group = np.repeat(np.arange(len(key)), ends - starts)
        parts.append(GroupUpdates(group, batch.gather(rows)))
    return parts


def _sums(moments: InterestingTimes, history: Sequence[GroupUpdates], lanes: int) -> Lane:
    """The sums of the diffs that are visible at each moment, indexed by (lane, moment)."""
    sums = np.zeros((lanes, len(moments)), np.int64)
    for part in history:
        updates = part.updates
        sum_visible(moments.group, moments.tix, moments.at, part.group, updates.tix, updates.diffs, updates.times, sums)
    return sums


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
