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

Together. Small sweeps of many dataflows are done together (`ikebana.runtime.joint_sweeps`), after a proposal for all of
them; a dataflow whose sweep cannot be part of that proposes its own. A dataflow that exchanges nothing, which is that
of a table or an input, needs no agreement at all.

Starting a dataflow. The first proposals also carry the epochs since which the imported traces are exact; the dataflow
starts at the latest of them, on all workers. Imported dataflows that are behind first catch up with the last closed
epoch, so that the first sweep computes what a reader will ask for. A dataflow that reads nothing but constants
completes all epochs in its first sweep.

Coalesced sweeps. A sweep covers all epochs that have been closed on all workers meanwhile. If nobody tells these apart,
it does them as one (`ikebana.operators.span`), at the cost of one. Subscribers do, and readers that hold an epoch, and
dataflows that import the result, because they may sweep to an epoch in between. Readers that come later ask for the
last closed epoch, or for later ones. Results that depend on history (`ikebana.plan.history`) are computed epoch by
epoch.

Errors. Rows for which an expression raises are left out, and logged (`ikebana.operators.row_errors`). Imported
arrangements may lack rows for the same reason: a result is exact if neither its dataflow nor any imported dataflow has
errors.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from ikebana.encoding.lanes import Lane
from ikebana.encoding.spill_files import SpillFiles
from ikebana.operators import sources
from ikebana.operators.exchange import Exchange
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import NEVER, Span
from ikebana.operators.streams import TraceReader, from_epoch
from ikebana.plan import ir
from ikebana.plan.history import depends_on_history
from ikebana.plan.render import Renderer
from ikebana.runtime import program as programs
from ikebana.runtime.channels import WAITING, Channels
from ikebana.runtime.key_reads import KeyReads, LaneReads
from ikebana.runtime.lowered import LoweredDataflow
from ikebana.runtime.messages import DataflowMessage, Keys
from ikebana.runtime.previews import Preview, check_preview
from ikebana.runtime.program import Program
from ikebana.runtime.proposals import Proposal, agreed
from ikebana.runtime.routes import Route
from ikebana.runtime.tails import Tail, Tails
from ikebana.runtime.workspaces import Workspace, Workspaces
from ikebana.trace import Batch, Handle, Updates
from ikebana.trace.batch import StoredBatch

FORGET_AFTER, FORGET_ROWS = 16, 1024
"""Without visits, operators release old versions only after this many epochs, this many changes, or in idle time: that
costs more than a small program."""

_ORDERS = itertools.count()

MOST_BEHIND = 4
"""On several workers, a dataflow that is more epochs behind does them in one sweep, and not one after the other."""


