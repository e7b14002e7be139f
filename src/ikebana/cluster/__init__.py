"""Clusters: workers in this process, or in processes connected by sockets. Transports carry messages between them.

The engine uses any cluster through the protocol `Cluster`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from ikebana.runtime.messages import Command, Request

Listener: TypeAlias = Callable[[int, Any], None]
"""Called with a notification: the worker that sent it, and the notification."""

RESTART_HINT = (
    "start the engine again, and load the tables; with storage=... they would still be there, and dead workers would "
    "be replaced"
)
"""What to do after the death of a worker that is not replaced."""


def ignore(worker: int, item: Any) -> None:
    """A listener that ignores all notifications: the default."""


class Cluster(Protocol):
    """W workers, in this process or in others. Every method raises `WorkerLostError` once a worker has died.

    Any number of threads can use a cluster of processes at once; none waits for the requests of another.
    """

    @property
    def size(self) -> int:
        """The number of workers."""
        ...

    @property
    def runs_by_itself(self) -> bool:
        """Whether workers run on their own.

        If not, they only make progress inside `run` and `ask`, and only one thread may use the cluster at a time.
        """
        ...

    def command(self, command: Command, worker: int | None = None, *, hold: bool = False) -> None:
        """Send a command to every worker, or to one. A worker gets its commands in the order they were sent.

        With `hold`, workers may get it only together with the next command or request.
        """
        ...

    def run(self) -> None:
        """Return when all commands sent so far have been carried out, and nothing is left to do."""
        ...

    def ask(self, request: Request, worker: int | None = None) -> list[Any]:
        """Return the answers of all workers in order, or of one worker, as a list.

        A worker answers after it has carried out all earlier commands of this thread. Waits without a limit. Raises if
        a worker refuses the request, or if it is unanswered and nothing is left to do.
        """
        ...

    def listen(self, listener: Listener) -> None:
        """Call a function with every notification of a worker, in order. Replaces the previous function.

        The function may be called by any thread. It must be quick, and must not call `ask`. A cluster of processes does
        not keep the object of a bound method alive.
        """
        ...

    def watch(self, on_death: Callable[[], None]) -> None:
        """Call a function when a worker has died, from any thread. A cluster that cannot know by itself never does."""
        ...

    def start_again(self) -> Cluster:
        """Start as many workers as this cluster has, of which one has died, in the same way; they have no data yet."""
        ...

    def hand_over(self, successor: Cluster) -> None:
        """Let a cluster that `start_again` has returned take this one's place: this one need not be closed any more."""
        ...

    def close(self) -> None:
        """End the workers, and leave no process, socket or file behind. Closing a second time does nothing."""
        ...
