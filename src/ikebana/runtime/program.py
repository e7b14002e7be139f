"""Running programs: small sweeps of a dataflow in one call of the compiled interpreter, or several on several workers.

A small sweep spends nearly all its time in calls around the work. A dataflow whose operators can all be written as
instructions (`ikebana.operators.program`) runs its small sweeps as one program instead. For everything else, and
whenever a program does not succeed, operators are visited as usual: both work on the same traces, and there is no other
state between sweeps.

On several workers the programs of a dataflow run in step. Where a program stops, its worker sends every worker exactly
one message, and waits for one from each.

Contract: either an epoch is complete, on all workers, with the same updates in all traces as visits would have written;
or nothing has changed.

Cost: some tens of microseconds in Python for each epoch, and the same again for each exchange.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass

import numpy as np

from ikebana.encoding import columns
from ikebana.encoding.lanes import Lane, constant
from ikebana.errors import DataflowError
from ikebana.kernels import opcodes, run_program, shard_rows
from ikebana.operators.changes import Changes
from ikebana.operators.program import Index, Lanes, ProgramBuilder, Rows
from ikebana.operators.span import NEVER
from ikebana.operators.streams import from_epoch
from ikebana.time import Antichain
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.handle import Trace
from ikebana.trace.updates import NO_KEYS, Sorted, Updates

MODES = ("small", "never", "always", "both")


def chosen_mode(name: str) -> str:
    """Check the mode that the environment chooses.

    >>> chosen_mode("never")
    'never'
    """
    if name not in MODES:
        raise DataflowError(
            f"IKEBANA_FUSE is {name!r}", hint=f"set this environment variable to one of {', '.join(MODES)}, or to none"
        )
    return name


FUSE = chosen_mode(os.environ.get("IKEBANA_FUSE") or "small")
"""Which sweeps are done by programs: `small` ones, `never` any, `always` if a program can do it, or `both`: each sweep
is done by a program, undone, done by visits, and the results are compared."""

ROOM = 1 << 13
"""The number of rows that fit into a register."""

MOST_INPUT_ROWS = 1 << 8
"""Sweeps with more rows of input than this are done by visits: they would write more than memtables have room for."""

MOST_FREE_WORKSPACES = 4
"""The number of workspaces that a worker keeps for later."""

MOST_BATCHES = 256
"""The number of batches that a program can read of a trace: a spine has fewer."""


class Workspace:
    """The memory that a program uses while it runs."""

    def __init__(self) -> None:
        self.arena = np.zeros((0, ROOM), np.int64)
        self.counts = np.zeros(0, np.int64)
        self.scratch = np.empty((6, ROOM), np.int64)
        self.cursors = np.empty((2, MOST_BATCHES), np.int64)
        self.state = np.zeros(opcodes.STATE_CELLS, np.int64)

    def prepare(self, slots: int, counts: int, *, commits: bool) -> None:
        """Make room for a program, at its start, with empty registers."""
        if slots > len(self.arena):
            self.arena = np.zeros((slots, ROOM), np.int64)
        if counts > len(self.counts):
            self.counts = np.zeros(counts, np.int64)
        self.counts[:counts] = 0
        self.state[:] = 0
        self.state[opcodes.COMMITS] = commits


class Workspaces:
    """The workspaces of a worker: a program that waits for other workers keeps its own until it is done."""

    def __init__(self) -> None:
        self._free: list[Workspace] = []

    def take(self) -> Workspace:
        """A workspace that no program uses."""
        return self._free.pop() if self._free else Workspace()

    def release(self, workspace: Workspace) -> None:
        """Give a workspace back."""
        if len(self._free) < MOST_FREE_WORKSPACES:
            self._free.append(workspace)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a program would write to each trace at an epoch."""

    epoch: int
    batches: list[tuple[Trace, StoredBatch | None]]


FAILED, READY, LACKS_ROOM, NO_ROWS = None, True, False, ()

Message = Lane | int | tuple[()] | None
"""What workers tell each other where a program stops: rows, a round, that there are none, that it has `FAILED`, is
`READY`, or that a memtable `LACKS_ROOM`, which can be made."""

AllToAll = Callable[[list[Message]], Generator[object, None, list[Message]]]
"""Send each worker its message; return those that all workers have sent here."""


