"""The plan: a small set of nodes that every front end produces and every worker renders.

A plan is a graph of immutable nodes. A node knows its inputs, the columns it gives, and the loops around it
(`scope`). Nodes are interned by a digest of what they are: two plans that describe the same thing in the
same way share the node, so "is this the same collection" is a comparison of digests. Functions are part of
what a node is: the same code with the same captured values is the same function. Nodes can be sent to other
processes. What follows from a node's values (its columns, its schema, its scope) is computed once: each asks its
inputs, several times, and plans are deep.

| node | gives | meaning |
|---|---|---|
| `Source` | stream | an input of the engine, by name |
| `Steps` | stream | a chain of linear steps |
| `Union` | stream | several streams with the same columns, concatenated |
| `ByKey` | arrangement | a stream arranged by key columns |
| `Rows` | stream | the changes of an arrangement |
| `JoinOf` | stream | two arrangements with the same key, joined |
| `LookupOf` | stream | the changes of a stream, each with what an arrangement was by then |
| `ReduceOf` | arrangement | a function of each key's values |
| `Entered` | either | the same collection inside a loop |
| `EnteredAt` | stream | the same collection inside a loop, each row from a round of its own on |
| `LoopVariable` | stream | a variable of a loop |
| `Loop` | | variables and what the body makes of them |
| `Left` | stream | a collection of a loop, after its last round |
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import cloudpickle
import pyarrow as pa

from ikebana.operators.changes import Fields
from ikebana.operators.join import Result
from ikebana.operators.linear import Step
from ikebana.operators.logic import Logic
from ikebana.trace import Schema

Scope = tuple[str, ...]
"""The loops around a node, outermost first, by their ids."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """What all nodes have: their digest. Make nodes with `make`."""

    digest: str = ""

    @cached_property
    def scope(self) -> Scope:
        """The loops around this node: those of its first input."""
        return self.inputs[0].scope

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that this one reads."""
        found: list[Node] = []
        for each in fields(self):
            value = getattr(self, each.name)
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
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "digest"}
        return _remake, (type(self), values)


_known: WeakValueDictionary[str, Node] = WeakValueDictionary()


def make(kind: type[Any], **given: Any) -> Any:
    """The node of a kind with these values: the one that exists already, if it does."""
    values = {each.name: given.get(each.name, each.default) for each in fields(kind) if each.name != "digest"}
    parts = [kind.__name__]
    for name, value in sorted(values.items()):
        parts += [name, *(_digest_of(each) for each in (value if isinstance(value, tuple) else (value,)))]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    node = _known.get(digest)
    if node is None:
        node = _known[digest] = kind(**values, digest=digest)
    return node


def _remake(kind: type[Any], values: dict[str, Any]) -> Any:
    return make(kind, **values)


def _digest_of(value: Any) -> str:
    if isinstance(value, Node):
        return value.digest
    if isinstance(value, str | int | float | bool | None | pa.Field):
        return repr(value)
    return hashlib.sha256(cloudpickle.dumps(value)).hexdigest()


@dataclass(frozen=True, eq=False, kw_only=True)
class Source(Node):
    name: str
    fields: Fields

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
class ByKey(Node):
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
class Rows(Node):
    source: Node

    @cached_property
    def columns(self) -> Fields:
        return self.source.columns


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinOf(Node):
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
class LookupOf(Node):
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
        return Schema([known[name] for name in self.key], rest, diffs=lanes, hash_bits=bits)

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
class ReduceOf(Node):
    source: Node
    logic: Logic
    owner: str = ""

    @cached_property
    def schema(self) -> Schema:
        """Key and value columns of the output arrangement."""
        given = schema_of(self.source)
        return Schema(given.key.fields, self.logic.fields(given), hash_bits=given.key.hash_bits)

    @cached_property
    def columns(self) -> Fields:
        return (*self.schema.key.fields, *self.schema.val.fields)

    @cached_property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Entered(Node):
    source: Node
    loop: str

    @cached_property
    def scope(self) -> Scope:
        return (*self.source.scope, self.loop)

    @cached_property
    def columns(self) -> Fields:
        return self.source.columns


@dataclass(frozen=True, eq=False, kw_only=True)
class EnteredAt(Node):
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
    name: str
    loop: str
    initial: Node  # inside the loop

    @cached_property
    def columns(self) -> Fields:
        return self.initial.columns


@dataclass(frozen=True, eq=False, kw_only=True)
class Loop(Node):
    id: str
    variables: tuple[LoopVariable, ...]
    results: tuple[Node, ...]  # what the body makes of each variable
    rounds: int | None = None

    @cached_property
    def scope(self) -> Scope:
        return self.variables[0].scope[:-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Left(Node):
    source: Node
    loop: Loop

    @cached_property
    def scope(self) -> Scope:
        return self.source.scope[:-1]

    @cached_property
    def columns(self) -> Fields:
        return self.source.columns


def is_arrangement(node: Node) -> bool:
    """Whether a node gives an arrangement rather than a stream."""
    if isinstance(node, Entered):
        return is_arrangement(node.source)
    return isinstance(node, ByKey | ReduceOf)


def schema_of(node: Node) -> Schema:
    """The schema of a node that gives an arrangement."""
    if isinstance(node, Entered):
        return schema_of(node.source)
    assert isinstance(node, ByKey | ReduceOf)
    return node.schema
