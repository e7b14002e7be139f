"""Extension of rows by a column on which several indexes agree, as look-ups: count, propose, validate.

`Collection.extend` is the intersection of what several indexes have for the keys of a row. Where it cannot be done in
place (`ikebana.engine.extension`), it is *expanded* into look-ups, which do the same:

1. Each row looks up how many values each index has for it. A row without values in some index ends there.
2. The index with the fewest values *proposes*: the row is looked up in it.
3. All other indexes *validate*: the proposals are looked up in an index by key and value.

The counts, and the index by key and value, are further arrangements, which queries share where they can.

Cost: as many proposals for a row as its smallest index has values.

Not guaranteed: anything about indexes with rows of negative multiplicity, whose counts may be zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ikebana.engine.collection import Arrangement, Collection, ExtensionIndex
from ikebana.expressions import Column, Expression
from ikebana.expressions.core.builders import conjunction, equal, least, not_equal
from ikebana.operators import reducers
from ikebana.operators.expression_steps import RowCondition
from ikebana.plan import ir


def expanded(node: ir.Node) -> ir.Node:
    """An extension as look-ups."""
    assert isinstance(node, ir.Extend)
    source = Collection(node.source)
    uses = [
        ExtensionIndex(Arrangement(index), on, strict, exists)
        for index, on, strict, exists in zip(node.indexes, node.keys, node.strict, node.exists, strict=True)
    ]
    counted = source
    for at, use in enumerate(uses):
        counted = counted.half_join(_counts(use, _count(at)), on=(use.on,), strict=use.strict)
    counts: list[Expression] = [_column(counted, _count(at)) for at in range(len(uses))]
    parts = []
    for at, use in enumerate(uses):
        chosen = counted.step(RowCondition(_is_first_least(counts, at))).select(*source.columns)
        part = chosen.half_join(_proposals(use, node.name), on=(use.on,), strict=use.strict)
        for other, validates in enumerate(uses):
            if other != at:
                part = _validated(part, validates, node.name)
        parts.append(part.select(*node.keep))
    return parts[0].concat(*parts[1:]).node


def _count(at: int) -> str:
    return f"count {at}"


def _column(rows: Collection, name: str) -> Expression:
    field = next(field for field in rows.node.columns if field.name == name)
    return Column(field.type, field.nullable, name)


def _is_first_least(counts: Sequence[Expression], at: int) -> Expression:
    """Whether the count at a position is the least, and none before it is as small."""
    smallest = reduce(least, counts)
    return conjunction([equal(counts[at], smallest), *(not_equal(count, smallest) for count in counts[:at])])


def _indexed_rows(use: ExtensionIndex) -> Collection:
    """The rows of an index, as they were before they were indexed."""
    node = use.index.node
    return Collection(node.source) if isinstance(node, ir.Arrange) else use.index.rows()


def _names(use: ExtensionIndex) -> tuple[str, str]:
    """The key column and the value column of an index."""
    schema = ir.schema_of(use.index.node)
    return schema.key.fields[0].name, schema.val.fields[0].name


def _counts(use: ExtensionIndex, name: str) -> Arrangement:
    """The number of rows of each key, under a name; all counts of an index are the same reduction."""
    key, _ = _names(use)
    return _indexed_rows(use).select(key).count(key, "count").arrange(key).select(**{name: "count"})


def _proposals(use: ExtensionIndex, name: str) -> Arrangement:
    _, value = _names(use)
    index = use.index.reduce(reducers.DISTINCT) if use.exists else use.index
    return index.select(**{name: value})


def _validated(rows: Collection, use: ExtensionIndex, name: str) -> Collection:
    """The rows whose key and proposed value are in an index."""
    key, value = _names(use)
    indexed = _indexed_rows(use)
    on = {key: use.on, value: name}
    pairs = indexed.arrange_by([column for column in indexed.columns if column in on])
    if use.exists:
        pairs = pairs.reduce(reducers.DISTINCT)
    keys = [field.name for field in ir.schema_of(pairs.node).key.fields]
    return rows.half_join(pairs, on=[on[column] for column in keys], strict=use.strict)