class Program:
    """The program of a dataflow."""

    def __init__(self, builder: ProgramBuilder, result: Index, trace: Trace, workspaces: Workspaces) -> None:
        self._code = np.array(builder.code, np.int64)
        self._slots, self._counts, self._workers = builder.slots, builder.counts, builder.workers
        self._inputs, self._traces, self._written = builder.inputs, builder.traces, builder.written
        self._result, self._trace, self._workspaces = result, trace, workspaces

    def run(self, lower: int, upper: int) -> int:
        """Complete the epochs from `lower` on, at most up to `upper`; return the epoch that was reached.

        For a single worker.
        """
        workspace = self._workspaces.take()
        reached = upper
        while (epoch := self.next_change()) < upper:
            if not self._compute(workspace, epoch):
                reached = max(lower, epoch)
                break
            self._publish(workspace, epoch)
        self._workspaces.release(workspace)
        return reached

    def run_with_peers(self, epoch: int, all_to_all: AllToAll) -> Generator[object, None, bool]:
        """Complete an epoch together with the programs of all other workers; return whether all of them could.

        A worker whose program fails says so in the next message. If the only reason is a memtable without room, all
        workers start again. The last message says that it is done: no program commits before all are.
        """
        workspace = self._workspaces.take()
        try:
            for trace in self._written:
                trace.keep_room()
            status = self._start(workspace, epoch, commits=False)
            while True:
                received = yield from all_to_all(self._messages(workspace, status))
                if any(message is FAILED for message in received):
                    self._undo(workspace, epoch)
                    return False
                if any(message is LACKS_ROOM for message in received):
                    self._undo(workspace, epoch)
                    if status == opcodes.SPILL:
                        self._full_trace(workspace).make_room()
                    status = self._start(workspace, epoch, commits=False)
                    continue
                if status == opcodes.DONE:
                    break
                has_room = self._receive(workspace, status, received)
                status = self._resume(workspace, epoch) if has_room else opcodes.FULL
            for trace in self._written:
                trace.commit_memtable()
            self._publish(workspace, epoch)
            return True
        finally:
            self._workspaces.release(workspace)

    def preview(self, lower: int, upper: int) -> Preview | None:
        """What the program would write at the next epoch with changes; None if it cannot do it. Nothing changes.

        For a single worker.
        """
        epoch, workspace = self.next_change(), self._workspaces.take()
        for trace in self._written:
            trace.spill()
        is_done = epoch < upper and self._compute(workspace, epoch)
        self._workspaces.release(workspace)
        return Preview(epoch, [(trace, trace.take_memtable()) for trace in self._written]) if is_done else None

    def next_change(self) -> int:
        """The next epoch at which an input has changes."""
        return min([source.next_change() for source, _ in self._inputs], default=NEVER)

    def can_load(self, epoch: int) -> bool:
        """Whether the changes at an epoch are few, and of a form that programs know."""
        return self._load(epoch) is not None

    def _compute(self, workspace: Workspace, epoch: int) -> bool:
        """Run the program on a single worker, if need be several times; return whether it succeeded."""
        while True:
            status = self._start(workspace, epoch, commits=True)
            if status == opcodes.DONE:
                return True
            if status != opcodes.SPILL or not self._full_trace(workspace).make_room():
                return False

    def _full_trace(self, workspace: Workspace) -> Trace:
        """The trace whose memtable has stopped the program."""
        return self._traces[workspace.counts[opcodes.LACKS_ROOM]]

    def _start(self, workspace: Workspace, epoch: int, *, commits: bool) -> int:
        inputs = self._load(epoch)
        if inputs is None:
            return opcodes.FULL
        workspace.prepare(self._slots, self._counts, commits=commits)
        for changes, register in inputs:
            _fill(workspace, changes, register)
        return self._resume(workspace, epoch)

    def _resume(self, workspace: Workspace, epoch: int) -> int:
        """Run the program from its state on. Traces may have changed since it stopped."""
        traces = np.array([trace.address() for trace in self._traces], np.int64)
        written = np.array([trace.address() for trace in self._written], np.int64)
        return run_program(
            self._code,
            traces,
            written,
            workspace.state,
            workspace.arena,
            workspace.counts,
            workspace.scratch,
            workspace.cursors,
            epoch,
        )

    def _undo(self, workspace: Workspace, epoch: int) -> None:
        """Restore what the program has written."""
        workspace.state[opcodes.PC] = -1
        self._resume(workspace, epoch)

    def _publish(self, workspace: Workspace, epoch: int) -> None:
        """Note that an epoch is complete: pass on what was written to the result, and forget the input."""
        for source, _ in self._inputs:
            source.loaded(epoch)
        frontier = from_epoch(epoch + 1, 1)
        self._trace.publish(self._fresh(workspace, epoch, frontier), frontier)
        for trace in self._written:
            trace.keep_small()

    # Messages.

    def _messages(self, workspace: Workspace, status: int) -> list[Message]:
        """What this worker tells each worker where its program has stopped."""
        if status == opcodes.EXCHANGES:
            return self._sent_rows(workspace)
        if status == opcodes.AGREES:
            return [int(workspace.state[opcodes.NEXT_ROUND])] * self._workers
        if status == opcodes.SPILL and self._full_trace(workspace).can_make_room():
            return [LACKS_ROOM] * self._workers
        return [READY if status == opcodes.DONE else FAILED] * self._workers

    def _sent_rows(self, workspace: Workspace) -> list[Message]:
        """The rows for each worker, slot by slot."""
        source, _, key, slots, _ = self._exchange(workspace)
        rows = int(workspace.counts[source])
        if not rows:
            return [NO_ROWS] * self._workers
        lanes = workspace.arena[slots, :rows]
        owner = shard_rows(workspace.arena[key, :rows], self._workers)
        return [lanes[:, owner == worker] for worker in range(self._workers)]

    def _receive(self, workspace: Workspace, status: int, received: list[Message]) -> bool:
        """Take what all workers have said, and move on to the next instruction; return whether there was room."""
        state, pc = workspace.state, int(workspace.state[opcodes.PC])
        if status == opcodes.AGREES:
            rounds = [round_ for round_ in received if isinstance(round_, int) and round_ >= 0]
            state[opcodes.ROUND_NOW] = min(rounds, default=0)
            state[opcodes.PC] = self._code[pc + 2] if rounds else pc + self._code[pc + 1]
            return True
        _, target, _, _, slots = self._exchange(workspace)
        parts = [part for part in received if isinstance(part, np.ndarray) and part.shape[1]]
        rows = sum(part.shape[1] for part in parts)
        if rows > ROOM:
            return False
        if rows:
            workspace.arena[slots, :rows] = np.concatenate(parts, axis=1)
        workspace.counts[target] = rows
        state[opcodes.PC] = pc + self._code[pc + 1]
        return True

    def _exchange(self, workspace: Workspace) -> tuple[int, int, int, Lane, Lane]:
        """The operands of the exchange at which the program has stopped."""
        pc = int(workspace.state[opcodes.PC])
        source, target, key, width = self._code[pc + 2 : pc + 6].tolist()
        return source, target, key, self._code[pc + 6 : pc + 6 + width], self._code[pc + 6 + width : pc + 6 + 2 * width]

    def _load(self, epoch: int) -> list[tuple[Changes | StoredBatch, Rows | Lanes]] | None:
        """The changes of all inputs; None if they are too many, or of a form that programs do not know."""
        inputs: list[tuple[Changes | StoredBatch, Rows | Lanes]] = []
        total = 0
        for source, register in self._inputs:
            parts = source.load(epoch)
            if parts is None or (isinstance(register, Lanes) and len(parts) > 1):
                return None
            for part in parts:
                total += len(part)
                inputs.append((part, register))
        return inputs if total <= (MOST_INPUT_ROWS if FUSE == "small" else ROOM) else None

    def _fresh(self, workspace: Workspace, epoch: int, upper: Antichain) -> StoredBatch | None:
        """What was written to the result, as a batch, if anybody wants to know."""
        lanes, arena = self._result.fresh, workspace.arena
        rows = int(workspace.counts[lanes.count])
        if not rows or not self._trace.has_queues:
            return None
        diffs = arena[list(lanes.diffs), :rows]
        times, tix = np.full((1, 1), epoch, np.int64), constant(0, rows, np.int32)
        key, val = arena[lanes.key, :rows].copy(), arena[lanes.val, :rows].copy()
        updates = Updates(times, tix, diffs, self._result.schema, key, val, ())
        description = Description(Antichain.of((epoch,)), upper, Antichain.of((epoch,)))
        return StoredBatch.of(Sorted(updates, constant(0, rows), NO_KEYS), description)


