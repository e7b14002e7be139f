"""The twin of the interpreter: programs run in ordinary Python, on lists of rows.

A register is named by a count and some slots, as in the compiled interpreter: its rows are tuples with an integer from
each slot. A trace is a list of updates `(key, val, epoch, round, diffs, payload)`; those of its memtable come first,
and are the only ones that programs add to. The payload is a tuple of integers, strings of bytes and None for null; it
may be left out if it is empty. Each opcode has a function of its operands. Nulls are None while a function computes.
"""

from __future__ import annotations

import ctypes
import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any

from ikebana.kernels import opcodes
from tests.kernels.words import WORDS, signed

Row = tuple[int, ...]
Payload = tuple[int | bytes | None, ...]
Update = tuple[Any, ...]
GROUP = 5  # operands of a payload column


def text_of(reference: int) -> bytes:
    """The bytes that a slot refers to: an address of 48 bits, and the length."""
    return ctypes.string_at(reference % 2**48, reference % WORDS >> 48)


@cache
def _kept(text: bytes) -> Any:
    return ctypes.create_string_buffer(text)


def reference_to(text: bytes) -> int:
    """A slot that refers to a copy of a text, which is kept."""
    return signed(ctypes.addressof(_kept(text)) | len(text) << 48)


def payload_of(update: Update) -> Payload:
    return update[5] if len(update) > 5 else ()


class Stop(Exception):
    """A program cannot go on: its status, and the trace without room."""

    def __init__(self, status: int, trace: int = 0) -> None:
        self.status, self.trace = status, trace


@dataclass
class PlainTrace:
    """A trace: what is settled, and the memtable, in order, with room for so many rows and bytes of texts.

    The first `keys` columns of the payload are those of the key.
    """

    room: int
    settled: list[Update] = field(default_factory=list)
    memtable: list[Update] = field(default_factory=list)
    heap: int = 0
    keys: int = 0

    @property
    def updates(self) -> list[Update]:
        return self.memtable + self.settled


@dataclass
class State:
    """What instructions read and change: slots, counts, traces, and the present time."""

    traces: Sequence[PlainTrace]
    slots: defaultdict[int, list[int]]
    counts: list[int]
    room: int
    now: int
    round: int = 0

    def rows(self, count: int, slots: Sequence[int]) -> list[Row]:
        """The rows of a register; slot 0 is all zeros."""
        size = self.counts[count]
        return [tuple(self.slots[slot][row] if slot else 0 for slot in slots) for row in range(size)]

    def write(self, count: int, slots: Sequence[int], rows: Sequence[Row]) -> None:
        """Make these the rows of a register."""
        if len(rows) > self.room:
            raise Stop(opcodes.FULL)
        for at, slot in enumerate(slots):
            self.slots[slot] = [row[at] for row in rows]
        self.counts[count] = len(rows)

    def append(self, count: int, slots: Sequence[int], rows: Sequence[Row]) -> None:
        """Add rows to a register."""
        self.write(count, slots, [*self.rows(count, slots), *rows])

    def payload(self, count: int, groups: Sequence[int]) -> list[Payload]:
        """The payload of the rows of a register, whose columns are given by groups."""
        columns = [groups[at : at + GROUP] for at in range(0, len(groups), GROUP)]
        rows = self.rows(count, [slot for column in columns for slot in column[:2]])
        return [
            tuple(
                None if null else text_of(value) if column[4] else value
                for value, null, column in zip(row[::2], row[1::2], columns, strict=True)
            )
            for row in rows
        ]

    def copy(self, source: int, target: int, groups: Sequence[int], positions: Sequence[int]) -> None:
        """Copy the payload of some rows of a register to those of another."""
        columns = [groups[at : at + GROUP] for at in range(0, len(groups), GROUP)]
        for from_, null, to, to_null, _ in columns:
            rows = self.rows(source, [from_, null])
            self.write(target, [to, to_null] if to_null else [to], [rows[at] for at in positions])

    def store(self, trace: int, rows: Sequence[Row], payloads: Sequence[Payload]) -> None:
        """Add rows (key, val, diffs...) to a memtable, at the present time."""
        table = self.traces[trace]
        if len(table.memtable) + len(rows) > table.room:
            raise Stop(opcodes.SPILL, trace)
        size = sum(len(cell) for payload in payloads for cell in payload if isinstance(cell, bytes))
        if size > table.heap and rows:
            raise Stop(opcodes.SPILL, trace)
        table.heap -= size
        table.memtable += [
            (row[0], row[1], self.now, self.round, row[2:], *([payload] if payload else []))
            for row, payload in zip(rows, payloads, strict=True)
        ]
        table.memtable.sort(key=lambda update: update[:4])
        if any(_collide(a, b, table.keys) for a, b in combinations(table.memtable, 2)) and rows:
            raise Stop(opcodes.RAISED)


