"""Advice on a session: what takes memory or time and need not.

- An index that `table.arrange(by=...)` keeps and that neither a view nor a look-up uses.
- A table without a key that views index by columns in which no two rows agree: with these columns as its key, the table
  itself would be that index.
- Parts of queries that several views compute, each for itself, because sharing is switched off for one of them, or
  because only indexes are shared by themselves: a view of the common part would be computed once.

Figures are sizes of what exists, or estimates (`ikebana.plan.estimates`). What holds for the rows of today need not
hold for those of tomorrow: whether columns are a key is for the user to know.

Cost: one request to all workers, and one for each index of a table without a key, which reads the keys of the index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ikebana.engine.engine import Engine
from ikebana.engine.inspection import EMPTY, Size, indexes, sizes_by_dataflow
from ikebana.engine.tables import Table
from ikebana.errors import DataflowError
from ikebana.plan import ir
from ikebana.plan.estimates import Known, estimated_bytes, indexed_columns
from ikebana.plan.sharing import replaced, walk
from ikebana.spark.listing import Bytes, Listing


@dataclass(frozen=True, slots=True)
class Advice:
    """What could be done better.

    about: the tables and views that it is about. saves: about how many bytes that would save, on all workers.
    """

    about: tuple[str, ...]
    advice: str
    saves: Bytes


def advise(engine: Engine, timeout: float | None = None) -> Listing[Advice]:
    """All advice, what saves most first."""
    sizes = sizes_by_dataflow(engine.status(timeout=timeout))
    with engine.coordinator.lock:
        tables = [table for table in engine.tables.values() if table.kind != "stream"]
    rows = {table.name: sizes.get(table.spec.dataflow, EMPTY).rows for table in tables}
    advice = [
        *(item for table in tables for item in _unused_indexes(table, sizes)),
        *(item for table in tables if table.kind == "bag" for item in _missing_key(engine, table, sizes, timeout)),
        *_computed_twice(engine, Known(rows)),
    ]
    return Listing(sorted(advice, key=lambda item: (-item.saves, item.about)), Advice)


# Indexes.


def _unused_indexes(table: Table, sizes: Mapping[str, Size]) -> Iterator[Advice]:
    for by, dataflow in table.unused_indexes().items():
        columns = by[0] if len(by) == 1 else list(by)
        yield Advice(
            (table.name,),
            f"nobody uses its index by {', '.join(by)}: table.drop_arrangement({columns!r})",
            Bytes(sizes.get(dataflow, EMPTY).bytes),
        )


def _missing_key(engine: Engine, table: Table, sizes: Mapping[str, Size], timeout: float | None) -> Iterator[Advice]:
    """Advice on the smallest set of columns by which views index a table, and in which no two rows agree."""
    with engine.coordinator.lock:
        indexed = indexes(engine.catalog, {table.name})
    for (_, columns), dataflow in sorted(indexed.items(), key=lambda item: (len(item[0][1]), sorted(item[0][1]))):
        rows = sizes.get(dataflow, EMPTY).rows
        if rows < _FEW_ROWS or len(columns) == len(table.columns):
            continue
        with suppress(DataflowError):  # the last view that used the index was dropped meanwhile
            if engine.count_keys(dataflow, timeout=timeout) == rows:
                key = [name for name in table.columns if name in columns]
                yield Advice(
                    (table.name,),
                    f"no two rows agree in {', '.join(key)}, by which views index the table: if that is always so, "
                    f"create it with key={(key[0] if len(key) == 1 else key)!r}",
                    Bytes(sizes[dataflow].bytes),
                )
                return


_FEW_ROWS = 100
"""In fewer rows than this, it says little that no two agree in some columns."""


# Parts of queries.


def _computed_twice(engine: Engine, known: Known) -> Iterator[Advice]:
    """Advice on the largest parts of queries that several views compute for themselves."""
    builders: dict[str, list[str]] = defaultdict(list)
    parts: dict[str, ir.Node] = {}
    with engine.coordinator.lock:
        private = {name for name, view in engine.views.items() if view.plan.owner}
        for name, view in engine.views.items():
            for node in _built(engine, view.dataflow, view.plan):
                parts[node.digest] = node
                builders[node.digest].append(name)
    common = {digest: names for digest, names in builders.items() if len(set(names)) > 1}
    for digest in _largest(common, parts):
        names = tuple(dict.fromkeys(common[digest]))
        alone = [name for name in names if name in private]
        remedy = (
            f"create {' and '.join(map(repr, alone))} without share=False"
            if alone
            else "create a view of that, and let them read it"
        )
        advice = f"each computes {_described(parts[digest])}: {remedy}"
        yield Advice(names, advice, Bytes(estimated_bytes(parts[digest], known).size))


def _built(engine: Engine, dataflow: str, plan: ir.Node) -> list[ir.Node]:
    """The arrangements outside loops that a view's dataflow builds, as they would be if they were shared."""
    built, seen, waiting = [], set[str](), [plan]
    while waiting:
        node = waiting.pop()
        if node.digest in seen or node.reads_stream:
            continue
        seen.add(node.digest)
        if ir.is_stored(node):
            if engine.catalog.maintainer(node) not in (None, dataflow):
                continue  # imported
            if not node.scope:
                built.append(_shareable(node))
        waiting.extend(node.inputs)
    return built


def _shareable(node: ir.Node) -> ir.Node:
    """The same arrangement without an owner."""

    def shared(part: ir.Node) -> ir.Node:
        return ir.make(type(part), **{**part.values, "owner": ""}) if part.owner else part

    return replaced(node, shared)


def _largest(common: Mapping[str, list[str]], parts: Mapping[str, ir.Node]) -> list[str]:
    """The common parts that are not below another part that the same views have in common."""
    below: set[tuple[str, frozenset[str]]] = set()
    for digest, names in common.items():
        below |= {(node.digest, frozenset(names)) for node in walk(parts[digest]) if node.digest != digest}
    return [digest for digest, names in common.items() if (digest, frozenset(names)) not in below]


def _described(node: ir.Node) -> str:
    """An arrangement in the user's words: the tables, and the columns if they are columns of a table."""
    tables = " and ".join(_sources(node)) or "constant rows"
    keys = [field.name for field in ir.schema_of(node).key.fields]
    indexed = indexed_columns(node.source if isinstance(node, ir.Reduce) else node, keys)
    by = f" by {', '.join(sorted(indexed.columns))}" if indexed is not None and keys else ""
    what = "aggregates" if isinstance(node, ir.Reduce) else "an index"
    return f"{what} of {tables}{by}"


def _sources(node: ir.Node) -> Iterable[str]:
    return sorted({part.name for part in walk(node) if isinstance(part, ir.Source)})
