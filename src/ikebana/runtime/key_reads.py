"""Look-ups by key in the trace of a dataflow, as a program: the rows of a key, without making batches or sorting.

To all other readers the memtable of a trace is a batch, which has to be made again after every change; and to gather
rows from ten batches takes dozens of calls. A program (`ikebana.kernels.program`) reads the memtable and all batches by
address, in one call: it joins a register of keys with the trace.

Contract: the same rows as `Handle.lookup`, at the last complete epoch; or None where a program cannot say: if hashes
collide, or if there are more rows than registers have room for. Then the caller reads the trace in the usual way.

Cost: some tens of microseconds, and a few more for each column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema, slots
from ikebana.encoding.lanes import Lane, constant
from ikebana.kernels import opcodes
from ikebana.operators.probe_program import matched, probed
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.registers import IndexRegister, Lanes, Rows
from ikebana.runtime.messages import Keys
from ikebana.runtime.workspaces import Filled, Workspace, Workspaces
from ikebana.trace.cells import payload_fields
from ikebana.trace.handle import Trace
from ikebana.trace.updates import Updates

ROOM = 1 << 10
"""The number of rows that a look-up may return."""

MOST_KEYS = 256
"""The number of lanes that are looked up by a program."""

NOTHING_WRITTEN, ONE_DIFF = np.empty(0, np.int64), np.ones((1, 1), np.int64)

NO_LANES = Lanes(0, 0, 0, (), {})
"""The fresh rows of an arrangement, of which look-ups have none."""

Restore = Callable[[Lane, Lane | None], pa.Array]


class KeyReads:
    """Look-ups of single keys in a trace."""

    def __init__(self, trace: Trace, workspaces: Workspaces) -> None:
        schema, builder = trace.schema, ProgramBuilder(workers=1)
        keys = builder.rows(schema.key.fields, 1)
        number, lane = builder.trace(trace), builder.packed(keys, schema.key)
        self._program: _ReadProgram | None = None
        if number is None or lane is None:
            return
        result = probed(
            builder,
            keys,
            lane,
            schema.key,
            IndexRegister(schema, NO_LANES, number),
            given=(),
            met=tuple((name, name) for name in schema.names),
            lanes=len(schema.diffs),
            mode=opcodes.SEEN,
            adds_up=True,
        )
        assert result is not None, "there are no views that could not be written"
        self._result, self._keys, self._fields = result, Filled.of(keys), schema.key.fields
        self._program = _ReadProgram(builder, trace, workspaces)
        self._schema = schema.table_schema
        self._restores: list[Restore] = [slots.restorer(field) for field in (*schema.key.fields, *schema.val.fields)]

    def find(self, keys: Keys, epoch: int) -> pa.Table | None:
        """The rows of a key at the last complete epoch, with their diffs; None if a program cannot find them."""
        program = self._program
        if program is None or any([len(array) != 1 for array in keys.values()]):
            return None
        columns = [keys[field.name] for field in self._fields]
        with program.workspace() as workspace:
            if workspace.append(self._keys, columns, ONE_DIFF) != opcodes.DONE or not program.run(workspace, epoch):
                return None
            return self._table(workspace)

    def _table(self, workspace: Workspace) -> pa.Table:
        arena, result, rows = workspace.arena, self._result, int(workspace.counts[self._result.count])
        arrays = []
        for field, restore in zip(result.fields, self._restores, strict=True):
            column = result.columns[field.name]
            nulls = arena[column.null, :rows] if column.null else None
            arrays.append(restore(arena[column.value, :rows].copy(), nulls))
        arrays += [slots.integer_array(arena[slot, :rows].copy()) for slot in result.diffs]
        return pa.Table.from_arrays(arrays, schema=self._schema)


class LaneReads:
    """Look-ups of key lanes in a trace, whatever columns are behind lanes that are hashes."""

    def __init__(self, trace: Trace, workspaces: Workspaces) -> None:
        schema, builder = trace.schema, ProgramBuilder(workers=1)
        self._program: _ReadProgram | None = None
        number, given = builder.trace(trace), Rows(builder.count(), (), {}, (builder.slot(),))
        if number is None:
            return
        self._schema, self._given, self._key = schema, given, builder.slot()
        index = IndexRegister(schema, NO_LANES, number)
        lanes, mode = len(schema.diffs), opcodes.SEEN
        result, stored = matched(builder, given, given, self._key, (), index, lanes=lanes, mode=mode, adds_up=True)
        fields = payload_fields(schema)
        self._lanes = stored.lanes
        self._result = Rows(result.count, fields, {field.name: stored[field.name] for field in fields}, result.diffs)
        self._program = _ReadProgram(builder, trace, workspaces)

    def rows_of(self, lanes: Lane, epoch: int) -> Updates | None:
        """The rows of some key lanes (ascending, each once) that are in the trace, at an epoch at which it is complete.

        None if a program cannot find them.
        """
        program, rows = self._program, len(lanes)
        if program is None or rows > MOST_KEYS:
            return None
        with program.workspace() as workspace:
            workspace.arena[self._key, :rows], workspace.arena[self._given.diffs[0], :rows] = lanes, 1
            workspace.counts[self._given.count] = rows
            return self._updates(workspace, epoch) if program.run(workspace, epoch) else None

    def _updates(self, workspace: Workspace, epoch: int) -> Updates:
        arena, result, rows = workspace.arena, self._result, int(workspace.counts[self._result.count])
        if not rows:
            return no_updates(self._schema)
        key, val = (arena[slot, :rows].copy() for slot in self._lanes)
        payload = tuple(workspace.canonical(result, field.name) for field in result.fields)
        times, tix = np.array([[epoch]], np.int64), constant(0, rows, np.int32)
        diffs = np.array([arena[slot, :rows] for slot in result.diffs])
        return Updates(times, tix, diffs, self._schema, key, val, payload)


class _ReadProgram:
    """A program that reads one trace, and writes none."""

    def __init__(self, builder: ProgramBuilder, trace: Trace, workspaces: Workspaces) -> None:
        self._code, self._trace, self._workspaces = np.array(builder.linked().code, np.int64), trace, workspaces
        self._slots, self._counts = builder.slots, builder.counts

    @contextmanager
    def workspace(self) -> Iterator[Workspace]:
        """A workspace with empty registers."""
        workspace = self._workspaces.take()
        workspace.prepare(self._slots, self._counts, ROOM, commits=False)
        try:
            yield workspace
        finally:
            self._workspaces.release(workspace)

    def run(self, workspace: Workspace, epoch: int) -> bool:
        """Run the program as of an epoch; return whether it succeeded."""
        traces = np.array([self._trace.address()], np.int64)
        if self._trace.has_collisions:
            return False
        return workspace.run(self._code, traces, NOTHING_WRITTEN, epoch) == opcodes.DONE


@lru_cache
def no_updates(schema: Schema) -> Updates:
    """No rows of a schema, outside loops."""
    return Updates.empty(schema, 1)
