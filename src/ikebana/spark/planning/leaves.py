"""Completes the JSON of a plan: which tables its leaves read, and which Python functions it calls.

Tables that were added to Catalyst are recognised by a hidden column of their leaf (`catalyst.TABLE_COLUMN`), which is
removed here. Leaves of the data source `ikebana` are recognised by the metadata of their columns
(`ikebana.spark.source`), and constant rows have to be fetched; both take one or two calls of Java for each leaf. Java
finds a node by its number, in pre-order with the plans of subqueries first: the order in which `numbered` visits the
JSON.

The JSON also lacks which columns of its child a `Generate` drops: `unrequiredChildIndex` is added; sometimes the
expressions of an `Expand`: `projections`; and of all loops the limits, `maxDepth` and `maxRows`, and whether they have
UNION, `isSet`; and that a column of GROUP BY is a session window: `SESSION_WINDOW` in its metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark.errors import PySparkException

from ikebana.errors import SqlError
from ikebana.expressions.core.tree import Tree, of_nodes
from ikebana.expressions.core.types import arrow_type
from ikebana.spark.planning.catalyst import TABLE_COLUMN, Catalyst, scala_items, schema_of
from ikebana.spark.source import SESSION
from ikebana.sql.planned import CONSTANT, IDENTITY, SESSION_WINDOW, TABLE, PythonCode

MAX_CONSTANT_ROWS = 100_000
"""How many rows that are not in a table a query may have."""

_EXPRESSION_ID = re.compile(r"#\d+L?")
_EMPTY_LEAVES = {"OneRowRelation", "UnionLoopRef"}
_CONSTANT_LEAVES = {"LocalRelation", "LogicalRDD", "Range"}
_SCAN = "DataSourceV2ScanRelation"
_SESSION_COLUMN = "session_window"
_PYTHON_CALLS = {"ArrowEvalPython", "BatchEvalPython"}


class Leaves:
    """Annotates the JSON of one plan, and collects the constant rows and Python functions that it needs."""

    def __init__(
        self, catalyst: Catalyst, owner: str, plan: Any, recursion: Mapping[str, int], sets: Collection[int]
    ) -> None:
        """`recursion` has the limits of loops that do not set their own; `sets` are the loops with UNION, by id."""
        self._catalyst, self._owner, self._plan = catalyst, owner, plan
        self._recursion, self._sets = recursion, sets
        self.constants: list[pa.Table] = []
        self.functions: dict[int, PythonCode] = {}
        self.computed: list[str] = []
        """The columns of each leaf whose rows may have been computed from tables before the query was planned."""
        self.reads_tables = False

    def annotate(self, nodes: list[dict[str, Any]]) -> None:
        """Add to the nodes of a plan, in place, what Spark's JSON lacks."""
        for number, node in enumerate(numbered(of_nodes(nodes))):
            if node.kind in _PYTHON_CALLS:
                self._fetch_functions(number, node)
            elif node.kind == "Generate":
                self._fetch_dropped(number, node)
            elif node.kind == "Expand" and node.fields["projections"] is None:
                self._fetch_projections(number, node)
            elif node.kind == "Aggregate":
                self._mark_sessions(number, node)
            elif node.kind == "UnionLoop":
                _set_limits(node, self._recursion)
                node.fields["isSet"] = int(node.fields["id"]) in self._sets  # type: ignore[index]
            elif not node.children and node.kind not in _EMPTY_LEAVES:
                self._annotate_leaf(number, node)

    def _annotate_leaf(self, number: int, leaf: Tree) -> None:
        name = _hidden_name(leaf)
        table = {TABLE: name} if name is not None else self._scanned(number, leaf) if leaf.kind == _SCAN else None
        if table is not None:
            self.reads_tables = True
            _describe(leaf, table)
        elif leaf.kind in _CONSTANT_LEAVES:
            _describe(leaf, {CONSTANT: len(self.constants)})
            self.constants.append(self._fetch_rows(number, leaf))
            if self._may_be_computed(number, leaf):
                self.computed.append(_names(leaf))
        else:
            raise self._foreign(number, leaf)

    def _node(self, number: int, node: Tree) -> Any:
        """The Java object of a node."""
        java_node = self._plan.apply(number)
        if java_node.nodeName() != node.kind and not str(java_node.getClass().getName()).endswith(f".{node.kind}"):
            raise SqlError(
                "Ikebana cannot read the query's plan",
                detail=f"node {number} is {java_node.nodeName()}, expected {node.kind}",
                hint="write the query in another way, and report this",
            )
        return java_node

    def _scanned(self, number: int, leaf: Tree) -> dict[str, str] | None:
        """The table of this session that a data source reads, and its identity; None if it reads anything else."""
        metadata = [field["metadata"] for field in schema_of(self._node(number, leaf))]
        tables = {(m.get(TABLE), m.get(IDENTITY)) for m in metadata if m.get(SESSION) == self._owner}
        return dict(zip((TABLE, IDENTITY), tables.pop(), strict=True)) if len(tables) == 1 else None

    def _fetch_rows(self, number: int, leaf: Tree) -> pa.Table:
        node = self._node(number, leaf)
        if leaf.fields.get("isStreaming"):
            raise self._foreign(number, leaf)
        rows = self._catalyst.rows(node, MAX_CONSTANT_ROWS + 1)
        if len(rows) > MAX_CONSTANT_ROWS:
            raise SqlError(
                f"the query has a DataFrame of more than {MAX_CONSTANT_ROWS} rows that is not a table of this session",
                detail=f"its columns are {_names(leaf)}",
                hint="load it into a table of this session, and query that",
            )
        fields = [pa.field(f["name"], arrow_type(f["type"]), f["nullable"]) for f in schema_of(node)]
        columns = [column.cast(field.type) for column, field in zip(rows.columns, fields, strict=True)]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _may_be_computed(self, number: int, leaf: Tree) -> bool:
        """Whether rows may be the result of a query, unlike Python data and ranges."""
        if leaf.kind == "LogicalRDD":
            return bool(self._node(number, leaf).rdd().isCheckpointed())
        return leaf.kind == "LocalRelation"

    def _foreign(self, number: int, leaf: Tree) -> SqlError:
        description = _EXPRESSION_ID.sub("", str(self._node(number, leaf).simpleString(20)))
        return SqlError(
            "a view can only read tables of this session",
            detail=f"the query reads {description}",
            hint="load it into a table of this session, and query that",
        )

    def _mark_sessions(self, number: int, node: Tree) -> None:
        """The metadata of session windows in GROUP BY, which the JSON lacks."""
        for position, grouping in enumerate(node.fields["groupingExpressions"]):
            if grouping[0].get("name") == _SESSION_COLUMN:
                metadata = self._node(number, node).groupingExpressions().apply(position).metadata()
                grouping[0]["metadata"] = {SESSION_WINDOW: bool(metadata.contains(SESSION_WINDOW))}

    def _fetch_dropped(self, number: int, node: Tree) -> None:
        """The columns of its child that a generator does not pass on."""
        indexes = self._node(number, node).unrequiredChildIndex()
        assert isinstance(node.fields, dict)
        node.fields["unrequiredChildIndex"] = [int(index) for index in scala_items(indexes)]

    def _fetch_projections(self, number: int, node: Tree) -> None:
        """The expressions of an Expand, which the JSON lacks if one of its lists has another type."""
        projections = self._node(number, node).projections()
        assert isinstance(node.fields, dict)
        node.fields["projections"] = [
            [json.loads(expression.toJSON()) for expression in scala_items(projection)]
            for projection in scala_items(projections)
        ]

    def _fetch_functions(self, number: int, node: Tree) -> None:
        """The Python functions that a node calls."""
        calls = self._node(number, node).udfs()
        for position, call in enumerate(node.expressions("udfs")):
            for index, expression in enumerate(call.walk()):
                if expression.kind == "PythonUDF":
                    command = calls.apply(position).apply(index).func().command()
                    name = str(expression.fields["name"])
                    self.functions[int(expression.fields["resultId"]["id"])] = PythonCode(
                        name=name,
                        function=self._function(name, command),
                        eval_type=int(expression.fields["evalType"]),
                        type=arrow_type(expression.fields["dataType"]),
                    )

    def _function(self, name: str, command: Any) -> bytes:
        """The pickled function, from the command that Spark would send to its Python processes."""
        tag = self._catalyst.jvm.scala.reflect.ClassTag.Byte()
        try:
            function, _ = cloudpickle.loads(bytes(command.toArray(tag)))
        except PySparkException:  # Spark broadcasts a large function
            raise SqlError(
                f"the Python function {name!r} cannot be part of a view",
                detail="it uses a Spark broadcast variable, or is larger than a megabyte",
                hint="put the data that it uses into a table, and join that",
            ) from None
        return cloudpickle.dumps(function)


