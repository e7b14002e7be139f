"""Running programs: small sweeps of a dataflow in one call of the compiled interpreter, or several on several workers.

A small sweep spends nearly all its time in calls around the work. Operators that can be written as instructions
(`ikebana.operators.program`) therefore do their part of a small sweep as one program; the others, and those that read
from them, are visited afterwards. A program offers them its outputs. Whenever a program does not succeed, all operators
are visited as usual: both work on the same traces, and there is no other state between sweeps.

On several workers the programs of a dataflow run in step (`run_with_peers`). Where a program stops
(`ikebana.runtime.routes`), its worker sends every worker exactly one message, and waits for one from each. The programs
of several dataflows can also run together (`ikebana.runtime.joint_sweeps`), by the same steps: `begin` or `wake`,
`send`, `receive`, `proceed`, and `commit` or `undo`.

Contract: either an epoch is complete, on all workers, with the same updates in all traces as visits would have written;
or nothing has changed.

Cost: some tens of microseconds in Python for each epoch, and the same again for each exchange.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa

from ikebana.encoding import slots
from ikebana.encoding.lanes import Array, Lane, constant
from ikebana.errors import DataflowError
from ikebana.kernels import layout, opcodes
from ikebana.operators.changes import Changes
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.registers import Fresh, IndexRegister, Rows
from ikebana.operators.span import NEVER
from ikebana.operators.streams import Arranged, Stream, from_epoch
from ikebana.runtime.exchanged_rows import Outgoing, ReceivedRows, entries
from ikebana.runtime.expected_rows import ALWAYS_FEW, MOST_ROWS, RowsPerInput
from ikebana.runtime.previews import Preview
from ikebana.runtime.routes import ProgramStop, Route, new_route
from ikebana.runtime.workspaces import Filled, Workspace, Workspaces
from ikebana.time import Antichain
from ikebana.trace.batch import StoredBatch
from ikebana.trace.cells import payload_fields
from ikebana.trace.description import Description
from ikebana.trace.handle import Trace
from ikebana.trace.memtable import CHECKS_BOUNDS, Memtable
from ikebana.trace.updates import NO_KEYS, Updates

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

LEAST_ROOM, ROOM, MOST_CELLS = 1 << 8, 1 << 15, 1 << 22
"""The number of rows that fit into a register, at first and at most; and the cells of a large arena: programs of many
slots get less room, but always a quarter of the most."""

ROOM_GROWTH = 8
"""How many times as many rows fit into the registers of a program after it has failed because they were full."""

SPARE_ROOM, PEAK_KEPT = 2, 0.98
"""How many times the rows of the fullest register fit into all, and how much of that number is left after each sweep:
memory that is not needed is memory that is not in the processor's caches."""

MOST_RESTARTS = 8
"""How often the programs of several workers start again for lack of room, before they leave a sweep to visits."""

MOST_INPUT_ROWS = 1 << 12
"""With more rows than this for each input that changes, visits are faster: a program takes time for each row, visits
also for each operator that an input reaches."""

FAILED, READY, LACKS_ROOM, TOO_LARGE = None, True, False, "groups are too large"

Message = Lane | int | str | None
"""What workers tell each other where a program stops: rows (`ikebana.kernels.exchanges`), a round, that it has
`FAILED`, is `READY`, or that it `LACKS_ROOM`, which can be made, or cannot because groups are `TOO_LARGE`."""

AllToAll = Callable[[list[Message]], Generator[object, None, list[Message]]]
"""Send each worker its message; return those that all workers have sent here."""


Outputs = Sequence[tuple[Stream | Arranged, Rows | IndexRegister]]
"""Streams and arrangements that a program writes, with their registers."""


