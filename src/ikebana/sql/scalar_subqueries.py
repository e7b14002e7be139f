"""The value of a scalar subquery: exactly one row, null where the subquery has none.

A subquery with more than one row is an error, which Spark too only finds when it runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.errors import EvaluationError
from ikebana.expressions import Literal
from ikebana.operators.changes import Fields
from ikebana.operators.reducers import Groups, ReducedRows, Reducer
from ikebana.sql.relation import Relation, from_collection

_THERE, _VALUE = "there", "value"


@dataclass(frozen=True)
class Single(Reducer):
    """The one value that is there; the row that stands for none, where there is none."""

    def fields(self, schema: Schema) -> Fields:
        return tuple(field for field in schema.val.fields if field.name == _VALUE)

    def apply(self, groups: Groups) -> ReducedRows:
        there = groups.values.columns()[_THERE].to_numpy(zero_copy_only=False).astype(bool)
        counts = np.bincount(groups.group, np.where(there, groups.sums[0], 0))
        if (counts > 1).any():
            raise EvaluationError(
                "a scalar subquery has more than one row", hint="aggregate it, or use IN or EXISTS instead"
            )
        rows = np.flatnonzero(there | (counts[groups.group] == 0))
        return ReducedRows(rows, [groups.values.columns()[_VALUE].take(pa.array(rows))], np.ones(len(rows), np.int64))


def single_value(part: Relation, attribute: int, number: int, always: Relation) -> Relation:
    """The only value of an attribute, as an attribute of another number.

    There is a row for each that `always` has: see `Lowering.always`.
    """
    names = {number: part.names[attribute]}
    key = part.key()
    value = part.outputs[attribute]
    if part.unique == key and not part.filters:  # an aggregate of everything: it has one row
        return Relation(part.source, {number: value}, names, unique=key)
    found = part.rows([(_THERE, Literal(pa.bool_(), False, True)), (_VALUE, value)])
    nothing = always.rows([(_THERE, Literal(pa.bool_(), False, False)), (_VALUE, Literal(value.type, True, None))])
    rows = found.concat(nothing)
    return from_collection(rows.arrange_by(key).reduce(Single()).rows(), [(number, _VALUE)], names, unique=key)
