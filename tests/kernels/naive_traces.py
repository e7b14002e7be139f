"""The instructions on traces, in ordinary Python: arranging, probing and loading payload."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ikebana.kernels import opcodes
from tests.kernels.naive_columns import write_numbers
from tests.kernels.naive_state import Payload, Row, State, Stop, Update, payload_of, reference_to
from tests.kernels.naive_streams import added_up
from tests.kernels.words import signed


def check_agreement(payloads: Iterable[Payload]) -> None:
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
        check_agreement(payloads[at] for at in same)
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
        check_agreement([own_key, *(payload_of(update)[:keys] for update in updates if update[0] == wanted)])
        met = [
            (*update[:5], place)
            for place, update in enumerate(updates)
            if update[0] == wanted and is_seen(state, update, mode)
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
            check_agreement(payload_of(updates[place])[keys:] for other, place, *_ in rows if other == value)
    sums = added_up([(value, *diffs) for value, _, *diffs in rows], 1)
    return [(value, places[value], *diffs) for value, *diffs in sums]


def load(state: State, count: int, trace: int, column: int, references: int, to: int, null: int) -> None:
    """A payload column of the updates that are referred to; the addresses of texts are not those of the interpreter."""
    updates = state.traces[trace].updates
    cells = [payload_of(updates[place])[column] for (place,) in state.rows(count, [references])]
    numbers = [reference_to(cell) if isinstance(cell, bytes) else cell for cell in cells]
    write_numbers(state, count, to, null, numbers)


def is_seen(state: State, update: Update, mode: int) -> bool:
    """Whether an update belongs to this visit or an earlier one; with `BEFORE`, to an earlier one."""
    time, present = (state.epoch(update), update[3]), (state.now, state.round)
    return time < present if mode == opcodes.BEFORE else time <= present


def _product(a: Row, b: Row, lanes: int) -> Row:
    """The product of diffs; a single lane counts for all."""
    return tuple(signed(x * y) for x, y in zip(_repeated(a, lanes), _repeated(b, lanes), strict=True))


def _repeated(diffs: Row, lanes: int) -> Row:
    return diffs if len(diffs) > 1 else diffs * lanes
