"""The plan: a small set of nodes that every front end produces and every worker renders.

A plan is a graph of immutable nodes. A node knows its inputs, the columns it gives, and the loops around it
(`scope`). Nodes are interned by a digest of what they are: two plans that describe the same thing in the
same way share the node, so "is this the same collection" is a comparison of digests. Functions are part of
what a node is: the same code with the same captured values is the same function. Nodes can be sent to other
processes. What follows from a node's values (its columns, its schema, its scope) is computed once: each asks its
inputs, several times, and plans are deep.

A loop is named after what it is: its variables, its body and its rounds. While its body is being built it has a name
that no other loop has, so that nodes tell nested loops apart; when the `Loop` is made, its nodes are made again under
the name that follows from its `shape`, and so are those that leave it. The shape of a node is a digest in which no
loop has a name: which loop an `Entered` or a `LoopVariable` belongs to follows from how deep it is, as with
de Bruijn's indices. So two queries that describe the same loop have the same nodes, and different loops in one
scope never have the same name.

| node | gives | meaning |
|---|---|---|
| `Source` | stream | an input of the engine, by name and identity |
| `Constant` | stream | rows that are part of the plan, and never change |
| `Steps` | stream | a chain of linear steps |
| `Union` | stream | several streams with the same columns, concatenated |
| `Arrange` | arrangement | a stream arranged by key columns |
| `Rows` | stream | the changes of an arrangement |
| `Later` | stream | the changes of a stream after the epoch at which the dataflow starts |
| `Seen` | arrangement | another, filtered, projected or negated in place |
| `Join` | stream | two arrangements with the same key, joined |
| `Lookup` | stream | the changes of a stream, each with what an arrangement was by then |
| `Expire` | stream | the rows of a stream that are valid at what a clock shows |
| `Reduce` | arrangement | a function of each key's values |
| `Entered` | either | the same collection inside a loop |
| `EnterAt` | stream | the same collection inside a loop, each row from a round of its own on |
| `LoopVariable` | stream | a variable of a loop |
| `Loop` | | variables and what the body makes of them |
| `Left` | stream | a collection of a loop, after its last round |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.operators.arrangement_views import ViewStep
from ikebana.operators.changes import Fields
from ikebana.operators.join import Result
from ikebana.operators.linear import Step
from ikebana.operators.reducers import Reducer
from ikebana.plan.digests import digest_of

Scope = tuple[str, ...]
"""The loops around a node, outermost first, by their ids."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """What all nodes have: their digest, and their shape. Make nodes with `make`."""

    digest: str = ""
    shape: str = ""
    names_loop: ClassVar[str] = ""
    """The field that has the name of a loop, if one has."""

    @classmethod
    def settled(cls, values: dict[str, Any], shape: str) -> dict[str, Any]:
        """The values that a node is made with, for those given: loops have the names that follow from their shape."""
        return values

    @property
    def values(self) -> dict[str, Any]:
        """What the node was made with, by name."""
        return {name: getattr(self, name) for name in _defaults(type(self))}

    @cached_property
    def scope(self) -> Scope:
        """The loops around this node: those of its first input."""
        return self.inputs[0].scope

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that this one reads."""
        found: list[Node] = []
        for value in self.values.values():
            found += [node for node in (value if isinstance(value, tuple) else (value,)) if isinstance(node, Node)]
        return tuple(found)

    @cached_property
    def columns(self) -> Fields:
        """The columns of its rows."""
        raise NotImplementedError

    @cached_property
    def lanes(self) -> int:
        """How many diff lanes its rows have."""
        return self.inputs[0].lanes

    def __reduce__(self) -> Any:
        return _remake, (type(self), self.values)


_known: WeakValueDictionary[str, Node] = WeakValueDictionary()


def make(kind: type[Any], **given: Any) -> Any:
    """The node of a kind with these values: the one that exists already, if it does."""
    values = {**_defaults(kind), **given}
    parts = _parts(values)
    unnamed = {name: each for name, each in parts.items() if name != kind.names_loop}
    shape = _hash(kind, unnamed, lambda node: node.shape)
    settled = kind.settled(values, shape)
    digest = _hash(kind, parts if settled is values else _parts(settled), lambda node: node.digest)
    node = _known.get(digest)
    if node is None:
        node = _known[digest] = kind(**settled, digest=digest, shape=shape)
    return node


