"""Which arrangements of a program get a dataflow of their own, because several of its relations read them.

The engine shares indexes of tables and inputs by itself (`ikebana.plan.sharing`). What a program derives is shared only
if it is installed: a derived relation that two others read, a second index of it, the results of a loop.

Cost: linear in the plans, times the number of arrangements that are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ikebana.plan import ir
from ikebana.plan.sharing import is_shareable


def arrangements_to_install(roots: Sequence[ir.Node], is_maintained: Callable[[ir.Node], bool]) -> list[ir.Node]:
    """The roots, and the arrangements below that more than one of the result would otherwise build; inputs first."""
    installed = dict.fromkeys(roots)
    while True:
        readers: dict[ir.Node, int] = {}
        order: list[ir.Node] = []
        for root in installed:
            for node in _built_for(root, installed, is_maintained):
                if node not in readers:
                    order.append(node)
                readers[node] = readers.get(node, 0) + 1
        shared = next((node for node in order if readers[node] > 1), None)
        if shared is None:
            return _inputs_first(list(installed))
        installed[shared] = None


def _built_for(
    root: ir.Node, installed: dict[ir.Node, None], is_maintained: Callable[[ir.Node], bool]
) -> list[ir.Node]:
    """The arrangements outside loops that a root's dataflow builds for itself, outermost first."""
    seen: set[ir.Node] = {root}
    built: list[ir.Node] = []
    waiting = list(root.inputs)
    for node in waiting:
        if node in seen:
            continue
        seen.add(node)
        if ir.is_stored(node) and not node.scope:
            if node in installed or is_shareable(node) or is_maintained(node):
                continue
            built.append(node)
        waiting.extend(node.inputs)
    return built


def _inputs_first(nodes: list[ir.Node]) -> list[ir.Node]:
    """The nodes in an order in which each comes after those that it reads."""
    wanted, done = set(nodes), dict[ir.Node, None]()

    def visit(node: ir.Node, seen: set[ir.Node]) -> None:
        if node in seen:
            return
        seen.add(node)
        for source in node.inputs:
            visit(source, seen)
        if node in wanted:
            done[node] = None

    seen: set[ir.Node] = set()
    for node in nodes:
        visit(node, seen)
    return list(done)
