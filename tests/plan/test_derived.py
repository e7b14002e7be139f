"""Properties of nodes that are computed once."""

from __future__ import annotations

import pyarrow as pa

from ikebana.plan import ir
from ikebana.plan.derived import derived


class Counted:
    calls = 0

    @derived
    def half(self) -> int:
        """Half of it."""
        self.calls += 1
        return 21


def test_computed_once_for_each_object() -> None:
    first, second = Counted(), Counted()
    assert (first.half, first.half, second.half) == (21, 21, 21)
    assert (first.calls, second.calls) == (1, 1)
    assert Counted.half.__doc__ == "Half of it."


def test_owners_have_the_schema_of_the_node_that_they_do_not_share() -> None:
    fields = (pa.field("k", pa.int64(), nullable=False),)
    node = ir.make(ir.Arrange, source=ir.make(ir.Source, name="rows", fields=fields), key=("k",))
    owned = [ir.with_owner(node, owner) for owner in ("one", "two")]
    assert all(ir.schema_of(one) is ir.schema_of(node) for one in owned)
    assert len({one.digest for one in (node, *owned)}) == 3


def test_the_graph_of_an_owned_node_has_that_node() -> None:
    fields = (pa.field("k", pa.int64(), nullable=False),)
    source = ir.make(ir.Source, name="others", fields=fields)
    node = ir.make(ir.Arrange, source=ir.make(ir.Union, sources=(source, source)), key=("k",))
    assert node.graph == (source, node.source, node)
    assert ir.with_owner(node, "one").graph == (source, node.source, ir.with_owner(node, "one"))
