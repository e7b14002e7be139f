"""When epochs were closed, by the clock of the driver's machine: what a time means as an epoch.

Times are in microseconds since 1970, and never decrease: if the clock is set back, epochs are closed at the last time
until the clock has caught up. The times of the last `KEPT` closings are known, and those of all epochs from `needed`
on. An epoch that was not closed on its own was closed together with the next one that was.

With a storage directory, the times from `needed` on are stored with each snapshot, at most `STORED` of them, evenly
chosen; the log has those of all later transactions. After a restart, a time means the last epoch before it of which the
time is known.

Cost: 16 bytes for each closing, which is less than any change at an epoch that is retained takes.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

KEPT = 10_000
"""Of how many closings the times are known in any case."""

STORED = 4096
"""Of how many closings the times are stored at most."""


CLOCKS_DIFFER_US = 10_000_000
"""By how much the clocks of two machines may differ."""


class EpochTimes:
    """When epochs were closed. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs, self._times = array("q"), array("q")  # both in order
        self._most = 2 * KEPT  # with so many closings, those that are not needed are forgotten
        self.needed: int | None = None
        """The first epoch whose time is needed for longer; None if there is none."""

    def close(self, epoch: int) -> None:
        """Note that an epoch, and all before it, were closed now."""
        now = now_us()
        with self._lock:
            self._epochs.append(epoch)
            self._times.append(max(now, self._times[-1]) if self._times else now)
            if len(self._epochs) >= self._most:
                self._forget()

    def _forget(self) -> None:
        first = len(self._epochs) - KEPT
        if self.needed is not None:
            first = min(first, bisect_left(self._epochs, self.needed))
        del self._epochs[:first], self._times[:first]
        self._most = 2 * max(KEPT, len(self._epochs))

    def to_json(self) -> list[list[int]]:
        """The epochs and times that are needed, some of them left out, as two lists for `restore`."""
        with self._lock:
            if self.needed is None:
                return [[], []]
            first, last = bisect_left(self._epochs, self.needed), len(self._epochs) - 1
            count = min(last - first + 1, STORED)
            chosen = {last - at * (last - first) // max(1, count - 1) for at in range(count)}
            return [[values[at] for at in sorted(chosen)] for values in (self._epochs, self._times)]

    def restore(self, stored: list[list[int]], later: Iterable[tuple[int, int]]) -> None:
        """Begin with what `to_json` has returned, and with epochs after it and their times, in order."""
        with self._lock:
            self._epochs, self._times = (array("q", values) for values in stored)
            for epoch, time_us in later:
                if not self._epochs or epoch > self._epochs[-1]:
                    self._epochs.append(epoch)
                    self._times.append(max(time_us, self._times[-1]) if self._times else time_us)
            self._most = 2 * max(KEPT, len(self._epochs))

    def of(self, epoch: int) -> int | None:
        """When an epoch was closed; None if it is open. If that is no longer known: a time at which it was closed."""
        with self._lock:
            at = bisect_left(self._epochs, epoch)
            return self._times[at] if at < len(self._times) else None

    def at(self, time_us: int) -> int | None:
        """The last epoch that was closed at a time; None if that was before all closings that are known."""
        with self._lock:
            at = bisect_right(self._times, time_us)
            return self._epochs[at - 1] if at else None

    def is_yet_to_come(self, time_us: int) -> bool:
        """Whether a time is later than now, and than all closings, by more than clocks may differ."""
        with self._lock:
            last = self._times[-1] if self._times else 0
        return time_us > max(last, now_us()) + CLOCKS_DIFFER_US


def now_us() -> int:
    """The time now."""
    return round(time.time() * 1e6)
