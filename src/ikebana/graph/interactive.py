"""Interactive queries of a graph that changes: look-ups, neighbours, two hops, and shortest paths between pairs.

    queries = Interactive(engine, edges)
    neighbours = queries.neighbours()          # one dataflow for all nodes
    neighbours.read(node=5)                    # the answer now, as an Arrow table

    answer = neighbours.open(node=5)           # an answer that is kept up to date
    answer.to_arrow()
    answer.close()

    paths = queries.shortest_path(hops=4)
    with paths.open(source=5, target=9) as answer:
        answer.length(), answer.path()         # 3, [5, 2, 7, 9]

Each query is a prepared query (`ikebana.engine.prepared`): its arguments are the rows of a collection, which is joined
with the graph. Any number of answers are open at once, and a change of the graph takes time in proportion to the
answers that it changes.

Sharing. The queries read two indexes of the edges, by source and by target, and share them with each other and with all
other queries. A query itself stores only rows of its open answers: arguments, nodes on the way, and results.

Plans. The number of hops is fixed, so there is no loop: each hop is a join with an index. Small changes and openings
run as compiled programs, whatever the type of ids. A shortest path is searched from both ends: the nodes within half of
the hops of the source are joined with those within half of the hops of the target, and the least sum of two distances
is the length. With d edges for each node, a path of k hops thus takes about d**(k/2) steps rather than d**k.

Graph. Edges are a collection with columns `src` and `dst` of one type; further columns are not read. Edges with a null
are ignored. An edge that was inserted twice exists until it is removed twice.

Arguments that no edge has get an empty answer. Nulls and values of another type raise an error.

Cost: opening an answer takes time in proportion to the edges of the nodes that it reaches, for each distance at which
it reaches them. `LookUp.read` and `Neighbours.read`, for one hop, are look-ups in an index, and open nothing.

Not guaranteed: anything about edges of negative multiplicity; lengths where 2**63 walks of at most four edges lead from
a source to a target.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding import Schema
from ikebana.engine import Engine
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.columns import described
from ikebana.engine.deadline import Deadline
from ikebana.engine.prepared import KEEP, Binding
from ikebana.engine.prepared_reads import Values
from ikebana.engine.result_tables import plain_rows
from ikebana.errors import SchemaError
from ikebana.expressions import Column
from ikebana.expressions.core.builders import add
from ikebana.graph.graph_queries import AnswerSet, GraphQuery, query_numbers, rows_of_nodes
from ikebana.graph.hops import DISTANCE, Index, column_of, joined_with, next_hop, value_fields, within_hops
from ikebana.graph.path_search import HeldIndex, shortest_path
from ikebana.graph.plans import pairs
from ikebana.operators.expression_steps import Computed
from ikebana.operators.row_errors import BINDING
from ikebana.plan import ir

_MOST_SMALL_NUMBERS = 1 << 31
"""The number of different bindings, if their numbers have 32 bits."""


class Interactive:
    """Interactive queries of one graph.

    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.string(), "dst": pa.string()})
    >>> queries = Interactive(engine, edges)
    >>> paths = queries.shortest_path(hops=2)
    >>> answer = paths.open(source="ann", target="cid")
    >>> edges.insert({"src": ["ann", "bob"], "dst": ["bob", "cid"]})
    >>> _ = engine.advance()
    >>> answer.length(), answer.path()
    (2, ['ann', 'bob', 'cid'])
    >>> queries.neighbours().read(node="ann").to_pydict()
    {'node': ['bob']}
    """

    def __init__(
        self,
        engine: Engine,
        edges: Collection,
        *,
        vertices: Collection | None = None,
        keep: int = KEEP,
        share: bool = True,
    ) -> None:
        """`edges` has columns `src` and `dst`; `vertices`, which only `look_up` reads, has a column `id`.

        `keep` is how many answers of each query stay open after `read`, the most recently read ones. With
        `share=False` every join builds an index of its own, to see what sharing saves.
        """
        self._engine, self._edges, self._vertices, self._keep = engine, edges, vertices, keep
        self._type, self._share = _id_type(edges, vertices), share

    def _by_source(self) -> Arrangement:
        return self._index(self._edges.arrange("src"))

    def _by_target(self) -> Arrangement:
        return self._index(self._edges.arrange("dst"))

    def _index(self, arrangement: Arrangement) -> Arrangement:
        """An arrangement for one join, which it shares with others or not."""
        if self._share:
            return arrangement
        return Arrangement(ir.with_owner(arrangement.node, f"join {next(query_numbers)}"))

    def look_up(self) -> LookUp:
        """What is known of a node: its row of `vertices`; without vertices, the number of `edges` that leave it."""
        if self._vertices is None:
            return LookUp(self._engine, self._type, self._by_source(), self._keep)
        return LookUp(self._engine, self._type, self._index(self._vertices.arrange("id")), self._keep, counts=False)

    def neighbours(self) -> Neighbours:
        """The nodes to which edges of a node lead, each once."""
        return Neighbours(self._engine, self._type, self._by_source, self._keep)

    def two_hops(self) -> Neighbours:
        """The nodes to which two edges lead, one after the other, each once; the node itself may be one of them."""
        return Neighbours(self._engine, self._type, self._by_source, self._keep, hops=2)

    def shortest_path(self, hops: int = 4) -> ShortestPath:
        """The length of the shortest path from one node to another, of at most a number of hops, and one such path.

        A node has distance 0 from itself, whether or not it has edges.
        """
        return ShortestPath(self._engine, self._type, self._by_source, self._by_target, self._keep, hops)


class LookUp(GraphQuery[Binding]):
    """What is known of a node. See `Interactive.look_up`."""

    def __init__(
        self, engine: Engine, kind: pa.DataType, source: Arrangement, keep: int, *, counts: bool = True
    ) -> None:
        """`counts` says whether the answer is the number of the node's rows, rather than the rows."""
        self._source, self._counts = source, counts
        super().__init__(engine, "look-up", [pa.field("node", kind, False)], keep, pa.int64())

    def _plan(self, arguments: Collection) -> Collection:
        values = {} if self._counts else {field.name: field.name for field in value_fields(self._source)}
        rows = joined_with(arguments, self._source, values)
        return rows.count(BINDING, "edges") if self._counts else rows

    def _binding(self, number: int, values: Values) -> Binding:
        return Binding(self, number, values)

    def _read(self, bound: Values, deadline: Deadline) -> pa.Table:
        if not self._engine.epoch:  # there is no closed epoch to read at: opening closes one
            return super()._read(bound, deadline)
        rows = rows_of_nodes(self.index(self._source), bound["node"], deadline)
        return self._answers(rows).select(self.columns)

    def read_columns(self, values: Any, *, timeout: float | None = None) -> pa.Table:
        if not self._engine.epoch:
            return super().read_columns(values, timeout=timeout)
        return self._answers(self._found_columns(self._source, values, timeout))

    def _answers(self, rows: pa.Table) -> pa.Table:
        """The answers for rows of the index: for each node, their number, or the rows."""
        (key,) = (field.name for field in ir.schema_of(self._source.node).key.fields)
        if not self._counts:
            rows = plain_rows(rows, self.name)
            return pa.table({self._argument_name("node"): rows[key], **{name: rows[name] for name in self.columns}})
        counts = rows.select([key, "diff"]).group_by(key, use_threads=False).aggregate([("diff", "sum")])
        return pa.table({"node": counts[key], "edges": counts["diff_sum"]})


