"""Delta joins: `natural_join` of any number of collections, without indexes of intermediate results.

For each collection there is one path: its changes are looked up in arrangements of all other collections, one after the
other, by the columns known so far. The result is the sum of all paths. Cost: one look-up for each change and each other
collection; memory only for the arrangements of the collections, which are shared with other queries.
"""

from __future__ import annotations

from collections.abc import Sequence

from ikebana.engine.collection import Collection
from ikebana.engine.columns import declared_nullable
from ikebana.errors import SchemaError


def natural_join(*collections: Collection) -> Collection:
    """Join any number of collections on all columns of the same name.

    Inside loops, collections are joined two at a time, and the result of two is indexed: what a change meets may be due
    at a later round, at which the other collections differ from what they were for the change.
    """
    names = list(dict.fromkeys(name for collection in collections for name in collection.columns))
    if len(collections) > 2 and any(collection.node.scope for collection in collections):
        first, *others = collections
        best = max(others, key=lambda other: len({*other.columns} & {*first.columns}))
        others.remove(best)
        return natural_join(natural_join(first, best), *others).select(*names)
    paths = [_delta_path(collections, start).select(*names) for start in range(len(collections))]
    return paths[0].with_paths(*paths[1:])


def _delta_path(collections: Sequence[Collection], start: int) -> Collection:
    """The changes of one collection, looked up in all others; in those before it strictly.

    The changes of the first collection thus meet all rows that exist when a query starts; the other paths need only
    later changes.
    """
    in_loop = any(collection.node.scope for collection in collections)
    path = collections[start]._later() if start and not in_loop else collections[start]
    waiting = [at for at in range(len(collections)) if at != start]
    while waiting:
        shared = {at: [name for name in collections[at].columns if name in path.columns] for at in waiting}
        best = max(waiting, key=lambda at: len(shared[at]))
        if not shared[best]:
            raise SchemaError(
                "cannot join collections that have no column in common",
                detail=f"{collections[best].columns} shares no name with {path.columns}",
                hint="give columns that should be equal the same name: select(new=old)",
            )
        may_be_null = {field.name for field in path.node.columns if field.nullable} & set(shared[best])
        other = Collection(declared_nullable(collections[best].node, may_be_null))
        path = path.half_join(other.arrange_by(shared[best]), strict=best < start)
        waiting.remove(best)
    return path
