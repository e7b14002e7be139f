"""Look-ups by key in the trace of a dataflow, as a program: the rows of a key, without making batches or sorting.

To all other readers the memtable of a trace is a batch, which has to be made again after every change; and to gather
rows from ten batches takes dozens of calls. A program (`ikebana.kernels.program`) reads the memtable and all batches by
address, in one call: it joins a register of keys with the trace.

Contract: the same rows as `Handle.lookup`, at the last complete epoch. `find` returns None where a program cannot say:
if hashes collide, if there are more rows than registers have room for, or if keys are given more than once; then the
caller reads the trace in the usual way.

Cost: some tens of microseconds, and a few more for each column.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ikebana.encoding import slots
from ikebana.encoding.lanes import Lane
from ikebana.kernels import opcodes, run_program
from ikebana.operators.probe_program import probed
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.registers import Index, Lanes, Rows
from ikebana.runtime.messages import Keys
from ikebana.runtime.workspaces import Filled, Workspace, Workspaces
from ikebana.trace.handle import Trace

ROOM = 1 << 10
"""The number of rows that a look-up may return."""

NOTHING_WRITTEN = np.empty(0, np.int64)

Restore = Callable[[Lane, Lane | None], pa.Array]


class KeyReads:
    """Look-ups of single keys in a trace."""

    def __init__(self, trace: Trace, workspaces: Workspaces) -> None:
        schema, self._trace, self._workspaces = trace.schema, trace, workspaces
        builder = ProgramBuilder(workers=1)
        keys = builder.rows(schema.key.fields, 1)
        number, lane = builder.trace(trace), builder.packed(keys, schema.key)
        self._found: Rows | None = None
        if number is None or lane is None:
            return
        nothing = Lanes(0, 0, 0, (), {})
        self._found = probed(
            builder,
            keys,
            lane,
            schema.key,
            Index(schema, nothing, number),
            given=(),
            met=tuple((name, name) for name in schema.names),
            lanes=len(schema.diffs),
            mode=opcodes.SEEN,
            adds_up=True,
        )
        self._code = np.array(builder.code, np.int64)
        self._slots, self._counts, self._keys = builder.slots, builder.counts, Filled.of(keys)
        fields = (*schema.key.fields, *schema.val.fields)
        self._schema = pa.schema([*((f.name, f.type) for f in fields), *((name, pa.int64()) for name in schema.diffs)])
        self._restores: list[Restore] = [slots.restorer(field) for field in fields]

    def find(self, keys: Keys, epoch: int) -> pa.Table | None:
        """The rows of a key at the last complete epoch, with their diffs; None if a program cannot find them."""
        if self._found is None or any([len(array) != 1 for array in keys.values()]):
            return None
        workspace = self._workspaces.take()
        try:
            return self._table(workspace) if self._run(workspace, keys, epoch) else None
        finally:
            self._workspaces.release(workspace)

    def _run(self, workspace: Workspace, keys: Keys, epoch: int) -> bool:
        """Fill the register of what was found; return whether that was possible."""
        workspace.prepare(self._slots, self._counts, ROOM, commits=False)
        columns = [keys[field.name] for field in self._trace.schema.key.fields]
        if workspace.append(self._keys, columns, ONE_DIFF) != opcodes.DONE:
            return False
        traces = np.array([self._trace.address()], np.int64)
        if self._trace.has_collisions:
            return False
        status = run_program(
            self._code,
            traces,
            NOTHING_WRITTEN,
            workspace.state,
            workspace.arena,
            workspace.counts,
            workspace.scratch,
            workspace.cursors,
            epoch,
        )
        return bool(status == opcodes.DONE)

    def _table(self, workspace: Workspace) -> pa.Table:
        assert self._found is not None
        arena, found, rows = workspace.arena, self._found, int(workspace.counts[self._found.count])
        arrays = []
        for field, restore in zip(found.fields, self._restores, strict=True):
            column = found.columns[field.name]
            nulls = arena[column.null, :rows] if column.null else None
            arrays.append(restore(arena[column.value, :rows].copy(), nulls))
        for slot in found.diffs:
            arrays.append(slots.integer_array(arena[slot, :rows].copy()))
        return pa.Table.from_arrays(arrays, schema=self._schema)


ONE_DIFF = np.ones((1, 1), np.int64)
