"""Traces: the multiversioned, shared index.

Bottom up: `time_tables`, `timed_rows` and `updates` hold updates as columns; `batch` has the sorted immutable batches,
`description` their frontiers; `merge` and `spine` keep the number of batches small; `batcher` seals new ones; `views`
and `reading` read them; `handle` shares them.
"""

from ikebana.trace.batch import Batch
from ikebana.trace.batcher import Batcher
from ikebana.trace.description import Description
from ikebana.trace.handle import BatchQueue, Handle, Trace, Writer
from ikebana.trace.reading import Reader
from ikebana.trace.spine import EFFORT, Spine
from ikebana.trace.updates import Updates

__all__ = [
    "EFFORT",
    "Batch",
    "BatchQueue",
    "Batcher",
    "Description",
    "Handle",
    "Reader",
    "Spine",
    "Trace",
    "Updates",
    "Writer",
]
