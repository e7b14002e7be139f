"""Who hosts the workers: what the driver asks of whatever starts their processes and knows how they ended.

There are two: child processes on this machine (`launch.ChildProcesses`), and the tasks of a Spark job
(`ikebana.spark`).

Contract. `start` returns when the processes are on their way; each then says hello to the driver by itself. Once a
worker has ended, however that happened, a lifeline can be read, or, where the host says that it
`watches_connections`, the driver's connection to it is lost. A host sees to it that no worker outlives the driver or
any other worker. After `close`, which comes when the workers were told to stop and can be repeated, none is left.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ikebana.cluster.launch import WorkerConfig


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """A worker that has ended."""

    worker: int | None  # if it is known
    how: str  # a clause: "it was killed by SIGKILL"
    crashed: bool = False  # because of an exception, of which it has told the driver


class WorkerHost(Protocol):
    """The processes of W workers."""

    @property
    def watches_connections(self) -> bool:
        """Whether driver and workers learn of each other's end by the loss of their connections."""
        ...

    @property
    def lifelines(self) -> list[int]:
        """File descriptors that can be read once a worker has ended."""
        ...

    def start(self, seats: Sequence[WorkerConfig]) -> None:
        """Start a process for each seat."""
        ...

    def any_ended(self) -> bool:
        """Whether any worker has ended, cheaply; from any thread."""
        ...

    def look(self) -> bool:
        """Whether any worker has ended, thoroughly; once in a while."""
        ...

    def first_ended(self, lost: Sequence[int]) -> WorkerExit | None:
        """The worker that ended and did not just follow another. May take a moment to be sure.

        `lost` are the workers to which the connection was lost, the first one first.
        """
        ...

    def close(self) -> None:
        """Wait a moment for the workers to end, and then end them."""
        ...


def how_ended(code: int) -> str:
    """A process's end in words.

    >>> how_ended(-9), how_ended(3)
    ('it was killed by SIGKILL', 'it ended with exit code 3')
    """
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"
