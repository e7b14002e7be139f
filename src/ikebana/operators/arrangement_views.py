"""Wrappers: filter, projection and negation of an arrangement, which give an arrangement again.

Nothing is copied: readers see the batches of the source's trace through a view (`ikebana.trace.views`), and what they
look at passes the user's function then. So a query with a filter of its own shares the index of a table with queries
that have others. The other choice, to filter first and index what is left, costs an index but is read faster: the
user, or the planner, chooses.

Contract: keys and their order stay as they are. The rows of a key may be fewer than are stored, their values out of
order or equal to each other. Such an arrangement is not `is_stored`, and reductions read whole groups of it.

Rows for which the function raises are not seen, and are errors of the dataflow (`ikebana.operators.row_errors`).

Cost: nothing until it is read; then the function, for the rows that are looked at, each time. A function that does not
say that it `is_total` (that it never raises) is also computed once for every row, to find those for which it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ikebana.encoding import Schema
from ikebana.encoding.bad_rows import set_apart
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.linear import Columns
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import Span
from ikebana.operators.streams import Arranged
from ikebana.trace import Batch
from ikebana.trace.views import Filtered, Negated, Projected


class ViewStep(Protocol):
    """How batches are seen, and the schema that they then have."""

    def schema(self, given: Schema) -> Schema: ...
    def wrap(self, batch: Batch) -> Batch: ...


@dataclass(frozen=True)
class FilterView:
    """The rows for which `predicate` holds; where it is null it does not."""

    predicate: Callable[[Columns], Any]

    def schema(self, given: Schema) -> Schema:
        return given

    def wrap(self, batch: Batch) -> Batch:
        return Filtered(batch, self.predicate)


@dataclass(frozen=True)
class ProjectView:
    """The key with other value columns, which `function` computes from all columns."""

    outputs: Fields
    function: Callable[[Columns], Mapping[str, Any]]

    def schema(self, given: Schema) -> Schema:
        return given.with_val(self.outputs)

    def wrap(self, batch: Batch) -> Batch:
        return Projected(batch, self.schema(batch.schema), self.function)


@dataclass(frozen=True)
class Keep:
    """For `Project`: some of the columns as they are, possibly renamed (pairs of a new name and the name it has)."""

    names: tuple[tuple[str, str], ...]

    is_total = True

    @property
    def uses(self) -> frozenset[str]:
        """The columns that are kept."""
        return frozenset(source for _, source in self.names)

    def __call__(self, columns: Columns) -> Columns:
        return {name: columns[source] for name, source in self.names}


@dataclass(frozen=True)
class NegateView:
    """Every diff with its sign changed."""

    def schema(self, given: Schema) -> Schema:
        return given

    def wrap(self, batch: Batch) -> Batch:
        return Negated(batch)


class ViewOperator:
    """An arrangement, seen differently."""

    def __init__(self, source: Arranged, wrapper: ViewStep, errors: ErrorLog) -> None:
        self._source, self._wrap, self._errors = source, wrapper.wrap, errors
        function = getattr(wrapper, "function", None) or getattr(wrapper, "predicate", None)
        self._may_raise = None if getattr(function, "is_total", function is None) else function
        self.out = source.seen_through(wrapper.wrap, wrapper.schema(source.schema))
        self.out.is_stored = source.is_stored and isinstance(wrapper, NegateView)

    def visit(self, span: Span) -> None:
        """The source's batches."""
        if self._may_raise is not None:
            for batch in self._source.fresh:
                self._note_errors(Changes.of_updates(batch.gather()), self._may_raise)
        self.out.fresh, self.out.replayed = [self._wrap(batch) for batch in self._source.fresh], self._source.replayed

    def _note_errors(self, changes: Changes, function: Callable[[Columns], Any]) -> None:
        """Rows for which the function raises, of a batch."""
        if len(changes):
            _, _, failures = set_apart(lambda rows: function(changes.take(rows).named), len(changes), dict)
            self._errors.add_rows(changes, failures)

    def forget(self, epoch: int) -> None:
        """A sweep up to `epoch` is complete."""
        self.out.closed = self._source.closed
