"""Previews: what a program would write at an epoch, compared with what visits write (`IKEBANA_FUSE=both`).

A program is run and undone, the operators are visited, and then the rows that both have written to each trace must be
the same. Not compared: anything but traces, such as what subscribers are sent.

Cost: all rows of the epoch pass through Python, so this is for tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ikebana.encoding import payload as payloads
from ikebana.trace.batch import StoredBatch
from ikebana.trace.handle import Trace
from ikebana.trace.updates import Updates


@dataclass(frozen=True, slots=True)
class Preview:
    """What a program would write to each trace at an epoch."""

    epoch: int
    batches: list[tuple[Trace, StoredBatch | None]]


def check_preview(preview: Preview) -> None:
    """Raise unless visits have written to each trace what the program would have written."""
    epoch = preview.epoch
    for trace, batch in preview.batches:
        written = [_at_epoch(stored.updates, epoch) for stored in trace.spine.batches()]
        actual = _counted(updates for updates in written if len(updates))
        expected = _counted([batch.updates] if batch is not None else [])
        assert actual == expected, f"a program and visits differ at epoch {epoch} in {trace.name!r}"


def _at_epoch(updates: Updates, epoch: int) -> Updates:
    return updates.at_times(updates.times[:, 0] == epoch)


def _counted(parts: Iterable[Updates]) -> dict[object, list[int]]:
    """The diffs of each row and time; rows are lanes and bytes, of which equal data have the same."""
    totals: dict[object, list[int]] = {}
    for updates in parts:
        payload = payloads.cells(updates.payload) if updates.payload else [()] * len(updates)
        times = updates.times[updates.tix].tolist()
        rows = zip(updates.key.tolist(), updates.val.tolist(), payload, map(tuple, times), strict=True)
        for row, diffs in zip(rows, updates.diffs.T.tolist(), strict=True):
            totals[row] = [a + b for a, b in zip(totals.get(row, [0] * len(diffs)), diffs, strict=True)]
    return {row: diffs for row, diffs in totals.items() if any(diffs)}
