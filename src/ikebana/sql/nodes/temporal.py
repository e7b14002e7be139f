"""Conditions on the present time."""

from __future__ import annotations

from collections.abc import Sequence

from ikebana.sql.lowering import Lowering
from ikebana.sql.relations import Part
from ikebana.sql.tree import Tree


def is_temporal(tree: Tree) -> bool:
    return False


def while_valid(lowering: Lowering, part: Part, conditions: Sequence[Tree]) -> Part:
    raise AssertionError
