"""Which arrangements a plan can share with other plans, and `explain`, which shows a plan as text.

An arrangement outside loops whose collection is computed from stored rows by linear steps alone (including `Expire`)
gets a dataflow of its own: any number of queries import the arrangement, and it lives as long as one of them
(`is_shareable`).

`explain` draws the plan as a tree, and marks which arrangements are reused, imported and built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ikebana.plan import ir


def walk(node: ir.Node) -> tuple[ir.Node, ...]:
    """The node and all nodes that it reads, directly or indirectly, each once, inputs first."""
    return node.graph


def readers_of(plan: ir.Node, sources: Collection[str]) -> set[str]:
    """The digests of the nodes of a plan that read some of the sources, directly or indirectly."""
    readers: set[str] = set()
    for node in walk(plan):
        is_source = isinstance(node, ir.Source) and node.name in sources
        if is_source or any(source.digest in readers for source in node.inputs):
            readers.add(node.digest)
    return readers


def is_shareable(node: ir.Node) -> bool:
    """Whether a node arranges, outside loops, stored rows or linear steps over them, and belongs to nobody."""
    return isinstance(node, ir.Arrange) and node.is_linear and not node.reads_stream and not node.owner


def is_only_indexed(node: ir.Node, loop: ir.Loop) -> bool:
    """Whether the body of a loop only arranges a node, possibly after linear steps."""
    if node in loop.results:
        return False
    readers = [reader for reader in walk(loop) if reader is not loop and node in reader.inputs]
    return all(
        isinstance(reader, ir.Arrange) or (isinstance(reader, ir.Steps | ir.Union) and is_only_indexed(reader, loop))
        for reader in readers
    )


def make_private(plan: ir.Node, owner: str) -> ir.Node:
    """The same plan with arrangements that belong to `owner` and are not shared."""

    def owned(node: ir.Node) -> ir.Node:
        return ir.make(type(node), **{**node.values, "owner": owner}) if ir.is_stored(node) else node

    return replaced(plan, owned)


def replaced(plan: ir.Node, replacement: Callable[[ir.Node], ir.Node]) -> ir.Node:
    """The same plan with every node replaced, inputs first: `replacement` gets a node that has its inputs replaced."""
    done: dict[str, ir.Node] = {}

    def copy(node: ir.Node) -> ir.Node:
        if node.digest not in done:
            values = node.values
            for name, value in values.items():
                if isinstance(value, ir.Node):
                    values[name] = copy(value)
                elif isinstance(value, tuple) and value and isinstance(value[0], ir.Node):
                    values[name] = tuple(map(copy, value))
            done[node.digest] = replacement(ir.make(type(node), **values))
        return done[node.digest]

    return copy(plan)


def explain(plan: ir.Node, status: Callable[[ir.Node], str]) -> str:
    """The plan as a tree, one line for each node; `status` gives a note on arrangements."""
    lines: list[str] = []
    seen: set[str] = set()
    loops: list[ir.Scope] = []

    def draw(node: ir.Node, lead: str, branch: str) -> None:
        is_repeated = node.digest in seen
        note = "  (see above)" if is_repeated else status(node)
        lines.append(f"{lead}{branch}{describe(node, loops)}{note}")
        if is_repeated:
            return
        seen.add(node.digest)
        inner = lead + ("" if not branch else "   " if branch.startswith("└") else "│  ")
        for number, source in enumerate(node.inputs, 1):
            draw(source, inner, "└─ " if number == len(node.inputs) else "├─ ")

    draw(plan, "", "")
    return "\n".join(lines)


def describe(node: ir.Node, loops: list[ir.Scope]) -> str:
    """A node in a few words; `loops` lists the loops described so far, and is extended."""
    match node:
        case ir.Source():
            return f"input {node.name}"
        case ir.Constant():
            return f"{node.rows} constant row{'' if node.rows == 1 else 's'}"
        case ir.Steps():
            return " | ".join(step.label for step in node.steps)
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
        case ir.Extend():
            return f"extend by {node.name}, looking up {' and '.join(node.keys)}"
        case ir.Expire():
            bounds = {"from": node.valid_from, "until": node.valid_until}
            return "valid " + " ".join(f"{word} {name}" for word, name in bounds.items() if name)
        case ir.Reduce():
            return f"reduce with {node.reducer.label}"
        case ir.Enter():
            return f"enter {_loop_name(node.scope, loops)}"
        case ir.EnterAt():
            return f"enter {_loop_name(node.scope, loops)}, each row at a round of its own"
        case ir.LoopVariable():
            return f"variable {node.name} of {_loop_name(node.scope, loops)}"
        case ir.Loop():
            name = _loop_name((*node.scope, node.id), loops)
            return name if node.rounds is None else f"{name}, {node.rounds} rounds"
        case _:
            return f"leave {_loop_name(node.inputs[0].scope, loops)}"


def _loop_name(scope: ir.Scope, loops: list[ir.Scope]) -> str:
    """The name of the innermost loop of a scope: loops are numbered in the order in which they occur."""
    if scope not in loops:
        loops.append(scope)
    return f"loop {loops.index(scope) + 1}"
