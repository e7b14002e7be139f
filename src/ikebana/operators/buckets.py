"""Buckets: rows put into one of many by a hash of their columns, so that they can compete in levels.

Of a large group, first the best of each bucket is found, then the best of these: a change is compared with the rows of
its bucket, and not with all (`ikebana.engine.collection.Collection.top_k`).

Cost: a hash of the columns that are named. Not guaranteed: that buckets are equally full, only that it is likely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding import payload
from ikebana.encoding.canonical import canonical
from ikebana.operators.changes import Changes, Fields


@dataclass(frozen=True)
class Bucket:
    """A linear step: one more column, a hash of some columns, below `count` (a power of two).

    Equal rows have the same bucket, on every machine.
    """

    name: str
    hashed: tuple[str, ...]
    count: int

    def fields(self, given: Fields) -> Fields:
        return (*given, pa.field(self.name, pa.int32(), nullable=False))

    def __call__(self, changes: Changes) -> Changes:
        named = changes.named
        hashes = payload.hashes(tuple(canonical(named[name]) for name in self.hashed))
        bucket = pa.array((hashes & (self.count - 1)).astype(np.int32))
        return changes.with_columns(self.fields(changes.fields), (*changes.columns, bucket))
