"""The operator protocol: everything that a dataflow asks of its operators.

A dataflow (`ikebana.runtime.dataflow`) advances in sweeps. A sweep calls, on operators in topological order:

    visit(span)                 read what the inputs hold for this visit, and write `out`
    next_round(prefix, after)   inside loops, after each round: the next round at which the operator has work
    lower(program)              describe what visits do as instructions of a program, which small sweeps run instead
    forget(epoch)               once the sweep is complete: no time before `epoch` will occur again

An operator outside loops is visited at most once in a sweep, one inside a loop once in each round. `drop` is called
once, when the dataflow is dropped or has failed. `merge_some` is called in idle time, also during a sweep.

| class | is | adds |
|---|---|---|
| `Operator` | every operator; also a loop (`ikebana.plan.scopes`) | |
| `Source` | an operator without inputs | what the dataflow needs to know to start a sweep |
| `Maintainer` (`ikebana.operators.arrange`) | an operator that writes a trace of its own | `complete` |

Contract. `visit` sets everything that `out` holds for the visit; an operator that is not visited has an empty output,
since the dataflow clears all outputs after a sweep. `forget` also sets `out.closed`; the outputs of sources are closed
by the dataflow. Between visits an operator holds no data but its state and what waits for a later round.

Cost: one call of `visit` for each operator that changes can reach, one of `forget` for each operator and sweep, one of
`next_round` for each operator in a loop and round. The defaults below do nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from ikebana.operators.program import ProgramBuilder
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, Stream

Output: TypeAlias = Stream | Arranged
"""What operators read from each other."""

Steps: TypeAlias = Iterator[object]
"""The rest of a visit, as a coroutine: it yields where other dataflows may run, and while it waits for peers."""

OutT = TypeVar("OutT", bound="Output | None", covariant=True)


class Operator(ABC, Generic[OutT]):
    """An operator of a dataflow, on one worker."""

    out: OutT
    """What the operator writes; None if no other operator reads from it."""

    @abstractmethod
    def visit(self, span: Span) -> Steps | None:
        """Process the changes of a visit.

        Return None if that is done, or the steps that do it. Operators that never pause return None, because creating
        and running a coroutine costs more than many of them need for a small change.
        """

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        """The least round later than `after` at which the operator has work, in the loop that `prefix` leads to."""
        return None

    def forget(self, epoch: int) -> None:
        """Note that all epochs before `epoch` are complete; release what only they needed."""

    def lower(self, program: ProgramBuilder) -> bool:
        """Write the operator as instructions of a program; return whether that is possible."""
        return False

    def drop(self) -> None:
        """Release all traces."""

    def merge_some(self, rows: int) -> bool:
        """In idle time, move up to about `rows` rows of the operator's trace. Return whether there was any work."""
        return False

    @property
    def nbytes(self) -> int:
        """The bytes of the arrangement that the operator maintains."""
        return 0

    @property
    def mapped_bytes(self) -> int:
        """How many of these bytes are in mapped files."""
        return 0


class Source(Operator[OutT]):
    """An operator without inputs: where changes enter a dataflow.

    The properties describe this worker's share of the source. A dataflow combines those of all workers.
    """

    @property
    @abstractmethod
    def available(self) -> int:
        """All changes at epochs before this one are here, and can be swept."""

    @property
    @abstractmethod
    def last(self) -> int:
        """The epoch from which on the source has no more changes; `NEVER` if that is not known."""

    @property
    @abstractmethod
    def has_changes(self) -> bool:
        """Whether there are changes that no sweep has processed, at epochs before `available`."""

    @property
    @abstractmethod
    def has_changes_after_start(self) -> bool:
        """Whether some of these changes may be later than the epoch at which the dataflow starts."""

    @property
    def waiting_rows(self) -> int:
        """How many rows wait for a sweep, as far as is known."""
        return 0

    @property
    def since(self) -> int:
        """The least epoch at which a dataflow that reads this source can start."""
        return 0

    def known_upper(self) -> int:
        """The epoch before which there are no changes that are not here, as far as is known: `available`, or later."""
        return self.available

    def start(self, epoch: int) -> None:
        """The dataflow starts at `epoch`: earlier changes count as changes at that epoch."""

    def demand(self, epoch: int) -> bool:
        """Ask for all epochs before `epoch` to become available; return whether that is a new request."""
        return False
