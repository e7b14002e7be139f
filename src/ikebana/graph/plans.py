"""Building blocks of graph programs: joins that return only some columns, and loops over offers.

A join followed by `select` is two operators; `pairs` selects the columns in the join itself.

`fixpoint` is a loop whose variable is not its result. In most programs the variable holds the *offers* that nodes get
from their neighbours (to be reached, a distance, a label). The body reduces the offers, and joins the arrangement that
the reduction returns with the edges; these are the next offers. A round is thus one arrangement, one reduction and one
join, and nothing is indexed twice. The result of the reduction leaves the loop.

Cost: none; the functions build plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from ikebana.engine.collection import Arrangement, Collection, iterate
from ikebana.errors import SchemaError
from ikebana.expressions import Column
from ikebana.operators.join import JoinColumns
from ikebana.plan import ir

Variables = dict[str, Collection]


def node_type(edges: Collection) -> pa.DataType:
    """The type of nodes; raises unless `src` and `dst` exist and have the same integer type."""
    types = {field.name: field.type for field in edges.node.columns}
    source, target = types.get("src"), types.get("dst")
    if source is None or source != target or not pa.types.is_integer(source):
        raise SchemaError(
            "edges must have columns 'src' and 'dst' of the same integer type",
            detail=f"the columns are {', '.join(f'{name}: {kind}' for name, kind in types.items())}",
            hint="select(src=..., dst=...) or map to such columns first",
        )
    return source


def column(collection: Collection, name: str, renamed: str | None = None) -> Column:
    """A column of a collection as an expression, under another name if it is renamed in between."""
    field = next(field for field in collection.node.columns if field.name == name)
    return Column(field.type, field.nullable, renamed or name)


def pairs(left: Arrangement, right: Arrangement, of_left: Mapping[str, str], of_right: Mapping[str, str]) -> Collection:
    """Join two arrangements on their keys; return only the columns `of_left` and `of_right` (`new: old`)."""
    result = JoinColumns((*of_left, *of_right), tuple(of_left.items()), tuple(of_right.items()))
    return Collection(ir.make(ir.Join, left=left.node, right=right.node, result=result))


def fixpoint(
    initial: Variables,
    body: Callable[[Variables], tuple[Variables, Collection]],
    rounds: int | None = None,
) -> Collection:
    """A loop whose body returns the variables of the next round, and a collection: the result after the last round."""
    inner: list[Collection] = []

    def step(variables: Variables) -> Variables:
        next_round, result = body(variables)
        inner.append(result)
        return next_round

    after = iterate(step, initial, rounds)
    loop = next(iter(after.values())).node.loop  # type: ignore[attr-defined]
    return Collection(ir.make(ir.Leave, source=inner[0].node, loop=loop))
