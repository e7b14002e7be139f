"""The renderer: a plan becomes operators, inside each worker.

`RENDERERS` maps each class of plan nodes (`ikebana.plan.ir`) to the method that renders it. Each node is rendered once,
so what is used twice is computed once. Operators are added to the scope that they belong to (`ikebana.plan.scopes`)
after the operators that they read from.

Arrangements that another dataflow maintains are imported rather than built. `RenderContext` finds them, and supplies
the exchanges between workers: rendering itself knows nothing about workers, but where rows need no exchange
(`ikebana.plan.placement`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from ikebana.encoding.spill_files import SpillFiles
from ikebana.operators import linear, loops, sources
from ikebana.operators.arrange import ArrangeStream, AsStream, Maintainer
from ikebana.operators.arrangement_views import ViewOperator
from ikebana.operators.exchange import Exchange
from ikebana.operators.expire import Expire
from ikebana.operators.extend import Extend, ExtensionIndex
from ikebana.operators.join import Join
from ikebana.operators.lookup import Lookup
from ikebana.operators.protocol import Operator, Output, Source
from ikebana.operators.reduce import Reduce, Reduction
from ikebana.operators.reduce_sums import ReduceSums, can_reduce_sums
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.streams import Arranged, Stream
from ikebana.plan import ir
from ikebana.plan.placement import PlacedNodes
from ikebana.plan.reachability import AfterStartSignal, AnySignal, JoinSignal, LookupSignal, Signal
from ikebana.plan.scopes import LoopScope, Scope
from ikebana.plan.sharing import is_only_indexed

OutT = TypeVar("OutT", bound=Output)


class RenderContext(Protocol):
    """What rendered operators need from the dataflow that they belong to, and from its worker."""

    worker: int
    workers: int
    effort: str
    spill: SpillFiles | None
    errors: ErrorLog

    def exchange(self, node: ir.Node) -> Exchange | None:
        """A new channel between workers; None for a single worker, and where the rows are with their owners already."""
        ...

    def agree(self, round_: int | None) -> Generator[object, None, int | None]:
        """The least of the rounds that all workers give; None if all give None."""
        ...

    def shared(self, node: ir.Node) -> sources.ImportedArrangement | None:
        """An import of the node's arrangement, if another dataflow maintains it."""
        ...

    def input(self, node: ir.Source) -> sources.InputSource | ir.Node:
        """The input that a source stands for, or the node of the shared arrangement that holds its rows."""
        ...


