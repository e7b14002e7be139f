"""Traces: the multiversioned, shared index.

Bottom up: `timetable` and `updates` hold updates as columns; `batch` and `edges` are two layouts of sorted immutable
batches, `description` their frontiers; `merge` and `spine` keep batches few; `batcher` seals new ones; `reading` and
`views` read them; `handle` shares them.
"""

from ikebana.trace.batch import FLAT, Batch, Layout
from ikebana.trace.batcher import Batcher
from ikebana.trace.description import Description
from ikebana.trace.edges import EDGES
from ikebana.trace.handle import BatchQueue, Handle, Trace, Writer
from ikebana.trace.reading import Reader
from ikebana.trace.spine import EFFORT, Spine
from ikebana.trace.updates import Updates

__all__ = [
    "EDGES",
    "EFFORT",
    "FLAT",
    "Batch",
    "BatchQueue",
    "Batcher",
    "Description",
    "Handle",
    "Layout",
    "Reader",
    "Spine",
    "Trace",
    "Updates",
    "Writer",
]
