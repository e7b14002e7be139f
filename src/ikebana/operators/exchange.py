"""Exchange: how the workers of a dataflow send each other updates.

An operator that needs the rows of a key in one place sends each row to the worker that owns the key. It is given an
`Exchange`, a channel to the same operator on all workers, or None on a single worker.

Contract. One call sends exactly one message to every peer (None if there is nothing for it) and waits for exactly one
from each. Calls are matched by their order, so all workers must make the same calls: that is what makes a message per
peer and visit all the progress tracking that a sweep needs.

The channel itself is a coroutine that the dataflow supplies (`ikebana.runtime.dataflow`): it yields while messages are
missing. Operators know nothing about transports.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from ikebana.operators.partition import split_updates
from ikebana.trace import Updates

Parts = list[Updates | None]
"""One entry per worker: the updates for it, or from it; None where there are none."""


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """A channel to the same operator on all workers."""

    workers: int
    all_to_all: Callable[[Parts], Generator[object, None, Parts]]
    """Send each worker its part; return the parts that all workers have sent here."""

    def by_key(self, parts: Sequence[Updates]) -> Generator[object, None, list[Updates]]:
        """Send each update of some parts to the worker that owns its key; return the updates that arrive here."""
        return self._received(split_updates(parts, self.workers))

    def broadcast(self, updates: Updates) -> Generator[object, None, list[Updates]]:
        """Send all updates to every worker; return the updates that arrive here."""
        return self._received([updates] * self.workers)

    def _received(self, parts: Parts) -> Generator[object, None, list[Updates]]:
        received = yield from self.all_to_all(parts)
        return [part for part in received if part is not None]