def _defaults(kind: type[Node]) -> dict[str, Any]:
    """The names of a kind's values, with their defaults."""
    return {each.name: each.default for each in fields(kind) if each.name not in ("digest", "shape")}


Parts = dict[str, list[str | Node]]
"""For each of a node's values the nodes in it, and digests of what else there is."""


def _parts(values: dict[str, Any]) -> Parts:
    entries = {name: value if isinstance(value, tuple) else (value,) for name, value in sorted(values.items())}
    return {
        name: [each if isinstance(each, Node) else digest_of(each) for each in value] for name, value in entries.items()
    }


def _hash(kind: type[Node], parts: Parts, of: Callable[[Node], str]) -> str:
    flat = [kind.__name__]
    for name, entries in parts.items():
        flat += [name, *(of(each) if isinstance(each, Node) else each for each in entries)]
    return hashlib.sha256("\0".join(flat).encode()).hexdigest()[:24]


def _remake(kind: type[Any], values: dict[str, Any]) -> Any:
    return make(kind, **values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Source(Node):
    name: str
    fields: Fields
    is_stream: bool = False
    """Whether nothing is kept of it: a dataflow sees what comes after it was installed."""
    identity: str = ""
    """What tells it from others that have its name: in other engines, or before it was dropped and created again."""

    @cached_property
    def scope(self) -> Scope:
        return ()

    @cached_property
    def columns(self) -> Fields:
        return self.fields

    @cached_property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(Node):
    fields: Fields
    arrays: tuple[pa.Array, ...]
    rows: int

    @cached_property
    def scope(self) -> Scope:
        return ()

    @cached_property
    def columns(self) -> Fields:
        return self.fields

    @cached_property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Steps(Node):
    source: Node
    steps: tuple[Step, ...]
    diff_lanes: int

    @cached_property
    def columns(self) -> Fields:
        found = self.source.columns
        for step in self.steps:
            found = step.fields(found)
        return found

    @cached_property
    def lanes(self) -> int:
        return self.diff_lanes


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Node):
    sources: tuple[Node, ...]

    @cached_property
    def columns(self) -> Fields:
        return self.sources[0].columns


@dataclass(frozen=True, eq=False, kw_only=True)
class Arrange(Node):
    source: Node
    key: tuple[str, ...]
    hash_bits: int = 64
    owner: str = ""  # of an arrangement that is not to be shared: whose it is

    @cached_property
    def columns(self) -> Fields:
        return (*self.schema.key.fields, *self.schema.val.fields)

    @cached_property
    def schema(self) -> Schema:
        """Key and value columns of the arrangement."""
        known = {each.name: each for each in self.source.columns}
        rest = [each for each in self.source.columns if each.name not in self.key]
        lanes = [f"diff {lane}" for lane in range(self.lanes)] if self.lanes > 1 else ["diff"]
        return Schema([known[name] for name in self.key], rest, diffs=lanes, hash_bits=self.hash_bits)


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrangementView(Node):
    source: Node
    wrapper: ViewStep

    @cached_property
    def columns(self) -> Fields:
        return (*self.schema.key.fields, *self.schema.val.fields)

    @cached_property
    def schema(self) -> Schema:
        """Key and value columns of the arrangement, as it is seen."""
        return self.wrapper.schema(schema_of(self.source))


@dataclass(frozen=True, eq=False, kw_only=True)
class AsStream(Node):
    source: Node

    @cached_property
    def columns(self) -> Fields:
        return self.source.columns


