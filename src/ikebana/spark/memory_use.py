"""What tables and views cost: the memory that each has for itself, what it shares with others, and what a drop frees.

Computed from the catalogue of the engine (`ikebana.engine.catalog`) and from the sizes that workers report. An
arrangement that holds the rows of a table or view belongs to that one, and so does an index that only one uses. All
others who use an arrangement share it. The memory of a session is what belongs to somebody and, counted once, the
indexes that several share and that belong to none of them.

Sizes are those of all workers together, with the private indexes inside a dataflow. Cost: one request to all workers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ikebana.engine.catalog import Catalog, User
from ikebana.engine.inspection import known_key
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.runtime.messages import ArrangementStatus
from ikebana.spark.listing import IF_ANY, Bytes


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """The memory of a table or view, on all workers.

    own: of its rows, and of indexes that nobody else uses.
    mapped: how much of `own` is in mapped files, and takes memory only while it is used.
    shared: of indexes and results that it uses together with others.
    shared_with: whose these are: a table or view, or the index of a table that no one owns.
    freed_by_drop: how much memory dropping it would free: of a table that views read, nothing.
    """

    name: str
    kind: str
    own: Bytes
    mapped: Bytes = field(metadata=IF_ANY)
    shared: Bytes
    freed_by_drop: Bytes
    shared_with: tuple[str, ...]


def memory_infos(catalog: Catalog, statuses: Iterable[ArrangementStatus]) -> list[MemoryInfo]:
    """The memory of all tables and views, the largest first. The caller holds the coordinator's lock."""
    sizes: dict[str, int] = defaultdict(int)
    mapped: dict[str, int] = defaultdict(int)
    for status in statuses:
        sizes[status.dataflow] += status.bytes + status.inner_bytes
        mapped[status.dataflow] += status.mapped_bytes
    used: dict[tuple[str, str], list[str]] = defaultdict(list)  # the dataflows of each user, by kind and name
    for dataflow in catalog.dataflows():
        for user in dict.fromkeys((user.kind, user.name) for user in catalog.users_of(dataflow)):
            used[user].append(dataflow)
    imports = {dataflow: _imports(catalog, dataflow) for dataflow in catalog.dataflows()}
    infos = [_info(catalog, sizes, mapped, imports, user, dataflows) for user, dataflows in used.items()]
    return sorted(infos, key=lambda info: (-info.own, -info.shared, info.name))


def _info(
    catalog: Catalog,
    sizes: Mapping[str, int],
    mapped: Mapping[str, int],
    imports: Mapping[str, list[str]],
    user: tuple[str, str],
    dataflows: list[str],
) -> MemoryInfo:
    kind, name = user
    others = [dataflow for dataflow in imports if _users(catalog.users_of(dataflow)) - {user}]
    needed = {imported for dataflow in others for imported in imports[dataflow]}
    alone = [dataflow for dataflow in dataflows if dataflow not in others and dataflow not in needed]
    own = [d for d in dataflows if d not in others or _users(catalog.owners_of(d)) == {user}]
    imported = [other for dataflow in own for other in imports[dataflow]]
    shared = [dataflow for dataflow in dict.fromkeys((*dataflows, *imported)) if dataflow not in own]
    return MemoryInfo(
        name,
        kind,
        own=Bytes(sum(sizes[dataflow] for dataflow in own)),
        mapped=Bytes(sum(mapped[dataflow] for dataflow in own)),
        shared=Bytes(sum(sizes[dataflow] for dataflow in shared)),
        freed_by_drop=Bytes(sum(sizes[dataflow] for dataflow in alone)),
        shared_with=tuple(dict.fromkeys(label for d in shared for label in _labels(catalog, d, user))),
    )


def _imports(catalog: Catalog, dataflow: str) -> list[str]:
    """The dataflows whose arrangements a dataflow reads: indexes and results, and the rows of tables."""
    primaries = {
        owner.name: other for other in catalog.dataflows() for owner in catalog.owners_of(other) if owner.kind != "view"
    }
    imports: dict[str, None] = {}
    nodes, seen = [catalog.arrangement(dataflow)], set[str]()
    while nodes:
        node = nodes.pop()
        if node.digest in seen:
            continue
        seen.add(node.digest)
        maintainer = primaries.get(node.name) if isinstance(node, ir.Source) else catalog.maintainer(node)
        if maintainer is None or maintainer == dataflow:
            nodes.extend(node.inputs)
        else:
            imports[maintainer] = None
    return list(imports)


def _users(users: Iterable[User]) -> set[tuple[str, str]]:
    return {(user.kind, user.name) for user in users}


def _labels(catalog: Catalog, dataflow: str, user: tuple[str, str]) -> list[str]:
    """Whose an arrangement is; for an index that belongs to several users, what it indexes by which columns."""
    owners = [owner.name for owner in catalog.owners_of(dataflow) if (owner.kind, owner.name) != user]
    if owners:
        return owners
    plan = catalog.arrangement(dataflow)
    sources = sorted({node.name for node in walk(plan) if isinstance(node, ir.Source)})
    columns = ", ".join(known_key(catalog, dataflow))
    return [f"{' and '.join(sources)} by {columns}" if columns else " and ".join(sources)]
