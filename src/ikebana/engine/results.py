"""Results: what a dataflow maintains, as readers see it at an epoch.

    result.read()                            # the rows at the last closed epoch, with multiplicities
    result.to_arrow()                        # the same as plain rows
    result.find({"customer": [5]})           # the rows of a key, from the worker that owns it
    with result.hold() as held:              # this epoch and later ones stay readable
        held.read(held.epoch)
    result.retain("1 hour")                  # so do all epochs of the last hour
    result.to_arrow(at=datetime.now() - timedelta(minutes=5))

A result is an arrangement; reading it accumulates its trace at an epoch, on all workers. The rows that are read at an
epoch are exact for that epoch, across tables and views. The last closed epoch can always be read, earlier epochs only
while they are held or retained (`ikebana.engine.retention`).

If an expression has no value for a row (a division by zero, an overflow, a user's function that raises), reading the
result raises an `EvaluationError` that names the row, until the row is corrected or deleted; `errors()` lists such
rows.

`Result` is what views (`ikebana.engine.views`), the rows of tables and indexes have in common. Calls that wait take a
`timeout` in seconds and raise a `WaitTimeoutError` when it is over; None means the engine's default. Any number of
threads can read without waiting for each other.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.deadline import Deadline
from ikebana.engine.durations import duration
from ikebana.engine.held_epochs import HeldEpoch
from ikebana.engine.lookups import checked_keys, common_epoch, owner
from ikebana.engine.result_tables import errors_table, plain_rows, with_at_most
from ikebana.engine.retention import Retention
from ikebana.errors import DataflowError, TimeError
from ikebana.operators.row_errors import Errors, raise_errors, result_errors, total_errors
from ikebana.plan import ir
from ikebana.runtime.messages import Demand, Keys, Lookup, Read, ReadErrors, ResultShard, RowsOfKeys, Wait

if TYPE_CHECKING:
    import pandas as pd

At: TypeAlias = int | datetime | None
"""An epoch; a time, which means the last epoch that was closed then; or None for the last closed epoch."""


class Result:
    """The rows of an arrangement that a dataflow maintains."""

    def __init__(self, coordinator: Coordinator, name: str, plan: ir.Node, dataflow: str, kind: str) -> None:
        """The rows of the arrangement `plan`, which `dataflow` maintains.

        `kind` says in error messages whether users know the rows as a view or as a table.
        """
        self.name, self.dataflow, self.plan, self.kind = name, dataflow, plan, kind
        self._coordinator, self._dropped = coordinator, False
        self._holds: list[weakref.ref[HeldEpoch]] = []  # a tenth of the memory of a weak set
        self._checked_epoch = -1  # an epoch at which no worker has errors
        self.retention: Retention | None = None
        """The history that is kept, if `retain` was called."""

    # Reading.

    def read(
        self,
        at: At = None,
        keys: Keys | None = None,
        *,
        binding: int | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return the result at an epoch as an Arrow table: its columns, and the multiplicities in a column `diff`.

        If the view has a column of this name, the multiplicities are in `diff_`.

        `at`: an epoch, or a time, at which the last epoch that was closed by then is read; by default the last closed
        epoch. Earlier epochs can be read only while they are held (`hold`) or retained (`retain`). Before the first
        epoch is closed, the result is empty.
        `keys`: a mapping of the result's key columns to values; only rows with these keys are returned. This takes time
        in proportion to the rows returned, not to the size of the result.
        `binding`: for views of prepared statements; ignore errors that concern only other bindings of parameters.
        `timeout`: the seconds that the call may take.
        """
        return self.combine(self._shards(at, keys, None, timeout), binding)

    def first_rows(self, limit: int, at: At = None, *, timeout: float | None = None) -> tuple[pa.Table, int]:
        """Return at most `limit` rows of the result at an epoch, any of them, and the number of all rows.

        Rows are plain rows, duplicates included. Workers send only the rows that are returned.
        """
        shards = self._shards(at, None, limit, timeout)
        rows = with_at_most(self.combine(shards, None), limit)
        return plain_rows(rows, self.name).slice(0, limit), sum(shard.total for shard in shards)

    def _shards(self, at: At, keys: Keys | None, limit: int | None, timeout: float | None) -> list[ResultShard]:
        """The result at an epoch, as workers have it."""
        epoch = self.epoch_of(at)
        deadline = self._coordinator.deadline(timeout, f"reading {self.name!r} at epoch {epoch}")
        self.demand(epoch)
        if at is None and epoch < 0:
            return [ResultShard(self._no_rows, Errors())]
        request = Read(self.dataflow, (epoch,), wait=True, keys=keys, limit=limit)
        try:
            return self._coordinator.ask(request, deadline=deadline)
        except TimeError:
            if at is not None:
                raise self._not_kept(epoch) from None
        with self.hold(timeout=deadline.seconds_left()) as held:  # other threads have closed later epochs
            return held.shards(held.epoch, keys, limit, timeout=deadline.seconds_left())

    def combine(self, shards: Sequence[ResultShard | RowsOfKeys], binding: int | None) -> pa.Table:
        """Return the rows of all workers as one table; raise if there are errors."""
        if any([shard.errors for shard in shards]):
            raise_errors(self.name, (shard.errors for shard in shards), binding)
        return shards[0].rows if len(shards) == 1 else pa.concat_tables([shard.rows for shard in shards])

    def errors(self, at: At = None, *, timeout: float | None = None) -> pa.Table:
        """Return the rows for which the query cannot be evaluated at an epoch, by default the last closed one.

        The columns are `error` (the reason), `row`, and `diff` (how many times the error occurs). The view can be read
        only while this table is empty.
        """
        epoch = self.epoch_of(at)
        self.check_kept(epoch)
        deadline = self._coordinator.deadline(timeout, f"reading the errors of {self.name!r} at epoch {epoch}")
        return errors_table(result_errors(total_errors(self._errors_of_workers(epoch, None, deadline))))

    def check_errors(self, epoch: int, hold: int | None, deadline: Deadline) -> None:
        """Raise if the view has errors at an epoch."""
        raise_errors(self.name, self._errors_of_workers(epoch, hold, deadline))

    def _errors_of_workers(self, epoch: int, hold: int | None, deadline: Deadline) -> list[Errors]:
        self.demand(epoch)
        return self._coordinator.ask(ReadErrors(self.dataflow, epoch, hold), deadline=deadline)

    def to_arrow(self, at: At = None, *, timeout: float | None = None) -> pa.Table:
        """Return the rows of the result at an epoch as an Arrow table, duplicates included.

        Unlike with `read`, a row of multiplicity 2 occurs twice, and there is no column `diff`.
        """
        return plain_rows(self.read(at, timeout=timeout), self.name)

    def to_pandas(self, at: At = None, *, timeout: float | None = None) -> pd.DataFrame:
        """Return the rows of the result at an epoch as a pandas DataFrame, duplicates included."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    # Keys.

    @cached_property
    def _schema(self) -> Schema:
        return ir.schema_of(self.plan)

    @property
    def _no_rows(self) -> pa.Table:
        """What is read before the first epoch is closed."""
        return self._schema.table_schema.empty_table()

    def find(
        self,
        keys: Mapping[str, Any],
        at: At = None,
        *,
        binding: int | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return the rows with some keys, by the columns of the view's own arrangement, with multiplicities.

        Like `read` with `keys`, by one request to the workers that own the keys. See `ikebana.engine.lookups`.
        """
        self.check_not_dropped()
        epoch = self.epoch_of(at)
        self._check_closed(epoch)
        deadline = self._coordinator.deadline(timeout, f"looking up rows of {self.name!r} at epoch {epoch}")
        checked, arrays = checked_keys(f"{self.kind} {self.name!r}", self._schema, keys)
        if at is None and epoch < 0:
            return self._no_rows
        worker = owner(self._schema, arrays, self._coordinator.cluster.size)
        request = Lookup(self.dataflow, epoch, checked, exact=at is not None)
        try:
            rows = self._rows_of_keys(request, worker, binding, deadline)
        except TimeError:
            if at is not None:
                raise self._not_kept(epoch) from None
            rows = None
        if rows is not None:
            return rows
        with self.hold(timeout=deadline.seconds_left()) as held:  # other threads advance so fast that epochs differ
            return held.read(held.epoch, checked, binding=binding, timeout=deadline.seconds_left())

    def _rows_of_keys(
        self, request: Lookup, worker: int | None, binding: int | None, deadline: Deadline
    ) -> pa.Table | None:
        """The rows that workers find; None if their answers are of different epochs."""
        coordinator = self._coordinator
        is_alone = coordinator.cluster.size == 1
        if worker is not None and (is_alone or request.epoch == self._checked_epoch):
            (answer,) = coordinator.ask(request, worker, deadline)
            if is_alone or answer.epoch == self._checked_epoch:
                return self.combine([answer], binding)
        answers = coordinator.ask(request, deadline=deadline)
        epoch = common_epoch(answers)
        if epoch is None:
            return None
        if not any(answer.errors for answer in answers):
            self._checked_epoch = max(epoch, self._checked_epoch)
        return self.combine(answers, binding)

    # Waiting.

    def wait(self, epoch: int, *, timeout: float | None = None) -> None:
        """Wait until the result at a closed epoch is complete."""
        self.demand(epoch)
        deadline = self._coordinator.deadline(timeout, f"waiting for epoch {epoch} of {self.name!r}")
        self._coordinator.ask(Wait(self.dataflow, epoch + 1), deadline=deadline)

    def demand(self, epoch: int) -> None:
        """Request that the result at a closed epoch is computed, without waiting for it."""
        self.check_not_dropped()
        self._check_closed(epoch)
        self._coordinator.command(Demand(self.dataflow, epoch + 1))

    def _check_closed(self, epoch: int) -> None:
        if epoch >= self._coordinator.epoch:
            raise TimeError(
                f"cannot wait for epoch {epoch} of {self.name!r}",
                detail=f"epoch {self._coordinator.epoch} is still open",
                hint=f"close epoch {epoch} first: advance() the engine, or commit a transaction",
            )

    # History.

    def _not_kept(self, epoch: int) -> TimeError:
        """The error for reading an epoch whose rows have been merged into those of later epochs."""
        return self._not_retained(f"cannot read {self.kind} {self.name!r} at epoch {epoch}")

    def _not_retained(self, what: str) -> TimeError:
        """The error for the use of an epoch that is not kept any more, with what is."""
        if self.retention is None:
            return TimeError(
                what,
                detail=f"only epoch {self._coordinator.epoch - 1} and later are kept",
                hint="use hold() to keep an epoch readable, or retain() to keep those of the last hour, for instance",
            )
        since = self.retention.since.strftime("%Y-%m-%d %H:%M:%S.%f")
        return TimeError(
            what,
            detail=f"epoch {self.retention.epoch} and later are kept, which is the history since {since}",
            hint=f"retain more: now it is {self.retention}",
        )

    def check_kept(self, epoch: int, verb: str = "read") -> None:
        """Raise if a closed epoch is neither the last, nor held, nor retained; `verb` says what it is wanted for."""
        kept = [] if self.retention is None else [self.retention.epoch]
        if epoch < min([self._coordinator.epoch - 1, *kept, *self.held_epochs()]):
            raise self._not_retained(f"cannot {verb} {self.kind} {self.name!r} at epoch {epoch}")

    def epoch_of(self, at: At) -> int:
        """Return the epoch that `at` means; raises if it is a time before all epochs that are known, or yet to come."""
        if at is None:
            return self._coordinator.epoch - 1
        if not isinstance(at, datetime):
            return self._checked_epoch_number(at)
        times, time_us = self._coordinator.epoch_times, round(at.timestamp() * 1e6)
        if times.is_yet_to_come(time_us):
            raise TimeError(
                f"cannot read {self.kind} {self.name!r} at {at}",
                detail="this time is yet to come",
                hint="give a time in the past, or None for the last closed epoch",
            )
        epoch = times.at(time_us)
        if epoch is None:
            raise self._not_retained(f"cannot read {self.kind} {self.name!r} at {at}")
        return epoch

    def _checked_epoch_number(self, epoch: Any) -> int:
        try:
            return index(epoch)
        except TypeError:
            raise DataflowError(
                f"cannot read {self.kind} {self.name!r} at {epoch!r}",
                hint="give the number of an epoch, a datetime, or None for the last closed epoch",
            ) from None

    def hold(self, *, timeout: float | None = None) -> HeldEpoch:
        """Keep the last closed epoch and all later ones readable until the block ends: `with view.hold() as held:`."""
        self.check_not_dropped()
        held = HeldEpoch(self, self._coordinator, timeout)
        self._holds.append(weakref.ref(held, self._holds.remove))
        return held

    def retain(self, after: str | timedelta | None, limit: int | None = None, *, since: int | None = None) -> None:
        """Keep the history of the result from now on, for a time such as "1 hour"; None to keep none any more.

        All epochs of that time can be read, with `at`, and followed, with `changes(since=...)`. The changes of that
        time stay in memory; with `limit`, only as many as take at most that many bytes on all workers together.
        `since` is an earlier epoch that can still be read: then the history begins there.
        """
        checked = None if after is None else duration(after, "retain")
        with self._coordinator.lock:
            self.check_not_dropped()
            old, self.retention = self.retention, None
            if checked is not None:
                earlier = since if old is None else old.epoch
                self.retention = Retention(self._coordinator, self.dataflow, checked, limit, earlier)
                self._coordinator.retentions.add(self.retention)
            if old is not None:
                self._coordinator.retentions.remove(old)

    def held_epochs(self) -> list[int]:
        """Return the epochs that are held with `hold`, in order."""
        holds = [reference() for reference in list(self._holds)]
        return sorted(held.epoch for held in holds if held is not None and held.is_active)

    def check_not_dropped(self) -> None:
        """Raise if the view was dropped."""
        if self._dropped:
            raise DataflowError(f"view {self.name!r} was dropped", hint="install it again")


class LookupIndex(Result):
    """An arrangement of a view or table by other columns, for look-ups. Users cannot hold its epochs."""

    def _not_kept(self, epoch: int) -> TimeError:
        columns = ", ".join(field.name for field in self._schema.key.fields)
        return TimeError(
            f"cannot look up rows of {self.kind} {self.name!r} by {columns} at epoch {epoch}",
            detail=f"the index by these columns only keeps epoch {self._coordinator.epoch - 1} and later",
            hint="hold() keeps earlier epochs for reading, and for look-ups by its own key: read it, and filter",
        )
