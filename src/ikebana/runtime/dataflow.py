"""A dataflow on one worker: its operators, its frontier, and the sweeps that advance it.

Synchronous inside: a sweep takes the dataflow from epoch `lower` to a target on all workers, visiting
operators in topological order. Asynchronous outside: a sweep is a coroutine that yields while it waits for
peers and after each quantum of work.

Starting a sweep. A worker proposes one when it has something new, when it is asked to by a demand, or when a peer
has proposed one; its proposal says up to which epoch it could go. When all have proposed, the target is the least of
these. It also says from which epoch on each source will not change any more: one is closed when all workers have
said so and the sweep has come that far. And it says which sources have changes: operators that these cannot reach
(`ikebana.plan.reachability`) are not visited, and exchange nothing. So a dataflow whose inputs do not change does
nothing at all, however many epochs pass: its frontier moves when somebody asks.

Between sweeps a dataflow sleeps until it is woken: by a batch in a trace that it imports, a letter, or a demand.

Errors. Rows for which an expression has no value are left out, and logged (`ikebana.operators.row_errors`). What the
dataflow imports may lack such rows too: its result is exact where neither it nor any of these has errors.

Starting a dataflow. The first proposals also carry the epochs since which the imported traces are exact; the
dataflow starts at the latest of them, on all workers alike. One that reads nothing but constants completes all epochs
in its first sweep, and rests for ever.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from ikebana.operators import sources
from ikebana.operators.arrange_stream import Exchange, Parts
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import Span
from ikebana.operators.streams import TraceReader
from ikebana.plan import ir
from ikebana.plan.render import Renderer
from ikebana.runtime.messages import FIRST_EXCHANGE, PROPOSALS, ROUNDS, DataflowMessage

WAITING = object()
"""What a sweep yields while it waits for peers; anything else means that it could go on."""


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
    ) -> None:
        """`is_placed`: what the plan arranges is with its owners already, as the rows of tables are.

        `memory` is how many bytes it may use here, if not as many as others (`ikebana.runtime.memory_budget`).
        """
        self._is_placed, self.memory = is_placed, memory
        self.unmeasured = 0.0  # seconds of work since memory was looked at
        self.in_hand = 0  # bytes by which the process has grown in this sweep
        self.kept_bytes = 0  # of what it had arranged before, when that was last looked at
        self.name, self.plan, self.worker, self.workers, self.effort = name, plan, worker, workers, effort
        self._send, self._find, self._find_input, self.wake = send, find, find_input, wake
        self._waiters: list[Dataflow] = []
        self.imported: list[Dataflow] = []
        self._importers: weakref.WeakSet[Dataflow] = weakref.WeakSet()
        self.errors = ErrorLog()
        self.error_readers = [self.errors.reader()]
        """Of its own errors, and of those of all that it imports, directly or not."""
        self._inbox: dict[tuple[int, int], dict[int, Any]] = {}
        self._channels, self._rounds = itertools.count(FIRST_EXCHANGE), itertools.count()
        self.start, self.lower, self.demanded, self.sweeps = 0, 0, 0, 0
        self._started = self._proposed = False
        self._sweep: Iterator[object] | None = None
        self._blocked = False
        renderer = Renderer(self)
        self.result = renderer.wire(plan)
        self._root, self._sources, self._signal = renderer.root, renderer.sources, renderer.signal
        self.reader: TraceReader = self.result.reader()
        operators = list(self._root.operators())
        self._complete = next(each.complete for each in operators if getattr(each, "out", None) is self.result)
        self._forgets = [each.forget for each in operators if hasattr(each, "forget")]
        self._clears = [each.out.clear for each in operators if hasattr(each, "out")]

    # What the renderer asks for (`ikebana.plan.render.Wiring`).

    def exchange(self, node: ir.Node) -> Exchange | None:
        if self.workers == 1 or (node is self.plan and self._is_placed):
            return None
        channel, numbers = next(self._channels), itertools.count()

        def run(parts: Parts) -> Generator[object, None, Parts]:
            return (yield from self._all_to_all(channel, next(numbers), parts))

        return run

    def agree(self, round_: int | None) -> Generator[object, None, int | None]:
        if self.workers == 1:
            return round_
        found = yield from self._all_to_all(ROUNDS, next(self._rounds), [round_] * self.workers)
        return min((each for each in found if each is not None), default=None)

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
        """Somebody wants the epochs before `epoch` complete, and to be woken then; returns whether that is new."""
        if waiter is not None and waiter not in self._waiters:
            self._waiters.append(waiter)
        if epoch <= self.demanded:
            return False
        self.demanded = epoch
        self.wake()
        return True

    def deliver(self, message: DataflowMessage) -> None:
        """A message from a peer."""
        self._inbox.setdefault((message.channel, message.number), {})[message.sender] = message.body
        self._blocked = False
        self.wake()

    def step(self) -> bool:
        """Go on by one quantum; returns whether anything was done. If not, it will not be until it is woken."""
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
        if self._proposed:
            return False
        news = [source.has_news for source in self._sources]
        starts = not self._started and bool(self.imported)
        asked = self.demanded > self.lower or (PROPOSALS, self.sweeps) in self._inbox
        if not (starts or asked or any(news)):
            return False
        available = min([source.available for source in self._sources], default=sources.NEVER)
        if available <= self.lower:
            return self._pass_on_demand()
        since = 0 if self._started else max((getattr(s, "since", 0) for s in self._sources), default=0)
        self._proposed = True
        later = [source.has_later_news for source in self._sources]
        proposal = available, since, [source.last for source in self._sources], list(zip(news, later, strict=True))
        self._tell_all(PROPOSALS, self.sweeps, [proposal] * self.workers)
        return True

    def _pass_on_demand(self) -> bool:
        """Ask the maintainers of imported arrangements to catch up with what is wanted here."""
        ahead = [source.available for source in self._sources if self.lower < source.available < sources.NEVER]
        wanted = max([self.lower + 1, self.demanded, *ahead])
        behind = [s for s in self._sources if isinstance(s, sources.ImportedArrangement) and s.available <= self.lower]
        return any([source.demand(wanted) for source in behind])

    def _begin(self) -> bool:
        proposals = self._inbox.get((PROPOSALS, self.sweeps), {})
        if not self._proposed or len(proposals) < self.workers:
            return False
        del self._inbox[PROPOSALS, self.sweeps]
        available, since, lasts, news = zip(*proposals.values(), strict=True)
        target = min(available)
        if not self._started:
            self._start(max(since))
        self.sweeps += 1
        self._proposed = False
        if target > self.lower:
            self._signal(_on_any(news))
            self._sweep = self._sweeping(target, [max(each) for each in zip(*lasts, strict=True)])
        return True

    def _start(self, epoch: int) -> None:
        self._started = True
        self.start = self.lower = epoch
        for source in self._sources:
            if isinstance(source, sources.ImportedArrangement):
                source.start(epoch)

    def _sweeping(self, target: int, lasts: list[int]) -> Iterator[object]:
        yield from self._root.visit_reached(Span(self.lower, target, starts=self.lower == self.start))
        for source, last in zip(self._sources, lasts, strict=True):
            source.out.closed = target >= last
        self._complete(target)
        for forget in self._forgets:
            forget(target)
        for clear in self._clears:
            clear()  # what flowed by is not to be kept until the next sweep
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
        """Have those complete an epoch who are told of no change by what they import, but whose errors have changed."""
        for flow in list(self._importers):
            flow.demand(epoch)
            flow._demand_of_importers(epoch)

    @property
    def own_bytes(self) -> int:
        """The bytes of all that it arranges."""
        return self.inner_bytes + self.reader.nbytes

    @property
    def is_sweeping(self) -> bool:
        """Whether it is in the middle of a sweep."""
        return self._sweep is not None

    @property
    def inner_bytes(self) -> int:
        """The bytes of what is arranged on the way to the result, here and for nobody else."""
        return sum(
            each.nbytes for each in self._root.operators() if hasattr(each, "nbytes") and each.out is not self.result
        )

    def drop(self) -> None:
        """Release everything that only this dataflow holds."""
        self._sweep = None
        for operator in self._root.operators():
            if hasattr(operator, "drop"):
                operator.drop()
        self.reader.drop()

    # Messages.

    def _tell_all(self, channel: int, number: int, parts: list[Any]) -> None:
        for peer, part in enumerate(parts):
            if peer != self.worker:
                self._send(peer, DataflowMessage(self.name, channel, number, self.worker, part))
        self._inbox.setdefault((channel, number), {})[self.worker] = parts[self.worker]

    def _all_to_all(self, channel: int, number: int, parts: list[Any]) -> Generator[object, None, list[Any]]:
        self._tell_all(channel, number, parts)
        while len(self._inbox[channel, number]) < self.workers:
            yield WAITING
        received = self._inbox.pop((channel, number))
        return [received[worker] for worker in range(self.workers)]


def _on_any(news: Sequence[Sequence[tuple[bool, bool]]]) -> list[tuple[bool, bool]]:
    """Of each source, whether there are changes, and later ones, on any worker."""
    return [(any(now for now, _ in each), any(later for _, later in each)) for each in zip(*news, strict=True)]