def _fill(workspace: Workspace, changes: Changes | StoredBatch, register: Rows | Lanes) -> None:
    """Append input to its register."""
    arena, start = workspace.arena, int(workspace.counts[register.count])
    end = workspace.counts[register.count] = start + len(changes)
    if isinstance(changes, StoredBatch):
        assert isinstance(register, Lanes)
        updates = changes.updates
        arena[register.key, start:end], arena[register.val, start:end] = updates.key, updates.val
        diffs: Lane = updates.diffs
    else:
        assert isinstance(register, Rows)
        for field, array in zip(changes.fields, changes.columns, strict=True):
            column = register.columns[field.name]
            values = columns.register_values(array, field)
            if column.null:
                valid = columns.valid_flags(array)
                arena[column.null, start:end] = 1 - valid
                values = values * valid
            arena[column.value, start:end] = values
        diffs = changes.diffs
    for slot, lane in zip(register.diffs, diffs, strict=True):
        arena[slot, start:end] = lane


def check_preview(preview: Preview) -> None:
    """Raise unless visits have written to each trace what the program would have written."""
    epoch = preview.epoch
    for trace, batch in preview.batches:
        written = [_at_epoch(stored.updates, epoch) for stored in trace.spine.batches()]
        actual = _counted(updates for updates in written if len(updates))
        expected = _counted([batch.updates] if batch is not None else [])
        assert actual == expected, f"a program and visits differ at epoch {epoch} in {trace.name!r}"


def _at_epoch(updates: Updates, epoch: int) -> Updates:
    return updates.at_times(updates.times[:, 0] == epoch)


def _counted(parts: Iterable[Updates]) -> dict[object, list[int]]:
    """The diffs of each row and time."""
    totals: dict[object, list[int]] = {}
    for updates in parts:
        for data, time, diff in updates.triples():
            diffs = [diff] if isinstance(diff, int) else list(diff)
            totals[data, time] = [a + b for a, b in zip(totals.get((data, time), [0] * len(diffs)), diffs, strict=True)]
    return {row: diffs for row, diffs in totals.items() if any(diffs)}
