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
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from ikebana.operators import sources
from ikebana.operators.exchange import Exchange, Parts
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import NEVER, Span
from ikebana.operators.streams import TraceReader
from ikebana.plan import ir
from ikebana.plan.render import Renderer
from ikebana.runtime.messages import FIRST_EXCHANGE, PROPOSALS, ROUNDS, DataflowMessage

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
        self._is_placed, self.memory = is_placed, memory
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
        self.start, self.lower, self.demanded, self.sweeps = 0, 0, 0, 0
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

    @property
    def wants_to_sweep(self) -> bool:
        """Whether there is a reason for another sweep: the start, a demand, a peer's proposal, or changes."""
        is_starting = not self._started and bool(self.imported)
        is_asked = self.demanded > self.lower or (PROPOSALS, self.sweeps) in self._inbox
        return is_starting or is_asked or any([source.has_changes for source in self._sources])

    def deliver(self, message: DataflowMessage) -> None:
        """Take a message from a peer."""
        self._inbox.setdefault((message.channel, message.number), {})[message.sender] = message.body
        self._blocked = False
        self.wake()

    def step(self) -> bool:
        """Run for one quantum; return whether anything was done. If not, there is nothing to do until `wake`."""
        if self._sweep is None:
            return self._propose() | self._begin()
        if self._blocked:
            return False
        try:
            self._blocked = next(self._sweep) is WAITING
        except StopIteration:
            self._sweep = None
        return True

    def _propose(self) -> bool:
        if self._proposed or not self.wants_to_sweep:
            return False
        available = min([source.available for source in self._sources], default=NEVER)
        needed = self.lower + 1 if self._started else max(self.lower + 1, self._first_target)
        if available < needed:
            return self._demand_of_sources(needed)
        since = 0 if self._started else max((source.since for source in self._sources), default=0)
        self._proposed = True
        lasts = [source.last for source in self._sources]
        changes = [(source.has_changes, source.has_changes_after_start) for source in self._sources]
        proposal = available, since, lasts, changes
        self._send_all(PROPOSALS, self.sweeps, [proposal] * self.workers)
        return True

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
        available, since, lasts, changes = zip(*proposals.values(), strict=True)
        target = min(available)
        if not self._started:
            self._start(max(since))
        self.sweeps += 1
        self._proposed = False
        if target > self.lower:
            self._set_signals(_on_any_worker(changes))
            self._sweep = self._sweeping(target, [max(epochs) for epochs in zip(*lasts, strict=True)])
        return True

    def _start(self, epoch: int) -> None:
        self._started = True
        self.start = self.lower = epoch
        for source in self._sources:
            source.start(epoch)

    def _sweeping(self, target: int, lasts: list[int]) -> Iterator[object]:
        """A sweep up to `target`; `lasts` are the epochs from which on the sources do not change, on all workers."""
        yield from self._root.visit_reached(Span(self.lower, target, starts=self.lower == self.start))
        for source, last in zip(self._sources, lasts, strict=True):
            source.out.closed = target >= last
        self._maintainer.complete(target)
        for forget in self._forgets:
            forget(target)
        for clear in self._clears:
            clear()  # the changes of a visit must not stay in memory until the next sweep
        self.reader.forget(target)
        for reader in self.error_readers:
            reader.forget(target - 1)
        if self.errors.changed_since(self.lower):
            self._demand_of_importers(target)
        self.lower = target
        waiters, self._waiters = self._waiters, []
        for flow in waiters:
            flow.wake()

    def _demand_of_importers(self, epoch: int) -> None:
        """Have importers complete an epoch at which errors have changed, of which they are not told otherwise."""
        for flow in list(self._importers):
            flow.demand(epoch)
            flow._demand_of_importers(epoch)

    def merge_some(self, rows: int) -> bool:
        """In idle time, move up to about `rows` rows of a trace. Return whether there was any work."""
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
        self._sweep = None
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


def _on_any_worker(changes: Sequence[Sequence[tuple[bool, bool]]]) -> list[tuple[bool, bool]]:
    """For each source, whether some worker has changes, and whether some worker has changes after the start."""
    return [
        (any(now for now, _ in source), any(after_start for _, after_start in source))
        for source in zip(*changes, strict=True)
    ]
