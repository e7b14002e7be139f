"""Whatever happens to a trace, what its readers see is what the model says.

Random updates with retractions, times of 1-3 coordinates, sealed at random frontiers, merged with any effort
while handles are cloned, advanced and dropped: see `tests.trace.trace_run` for what is compared.
"""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.operators import Arrange
from tests.trace import compare
from tests.trace.strategies import HASTE, INTEGERS, Domain, Script, domains, examples, scripts
from tests.trace.trace_run import idle, merge_all, play, slow_spines


@examples(12, quick=4)
@given(scripts())
def test_oracle_trace(script: Script) -> None:
    play(script)


MANY = Domain(INTEGERS.schema, [(n,) for n in range(40)], [(n,) for n in range(40)])


@examples(0.3)
@given(scripts(st.just(MANY), heads=(256,), burst=1500, length=20))
def test_oracle_trace_at_the_real_scale(script: Script) -> None:
    play(script)


@examples(3, quick=1.5)
@given(scripts(domains()))
def test_oracle_trace_of_typed_columns(script: Script) -> None:
    play(script)


def colliding(hash_bits: int) -> Domain:
    """Strings that may be null, and hashes so short that they collide; with 0 bits all do."""
    key, val = (pa.field("k", pa.string(), nullable=True),), (pa.field("v", pa.string(), nullable=True),)
    texts = [(None,), *((text,) for text in ["", "a", "b", "c", "d", "ab", "a\0"])]
    return Domain(Schema(key, val, hash_bits=hash_bits), texts, texts)


@examples(2, quick=1)
@given(scripts(st.sampled_from([4, 3, 2, 0]).map(colliding)))
def test_oracle_trace_of_colliding_strings(script: Script) -> None:
    play(script)


@examples(2, quick=1)
@given(scripts(st.sampled_from([0, 2, 4]).flatmap(lambda bits: domains(hash_bits=bits))))
def test_oracle_trace_of_colliding_columns(script: Script) -> None:
    play(script)


AGGREGATES = Domain(
    Schema(key={"k": pa.int64()}, val={"v": pa.int64()}, diffs=("count", "sum")),
    [(n,) for n in range(3)],
    [(n,) for n in range(2)],
)


@examples(2, quick=1)
@given(scripts(st.just(AGGREGATES)))
def test_oracle_trace_of_linear_aggregates(script: Script) -> None:
    play(script)


rows = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 9), st.sampled_from([1, -1, 2]))


@examples(1)
@given(
    st.lists(rows, max_size=40), st.lists(st.integers(1, 9), max_size=9), st.sampled_from(list(HASTE)),
    st.sampled_from([1, 4]), st.lists(st.integers(0, 9), max_size=3),
)  # fmt: skip
def test_invariance_of_batches_and_effort(
    updates: list[tuple[int, int, int, int]], seals: list[int], effort: str, head: int, steps: list[int]
) -> None:
    """However updates come and are merged, what is stored in the end is the same, row for row."""

    def stored(seals: list[int], effort: str, steps: list[int]) -> list[object]:
        arrange = Arrange(INTEGERS.schema, effort=effort)
        handle, sealed = arrange.handle(), 0
        for upper in [*sorted(set(seals)), 10]:
            for k, v, epoch, diff in updates:
                if sealed <= epoch < upper:
                    arrange.update({"k": [k], "v": [v]}, (epoch,), diff)
            arrange.advance((upper,))
            for rows in steps:
                idle(handle, rows)
            sealed = upper
        merge_all(handle)
        return [compare.batch_triples(batch) for batch in handle.batches() if len(batch)]

    with slow_spines(head):
        assert stored(seals, effort, steps) == stored([], "default", [])
