"""A consumer of changes that is killed with its engine: each change is acknowledged once, and none is left out.

The view has all rows of a table; its history is kept, and a subscription that is stored delivers its changes. The
consumer reports what it is given, and what it has acknowledged. Whatever was acknowledged must add up to the rows at
the position of the subscription: the next engine reads them there, in the history.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TypeAlias

import pyarrow as pa

from ikebana.engine import Engine
from ikebana.errors import StorageError
from tests.durability.workload import Report
from tests.engine.table_model import ROW

TABLE, COLUMNS = "numbers", ["k", "v"]
_VIEW, _SUBSCRIPTION = "audited", "audit"
_PAUSE = 0.01

State: TypeAlias = tuple[int | None, Counter[ROW]]
"""The position of the subscription, and the rows at it."""


class Audit:
    """The view, its history, and its subscription."""

    def __init__(self, engine: Engine) -> None:
        """Install the view; history and subscription continue if they exist."""
        assert engine.history is not None
        self._view = engine.install(_VIEW, engine.tables[TABLE])
        if _VIEW in engine.history.entries():
            engine.history.restore(_VIEW, self._view)
        else:
            self._view.retain("1 hour")
            engine.history.save(_VIEW, self._view.retention)
        engine.end_recovery()
        self._subscription = self._view.changes(name=_SUBSCRIPTION)

    def state(self) -> State:
        """What was acknowledged according to the engine."""
        position = self._subscription.acknowledged
        return position, Counter() if position is None else _rows(self._view.to_arrow(at=position))

    def run(self, is_over: threading.Event, report: Report) -> None:
        """Take changes and acknowledge them, until nobody makes changes any more."""
        while not is_over.is_set() and not self._subscription.closed:
            item = self._subscription.take(_PAUSE)
            if item is not None:
                epoch, changes = item
                report("delivered", epoch, _changes(changes))
                try:
                    self._subscription.ack(epoch)
                except StorageError:  # the disk is full
                    return
                report("acknowledged")


def _rows(rows: pa.Table) -> Counter[ROW]:
    return Counter(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True))


def _changes(changes: pa.Table) -> Counter[ROW]:
    """Rows with their diffs."""
    return Counter({tuple(row[name] for name in COLUMNS): row["diff"] for row in changes.to_pylist()})


class AuditWitness:
    """What the consumer has acknowledged, as a whole."""

    def __init__(self) -> None:
        self._rows: Counter[ROW] = Counter()
        self._epoch = -1
        self._delivered: tuple[int, Counter[ROW]] | None = None  # and perhaps acknowledged
        self.epochs = 0

    def deliver(self, epoch: int, changes: Counter[ROW]) -> None:
        """Take note of changes that the consumer is about to acknowledge."""
        assert epoch > self._epoch, f"epoch {epoch} is delivered after epoch {self._epoch} was acknowledged"
        if self._delivered is not None and self._delivered[0] == epoch:
            assert self._delivered[1] == changes, f"epoch {epoch} has other changes than before"
        self._delivered = epoch, changes

    def acknowledge(self) -> None:
        """Take note of the changes that were delivered last."""
        assert self._delivered is not None
        self._epoch, changes = self._delivered
        self._rows.update(changes)
        self._delivered, self.epochs = None, self.epochs + 1

    def check(self, state: State) -> None:
        """Compare what was acknowledged with what an engine has found."""
        position, rows = state
        if self._delivered is not None and position is not None and position >= self._delivered[0]:
            self.acknowledge()  # before the process was killed, or while
        acknowledged = Counter({row: copies for row, copies in self._rows.items() if copies})
        assert acknowledged == rows, f"{acknowledged} was acknowledged, and the rows at epoch {position} are {rows}"
        assert self._epoch <= (-1 if position is None else position), f"{position} after {self._epoch}"
