"""Scopes: the operators of a dataflow in the order of their visits, and the loops among them.

A dataflow is a `Scope`. A loop is a `LoopScope`: an operator in the scope around it, with a scope of its own inside.

Contract. Every operator comes after the operators that it reads from. Outside loops, an operator is visited only in
sweeps in which changes can reach it (`ikebana.plan.reachability`). A loop visits all its operators, round by round,
until no worker has work left at a later round; rounds without work on any worker are skipped. After `STEP_SECONDS`
others may run, so that messages do not wait for a whole sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from time import perf_counter

from ikebana.operators.arrangement_views import ViewOperator
from ikebana.operators.loops import Leave
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Operator, Output, Steps
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, Stream
from ikebana.plan.reachability import Signal

AnyOperator = Operator[Output | None]

AgreeOnRound = Callable[[int | None], Generator[object, None, int | None]]
"""Given the next round at which this worker has work, the least of those of all workers; None where there is none."""


STEP_SECONDS = 0.001
"""How long operators are visited before messages are looked at, unless a single operator takes longer."""


class Scope:
    """Operators in the order in which they are visited, each with the signal that says whether changes can reach it."""

    def __init__(self) -> None:
        self.items: list[AnyOperator] = []
        self._signals: list[Signal] = []

    def append(self, operator: AnyOperator, signal: Signal) -> None:
        """Add an operator, or a loop, that reads from the operators added before it."""
        self.items.append(operator)
        self._signals.append(signal)

    def visit_all(self, span: Span) -> Steps:
        """Visit every operator."""
        return _visit(self.items, span)

    def visit_reached(self, span: Span, skipped: Collection[int] = ()) -> Steps:
        """Visit the operators that changes can reach; the others have nothing to do, on any worker.

        Those at the positions `skipped` are not visited: a program has done that.
        """
        reached = [
            operator
            for position, (operator, signal) in enumerate(zip(self.items, self._signals, strict=True))
            if signal.now and position not in skipped
        ]
        return _visit(reached, span)

    def reached(self) -> list[bool]:
        """For each operator, whether changes can reach it in this sweep, on any worker."""
        return [signal.now for signal in self._signals]

    def ever_reached(self) -> int:
        """The number of operators that changes have ever reached."""
        return sum([signal.ever for signal in self._signals])

    def operators(self) -> Iterator[AnyOperator]:
        """All operators, with those inside loops instead of the loops."""
        for item in self.items:
            if isinstance(item, LoopScope):
                yield from item.operators()
            else:
                yield item

    def readers(self, output: Output) -> list[int]:
        """The positions of the items that read an output, directly or through views of it, which do not count."""
        seen, readers = [output], list[int]()
        for position, item in enumerate(self.items):
            if any(read is one for read in read_by([item]) for one in seen):
                if isinstance(item, ViewOperator):
                    seen.append(item.out)
                else:
                    readers.append(position)
        return readers


def _visit(operators: Iterable[AnyOperator], span: Span) -> Steps:
    """Visit operators in order."""
    resumed = perf_counter()
    for operator in operators:
        steps = operator.visit(span)
        if steps is not None:
            yield from steps
        if perf_counter() - resumed > STEP_SECONDS:
            yield None
            resumed = perf_counter()


class LoopScope(Scope, Operator[None]):
    """A loop: visits its operators round by round until no worker has work left."""

    out = None

    def __init__(self, agree: AgreeOnRound) -> None:
        super().__init__()
        self._agree = agree
        self.leaves: list[Leave] = []

    def visit(self, span: Span) -> Steps:
        round_: int | None = 0
        while round_ is not None:
            yield from self.visit_all(span.enter(round_))
            round_ = yield from self._agree(self.next_round(span.rounds, round_))
        for leave in self.leaves:
            leave.close()

    def lower(self, program: ProgramBuilder) -> bool:
        return program.loop(self.items)

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        rounds = (operator.next_round(prefix, after) for operator in self.items)
        return min((round_ for round_ in rounds if round_ is not None), default=None)


def read_by(items: Iterable[AnyOperator]) -> list[Output]:
    """What items read from others: what their operators refer to, but do not write themselves."""
    inner = [part for item in items for part in (item.operators() if isinstance(item, LoopScope) else (item,))]
    referred: dict[int, Output] = {}
    for operator in inner:
        for value in vars(operator).values():
            for output in value if isinstance(value, tuple | list) else (value,):
                if isinstance(output, Stream | Arranged):
                    referred[id(output)] = output
    own = {id(operator.out) for operator in inner}
    return [output for key, output in referred.items() if key not in own]