class Neighbours(GraphQuery[Binding]):
    """The nodes at the end of a number of hops. See `Interactive.neighbours` and `Interactive.two_hops`."""

    def __init__(self, engine: Engine, kind: pa.DataType, edges: Index, keep: int, hops: int = 1) -> None:
        self._edges, self._hops = edges, hops
        title = "neighbours" if hops == 1 else f"neighbours at {hops} hops"
        super().__init__(engine, title, [pa.field("node", kind, False)], keep, pa.int64())

    def _plan(self, arguments: Collection) -> Collection:
        reached = arguments
        for _ in range(self._hops):
            reached = next_hop(reached, self._edges(), "dst")
        return reached.distinct(BINDING)

    def _binding(self, number: int, values: Values) -> Binding:
        return Binding(self, number, values)

    def _read(self, bound: Values, deadline: Deadline) -> pa.Table:
        if self._hops > 1 or not self._engine.epoch:
            return super()._read(bound, deadline)
        rows = rows_of_nodes(self.index(self._edges()), bound["node"], deadline)
        nodes = pc.unique(rows["dst"].filter(pc.greater(rows["diff"], 0))).drop_null()
        return pa.table({"node": nodes})

    def read_columns(self, values: Any, *, timeout: float | None = None) -> pa.Table:
        if self._hops > 1 or not self._engine.epoch:
            return super().read_columns(values, timeout=timeout)
        rows = self._found_columns(self._edges(), values, timeout)
        rows = rows.filter(pc.and_(pc.greater(rows["diff"], 0), pc.is_valid(rows["dst"])))
        if rows.num_columns > 3:  # edges that differ in other columns
            rows = rows.group_by(["src", "dst"], use_threads=False).aggregate([])
        return pa.table({self._argument_name("node"): rows["src"], "node": rows["dst"]})


