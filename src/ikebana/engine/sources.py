"""Sources: the tables and inputs that queries of one engine may read.

Plans refer to a source by an identity that is unique across engines and never reused, not by its name: a plan that was
built from a table which has since been dropped, or from a table of another engine, is rejected, even if this engine has
a table of the same name.
"""

from __future__ import annotations

import itertools
import secrets

from ikebana.engine.collection import Collection
from ikebana.errors import DataflowError
from ikebana.operators.changes import Fields
from ikebana.plan import ir
from ikebana.plan.sharing import replaced, walk


class Sources:
    """The tables and inputs of an engine, as plans see them."""

    def __init__(self) -> None:
        self._engine, self._numbers = secrets.token_hex(8), itertools.count()
        self._nodes: dict[str, ir.Node] = {}  # by name
        self._former: dict[str, list[ir.Node]] = {}  # of tables that have got further columns since, by name

    def new(self, name: str, fields: Fields, is_stream: bool = False, identity: str = "") -> Collection:
        """Return the collection of a new source, with an identity of its own. `add` makes it readable.

        `identity` is that of a stored table, which it keeps for ever, so that stored plans can refer to it.
        """
        identity = identity or f"{self._engine} {next(self._numbers)}"
        return Collection(ir.make(ir.Source, name=name, fields=fields, is_stream=is_stream, identity=identity))

    def add(self, name: str, node: ir.Node) -> None:
        """Let queries read a source."""
        self._nodes[name] = node

    def replace(self, name: str, node: ir.Node) -> None:
        """Let queries read a source with further columns. Queries that were built from it before can still read it."""
        self._former.setdefault(name, []).append(self._nodes[name])
        self._nodes[name] = node

    def remove_former(self, node: ir.Source) -> None:
        """Reject queries that read a source as it was before it got further columns."""
        self._former[node.name].remove(node)

    def remove(self, name: str) -> None:
        """Reject queries that read a source from now on."""
        del self._nodes[name]
        self._former.pop(name, None)

    def _has(self, node: ir.Source) -> bool:
        return self._nodes.get(node.name) is node or node in self._former.get(node.name, ())

    def renewed(self, plan: ir.Node) -> ir.Node:
        """The plan; where it reads a stored table as it was before it got further columns, it reads the others of now.

        Such plans were stored then. (Plans that read former rows, as long as these are kept, stay as they are.)
        """
        if all(self._has(node) for node in walk(plan) if isinstance(node, ir.Source)):
            return plan
        return replaced(plan, lambda node: self._renewed_source(node) if isinstance(node, ir.Source) else node)

    def _renewed_source(self, node: ir.Source) -> ir.Node:
        now = self._nodes.get(node.name)
        is_same_table = isinstance(now, ir.Source) and now.identity == node.identity
        if now is None or not is_same_table or self._has(node) or now.columns[: len(node.columns)] != node.columns:
            return node
        return Collection(now).select(*(field.name for field in node.columns)).node

    def check(self, plan: ir.Node, action: str) -> None:
        """Raise unless every source that a plan reads exists in this engine now; `action` starts the message."""
        for node in walk(plan):
            if isinstance(node, ir.Source) and not self._has(node):
                is_dropped = node.identity.startswith(f"{self._engine} ")
                reason = "was dropped" if is_dropped else "belongs to another engine or session"
                raise DataflowError(
                    f"{action}: it reads {node.name!r}, which {reason}",
                    detail="a table or input with the same name in this engine is a different one",
                    hint="build the query from the tables and inputs that this engine has now",
                )