def run(
    code: Sequence[int],
    traces: Sequence[PlainTrace],
    slots: defaultdict[int, list[int]],
    counts: list[int],
    room: int,
    now: int,
) -> int:
    """Run a program over an epoch, and return its status; if it does not succeed, memtables are as they were."""
    before = [list(trace.memtable) for trace in traces]
    heaps = [trace.heap for trace in traces]
    state, at = State(traces, slots, counts, room, now), 0
    try:
        while at < len(code):
            opcode, length = code[at : at + 2]
            operands = code[at + 2 : at + length]
            at += length
            if opcode == opcodes.LOOP:
                state.round = 0
            elif opcode in (opcodes.REPEAT, opcodes.AGREE):
                later = _later_rounds(state, operands[2:])
                state.round = min(later, default=0)
                at = operands[0] if later else at
            else:
                FUNCTIONS[opcode](state, *operands)
    except Stop as stop:
        for trace, rows, heap in zip(traces, before, heaps, strict=True):
            trace.memtable[:], trace.heap = rows, heap
        counts[opcodes.LACKS_ROOM] = stop.trace
        return stop.status
    return opcodes.DONE


def _later_rounds(state: State, pending: Sequence[int]) -> set[int]:
    """The rounds after the present one for which rows wait."""
    pairs = zip(pending[::2], pending[1::2], strict=True)
    return {round_ for count, rounds in pairs for (round_,) in state.rows(count, [rounds]) if round_ > state.round}


# Streams.


def clear(state: State, count: int) -> None:
    """No rows."""
    state.counts[count] = 0


def negate(state: State, count: int, from_: int, to: int) -> None:
    """Diffs with their sign changed."""
    state.write(count, [to], [(signed(-diff),) for (diff,) in state.rows(count, [from_])])


def filter_(state: State, source: int, target: int, flag: int, null: int, columns: int, *slots: int) -> None:
    """The rows whose flag is set, and not null."""
    flags = [is_set and not is_null for is_set, is_null in state.rows(source, [flag, null])]
    rows = zip(state.rows(source, slots[::2]), flags, strict=True)
    state.write(target, slots[1::2], [row for row, is_kept in rows if is_kept])


def append(state: State, source: int, target: int, columns: int, *slots: int) -> None:
    """The rows of the source, after those of the target."""
    state.append(target, slots[1::2], state.rows(source, slots[::2]))


def exchange(state: State, source: int, target: int, key: int, columns: int, *slots: int) -> None:
    """The rows of all workers whose keys this worker owns; here there are no others."""
    state.write(target, slots[columns : 2 * columns], state.rows(source, slots[:columns]))


def call(state: State, source: int, target: int, function: int) -> None:
    """The rows that a function makes of some; here the same number, and the function writes nothing."""
    state.counts[target] = state.counts[source]


def take(state: State, pending: int, target: int, rounds: int, columns: int, *slots: int) -> None:
    """The pending rows of the present round go to the target."""
    state.append(target, slots[1::2], _taken(state, pending, rounds, slots[::2]))


def _taken(state: State, pending: int, rounds: int, slots: Sequence[int]) -> list[Row]:
    """Remove the pending rows of the present round, and return them."""
    waiting = state.rows(pending, [rounds, *slots])
    state.write(pending, [rounds, *slots], [row for row in waiting if row[0] != state.round])
    return [row[1:] for row in waiting if row[0] == state.round]


