"""Views of arrangements: filter, projection and negation that give an arrangement again.

Nothing is copied: readers see the batches of the source's trace through a view (`ikebana.trace.views`), and the user's
function is applied to the rows that are read. So queries with different filters can share the index of one table. The
alternative, to filter first and index the rows that are left, costs an index but is read faster: the user, or the
planner, chooses.

Contract: keys and their order stay as they are. A view may show fewer rows of a key than are stored; their values may
be out of order, or equal to each other. Such an arrangement is not `is_stored`, and reductions read all rows of a
group.

Rows for which the function raises are not shown, and are errors of the dataflow (`ikebana.operators.row_errors`).

Cost: nothing until it is read; then the function for the rows that are read, each time. A function without an attribute
`is_total` (it never raises) is also computed once for every row, to find the rows for which it raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from ikebana.encoding import Schema
from ikebana.encoding.bad_rows import separate_bad_rows
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.linear import Columns, Negate
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Operator
from ikebana.operators.registers import ColumnSlots, Rows
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import Span
from ikebana.operators.streams import Arranged, BatchView
from ikebana.trace.views import Filtered, Negated, Projected, is_total, used_columns


@runtime_checkable
class LoweredPredicate(Protocol):
    """A predicate that can be written as instructions of a program."""

    def lower(self, program: ProgramBuilder, rows: Rows) -> ColumnSlots | None:
        """The slots of the flag of each row."""
        ...


@runtime_checkable
class LoweredProjection(Protocol):
    """A projection that can be written as instructions of a program."""

    def lower_columns(self, program: ProgramBuilder, rows: Rows, names: Iterable[str]) -> dict[str, ColumnSlots] | None:
        """The slots of some of its columns."""
        ...


class ViewStep(ABC):
    """How the batches of an arrangement are shown, and with which schema."""

    label: ClassVar[str]
    """What `explain` calls it."""

    @abstractmethod
    def schema(self, given: Schema) -> Schema:
        """The schema of the view, for an arrangement with the schema `given`."""

    @abstractmethod
    def view(self) -> BatchView:
        """How batches are shown."""

    @property
    def function(self) -> Callable[[Columns], Any] | None:
        """The user's function that is applied to rows, if there is one."""
        return None

    # In programs (`ikebana.operators.registers.RowView`). Columns that a view does not know are passed on.

    def needed(self, names: Iterable[str]) -> set[str]:
        """The columns from which some of the shown columns are computed."""
        return set(names)

    @abstractmethod
    def lower(self, program: ProgramBuilder, rows: Rows, names: Iterable[str]) -> Rows | None:
        """What is shown of rows, with some of its columns; None if that cannot be written."""


@dataclass(frozen=True)
class FilterView(ViewStep):
    """The rows for which `predicate` is true, and not null."""

    predicate: Callable[[Columns], Any]

    label = "filter"

    def schema(self, given: Schema) -> Schema:
        return given

    def view(self) -> BatchView:
        return lambda batch: Filtered(batch, self.predicate)

    @property
    def function(self) -> Callable[[Columns], Any]:
        return self.predicate

    def needed(self, names: Iterable[str]) -> set[str]:
        return {*names, *(used_columns(self.predicate) or ())}

    def lower(self, program: ProgramBuilder, rows: Rows, names: Iterable[str]) -> Rows | None:
        flag = self.predicate.lower(program, rows) if isinstance(self.predicate, LoweredPredicate) else None
        return None if flag is None else program.filtered(rows.select(names), flag)


@dataclass(frozen=True)
class ProjectView(ViewStep):
    """The key with other value columns, which `projection` computes from all columns."""

    outputs: Fields
    projection: Callable[[Columns], Mapping[str, Any]]

    label = "project"

    def schema(self, given: Schema) -> Schema:
        return given.with_val(self.outputs)

    def view(self) -> BatchView:
        return lambda batch: Projected(batch, self.schema(batch.schema), self.projection)

    @property
    def function(self) -> Callable[[Columns], Any]:
        return self.projection

    @property
    def _names(self) -> set[str]:
        return {field.name for field in self.outputs}

    def needed(self, names: Iterable[str]) -> set[str]:
        return {*(set(names) - self._names), *(used_columns(self.projection) or ())}

    def lower(self, program: ProgramBuilder, rows: Rows, names: Iterable[str]) -> Rows | None:
        if not isinstance(self.projection, LoweredProjection):
            return None
        wanted = set(names)
        columns = self.projection.lower_columns(program, rows, wanted & self._names)
        if columns is None:
            return None
        kept = rows.select(wanted - self._names)
        outputs = tuple(field for field in self.outputs if field.name in wanted)
        return replace(kept, fields=(*kept.fields, *outputs), columns={**kept.columns, **columns})


@dataclass(frozen=True)
class Keep:
    """A projection for `ProjectView`: some of the columns unchanged, as pairs (new name, present name)."""

    names: tuple[tuple[str, str], ...]

    is_total = True

    @property
    def uses(self) -> frozenset[str]:
        """The columns that are kept."""
        return frozenset(source for _, source in self.names)

    def __call__(self, columns: Columns) -> Columns:
        return {name: columns[source] for name, source in self.names}

    def lower_columns(self, program: ProgramBuilder, rows: Rows, names: Iterable[str]) -> dict[str, ColumnSlots] | None:
        wanted = set(names)
        return {name: rows.columns[source] for name, source in self.names if name in wanted}


@dataclass(frozen=True)
class NegateView(ViewStep):
    """Every diff with its sign changed."""

    label = "negate"

    def schema(self, given: Schema) -> Schema:
        return given

    def view(self) -> BatchView:
        return lambda batch: Negated(batch)

    def lower(self, program: ProgramBuilder, rows: Rows, names: Iterable[str]) -> Rows | None:
        return Negate().lower(program, rows)


class ViewOperator(Operator[Arranged]):
    """An arrangement, seen through a view."""

    def __init__(self, source: Arranged, step: ViewStep, errors: ErrorLog) -> None:
        self._source, self._step, self._view, self._errors = source, step, step.view(), errors
        self._may_raise = None if step.function is None or is_total(step.function) else step.function
        self.out = source.seen_through(self._view, step.schema(source.schema))
        self.out.is_stored = source.is_stored and isinstance(step, NegateView)

    def visit(self, span: Span) -> None:
        if self._may_raise is not None:
            for batch in self._source.fresh:
                self._log_errors(Changes.of_updates(batch.gather()), self._may_raise)
        self.out.fresh, self.out.replayed = [self._view(batch) for batch in self._source.fresh], self._source.replayed

    def _log_errors(self, changes: Changes, function: Callable[[Columns], Any]) -> None:
        """Log the rows for which the function raises."""
        if len(changes):
            _, _, failures = separate_bad_rows(lambda rows: function(changes.take(rows).named), len(changes), dict)
            self._errors.add_rows(changes, failures)

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed

    def lower(self, program: ProgramBuilder) -> bool:
        index = program.arranged(self._source)
        return index is not None and program.write(self.out, replace(index, views=(*index.views, self._step)))
