"""The value of a scalar subquery: exactly one row, null if the subquery has none.

A subquery with more than one row is an error, which Spark too finds only when it runs.
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

_IS_PRESENT, _VALUE = "is present", "value"


@dataclass(frozen=True)
class Single(Reducer):
    """The value of the only row that is present; if there is none, the value of the row that stands for no rows."""

    label = "single value"
    is_called = True

    def fields(self, schema: Schema) -> Fields:
        return tuple(field for field in schema.val.fields if field.name == _VALUE)

    def apply(self, groups: Groups) -> ReducedRows:
        columns = groups.values.columns()
        is_present = columns[_IS_PRESENT].to_numpy(zero_copy_only=False).astype(bool)
        counts = np.bincount(groups.group, np.where(is_present, groups.sums[0], 0))
        if (counts > 1).any():
            raise EvaluationError(
                "a scalar subquery has more than one row", hint="aggregate it, or use IN or EXISTS instead"
            )
        rows = np.flatnonzero(is_present | (counts[groups.group] == 0))
        return ReducedRows(rows, [columns[_VALUE].take(pa.array(rows))], np.ones(len(rows), np.int64))


def single_value(relation: Relation, attribute: int, number: int, always: Relation) -> Relation:
    """The only value of an attribute, as attribute `number`; a row for each row of `always` (`Lowering.always`)."""
    names = {number: relation.names[attribute]}
    key = relation.key()
    value = relation.outputs[attribute]
    if relation.unique == key and not relation.filters:  # an aggregate of all rows: it has one row
        return Relation(relation.source, {number: value}, names, unique=key)
    present = relation.rows([(_IS_PRESENT, Literal(pa.bool_(), False, True)), (_VALUE, value)])
    absent = always.rows([(_IS_PRESENT, Literal(pa.bool_(), False, False)), (_VALUE, Literal(value.type, True, None))])
    rows = present.concat(absent).arrange_by(key).reduce(Single()).rows()
    return from_collection(rows, [(number, _VALUE)], names, unique=key)
