"""Merges of two batches: which times their output has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.time import Antichain
from ikebana.trace import Batcher, Handle, Trace, Updates
from ikebana.trace.spine import HEAD

KEYS = Schema({"k": pa.int64()})
START = Antichain.of((0,))


def test_a_merge_compacts_the_times_that_readers_have_passed_when_it_is_given_fuel() -> None:
    trace = Trace(KEYS, START)
    handle, batcher = Handle(trace, START), Batcher(KEYS, START, "rows")
    for epoch in range(3):
        keys = np.arange(epoch, 6 * HEAD, 3)
        batcher.append(Updates.of(KEYS, {"k": keys}, (epoch,)))
        trace.insert(batcher.seal(Antichain.of((epoch + 1,))))
        handle.advance((epoch + 1,))
    merged = trace.spine.batches()[0]
    assert len(merged) == 4 * HEAD
    assert merged.times.tolist() == [[2]]
