"""Digests of values: equal values have equal ones, however they were made; different values do not."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.plan import digests
from ikebana.plan.digests import digest_of


@dataclass(frozen=True)
class Leaf:
    value: Any
    seen_at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Other:
    value: Any


@dataclass(frozen=True, slots=True)
class Branch:
    name: str
    parts: tuple[Any, ...]


class Colour(Enum):
    RED = 1
    GREEN = 2


class Extended(Leaf):
    """Not what its fields are: it has more."""

    def __init__(self, value: Any, more: int) -> None:
        super().__init__(value)
        object.__setattr__(self, "more", more)


def text(*parts: str) -> str:
    """A new text, equal to others but no other's object."""
    return "".join(parts)


def test_equal_values_that_are_made_differently_agree() -> None:
    name = text("na", "me")
    assert digest_of(Branch(name, (Leaf(name), Leaf(name)))) == digest_of(
        Branch(text("n", "ame"), (Leaf(text("nam", "e")), Leaf(text("", "name"))))
    )
    assert digest_of({"a": [1, 2]}) == digest_of({text("a"): [1, 2]})
    assert digest_of(frozenset("abc")) == digest_of(frozenset("cab"))


def test_what_does_not_count_in_comparisons_does_not_count() -> None:
    assert digest_of(Leaf(1, seen_at=5)) == digest_of(Leaf(1, seen_at=6))


DIFFERENT = [
    None,
    True,
    1,
    1.0,
    -0.0,
    0.0,
    "1",
    b"1",
    Decimal("1"),
    Decimal("1.0"),
    date(2020, 1, 1),
    datetime(2020, 1, 1),
    (),
    (1,),
    ((1,),),
    [1],
    (1, 2),
    ("1,2",),
    ("1", "2"),
    {1: 2},
    frozenset({1, 2}),
    Leaf(1),
    Leaf("1"),
    Leaf(Leaf(1)),
    Other(1),
    Extended(1, 2),
    Extended(1, 3),
    Branch("a", (1, 2)),
    Branch("a", ((1, 2),)),
    Colour.RED,
    Colour.GREEN,
    Colour,
    pa.int64(),
    pa.int32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.list_(pa.int64()),
    pa.list_(pa.field("item", pa.int64(), nullable=False)),
    pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.int64())]),
    pa.struct([pa.field("a: int64, b", pa.int64())]),
    pa.field("a", pa.int64()),
    pa.field("a", pa.int64(), nullable=False),
    pa.field("b", pa.int64()),
    pa.scalar(1),
    pa.scalar(1, pa.int32()),
    pa.scalar(None, pa.int32()),
    pa.array([1]),
    pa.array([1, 2]),
    pa.array([1, None]),
    pa.array([0.0]),
    pa.array([-0.0]),
    pa.table({"a": [1]}),
    pa.table({"b": [1]}),
    pa.table({"a": [1]}).select([]),
    pa.table({"a": [1, 1]}).select([]),
    np.array([1]),
    np.array([[1]]),
    np.array([1], np.int32),
    lambda: 1,
    lambda: 2,
]


def test_different_values_differ() -> None:
    texts = [digest_of(value) for value in DIFFERENT]
    twice = [value for value, digest in zip(DIFFERENT, texts, strict=True) if texts.count(digest) > 1]
    assert not twice


@pytest.mark.parametrize("value", DIFFERENT, ids=lambda value: type(value).__name__)
def test_a_digest_stays_the_same(value: Any) -> None:
    assert digest_of(value) == digest_of(value)


@given(st.lists(st.none() | st.text(max_size=3), min_size=1), st.integers(0, 5), st.integers(1, 3))
def test_arrays_are_digested_by_content(values: list[Any], before: int, chunks: int) -> None:
    plain = pa.array(values, pa.string())
    sliced = pa.array([*["x"] * before, *values, "y"], pa.string())[before : before + len(values)]
    assert digest_of(plain) == digest_of(sliced)
    pieces = [plain[: len(values) // chunks], plain[len(values) // chunks :]]
    assert digest_of(pa.table({"a": plain})) == digest_of(pa.table({"a": pa.chunked_array(pieces)}))


@dataclass(frozen=True)
class Holder:
    values: Any


def test_what_can_change_is_looked_at_again() -> None:
    for value in ([1], np.array([1])):
        holder = Holder((value,))
        before = digest_of(holder)
        value[0] = 2
        assert digest_of(holder) != before


def test_digests_are_kept_as_long_as_their_object() -> None:
    gc.collect()
    before = len(digests._known)
    tree = Leaf(Leaf(Leaf(1)))
    digest_of(tree)
    assert len(digests._known) == before + 3
    del tree
    gc.collect()
    assert len(digests._known) == before


def test_classes_that_cannot_be_imported_are_told_apart_by_what_they_do() -> None:
    def instance(answer: int) -> Any:
        @dataclass(frozen=True)
        class Local:
            def __call__(self) -> int:
                return answer

        return Local()

    assert digest_of(instance(1)) != digest_of(instance(2))