def enter(state: State, source: int, target: int) -> None:
    """The same rows in round 0, none in later rounds."""
    state.counts[target] = 0 if state.round else state.counts[source]


def enter_at(
    state: State, source: int, target: int, pending: int, rounds: int, delays: int, columns: int, *slots: int
) -> None:
    """Each row in the round that is its delay; a negative delay raises."""
    from_, to, later = slots[::3], slots[1::3], slots[2::3]
    for delay, *row in state.rows(source, [delays, *from_]):
        if delay < 0:
            raise Stop(opcodes.RAISED)
        if delay == 0:
            state.append(target, to, [tuple(row)])
        else:
            state.append(pending, [rounds, *later], [(delay, *row)])


def feedback(state: State, source: int, pending: int, last: int, rounds: int, columns: int, *slots: int) -> None:
    """The rows wait for the next round, unless the present one is the last."""
    if state.round + 1 != last:
        rows = [(state.round + 1, *row) for row in state.rows(source, slots[::2])]
        state.append(pending, [rounds, *slots[1::2]], rows)


def consolidate(state: State, source: int, target: int, columns: int, lanes: int, *slots: int) -> None:
    """The distinct rows in order, with the sums of their diffs, if not zero."""
    from_, to = slots[: columns + lanes], slots[columns + lanes :]
    state.write(target, to, added_up(state.rows(source, from_), columns))


def added_up(rows: Iterable[Row], columns: int) -> list[Row]:
    """Rows, each with so many columns and then diffs: in order, equal ones added up, those that cancel left out."""
    diffs: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        diffs[row[:columns]].append(row[columns:])
    sums = [(*row, *(signed(sum(lane)) for lane in zip(*parts, strict=True))) for row, parts in sorted(diffs.items())]
    return [row for row in sums if any(row[columns:])]


# Traces.


def _collide(a: Update, b: Update, keys: int) -> bool:
    """Whether updates are equal in a hashed lane, but not in the data behind it."""
    if a[0] != b[0]:
        return False
    first, second = payload_of(a), payload_of(b)
    return first != second if a[1] == b[1] else first[:keys] != second[:keys]


def _agree(payloads: Iterable[Payload]) -> None:
    """Payloads of rows with equal lanes are equal."""
    if len(set(payloads)) > 1:
        raise Stop(opcodes.RAISED)


def arrange(
    state: State, source: int, target: int, trace: int, lanes: int, payload: int, key: int, val: int, *slots: int
) -> None:
    """The distinct rows of key and value in order, with the sums of their diffs, also stored in a trace, if any."""
    (to_key, to_val), diffs, to_diffs = slots[:2], slots[2 : 2 + lanes], slots[2 + lanes : 2 + 2 * lanes]
    groups = slots[2 + 2 * lanes :]
    given, payloads = state.rows(source, [key, val, *diffs]), state.payload(source, groups)
    positions: dict[Row, list[int]] = defaultdict(list)
    for at, row in enumerate(given):
        positions[row[:2]].append(at)
    for same in positions.values():
        _agree(payloads[at] for at in same)
    rows = added_up(given, 2)
    state.write(target, [to_key, to_val, *to_diffs], rows)
    state.copy(source, target, groups, [positions[row[:2]][0] for row in rows])
    if trace >= 0:
        state.store(trace, rows, [payloads[positions[row[:2]][0]] for row in rows])


