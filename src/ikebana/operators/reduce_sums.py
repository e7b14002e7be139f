"""Tally: reductions of sums. Distinct, threshold, count and linear aggregates, without looking at rows.

Where a reduction is a function of the accumulated diffs alone (`SumsReducer`), and rows are told apart exactly by their
lanes, a group is a pair of lanes: the key, and the value if each value is a group of its own. A visit finds the groups
with fresh input, seeks exactly their rows, key *and* value, and adds up numbers: nothing is sorted or compared.

Contract: that of `ikebana.operators.reduce`, which also says why some pairs (group, time) are kept for later rounds.
`can_reduce_sums` says which reductions this operator does.

Outside loops times are totally ordered, so the output of earlier visits is the function of the earlier input: it is
computed again, and not read. Inside loops it is read, since the output has not been corrected yet at times that are
joins of others.

A group for whose sums the function raises has no output, and is an error of the dataflow while it has these sums.

Cost: for each group with fresh input a seek into each batch of the input (in loops of the output too) and an addition
for each of its updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from ikebana.encoding import payload as payloads
from ikebana.encoding.bad_rows import set_apart
from ikebana.encoding.lanes import Array, Lane, gathered
from ikebana.kernels import sort_order, sum_visible
from ikebana.operators.pending import next_round
from ikebana.operators.reduce import (
    Moments,
    Reduction,
    at_later_rounds,
    errors_of,
    nothing_made,
    with_epochs_of_the_sweep,
    with_state_before,
)
from ikebana.operators.reducers import ReducedRows, Reducer, SumsReducer, Threshold
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, TraceReader
from ikebana.trace import Updates
from ikebana.trace.batch import rows_of


def can_reduce_sums(logic: Reducer, source: Arranged) -> TypeGuard[SumsReducer]:
    """Whether `ReduceSums` can do a reduction: a function of sums, of exact lanes that are stored.

    In loops only one that keeps the value.
    """
    schema = source.schema
    if schema.hashed or not source.is_stored or not isinstance(logic, SumsReducer):
        return False
    return isinstance(logic, Threshold) or not (schema.val.fields or source.dimensions > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Groups (key lane and value lane) at epochs; distinct, in order."""

    key: Lane
    val: Lane
    epoch: Lane

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Updates of some groups, and the position of each one's group (ascending)."""

    group: Lane
    updates: Updates


