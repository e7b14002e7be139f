"""The plan: a small set of nodes that every front end produces and every worker renders.

A plan is a graph of immutable nodes. A node knows its inputs, its columns, and the loops around it (`scope`).
Nodes are interned by a digest of their values: two plans that describe the same collection in the same way share the
node, so "is this the same collection" is a comparison of digests. Functions are part of a node's values: the same code
with the same captured values is the same function (`ikebana.plan.digests`). Nodes can be sent to other processes.
Properties that follow from a node's values (columns, schema, scope) are computed once, because plans are deep and every
node asks its inputs several times.

A loop is named after its content: its variables, its body and its number of rounds. While the body is being built, the
loop has a provisional name that no other loop has, so that nodes tell nested loops apart. When the `Loop` node is made,
the nodes inside it, and the nodes that leave it, are made again under the name that follows from the loop's `shape`.
The shape of a node is a digest without names of loops: which loop an `Enter` or a `LoopVariable` belongs to follows
from its depth, as with de Bruijn indices. So two queries that describe the same loop have the same nodes, and different
loops in one scope never have the same name.

| node | gives | meaning |
|---|---|---|
| `Source` | stream | an input of the engine, by name and identity |
| `Constant` | stream | rows that are part of the plan and never change |
| `Steps` | stream | a chain of linear steps |
| `Union` | stream | several streams with the same columns, concatenated |
| `Arrange` | arrangement | a stream arranged by key columns |
| `ArrangementView` | arrangement | another arrangement, filtered, projected or negated in place |
| `AsStream` | stream | the changes of an arrangement |
| `AfterStart` | stream | the changes of a stream after the epoch at which the dataflow starts |
| `Join` | stream | two arrangements with the same key, joined |
| `Lookup` | stream | the changes of a stream, each joined with an arrangement as of the change's time |
| `Extend` | stream | the changes of a stream, each with the values that several arrangements have for it in common |
| `Expire` | stream | the rows of a stream that are valid at the present time of a clock |
| `Reduce` | arrangement | a function of each key's values |
| `Enter` | either | a collection, inside a loop |
| `EnterAt` | stream | a collection, inside a loop, each row from a round of its own on |
| `LoopVariable` | stream | a variable of a loop |
| `Loop` | | variables, and the results of the body for them |
| `Leave` | stream | a collection of a loop, after the last round |
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.schema import lane_names
from ikebana.operators.arrangement_views import ViewStep
from ikebana.operators.changes import Fields
from ikebana.operators.join import JoinColumns
from ikebana.operators.linear import Step
from ikebana.operators.reducers import Reducer
from ikebana.plan.derived import derived
from ikebana.plan.digests import digest_of

Scope = tuple[str, ...]
"""The loops around a node, outermost first, by their ids."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """Base of all nodes. Make nodes with `make`.

    Unless a class says otherwise, a node has the scope, columns and diff lanes of its first input.
    """

    digest: str = ""
    shape: str = ""

    names_loop: ClassVar[str] = ""
    """The field that holds the name of a loop; empty if the class has none."""

    owner = ""
    """Of an arrangement that must not be shared: the owner's name (`with_owner`)."""

    @classmethod
    def settled(cls, values: dict[str, Any], shape: str) -> dict[str, Any]:
        """The values of a new node, with the names of loops that follow from their shapes."""
        return values

    @property
    def values(self) -> dict[str, Any]:
        """The values that the node was made with, by name."""
        kind: Any = type(self)
        return {name: getattr(self, name) for name in _defaults(kind)}

    @derived
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that this node reads."""
        nodes: list[Node] = []
        kind: Any = type(self)
        for name in _defaults(kind):
            value = getattr(self, name)
            if isinstance(value, Node):
                nodes.append(value)
            elif isinstance(value, tuple):
                nodes += [node for node in value if isinstance(node, Node)]
        return tuple(nodes)

    @derived
    def graph(self) -> tuple[Node, ...]:
        """The node and all nodes that it reads, directly or indirectly, each once, inputs first."""
        seen: set[str] = set()
        nodes: list[Node] = []

        def visit(current: Node) -> None:
            if current.digest not in seen:
                seen.add(current.digest)
                for source in current.inputs:
                    visit(source)
                nodes.append(current)

        visit(self)
        return tuple(nodes)

    @derived
    def scope(self) -> Scope:
        """The loops around the node."""
        return self.inputs[0].scope if self.inputs else ()

    @derived
    def columns(self) -> Fields:
        """The columns of the node's rows."""
        return self.inputs[0].columns

    @derived
    def lanes(self) -> int:
        """The number of diff lanes of the node's rows."""
        return self.inputs[0].lanes if self.inputs else 1

    @derived
    def reads_stream(self) -> bool:
        """Whether the node is computed from a stream, of which a dataflow sees only the rows after its installation."""
        return any(source.reads_stream for source in self.inputs)

    @derived
    def is_linear(self) -> bool:
        """Whether the node is computed from sources and constants by linear steps alone, outside loops."""
        return isinstance(self, _LINEAR) and all(source.is_linear for source in self.inputs)

    def __reduce__(self) -> Any:
        return _remake, (type(self), self.values)


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrangementNode(Node):
    """Base of the nodes that always give an arrangement."""

    @derived
    def schema(self) -> Schema:
        """Key and value columns of the arrangement."""
        raise NotImplementedError

    @derived
    def columns(self) -> Fields:
        return (*self.schema.key.fields, *self.schema.val.fields)


