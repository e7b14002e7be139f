"""Reading the results of a worker's dataflows: at an epoch, of some keys, as changes between epochs; and holds.

A result can be read at the last complete epoch, and at any epoch that a hold keeps (`ikebana.runtime.holds`). Each
answer has the errors of the dataflow and of all that it imports at that epoch: with errors, the rows are not exact.

Contract: a reader gets the rows of exactly one epoch, or an error that says why it cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ikebana.encoding.lanes import Lane
from ikebana.encoding.schema import has_multiplicities
from ikebana.errors import TimeError
from ikebana.operators.row_errors import Errors, errors_at
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.holds import ResultHold
from ikebana.runtime.messages import (
    ArrangementStatus,
    Keys,
    Lookup,
    Read,
    ReadChanges,
    ResultShard,
    RowsOfKeys,
    Subscribe,
)
from ikebana.runtime.subscribers import epochs_and_rows, updates_between
from ikebana.time import Time
from ikebana.trace import Batch, Handle


class Results:
    """The results of a worker's dataflows, and the holds on them."""

    def __init__(self, find: Callable[[str], Dataflow]) -> None:
        """`find` returns a dataflow; it raises if there is none, or if it has failed."""
        self._find = find
        self._holds: dict[int, ResultHold] = {}  # by number

    # Reading.

    def answer(self, request: Read) -> ResultShard:
        """The rows and the errors that a request asks for."""
        name, at, number = request.dataflow, request.at, request.hold
        self._check_started(name, at[0])
        if number is None:
            rows = self.read(name, at, request.keys)
        else:
            rows = _rows(self._hold(name, number).result, at, request.keys)
        errors = self.errors(name, at[0], number)
        if request.limit is None:
            return ResultShard(rows, errors)
        return ResultShard(rows.slice(0, request.limit), errors, _total(rows))

    def read(self, name: str, at: Time, keys: Keys | None = None) -> pa.Table:
        """This worker's shard of a dataflow's result at the last complete time, or at a time that is held."""
        self._check_started(name, at[0])
        try:
            with self._find(name).new_handle(at[0]) as handle:
                return _rows(handle, at, keys)
        except TimeError:
            hold = self._hold_at(name, at)
            if hold is None:
                raise
            return _rows(hold.result, at, keys)

    def look_up(self, request: Lookup, closed: int) -> RowsOfKeys:
        """The rows of some keys at an epoch that is complete; epochs before `closed` are closed."""
        name, epoch, flow = request.dataflow, request.epoch, self._find(request.dataflow)
        self._check_started(name, epoch)
        if not request.exact:
            epoch = max(epoch, min(flow.lower, closed) - 1)  # a constant is complete at all epochs
        rows = flow.find(request.keys) if epoch == flow.lower - 1 else None
        if rows is None:
            rows = self.read(name, (epoch,), request.keys)
        return RowsOfKeys(epoch, rows, self.errors(name, epoch, None))

    def errors(self, name: str, epoch: int, number: int | None) -> Errors:
        """The errors of a dataflow, and of all dataflows that it imports, at a complete epoch."""
        hold = self._hold_at(name, (epoch,)) if number is None else self._hold(name, number)
        return errors_at(self._find(name).error_readers if hold is None else hold.errors, epoch)

    def changes(self, request: ReadChanges) -> tuple[Lane, pa.Table] | tuple[None, None]:
        """The changes between two epochs that are held."""
        handle = self._hold(request.dataflow, request.hold).result
        if not handle.frontier.less_equal((request.after,)):
            raise TimeError(
                f"cannot read the changes of {request.dataflow!r} after epoch {request.after}",
                detail=f"epochs before {handle.frontier} are not held",
            )
        updates = updates_between(handle.batches(), request.after + 1, request.at + 1)
        return epochs_and_rows(updates, request.after) if updates is not None else (None, None)

    def _check_started(self, name: str, epoch: int) -> None:
        """Raise if a dataflow has started after an epoch: its result has all earlier changes at its start."""
        start = self._find(name).start
        if epoch < start:
            raise TimeError(
                f"cannot read dataflow {name!r} at epoch {epoch}", detail=f"it has started at epoch {start}"
            )

    # Holds.

    def hold(self, number: int, flow: Dataflow, epoch: int) -> None:
        """Keep the epochs from this one on readable, or release those before it if the hold exists already."""
        if number not in self._holds:
            self._holds[number] = self._new_hold(flow, epoch)
        self._holds[number].advance(epoch)

    def release(self, number: int) -> str | None:
        """End a hold; return its dataflow, if there is one."""
        hold = self._holds.pop(number, None)
        if hold is None:
            return None
        hold.drop()
        return hold.dataflow

    def release_all(self, name: str) -> None:
        """End all holds of a dataflow."""
        for number in [number for number, hold in self._holds.items() if hold.dataflow == name]:
            self.release(number)

    def past(self, command: Subscribe) -> ResultHold:
        """What keeps an epoch before the last one readable; raises if nothing does."""
        hold = self._hold_at(command.dataflow, (max(0, command.at),))  # before epoch 0 there is nothing
        if hold is None:
            raise TimeError(f"the changes after epoch {command.at} are no longer kept")
        return hold

    def _hold_at(self, name: str, at: Time) -> ResultHold | None:
        """A hold that keeps a dataflow's result readable at a time, if there is one."""
        holds = (hold for hold in self._holds.values() if hold.dataflow == name)
        return next((hold for hold in holds if hold.result.frontier.less_equal(at)), None)

    def _new_hold(self, flow: Dataflow, epoch: int) -> ResultHold:
        """A new hold that can read a dataflow's result at an epoch, if the dataflow or another hold still can."""
        result = flow.new_handle(max(epoch, flow.lower))  # a hold keeps later epochs, too
        earlier = None if result.frontier.less_equal((epoch,)) else self._hold_at(flow.name, (epoch,))
        if earlier is not None:
            result.drop()
            return earlier.clone()
        return ResultHold(flow.name, result, [reader.clone() for reader in flow.error_readers])

    def _hold(self, name: str, number: int) -> ResultHold:
        self._find(name)  # raises if it has failed
        if number not in self._holds:
            raise TimeError(
                f"no epoch of dataflow {name!r} is held", hint="read inside the `with` block that holds the epoch"
            )
        return self._holds[number]