class ReduceSums(Reduction):
    """Driver: reads the source's fresh batches and trace, writes the output arrangement."""

    def __init__(
        self, source: Arranged, logic: SumsReducer, errors: ErrorLog, name: str = "reduce sums", effort: str = "default"
    ) -> None:
        super().__init__(source, logic, errors, name, effort)
        self._function = logic
        self._produced = self._open(self.out) if source.dimensions > 1 else None
        self._pending: dict[Rounds, list[Points]] = {}

    def visit(self, span: Span) -> Iterator[None]:
        """Bring the output up to date with this visit's input."""
        self.out.fresh = []
        points = self._interesting(span)
        if not len(points):
            return
        first = _first_of_each(points)
        key, val = points.key[first], points.val[first]
        inputs = _seek(self._input, key, val)
        outputs = [] if self._produced is None else _seek(self._produced, key, val)
        yield
        pairs = np.stack([np.cumsum(first) - 1, points.epoch], axis=1)
        pairs = with_epochs_of_the_sweep(pairs, [(found.group, found.updates) for found in (*inputs, *outputs)], span)
        moments = Moments.of(pairs if self._produced else with_state_before(pairs, span), span)
        if self._produced:
            self._keep_later(moments, (*inputs, *outputs), key, val, span)
        self._arrange.push(self._change(moments, inputs, outputs, key, val))
        yield from self._seal(span)

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return next_round(self._pending, prefix, after)

    def _interesting(self, span: Span) -> Points:
        """Groups with fresh input, at the epochs of that input, and those kept for this visit."""
        parts = self._pending.pop(span.rounds, [])
        for batch in self.source.fresh:
            fresh = batch.gather()
            parts.append(Points(fresh.key, fresh.val, fresh.times[:, 0][fresh.tix]))
        return parts[0] if len(parts) == 1 else _distinct(parts)

    def _keep_later(self, moments: Moments, histories: Sequence[Found], key: Lane, val: Lane, span: Span) -> None:
        """Remember the groups that are interesting at later rounds."""
        kept: dict[Rounds, list[Points]] = {}
        for found in histories:
            for rounds, group, epochs in at_later_rounds(moments, found.group, found.updates, span):
                kept.setdefault(rounds, []).append(Points(key[group], val[group], epochs))
        for rounds, parts in kept.items():
            points = _distinct(parts)
            if len(points):
                self._pending.setdefault(rounds, []).append(points)

    def _change(self, moments: Moments, inputs: list[Found], outputs: list[Found], key: Lane, val: Lane) -> Updates:
        """The output updates of this visit."""
        sums = _sums(moments, inputs, len(self.source.schema.diffs))
        there = np.flatnonzero(sums.any(axis=0))
        made, there = self._made(moments, sums, there, key, val)
        rows = there[made.rows]
        if not isinstance(self._function, Threshold):
            return self._replaced(moments, rows, made, key)
        multiplicity = np.zeros(len(moments), np.int64)
        multiplicity[rows] = made.diffs
        if outputs:
            multiplicity -= _sums(moments, outputs, 1)[0]
        return self._corrected(moments, multiplicity, key, val)

    def _made(self, moments: Moments, sums: Lane, there: Lane, key: Lane, val: Lane) -> tuple[ReducedRows, Lane]:
        """The function's output for some moments, and those of them for which it does not raise.

        Inside loops that fails the dataflow: errors are not taken back there.
        """
        if self._produced is not None:
            return self._function.of_sums(sums[:, there]), there
        function, schema = self._function, self.source.schema
        made, good, failures = set_apart(
            lambda rows: function.of_sums(sums[:, there[rows]]), len(there), lambda: nothing_made(function, schema)
        )
        if failures:
            of_moments = [replace(failure, row=int(there[failure.row])) for failure in failures]
            group = moments.group[[failure.row for failure in of_moments]]
            shown = dict(zip(schema.names, schema.decode(key[group], val[group], ()), strict=True))
            self._log(moments, errors_of(of_moments, shown))
        return made, there[good]

    def _corrected(self, moments: Moments, lacking: Lane, key: Lane, val: Lane) -> Updates:
        """Groups whose multiplicity is to change: by D(t_i) - D(t_{i-1}), D being what is lacking at each time."""
        change = lacking.copy()
        change[1:] -= np.where(moments.follows[1:], lacking[:-1], 0)
        rows = np.flatnonzero((change != 0) & moments.is_new)
        group, tix = moments.group[rows], moments.tix[rows]
        return Updates(moments.at, tix, change[rows].reshape(1, -1), self.out.schema, key[group], val[group], ())

    def _replaced(self, moments: Moments, rows: Lane, made: ReducedRows, key: Lane) -> Updates:
        """A value for each group and time: there from its time on, and no longer from the group's next time on."""
        schema, group = self.out.schema, moments.group[rows]
        val, payload = schema.val.encode(made.columns, len(rows))
        starts = np.flatnonzero(moments.is_new[rows])
        ends = np.flatnonzero(np.append(moments.follows, False)[rows + 1])
        shown = np.concatenate([starts, ends])
        tix = moments.tix[np.concatenate([rows[starts], rows[ends] + 1])]
        diffs = np.repeat([1, -1], [len(starts), len(ends)]).reshape(1, -1)
        return Updates(
            moments.at, tix, diffs, schema, key[group[shown]], gathered(val, shown), payloads.take(payload, shown)
        )


def _seek(reader: TraceReader, key: Lane, val: Lane) -> list[Found]:
    """Everything there is of some groups, a part for each batch: also what a shared trace has of epochs to come."""
    parts = []
    for batch in reader.batches():
        starts, ends = batch.seek_values(key, val)
        rows = rows_of(starts, ends)
        if not len(rows):
            continue
        group = np.repeat(np.arange(len(key)), ends - starts)
        parts.append(Found(group, batch.gather(rows)))
    return parts


def _sums(moments: Moments, history: Sequence[Found], lanes: int) -> Lane:
    """What each moment sees: sums of diffs, (lane, moment)."""
    sums = np.zeros((lanes, len(moments)), np.int64)
    for found in history:
        updates = found.updates
        sum_visible(
            moments.group, moments.tix, moments.at, found.group, updates.tix, updates.diffs, updates.times, sums
        )
    return sums


def _first_of_each(points: Points) -> Array:
    """Flags the first point of each group."""
    first = np.ones(len(points), bool)
    first[1:] = (points.key[1:] != points.key[:-1]) | (points.val[1:] != points.val[:-1])
    return first


def _distinct(parts: Sequence[Points]) -> Points:
    """Several parts as one: in order, each point once."""
    if not parts:
        nothing = np.empty(0, np.int64)
        return Points(nothing, nothing, nothing)
    key, val, epoch = (np.concatenate([getattr(part, name) for part in parts]) for name in ("key", "val", "epoch"))
    order = sort_order(key, val, (epoch - epoch.min(initial=0)).astype(np.int32))
    key, val, epoch = key[order], val[order], epoch[order]
    kept = np.ones(len(key), bool)
    kept[1:] = (key[1:] != key[:-1]) | (val[1:] != val[:-1]) | (epoch[1:] != epoch[:-1])
    return Points(key[kept], val[kept], epoch[kept])
