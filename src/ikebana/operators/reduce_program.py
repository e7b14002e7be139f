"""Reductions in programs: distinct rows, and functions of sums.

Both read the fresh rows of their input and its trace, and write the trace of the output. Rows with payload only outside
loops; functions of sums only there.
"""

from __future__ import annotations

from ikebana.kernels import opcodes
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.reducers import SumsReducer
from ikebana.operators.registers import Index, Rows
from ikebana.trace.cells import payload_fields


def lower_distinct(program: ProgramBuilder, source: Index, index: Index) -> bool:
    """Write each row of positive count once."""
    fresh, out, payload = source.fresh, index.fresh, payload_fields(index.schema)
    if source.views or len(fresh.diffs) != 1 or (payload and program.in_loop):
        return False
    pending, rounds = program.pending()
    groups = [fresh.key, fresh.val, *program.some_slots(4)]  # in the source, in order, and among the pending
    operands = [out.count, source.trace, index.trace, out.key, out.val, *out.diffs, len(payload)]
    operands += [fresh.count, program.count(), pending, rounds, *groups]
    columns = program.groups(payload, fresh.columns, out.columns)
    program.emit(opcodes.DISTINCT, *operands, *columns)
    return True


def lower_sums(program: ProgramBuilder, source: Index, index: Index, reducer: SumsReducer) -> bool:
    """Write a function of the sums before and after the visit; equal ones cancel when they are arranged."""
    if source.views or program.in_loop or source.schema.val.fields:
        return False
    fresh, key = source.fresh, source.schema.key
    rows = program.rows(key.fields, 1)
    lane, sums = program.slot(), program.some_slots(len(fresh.diffs))
    hashed = () if key.exact else key.fields
    columns = program.groups(hashed, fresh.columns, rows.columns)
    operands = [fresh.count, rows.count, source.trace, len(sums), fresh.key, lane, *rows.diffs, len(hashed)]
    program.emit(opcodes.SUMS, *operands, *fresh.diffs, *sums, *columns)
    outputs = reducer.lower(program, rows.count, sums)
    if outputs is None:
        return False
    fields = index.schema.val.fields
    given = (
        rows.columns
        if hashed
        else {field.name: program.unpacked(rows.count, lane, key, field.name) for field in key.fields}
    )
    computed = {field.name: column for field, column in zip(fields, outputs, strict=True)}
    return program.stored(Rows(rows.count, (*key.fields, *fields), {**given, **computed}, rows.diffs), index)
