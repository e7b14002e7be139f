"""What the leaves of a plan stand for, and which Python functions it calls: what Spark's JSON does not say.

Tables that were shown to Catalyst as such are known by a column of their leaf (`catalyst.MARK`), which is taken away
here. Leaves of the data source `ikebana` are known by the metadata of their columns (`ikebana.spark.source`), and rows
that are part of the query must be fetched: for these Java is asked, once or twice for each leaf. A node is found there
by its number, in pre-order, the plans of subqueries first: the same order in which `numbered` goes through the JSON.

Of `Generate` the JSON does not say either which columns of its child it leaves out: `unrequiredChildIndex` is added;
nor, sometimes, what an `Expand` makes of each row: `projections`; nor what is set for all loops: `maxDepth`, `maxRows`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark.errors import PySparkException

from ikebana.errors import SqlError
from ikebana.expressions.core.tree import Tree, of_nodes
from ikebana.expressions.core.types import arrow_type
from ikebana.spark.planning.catalyst import MARK, Catalyst, schema_of
from ikebana.spark.source import SESSION
from ikebana.sql.planned import CONSTANT, IDENTITY, TABLE, PythonCode

MOST_ROWS = 100_000
"""So many rows may be part of a query."""

_NUMBER = re.compile(r"#\d+L?")
_NO_DATA = {"OneRowRelation", "UnionLoopRef"}
_ROWS = {"LocalRelation", "LogicalRDD", "Range"}
_SCAN = "DataSourceV2ScanRelation"
_CALLS = {"ArrowEvalPython", "BatchEvalPython"}


class Leaves:
    """Goes through a plan, says in its JSON what the leaves are, and keeps what they need."""

    def __init__(self, catalyst: Catalyst, owner: str, plan: Any, recursion: Mapping[str, int]) -> None:
        """`recursion` is what limits loops that do not say so themselves."""
        self._catalyst, self._owner, self._plan, self._recursion = catalyst, owner, plan, recursion
        self.constants: list[pa.Table] = []
        self.functions: dict[int, PythonCode] = {}
        self.computed: list[str] = []
        """The columns of leaves whose rows may have been computed from tables before the query was planned."""
        self.reads_tables = False

    def explain(self, nodes: list[dict[str, Any]]) -> None:
        """Say in the nodes of a plan what they did not say."""
        for number, node in enumerate(numbered(of_nodes(nodes))):
            if node.kind in _CALLS:
                self._fetch_functions(number, node)
            elif node.kind == "Generate":
                self._fetch_dropped(number, node)
            elif node.kind == "Expand" and node.fields["projections"] is None:
                self._fetch_projections(number, node)
            elif node.kind == "UnionLoop":
                _limit(node, self._recursion)
            elif not node.children and node.kind not in _NO_DATA:
                self._explain_leaf(number, node)

    def _explain_leaf(self, number: int, leaf: Tree) -> None:
        name = _marked(leaf)
        table = {TABLE: name} if name is not None else self._scanned(number, leaf) if leaf.kind == _SCAN else None
        if table is not None:
            self.reads_tables = True
            _describe(leaf, table)
        elif leaf.kind in _ROWS:
            _describe(leaf, {CONSTANT: len(self.constants)})
            self.constants.append(self._fetch_rows(number, leaf))
            if self._may_be_computed(number, leaf):
                self.computed.append(_names(leaf))
        else:
            raise self._foreign(number, leaf)

    def _node(self, number: int, node: Tree) -> Any:
        """The node as Java has it."""
        found = self._plan.apply(number)
        if found.nodeName() != node.kind and not str(found.getClass().getName()).endswith(f".{node.kind}"):
            raise SqlError("cannot read a plan of Spark's", detail=f"node {number} is {found.nodeName()}")
        return found

    def _scanned(self, number: int, leaf: Tree) -> dict[str, str] | None:
        """The table that a data source reads, and which one of that name, if it is one of this session as it is now."""
        metadata = [field["metadata"] for field in schema_of(self._node(number, leaf))]
        tables = {(each.get(TABLE), each.get(IDENTITY)) for each in metadata if each.get(SESSION) == self._owner}
        return dict(zip((TABLE, IDENTITY), tables.pop(), strict=True)) if len(tables) == 1 else None

    def _fetch_rows(self, number: int, leaf: Tree) -> pa.Table:
        found = self._node(number, leaf)
        if leaf.fields.get("isStreaming"):
            raise self._foreign(number, leaf)
        rows = self._catalyst.rows(found, MOST_ROWS + 1)
        if len(rows) > MOST_ROWS:
            raise SqlError(
                f"the query has a DataFrame of more than {MOST_ROWS} rows that is not a table",
                detail=f"its columns are {_names(leaf)}",
                hint="load it into a table of this session, and query that",
            )
        fields = [pa.field(f["name"], arrow_type(f["type"]), f["nullable"]) for f in schema_of(found)]
        columns = [column.cast(field.type) for column, field in zip(rows.columns, fields, strict=True)]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _may_be_computed(self, number: int, leaf: Tree) -> bool:
        """Whether rows may be the result of a query. Those of Python's rows, and numbers of a range, are not."""
        if leaf.kind == "LogicalRDD":
            return bool(self._node(number, leaf).rdd().isCheckpointed())
        return leaf.kind == "LocalRelation"

    def _foreign(self, number: int, leaf: Tree) -> SqlError:
        said = _NUMBER.sub("", str(self._node(number, leaf).simpleString(20)))
        return SqlError(
            "a view can only read tables of this session",
            detail=f"the query reads {said}",
            hint="load it into a table of this session, and query that",
        )

    def _fetch_dropped(self, number: int, node: Tree) -> None:
        """Which columns of its child a generator does not pass on."""
        found = self._node(number, node).unrequiredChildIndex()
        assert isinstance(node.fields, dict)
        node.fields["unrequiredChildIndex"] = [int(found.apply(i)) for i in range(found.size())]

    def _fetch_projections(self, number: int, node: Tree) -> None:
        """What an Expand makes of each row: the JSON leaves it out where one of its lists is of another kind."""
        lists = self._node(number, node).projections()
        assert isinstance(node.fields, dict)
        node.fields["projections"] = [
            [json.loads(each.apply(at).toJSON()) for at in range(each.size())]
            for each in (lists.apply(i) for i in range(lists.size()))
        ]

    def _fetch_functions(self, number: int, node: Tree) -> None:
        """The Python functions that a node calls."""
        calls = self._node(number, node).udfs()
        for position, call in enumerate(node.many("udfs")):
            for inner, each in enumerate(call.walk()):
                if each.kind == "PythonUDF":
                    command = calls.apply(position).apply(inner).func().command()
                    name = str(each.fields["name"])
                    self.functions[int(each.fields["resultId"]["id"])] = PythonCode(
                        name=name,
                        function=self._function(name, command),
                        eval_type=int(each.fields["evalType"]),
                        type=arrow_type(each.fields["dataType"]),
                    )

    def _function(self, name: str, command: Any) -> bytes:
        """The pickled function in what Spark would send to its Python processes."""
        tag = self._catalyst.jvm.scala.reflect.ClassTag.Byte()
        try:
            function, _ = cloudpickle.loads(bytes(command.toArray(tag)))
        except PySparkException:  # Spark makes a broadcast variable of the function itself if it is large
            raise SqlError(
                f"the Python function {name!r} cannot be part of a view",
                detail="it uses a broadcast variable of Spark's, or is larger than a megabyte",
                hint="keep what it looks up in a table, and join that",
            ) from None
        return cloudpickle.dumps(function)