@dataclass(frozen=True, eq=False, kw_only=True)
class AfterStart(Node):
    source: Node

    @cached_property
    def columns(self) -> Fields:
        return self.source.columns


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Node):
    left: Node
    right: Node
    result: Result

    @cached_property
    def columns(self) -> Fields:
        return self.result.fields(schema_of(self.left), schema_of(self.right))

    @cached_property
    def lanes(self) -> int:
        return max(self.left.lanes, self.right.lanes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Lookup(Node):
    source: Node
    index: Node
    key: tuple[str, ...]  # columns of the stream, in the order of the arrangement's key
    strict: bool

    @cached_property
    def schema(self) -> Schema:
        """Key and value columns of the stream's probes."""
        known = {each.name: each for each in self.source.columns}
        rest = [each for each in self.source.columns if each.name not in self.key]
        lanes = [f"diff {lane}" for lane in range(self.source.lanes)]
        bits = schema_of(self.index).key.hash_bits
        return Schema([known[name] for name in self.key], rest, diffs=lanes, hash_bits=bits, carry=True)

    @cached_property
    def result(self) -> Result:
        """All columns of the stream, then the value columns of the arrangement."""
        mine = tuple((name, name) for name in self.schema.names)
        theirs = tuple((each.name, each.name) for each in schema_of(self.index).val.fields)
        return Result(tuple(name for name, _ in (*mine, *theirs)), mine, theirs)

    @cached_property
    def columns(self) -> Fields:
        return self.result.fields(self.schema, schema_of(self.index))

    @cached_property
    def lanes(self) -> int:
        return max(self.source.lanes, self.index.lanes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Expire(Node):
    source: Node
    clock: Node
    valid_from: str  # columns; none if it is empty
    valid_until: str

    @cached_property
    def columns(self) -> Fields:
        return self.source.columns


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(Node):
    source: Node
    reducer: Reducer
    owner: str = ""

    @cached_property
    def schema(self) -> Schema:
        """Key and value columns of the output arrangement."""
        given = schema_of(self.source)
        return Schema(given.key.fields, self.reducer.fields(given), hash_bits=given.key.hash_bits)

    @cached_property
    def columns(self) -> Fields:
        return (*self.schema.key.fields, *self.schema.val.fields)

    @cached_property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Enter(Node):
    names_loop = "loop"
    source: Node
    loop: str

    @cached_property
    def scope(self) -> Scope:
        return (*self.source.scope, self.loop)

    @cached_property
    def columns(self) -> Fields:
        return self.source.columns


@dataclass(frozen=True, eq=False, kw_only=True)
class EnterAt(Node):
    names_loop = "loop"
    source: Node
    loop: str
    delay: Any

    @cached_property
    def scope(self) -> Scope:
        return (*self.source.scope, self.loop)

    @cached_property
    def columns(self) -> Fields:
        return self.source.columns


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopVariable(Node):
    names_loop = "loop"
    name: str
    loop: str
    initial: Node  # inside the loop

    @cached_property
    def columns(self) -> Fields:
        return self.initial.columns


@dataclass(frozen=True, eq=False, kw_only=True)
class Loop(Node):
    names_loop = "id"
    id: str
    variables: tuple[LoopVariable, ...]
    results: tuple[Node, ...]  # what the body makes of each variable
    rounds: int | None = None

    @classmethod
    def settled(cls, values: dict[str, Any], shape: str) -> dict[str, Any]:
        old, new, done = values["id"], f"loop {shape}", dict[str, Node]()
        if old == new:
            return values
        renamed = {
            name: tuple(_renamed(each, old, new, done) for each in values[name]) for name in ("variables", "results")
        }
        return {**values, **renamed, "id": new}

    @cached_property
    def scope(self) -> Scope:
        return self.variables[0].scope[:-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Leave(Node):
    source: Node  # of the loop's nodes; may be given under the name that the loop had while it was built
    loop: Loop

    @classmethod
    def settled(cls, values: dict[str, Any], shape: str) -> dict[str, Any]:
        old, new = values["source"].scope[-1], values["loop"].id
        return values if old == new else {**values, "source": _renamed(values["source"], old, new, {})}

    @cached_property
    def scope(self) -> Scope:
        return self.source.scope[:-1]

    @cached_property
    def columns(self) -> Fields:
        return self.source.columns


def _renamed(node: Node, old: str, new: str, done: dict[str, Node]) -> Node:
    """The same node in a loop of another name; `done` has what was renamed already, by digest."""
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
        return tuple(_renamed_value(each, old, new, done) for each in value)
    return _renamed(value, old, new, done) if isinstance(value, Node) else value


def is_arrangement(node: Node) -> bool:
    """Whether a node gives an arrangement rather than a stream."""
    if isinstance(node, Enter):
        return is_arrangement(node.source)
    return isinstance(node, Arrange | Reduce | ArrangementView)


def is_stored(node: Node) -> bool:
    """Whether a node gives an arrangement that has a trace of its own, rather than another's seen differently."""
    return isinstance(node, Arrange | Reduce)


def schema_of(node: Node) -> Schema:
    """The schema of a node that gives an arrangement."""
    if isinstance(node, Enter):
        return schema_of(node.source)
    assert isinstance(node, Arrange | Reduce | ArrangementView)
    return node.schema
