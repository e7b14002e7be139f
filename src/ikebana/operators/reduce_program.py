"""Reductions in programs: distinct rows, functions of sums, and functions that are called.

All read the fresh rows of their input and its trace, and write the trace of the output. Rows with payload only outside
loops; functions only there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ikebana.encoding import Schema
from ikebana.encoding.lanes import constant
from ikebana.errors import DataflowError
from ikebana.kernels import opcodes
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.probe_program import probed
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.reducers import Groups, Reducer, SumsReducer
from ikebana.operators.registers import CallResult, IndexRegister, Rows
from ikebana.trace import Updates
from ikebana.trace.cells import payload_fields
from ikebana.trace.updates import sort_updates


def lower_distinct(program: ProgramBuilder, source: IndexRegister, index: IndexRegister) -> bool:
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


def lower_sums(program: ProgramBuilder, source: IndexRegister, index: IndexRegister, reducer: SumsReducer) -> bool:
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


def lower_called(program: ProgramBuilder, source: IndexRegister, index: IndexRegister, reducer: Reducer) -> bool:
    """Write a reducer without instructions: it is called, where the program stops, with the groups that change.

    It is given them as they were before and as they are now. Equal rows of the two results cancel when they are
    arranged.
    """
    if not (reducer.is_called and program.calls_reducers) or source.views or program.in_loop:
        return False
    schema, fields = source.schema, (*index.schema.key.fields, *index.schema.val.fields)
    keys = _changed_keys(program, source)
    lane = program.packed(keys, schema.key)
    if lane is None:
        return False
    names, lanes = tuple((name, name) for name in schema.names), len(schema.diffs)
    before, after = [
        probed(program, keys, lane, schema.key, source, given=(), met=names, lanes=lanes, mode=mode, adds_up=True)
        for mode in (opcodes.BEFORE, opcodes.SEEN)
    ]
    if before is None or after is None:
        return False
    program.reads_groups = True
    reduced = program.called_with((before, after), fields, 1, partial(_reduced, reducer, schema, fields))
    return program.stored(reduced, index)


def _changed_keys(program: ProgramBuilder, source: IndexRegister) -> Rows:
    """The keys of the fresh rows, each once."""
    fresh, fields = source.fresh, source.schema.key.fields
    ones = program.evaluated(opcodes.CONSTANT, fresh.count, least=1).value
    columns = {field.name: fresh.columns[field.name] for field in fields}
    keys = program.consolidated(Rows(fresh.count, fields, columns, (ones,)))
    return replace(keys, diffs=(program.evaluated(opcodes.CONSTANT, keys.count, least=1).value,))


def _reduced(reducer: Reducer, schema: Schema, fields: Fields, before: Changes, after: Changes) -> CallResult:
    """How the output of a reducer changes, given rows of groups with their accumulated diffs, before and now."""
    old, new = _groups(before, schema), _groups(after, schema)
    group = np.concatenate([old.group, new.group + 1 + old.group[-1:].sum()])
    both = Groups(group, Updates.concat([old.values, new.values]), np.concatenate([old.sums, new.sums], axis=1))
    result = reducer.apply(both)
    taken = both.values.take(result.rows)
    keys = schema.key.decode(taken.key, taken.payload[: schema.key.payload_columns])
    diffs = np.where(result.rows < len(old.group), -result.diffs, result.diffs)[None]
    tix = constant(0, len(result.rows), np.int32)
    return CallResult(Changes(after.times, tix, diffs, fields, (*keys, *result.columns)))


def _groups(changes: Changes, schema: Schema) -> Groups:
    """Rows with their accumulated diffs, by group."""
    ordered = sort_updates(changes.keyed(schema))
    if len(ordered.collided):
        raise DataflowError("keys with equal hashes are told apart by visits only")
    rows = ordered.updates
    is_first = np.zeros(len(rows), bool)
    np.not_equal(rows.key[1:], rows.key[:-1], out=is_first[1:])
    return Groups(np.cumsum(is_first), rows, rows.diffs)