_interned: WeakValueDictionary[str, Node] = WeakValueDictionary()


def make(kind: Any, **given: Any) -> Any:
    """The node of a class with these values: the existing node, if there is one."""
    owner = given.get("owner", "")
    if owner:
        return with_owner(make(kind, **{**given, "owner": ""}), owner)
    values = {**_defaults(kind), **given}
    parts = _parts(values)
    unnamed = {name: entries for name, entries in parts.items() if name != kind.names_loop}
    shape = _hash(kind, unnamed, lambda node: node.shape)
    settled = kind.settled(values, shape)
    digest = _hash(kind, parts if settled is values else _parts(settled), lambda node: node.digest)
    node = _interned.get(digest)
    if node is None:
        node = _interned[digest] = kind(**settled, digest=digest, shape=shape)
    return node


def with_owner(node: Any, owner: str) -> Any:
    """The same arrangement for an owner who does not share it; the nodes below it are the same.

    Digest and shape follow from those of the node and from the owner, so every process computes the same ones.
    """
    assert is_stored(node) and not node.owner
    node.columns  # noqa: B018  computed here once, and not by every owner
    digest = _hash_texts([node.digest, "owner", owner])
    owned = _interned.get(digest)
    if owned is None:
        owned = _interned[digest] = object.__new__(type(node))
        shape = _hash_texts([node.shape, "owner", owner])
        owned.__dict__.update(node.__dict__, owner=owner, digest=digest, shape=shape)
        owned.__dict__.pop("graph", None)  # its last entry is the node itself
    return owned


@lru_cache
def _defaults(kind: Any) -> Mapping[str, Any]:
    """The names of a class's values, with their defaults."""
    return {field.name: field.default for field in fields(kind) if field.name not in ("digest", "shape")}


Parts = dict[str, list[str | Node]]
"""For each of a node's values, the nodes in it, and digests of everything else."""


def _parts(values: dict[str, Any]) -> Parts:
    entries = {name: value if isinstance(value, tuple) else (value,) for name, value in sorted(values.items())}
    return {
        name: [entry if isinstance(entry, Node) else digest_of(entry) for entry in value]
        for name, value in entries.items()
    }


def _hash(kind: type[Node], parts: Parts, hash_of: Callable[[Node], str]) -> str:
    flat = [kind.__name__]
    for name, entries in parts.items():
        flat += [name, *(hash_of(entry) if isinstance(entry, Node) else entry for entry in entries)]
    return _hash_texts(flat)


def _hash_texts(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]