def numbered(plan: Tree) -> Iterator[Tree]:
    """All nodes of a plan in Spark's order: the nodes of a node's subqueries come before its children."""
    yield plan
    if plan.children:
        for expression in _expressions(list(plan.fields.values())):
            for node in expression.walk():
                if isinstance(node.fields.get("plan"), list):
                    yield from numbered(of_nodes(node.fields["plan"]))
    for child in plan.children:
        yield from numbered(child)


def _expressions(value: Any) -> Iterator[Tree]:
    """The expressions in a field, in lists of any depth."""
    if isinstance(value, list) and value:
        if isinstance(value[0], dict) and "num-children" in value[0]:
            yield of_nodes(value)
        else:
            for item in value:
                yield from _expressions(item)


def _hidden_name(leaf: Tree) -> str | None:
    """The table that a leaf reads, according to its hidden last column, which is removed."""
    output = leaf.fields.get("output")
    if leaf.kind != "LogicalRDD" or not output or not output[-1][0]["name"].startswith(TABLE_COLUMN):
        return None
    return str(output.pop()[0]["name"].removeprefix(TABLE_COLUMN))


def _set_limits(loop: Tree, recursion: Mapping[str, int]) -> None:
    """Set the limits of a loop that does not set its own."""
    assert isinstance(loop.fields, dict)
    for name, value in recursion.items():
        if loop.fields.get(name) is None:
            loop.fields[name] = value


def _describe(leaf: Tree, metadata: dict[str, Any]) -> None:
    """Set the metadata of a leaf's columns, where lowering looks for it."""
    if not leaf.fields["output"]:
        raise SqlError("the query reads rows without columns", hint="select at least one column")
    for (attribute,) in leaf.fields["output"]:
        attribute["metadata"] = metadata


def _names(leaf: Tree) -> str:
    return ", ".join(attribute["name"] for (attribute,) in leaf.fields["output"])