def probe(state: State, source: int, target: int, trace: int, mode: int, adds_up: int, *slots: int) -> None:
    """Each row with each update of its key that was seen, or was seen before this visit; the product of their diffs.

    Updates of later rounds wait for them. With `adds_up`, those of equal value that do not wait are added up. A
    reference to an update is its position in the trace.
    """
    key, value, pending, later_value, rounds, source_lanes, _, lanes, columns, references, keys, *rest = slots
    diffs, rest = rest[:source_lanes], rest[source_lanes:]
    to_diffs, later_diffs, copies = rest[:lanes], rest[lanes : 2 * lanes], rest[2 * lanes : 2 * lanes + 3 * columns]
    updates, own_keys = state.traces[trace].updates, state.payload(source, rest[2 * lanes + 3 * columns :])
    for row, own_key in zip(state.rows(source, [key, *diffs, *copies[::3]]), own_keys, strict=True):
        wanted, own, copied = row[0], row[1 : 1 + source_lanes], row[1 + source_lanes :]
        _agree([own_key, *(payload_of(update)[:keys] for update in updates if update[0] == wanted)])
        met = [
            (*update[:5], place)
            for place, update in enumerate(updates)
            if update[0] == wanted and _is_seen(state, update, mode)
        ]
        now = [(val, place, *_product(own, theirs, lanes)) for _, val, _, at, theirs, place in met if at <= state.round]
        if state.counts[target] + len(now) > state.room:
            raise Stop(opcodes.FULL)
        if adds_up:
            now = _versions_added_up(now, updates, state.traces[trace].keys, agree=bool(references))
        state.append(target, [value, references, *to_diffs, *copies[1::3]], [(*joined, *copied) for joined in now])
        if pending >= 0:
            later = [(at, val, *_product(own, theirs, lanes)) for _, val, _, at, theirs, _ in met if at > state.round]
            slots = [rounds, later_value, *later_diffs, *copies[2::3]]
            state.append(pending, slots, [(*joined, *copied) for joined in later])


def _versions_added_up(rows: Sequence[Row], updates: Sequence[Update], keys: int, *, agree: bool) -> list[Row]:
    """Rows of a value, a position in the trace and diffs: those of equal value added up, with one of the positions."""
    places = {value: place for value, place, *_ in reversed(rows)}
    if agree:
        for value in places:
            _agree(payload_of(updates[place])[keys:] for other, place, *_ in rows if other == value)
    sums = added_up([(value, *diffs) for value, _, *diffs in rows], 1)
    return [(value, places[value], *diffs) for value, *diffs in sums]


def load(state: State, count: int, trace: int, column: int, references: int, to: int, null: int) -> None:
    """A payload column of the updates that are referred to; the addresses of texts are not those of the interpreter."""
    updates = state.traces[trace].updates
    cells = [payload_of(updates[place])[column] for (place,) in state.rows(count, [references])]
    numbers = [reference_to(cell) if isinstance(cell, bytes) else cell for cell in cells]
    _write_numbers(state, count, to, null, numbers)


def extend(
    state: State, source: int, target: int, traces: int, value: int, diff: int, to_diff: int, columns: int, *slots: int
) -> None:
    """Each row with each value that all traces have for it; the product of its diff and of their multiplicities."""
    uses = [slots[at : at + 4] for at in range(0, 4 * traces, 4)]
    copies, extended = slots[4 * traces :], list[Row]()
    for row in state.rows(source, [diff, *(key for *_, key in uses), *copies[::2]]):
        own, keys, copied = row[0], row[1 : 1 + traces], row[1 + traces :]
        met = [(state.traces[trace], mode, exists) for trace, mode, exists, _ in uses]
        values = extensions(met, keys, state.now, state.room - len(extended))
        if values is None:
            raise Stop(opcodes.FULL)
        extended += [(val, signed(own * count), *copied) for val, count in values]
    state.write(target, [value, to_diff, *copies[1::2]], extended)


