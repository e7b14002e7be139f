"""Rows as an Arrow IPC stream, in the chunks in which Arrow writes it.

Cost: columns are not copied, so the chunks refer to the memory of the rows. Some 30 us for each stream: small ones are
quicker to copy (`RecordBatch.serialize`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


class _Chunks:
    """A file that keeps what is written to it, without copying."""

    closed = False

    def __init__(self) -> None:
        self.chunks: list[Any] = []

    def write(self, chunk: Any) -> int:
        self.chunks.append(chunk)
        return memoryview(chunk).nbytes

    def flush(self) -> None:
        """There is nothing to flush."""

    def close(self) -> None:
        """There is nothing to close."""


def stream_chunks(rows: pa.RecordBatch) -> list[Any]:
    """The IPC stream of a record batch: its schema, dictionaries, the batch and the end of the stream."""
    sink = _Chunks()
    with pa.PythonFile(sink, mode="w") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.chunks


def without_ends(chunks: Sequence[Any], first: int, last: int) -> list[Any]:
    """Chunks without so many bytes at the start, and at the end.

    >>> b"".join(without_ends([b"abc", b"de", b"fgh"], 4, 1))
    b'efg'
    """
    views = [memoryview(chunk).cast("B") for chunk in chunks if memoryview(chunk).nbytes]
    end = sum(map(len, views)) - last
    kept, start = [], 0
    for view in views:
        part = view[max(0, first - start) : max(0, end - start)]
        start += len(view)
        if len(part):
            kept.append(part)
    return kept
