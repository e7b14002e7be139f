"""Tables, inputs and views of the engine as relations of a program.

Attributes are columns of the same names or, if not all names are there, the columns in their order. If the columns
have the types of the relation and the rows are a set, the relation is the collection itself, and reads its indexes.
Otherwise rows with nulls are left out, numbers are converted (a number that does not fit is an error of its row), and
duplicates are removed.

Cost: none if the collection is used as it is; otherwise an index of the converted rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyarrow import types

from ikebana.datalog.check import Relation
from ikebana.datalog.collections import Facts, columns_of
from ikebana.datalog.storage import Storage
from ikebana.engine import Table
from ikebana.engine.collection import Collection
from ikebana.errors import DatalogError
from ikebana.expressions import Column
from ikebana.expressions.core.builders import cast, conjunction, is_not_null
from ikebana.operators.expression_steps import Computed, RowCondition

_KINDS = {
    "number": types.is_signed_integer,
    "unsigned": types.is_unsigned_integer,
    "float": types.is_floating,
    "symbol": types.is_string,
}


def number_bits(collections: Iterable[Collection]) -> int:
    """The bits of numbers in a program that reads collections: 64 if one of them has 64-bit integers."""
    fields = [field for collection in collections for field in collection.node.columns]
    return 64 if any(types.is_int64(field.type) or types.is_uint64(field.type) for field in fields) else 32


def adapted(collection: Collection, relation: Relation, storage: Storage) -> Facts:
    """The facts of a relation that is a table, input or view of the engine."""
    names = _matching_columns(collection, relation)
    fields = {field.name: field for field in collection.node.columns}
    wanted = [storage.type(kind) for kind in relation.types]
    is_exact = all(
        fields[name].type == kind and not fields[name].nullable for name, kind in zip(names, wanted, strict=True)
    )
    if is_exact and _is_set(collection, names):
        return Facts(collection, names)
    nullable = [Column(fields[name].type, True, name) for name in names if fields[name].nullable]
    rows = collection
    if nullable:
        kept = [field.with_nullable(False) if field.name in names else field for field in collection.node.columns]
        rows = rows.step(RowCondition(conjunction([is_not_null(column) for column in nullable]))).declare(kept)
    columns = columns_of(relation)
    named = tuple(
        (column, cast(Column(fields[name].type, False, name), kind))
        for column, name, kind in zip(columns, names, wanted, strict=True)
    )
    return Facts(rows.step(Computed(named)).distinct(), columns)


def _matching_columns(collection: Collection, relation: Relation) -> tuple[str, ...]:
    """The columns of a collection that are the attributes of a relation."""
    names = relation.attributes if set(relation.attributes) <= set(collection.columns) else tuple(collection.columns)
    fields = {field.name: field.type for field in collection.node.columns}
    shown = ", ".join(f"{name}: {kind}" for name, kind in fields.items())
    if len(names) != relation.arity:
        raise DatalogError(
            f'the columns do not fit relation "{relation.name}"',
            detail=f"the columns are {shown}; the relation is {relation}",
            hint="name the attributes like the columns, or declare as many attributes as there are columns",
        )
    for name, kind in zip(names, relation.types, strict=True):
        if not _KINDS[kind](fields[name]) and not (types.is_large_string(fields[name]) and kind == "symbol"):
            raise DatalogError(
                f'column "{name}" does not fit relation "{relation.name}"',
                detail=f"the columns are {shown}; the relation is {relation}",
                hint=f"declare the attribute with the type of the column, which is {fields[name]}",
            )
    return names


def _is_set(collection: Collection, names: tuple[str, ...]) -> bool:
    """Whether no two rows agree in the columns."""
    return isinstance(collection, Table) and collection.kind == "keyed" and set(collection.key) <= set(names)
