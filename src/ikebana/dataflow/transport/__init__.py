"""Transports: how commands and letters reach workers. In one process, or between processes over sockets.

A `Cluster` is what the engine sees of either.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from ikebana.dataflow.messages import Command
from ikebana.time import Time


class Cluster(Protocol):
    """W workers, wherever they are. Every method raises `DataflowError` once a worker has died."""

    @property
    def size(self) -> int:
        """How many workers there are."""
        ...

    def command(self, command: Command, worker: int | None = None) -> None:
        """Send a command to every worker, or to one. Each worker gets its commands in the order they were sent."""
        ...

    def run(self) -> None:
        """Return when all commands sent so far were taken, and nothing is left to do."""
        ...

    def wait(self, dataflow: str, epoch: int) -> None:
        """Return when a dataflow has completed the epochs before `epoch` on all workers; raise if it has failed."""
        ...

    def read(self, dataflow: str, at: Time) -> pa.Table:
        """A dataflow's result at a time, from all workers."""
        ...

    def close(self) -> None:
        """End the workers; leaves no process, socket or file behind. Closing twice does nothing."""
        ...
