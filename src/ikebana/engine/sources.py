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
from ikebana.plan.sharing import walk


class Sources:
    """The tables and inputs of an engine, as plans see them."""

    def __init__(self) -> None:
        self._engine, self._numbers = secrets.token_hex(8), itertools.count()
        self._nodes: dict[str, ir.Node] = {}  # by name

    def new(self, name: str, fields: Fields, is_stream: bool = False) -> Collection:
        """Return the collection of a new source, with an identity of its own. `add` makes it readable."""
        identity = f"{self._engine} {next(self._numbers)}"
        return Collection(ir.make(ir.Source, name=name, fields=fields, is_stream=is_stream, identity=identity))

    def add(self, name: str, node: ir.Node) -> None:
        """Let queries read a source."""
        self._nodes[name] = node

    def remove(self, name: str) -> None:
        """Reject queries that read a source from now on."""
        del self._nodes[name]

    def check(self, plan: ir.Node, action: str) -> None:
        """Raise unless every source that a plan reads exists in this engine now; `action` starts the message."""
        for node in walk(plan):
            if isinstance(node, ir.Source) and self._nodes.get(node.name) is not node:
                is_dropped = node.identity.startswith(f"{self._engine} ")
                reason = "was dropped" if is_dropped else "belongs to another engine or session"
                raise DataflowError(
                    f"{action}: it reads {node.name!r}, which {reason}",
                    detail="a table or input with the same name in this engine is a different one",
                    hint="build the query from the tables and inputs that this engine has now",
                )
