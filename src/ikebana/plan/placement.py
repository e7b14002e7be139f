"""Placement: by which columns the rows of a node are with the workers that own them.

A worker owns the rows of a key if it owns the lane of the key (`ikebana.operators.partition`). The rows of an
arrangement are with the owners of its key, and whatever an operator computes from a row stays on the worker of that
row, until an exchange. So rows that are arranged, or looked up, by columns by which they are placed already need not be
exchanged again:

| node | its rows are placed by |
|---|---|
| an arrangement, and its changes | the key |
| a join | the key of both sides, if the result has its columns, of one side or the other |
| a lookup | the columns that are looked up |
| a chain of steps | that of its source, as far as the columns are kept, perhaps under other names |
| a union | what all sources are placed by |
| a collection that enters or leaves a loop | that of the collection |

Rows that are placed by no columns are on one worker, and so is everything that is computed from them.

Contract: placements follow from the plan alone, so all workers leave out the same exchanges. Keys are equal only with
the same types, nulls and hash bits, since lanes depend on them. Not known: where the rows of tables and inputs are, and
those that a loop feeds back.

Cost: a look at each node and column, when a plan is rendered on several workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ikebana.encoding.schema import Side
from ikebana.operators.changes import Fields
from ikebana.operators.linear import Step
from ikebana.plan import ir

Placements: TypeAlias = frozenset[Side]
"""Keys, each of which places all rows."""

_NONE: Placements = frozenset()


class PlacedNodes:
    """The placements of the nodes of a plan."""

    def __init__(self) -> None:
        self._known: dict[str, Placements] = {}

    def is_placed(self, node: ir.Node, key: Side) -> bool:
        """Whether the rows of a node are with the workers that own their keys."""
        return key in self.of(node)

    def of(self, node: ir.Node) -> Placements:
        """The keys by which the rows of a node are placed."""
        if node.digest not in self._known:
            rule = _RULES.get(type(node))
            self._known[node.digest] = _NONE if rule is None else rule(self, node)
        return self._known[node.digest]

    def _of_source(self, node: Any) -> Placements:
        return self.of(node.source)

    def _of_arrangement(self, node: ir.ArrangementNode) -> Placements:
        return frozenset([node.schema.key])

    def _of_exchanged(self, node: ir.Arrange | ir.Lookup) -> Placements:
        """What places the source's rows, if they stay where they are."""
        given, key = self.of(node.source), node.schema.key
        return given if key in given else frozenset([key])

    def _of_union(self, node: ir.Union) -> Placements:
        return frozenset.intersection(*map(self.of, node.sources))

    def _of_join(self, node: ir.Join) -> Placements:
        key, of_right = ir.schema_of(node.left).key, ir.schema_of(node.right).key
        left = {source: name for name, source in node.result.left}
        right = {source: name for name, source in node.result.right}
        pairs = zip(key.fields, of_right.fields, strict=True)
        names = [name for own, other in pairs if (name := left.get(own.name) or right.get(other.name))]
        return frozenset([_with_names(key, names)]) if len(names) == len(key.fields) else _NONE

    def _of_steps(self, node: ir.Steps) -> Placements:
        placements = self.of(node.source)
        for step, columns in zip(node.steps, node.stages[1:], strict=True):
            placements = _renamed(placements, _new_names(step, columns)) if placements else placements
        return placements


def _new_names(step: Step, columns: Fields) -> dict[str, str]:
    """The name that a step gives each column whose values it keeps."""
    origins = {field.name: step.origin(field.name) for field in reversed(columns)}
    return {source: name for name, source in origins.items() if source is not None}


def _renamed(placements: Placements, names: dict[str, str]) -> Placements:
    """The keys whose columns all have a name, under these names."""
    return frozenset(
        _with_names(key, [names[field.name] for field in key.fields])
        for key in placements
        if all([field.name in names for field in key.fields])
    )


def _with_names(key: Side, names: Sequence[str]) -> Side:
    """A key whose columns have other names."""
    fields = tuple([field.with_name(name) for field, name in zip(key.fields, names, strict=True)])
    return Side(key.label, fields, key.hash_bits)


_RULES: dict[type[ir.Node], Callable[[PlacedNodes, Any], Placements]] = {
    ir.Arrange: PlacedNodes._of_exchanged,
    ir.Reduce: PlacedNodes._of_arrangement,
    ir.ArrangementView: PlacedNodes._of_arrangement,
    ir.AsStream: PlacedNodes._of_source,
    ir.AfterStart: PlacedNodes._of_source,
    ir.Steps: PlacedNodes._of_steps,
    ir.Union: PlacedNodes._of_union,
    ir.Join: PlacedNodes._of_join,
    ir.Lookup: PlacedNodes._of_exchanged,
    ir.Enter: PlacedNodes._of_source,
    ir.EnterAt: PlacedNodes._of_source,
    ir.Leave: PlacedNodes._of_source,
}
"""How the rows of each class of nodes are placed; those of other classes are placed by nothing that is known."""
