"""Worker hosts: the interface to whatever starts the worker processes and knows how they ended.

There are two hosts: child processes on this machine (`launch.ChildProcesses`), and the tasks of a Spark job
(`ikebana.spark.barrier_job`).

Contract. `start` returns when the processes have been launched; each of them then connects to the driver. Once a worker
has ended, for whatever reason, one of the `exit_fds` is readable or, if the host `watches_connections`, the driver's
connection to the worker is lost. A host ensures that no worker outlives the driver or any other worker. `close` is
called after the workers were told to stop, and may be called repeatedly; after it, no worker is left.
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

    worker: int | None  # None if it is not known which
    how: str  # a clause such as "it was killed by SIGKILL"
    crashed: bool = False  # whether it ended because of an exception, which it has reported to the driver


class WorkerHost(Protocol):
    """The processes of W workers."""

    @property
    def watches_connections(self) -> bool:
        """Whether driver and workers notice each other's end by the loss of their connections."""
        ...

    @property
    def keeps_secrets(self) -> bool:
        """Whether nobody else can read the configurations on their way to the workers.

        If not, they have no keys: workers create their own, and enrol (`ikebana.cluster.enrolment`).
        """
        ...

    @property
    def exit_fds(self) -> list[int]:
        """File descriptors of which one becomes readable once a worker has ended."""
        ...

    def start(self, configs: Sequence[WorkerConfig]) -> None:
        """Start a process for each configuration."""
        ...

    def any_ended(self) -> bool:
        """Whether any worker has ended. Must be cheap; may be called by any thread."""
        ...

    def check_processes(self) -> bool:
        """Whether any worker has ended. Called now and then; may be slower and more thorough than `any_ended`."""
        ...

    def first_ended(self, lost: Sequence[int]) -> WorkerExit | None:
        """The worker whose end made the others end. May take a moment to be sure.

        `lost` are the workers to which the connection was lost, in order.
        """
        ...

    def close(self) -> None:
        """Wait a moment for the workers to end, and then end them."""
        ...


def how_ended(code: int) -> str:
    """How a process ended, by its exit code, as a clause.

    >>> how_ended(-9), how_ended(3)
    ('it was killed by SIGKILL', 'it ended with exit code 3')
    """
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"