class Renderer:
    """Renders the nodes of one dataflow."""

    def __init__(self, context: RenderContext) -> None:
        self._context = context
        self.root = Scope()
        self.sources: list[Source[Output]] = []
        self._scopes: dict[ir.Scope, Scope] = {(): self.root}
        self._outputs: dict[str, Output] = {}  # this and all that follow by the digest of the node
        self._maintainers: dict[str, Maintainer] = {}
        self._loops: dict[str, LoopScope] = {}
        self._variables: dict[str, loops.Variable] = {}
        self._inputs: dict[str, sources.InputSource | ir.Node] = {}
        self._placed = PlacedNodes()
        self._signals: dict[str, Signal] = {}
        self._source_signals: list[Signal] = []
        self._derived_signals: list[Signal] = []  # each after the signals that it is derived from

    def maintainer(self, node: ir.Node) -> Maintainer:
        """The operator that maintains the arrangement of a stored node (`ir.is_stored`) in this dataflow."""
        self.output(node)
        return self._maintainers[node.digest]

    def output(self, node: ir.Node) -> Output:
        """The stream or arrangement of a node; renders the node, and the nodes that it reads, if need be."""
        if node.digest not in self._outputs:
            self._outputs[node.digest] = RENDERERS[type(node)](self, node)
        return self._outputs[node.digest]

    def stream(self, node: ir.Node) -> Stream:
        """The stream of a node; of an arrangement, the stream of its changes."""
        output = self.output(node)
        return output if isinstance(output, Stream) else self.stream(ir.make(ir.AsStream, source=node))

    def arranged(self, node: ir.Node) -> Arranged:
        """The arrangement of a node that gives one."""
        output = self.output(node)
        assert isinstance(output, Arranged), f"{type(node).__name__} gives no arrangement"
        return output

    # Operators and signals.

    def _add(self, node: ir.Node, operator: Operator[OutT]) -> OutT:
        self._scopes[node.scope].append(operator, self._signal_of(node))
        return operator.out

    def _add_source(self, node: ir.Node, source: Source[OutT]) -> OutT:
        signal = self._signals[node.digest] = Signal()
        self._source_signals.append(signal)
        self.sources.append(source)
        return self._add(node, source)

    def _add_maintainer(self, node: ir.Node, operator: Maintainer) -> Arranged:
        self._maintainers[node.digest] = operator
        return self._add(node, operator)

    def set_signals(self, changes: Sequence[tuple[bool, bool]]) -> None:
        """Prepare a sweep: for each source, whether any worker has changes, and whether any has changes after the
        start of the dataflow."""
        for signal, (now, after_start) in zip(self._source_signals, changes, strict=True):
            signal.set(now, after_start)
        for signal in self._derived_signals:
            signal.update()

    def _signal_of(self, node: ir.Node) -> Signal:
        """The signal of a node whose inputs have been rendered."""
        signal = self._signals.get(node.digest)
        if signal is None:
            signal = self._signals[node.digest] = self._new_signal(node)
        return signal

    def _new_signal(self, node: ir.Node) -> Signal:
        inputs = [self._signal_of(source) for source in node.inputs]
        assert inputs, "a source that was not rendered"
        signal: Signal
        if isinstance(node, ir.AfterStart):
            signal = AfterStartSignal(inputs[0])
        elif isinstance(node, ir.Lookup) and not node.scope:
            signal = LookupSignal(self._signal_of(node.source), self._signal_of(node.index))
        elif isinstance(node, ir.Extend):
            signal = LookupSignal(self._signal_of(node.source), *map(self._signal_of, node.indexes))
        elif isinstance(node, ir.Join) and not node.scope:
            signal = JoinSignal(self._signal_of(node.left), self._signal_of(node.right))
        elif all([other is inputs[0] for other in inputs]):
            return inputs[0]
        else:
            signal = AnySignal(list(dict.fromkeys(inputs)))
        self._derived_signals.append(signal)
        return signal

    # Sources.

    def _input(self, node: ir.Source) -> sources.InputSource | ir.Node:
        """What the worker has for a source. Asked for once: a new input would replace the previous one."""
        if node.digest not in self._inputs:
            self._inputs[node.digest] = self._context.input(node)
        return self._inputs[node.digest]

    def _source(self, node: ir.Source) -> Stream:
        source = self._input(node)
        if isinstance(source, ir.Node):
            stream = self.stream(source)
            self._signals[node.digest] = self._signal_of(source)
            return self._in_declared_order(node, stream)
        return self._add_source(node, source)

    def _constant(self, node: ir.Constant) -> Stream:
        """This worker's share of the rows."""
        worker, workers = self._context.worker, self._context.workers
        first, last = node.rows * worker // workers, node.rows * (worker + 1) // workers
        arrays = [array.slice(first, last - first) for array in node.arrays]
        return self._add_source(node, sources.ConstantSource(node.fields, arrays, last - first))

    def _in_declared_order(self, node: ir.Source | ir.AfterStart, stream: Stream) -> Stream:
        """The columns in the order of the node's declaration: an arrangement has its key columns first."""
        if stream.fields == node.columns:
            return stream
        select = linear.Select(tuple((field.name, field.name) for field in node.columns))
        stages = (stream.fields, node.columns)
        return self._add(node, linear.Linear(stream, [select], stages, 1, self._context.errors))

    # Streams.

    def _steps(self, node: ir.Steps) -> Stream:
        source = self.stream(node.source)
        return self._add(node, linear.Linear(source, node.steps, node.stages, node.diff_lanes, self._context.errors))

    def _union(self, node: ir.Union) -> Stream:
        return self._add(node, linear.Concat([self.stream(source) for source in node.sources]))

    def _as_stream(self, node: ir.AsStream) -> Stream:
        return self._add(node, AsStream(self.arranged(node.source)))

    def _after_start(self, node: ir.AfterStart) -> Stream:
        below = node.source.source if isinstance(node.source, ir.AsStream) else node.source
        if isinstance(below, ir.Source):
            source = self._input(below)
            if isinstance(source, ir.Node):  # an arrangement, whose history need not even be read
                arranged = self.arranged(source)
                self._signals[below.digest] = self._signal_of(source)
                return self._in_declared_order(node, self._add(node, AsStream(arranged, later=True)))
        if ir.is_arrangement(below):
            return self._add(node, AsStream(self.arranged(below), later=True))
        return self._add(node, linear.AfterStart(self.stream(node.source)))

    def _join(self, node: ir.Join) -> Stream:
        return self._add(node, Join(self.arranged(node.left), self.arranged(node.right), node.result, node.columns))

    def _lookup(self, node: ir.Lookup) -> Stream:
        operator = Lookup(
            self.stream(node.source),
            self.arranged(node.index),
            node.schema,
            node.result,
            strict=node.strict,
            exchange=self._exchange(node),
        )
        return self._add(node, operator)

    def _extend(self, node: ir.Extend) -> Stream:
        assert self._context.workers == 1, "with several workers, the plan has look-ups instead"
        indexes = [
            ExtensionIndex(self.arranged(index), on, strict, exists)
            for index, on, strict, exists in zip(node.indexes, node.keys, node.strict, node.exists, strict=True)
        ]
        return self._add(node, Extend(self.stream(node.source), indexes, node.value, node.columns))

    def _expire(self, node: ir.Expire) -> Stream:
        operator = Expire(
            self.stream(node.source),
            self.stream(node.clock),
            node.valid_from,
            node.valid_until,
            exchange=self._context.exchange(node),
        )
        return self._add(node, operator)

    def _exchange(self, node: ir.Arrange | ir.Lookup) -> Exchange | None:
        """The channel by which the rows of a node's source come to their owners; None if they are with them."""
        if self._context.workers > 1 and self._placed.is_placed(node.source, node.schema.key):
            return None
        return self._context.exchange(node)

    # Arrangements.

    def _arrange(self, node: ir.Arrange) -> Arranged:
        shared = self._context.shared(node)
        if shared is not None:
            return self._add_source(node, shared)
        operator = ArrangeStream(
            self.stream(node.source),
            node.schema,
            name=f"by {', '.join(node.key)}",
            effort=self._context.effort,
            spill=self._context.spill,
            exchange=self._exchange(node),
        )
        return self._add_maintainer(node, operator)

    def _reduce(self, node: ir.Reduce) -> Arranged:
        shared = self._context.shared(node)
        if shared is not None:
            return self._add_source(node, shared)
        source, reducer = self.arranged(node.source), node.reducer
        effort, spill, errors = self._context.effort, self._context.spill, self._context.errors
        operator: Reduction
        if can_reduce_sums(reducer, source):
            operator = ReduceSums(source, reducer, node.schema, errors, effort=effort, spill=spill)
        else:
            operator = Reduce(source, reducer, node.schema, errors, effort=effort, spill=spill)
        return self._add_maintainer(node, operator)

    def _arrangement_view(self, node: ir.ArrangementView) -> Arranged:
        return self._add(node, ViewOperator(self.arranged(node.source), node.wrapper, self._context.errors))

    # Loops.

    def _enter(self, node: ir.Enter) -> Output:
        source = self.output(node.source)
        if isinstance(source, Stream):
            return self._add(node, loops.Enter(source))
        return self._add(node, loops.EnterArranged(source))

    def _enter_at(self, node: ir.EnterAt) -> Stream:
        return self._add(node, loops.EnterAt(self.stream(node.source), node.delay, self._context.errors))

    def _loop_variable(self, node: ir.LoopVariable) -> Stream:
        variable = loops.Variable(node.columns, 1 + len(node.scope), node.lanes)
        self._variables[node.digest] = variable
        initial = self.stream(node.initial)
        recurring = self._add(node, variable)
        return self._add(node, linear.Concat([initial, recurring]))

    def _loop(self, node: ir.Loop) -> LoopScope:
        """The scope of a loop; it has no output of its own, but those of the `Leave` nodes that render it."""
        if node.digest not in self._loops:
            loop = self._loops[node.digest] = LoopScope(self._context.agree)
            self._scopes[(*node.scope, node.id)] = loop
            for variable, result in zip(node.variables, node.results, strict=True):
                self._bind(variable, result, loop, node)
            self._scopes[node.scope].append(loop, self._signal_of(node))
        return self._loops[node.digest]

    def _bind(self, variable: ir.LoopVariable, result: ir.Node, loop: LoopScope, node: ir.Loop) -> None:
        """Feed the body's result for a variable, less the variable's initial collection, back to the variable."""
        self.output(variable)
        given, errors = self.stream(variable.initial), self._context.errors
        initial = linear.Linear(given, [linear.Negate()], (given.fields, given.fields), variable.lanes, errors)
        change = linear.Concat([self.stream(result), initial.out])
        indexed = is_only_indexed(variable, node)
        feedback = loops.Feedback(change.out, self._variables[variable.digest], node.rounds, indexed=indexed)
        for operator in (initial, change, feedback):
            loop.append(operator, self._signal_of(result))

    def _leave(self, node: ir.Leave) -> Stream:
        loop = self._loop(node.loop)
        leave = loops.Leave(self.stream(node.source))
        loop.append(leave, self._signal_of(node))
        loop.leaves.append(leave)
        return leave.out


RENDERERS: dict[type[ir.Node], Callable[[Renderer, Any], Output]] = {
    ir.Source: Renderer._source,
    ir.Constant: Renderer._constant,
    ir.Steps: Renderer._steps,
    ir.Union: Renderer._union,
    ir.Arrange: Renderer._arrange,
    ir.ArrangementView: Renderer._arrangement_view,
    ir.AsStream: Renderer._as_stream,
    ir.AfterStart: Renderer._after_start,
    ir.Join: Renderer._join,
    ir.Lookup: Renderer._lookup,
    ir.Extend: Renderer._extend,
    ir.Expire: Renderer._expire,
    ir.Reduce: Renderer._reduce,
    ir.Enter: Renderer._enter,
    ir.EnterAt: Renderer._enter_at,
    ir.LoopVariable: Renderer._loop_variable,
    ir.Leave: Renderer._leave,
}
"""How each class of nodes is rendered. A `Loop` is rendered with the first of its `Leave` nodes."""
