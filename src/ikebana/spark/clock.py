"""The clock of a session: what now() reads in views, advanced by a thread once a second.

It is a table of one row. Advancing it is a transaction, hence an epoch; views that do not look at the time do nothing
then. It starts when the first view asks for the time, and ends with the session. Between two ticks the time stands
still: a row expires up to `TICK` seconds late.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pyarrow as pa

from ikebana.engine import Engine
from ikebana.errors import IkebanaError
from ikebana.sql import SourceTable
from ikebana.sql.planned import CLOCK, NOW

TICK = 1.0
"""Seconds between two ticks."""

_ROW = "row"


class Clock:
    """What time it is, for views."""

    def __init__(self, engine: Engine, tick: float = TICK) -> None:
        self._tick, self._stop = tick, threading.Event()
        fields = [pa.field(_ROW, pa.int8()), pa.field(NOW, pa.timestamp("us", "UTC"), nullable=False)]
        self._table = engine.table(CLOCK, fields, _ROW)
        self.advance()
        self.table = SourceTable(CLOCK, self._table.select(NOW))
        """What queries read."""
        self._thread = threading.Thread(target=self._run, name="ikebana clock", daemon=True)
        self._thread.start()

    def advance(self) -> None:
        """Show the present time."""
        self._table.upsert({_ROW: [0], NOW: [datetime.now(UTC)]})

    def _run(self) -> None:
        while not self._stop.wait(self._tick):
            try:
                self.advance()
            except IkebanaError:  # the workers are gone
                return

    def close(self) -> None:
        """Stop; the time stands still from now on."""
        self._stop.set()
        self._thread.join()