class Program:
    """The program of a dataflow.

    `result` is the arrangement that the dataflow maintains in `trace`, if the program writes it; `outputs` is what
    operators may read that are visited after the program.
    """

    def __init__(
        self,
        builder: ProgramBuilder,
        result: IndexRegister | None,
        trace: Trace,
        workspaces: Workspaces,
        outputs: Outputs = (),
    ) -> None:
        linked = builder.linked()
        self._code = np.array(linked.code, np.int64)
        self._slots, self._counts, self._workers = builder.slots, builder.counts, builder.workers
        self._inputs = [
            (source, Filled.of(register) if isinstance(register, Rows) else register)
            for source, register in builder.inputs
        ]
        self._traces, self._written = builder.traces, builder.written
        self._written_numbers = np.array([builder.traces.index(trace) for trace in builder.written], np.intp)
        self._hashed = [trace for trace in builder.traces if trace is not None and trace.schema.hashed]
        self._found = self._written_found = np.empty(0, np.int64)  # the addresses of the traces, and of those written
        self._found_as_of, self._has_collisions = -1, False  # `Memtable.outdated` then; in any trace
        self._results = [Filled.of(call.result) for call in builder.calls]
        self._calls, self._constants = builder.calls, builder.constants
        self._stopping = linked.stopping  # the position of the operator of each instruction that stops
        self._operators = sorted(set(linked.stopping.values()))
        self._plain_code, self._routes = linked.code, dict[tuple[bool, ...], Route]()
        self._route = Route(self._code, (), {})  # of the present sweep
        self._result, self._trace, self._workspaces = result, trace, workspaces
        self._outputs = outputs
        self._keeps_texts = builder.workers > 1 or bool(outputs)  # traces may change while registers are read
        self._used: Workspace | None = None  # by the outputs that the last epoch offers
        self._room, self._most_room = min(LEAST_ROOM, ROOM), min(ROOM, max(ROOM // 4, MOST_CELLS // self._slots))
        self._peak = 0.0  # of the rows in a register, observed like `_growth`
        self._input_counts = np.array([register.count for _, register in builder.inputs], np.intp)
        self._always_few = 0 if builder.reads_groups else ALWAYS_FEW
        self._growth = None if builder.has_loop else RowsPerInput(self._always_few)
        self._is_dropped = False
        self.rows_read = 0  # of the inputs
        self.coalesced = 0
        """How many epochs before the next one count as this one: their changes are among the inputs, at this one."""
        self._reads_groups = builder.reads_groups
        self.has_large_groups = False
        """Whether registers lacked room in a program that reads groups as a whole: visits should read them."""

    def drop(self) -> None:
        """Release the traces, at once: the program is part of cycles of references, so it stays for a while.

        It is not run any more.
        """
        self._is_dropped = True
        del self._trace
        for traces in (self._traces, self._written, self._hashed):
            traces.clear()

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

    def run_epoch(self, epoch: int) -> bool:
        """Complete an epoch, and offer its outputs until `release`; return whether it succeeded.

        For a single worker.
        """
        workspace = self._used = self.new_workspace()
        if not self._compute(workspace, epoch):
            self.release()
            return False
        self._publish(workspace, epoch)
        return True

    def release(self) -> None:
        """Nobody asks for the outputs of the last epoch any more."""
        workspace, self._used = self._used, None
        if workspace is not None:
            self._workspaces.keep(workspace)

    def run_with_peers(
        self, epoch: int, reached: Sequence[bool], all_to_all: AllToAll
    ) -> Generator[object, None, bool]:
        """Complete an epoch together with the programs of all other workers, and offer its outputs until `release`;
        return whether all of them could.

        A worker whose program fails says so in the next message. If the only reason is a lack of room, all workers
        start again. The last message says that it is done: no program commits before all are. `reached` says for each
        operator whether it can have rows on any worker: if not, nothing is exchanged.
        """
        self.follow(self.route(reached))
        workspace = self._used = self.new_workspace()
        is_done, restarts = False, 0
        try:
            status = self.begin(workspace, epoch)
            while True:
                received = yield from all_to_all(self._messages(workspace, status))
                if any(message is FAILED or isinstance(message, str) for message in received):
                    self.has_large_groups = any(isinstance(message, str) for message in received)
                    self.undo(workspace, epoch)
                    return False
                if any(message is LACKS_ROOM for message in received):
                    restarts += 1
                    self.undo(workspace, epoch)
                    if restarts > MOST_RESTARTS:
                        return False
                    self._make_room(status)
                    status = self._start(workspace, epoch, commits=False)
                    continue
                if status == opcodes.DONE:
                    break
                status = self._take(workspace, received, epoch)
            self.commit(workspace, epoch)
            is_done = True
            return True
        finally:
            if not is_done:
                self.release()

    def _messages(self, workspace: Workspace, status: int) -> list[Message]:
        """What this worker tells each worker where its program has stopped."""
        if status == opcodes.EXCHANGES:
            outgoing = self._workspaces.outgoing
            self.send(workspace, self._stop_of(workspace), outgoing, 0)
            return list(outgoing.take())
        if status == opcodes.AGREES:
            return [self.next_round(workspace)] * self._workers
        if self._can_have_room(status):
            return [LACKS_ROOM] * self._workers
        if self._lacks_room_for_groups(status):
            return [TOO_LARGE] * self._workers
        return [READY if status == opcodes.DONE else FAILED] * self._workers

    def _take(self, workspace: Workspace, received: list[Message], epoch: int) -> int:
        """Take what all workers have said, and go on to the next stop; return the status."""
        stop = self._stop_of(workspace)
        if not stop.exchanges:
            rounds = [round_ for round_ in received if isinstance(round_, int) and round_ >= 0]
            return self.proceed_in_round(workspace, epoch, stop, min(rounds, default=-1))
        for message in received:
            if isinstance(message, np.ndarray):
                for entry in entries(message):
                    if self.receive(workspace, entry) != opcodes.DONE:
                        return opcodes.FULL
        return self.proceed(workspace, epoch, stop.resume)

    def _stop_of(self, workspace: Workspace) -> ProgramStop:
        return self._route.stops[self._route.numbers[int(workspace.state[opcodes.PC])]]

    # The steps of a program that runs together with those of other workers.

    def route(self, reached: Sequence[bool]) -> Route:
        """Where the program stops, if changes can reach the given operators only, on any worker."""
        flags = tuple([reached[operator] for operator in self._operators])
        if flags not in self._routes:
            self._routes[flags] = new_route(self._plain_code, self._stopping, reached)
        return self._routes[flags]

    def follow(self, route: Route) -> None:
        """Take this route from now on."""
        self._route, self._code = route, route.code

    def new_workspace(self) -> Workspace:
        """A workspace for a program that waits, to be kept (`Workspaces.keep`) once it is done."""
        return self._workspaces.take_for(self._slots, self._room)

    def begin(self, workspace: Workspace, epoch: int) -> int:
        """Run the program up to its first stop; return the status."""
        return self._start(workspace, epoch, commits=False)

    def wake(self, workspace: Workspace, round_: int) -> None:
        """Prepare a program that has had no rows on this worker until now: it is at a stop, in a round of a loop."""
        workspace.prepare(self._slots, self._counts, self._room, commits=False)
        workspace.state[opcodes.ROUND_NOW] = round_

    def send(self, workspace: Workspace, stop: ProgramStop, outgoing: Outgoing, label: int) -> None:
        """Add the rows of the exchanges of a stop to the messages for other workers."""
        for pc in stop.exchanges:
            outgoing.add(self._code, pc, workspace, label)

    def next_round(self, workspace: Workspace) -> int:
        """The next round for which rows wait; -1 if there is none."""
        return int(workspace.state[opcodes.NEXT_ROUND])

    def receive(self, workspace: Workspace, entry: ReceivedRows) -> int:
        """Take rows from another worker; return a status: `FULL` if they do not fit."""
        return entry.append_to(workspace, self._code)

    def proceed(self, workspace: Workspace, epoch: int, pc: int) -> int:
        """Run the program from a position up to its next stop; return the status."""
        workspace.state[opcodes.PC] = pc
        return self._resume(workspace, epoch)

    def proceed_in_round(self, workspace: Workspace, epoch: int, stop: ProgramStop, round_: int) -> int:
        """Like `proceed`, in the round on which all workers have agreed; -1 if the loop is done."""
        workspace.state[opcodes.ROUND_NOW] = max(round_, 0)
        return self.proceed(workspace, epoch, stop.resume if round_ < 0 else stop.loop)

    def undo(self, workspace: Workspace, epoch: int) -> None:
        """Restore what the program has written, unless it was dropped, with the traces."""
        if self._is_dropped:
            return
        workspace.state[opcodes.PC] = -1
        self._find_traces(workspace)
        self._run(workspace, epoch)

    def commit(self, workspace: Workspace, epoch: int, fresh: StoredBatch | None = None) -> None:
        """Keep what the program has written, and publish it; `fresh` is the `result`, if somebody has asked for it."""
        for trace in self._written:
            trace.commit_memtable()
        self._publish(workspace, epoch, fresh)

    def skip(self, epoch: int) -> None:
        """Forget the input at an epoch, which has been processed, or which nothing reads on this worker."""
        for source, _ in self._inputs:
            source.loaded(epoch)

    def result(self, workspace: Workspace, epoch: int) -> StoredBatch | None:
        """What a program that is done adds to the result, if it adds anything."""
        return None if self._result is None else self._fresh_batch(workspace, self._result, epoch)

    def preview(self, lower: int, upper: int) -> Preview | None:
        """What the program would write at the next epoch with changes; None if it cannot do it. Nothing changes.

        For a single worker.
        """
        epoch, workspace = self.next_change(), self._workspaces.take()
        for trace in self._written:
            trace.flush_memtable()
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
            if not self._make_room(status):
                self._observe(workspace, self._given(workspace), 2 * MOST_ROWS)
                self.has_large_groups = self._lacks_room_for_groups(status)
                return False

    def _lacks_room_for_groups(self, status: int) -> bool:
        return status == opcodes.FULL and self._reads_groups

    def _observe(self, workspace: Workspace, given: Sequence[int], least: int = 0) -> None:
        """Note how many rows are in a register, at least `least` if the program could not be completed.

        `given` are the rows of each input.
        """
        if self._growth is not None and sum(given) > self._always_few:
            counts = workspace.counts[1 : self._counts]
            self._growth.observe(given, max(counts.sum() / max(np.count_nonzero(counts), 1), least))
            self._peak = max(int(counts.max()), PEAK_KEPT * self._peak)
            while self._room >= 2 * LEAST_ROOM and self._room >= 2 * SPARE_ROOM * self._peak and not least:
                self._room //= 2  # it has not been needed for a while

    def _given(self, workspace: Workspace) -> list[int]:
        """The rows of each input."""
        given: list[int] = workspace.counts[self._input_counts].tolist()
        return given

    def _can_have_room(self, status: int) -> bool:
        """Whether a program has failed for lack of room in registers, and can have more."""
        return status == opcodes.FULL and self._room < self._most_room

    def _make_room(self, status: int) -> bool:
        """Make room in registers, if that is what the program has lacked; return whether there is more than before."""
        if not self._can_have_room(status):
            return False
        self._room = min(ROOM_GROWTH * self._room, self._most_room)
        return True

    def _start(self, workspace: Workspace, epoch: int, *, commits: bool) -> int:
        inputs = self._load(epoch)
        workspace.prepare(self._slots, self._counts, self._room, commits=commits)
        workspace.state[opcodes.COALESCED] = self.coalesced
        if inputs is None:
            return opcodes.RAISED
        for changes, register in inputs:
            if isinstance(register, Fresh):
                assert isinstance(changes, StoredBatch)
                status = workspace.fill_fresh(register, changes)
            else:
                assert isinstance(changes, Changes)
                status = workspace.fill(register, changes)
            if status != opcodes.DONE:
                return status
        return self._resume(workspace, epoch)

    def _resume(self, workspace: Workspace, epoch: int) -> int:
        """Run the program from its state on, until it is done or needs other workers."""
        if workspace.traces_as_of != Memtable.outdated:
            self._find_traces(workspace)
            if self._has_collisions:
                self.undo(workspace, epoch)
                return opcodes.RAISED
        while True:
            status = self._run(workspace, epoch)
            if status == opcodes.CALLS:
                status = self._call(workspace, epoch)
            elif status == opcodes.SPILL:
                status = self._grow_memtable(workspace)
            else:
                return status
            if status != opcodes.DONE:
                self.undo(workspace, epoch)
                return status

    def _grow_memtable(self, workspace: Workspace) -> int:
        """Make room in the memtable for which the program has stopped; return a status."""
        trace = self._traces[int(workspace.counts[opcodes.LACKS_ROOM])]
        assert trace is not None
        if not trace.grow_memtable():
            return opcodes.SPILL
        self._find_traces(workspace)
        return opcodes.DONE

    def _call(self, workspace: Workspace, epoch: int) -> int:
        """Call the function at which the program has stopped; return a status."""
        pc = int(workspace.state[opcodes.PC])
        number = int(self._code[pc + opcodes.FUNCTION])
        call = self._calls[number]
        try:
            result = call.function(*[workspace.changes(rows, epoch) for rows in call.given])
        except Exception:  # visits find out which rows raise
            return opcodes.RAISED
        workspace.commits.append(result.commit)
        workspace.state[opcodes.PC] = pc + self._code[pc + 1]
        return workspace.fill(self._results[number], result.changes)

    def _find_traces(self, workspace: Workspace) -> None:
        """Find the tables of all traces, which may have changed if the program has waited for workers."""
        if self._found_as_of != Memtable.outdated:
            addresses = [NO_TABLE_ADDRESS if trace is None else trace.address() for trace in self._traces]
            self._found = np.array(addresses, np.int64)
            self._written_found = self._found[self._written_numbers]
            self._has_collisions = any([trace.has_collisions for trace in self._hashed])
            self._found_as_of = Memtable.outdated
        workspace.traces, workspace.traces_as_of = self._found, Memtable.outdated
        if workspace.tables:
            workspace.traces = self._found.copy()
            workspace.traces[list(workspace.tables)] = list(workspace.tables.values())
        if self._keeps_texts:
            workspace.held += [trace.held for trace in self._hashed]

    def _run(self, workspace: Workspace, epoch: int) -> int:
        """Run the program from its state on, until it stops."""
        status = workspace.run(self._code, workspace.traces, self._written_found, epoch)
        if CHECKS_BOUNDS:
            for trace in self._written:
                trace.check_bounds()
        return status

    def _publish(self, workspace: Workspace, epoch: int, fresh: StoredBatch | None = None) -> None:
        """Note that an epoch is complete: pass on what was written to the result, and forget the input."""
        given = self._given(workspace)
        self._observe(workspace, given)
        for output, register in self._outputs:
            if isinstance(output, Stream) and isinstance(register, Rows):
                output.offer(partial(workspace.changes, register, epoch))
            elif isinstance(output, Arranged) and isinstance(register, IndexRegister):
                output.offer(partial(self._batches, workspace, register, epoch))
        self.rows_read += sum(given)
        self.skip(epoch)
        if self._result is not None:
            if fresh is None and self._trace.has_queues:
                fresh = self._fresh_batch(workspace, self._result, epoch)
            written = int(workspace.counts[self._result.fresh.count])
            self._trace.publish(fresh, from_epoch(epoch + 1, 1), written)
        for commit in workspace.commits:
            commit()
        for trace in self._written:
            trace.keep_small()

    def _load(self, epoch: int) -> list[tuple[Changes | StoredBatch, Filled | Fresh]] | None:
        """The changes of all inputs; None if they are too many, or of a form that programs do not know."""
        inputs: list[tuple[Changes | StoredBatch, Filled | Fresh]] = []
        given = []
        for source, register in self._inputs:
            parts = source.load(epoch)
            if parts is None or (len(parts) > 1 and isinstance(register, Fresh)):
                return None
            given.append(sum([len(part) for part in parts]) if parts else 0)
            inputs += [(part, register) for part in parts]
        return inputs if self._are_few(given) else None

    def _are_few(self, given: list[int]) -> bool:
        """Whether a program should process so many rows of each input."""
        if FUSE != "small":
            return sum(given) <= self._most_room
        changed = len(given) - given.count(0)
        return sum(given) <= MOST_INPUT_ROWS * changed and (self._growth is None or self._growth.are_few(given))

    def _batches(self, workspace: Workspace, index: IndexRegister, epoch: int) -> list[StoredBatch]:
        """The fresh rows of an arrangement, if there are any, as batches."""
        batch = self._fresh_batch(workspace, index, epoch)
        return [] if batch is None else [batch]

    def _fresh_batch(self, workspace: Workspace, index: IndexRegister, epoch: int) -> StoredBatch | None:
        """The fresh rows of an arrangement as a batch, if there are any."""
        lanes, schema = index.fresh, index.schema
        rows = int(workspace.counts[lanes.count])
        if not rows:
            return None
        key, val, *_ = copied = workspace.arena[[lanes.key, lanes.val, *lanes.diffs], :rows]
        payload: list[pa.Array] = []
        if schema.hashed:
            register = Rows(lanes.count, payload_fields(schema), lanes.columns, lanes.diffs)
            payload = [workspace.canonical(register, field.name) for field in register.fields]
        times, description = _of_epoch(epoch)
        tix, ident = _zeros(rows)
        updates = Updates(times, tix, copied[2:], schema, key, val, tuple(payload))
        return StoredBatch(updates, ident, NO_KEYS, description)


@lru_cache(maxsize=4)
def _of_epoch(epoch: int) -> tuple[Lane, Description]:
    """The table of times, and the description, of a batch with the updates of one epoch."""
    description = Description(from_epoch(epoch, 1), from_epoch(epoch + 1, 1), Antichain.minimum(1))
    return np.array([[epoch]], np.int64), description


@lru_cache(maxsize=64)
def _zeros(rows: int) -> tuple[Array, Lane]:
    """The positions of the times of rows that have the same time, and the identities of rows that do not collide."""
    return constant(0, rows, np.int32), constant(0, rows)


NO_TABLE = np.zeros(layout.HEADER, np.int64)
NO_TABLE_ADDRESS = slots.address_of(NO_TABLE)
"""The table of an arrangement without fresh rows, or without payload."""
