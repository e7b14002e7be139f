"""Held epochs: a result that stays readable from an epoch on, until a `with` block ends.

    with view.hold() as held:
        held.read(held.epoch)                    # exact, however many epochs have been closed meanwhile
        held.changes(held.epoch, held.epoch + 3)

The held epoch and all later ones stay distinct on every worker (`ikebana.engine.holds`), also for clients that read
from workers directly and give the `number` of the hold. Beginning a hold waits for all workers.

Cost: changes after the held epoch take memory even if they cancel. Not guaranteed: that a hold outlives its workers; it
does if the storage directory has the history since the held epoch, and otherwise reading raises a `DroppedError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from ikebana.engine.changes_by_epoch import by_epoch
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.holds import EpochHold
from ikebana.engine.result_tables import plain_rows
from ikebana.errors import DroppedError, TimeError
from ikebana.runtime.messages import Keys, Ping, Read, ReadChanges, ResultShard

if TYPE_CHECKING:
    from ikebana.engine.results import Result


class HeldEpoch:
    """A result from an epoch on, kept readable until the block ends. See `Result.hold`."""

    def __init__(self, result: Result, coordinator: Coordinator, timeout: float | None = None) -> None:
        self._result, self._coordinator = result, coordinator
        self.dataflow = result.dataflow
        deadline = coordinator.deadline(timeout, f"holding {result.name!r} at epoch {coordinator.epoch - 1}")
        with deadline.holding(coordinator.lock):
            self._hold = EpochHold(coordinator, result.dataflow)
        self.number, self.epoch = self._hold.number, self._hold.epoch
        """What identifies the hold in requests that are sent to workers directly, and the first epoch it can read."""
        try:
            coordinator.ask(Ping(result.dataflow), deadline=deadline)  # from now on clients of workers see the hold too
        except BaseException:
            self.release()
            raise

    def read(
        self,
        epoch: int | None = None,
        keys: Keys | None = None,
        *,
        binding: int | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return the result at a closed epoch, by default the first held one; otherwise like `Result.read`."""
        return self._result.combine(self.shards(epoch, keys, timeout=timeout), binding)

    def shards(
        self,
        epoch: int | None = None,
        keys: Keys | None = None,
        limit: int | None = None,
        *,
        timeout: float | None = None,
    ) -> list[ResultShard]:
        """Return the result at a closed epoch, as workers have it."""
        epoch = self.epoch if epoch is None else epoch
        self._check(epoch)
        self._result.demand(epoch)
        deadline = self._coordinator.deadline(timeout, f"reading {self._result.name!r} at epoch {epoch}")
        request = Read(self.dataflow, (epoch,), self.number, wait=True, keys=keys, limit=limit)
        return self._coordinator.ask(request, deadline=deadline)

    def to_arrow(self, epoch: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """Return the rows of the result at an epoch, by default the first held one, duplicates included."""
        return plain_rows(self.read(epoch, timeout=timeout), self._result.name)

    def changes(self, after: int, at: int, *, timeout: float | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Iterate over the changes at epochs after `after` up to the closed epoch `at`: pairs (epoch, table), in order.

        Epochs without changes are left out.
        """
        self._check(after)
        deadline = self._coordinator.deadline(timeout, f"reading changes of {self._result.name!r} up to epoch {at}")
        self._result.check_errors(at, self.number, deadline)
        answers = self._coordinator.ask(ReadChanges(self.dataflow, after, at, self.number), deadline=deadline)
        return by_epoch([answer for answer in answers if answer[1] is not None])

    @property
    def is_active(self) -> bool:
        """Whether the epoch is still held."""
        return self._hold.is_active and not self._is_lost

    @property
    def _is_lost(self) -> bool:
        """Whether workers were replaced, and the epoch was not known any more."""
        return self._hold.is_lost

    def release(self) -> None:
        """Stop holding the epoch. Releasing it twice does nothing."""
        self._hold.release()

    def _check(self, epoch: int) -> None:
        result = self._result
        if self._is_lost:
            raise DroppedError(
                f"{result.kind} {result.name!r} is not held any more",
                detail=f"a worker has died, and the rows at epoch {self.epoch} cannot be restored",
                hint="hold the current epoch",
            )
        if not self.is_active:
            raise DroppedError(
                f"{result.kind} {result.name!r} is not held any more", hint="read inside the `with` block"
            )
        if epoch < self.epoch:
            raise TimeError(
                f"cannot read {result.kind} {result.name!r} at epoch {epoch}",
                detail=f"it is held from epoch {self.epoch} on",
                hint="call hold() while the epoch is the last closed one",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()