def extensions(
    traces: Sequence[tuple[PlainTrace, int, int]], keys: Sequence[int], now: int, room: int
) -> list[tuple[int, int]] | None:
    """The values that all traces have for keys, in order, with the product of their multiplicities at an epoch.

    A multiplicity that only shows existence is 1 if it is positive. None if no trace has at most `room` updates of its
    key: the smallest might have that many values.
    """
    stored = [
        [update for update in trace.updates if update[0] == key]
        for (trace, _, _), key in zip(traces, keys, strict=True)
    ]
    if min(map(len, stored)) > room:
        return None
    totals: list[defaultdict[int, int]] = []
    for (_, mode, exists), updates in zip(traces, stored, strict=True):
        counts: defaultdict[int, int] = defaultdict(int)
        for _, val, epoch, _, diffs, *_ in updates:
            if epoch < now or (epoch == now and mode == opcodes.SEEN):
                counts[val] = signed(counts[val] + diffs[0])
        totals.append(defaultdict(int, {val: int(count > 0) for val, count in counts.items()}) if exists else counts)
    values = []
    for val in sorted(totals[0]):
        product = 1
        for counts in totals:
            product = signed(product * counts[val])
        if product:
            values.append((val, product))
    return values


def _is_seen(state: State, update: Update, mode: int) -> bool:
    """Whether an update belongs to this visit or an earlier one; with `BEFORE`, to an earlier one."""
    time, present = update[2:4], (state.now, state.round)
    return time < present if mode == opcodes.BEFORE else time <= present


def _product(a: Row, b: Row, lanes: int) -> Row:
    """The product of diffs; a single lane counts for all."""
    return tuple(signed(x * y) for x, y in zip(_repeated(a, lanes), _repeated(b, lanes), strict=True))


def _repeated(diffs: Row, lanes: int) -> Row:
    return diffs if len(diffs) > 1 else diffs * lanes


# Reductions.


def _groups(state: State, columns: int, source: int, groups: int, pending: int, rounds: int, *slots: int) -> list[Row]:
    """The distinct groups of the fresh rows and of the pending rows of this round, in order."""
    fresh, ordered, later = slots[:columns], slots[columns : 2 * columns], slots[2 * columns :]
    rows = state.rows(source, fresh)
    if pending >= 0:
        rows += _taken(state, pending, rounds, later)
    state.write(groups, ordered, rows)
    return sorted(set(rows))


def _next_change(state: State, updates: Iterable[Update]) -> list[int]:
    """The first later round at which updates of earlier epochs are, if any are."""
    return sorted({at for _, _, epoch, at, *_ in updates if epoch < state.now and at > state.round})[:1]


def _total(state: State, updates: Iterable[Update], mode: int = opcodes.SEEN) -> int:
    """The sum of the first diffs of the updates that count at this visit: up to its epoch and up to its round."""
    counted = [update for update in updates if _is_seen(state, update, mode) and update[3] <= state.round]
    return signed(sum(update[4][0] for update in counted))


def distinct(
    state: State, target: int, given: int, produced: int, to_key: int, to_val: int, to_diff: int, *operands: int
) -> None:
    """For each group, a key and a value: one if its count is positive, minus what was there before."""
    groups, columns = operands[1:11], operands[11:]
    source, _, pending, rounds, *slots = groups
    payloads, fresh = state.payload(source, columns), state.rows(source, slots[:2])
    rows = []
    for key, val in _groups(state, 2, *groups):
        if columns:
            updates = [*state.traces[given].updates, *state.traces[produced].updates]
            same = [payload_of(update) for update in updates if update[:2] == (key, val)]
            _agree([payloads[fresh.index((key, val))], *same])
        inputs, outputs = (
            [update for update in state.traces[trace].updates if update[:2] == (key, val)]
            for trace in (given, produced)
        )
        if pending >= 0:
            later = _next_change(state, inputs + outputs)
            state.append(pending, [rounds, *slots[4:]], [(round_, key, val) for round_ in later])
        rows.append((key, val, signed((_total(state, inputs) > 0) - _total(state, outputs))))
    rows = [row for row in rows if row[2]]
    state.write(target, [to_key, to_val, to_diff], rows)
    positions = [fresh.index(row[:2]) for row in rows] if columns else []
    state.copy(source, target, columns, positions)
    state.store(produced, rows, [payloads[at] for at in positions] if columns else [()] * len(rows))


