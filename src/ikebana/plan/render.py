"""The renderer: a plan becomes operators, inside each worker.

Each node is rendered once, so that what is used twice is computed once. Outside loops an operator is visited only in
sweeps in which changes can reach it (`ikebana.plan.reachability`). Operators are added to the scope
they belong to in an order in which every operator comes after those it reads. Arrangements that the
catalogue has are imported rather than built; `Wiring` says how, and how to exchange messages: rendering
itself knows nothing about workers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Protocol

from ikebana.operators import arrange_stream, linear, loops, sources
from ikebana.operators.arrange_stream import Exchange
from ikebana.operators.arrangement_views import ViewOperator
from ikebana.operators.expire import Expire
from ikebana.operators.join import Join
from ikebana.operators.lookup import Lookup
from ikebana.operators.pending import Rounds
from ikebana.operators.reduce import Reduce
from ikebana.operators.reduce_sums import ReduceSums, can_reduce_sums
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import Span
from ikebana.operators.streams import Arranged, Stream
from ikebana.plan import ir, reachability
from ikebana.plan.sharing import is_only_indexed


class Wiring(Protocol):
    """What a rendered dataflow needs from its worker."""

    worker: int
    workers: int
    effort: str
    errors: ErrorLog

    def exchange(self, node: ir.Node) -> Exchange | None:
        """A new channel to the peers; None where there are none, or where the rows are with their owners already."""
        ...

    def agree(self, round_: int | None) -> Generator[object, None, int | None]:
        """The least round that any worker still has to visit."""
        ...

    def shared(self, node: ir.Node) -> sources.ImportedArrangement | None:
        """An import of the node's arrangement, if another dataflow maintains it."""
        ...

    def input(self, node: ir.Source) -> sources.InputSource | ir.Node:
        """The input of that name, or the arrangement in which its changes are kept for everybody."""
        ...


class Scope:
    """Operators in the order in which they are visited, and what says whether each of them has to be."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._signals: list[reachability.Signal] = []

    def append(self, item: Any, signal: reachability.Signal) -> None:
        """One more operator, or loop."""
        self.items.append(item)
        self._signals.append(signal)

    def visit_items(self, span: Span) -> Iterator[object]:
        """Visit all."""
        for item in self.items:
            steps = item.visit(span)
            if steps is not None:
                yield from steps

    def visit_reached(self, span: Span) -> Iterator[object]:
        """Visit those that changes can reach: the others have nothing to do, on no worker."""
        for item, signal in zip(self.items, self._signals, strict=True):
            if signal.now:
                steps = item.visit(span)
                if steps is not None:
                    yield from steps

    def operators(self) -> Iterator[Any]:
        """All operators, those of inner loops included."""
        for item in self.items:
            if isinstance(item, LoopScope):
                yield from item.operators()
            else:
                yield item


class LoopScope(Scope):
    """A loop: visits its operators round by round until no worker has work left."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self._wiring = wiring
        self.leaves: list[loops.Leave] = []

    def visit(self, span: Span) -> Iterator[object]:
        round_: int | None = 0
        while round_ is not None:
            yield from self.visit_items(span.enter(round_))
            round_ = yield from self._wiring.agree(self.next_round(span.rounds, round_))
        for leave in self.leaves:
            leave.close()

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        """The least later round at which an operator in the loop has work."""
        asked = (item.next_round(prefix, after) for item in self.items if hasattr(item, "next_round"))
        return min((each for each in asked if each is not None), default=None)


