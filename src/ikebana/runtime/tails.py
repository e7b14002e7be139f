"""Tails of sweeps: the last operators of a dataflow as a program, where few rows are left of a large change.

A change of many rows is processed by visits. Filters, joins and aggregates often leave a few hundred rows of a hundred
thousand, and most operators come after that. The *tail* of a sweep are the operators from some position on, the *cut*;
a program does their part. Its inputs are what the operators before the cut have written in the same sweep.

The cut follows from how many rows operators have written in earlier sweeps. Each worker proposes one, and the last one
proposed counts. If the program fails on some worker, all workers visit the operators of the tail, and the next sweeps
have no tail: twice as many each time it fails.

Contract: as for programs (`ikebana.runtime.program`); all workers do the same. Only a sweep of a single epoch, or of
several that count as one (`ikebana.operators.span`), can have a tail, and not the first sweep.

Cost: for each sweep by visits, a look at how many rows the operators have written; a program for each cut that occurs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from ikebana.encoding.lanes import Lane
from ikebana.operators.arrange import Maintainer
from ikebana.operators.arrangement_views import ViewOperator
from ikebana.operators.changes import Changes
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Output
from ikebana.operators.sources import ImportedArrangement
from ikebana.operators.span import NEVER
from ikebana.operators.streams import Arranged, Stream
from ikebana.plan.scopes import AnyOperator, LoopScope, Scope, read_by
from ikebana.runtime import program as programs
from ikebana.runtime.program import Program
from ikebana.runtime.workspaces import Workspaces
from ikebana.trace.batch import StoredBatch
from ikebana.trace.views import Advanced

FEW_ROWS = 1 << 11
"""Operators that read and write at most this many rows may be in the tail."""

LEAST_OPERATORS = 4
"""A shorter tail gains nothing."""

KEPT = 0.5
"""How much an earlier number of rows counts after a sweep with fewer."""

MOST_SKIPPED = 256
"""The greatest number of sweeps without a tail after one that has failed."""


class Tail(NamedTuple):
    """The end of a sweep: the operators from the cut on, and the program that does them."""

    cut: int
    positions: range
    program: Program


class Tails:
    """The tails of the sweeps of a dataflow on one worker."""

    def __init__(self, root: Scope, maintainer: Maintainer, workers: int, workspaces: Workspaces) -> None:
        """`root` has the operators, of which `maintainer` maintains the result."""
        self._items, self._maintainer = root.items, maintainer
        self._workers, self._workspaces = workers, workspaces
        self._rows = [0.0] * len(self._items)  # that each operator has written, or more
        self._first_small = len(self._items)  # the least position from which on all operators have few rows
        self._tails: dict[int, Tail | None] = {}  # by proposed cut; None if there can be none
        self._skipped = self._to_skip = 0  # sweeps without a tail since the last one that has failed, and how many

    # Choosing a cut.

    @property
    def cut(self) -> int:
        """The cut that this worker proposes for the next sweep; the number of operators if there should be no tail."""
        if programs.FUSE not in ("small", "always") or self._skipped < self._to_skip:
            return len(self._items)
        return self._first_small

    def observe(self, tail: Tail | None = None, *, is_done: bool = False) -> None:
        """Note how many rows the operators that were visited in this sweep have written, and whether a tail `is_done`,
        on all workers."""
        if tail is None:
            self._skipped += 1
        else:
            self._skipped = 0
            self._to_skip = 0 if is_done else min(2 * self._to_skip + 1, MOST_SKIPPED)
        visited = tail.cut if tail is not None and is_done else len(self._items)
        for position, item in enumerate(self._items[:visited]):
            self._rows[position] = max(sum(map(_rows_of, _outputs(item))), KEPT * self._rows[position])
        self._first_small = self._least_small_position()

    def _least_small_position(self) -> int:
        """The least position from which on all operators read and write few rows."""
        items, rows = self._items, self._rows
        large = {id(out) for item, many in zip(items, rows, strict=True) if many > FEW_ROWS for out in _outputs(item)}
        position = len(items)
        while position and rows[position - 1] <= FEW_ROWS and not large & self._read[position - 1]:
            position -= 1
        return position

    @cached_property
    def _read(self) -> list[set[int]]:
        """The identities of what the operators read."""
        return [set(map(id, read_by([item]))) for item in self._items]

    # Programs.

    def from_cut(self, cut: int) -> Tail | None:
        """The longest tail that begins at a cut or after it, and can be written as a program."""
        if cut > len(self._items) - LEAST_OPERATORS:
            return None
        if cut not in self._tails:
            self._tails[cut] = self._written(cut) or self.from_cut(cut + 1)
        return self._tails[cut]

    def _written(self, cut: int) -> Tail | None:
        """The operators from a cut on as a program, if all of them can be written."""
        builder = ProgramBuilder(self._workers)
        head, tail = self._items[:cut], self._items[cut:]
        if self._maintainer not in tail or not _declared(builder, head, tail):
            return None
        if not all(builder.try_lower(item, cut + at) for at, item in enumerate(tail)) or not builder.inputs:
            return None
        result = builder.arranged(self._maintainer.out)
        program = Program(builder, result, self._maintainer.trace, self._workspaces)
        return Tail(cut, range(cut, len(self._items)), program)

    def drop(self) -> None:
        """Release all programs, and the traces that they read and write."""
        for tail in set(self._tails.values()):
            if tail is not None:
                tail.program.drop()
        self._tails.clear()


def _outputs(item: AnyOperator) -> Sequence[Output]:
    """What an operator writes, or a loop."""
    if isinstance(item, LoopScope):
        return [leave.out for leave in item.leaves]
    return () if item.out is None else (item.out,)


def _rows_of(output: Output) -> int:
    """The number of rows of a visit."""
    return sum(map(len, output.parts if isinstance(output, Stream) else output.fresh))


# What the tail reads of the operators before the cut.


def _declared(builder: ProgramBuilder, head: Sequence[AnyOperator], tail: Sequence[AnyOperator]) -> bool:
    """Declare what operators before the cut have written for those after it; return whether programs can read that."""
    needed = _needed(head, tail)
    for position, item in enumerate(head):
        if isinstance(item, ViewOperator):
            if id(item.out) in needed and not builder.try_lower(item, position):
                return False
            continue
        for output in _outputs(item):
            if id(output) in needed and not _declared_input(builder, item, output):
                return False
    return True


def _needed(head: Sequence[AnyOperator], tail: Iterable[AnyOperator]) -> set[int]:
    """The identities of the outputs that the tail reads, directly or through views of arrangements."""
    needed = set(map(id, read_by(tail)))
    for item in reversed(head):
        if isinstance(item, ViewOperator) and id(item.out) in needed:
            needed.update(map(id, read_by([item])))
    return needed


def _declared_input(builder: ProgramBuilder, item: AnyOperator, output: Output) -> bool:
    if isinstance(output, Stream):
        return builder.write_input(StreamInput(output), output)
    if isinstance(item, Maintainer | ImportedArrangement):
        return builder.write_imported(ArrangedInput(output), output, item.trace)
    return False


class StreamInput:
    """The changes of a stream that an operator has written in this sweep, as a program reads them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def next_change(self) -> int:
        return NEVER

    def load(self, epoch: int) -> Sequence[Changes] | None:
        parts = self._stream.parts
        return parts if all([_is_at(part.times, epoch) for part in parts]) else None

    def loaded(self, epoch: int) -> None: ...


class ArrangedInput:
    """The same for the batches of an arrangement."""

    def __init__(self, arranged: Arranged) -> None:
        self._arranged = arranged

    def next_change(self) -> int:
        return NEVER

    def load(self, epoch: int) -> Sequence[StoredBatch] | None:
        batches = [batch.batch if isinstance(batch, Advanced) else batch for batch in self._arranged.fresh]
        stored = [batch for batch in batches if isinstance(batch, StoredBatch) and _is_at(batch.times, epoch)]
        return stored if len(stored) == len(batches) and not self._arranged.replayed else None

    def loaded(self, epoch: int) -> None: ...


def _is_at(times: Lane, epoch: int) -> bool:
    """Whether a table of times has only the time of an epoch, outside loops."""
    return len(times) == 1 and int(times[0, 0]) == epoch
