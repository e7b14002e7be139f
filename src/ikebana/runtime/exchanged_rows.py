"""The rows that programs of several workers exchange, as plain integers (`ikebana.kernels.exchanges`).

`Outgoing` collects the rows for each worker; what it has collected is a message, or part of one. `entries` divides it
again: the rows of one exchange each. An entry holds on to its message, to which the texts of its rows refer.

Cost: two kernel calls for an exchange; nothing for each row in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ikebana.encoding.lanes import Lane
from ikebana.encoding.slots import address_of
from ikebana.kernels import layout, receive_rows, send_rows

if TYPE_CHECKING:
    from ikebana.runtime.workspaces import Workspace

FEW_INTEGERS = 1 << 10
"""The integers for each worker that there is room for at first."""

NO_ROWS: Lane = np.empty(0, np.int64)
SOURCE, TARGET = 2, 3


class Outgoing:
    """The rows for all workers that wait to be sent, on one worker."""

    def __init__(self, worker: int, workers: int) -> None:
        self._worker, self._workers = worker, workers
        self._used = np.zeros(workers, np.int64)
        self._allocate(FEW_INTEGERS)

    def _allocate(self, room: int) -> None:
        self._buffers = np.empty((self._workers, room), np.int64)
        self._address = address_of(self._buffers)

    def add(self, code: Lane, pc: int, workspace: Workspace, label: int) -> None:
        """Add the rows of the exchange at a position of a program; this worker's own arrive at once."""
        counts = workspace.counts
        if not counts[code[pc + SOURCE]]:
            counts[code[pc + TARGET]] = 0
            return
        while needed := send_rows(
            code, pc, workspace.arena, counts, self._worker, self._buffers, self._used, label, self._address
        ):
            old, used = self._buffers, int(self._used.max())
            self._allocate(2 * needed)
            self._buffers[:, :used] = old[:, :used]

    def take(self) -> list[Lane]:
        """What there is for each worker."""
        taken = [
            self._buffers[worker, :used].copy() if used else NO_ROWS for worker, used in enumerate(self._used.tolist())
        ]
        self._used[:] = 0
        return taken


class ReceivedRows(NamedTuple):
    """The rows of one exchange that another worker has sent."""

    message: Lane
    at: int
    label: int

    def append_to(self, workspace: Workspace, code: Lane) -> int:
        """Append the rows to the register in which they arrive; return a status."""
        workspace.held.append(self.message)
        status: int = receive_rows(
            code, workspace.arena, workspace.counts, self.message, self.at, address_of(self.message)
        )
        return status


def entries(message: Lane, start: int = 0) -> Iterator[ReceivedRows]:
    """The entries of a message, from a position on."""
    at = start
    while at < len(message):
        yield ReceivedRows(message, at, int(message[at + layout.ENTRY_LABEL]))
        at += int(message[at + layout.ENTRY_SIZE])
