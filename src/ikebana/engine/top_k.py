"""Plans for the first rows of each key by an order: `Collection.min`, `max` and `top_k`.

If the columns that are not in the key fit into one lane of 64 bits, the index keeps them in order, and a reduction
reads only its ends. Otherwise rows compete in levels: first within a bucket, then with the winners of other buckets,
and so on. A change then requires the rows of one bucket of each level to be read, rather than those of the whole group.

Cost: a change takes time in proportion to the size of its bucket at each level, and to `k`; each level takes an index
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.engine.columns import check_known, check_ordered, unused_name
from ikebana.errors import SchemaError
from ikebana.operators import reducers
from ikebana.operators.buckets import Bucket, bucket_count

if TYPE_CHECKING:
    from ikebana.engine.collection import Collection

_MAX_LEVELS = 4
"""The greatest number of levels."""


def top_k_rows(
    rows: Collection,
    by: str | Sequence[str],
    k: int,
    columns: tuple[str, ...],
    *,
    greatest: bool,
    distinct: bool,
    levels: int | None,
) -> Collection:
    """The `k` least or greatest rows of each key, by some columns, or by all columns that are not in the key."""
    key = (by,) if isinstance(by, str) else tuple(by)
    check_known(rows.node, [*key, *columns])
    check_ordered(field for field in rows.node.columns if field.name in columns)
    values = tuple(name for name in rows.columns if name not in key)
    order = tuple(dict.fromkeys(name for name in columns if name not in key)) or values
    how = reducers.TopK(k, order, greatest, distinct)
    in_order = _fit_into_lane([field for field in rows.node.columns if field.name in values])
    levels = (1 if in_order else 2) if levels is None else levels
    in_loop = bool(rows.node.scope)  # where whole groups are read
    if levels == 1 and in_order and order != values[: len(order)] and not in_loop:
        reordered = rows.select(*key, *dict.fromkeys((*order, *values)))
        return reordered.reduce_by(key, how).select(*key, *values)
    return _top_in_levels(rows, key, values, how, levels)


def _top_in_levels(
    rows: Collection, key: tuple[str, ...], values: tuple[str, ...], how: reducers.TopK, levels: int
) -> Collection:
    """The rows that win in their bucket, then among the winners of several buckets, and so on, up to all rows."""
    if not 1 <= levels <= _MAX_LEVELS:
        raise SchemaError(f"there can be 1 to {_MAX_LEVELS} levels", detail=f"`levels` is {levels}")
    bucket, buckets = unused_name("bucket", rows.columns), bucket_count(how.k)
    winners = rows
    for level in range(levels - 1 if values else 0, 0, -1):
        in_buckets = winners.step(Bucket(bucket, values, buckets**level))
        winners = in_buckets.reduce_by((*key, bucket), how).select(*rows.columns)
    return winners.reduce_by(key, how)


def _fit_into_lane(fields: Iterable[pa.Field]) -> bool:
    """Whether the columns fit into one lane, so that an index keeps them in order."""
    return Schema((), fields).val.exact
