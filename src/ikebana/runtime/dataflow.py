"""A dataflow on one worker: its operators, its frontier, and the sweeps that advance it.

A sweep takes the dataflow from epoch `lower` to a target epoch, on all workers together: it visits the operators in
topological order (`ikebana.operators.protocol`). A sweep is a coroutine. It yields while it waits for peers and after
each quantum of work, so that a worker can run many dataflows side by side.

Starting a sweep. A worker proposes a sweep when one of its sources has changes, when an epoch is demanded, or when a
peer has proposed one. A proposal carries

- the epoch up to which this worker's sources are available; the target is the least of all workers,
- for each source, the epoch from which on it will not change any more; the source is closed when the sweep has
  reached the latest of these epochs,
- for each source, whether it has changes. Operators that the changes of no worker can reach are not visited, and
  exchange nothing (`ikebana.plan.reachability`).

So a dataflow whose inputs do not change does nothing at all, however many epochs pass: its frontier moves on demand.
Between sweeps a dataflow sleeps until it is woken: by a batch in a trace that it imports, a message, or a demand.

Starting a dataflow. The first proposals also carry the epochs since which the imported traces are exact; the dataflow
starts at the latest of them, on all workers. Imported dataflows that are behind first catch up with the last closed
epoch, so that the first sweep computes what a reader will ask for. A dataflow that reads nothing but constants
completes all epochs in its first sweep.

Errors. Rows for which an expression raises are left out, and logged (`ikebana.operators.row_errors`). Imported
arrangements may lack rows for the same reason: a result is exact if neither its dataflow nor any imported dataflow has
errors.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from ikebana.encoding.lanes import Lane
from ikebana.operators import sources
from ikebana.operators.arrangement_views import ViewOperator
from ikebana.operators.exchange import Exchange, Parts
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Output
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import NEVER, Span
from ikebana.operators.streams import Arranged, Stream, TraceReader, from_epoch
from ikebana.plan import ir
from ikebana.plan.render import Renderer
from ikebana.plan.scopes import AnyOperator, LoopScope
from ikebana.runtime.key_reads import KeyReads, LaneReads
from ikebana.runtime.messages import FIRST_EXCHANGE, PROGRAM_MESSAGES, PROPOSALS, ROUNDS, DataflowMessage, Keys
from ikebana.runtime.program import FUSE, Message, Preview, Program, check_preview
from ikebana.runtime.workspaces import Workspaces
from ikebana.trace import Batch, Updates

FORGET_AFTER, FORGET_ROWS = 16, 1024
"""Without visits, operators release old versions only after this many epochs, this many changes, or in idle time: that
costs more than a small program."""

Proposal = tuple[int, int, list[int], list[tuple[bool, bool]], int | None]
"""A sweep: the epoch that it can reach; the first epoch at which a dataflow can start; for each source, the epoch from
which on it does not change, and whether it has changes, and has any after the start; and the next epoch with changes
that a program can process, if a program can process all that there are."""

WAITING = object()
"""What a sweep yields while it waits for peers; after any other value it can go on at once."""


class Dataflow:
    """A dataflow on one worker."""

    def __init__(
        self,
        name: str,
        plan: ir.Node,
        *,
        worker: int,
        workers: int,
        send: Callable[[int, DataflowMessage], None],
        find: Callable[[ir.Node], Dataflow | None],
        find_input: Callable[[ir.Source], sources.InputSource | ir.Node],
        wake: Callable[[], None],
        workspaces: Workspaces,
        effort: str = "default",
        is_placed: bool = False,
        memory: int | None = None,
        closed: int = 0,
    ) -> None:
        """`find` returns the dataflow that maintains a node's arrangement, if one does; `find_input` what a source
        stands for. `wake` asks the worker to call `step`.

        `is_placed`: the rows that the plan arranges are on the workers that own them already, as rows of tables are.
        `memory` is the dataflow's own limit in bytes (`ikebana.runtime.memory_budget`); None for the common one.
        `closed`: the epochs before it are closed on all inputs.
        """
        self._is_placed, self.memory, self._workspaces = is_placed, memory, workspaces
        self._is_lowered = False  # whether the dataflow has been written as a program, if it can be
        self._lowered_program: Program | None = None
        self._lowered_positions: frozenset[int] = frozenset()  # of the operators that the program does, if not all
        self._visited = 0  # operators that are visited after the program
        self._key_reads: KeyReads | None = None  # made for the first look-up
        self._lane_reads: LaneReads | None = None  # the same
        self._preview: Preview | None = None  # what the program would write in this sweep, to be compared
        self.programs_run = 0  # sweeps that were done by a program
        self.visits_run = 0  # sweeps that were done by visits, without the first
        self.unmeasured_seconds = 0.0  # seconds of work since memory was last measured
        self.grown_bytes = 0  # bytes by which the process has grown in this sweep
        self.arranged_bytes = 0  # bytes of the dataflow's arrangements, when last measured between sweeps
        self.name, self.plan, self.worker, self.workers, self.effort = name, plan, worker, workers, effort
        self._send, self._find, self._find_input, self.wake = send, find, find_input, wake
        self._waiters: list[Dataflow] = []
        self.imported: list[Dataflow] = []
        self._importers: weakref.WeakSet[Dataflow] = weakref.WeakSet()
        self.errors = ErrorLog()
        self.error_readers = [self.errors.reader()]
        """Readers of its own errors and of the errors of all dataflows that it imports, directly or indirectly."""
        self._inbox: dict[tuple[int, int], dict[int, Any]] = {}  # by channel and number, then by sender
        self._channels, self._rounds = itertools.count(FIRST_EXCHANGE), itertools.count()
        self._program_messages = itertools.count()
        self.start, self.lower, self.demanded, self.sweeps = 0, 0, 0, 0
        self.reported = 0  # the worker has taken note of the epochs before it
        self._forgotten = 0  # operators have released what only earlier epochs needed
        self._started = self._proposed = False
        self._sweep: Iterator[object] | None = None
        self._blocked = False
        renderer = Renderer(self)
        self._maintainer = renderer.maintainer(plan)
        self.result = self._maintainer.out
        self._root, self._sources, self._set_signals = renderer.root, renderer.sources, renderer.set_signals
        self.reader: TraceReader = self.result.reader()
        self._first_target = closed if self.imported else 0  # the first sweep goes at least up to this epoch
        operators = list(self._root.operators())
        self._forgets = [operator.forget for operator in operators]
        self._clears = [operator.out.clear for operator in operators if operator.out is not None]

    # What the renderer asks for (`ikebana.plan.render.RenderContext`).

    def exchange(self, node: ir.Node) -> Exchange | None:
        if self.workers == 1 or (node is self.plan and self._is_placed):
            return None
        channel, numbers = next(self._channels), itertools.count()

        def all_to_all(parts: Parts) -> Generator[object, None, Parts]:
            return self._all_to_all(channel, next(numbers), parts)

        return Exchange(self.workers, all_to_all)

    def agree(self, round_: int | None) -> Generator[object, None, int | None]:
        if self.workers == 1:
            return round_
        rounds = yield from self._all_to_all(ROUNDS, next(self._rounds), [round_] * self.workers)
        return min((round_ for round_ in rounds if round_ is not None), default=None)

    def shared(self, node: ir.Node) -> sources.ImportedArrangement | None:
        if node is self.plan or node.scope:
            return None
        flow = self._find(node)
        if flow is None:
            return None
        self.imported.append(flow)
        flow._importers.add(self)
        known = {reader.log for reader in self.error_readers}
        self.error_readers += [reader.clone() for reader in flow.error_readers if reader.log not in known]
        return sources.ImportedArrangement(
            flow.reader.clone(),
            lambda epoch: flow.demand(epoch, self),
            lambda: flow.start,
            lambda: flow.result.closed,
            self.wake,
            flow.known_upper,
        )

    def input(self, node: ir.Source) -> sources.InputSource | ir.Node:
        return self._find_input(node)

    # Sweeps.

    def demand(self, epoch: int, waiter: Dataflow | None = None) -> bool:
        """Ask for all epochs before `epoch` to be completed; return whether that is a new request.

        `waiter` is woken after the next sweep.
        """
        if waiter is not None and waiter not in self._waiters:
            self._waiters.append(waiter)
        if epoch <= self.demanded:
            return False
        self.demanded = epoch
        self.wake()
        return True

    def known_upper(self) -> int:
        """The epoch before which there are no changes that are not in the trace of the result, as far as is known here.

        Without changes, a single worker knows that without a sweep. Several workers have to ask each other.
        """
        sources = self._sources
        if self.workers > 1 or self._sweep is not None or self.lower <= self.start:
            return self.lower
        if any([source.has_changes for source in sources]):
            return self.lower
        return min([source.known_upper() for source in sources], default=NEVER)

    @property
    def wants_to_sweep(self) -> bool:
        """Whether there is a reason for another sweep: the start, a demand, a peer's proposal, or changes."""
        if self.demanded > self.lower or (not self._started and self.imported):
            return True
        if self._inbox and (PROPOSALS, self.sweeps) in self._inbox:
            return True
        return any([source.has_changes for source in self._sources])

    def deliver(self, message: DataflowMessage) -> None:
        """Take a message from a peer."""
        self._inbox.setdefault((message.channel, message.number), {})[message.sender] = message.body
        self._blocked = False
        self.wake()

    def step(self) -> bool:
        """Run for one quantum; return whether anything was done. If not, there is nothing to do until `wake`."""
        if self._sweep is None:
            return self._begin_alone() if self.workers == 1 else self._propose() | self._begin()
        if self._blocked:
            return False
        try:
            self._blocked = next(self._sweep) is WAITING
        except StopIteration:
            self._sweep = None
        return True

    def _begin_alone(self) -> bool:
        """Begin a sweep if there is a reason for one, on a single worker; return whether there is more to do."""
        if not self.wants_to_sweep:
            return False
        proposal = self._proposal()
        if isinstance(proposal, bool):
            return proposal
        self._begin_sweep(proposal)
        return self._sweep is not None or self.wants_to_sweep

    def _propose(self) -> bool:
        """Propose a sweep to all workers if there is a reason for one; return whether anything was done."""
        if self._proposed or not self.wants_to_sweep:
            return False
        proposal = self._proposal()
        if isinstance(proposal, bool):
            return proposal
        self._proposed = True
        self._send_all(PROPOSALS, self.sweeps, [proposal] * self.workers)
        return True

    def _proposal(self) -> Proposal | bool:
        """The next sweep, as far as this worker can tell; if its sources are not ready, whether they were asked to."""
        sources = self._sources
        available = min([source.available for source in sources], default=NEVER)
        needed = self.lower + 1 if self._started else max(self.lower + 1, self._first_target)
        if available < needed:
            is_asked = self._demand_of_sources(needed)
            available = min([source.available for source in sources])  # some may have caught up at once
            if available < needed:
                return is_asked
        since = 0 if self._started else max((source.since for source in sources), default=0)
        lasts = [source.last for source in sources]
        if self.lower > self.start:
            changes = [(now, now) for now in [source.has_changes for source in sources]]
        else:
            changes = [(source.has_changes, source.has_changes_after_start) for source in sources]
        return available, since, lasts, changes, self._small_change() if self.workers > 1 else None

    def _demand_of_sources(self, needed: int) -> bool:
        """Ask the sources that are behind to catch up with the others, and with what is needed or demanded here."""
        ahead = [source.available for source in self._sources if self.lower < source.available < NEVER]
        epoch = max([needed, self.demanded, *ahead])
        return any([source.demand(epoch) for source in self._sources if source.available < needed])

    def _begin(self) -> bool:
        """Begin a sweep if the proposals of all workers are here."""
        proposals = self._inbox.get((PROPOSALS, self.sweeps), {})
        if not self._proposed or len(proposals) < self.workers:
            return False
        del self._inbox[PROPOSALS, self.sweeps]
        self._proposed = False
        self._begin_sweep(_agreed(list(proposals.values())))
        return True

    def _begin_sweep(self, proposal: Proposal) -> None:
        """Do what all workers have agreed on, at once if that is a program on a single worker."""
        target, since, lasts, changed, small = proposal
        if not self._started:
            self._start(since)
        self.sweeps += 1
        self._set_signals(changed)
        if self.lower > self.start and not self._is_closing(target, lasts):
            if not any([now for now, _ in changed]):
                self._advance(target)
            elif self.workers == 1:
                self._run_program(target, lasts)
            elif small is not None and small < target:
                self._sweep = self._sweeping_together(small, target, lasts)
        if self._sweep is None and target > self.lower:
            self._sweep = self._sweeping(target, lasts)

    def _is_closing(self, target: int, lasts: list[int]) -> bool:
        """Whether a source is known not to change any more once `target` is reached, and was not before."""
        if target < min(lasts, default=NEVER):
            return False
        return any(target >= last and not source.out.closed for source, last in zip(self._sources, lasts, strict=True))

    def _start(self, epoch: int) -> None:
        self._started = True
        self.start = self.lower = epoch
        for source in self._sources:
            source.start(epoch)

    def _sweeping(self, target: int, lasts: list[int]) -> Iterator[object]:
        """A sweep up to `target`; `lasts` are the epochs from which on the sources do not change, on all workers."""
        self.visits_run += self.lower > self.start
        yield from self._root.visit_reached(Span(self.lower, target, starts=self.lower == self.start))
        if self._preview is not None:
            check_preview(self._preview)
            self.programs_run, self._preview = self.programs_run + 1, None
        for source, last in zip(self._sources, lasts, strict=True):
            source.out.closed = target >= last
        self._forget(target)
        self._finish(target)

    def _finish(self, target: int) -> None:
        """After visits: all epochs before `target` are complete."""
        self._maintainer.complete(target)
        for clear in self._clears:
            clear()  # the changes of a visit must not stay in memory until the next sweep
        self.reader.forget(target)
        if self.errors.changed_since(self.lower):
            self._demand_of_importers(target)
        self._complete(target)

    def _run_program(self, target: int, lasts: list[int]) -> None:
        """Do as many epochs of a sweep as possible by a program, on a single worker."""
        program = self._program()
        if program is None:
            return
        if FUSE == "both":
            self._preview = program.preview(self.lower, target)
        elif not self._visited:
            reached = program.run(self.lower, target)
            self.programs_run += reached > self.lower
            self._advance(reached)
        elif program.next_change() < target:
            self._sweep = self._sweeping_in_part(program, target, lasts)

    def _sweeping_in_part(self, program: Program, target: int, lasts: list[int]) -> Iterator[object]:
        """A sweep of one epoch by a program and visits, on a single worker; if the program fails, by visits up to
        `target`."""
        epoch = program.next_change()
        if program.run_epoch(epoch):
            yield from self._visiting_others(program, epoch)
        else:
            yield from self._sweeping(target, lasts)

    def _sweeping_together(self, epoch: int, target: int, lasts: list[int]) -> Iterator[object]:
        """A sweep of one epoch by the programs of all workers; if one of them fails, by visits up to `target`."""
        program = self._program()
        assert program is not None
        reached = self._root.reached()
        if not (yield from program.run_with_peers(epoch, reached, self._exchange_messages)):
            yield from self._sweeping(target, lasts)
        elif self._visited:
            yield from self._visiting_others(program, epoch)
        else:
            program.release()
            self.programs_run += 1
            self._advance(epoch + 1)

    def _visiting_others(self, program: Program, epoch: int) -> Iterator[object]:
        """Complete an epoch that a program has done in part: visit the operators that it does not know."""
        yield from self._root.visit_reached(Span(self.lower, epoch + 1, starts=False), self._lowered_positions)
        program.release()
        self.programs_run += 1
        self._forget_if_due(epoch + 1)
        self._finish(epoch + 1)

    def _exchange_messages(self, messages: list[Message]) -> Generator[object, None, list[Message]]:
        return self._all_to_all(PROGRAM_MESSAGES, next(self._program_messages), messages)

    def _small_change(self) -> int | None:
        """The next epoch with changes on this worker, if a program can process them, or there are none."""
        program = self._program()
        if program is None or FUSE == "both" or self.lower == self.start:
            return None
        epoch = program.next_change()
        return epoch if epoch == NEVER or program.can_load(epoch) else None

    def _program(self) -> Program | None:
        """The program of the dataflow, if it has one. It is written when first needed, after the first sweep."""
        if not self._is_lowered and self.lower > self.start and FUSE != "never":
            self._is_lowered, self._lowered_program = True, self._lowered()
        program = self._lowered_program
        if program is not None and program.has_large_groups:  # on all workers alike
            program = self._lowered_program = self._lowered(calls_reducers=False)
        return program

    def _advance(self, reached: int) -> None:
        """Complete epochs without visits."""
        if reached > self.lower:
            self._maintainer.trace.publish(None, from_epoch(reached, 1))
            self.reader.forget(reached)
            self._forget_if_due(reached)
            self._complete(reached)

    def _forget_if_due(self, reached: int) -> None:
        program = self._lowered_program
        has_read_many = program is not None and program.rows_read >= FORGET_ROWS
        if has_read_many or reached - self._forgotten >= FORGET_AFTER:
            self._forget(reached)

    def _lowered(self, *, calls_reducers: bool = True) -> Program | None:
        """The operators that can be written as instructions, as a program; None if it would do nothing."""
        builder, items = ProgramBuilder(self.workers, calls_reducers=calls_reducers), self._root.items
        written = [position for position, operator in enumerate(items) if builder.try_lower(operator, position)]
        if not builder.code or not builder.inputs:
            return None
        self._visited = len(items) - len(written)
        if not self._visited:
            return Program(builder, builder.arranged(self.result), self._maintainer.trace, self._workspaces)
        views = [position for position in written if isinstance(items[position], ViewOperator)]
        self._lowered_positions = frozenset(written) - frozenset(views)  # views must show the others what they read
        others = [item for position, item in enumerate(items) if position not in self._lowered_positions]
        outputs = [(output, builder.offered(output)) for output in _read_by(others) if builder.register(output)]
        return Program(builder, builder.arranged(self.result), self._maintainer.trace, self._workspaces, outputs)

    def _forget(self, target: int) -> None:
        """Release what only epochs before `target` needed."""
        self._forgotten = target
        if self._lowered_program is not None:
            self._lowered_program.rows_read = 0
        for forget in self._forgets:
            forget(target)
        for reader in self.error_readers:
            reader.forget(target - 1)

    def _complete(self, target: int) -> None:
        """All epochs before `target` are complete."""
        self.lower = target
        waiters, self._waiters = self._waiters, []
        for flow in waiters:
            flow.wake()

    def _demand_of_importers(self, epoch: int) -> None:
        """Have importers complete an epoch at which errors have changed, of which they are not told otherwise."""
        for flow in list(self._importers):
            flow.demand(epoch)
            flow._demand_of_importers(epoch)

    def batches(self) -> list[Batch]:
        """The batches of the result."""
        return self.reader.batches()

    def find(self, keys: Keys) -> pa.Table | None:
        """The rows of some keys at the last complete epoch; None if they can be found only by reading the trace."""
        if FUSE == "never":
            return None
        if self._key_reads is None:
            self._key_reads = KeyReads(self.reader.trace, self._workspaces)
        return self._key_reads.find(keys, self.lower - 1)

    def rows_of(self, lanes: Lane, epoch: int) -> Updates | None:
        """The rows of some key lanes (ascending, each once) at an epoch at which the result is complete; None if they
        can be found only by reading the trace."""
        if FUSE == "never":
            return None
        if self._lane_reads is None:
            self._lane_reads = LaneReads(self.reader.trace, self._workspaces)
        return self._lane_reads.rows_of(lanes, epoch)

    def merge_some(self, rows: int) -> bool:
        """In idle time, move up to about `rows` rows of a trace. Return whether there was any work."""
        if self.lower > self._forgotten and self._sweep is None:
            self._forget(self.lower)
        return any(operator.merge_some(rows) for operator in self._root.operators())

    @property
    def is_sweeping(self) -> bool:
        """Whether a sweep is under way."""
        return self._sweep is not None

    @property
    def own_bytes(self) -> int:
        """The bytes of all arrangements that the dataflow maintains."""
        return self.inner_bytes + self.reader.nbytes

    @property
    def inner_bytes(self) -> int:
        """The bytes of the arrangements inside the dataflow, which other dataflows cannot import."""
        return sum(operator.nbytes for operator in self._root.operators() if operator is not self._maintainer)

    def drop(self) -> None:
        """Release everything that only this dataflow holds."""
        self._sweep = self._key_reads = self._lane_reads = self._lowered_program = None
        for operator in self._root.operators():
            operator.drop()
        self.reader.drop()

    # Messages.

    def _send_all(self, channel: int, number: int, parts: list[Any]) -> None:
        """Send each worker its part; this worker's own part is delivered at once."""
        for peer, part in enumerate(parts):
            if peer != self.worker:
                self._send(peer, DataflowMessage(self.name, channel, number, self.worker, part))
        self._inbox.setdefault((channel, number), {})[self.worker] = parts[self.worker]

    def _all_to_all(self, channel: int, number: int, parts: list[Any]) -> Generator[object, None, list[Any]]:
        """Send each worker its part; return the parts from all workers, in order, once they are here."""
        self._send_all(channel, number, parts)
        while len(self._inbox[channel, number]) < self.workers:
            yield WAITING
        received = self._inbox.pop((channel, number))
        return [received[worker] for worker in range(self.workers)]


def _read_by(operators: Iterable[AnyOperator]) -> list[Output]:
    """What operators read from others: what they refer to, but do not write themselves."""
    inner = [part for item in operators for part in (item.operators() if isinstance(item, LoopScope) else (item,))]
    referred: dict[int, Output] = {}
    for operator in inner:
        for value in vars(operator).values():
            for output in value if isinstance(value, tuple | list) else (value,):
                if isinstance(output, Stream | Arranged):
                    referred[id(output)] = output
    own = {id(operator.out) for operator in inner}
    return [output for key, output in referred.items() if key not in own]


def _agreed(proposals: list[Proposal]) -> Proposal:
    """What follows from the proposals of all workers."""
    available, since, lasts, changes, small = zip(*proposals, strict=True)
    next_small = None if None in small else min(small)
    return min(available), max(since), [max(last) for last in zip(*lasts, strict=True)], _on_any(changes), next_small


def _on_any(changes: Sequence[Sequence[tuple[bool, bool]]]) -> list[tuple[bool, bool]]:
    """For each source, whether some worker has changes, and whether some worker has changes after the start."""
    return [
        (any(now for now, _ in source), any(after_start for _, after_start in source))
        for source in zip(*changes, strict=True)
    ]