def sums(
    state: State,
    source: int,
    target: int,
    trace: int,
    lanes: int,
    key: int,
    to_key: int,
    to_diff: int,
    keys: int,
    *slots: int,
) -> None:
    """For each row the sums of its key before this visit, retracted, and after it; sums that begin with 0 are none."""
    diffs, to, groups = slots[:lanes], slots[lanes : 2 * lanes], slots[2 * lanes :]
    rows: list[Row] = []
    positions: list[int] = []
    own_keys = state.payload(source, groups)
    for at, (group, *changes) in enumerate(state.rows(source, [key, *diffs])):
        if len(rows) + 2 > state.room:
            raise Stop(opcodes.FULL)
        same = [payload_of(update)[:keys] for update in state.traces[trace].updates if update[0] == group]
        _agree([own_keys[at], *same])
        parts = [update[4] for update in state.traces[trace].updates if update[0] == group and update[2] <= state.now]
        new = [signed(sum(part[lane] for part in parts)) for lane in range(lanes)]
        old = [signed(total - change) for total, change in zip(new, changes, strict=True)]
        rows += [(group, diff, *totals) for diff, totals in ((-1, old), (1, new)) if totals[0]]
        positions += [at] * (len(rows) - len(positions))
    state.write(target, [to_key, to_diff, *to], rows)
    state.copy(source, target, groups, positions)


def top(
    state: State,
    target: int,
    given: int,
    produced: int,
    to_key: int,
    to_val: int,
    to_diff: int,
    limit: int,
    greatest: int,
    once: int,
    loops: int,
    *groups: int,
) -> None:
    """The first values of each group, minus those before: as stored, or outside loops as computed again."""
    _, _, pending, rounds, *slots = groups
    rows = []
    for (key,) in _groups(state, 1, *groups):
        inputs, outputs = (
            [update for update in state.traces[trace].updates if update[0] == key] for trace in (given, produced)
        )
        new = _first(_totals(state, inputs), limit, greatest, once)
        if loops:
            old = _totals(state, outputs)
            later = _next_change(state, inputs + outputs)
            state.append(pending, [rounds, *slots[2:]], [(round_, key) for round_ in later])
        else:
            old = _first(_totals(state, inputs, opcodes.BEFORE), limit, greatest, once)
        if max(len(new), len(old)) > state.room:
            raise Stop(opcodes.FULL)
        changes = {val: signed(new.get(val, 0) - old.get(val, 0)) for val in sorted({*new, *old})}
        rows += [(key, val, change) for val, change in changes.items() if change]
    state.write(target, [to_key, to_val, to_diff], rows)
    state.store(produced, rows, [()] * len(rows))


def _totals(state: State, updates: Sequence[Update], mode: int = opcodes.SEEN) -> dict[int, int]:
    """The count of each value, if not zero."""
    values = {val for _, val, *_ in updates}
    totals = {val: _total(state, [update for update in updates if update[1] == val], mode) for val in values}
    return {val: total for val, total in totals.items() if total}


def _first(totals: dict[int, int], limit: int, greatest: int, once: int) -> dict[int, int]:
    """The first values of positive count, `limit` in all; with `once`, each counts once."""
    chosen: dict[int, int] = {}
    for val in sorted(totals, reverse=bool(greatest)):
        places = limit - sum(chosen.values())
        if totals[val] > 0 and places > 0:
            chosen[val] = 1 if once else min(totals[val], places)
    return chosen


# Columns.


def unpack(
    state: State,
    count: int,
    from_: int,
    to: int,
    null: int,
    shift: int,
    width: int,
    kind: int,
    full: int,
    nullable: int,
) -> None:
    """Some bits: a flag that the value is valid, if it may be null, then the value; signed ones from their least."""
    values, size = [], width - nullable
    for (lane,) in state.rows(count, [from_]):
        bits = (lane - 2**63 if full else lane) % WORDS >> shift
        value = bits % 2**size - (2 ** (size - 1) if kind == opcodes.SIGNED else 0)
        is_null = nullable and not bits >> size & 1
        values.append((0, 1) if is_null else (signed(value), 0))
    state.write(count, [to, null] if nullable else [to], values)