class PathAnswer(Binding):
    """The shortest path between two nodes, kept up to date."""

    _query: ShortestPath

    def length(self, *, timeout: float | None = None) -> int | None:
        """The number of edges of the shortest path; None if there is none of at most the query's number of hops."""
        lengths = self.to_arrow(timeout=timeout)["length"].to_pylist()
        return lengths[0] if lengths else None

    def path(self, *, timeout: float | None = None) -> list[Any] | None:
        """The nodes of one of the shortest paths; None if there is none.

        The path is searched when this is called, from both ends in the two indexes of the edges.
        """
        self._check()
        return self._query.path(self.bound, timeout)


class ShortestPath(GraphQuery[PathAnswer]):
    """The shortest path of a limited length from one node to another. See `Interactive.shortest_path`."""

    def __init__(
        self, engine: Engine, kind: pa.DataType, forward: Index, backward: Index, keep: int, hops: int
    ) -> None:
        if not isinstance(hops, int) or hops < 1:
            raise SchemaError(f"cannot search for paths of at most {hops!r} hops", hint="`hops` must be at least 1")
        self._forward, self._backward, self.hops = forward, backward, hops
        fields = [pa.field("source", kind, False), pa.field("target", kind, False)]
        # Pairs of a binding and a node are compared faster if they fit into 64 bits.
        fits = Schema([pa.field(BINDING, pa.int32(), False), fields[0]]).key.exact
        self._used: set[int] = set()
        super().__init__(engine, f"paths of {hops} hops", fields, keep, pa.int32() if fits else pa.int64())

    def _plan(self, arguments: Collection) -> Collection:
        sources, targets = (arguments.select(BINDING, node=end) for end in ("source", "target"))
        from_source = within_hops(sources, self._forward, "dst", (self.hops + 1) // 2)
        to_target = within_hops(targets, self._backward, "src", self.hops // 2)
        key = (BINDING, "node")
        meetings = pairs(
            from_source.arrange(*key),
            to_target.arrange(*key),
            {BINDING: BINDING, "one": "distance"},
            {"other": "distance"},
        )
        length = add(Column(DISTANCE, False, "one"), Column(DISTANCE, False, "other"))
        return meetings.step(Computed(((BINDING, column_of(meetings, BINDING)), ("length", length)))).min(BINDING)

    def _binding(self, number: int, values: Values) -> PathAnswer:
        return PathAnswer(self, number, values)

    # Numbers of 32 bits are used again.

    def new_number(self) -> int:
        return self._new_numbers(1)[0]

    def _new_numbers(self, count: int) -> list[int]:
        numbers = (number % _MOST_SMALL_NUMBERS for number in self._numbers)
        return list(itertools.islice((number for number in numbers if number not in self._used), count))

    def change(self, opened: Mapping[int, Values], closed: Mapping[int, Values], deadline: Deadline) -> None:
        super().change(opened, closed, deadline)
        self._used |= opened.keys()
        self._used -= closed.keys()

    def _change_set(self, answers: AnswerSet, diff: int, deadline: Deadline) -> None:
        super()._change_set(answers, diff, deadline)
        numbers = answers.numbers.to_pylist()
        self._used.update(numbers) if diff > 0 else self._used.difference_update(numbers)

    # Paths.

    def path(self, bound: Values, timeout: float | None = None) -> list[Any] | None:
        """The nodes of one of the shortest paths between two nodes; None if there is none."""
        deadline = self._engine.coordinator.deadline(timeout, f"searching for a path of {self.kind} {self.name!r}")
        forward, backward = self.index(self._forward()), self.index(self._backward())
        with (
            forward.hold(timeout=deadline.seconds_left()) as one,
            backward.hold(timeout=deadline.seconds_left()) as other,
        ):
            epoch = max(one.epoch, other.epoch)
            return shortest_path(
                bound["source"],
                bound["target"],
                self.hops,
                HeldIndex(one, epoch, "src", "dst", deadline),
                HeldIndex(other, epoch, "dst", "src", deadline),
            )


def _id_type(edges: Collection, vertices: Collection | None) -> pa.DataType:
    """The type of ids; raises unless all columns of ids exist and have the same type."""
    wanted = [("edges", edges, "src"), ("edges", edges, "dst")]
    wanted += [] if vertices is None else [("vertices", vertices, "id")]
    types = []
    for what, collection, name in wanted:
        kinds = {field.name: field.type for field in collection.node.columns}
        if name not in kinds:
            raise SchemaError(
                f"the {what} have no column {name!r}",
                detail=f"the columns are {described(collection.node.columns)}",
                hint=f"select({name}=...) first",
            )
        types.append(kinds[name])
    if len(set(types)) > 1:
        raise SchemaError(
            "ids must have the same type in all columns",
            detail=", ".join(f"{name}: {kind}" for (_, _, name), kind in zip(wanted, types, strict=True)),
            hint="map to columns of one type first",
        )
    return types[0]
