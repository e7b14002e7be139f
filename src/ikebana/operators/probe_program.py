"""Probes in programs: the rows of a register joined with those of a trace that have the same key.

Joins and lookups are written with it. In a loop, what a probe meets of later rounds waits for them. Payload of the
trace's rows, and what its views need, is read right after the probe, while references to its rows are valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from ikebana.encoding.schema import Side
from ikebana.kernels import opcodes
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.registers import ColumnSlots, IndexRegister, Rows, StoredColumns

Names = tuple[tuple[str, str], ...]
"""Pairs of the name of a column in the result and its name in what is given."""


def probed(
    program: ProgramBuilder,
    source: Rows,
    key: int,
    side: Side,
    index: IndexRegister,
    *,
    given: Names,
    met: Names,
    lanes: int,
    mode: int,
    adds_up: bool,
) -> Rows | None:
    """The rows of the source with those of the trace that they meet, with some columns of both.

    `key` is the slot of the source's key lanes, and `side` has the columns of the key as the source names them.
    """
    kept = source.select({origin for _, origin in given})
    hashed = () if index.schema.key.exact else side.fields
    rows, stored = matched(program, source, kept, key, hashed, index, lanes=lanes, mode=mode, adds_up=adds_up)
    return _joined(program, rows, stored, index, given, met)


def matched(
    program: ProgramBuilder,
    source: Rows,
    kept: Rows,
    key: int,
    hashed: Sequence[pa.Field],
    index: IndexRegister,
    *,
    lanes: int,
    mode: int,
    adds_up: bool,
) -> tuple[Rows, StoredColumns]:
    """Pairs of a row of the source and one of the trace: the columns `kept` of the former, and all of the latter.

    `hashed` are the columns of the source behind a key lane that is a hash, which must be equal to those of the trace.
    """
    now, later = program.copied(kept), program.copied(kept)
    pending, rounds = program.pending()
    now_key, later_key, now_val, later_val = program.some_slots(4)
    diffs, later_diffs = program.some_slots(lanes), program.some_slots(lanes)
    references = program.slot() if index.schema.hashed else 0
    copies = [(key, now_key, later_key), *_copies(kept.columns, now.columns, later.columns)]
    program.emit(opcodes.CLEAR, now.count)
    if pending >= 0:
        moved = [*((c, b) for _, b, c in copies), (later_val, now_val), *zip(later_diffs, diffs, strict=True)]
        pairs = [slot for pair in moved for slot in pair]
        program.emit(opcodes.TAKE, pending, now.count, rounds, len(moved), *pairs)
    operands = [source.count, now.count, index.trace, mode, int(adds_up), key, now_val, pending, later_val, rounds]
    operands += [len(source.diffs), len(index.schema.diffs), lanes, len(copies), references, len(hashed)]
    slots = [slot for copy in copies for slot in copy]
    groups = program.groups(hashed, source.columns, source.columns)
    program.emit(opcodes.PROBE, *operands, *source.diffs, *diffs, *later_diffs, *slots, *groups)
    stored = StoredColumns(program, index.schema, now.count, (now_key, now_val), {}, index.trace, references)
    return replace(now, diffs=diffs), stored


def _copies(
    source: Mapping[str, ColumnSlots], now: Mapping[str, ColumnSlots], later: Mapping[str, ColumnSlots]
) -> Iterable[tuple[int, int, int]]:
    """The slots of all columns in the source, in the result, and among the rows that wait."""
    for name, column in source.items():
        yield column.value, now[name].value, later[name].value
        if column.null:
            yield column.null, now[name].null, later[name].null


def _joined(
    program: ProgramBuilder, rows: Rows, stored: StoredColumns, index: IndexRegister, given: Names, met: Names
) -> Rows | None:
    """The joined rows as they are seen through the views of the trace, with the columns of the result.

    The views see the columns of the source too, under names that no stored column has.
    """
    copied = {f"given {name}": rows.columns[origin] for name, origin in given}
    fields = {field.name: field for field in rows.fields}
    copied_fields = [fields[origin].with_name(f"given {name}") for name, origin in given]
    names = {origin for _, origin in met}
    wanted = index.stored_names(names)
    stored_fields = [field for field in (*index.schema.key.fields, *index.schema.val.fields) if field.name in wanted]
    columns = {field.name: stored[field.name] for field in stored_fields}
    seen: Rows | None = Rows(rows.count, (*copied_fields, *stored_fields), {**copied, **columns}, rows.diffs)
    assert seen is not None
    seen = index.shown(program, seen, {*copied, *names})
    if seen is None:
        return None
    shown = {field.name: field for field in seen.fields}
    origins = {**{name: f"given {name}" for name, _ in given}, **dict(met)}
    return Rows(
        seen.count,
        tuple(shown[origin].with_name(name) for name, origin in origins.items()),
        {name: seen.columns[origin] for name, origin in origins.items()},
        seen.diffs,
    )
