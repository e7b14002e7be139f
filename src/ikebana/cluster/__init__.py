"""Transports: how commands and letters reach workers. In one process, or between processes over sockets.

A `Cluster` is what the engine sees of either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from ikebana.runtime.messages import Command, Request

Listener: TypeAlias = Callable[[int, Any], None]
"""Takes news: which worker they are from, and what they are."""


def ignore(worker: int, item: Any) -> None:
    """The listener of a cluster to which nobody listens."""


class Cluster(Protocol):
    """W workers, wherever they are. Every method raises `DataflowError` once a worker has died.

    Between processes, any number of threads can use a cluster at once, and none waits for what another asked.
    """

    @property
    def size(self) -> int:
        """How many workers there are."""
        ...

    @property
    def runs_by_itself(self) -> bool:
        """Whether workers run on their own; if not, they only make progress inside `run` and `ask`.

        If not, only one thread may use the cluster at a time.
        """
        ...

    def command(self, command: Command, worker: int | None = None) -> None:
        """Send a command to every worker, or to one. Each worker gets its commands in the order they were sent."""
        ...

    def run(self) -> None:
        """Return when all commands sent so far were taken, and nothing is left to do."""
        ...

    def ask(self, request: Request, worker: int | None = None) -> list[Any]:
        """The answers of all workers in order, or of one, given after they took this thread's earlier commands.

        Waits as long as it takes. Raises what a worker refuses with, and when nothing is left to do that could lead
        to an answer.
        """
        ...

    def listen(self, listener: Listener) -> None:
        """Give news of workers to a function, in the order of each worker, in place of the one before.

        It is called by whichever thread takes the news: it must be quick, and may not ask. A method does not keep
        its object alive.
        """
        ...

    def close(self) -> None:
        """End the workers; leaves no process, socket or file behind. Closing twice does nothing."""
        ...