def status_of(flow: Dataflow, worker: int, closed: int) -> ArrangementStatus:
    """What `Status` tells of a dataflow; epochs before `closed` are closed."""
    with flow.reader.clone() as handle:
        batches = handle.batches()
        since = [time[0] for batch in batches for time in batch.description.since]
        return ArrangementStatus(
            dataflow=flow.name,
            worker=worker,
            key=tuple(field.name for field in handle.schema.key.fields),
            columns=tuple(handle.schema.names),
            rows=sum(map(len, batches)),
            bytes=handle.nbytes,
            inner_bytes=flow.inner_bytes,
            mapped_bytes=flow.mapped_bytes,
            batches=len(batches),
            readers=handle.readers - 1,
            since=max(since, default=0),
            upper=min(flow.lower, closed),  # a constant is complete at all epochs
            changes=flow.changes,
            programs_run=flow.programs_run,
            visits_run=flow.visits_run,
        )


def distinct_keys(batches: Sequence[Batch]) -> int:
    """The number of key lanes in batches, whose rows are in order of them."""
    lanes = [batch.gather().key for batch in batches if len(batch)]
    distinct = [lane[np.flatnonzero(np.append(True, lane[1:] != lane[:-1]))] for lane in lanes]
    return len(distinct[0]) if len(distinct) == 1 else len(np.unique(np.concatenate(distinct))) if distinct else 0


def _rows(handle: Handle, at: Time, keys: Keys | None) -> pa.Table:
    """The rows of a handle's trace at a time, of all keys or of the given ones."""
    return handle.read(at) if keys is None else handle.lookup(keys, at)


def _total(rows: pa.Table) -> int:
    """The sum of all multiplicities; 0 if rows have several diffs each, which are not multiplicities."""
    return int(rows.column(rows.num_columns - 1).to_numpy().sum()) if has_multiplicities(rows) else 0
