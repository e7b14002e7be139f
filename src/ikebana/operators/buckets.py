"""Buckets: the rows of a large group divided by a hash, so that the best rows can be found in levels.

First the best rows of each bucket are found, then the best of these: a change is compared with the rows of its bucket
only (`ikebana.engine.top_k`, `ikebana.reducers.ordering`).

Cost: a hash of the named columns. Not guaranteed: that buckets are equally full, although that is likely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding import payload
from ikebana.encoding.canonical import canonical
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.linear import Step

_BUCKETS = 1024
"""The number of buckets of a level, if one row wins in each bucket."""


def bucket_count(winners: int) -> int:
    """The number of buckets of a level; fewer if several rows win in each bucket, since all winners are read."""
    return max(2, _BUCKETS >> max(0, winners.bit_length() - 1) // 2)


@dataclass(frozen=True)
class Bucket(Step):
    """A linear step that adds a column: a hash of some columns, less than `count` (a power of two).

    Equal rows have the same bucket on every machine.
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
