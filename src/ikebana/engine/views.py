"""Views: standing queries' results, as readers see them.

    view.read()                              # the result at the last closed epoch, with multiplicities
    view.to_arrow()                          # the same as plain rows
    for epoch, changes in view.changes(): ...
    with view.hold() as held:                # this epoch and later ones stay readable
        held.read(held.epoch)

A view is an arrangement, maintained by a dataflow; reading it accumulates its trace at an epoch, on all workers. What
is read at an epoch is exact for that epoch, across tables and views. The last closed epoch can always be read, earlier
ones only while they are held.

A row for which an expression has no value (a division by zero, an overflow, a function of the user's that raises) makes
reading raise an `EvaluationError` that names it, as long as the row is there; `errors()` lists such rows.

Whatever waits takes a `timeout`, in seconds, and raises a `WaitTimeoutError` when these are over; None is what the
engine was made with. `ikebana.engine.subscriptions` says what holds for changes. Any number of threads can read; none
waits for another.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ikebana.cluster.interrupts import deferred
from ikebana.engine.catalog import Use
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.deadline import Deadline
from ikebana.engine.subscriptions import BACKLOG, BACKLOG_BYTES, OnChange, OnError, Subscription, by_epoch
from ikebana.errors import DataflowError, DroppedError, IkebanaError, TimeError
from ikebana.operators.row_errors import Errors, present, raise_present, total
from ikebana.plan import ir
from ikebana.runtime.messages import Demand, Hold, Keys, Read, ReadChanges, ReadErrors, Release, Shard, Wait


class View:
    """A standing query's result."""

    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        plan: ir.Node,
        dataflow: str,
        uses: list[Use],
        retire: Callable[[View], None],
    ) -> None:
        self.name, self.dataflow, self.uses, self.plan = name, dataflow, uses, plan
        self._coordinator, self._retire, self._dropped = coordinator, retire, False
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()

    # Reading.

    def read(
        self,
        at: int | None = None,
        keys: Keys | None = None,
        *,
        opening: int | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The result at an epoch, by default the last that is closed: its columns, and `diff`.

        With `keys`, columns by the names of the key that the result is indexed by, only the rows of these: that costs
        what is found, however large the result. Epochs before the last closed one can be read only while they are held
        (`hold`). `opening` is for views of prepared statements: errors of other openings do not count.
        """
        epoch = self._coordinator.epoch - 1 if at is None else at
        deadline = self._coordinator.deadline(timeout, f"reading {self.name!r} at epoch {epoch}")
        self.demand(epoch)
        read = Read(self.dataflow, (epoch,), wait=True, keys=keys)
        try:
            return self.put_together(self._coordinator.ask(read, deadline=deadline), opening)
        except TimeError:
            if at is not None or epoch == self._coordinator.epoch - 1:
                raise
        with self.hold(timeout=deadline.left()) as held:  # others advance so fast that the epoch was gone
            return held.read(held.epoch, keys, opening=opening, timeout=deadline.left())

    def put_together(self, shards: Sequence[Shard], opening: int | None) -> pa.Table:
        """The rows of all workers; raises if there are errors."""
        raise_present(self.name, (shard.errors for shard in shards), opening)
        return pa.concat_tables([shard.rows for shard in shards])

    def errors(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The rows for which the view has no value at an epoch, by default the last that is closed, and why.

        Columns are `error`, `row`, and `diff`, how often that is so. While there are none, the view can be read.
        """
        epoch = self._coordinator.epoch - 1 if at is None else at
        deadline = self._coordinator.deadline(timeout, f"reading the errors of {self.name!r} at epoch {epoch}")
        return _errors_table(present(total(self._errors_of_workers(epoch, None, deadline))))

    def check_errors(self, epoch: int, hold: int | None, deadline: Deadline) -> None:
        """Raise if the view has errors at an epoch."""
        raise_present(self.name, self._errors_of_workers(epoch, hold, deadline))

    def _errors_of_workers(self, epoch: int, hold: int | None, deadline: Deadline) -> list[Errors]:
        self.demand(epoch)
        return self._coordinator.ask(ReadErrors(self.dataflow, epoch, hold), deadline=deadline)

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The rows of the result at an epoch, each as often as it is there."""
        return plain_rows(self.read(at, timeout=timeout), self.name)

    def to_pandas(self, at: int | None = None, *, timeout: float | None = None) -> Any:
        """The same as a pandas DataFrame."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    def wait(self, epoch: int, *, timeout: float | None = None) -> None:
        """Work until the result at an epoch is complete."""
        self.demand(epoch)
        deadline = self._coordinator.deadline(timeout, f"waiting for epoch {epoch} of {self.name!r}")
        self._coordinator.ask(Wait(self.dataflow, epoch + 1), deadline=deadline)

    def demand(self, epoch: int) -> None:
        """Have the result at an epoch computed, without waiting for it."""
        self.check()
        if epoch >= self._coordinator.epoch:
            raise TimeError(
                f"cannot wait for epoch {epoch} of {self.name!r}",
                detail=f"it is still open: the present epoch is {self._coordinator.epoch}",
                hint="advance the engine past it first",
            )
        self._coordinator.command(Demand(self.dataflow, epoch + 1))

    def hold(self, *, timeout: float | None = None) -> HeldEpoch:
        """Keep the last closed epoch and all later ones readable: `with view.hold() as held: ...`."""
        self.check()
        return HeldEpoch(self, self._coordinator, timeout)

    # Following.

    def changes(
        self,
        since: str | None = None,
        *,
        timeout: float | None = None,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        opening: int | None = None,
    ) -> Subscription:
        """Iterate over (epoch, changes): an Arrow table of the columns and `diff`, for each epoch with changes, once.

        The first has what there is, at the last closed epoch; with `since="now"` it is left out. It waits for the
        next, but with `timeout` no longer than so many seconds, and ends then. `backlog` rows and `backlog_bytes` bytes
        may wait on each worker until they are taken; with more it raises. When the view gets errors it raises too; the
        next item is then what has changed when they are gone. `opening` is as for `read`.
        """
        self.check()
        found = Subscription(
            self._coordinator,
            self.name,
            self.dataflow,
            ir.schema_of(self.plan),
            since,
            timeout=timeout,
            backlog=backlog,
            backlog_bytes=backlog_bytes,
            opening=opening,
        )
        self._subscriptions.add(found)
        return found

    def subscribe(
        self,
        callback: OnChange,
        since: str | None = None,
        *,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        on_error: OnError | None = None,
    ) -> Subscription:
        """Call a function with each epoch and its changes, in a thread of its own, until `close()`.

        `on_error` is called when the view gets errors, with an `EvaluationError`; the next call of `callback` says that
        they are gone, and what has changed since. Without it such an error is logged.
        If it raises, that subscription is closed; the exception is logged, and kept as its `error`.
        """
        found = self.changes(since, backlog=backlog, backlog_bytes=backlog_bytes)
        found.call(callback, on_error)
        return found

    # Using and dropping it.

    def rows(self) -> Collection:
        """The result as a collection, for further queries: they share it while this view lives."""
        self.check()
        return Arrangement(self.plan).rows()

    def drop(self) -> None:
        """Retire the query, and release what only it used. Iterators over its changes end."""
        with self._coordinator.lock, deferred():
            if not self._dropped:
                self._dropped = True
                self.end_changes()
                self._retire(self)

    def end_changes(self) -> None:
        """End all iterators over changes and all subscriptions."""
        for each in list(self._subscriptions):
            each.close()

    def check(self) -> None:
        """Raise if the view was dropped."""
        if self._dropped:
            raise DataflowError(f"view {self.name!r} was dropped", hint="install it again")


class HeldEpoch:
    """A view's result from an epoch on, kept readable until the block ends."""

    def __init__(self, view: View, coordinator: Coordinator, timeout: float | None = None) -> None:
        self._view, self._engine = view, coordinator
        self.dataflow = view.dataflow
        with coordinator.lock, deferred():
            self.number = coordinator.new_number()
            """What workers know it by: whoever reads from them directly has to say it."""
            self.epoch = coordinator.epoch - 1
            """The first epoch that can be read."""
            coordinator.command(Hold(self.number, view.dataflow, max(0, self.epoch)))
            self._release = weakref.finalize(self, _let_go, coordinator, self.number)
            self._release.atexit = False
        deadline = coordinator.deadline(timeout, f"holding {view.name!r} at epoch {self.epoch}")
        try:
            coordinator.ask(Wait(view.dataflow, 0), deadline=deadline)  # others, who read directly, find it held
        except BaseException:
            self.release()
            raise

    def read(
        self,
        epoch: int | None = None,
        keys: Keys | None = None,
        *,
        opening: int | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The result at an epoch that is closed, by default the first held: its columns, and `diff`."""
        epoch = self.epoch if epoch is None else epoch
        self._check(epoch)
        self._view.demand(epoch)
        deadline = self._engine.deadline(timeout, f"reading {self._view.name!r} at epoch {epoch}")
        read = Read(self.dataflow, (epoch,), self.number, wait=True, keys=keys)
        return self._view.put_together(self._engine.ask(read, deadline=deadline), opening)

    def to_arrow(self, epoch: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The rows of the result at an epoch, each as often as it is there."""
        return plain_rows(self.read(epoch, timeout=timeout), self._view.name)

    def changes(self, after: int, at: int, *, timeout: float | None = None) -> Iterator[tuple[int, pa.Table]]:
        """The changes at epochs after `after` up to `at`, which is closed: for each that has any, in order."""
        self._check(after)
        deadline = self._engine.deadline(timeout, f"reading changes of {self._view.name!r} up to epoch {at}")
        self._view.check_errors(at, self.number, deadline)
        answers = self._engine.ask(ReadChanges(self.dataflow, after, at, self.number), deadline=deadline)
        return by_epoch([answer for answer in answers if answer[1] is not None])

    def release(self) -> None:
        """Let go; does nothing the second time."""
        self._release()

    def _check(self, epoch: int) -> None:
        if not self._release.alive:
            raise DroppedError(f"view {self._view.name!r} is not held any more", hint="read inside the block")
        if epoch < self.epoch:
            raise TimeError(
                f"cannot read view {self._view.name!r} at epoch {epoch}",
                detail=f"it is held from epoch {self.epoch} on",
                hint="hold it earlier",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def _let_go(coordinator: Coordinator, number: int) -> None:
    with suppress(IkebanaError):  # the workers are gone, and with them what was held
        coordinator.command(Release(number))


def _errors_table(errors: Errors) -> pa.Table:
    rows = sorted((error.reason, error.row, diff) for error, diff in errors.items())
    return pa.table(
        {
            "error": pa.array([row[0] for row in rows], pa.string()),
            "row": pa.array([row[1] for row in rows], pa.string()),
            "diff": pa.array([row[2] for row in rows], pa.int64()),
        }
    )


def plain_rows(table: pa.Table, name: str) -> pa.Table:
    """A result without its diffs, each row as often as they say."""
    if table.schema.names[-1] != "diff":
        raise DataflowError(
            f"view {name!r} has no plain rows",
            detail="its rows have several diffs each, which are sums rather than multiplicities",
            hint="use read()",
        )
    counts = table.column("diff").to_numpy()
    if (counts < 0).any():
        example = table.slice(int((counts < 0).argmax()), 1).to_pylist()[0]
        raise DataflowError(
            f"view {name!r} has rows with negative multiplicities",
            detail=f"{int((counts < 0).sum())} of them, for instance {example}",
            hint="use read(), which shows multiplicities, or change the query: more is taken away than there is",
        )
    if not (counts == 1).all():
        table = table.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    return table.drop_columns(["diff"])  # last: a table without columns could not be taken from