def _remake(kind: type[Any], values: dict[str, Any]) -> Any:
    return make(kind, **values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Source(Node):
    name: str
    fields: Fields
    is_stream: bool = False
    """Whether the engine keeps none of its rows: a dataflow sees the changes after its installation."""
    identity: str = ""
    """Distinguishes sources of the same name: in other engines, or dropped and created again."""

    @derived
    def columns(self) -> Fields:
        return self.fields

    @derived
    def reads_stream(self) -> bool:
        return self.is_stream


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(Node):
    fields: Fields
    arrays: tuple[pa.Array, ...]
    rows: int

    @derived
    def columns(self) -> Fields:
        return self.fields


@dataclass(frozen=True, eq=False, kw_only=True)
class Steps(Node):
    source: Node
    steps: tuple[Step, ...]
    diff_lanes: int

    @derived
    def stages(self) -> tuple[Fields, ...]:
        """The columns of the source, and the columns after each step."""
        return tuple(
            itertools.accumulate(self.steps, lambda columns, step: step.fields(columns), initial=self.source.columns)
        )

    @derived
    def columns(self) -> Fields:
        return self.stages[-1]

    @derived
    def lanes(self) -> int:
        return self.diff_lanes


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Node):
    sources: tuple[Node, ...]
    is_delta_join: bool = False  # whether these are all paths of a delta join


@dataclass(frozen=True, eq=False, kw_only=True)
class Arrange(ArrangementNode):
    source: Node
    key: tuple[str, ...]
    hash_bits: int = 64
    owner: str = ""

    @derived
    def schema(self) -> Schema:
        lanes = lane_names(self.lanes)
        return Schema(*_by_key(self.source.columns, self.key), diffs=lanes, hash_bits=self.hash_bits)


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrangementView(ArrangementNode):
    source: Node
    wrapper: ViewStep

    @derived
    def schema(self) -> Schema:
        return self.wrapper.schema(schema_of(self.source))


@dataclass(frozen=True, eq=False, kw_only=True)
class AsStream(Node):
    source: Node


