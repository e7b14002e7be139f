"""Which arrangements a plan can share with others, and how a plan reads to a person.

An arrangement outside all loops whose collection is made from inputs by linear steps alone (expiring is one) is worth a
dataflow of its own: any number of queries import it, and it lives as long as one of them does (`is_shareable`).

`explain` draws the plan as a tree, with what is reused, imported and built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ikebana.operators.linear import label_of
from ikebana.plan import ir


def walk(node: ir.Node) -> Iterator[ir.Node]:
    """Every node below and including this one, inputs first, each once."""
    seen: set[str] = set()

    def visit(each: ir.Node) -> Iterator[ir.Node]:
        if each.digest in seen:
            return
        seen.add(each.digest)
        for below in each.inputs:
            yield from visit(below)
        yield each

    yield from visit(node)


def readers_of(plan: ir.Node, sources: Collection[str]) -> set[str]:
    """The digests of those of a plan's nodes that read some of the sources, directly or not."""
    found: set[str] = set()
    for node in walk(plan):
        is_source = isinstance(node, ir.Source) and node.name in sources
        if is_source or any(each.digest in found for each in node.inputs):
            found.add(node.digest)
    return found


def is_shareable(node: ir.Node) -> bool:
    """Whether a node is an arrangement, outside loops, of a collection made from inputs by linear steps alone."""
    simple = (ir.Source, ir.Constant, ir.Steps, ir.Union, ir.AsStream, ir.Arrange, ir.ArrangementView, ir.Expire)
    return isinstance(node, ir.Arrange) and all(isinstance(each, simple) for each in walk(node))


def is_only_indexed(node: ir.Node, loop: ir.Loop) -> bool:
    """Whether all that a loop's body makes of a node is arranged, after linear steps at most."""
    if node in loop.results:
        return False
    users = [each for each in walk(loop) if each is not loop and node in each.inputs]
    return all(
        isinstance(each, ir.Arrange) or (isinstance(each, ir.Steps | ir.Union) and is_only_indexed(each, loop))
        for each in users
    )


def private(plan: ir.Node, owner: str, is_meant: Callable[[ir.Node], bool] = lambda node: True) -> ir.Node:
    """The same plan with arrangements of its own, which nobody else shares; of the nodes that are not meant it keeps
    what is there, and what is below them."""
    done: dict[str, ir.Node] = {}

    def copy(node: ir.Node) -> ir.Node:
        if not is_meant(node):
            return node
        if node.digest not in done:
            values = node.values
            for name, value in values.items():
                if isinstance(value, ir.Node):
                    values[name] = copy(value)
                elif isinstance(value, tuple) and value and isinstance(value[0], ir.Node):
                    values[name] = tuple(copy(each) for each in value)
            if isinstance(node, ir.Arrange | ir.Reduce):
                values["owner"] = owner
            done[node.digest] = ir.make(type(node), **values)
        return done[node.digest]

    return copy(plan)


def explain(plan: ir.Node, status: Callable[[ir.Node], str]) -> str:
    """The plan as a tree, a line for each node; `status` adds what is known of an arrangement."""
    lines: list[str] = []
    seen: set[str] = set()
    loops: list[ir.Scope] = []

    def draw(node: ir.Node, lead: str, branch: str) -> None:
        again = node.digest in seen
        note = "  (see above)" if again else status(node)
        lines.append(f"{lead}{branch}{describe(node, loops)}{note}")
        if again:
            return
        seen.add(node.digest)
        below = list(node.inputs)
        inner = lead + ("" if not branch else "   " if branch.startswith("└") else "│  ")
        for at, each in enumerate(below, 1):
            draw(each, inner, "└─ " if at == len(below) else "├─ ")

    draw(plan, "", "")
    return "\n".join(lines)


def describe(node: ir.Node, loops: list[ir.Scope]) -> str:
    """A node in a few words; `loops` has the loops that were met, and is added to."""
    match node:
        case ir.Source():
            return f"input {node.name}"
        case ir.Constant():
            return f"{node.rows} constant row{'' if node.rows == 1 else 's'}"
        case ir.Steps():
            return " | ".join(map(label_of, node.steps))
        case ir.Union():
            return "concat"
        case ir.Arrange():
            return f"arrange by {', '.join(node.key) or 'nothing'}"
        case ir.ArrangementView():
            return f"{node.wrapper.label}, in place"
        case ir.AsStream():
            return "rows"
        case ir.AfterStart():
            return "later changes"
        case ir.Join():
            return f"join on {', '.join(field.name for field in ir.schema_of(node.left).key.fields)}"
        case ir.Lookup():
            return f"look up by {', '.join(node.key)}{', strictly before' if node.strict else ''}"
        case ir.Expire():
            bounds = {"from": node.valid_from, "until": node.valid_until}
            return "valid " + " ".join(f"{word} {name}" for word, name in bounds.items() if name)
        case ir.Reduce():
            return f"reduce with {node.reducer.label}"
        case ir.Enter():
            return f"enter {_called(node.scope, loops)}"
        case ir.EnterAt():
            return f"enter {_called(node.scope, loops)}, each row at a round of its own"
        case ir.LoopVariable():
            return f"variable {node.name} of {_called(node.scope, loops)}"
        case ir.Loop():
            name = _called((*node.scope, node.id), loops)
            return name if node.rounds is None else f"{name}, {node.rounds} rounds"
        case _:
            return f"leave {_called(node.inputs[0].scope, loops)}"


def _called(scope: ir.Scope, loops: list[ir.Scope]) -> str:
    """What a reader calls the innermost of some loops: a number, in the order in which they are met."""
    if scope not in loops:
        loops.append(scope)
    return f"loop {loops.index(scope) + 1}"
