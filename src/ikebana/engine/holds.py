"""Holds: what keeps the result of a dataflow readable from an epoch on, on all workers.

A hold begins at the last closed epoch, and can be advanced. It ends when it is released, or when nothing refers to it
any more. What is held cannot be compacted, so changes at later epochs take memory even if they cancel.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.runtime.messages import HistorySize, HistoryStatus, Hold, Release

if TYPE_CHECKING:
    from ikebana.engine.coordinator import Coordinator


class EpochHold:
    """Keeps the result of a dataflow readable from `epoch` on."""

    def __init__(self, coordinator: Coordinator, dataflow: str, epoch: int | None = None) -> None:
        """`epoch` is the last closed one, or an earlier one that is readable."""
        self._coordinator, self.dataflow = coordinator, dataflow
        with coordinator.lock, defer_interrupts():
            self.number = coordinator.new_number()
            """Identifies the hold in requests to workers."""
            self.epoch = coordinator.epoch - 1 if epoch is None else epoch
            """The first epoch that can be read."""
            coordinator.command(Hold(self.number, dataflow, max(0, self.epoch)))
            self._release = weakref.finalize(self, _release_hold, coordinator, self.number)
            self._release.atexit = False

    def advance(self, epoch: int) -> None:
        """Give up the epochs before this one. An epoch before the held one changes nothing."""
        with self._coordinator.lock, defer_interrupts():
            if epoch > self.epoch and self.is_active and not self.is_lost:
                self.epoch = epoch
                self._coordinator.tell(Hold(self.number, self.dataflow, epoch))

    @property
    def is_active(self) -> bool:
        """Whether it was not released."""
        return self._release.alive

    @property
    def is_lost(self) -> bool:
        """Whether workers were replaced (`ikebana.engine.healing`), and the epoch was not known any more."""
        return self.is_active and self.number not in self._coordinator.definitions.holds

    def release(self) -> None:
        """Release it. Releasing it twice does nothing."""
        self._release()


def _release_hold(coordinator: Coordinator, number: int) -> None:
    coordinator.tell(Release(number))


def history_after(coordinator: Coordinator, dataflow: str, epoch: int) -> HistoryStatus:
    """The changes of a dataflow's result after an epoch that the workers keep, with those that cancel.

    Raises if the dataflow has failed. Cost: a request, and a nanosecond for each row of some batches.
    """
    answers = coordinator.ask(HistorySize(dataflow, epoch))
    first = min((answer.first for answer in answers if answer.first is not None), default=None)
    upper = min(answer.upper for answer in answers)
    return HistoryStatus(sum(a.rows for a in answers), sum(a.bytes for a in answers), first, upper)
