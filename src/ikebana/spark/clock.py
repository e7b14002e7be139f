"""The clock of a session: the table from which views read now(), advanced once a second by a thread.

The table has one row. Advancing it is an epoch, in which views that do not read the time have
nothing to do. The clock starts when the first view reads the time, and ends with the session. Between two ticks the
time stands still: a row expires up to `TICK_SECONDS` late.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pyarrow as pa

from ikebana.engine import Engine
from ikebana.errors import IkebanaError, WaitTimeoutError
from ikebana.sql import SourceTable
from ikebana.sql.planned import CLOCK, NOW

TICK_SECONDS = 1.0

_KEY = "row"


class Clock:
    """The current time, for views."""

    def __init__(self, engine: Engine, tick: float = TICK_SECONDS) -> None:
        self._tick, self._stop = tick, threading.Event()
        fields = [pa.field(_KEY, pa.int8()), pa.field(NOW, pa.timestamp("us", "UTC"), nullable=False)]
        self._table, self._coordinator = engine.table(CLOCK, fields, _KEY, durable=False), engine.coordinator
        self._now: datetime | None = None
        self.advance()
        self.table = SourceTable(CLOCK, self._table.select(NOW))
        """The table that queries read."""
        self._thread = threading.Thread(target=self._run, name="ikebana clock", daemon=True)
        self._thread.start()

    def advance(self) -> None:
        """Set the current time."""
        before, now = self._now, datetime.now(UTC)
        times = [now] if before is None else [now, before]
        deadline = self._coordinator.deadline(None, "advancing the clock")
        self._table.apply({_KEY: [0] * len(times), NOW: times}, [1, -1][: len(times)], deadline)
        self._now = now

    def _run(self) -> None:
        while not self._stop.wait(self._tick):
            try:
                self.advance()
            except WaitTimeoutError:  # for instance while workers are replaced
                continue
            except IkebanaError:  # the workers have ended
                return

    def close(self) -> None:
        """Stop the clock; the time stands still from then on."""
        self._stop.set()
        self._thread.join()