def numbered(plan: Tree) -> Iterator[Tree]:
    """All nodes of a plan, as Spark numbers them: those of a node's subqueries come before its children."""
    yield plan
    if plan.children:
        for expression in _expressions(list(plan.fields.values())):
            for each in expression.walk():
                if isinstance(each.fields.get("plan"), list):
                    yield from numbered(of_nodes(each.fields["plan"]))
    for child in plan.children:
        yield from numbered(child)


def _expressions(value: Any) -> Iterator[Tree]:
    """The expressions in a field, however deep in lists."""
    if isinstance(value, list) and value:
        if isinstance(value[0], dict) and "num-children" in value[0]:
            yield of_nodes(value)
        else:
            for each in value:
                yield from _expressions(each)


def _marked(leaf: Tree) -> str | None:
    """The table that the name of a leaf's last column gives; the column is taken away."""
    output = leaf.fields.get("output")
    if leaf.kind != "LogicalRDD" or not output or not output[-1][0]["name"].startswith(MARK):
        return None
    return str(output.pop()[0]["name"].removeprefix(MARK))


def _limit(loop: Tree, recursion: Mapping[str, int]) -> None:
    """Say what limits a loop."""
    assert isinstance(loop.fields, dict)
    for name, value in recursion.items():
        if loop.fields.get(name) is None:
            loop.fields[name] = value


def _describe(leaf: Tree, metadata: dict[str, Any]) -> None:
    """Put it where lowering looks for it."""
    if not leaf.fields["output"]:
        raise SqlError("the query reads something without columns", hint="give it a column")
    for (attribute,) in leaf.fields["output"]:
        attribute["metadata"] = metadata


def _names(leaf: Tree) -> str:
    return ", ".join(attribute["name"] for (attribute,) in leaf.fields["output"])
