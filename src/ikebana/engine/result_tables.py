"""Results as Arrow tables: with multiplicities, as plain rows, and the rows that have errors.

Workers answer with distinct rows and their multiplicities, in a last column `diff`. Users mostly want plain rows, in
which a row of multiplicity 2 occurs twice. A result has no plain rows if a multiplicity is negative, or if its rows
have several diffs each.

Cost: one pass over the multiplicities if all of them are 1, and otherwise a copy of the rows. The order of rows is not
defined.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import to_numpy
from ikebana.encoding.schema import has_multiplicities
from ikebana.errors import DataflowError
from ikebana.operators.row_errors import Errors


def errors_table(errors: Errors) -> pa.Table:
    """Errors as a table: the reason, the row, and how many times the error occurs."""
    rows = sorted((error.reason, error.row, diff) for error, diff in errors.items())
    return pa.table(
        {
            "error": pa.array([row[0] for row in rows], pa.string()),
            "row": pa.array([row[1] for row in rows], pa.string()),
            "diff": pa.array([row[2] for row in rows], pa.int64()),
        }
    )


def with_at_most(rows: pa.Table, copies: int) -> pa.Table:
    """The rows of a result, each with at most this multiplicity."""
    if not has_multiplicities(rows):
        return rows
    last = rows.num_columns - 1
    diffs = pa.array(np.minimum(rows.column(last).to_numpy(), copies))
    return rows.set_column(last, rows.schema.names[last], diffs)


def plain_rows(table: pa.Table, name: str) -> pa.Table:
    """A result without the column `diff`: each row occurs as many times as its multiplicity says."""
    if not has_multiplicities(table):
        raise DataflowError(
            f"view {name!r} has no plain rows",
            detail="its rows have several diffs each, which are sums and not multiplicities",
            hint="use read()",
        )
    diffs = table.column(table.num_columns - 1)
    counts = to_numpy(diffs.chunk(0) if diffs.num_chunks == 1 else diffs.combine_chunks())
    if np.count_nonzero(counts == 1) == len(counts):
        return table.remove_column(table.num_columns - 1)
    if counts.min() < 0:
        example = table.slice(int(counts.argmin()), 1).to_pylist()[0]
        raise DataflowError(
            f"view {name!r} has rows with negative multiplicities",
            detail=f"{int((counts < 0).sum())} of them, for instance {example}",
            hint="use read(), which returns multiplicities, or do not subtract more rows than exist",
        )
    table = table.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    return table.remove_column(table.num_columns - 1)  # after take: a table without columns has no rows to take
