"""Holds on a worker: readers of a dataflow's result, and of its errors, that stay behind at an epoch.

As long as a hold exists, its epoch and all later ones can be read, whatever other readers give up: the trace is
compacted to the frontier of the slowest reader (`ikebana.trace.handle`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ikebana.operators.row_errors import ErrorReader
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.messages import HistoryStatus
from ikebana.time import Antichain
from ikebana.trace import Handle


@dataclass(frozen=True, slots=True, eq=False)
class ResultHold:
    """Keeps a dataflow's result and its errors readable from an epoch on."""

    dataflow: str
    result: Handle
    errors: list[ErrorReader]

    def clone(self) -> ResultHold:
        """A second hold of the same epochs."""
        return ResultHold(self.dataflow, self.result.clone(), [reader.clone() for reader in self.errors])

    def advance(self, epoch: int) -> None:
        """Release the epochs before this one."""
        if self.result.frontier.precedes(Antichain.of((epoch,))):
            self.result.advance((epoch,))
            for reader in self.errors:
                reader.forget(epoch)

    def drop(self) -> None:
        """Release all epochs."""
        self.result.drop()
        self.errors.clear()


def history_size(flow: Dataflow, after: int) -> HistoryStatus:
    """The changes of a dataflow's result at epochs after a given one. Their bytes are in proportion to their rows."""
    rows, size, first = 0, 0, None
    for batch in flow.batches():
        epochs = batch.times[:, 0]
        is_later = epochs > after
        if is_later.any():
            later = len(batch) if is_later.all() else int(np.count_nonzero(is_later[batch.gather().tix]))
            rows, size = rows + later, size + batch.nbytes * later // max(1, len(batch))
            least = int(epochs[is_later].min())
            first = least if first is None else min(first, least)
    return HistoryStatus(rows, size, first, flow.lower)