class Renderer:
    """Renders the nodes of one dataflow."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self.root = Scope()
        self._scopes: dict[ir.Scope, Scope] = {(): self.root}
        self._done: dict[str, Any] = {}
        self._variables: dict[str, loops.Variable] = {}
        self._signals: dict[str, reachability.Signal] = {}
        self._derived: list[reachability.Signal] = []  # each after those it is made of
        self._inputs: dict[str, sources.InputSource | ir.Node] = {}
        self._of_sources: list[reachability.Signal] = []
        self.sources: list[Any] = []

    def stream(self, node: ir.Node) -> Stream:
        """The stream of a node; that of an arrangement's changes if it gives an arrangement."""
        wire = self.wire(node)
        return wire if isinstance(wire, Stream) else self.wire(ir.make(ir.AsStream, source=node))

    def wire(self, node: ir.Node) -> Any:
        """The stream or arrangement of a node, rendering whatever it needs."""
        if node.digest not in self._done:
            self._done[node.digest] = getattr(self, f"_{type(node).__name__.lower()}")(node)
        return self._done[node.digest]

    def signal(self, news: Sequence[tuple[bool, bool]]) -> None:
        """A new sweep: whether each source has changes, and later ones, on any worker."""
        for signal, (now, later) in zip(self._of_sources, news, strict=True):
            signal.set(now, later)
        for signal in self._derived:
            signal.update()

    def _add(self, node: ir.Node, operator: Any) -> Any:
        self._scopes[node.scope].append(operator, self._signal_of(node))
        return operator.out

    def _add_source(self, node: ir.Node, source: Any) -> Any:
        signal = self._signals[node.digest] = reachability.Signal()
        self._of_sources.append(signal)
        self.sources.append(source)
        return self._add(node, source)

    def _signal_of(self, node: ir.Node) -> reachability.Signal:
        """The signal of a node whose inputs have been rendered."""
        found = self._signals.get(node.digest)
        if found is None:
            found = self._signals[node.digest] = self._new_signal(node)
        return found

    def _new_signal(self, node: ir.Node) -> reachability.Signal:
        inputs = list(dict.fromkeys(self._signal_of(each) for each in node.inputs))
        assert inputs, "a source that was not rendered"
        made: reachability.Signal
        match node:
            case ir.AfterStart():
                made = reachability.Later(inputs[0])
            case ir.Lookup() if not node.scope:
                made = reachability.Probe(self._signal_of(node.source), self._signal_of(node.index))
            case ir.Join() if not node.scope:
                made = reachability.Both(self._signal_of(node.left), self._signal_of(node.right))
            case _ if len(inputs) == 1:
                return inputs[0]
            case _:
                made = reachability.Any(inputs)
        self._derived.append(made)
        return made

    def _input(self, node: ir.Source) -> sources.InputSource | ir.Node:
        """What the worker has for a source: asked for once, since a new input takes the place of the one before."""
        if node.digest not in self._inputs:
            self._inputs[node.digest] = self._wiring.input(node)
        return self._inputs[node.digest]

    def _source(self, node: ir.Source) -> Stream:
        found = self._input(node)
        if isinstance(found, ir.Node):
            kept = self.stream(found)
            self._signals[node.digest] = self._signal_of(found)
            return self._in_order(node, kept)
        return self._add_source(node, found)

    def _constant(self, node: ir.Constant) -> Stream:
        first, last = (node.rows * at // self._wiring.workers for at in (self._wiring.worker, self._wiring.worker + 1))
        arrays = [array.slice(first, last - first) for array in node.arrays]
        return self._add_source(node, sources.ConstantSource(node.fields, arrays, last - first))

    def _in_order(self, node: ir.Source | ir.AfterStart, kept: Stream) -> Stream:
        """The columns as they were declared: an index has those of its key first."""
        if kept.fields == node.columns:
            return kept
        select = linear.Select(tuple((field.name, field.name) for field in node.columns))
        return self._add(node, linear.Linear(kept, [select], 1, self._wiring.errors))

    def _steps(self, node: ir.Steps) -> Stream:
        return self._add(
            node, linear.Linear(self.stream(node.source), node.steps, node.diff_lanes, self._wiring.errors)
        )

    def _union(self, node: ir.Union) -> Stream:
        return self._add(node, linear.Concat([self.stream(source) for source in node.sources]))

    def _arrange(self, node: ir.Arrange) -> Arranged:
        shared = self._wiring.shared(node)
        if shared is not None:
            return self._add_source(node, shared)
        operator = arrange_stream.ArrangeStream(
            self.stream(node.source),
            node.schema,
            name=f"by {', '.join(node.key)}",
            effort=self._wiring.effort,
            exchange=self._wiring.exchange(node),
            workers=self._wiring.workers,
        )
        return self._add(node, operator)

    def _arrangementview(self, node: ir.ArrangementView) -> Arranged:
        return self._add(node, ViewOperator(self.wire(node.source), node.wrapper, self._wiring.errors))

    def _asstream(self, node: ir.AsStream) -> Stream:
        return self._add(node, arrange_stream.AsStream(self.wire(node.source)))

    def _afterstart(self, node: ir.AfterStart) -> Stream:
        kept = node.source.source if isinstance(node.source, ir.AsStream) else node.source
        if isinstance(kept, ir.Source):
            found = self._input(kept)
            if isinstance(found, ir.Node):  # its history need not even be read
                index = self.wire(found)
                self._signals[kept.digest] = self._signal_of(found)
                return self._in_order(node, self._add(node, arrange_stream.AsStream(index, later=True)))
        if ir.is_arrangement(kept):
            return self._add(node, arrange_stream.AsStream(self.wire(kept), later=True))
        return self._add(node, linear.AfterStart(self.stream(node.source)))

    def _join(self, node: ir.Join) -> Stream:
        return self._add(node, Join(self.wire(node.left), self.wire(node.right), node.result))

    def _lookup(self, node: ir.Lookup) -> Stream:
        operator = Lookup(
            self.stream(node.source),
            self.wire(node.index),
            node.schema,
            node.result,
            strict=node.strict,
            exchange=self._wiring.exchange(node),
            workers=self._wiring.workers,
        )
        return self._add(node, operator)

    def _expire(self, node: ir.Expire) -> Stream:
        operator = Expire(
            self.stream(node.source),
            self.stream(node.clock),
            node.valid_from,
            node.valid_until,
            exchange=self._wiring.exchange(node),
            workers=self._wiring.workers,
        )
        return self._add(node, operator)

    def _reduce(self, node: ir.Reduce) -> Arranged:
        shared = self._wiring.shared(node)
        if shared is not None:
            return self._add_source(node, shared)
        source, logic = self.wire(node.source), node.reducer
        effort, errors = self._wiring.effort, self._wiring.errors
        if can_reduce_sums(logic, source):
            return self._add(node, ReduceSums(source, logic, errors, effort=effort))
        return self._add(node, Reduce(source, logic, errors, effort=effort))

    def _enter(self, node: ir.Enter) -> Any:
        wire = self.wire(node.source)
        return self._add(node, loops.Enter(wire) if isinstance(wire, Stream) else loops.EnterArranged(wire))

    def _enterat(self, node: ir.EnterAt) -> Stream:
        return self._add(node, loops.EnterAt(self.stream(node.source), node.delay, self._wiring.errors))

    def _loopvariable(self, node: ir.LoopVariable) -> Stream:
        dimensions = 1 + len(node.scope)
        variable = loops.Variable(node.columns, dimensions, node.lanes)
        self._variables[node.digest] = variable
        initial = self.stream(node.initial)
        recurring = self._add(node, variable)
        concat = linear.Concat([initial, recurring])
        return self._add(node, concat)

    def _loop(self, node: ir.Loop) -> LoopScope:
        loop = LoopScope(self._wiring)
        self._scopes[(*node.scope, node.id)] = loop
        for variable, result in zip(node.variables, node.results, strict=True):
            self._bind(variable, result, loop, node)
        self._scopes[node.scope].append(loop, self._signal_of(node))
        return loop

    def _bind(self, variable: ir.LoopVariable, result: ir.Node, loop: LoopScope, node: ir.Loop) -> None:
        """Feed what the body makes of a variable, less its initial collection, back to it."""
        self.wire(variable)
        initial = linear.Linear(self.stream(variable.initial), [linear.Negate()], variable.lanes, self._wiring.errors)
        change = linear.Concat([self.stream(result), initial.out])
        indexed = is_only_indexed(variable, node)
        feedback = loops.Feedback(change.out, self._variables[variable.digest], node.rounds, indexed=indexed)
        for item in (initial, change, feedback):
            loop.append(item, self._signal_of(result))

    def _leave(self, node: ir.Leave) -> Stream:
        loop = self.wire(node.loop)
        leave = loops.Leave(self.stream(node.source))
        loop.append(leave, self._signal_of(node))
        loop.leaves.append(leave)
        return leave.out
