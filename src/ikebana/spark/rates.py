"""Rates: how many changes per second a view has had lately, from the totals that workers report.

Workers count changes and know no time, so a rate is the difference of two totals. It is the average since the previous
measurement that is at least `LEAST_SECONDS` old; at first, since the view was created.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

LEAST_SECONDS = 1.0
"""Measurements that are closer together say little."""


class _Measured(NamedTuple):
    at: float
    total: int


class Rates:
    """The rates of some totals that only grow, by name. Several threads may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._measured: dict[str, list[_Measured]] = {}  # the last measurements of each, the oldest first
        self._lock = threading.Lock()

    def start(self, name: str) -> None:
        """Begin to measure a total, which is 0 now."""
        with self._lock:
            self._measured[name] = [_Measured(self._clock(), 0)]

    def update(self, totals: Mapping[str, int]) -> dict[str, float]:
        """The changes per second of each, given their totals now; others are forgotten.

        >>> times = iter([0.0, 10.0, 10.5, 14.0])
        >>> rates = Rates(lambda: next(times))
        >>> rates.start("late")
        >>> rates.update({"late": 50}), rates.update({"late": 60}), rates.update({"late": 90})
        ({'late': 5.0}, {'late': 5.7}, {'late': 8.6})
        """
        now = self._clock()
        with self._lock:
            self._measured = {name: self._measured.get(name, [_Measured(now, total)]) for name, total in totals.items()}
            return {name: self._rate(name, _Measured(now, total)) for name, total in totals.items()}

    def _rate(self, name: str, measured: _Measured) -> float:
        earlier = self._measured[name]
        old = [before for before in earlier if measured.at - before.at >= LEAST_SECONDS]
        base = old[-1] if old else earlier[0]
        self._measured[name] = [base, *(before for before in earlier if before.at > base.at), measured]
        seconds = max(measured.at - base.at, LEAST_SECONDS)
        return round((measured.total - base.total) / seconds, 1)
