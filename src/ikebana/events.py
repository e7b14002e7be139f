"""What the engine tells about itself.

Parts of the engine report what they do as events, small immutable values, to a listener if one is set. Tests
count work with them; metrics, the console and logs are fed from them. Nothing else in the engine counts
anything.

Cost: nothing without a listener; with one, a microsecond an event. Events are per batch or per step, never
per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class BatchSealed:
    """An arrange operator sealed a batch of so many updates."""

    trace: str
    rows: int


@dataclass(frozen=True, slots=True)
class MergeStarted:
    """A spine began to merge two batches, of so many rows together."""

    trace: str
    rows: int


@dataclass(frozen=True, slots=True)
class MergeStepped:
    """A spine moved so many rows on in a merge."""

    trace: str
    rows: int


@dataclass(frozen=True, slots=True)
class MergeFinished:
    """A merge is complete: rows taken in, and rows left after compaction."""

    trace: str
    rows_in: int
    rows_out: int


@dataclass(frozen=True, slots=True)
class TraceFreed:
    """The last handle on a trace was dropped, and the trace with it."""

    trace: str


Event: TypeAlias = BatchSealed | MergeStarted | MergeStepped | MergeFinished | TraceFreed
Listener: TypeAlias = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that does nothing."""