class Reach(NamedTuple):
    """What changes of some sources come to in a dataflow that has a program."""

    route: Route
    changes_result: bool
    """Whether the result may change."""
    read: frozenset[Dataflow]
    """The dataflows whose results are read, of those that it imports."""


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
        spill: SpillFiles | None = None,
        is_placed: bool = False,
        memory: int | None = None,
        closed: int = 0,
        kept: int | None = None,
    ) -> None:
        """`find` returns the dataflow that maintains a node's arrangement, if one does; `find_input` what a source
        stands for. `wake` asks the worker to call `step`.

        `is_placed`: the rows that the plan arranges are on the workers that own them already, as those of tables are.
        `memory` is the dataflow's own limit in bytes (`ikebana.runtime.memory_budget`); None for the common one.
        `closed`: the epochs before it are closed on all inputs. `kept` is as for `keep_history`.
        """
        self._kept, self.spill = kept, spill
        self._is_placed, self.memory, self._workspaces = is_placed, memory, workspaces
        self._key_reads: KeyReads | None = None  # made for the first look-up
        self._lane_reads: LaneReads | None = None  # the same
        self._preview: Preview | None = None  # what the program would write in this sweep, to be compared
        self.programs_run = 0  # sweeps that were done by a program
        self.visits_run = 0  # sweeps that were done by visits, without the first
        self.busy_seconds = 0.0  # seconds of work since the last epoch was completed
        self.has_errors = False  # at the last complete epoch on this worker, as the driver was told
        self._first_changes = 0  # updates of the result that the first sweep has written
        self.unmeasured_seconds = 0.0  # seconds of work since memory was last measured
        self.grown_bytes = 0  # bytes by which the process has grown in this sweep
        self.arranged_bytes = 0  # bytes of the dataflow's arrangements, when last measured between sweeps
        self.name, self.plan, self.worker, self.workers, self.effort = name, plan, worker, workers, effort
        self.order = next(_ORDERS)  # greater than that of all dataflows that it imports
        self.label = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)
        """The dataflow in joint messages, the same on all workers."""
        self._sweeps_alone = False  # whether the next sweep is its own
        self._is_joint_kind: bool | None = None  # None if not known yet
        self._reached: dict[tuple[bool, ...], tuple[int, Reach]] = {}  # see `reach`
        self._ever_reached = -1  # operators that changes have ever reached
        self._signalled: dict[tuple[bool, ...], int] = {}  # how many were so, after changes of these sources
        self._find, self._find_input, self.wake = find, find_input, wake
        self._coalesced_epoch = 0  # in a coalesced sweep its last epoch
        self._channels = Channels(name, worker, workers, send)
        self._waiters: list[Dataflow] = []
        self.imported: list[Dataflow] = []
        self._origins: dict[int, Dataflow] = {}  # of imported arrangements, by the identity of the source
        self.importers: set[Dataflow] = set()
        self.errors = ErrorLog()
        self.error_readers = [self.errors.reader()]
        """Readers of its own errors and of the errors of all dataflows that it imports, directly or indirectly."""
        self.start, self.lower, self.demanded, self.sweeps = 0, 0, 0, 0
        self._agreements = 0  # sweeps that all workers have agreed on for this dataflow alone
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
        self.is_local = workers == 1 or (is_placed and not self._channels.has_exchanges and not self.imported)
        """Whether the dataflow needs no other workers."""
        self.importing = [self._origins.get(id(source)) for source in self._sources]
        """For each source the dataflow that maintains what it imports, or None."""
        self.touched = dict.fromkeys([name, *[flow.name for flow in self.imported]])
        """The dataflows of which a trace may have work for idle time after a sweep of this one."""
        self._lowered = LoweredDataflow(self._root, self._maintainer, workers, workspaces, self._forget_kind)
        self._tails = Tails(self._root, self._maintainer, workers, workspaces)
        self._result_at = self._root.items.index(self._maintainer)
        operators = list(self._root.operators())
        self._forgets = [operator.forget for operator in operators]
        self._clears = [operator.out.clear for operator in operators if operator.out is not None]
        self._own_readers = self._maintainer.trace.reader_numbers()
        for flow in self.imported:
            flow.importers.add(self)  # until `drop`

    # What the renderer asks for (`ikebana.plan.render.RenderContext`).

    def exchange(self, node: ir.Node) -> Exchange | None:
        if self.workers == 1 or (node is self.plan and self._is_placed):
            return None
        return self._channels.new_exchange()

    def agree(self, round_: int | None) -> Generator[object, None, int | None]:
        return self._channels.agree(round_)

    def shared(self, node: ir.Node) -> sources.ImportedArrangement | None:
        if node is self.plan or node.scope:
            return None
        flow = self._find(node)
        if flow is None:
            return None
        self.imported.append(flow)
        known = {reader.log for reader in self.error_readers}
        self.error_readers += [reader.clone() for reader in flow.error_readers if reader.log not in known]
        source = sources.ImportedArrangement(
            flow.reader.clone(),
            lambda epoch: flow.demand(epoch, self),
            lambda: flow.start,
            flow.result,
            self.wake,
            flow.known_upper,
        )
        self._origins[id(source)] = flow
        return source

    def input(self, node: ir.Source) -> sources.InputSource | ir.Node:
        return self._find_input(node)

    def preload(self, batches: Iterable[StoredBatch], epoch: int) -> None:
        """Begin with rows that the result had before `epoch`, and not with nothing; no sweep has begun."""
        for batch in batches:
            self._maintainer.trace.insert(batch)
        self.demand(epoch)

    def keep_history(self, epoch: int | None) -> None:
        """Keep the result and the errors readable from an epoch on, for dataflows that import them; None: no longer."""
        self._kept = epoch
        if epoch is None and self.lower > self.start:
            self._forget_result(self.lower)

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

        Without changes, a dataflow that needs no other workers knows that without a sweep. Others have to ask them.
        """
        sources = self._sources
        if not self.is_local or self._sweep is not None or self.lower <= self.start:
            return self.lower
        if any([source.has_changes for source in sources]):
            return self.lower
        return min([source.known_upper() for source in sources], default=NEVER)

    @property
    def wants_to_sweep(self) -> bool:
        """Whether there is a reason for another sweep: the start, a demand, a peer's proposal, or changes."""
        if self.demanded > self.lower or (not self._started and self.imported):
            return True
        if self._channels.has_proposal(self._agreements):
            return True
        return any([source.has_changes for source in self._sources])

    def deliver(self, message: DataflowMessage) -> None:
        """Take a message from a peer."""
        self._channels.deliver(message)
        self._blocked = False
        self.wake()

    def step(self) -> bool:
        """Run for one quantum; return whether anything was done. If not, there is nothing to do until `wake`."""
        if self._sweep is None:
            return self._begin_alone() if self.is_local else self._propose() | self._begin()
        if self._blocked:
            return False
        try:
            self._blocked = next(self._sweep) is WAITING
        except StopIteration:
            self._sweep = None
        return True

    def _begin_alone(self) -> bool:
        """Begin a sweep if there is a reason for one, without other workers; return whether there is more to do."""
        changed = tuple([source.has_changes for source in self._sources])
        if not any(changed):
            if not self.wants_to_sweep:
                return False
        elif self._run_program(changed):
            return self.demanded > self.lower
        proposal = self._proposal()
        if isinstance(proposal, bool):
            return proposal
        self._begin_sweep(proposal)
        return self._sweep is not None or self.wants_to_sweep

    def _run_program(self, changed: tuple[bool, ...]) -> bool:
        """Do a sweep by a program alone, without other workers, up to where all sources are; return whether it could.

        This is what `_proposal` and `_begin_sweep` come to in most small sweeps, at a fraction of the cost. `changed`
        says which sources have changes.
        """
        program, sources = self._program(), self._sources
        if program is None or self._lowered.visited or programs.FUSE == "both":
            return False
        target = self._common_upper()
        if target <= self.lower or self._is_closing(target, [source.last for source in sources]):
            return False
        if self._signalled.get(changed) != self._ever_reached:
            self._signal([(now, now) for now in changed])
            self._signalled[changed] = self._ever_reached
        reached = program.run(self.lower, target)
        self.programs_run += reached > self.lower
        self.advance(reached)
        return reached == target

    def _common_upper(self) -> int:
        """The epoch up to which all sources are available, after those that are behind have been asked to catch up."""
        sources = self._sources
        uppers = [source.available for source in sources]
        if min(uppers) <= self.lower:
            epoch = max([self.lower + 1, self.demanded, *[upper for upper in uppers if upper < NEVER]])
            for at, source in enumerate(sources):
                if uppers[at] <= self.lower:
                    source.demand(epoch)
                    uppers[at] = source.available  # it may have caught up at once
        return min(uppers)

    def _propose(self) -> bool:
        """Propose a sweep to all workers if there is a reason for one; return whether anything was done."""
        if self._proposed or not self.wants_to_sweep:
            return False
        proposal = self._proposal()
        if isinstance(proposal, bool):
            return proposal
        self._proposed = True
        self._channels.propose(self._agreements, proposal)
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
        small = None if self.is_local else self._small_change(available)
        return Proposal(available, since, lasts, changes, small, self._tails.cut, self._distinct(available))

    def _distinct(self, available: int) -> int:
        """The first epoch that someone tells from later ones, of those that a sweep up to `available` would cover."""
        trace = self._maintainer.trace
        if not self.lower + 1 < available < NEVER or self.lower == self.start or programs.FUSE == "both":
            return self.lower
        if self._is_placed or trace.has_queues or self._depends_on_history:
            return self.lower
        held = trace.first_distinct(self._own_readers)
        return held if self._kept is None else min(held, self._kept)

    @cached_property
    def _depends_on_history(self) -> bool:
        return depends_on_history(self.plan)

    def _demand_of_sources(self, needed: int) -> bool:
        """Ask the sources that are behind to catch up with the others, and with what is needed or demanded here."""
        ahead = [source.available for source in self._sources if self.lower < source.available < NEVER]
        epoch = max([needed, self.demanded, *ahead])
        return any([source.demand(epoch) for source in self._sources if source.available < needed])

    def _begin(self) -> bool:
        """Begin a sweep if the proposals of all workers are here."""
        proposals = self._channels.take_proposals(self._agreements) if self._proposed else None
        if proposals is None:
            return False
        self._proposed = False
        self._begin_sweep(agreed(proposals))
        return True

    def _begin_sweep(self, proposal: Proposal) -> None:
        """Do what all workers have agreed on, at once if that is a program that needs no other workers."""
        target, since, lasts, changed, small, cut, distinct = proposal
        if not self._started:
            self._start(since)
        self._agreements += 1
        self._signal(changed)
        if self.lower > self.start and not self._is_closing(target, lasts):
            if not any([now for now, _ in changed]):
                self.advance(target)
            elif self.is_local:
                self._begin_in_part(target, lasts)
            elif small is not None and small < target:
                self._sweep = self._sweeping_together(small, target, lasts)
        if self._sweep is None and target > self.lower:
            coalesced = self.lower + 1 < target <= distinct + 1
            self._sweep = self._sweeping(target, lasts, self._tail(cut, target, lasts, coalesced), coalesced)

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

    def _sweeping(
        self, target: int, lasts: list[int], tail: Tail | None = None, coalesced: bool = False
    ) -> Iterator[object]:
        """A sweep up to `target`; `lasts` are the epochs from which on the sources do not change, on all workers.

        `tail` is what a program does of it, if it can. `coalesced`: the sweep does all epochs as one.
        """
        starts = self.lower == self.start
        self.visits_run += not starts
        span = Span(self.lower, target, starts=starts, coalesced=coalesced)
        if coalesced:
            self._coalesced_epoch = target - 1
        if tail is not None:
            yield from self._visiting_head(span, tail)
        else:
            yield from self._root.visit_reached(span)
            if not starts:
                self._tails.observe()
        if self._preview is not None:
            check_preview(self._preview)
            self.programs_run, self._preview = self.programs_run + 1, None
        if starts:
            self._first_changes = self._maintainer.trace.changes
        for source, last in zip(self._sources, lasts, strict=True):
            source.out.closed = target >= last
        self._forget(target)
        self._finish(target)

    def _tail(self, cut: int, target: int, lasts: list[int], coalesced: bool) -> Tail | None:
        """What a program does of a sweep, if the sweep is of a kind that can have a tail."""
        if self.lower <= self.start or self._is_closing(target, lasts):
            return None
        if target > self.lower + 1 and not coalesced:
            return None
        return self._tails.from_cut(cut)

    def _visiting_head(self, span: Span, tail: Tail) -> Iterator[object]:
        """Visit the operators before a tail, and let its program do the others; if it fails, visit them, too."""
        program, epoch = tail.program, span.earliest
        program.coalesced = epoch - span.lower
        yield from self._root.visit_reached(span, skipped=tail.positions)
        if self.is_local:
            is_done = program.run_epoch(epoch)
        else:
            is_done = yield from program.run_with_peers(epoch, self._root.reached(), self._channels.exchange_of_program)
        if is_done:
            program.release()
        else:
            yield from self._root.visit_reached(span, skipped=range(tail.cut))
        self._tails.observe(tail, is_done=is_done)

    def _finish(self, target: int) -> None:
        """After visits: all epochs before `target` are complete."""
        self._maintainer.complete(target)
        for clear in self._clears:
            clear()  # the changes of a visit must not stay in memory until the next sweep
        self.reader.forget(self._given_up(target))
        if self.errors.changed_since(self.lower):
            self._demand_of_importers(target)
        self._complete(target)

    def _begin_in_part(self, target: int, lasts: list[int]) -> None:
        """Begin a sweep that a program does in part, or a second time to be compared, without other workers."""
        program = self._program()
        if program is None:
            return
        if programs.FUSE == "both":
            self._preview = program.preview(self.lower, target)
        elif self._lowered.visited and program.next_change() < target:
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
        if not (yield from program.run_with_peers(epoch, reached, self._channels.exchange_of_program)):
            self._program()  # written again if groups are too large: now, on all workers, and not when first asked for
            yield from self._sweeping(target, lasts)
        elif self._lowered.visited:
            yield from self._visiting_others(program, epoch)
        else:
            program.release()
            self.programs_run += 1
            self.advance(epoch + 1)

    def _visiting_others(self, program: Program, epoch: int) -> Iterator[object]:
        """Complete an epoch that a program has done in part: visit the operators that it does not know."""
        yield from self._root.visit_reached(Span(self.lower, epoch + 1, starts=False), self._lowered.positions)
        program.release()
        self.programs_run += 1
        self._forget_if_due(epoch + 1)
        self._finish(epoch + 1)

    def _small_change(self, available: int) -> int | None:
        """The next epoch with changes on this worker, if a program can process them, or there are none.

        None if many epochs wait: visits do all of them in one sweep, and a program one after the other.
        """
        program = self._program()
        if program is None or programs.FUSE == "both" or self.lower == self.start:
            return None
        epoch = program.next_change()
        if epoch < available - MOST_BEHIND and available < NEVER:
            return None
        return epoch if epoch == NEVER or program.can_load(epoch) else None

    def _program(self) -> Program | None:
        """The program of the dataflow, if it has one. It is written when first needed, after the first sweep."""
        return self._lowered.write(has_begun=self.has_begun)

    # Joint sweeps.

    def is_apart(self, epoch: int) -> bool:
        """Whether a joint sweep of epoch `epoch`, or a later one, must leave out the dataflow and all its importers."""
        if self._sweep is not None:
            return True
        if self.is_local:
            return any([source.has_changes for source in self._sources])
        if self._proposed or self._sweeps_alone or self.lower <= self.start:
            return True
        if not self._is_joint_kind:
            may_run = self._lowered.is_written or any([source.has_changes for source in self._sources])
            if may_run and not self.can_be_joint():
                return True
        if self._channels.has_proposal(self._agreements):
            return True
        for source in self._sources:
            if not source.out.closed and source.last != NEVER:
                return True
        return self.next_change() < epoch

    @property
    def has_begun(self) -> bool:
        """Whether the dataflow has done its first sweep, which needs all workers."""
        return self.lower > self.start

    def can_be_joint(self) -> bool:
        """Whether programs do all small sweeps of the dataflow, and of those that it imports, as far as is known."""
        if self._is_joint_kind is None:
            has_program = programs.FUSE in ("small", "always") and self._program() is not None
            has_program = has_program and not self._lowered.visited
            imported = [flow for flow in self.imported if flow._lowered.is_written and not flow.is_local]
            self._is_joint_kind = has_program and all([flow.can_be_joint() for flow in imported])
        return self._is_joint_kind

    def _forget_kind(self) -> None:
        self._is_joint_kind = None
        self._reached.clear()
        for flow in list(self.importers):
            flow._forget_kind()

    @property
    def has_many_changes(self) -> bool:
        """Whether more rows wait here than a program takes."""
        return any([source.waiting_rows > programs.MOST_INPUT_ROWS for source in self._sources])

    def sweep_alone(self) -> None:
        """Leave the next sweep to the dataflow itself: it cannot be part of a joint one."""
        self._sweeps_alone = True

    def next_change(self) -> int:
        """The least epoch of the changes that wait here, if the dataflow has a program, which it has if any wait."""
        program = self._lowered.program
        return NEVER if program is None else program.next_change()

    def changed_sources(self, epoch: int) -> list[int]:
        """The sources that have changes at an epoch here."""
        return [
            at
            for at, source in enumerate(self._sources)
            if isinstance(source, sources.InputSource | sources.ImportedArrangement) and source.next_change() == epoch
        ]

    def reach(self, changed: tuple[bool, ...]) -> Reach:
        """Prepare a sweep by a program, where some sources have changes on some worker."""
        known = self._reached.get(changed)
        if known is None or known[0] != self._ever_reached:
            self._signal([(now, now) for now in changed])
            reached, program = self._root.reached(), self._program()
            assert program is not None
            read = [
                origin
                for source, origin in zip(self._sources, self.importing, strict=True)
                if origin is not None and any([reached[at] for at in self._root.readers(source.out)])
            ]
            reach = Reach(program.route(reached), reached[self._result_at], frozenset(read))
            known = self._reached[changed] = self._ever_reached, reach
        return known[1]

    def _signal(self, changed: Sequence[tuple[bool, bool]]) -> None:
        """Find out what changes can reach in a new sweep."""
        self._set_signals(changed)
        self._ever_reached = self._root.ever_reached()

    @property
    def program(self) -> Program:
        """The program, of a dataflow that has one."""
        assert self._lowered.program is not None
        return self._lowered.program

    def offer(self, origin: Dataflow, batch: StoredBatch | None) -> None:
        """Offer the source that imports an arrangement a batch that is not committed yet; None to take it back."""
        for source, flow in zip(self._sources, self.importing, strict=True):
            if flow is origin and isinstance(source, sources.ImportedArrangement):
                source.offer(batch)

    def complete_jointly(self, epoch: int, workspace: Workspace | None, fresh: StoredBatch | None) -> None:
        """Commit what the program has done at an epoch, if it had any rows here."""
        if workspace is not None:
            self.program.commit(workspace, epoch, fresh)
        else:
            self.program.skip(epoch)
        self.programs_run += 1
        self.advance(epoch + 1)

    def advance(self, reached: int) -> None:
        """Complete epochs without visits."""
        if reached > self.lower:
            self._maintainer.trace.publish(None, from_epoch(reached, 1))
            self.reader.forget(self._given_up(reached))
            self._forget_if_due(reached)
            self._complete(reached)

    def _forget_if_due(self, reached: int) -> None:
        program = self._lowered.program
        has_read_many = program is not None and program.rows_read >= FORGET_ROWS
        if has_read_many or reached - self._forgotten >= FORGET_AFTER:
            self._forget(reached)

    def _forget(self, target: int) -> None:
        """Release what only epochs before `target` needed."""
        self._forgotten = target
        if self._lowered.program is not None:
            self._lowered.program.rows_read = 0
        for forget in self._forgets:
            forget(target)
        for reader in self.error_readers:
            reader.forget(self._given_up(target) - 1)

    def _forget_result(self, target: int) -> None:
        """Release the epochs of the result, and of the errors, that only epochs before `target` needed."""
        self.reader.forget(target)
        for reader in self.error_readers:
            reader.forget(target - 1)

    def _given_up(self, target: int) -> int:
        """The epoch before which all epochs of the result except the last are given up, once `target` is reached."""
        return target if self._kept is None else min(target, self._kept + 1)

    def _complete(self, target: int) -> None:
        """All epochs before `target` are complete."""
        self.sweeps += 1
        self.lower, self._sweeps_alone = target, False
        waiters, self._waiters = self._waiters, []
        for flow in waiters:
            flow.wake()

    def _demand_of_importers(self, epoch: int) -> None:
        """Have importers complete an epoch at which errors have changed, of which they are not told otherwise."""
        for flow in list(self.importers):
            flow.demand(epoch)
            flow._demand_of_importers(epoch)

    def new_handle(self, epoch: int) -> Handle:
        """A handle on the result that can read an epoch; or later ones only, if that one cannot be read any more.

        It is not advanced by the dataflow. A coalesced sweep that is under way does not tell its epochs apart.
        """
        handle = self.reader.clone()
        if epoch >= self.lower and self._coalesced_epoch > epoch:
            handle.advance((self._coalesced_epoch,))
        return handle

    def batches(self) -> list[Batch]:
        """The batches of the result."""
        return self.reader.batches()

    def find(self, keys: Keys) -> pa.Table | None:
        """The rows of some keys at the last complete epoch; None if they can be found only by reading the trace."""
        if programs.FUSE == "never":
            return None
        if self._key_reads is None:
            self._key_reads = KeyReads(self.reader.trace, self._workspaces)
        return self._key_reads.find(keys, self.lower - 1)

    def rows_of(self, lanes: Lane, epoch: int) -> Updates | None:
        """The rows of some key lanes (ascending, each once) at an epoch at which the result is complete; None if they
        can be found only by reading the trace."""
        if programs.FUSE == "never":
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
    def changes(self) -> int:
        """How many updates the result has received after the first sweep, which computes it from what there is."""
        return self._maintainer.trace.changes - self._first_changes

    @property
    def is_sweeping(self) -> bool:
        """Whether a sweep is under way."""
        return self._sweep is not None

    @property
    def own_bytes(self) -> int:
        """The bytes in memory of all arrangements that the dataflow maintains."""
        return self.inner_bytes + self.reader.nbytes - self.mapped_bytes

    @property
    def mapped_bytes(self) -> int:
        """The bytes in mapped files of all arrangements that the dataflow maintains."""
        return sum(operator.mapped_bytes for operator in self._root.operators())

    @property
    def inner_bytes(self) -> int:
        """The bytes of the arrangements inside the dataflow, which other dataflows cannot import."""
        return sum(operator.nbytes for operator in self._root.operators() if operator is not self._maintainer)

    def drop(self) -> None:
        """Release everything that only this dataflow holds."""
        self._sweep = self._key_reads = self._lane_reads = None
        self._lowered.drop()
        self._tails.drop()
        for flow in self.imported:
            flow.importers.discard(self)
        for operator in self._root.operators():
            operator.drop()
        self.reader.drop()
