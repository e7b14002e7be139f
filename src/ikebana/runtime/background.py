"""Work beside a worker's own: a function that a thread of its own executes.

The worker begins it, goes on, and asks now and then whether it is done. What the function does must be safe beside the
worker: writing immutable batches to files, deleting files. It does not delay the worker as long as it calls functions
that release the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundWork:
    """A function that is executed from now on, by a thread of its own."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self._work = work
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        """Whether the function has returned, or raised."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Return once the function has returned, or raised."""
        self._thread.join()

    def check(self) -> None:
        """Raise what the function has raised, if it is done."""
        if self.is_done and self._error is not None:
            raise self._error
