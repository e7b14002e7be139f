"""The renderer knows every class of plan nodes."""

from __future__ import annotations

from ikebana.plan import ir
from ikebana.plan.render import RENDERERS


def test_every_class_of_nodes_can_be_rendered() -> None:
    kinds = {kind for kind in vars(ir).values() if isinstance(kind, type) and issubclass(kind, ir.Node)}
    bases = {ir.Node, ir.ArrangementNode}
    with_leave = {ir.Loop}  # rendered with the nodes that leave it
    assert RENDERERS.keys() == kinds - bases - with_leave