def pack(state: State, count: int, to: int, full: int, columns: int, *operands: int) -> None:
    """The fields of all columns, one after the other, as one integer; of 64 bits, from the least."""
    fields = [operands[at : at + 5] for at in range(0, len(operands), 5)]
    lanes = []
    for row in state.rows(count, [slot for column in fields for slot in column[:2]]):
        lane = 0
        for value, is_null, (_, _, width, kind, nullable) in zip(row[::2], row[1::2], fields, strict=True):
            size = width - nullable
            bits = (value + (2 ** (size - 1) if kind == opcodes.SIGNED else 0)) % 2**size
            lane = lane << width | (0 if nullable and is_null else bits | nullable << size)
        lanes.append((signed(lane - 2**63) if full else lane,))
    state.write(count, [to], lanes)


def total(state: State, count: int, to: int, lanes: int, *slots: int) -> None:
    """The total of sums whose lane n has the bits from 32 * n on: lane n minus 2**32 times the next has one digit."""
    totals = []
    for row in state.rows(count, slots):
        number, carry = 0, 0
        for at, lane in enumerate(row):
            following = row[at + 1] << 32 if at + 1 < lanes else 0
            digit = signed(lane - following + carry)
            carry = digit >> 32
            number += (digit % 2**32 if at + 1 < lanes else digit) << 32 * at
        if signed(number) != number:
            raise Stop(opcodes.RAISED)
        totals.append((number,))
    state.write(count, [to], totals)


def hash_(state: State, count: int, to: int, mask: int, columns: int, *operands: int) -> None:
    """The hash of columns; here of integers with a sign, texts and wide decimals."""
    from tests.kernels import naive

    groups = [operands[at : at + 4] for at in range(0, len(operands), 4)]
    hashes = [0] * state.counts[count]
    for value, null, kind, _ in groups:
        rows = state.rows(count, [value, null])
        valid = [int(not is_null) for _, is_null in rows]
        if kind == opcodes.TEXT:
            texts = [b"" if is_null else text_of(text) for text, is_null in rows]
            hashes = naive.hash_bytes(texts, valid, hashes)
        else:
            numbers = [number for number, _ in rows]
            hashes = naive.hash_integers(numbers, valid, hashes)
            if kind == opcodes.WIDE:
                hashes = naive.hash_integers([number >> 63 for number in numbers], valid, hashes)
    state.write(count, [to], [(signed(hashed & mask),) for hashed in hashes])


Number = int | None


