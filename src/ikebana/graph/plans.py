"""Plans that graph programs have in common: joins that give just the wanted columns, and loops over offers.

A join followed by `select` is two operators; `pairs` names the columns of the join itself.

`fixpoint` is a loop whose variable is not the result. In most programs the variable is what nodes are *offered* by
their neighbours (to be reached, a distance, a label). The body reduces the offers, and joins the reduction's own
output arrangement with the edges to make the next offers. So a round is one arrangement, one reduction and one
join; nothing is indexed twice. What leaves the loop is the reduction.

Cost: none of their own; they make plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from ikebana.engine.collection import Arrangement, Collection, iterate
from ikebana.errors import SchemaError
from ikebana.operators.join import Result
from ikebana.plan import ir

Variables = dict[str, Collection]


def node_type(edges: Collection) -> pa.DataType:
    """The type of nodes; raises unless `src` and `dst` are there and of one integer type."""
    types = {field.name: field.type for field in edges.node.columns}
    source, target = types.get("src"), types.get("dst")
    if source is None or source != target or not pa.types.is_integer(source):
        raise SchemaError(
            "edges need columns 'src' and 'dst' of one integer type",
            detail=f"the columns are {', '.join(f'{name}: {kind}' for name, kind in types.items())}",
            hint="select(src=..., dst=...) or map to such columns first",
        )
    return source


def pairs(left: Arrangement, right: Arrangement, mine: Mapping[str, str], theirs: Mapping[str, str]) -> Collection:
    """Pairs of rows with equal keys; of the left side the columns `mine` (`new: old`), of the right side `theirs`."""
    result = Result((*mine, *theirs), tuple(mine.items()), tuple(theirs.items()))
    return Collection(ir.make(ir.Join, left=left.node, right=right.node, result=result))


def fixpoint(
    initial: Variables,
    body: Callable[[Variables], tuple[Variables, Collection]],
    rounds: int | None = None,
) -> Collection:
    """A loop whose body gives the next variables, and a collection: that, after the last round."""
    inner: list[Collection] = []

    def step(variables: Variables) -> Variables:
        following, result = body(variables)
        inner.append(result)
        return following

    after = iterate(step, initial, rounds)
    loop = next(iter(after.values())).node.loop  # type: ignore[attr-defined]
    return Collection(ir.make(ir.Leave, source=inner[0].node, loop=loop))