@dataclass(frozen=True, eq=False, kw_only=True)
class AfterStart(Node):
    source: Node


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Node):
    left: Node
    right: Node
    result: JoinColumns

    @derived
    def columns(self) -> Fields:
        return self.result.fields(schema_of(self.left), schema_of(self.right))

    @derived
    def lanes(self) -> int:
        return max(self.left.lanes, self.right.lanes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Lookup(Node):
    source: Node
    index: Node
    key: tuple[str, ...]  # columns of the stream, in the order of the arrangement's key
    strict: bool

    @derived
    def schema(self) -> Schema:
        """Key and value columns of the stream's changes, as they probe the index."""
        lanes = [f"diff {lane}" for lane in range(self.source.lanes)]
        bits = schema_of(self.index).key.hash_bits
        return Schema(*_by_key(self.source.columns, self.key), diffs=lanes, hash_bits=bits, carry=True)

    @derived
    def result(self) -> JoinColumns:
        """All columns of the stream, then the value columns of the arrangement."""
        of_stream = tuple((name, name) for name in self.schema.names)
        of_index = tuple((field.name, field.name) for field in schema_of(self.index).val.fields)
        return JoinColumns(tuple(name for name, _ in (*of_stream, *of_index)), of_stream, of_index)

    @derived
    def columns(self) -> Fields:
        return self.result.fields(self.schema, schema_of(self.index))

    @derived
    def lanes(self) -> int:
        return max(self.source.lanes, self.index.lanes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Extend(Node):
    source: Node
    indexes: tuple[Node, ...]  # arrangements with one key column and one value column
    keys: tuple[str, ...]  # the column of the stream that is looked up in each arrangement
    strict: tuple[bool, ...]
    exists: tuple[bool, ...]  # whether a value counts once, whatever its multiplicity
    name: str  # of the new column
    keep: tuple[str, ...]  # the columns of the result: of the stream, and the new one

    @derived
    def value(self) -> pa.Field:
        """The new column."""
        (value,) = schema_of(self.indexes[0]).val.fields
        return value.with_name(self.name)

    @derived
    def columns(self) -> Fields:
        fields = {field.name: field for field in (*self.source.columns, self.value)}
        return tuple(fields[name] for name in self.keep)

    @property
    def is_in_place(self) -> bool:
        """Whether one worker can read the indexes as they are stored: not through views, with exact lanes."""
        has_one_lane = all(node.lanes == 1 for node in self.inputs)
        return has_one_lane and all(is_stored(index) and not schema_of(index).hashed for index in self.indexes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Expire(Node):
    source: Node
    clock: Node
    valid_from: str  # a column; empty for no lower bound
    valid_until: str  # a column; empty for no upper bound


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(ArrangementNode):
    source: Node
    reducer: Reducer
    owner: str = ""

    @derived
    def schema(self) -> Schema:
        given = schema_of(self.source)
        return Schema(given.key.fields, self.reducer.fields(given), hash_bits=given.key.hash_bits)

    @derived
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Enter(Node):
    names_loop = "loop"
    source: Node
    loop: str

    @derived
    def scope(self) -> Scope:
        return (*self.source.scope, self.loop)


@dataclass(frozen=True, eq=False, kw_only=True)
class EnterAt(Node):
    names_loop = "loop"
    source: Node
    loop: str
    delay: Any

    @derived
    def scope(self) -> Scope:
        return (*self.source.scope, self.loop)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopVariable(Node):
    names_loop = "loop"
    name: str
    loop: str
    initial: Node  # inside the loop


@dataclass(frozen=True, eq=False, kw_only=True)
class Loop(Node):
    names_loop = "id"
    id: str
    variables: tuple[LoopVariable, ...]
    results: tuple[Node, ...]  # the body's result for each variable
    rounds: int | None = None

    @classmethod
    def settled(cls, values: dict[str, Any], shape: str) -> dict[str, Any]:
        old, new, done = values["id"], f"loop {shape}", dict[str, Node]()
        if old == new:
            return values
        renamed = {
            name: tuple(_renamed(node, old, new, done) for node in values[name]) for name in ("variables", "results")
        }
        return {**values, **renamed, "id": new}

    @derived
    def scope(self) -> Scope:
        return self.variables[0].scope[:-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Leave(Node):
    source: Node  # a node of the loop; may be given under the loop's provisional name
    loop: Loop

    @classmethod
    def settled(cls, values: dict[str, Any], shape: str) -> dict[str, Any]:
        old, new = values["source"].scope[-1], values["loop"].id
        return values if old == new else {**values, "source": _renamed(values["source"], old, new, {})}

    @derived
    def scope(self) -> Scope:
        return self.source.scope[:-1]


_LINEAR = (Source, Constant, Steps, Union, AsStream, Arrange, ArrangementView, Expire)


def _by_key(columns: Fields, key: tuple[str, ...]) -> tuple[list[pa.Field], list[pa.Field]]:
    """The columns named in `key`, in that order, and all others."""
    named = {field.name: field for field in columns}
    return [named[name] for name in key], [field for field in columns if field.name not in key]


def _renamed(node: Node, old: str, new: str, done: dict[str, Node]) -> Node:
    """The same node in a loop of another name; `done` has the nodes renamed so far, by digest."""
    if old not in node.scope:
        return node
    if node.digest not in done:
        values = {name: _renamed_value(value, old, new, done) for name, value in node.values.items()}
        if values.get(node.names_loop) == old:
            values[node.names_loop] = new
        done[node.digest] = make(type(node), **values)
    return done[node.digest]


def _renamed_value(value: Any, old: str, new: str, done: dict[str, Node]) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed_value(entry, old, new, done) for entry in value)
    return _renamed(value, old, new, done) if isinstance(value, Node) else value


def is_arrangement(node: Node) -> bool:
    """Whether a node gives an arrangement rather than a stream."""
    if isinstance(node, Enter):
        return is_arrangement(node.source)
    return isinstance(node, ArrangementNode)


def is_stored(node: Node) -> bool:
    """Whether a node gives an arrangement with a trace of its own, rather than a view of another trace."""
    return isinstance(node, Arrange | Reduce)


def schema_of(node: Node) -> Schema:
    """The schema of a node that gives an arrangement."""
    if isinstance(node, Enter):
        return schema_of(node.source)
    assert isinstance(node, ArrangementNode)
    return node.schema