def _strict(function: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    """A function of two numbers that is null if one of them is."""
    return lambda a, b: None if a is None or b is None else int(function(a, b))


def _and(a: Number, b: Number) -> Number:
    return 0 if a == 0 or b == 0 else None if a is None or b is None else 1


def _or(a: Number, b: Number) -> Number:
    return 1 if a or b else None if a is None or b is None else 0


EXPRESSIONS: dict[int, Callable[[Number, Number], Number]] = {
    opcodes.ADD: _strict(lambda a, b: a + b),
    opcodes.SUBTRACT: _strict(lambda a, b: a - b),
    opcodes.MULTIPLY: _strict(lambda a, b: a * b),
    opcodes.EQUAL: _strict(lambda a, b: a == b),
    opcodes.LESS: _strict(lambda a, b: a < b),
    opcodes.LESS_EQUAL: _strict(lambda a, b: a <= b),
    opcodes.AND: _and,
    opcodes.OR: _or,
    opcodes.NOT: _strict(lambda a, _: not a),
    opcodes.IS_NULL: lambda a, _: int(a is None),
    opcodes.LEAST: _strict(min),
    opcodes.GREATEST_OF: _strict(max),
    opcodes.BIT_LENGTH: _strict(lambda a, _: max(a, 0).bit_length()),
    opcodes.YEAR: _strict(lambda a, _: (datetime.date(1970, 1, 1) + datetime.timedelta(a)).year),
    opcodes.TEXT_EQUAL: _strict(lambda a, b: text_of(a) == text_of(b)),
    opcodes.STARTS_WITH: _strict(lambda a, b: text_of(a).startswith(text_of(b))),
    opcodes.ENDS_WITH: _strict(lambda a, b: text_of(a).endswith(text_of(b))),
    opcodes.CONTAINS: _strict(lambda a, b: text_of(b) in text_of(a)),
}
"""The functions of two columns, row by row."""

ARITHMETIC = (opcodes.ADD, opcodes.SUBTRACT, opcodes.MULTIPLY)
"""The functions whose results have limits."""


def _evaluated(opcode: int) -> Callable[..., None]:
    def evaluate(
        state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, least: int, most: int
    ) -> None:
        results = []
        for left, left_null, right, right_null in state.rows(count, [a, a_null, b, b_null]):
            result = EXPRESSIONS[opcode](None if left_null else left, None if right_null else right)
            if opcode in ARITHMETIC and result is not None and not least <= result <= most:
                raise Stop(opcodes.RAISED)
            results.append(result)
        _write_numbers(state, count, to, null, results)

    return evaluate


def constant(state: State, count: int, to: int, null: int, *operands: int) -> None:
    """One number in all rows."""
    _write_numbers(state, count, to, null, [operands[4]] * state.counts[count])


def shift(
    state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, bits: int, _: int
) -> None:
    """The bits from a place on, with the sign."""
    rows = state.rows(count, [a, a_null, b_null])
    numbers = [None if is_null or other_null else number >> bits for number, is_null, other_null in rows]
    _write_numbers(state, count, to, null, numbers)


def mean(
    state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, factor: int, _: int
) -> None:
    """A number below 2**48 times a factor, divided by another, rounded half away from zero."""
    results: list[Number] = []
    for number, number_null, divisor, divisor_null in state.rows(count, [a, a_null, b, b_null]):
        if number_null or divisor_null:
            results.append(None)
            continue
        if not divisor or abs(number) >= 2**48:
            raise Stop(opcodes.RAISED)
        quotient = (2 * factor * abs(number) + abs(divisor)) // (2 * abs(divisor))
        results.append(quotient if (number < 0) == (divisor < 0) else -quotient)
    _write_numbers(state, count, to, null, results)


def choose(
    state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, flag: int, flag_null: int
) -> None:
    """The first column where the flag is set and not null, the second elsewhere."""
    rows = state.rows(count, [flag, flag_null, a, a_null, b, b_null])
    pairs = [row[2:4] if row[0] and not row[1] else row[4:6] for row in rows]
    _write_numbers(state, count, to, null, [None if is_null else value for value, is_null in pairs])


def _write_numbers(state: State, count: int, to: int, null: int, numbers: Sequence[Number]) -> None:
    """A column; the value of a null is 0. Without a slot for nulls, there are none."""
    slots = [to, null] if null else [to]
    state.write(count, slots, [(number or 0, int(number is None)) for number in numbers])


FUNCTIONS: dict[int, Callable[..., None]] = {
    opcodes.CLEAR: clear,
    opcodes.NEGATE: negate,
    opcodes.FILTER: filter_,
    opcodes.ARRANGE: arrange,
    opcodes.PROBE: probe,
    opcodes.TAKE: take,
    opcodes.DISTINCT: distinct,
    opcodes.SUMS: sums,
    opcodes.TOP: top,
    opcodes.ENTER: enter,
    opcodes.ENTER_AT: enter_at,
    opcodes.FEEDBACK: feedback,
    opcodes.APPEND: append,
    opcodes.CONSOLIDATE: consolidate,
    opcodes.EXCHANGE: exchange,
    opcodes.CALL: call,
    opcodes.UNPACK: unpack,
    opcodes.PACK: pack,
    opcodes.LOAD: load,
    opcodes.HASH: hash_,
    opcodes.TOTAL: total,
    opcodes.EXTEND: extend,
    opcodes.CONSTANT: constant,
    opcodes.SHIFT: shift,
    opcodes.MEAN: mean,
    opcodes.CHOOSE: choose,
    **{opcode: _evaluated(opcode) for opcode in EXPRESSIONS},
}
"""What each opcode does, but for `LOOP`, `REPEAT` and `AGREE`, which say where to go on."""
