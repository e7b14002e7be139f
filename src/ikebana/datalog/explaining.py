"""`explain`: the plans of rules as text, with the indexes that they share.

    tc(x, z) :- tc(x, y), edge(y, z).
      1. tc by (y)      index 1
      2. edge by (x)    index 2, read by 3 rules
    ...

Cost: linear in the program.
"""

from __future__ import annotations

from collections.abc import Iterator

from ikebana.datalog.body_plans import BodyPlan
from ikebana.datalog.orders import Order, RelationIndex, index_of
from ikebana.datalog.planner import Planner, index_users


def explain(planner: Planner) -> str:
    """The strata of a program, the plan of each rule, and the list of indexes."""
    users = index_users(planner.plans.values())
    numbers = {index: number for number, index in enumerate(users, 1)}
    lines: list[str] = []
    for stratum in planner.program.strata:
        rules = [rule for name in stratum.relations for rule in planner.program.rules_by_head[name]]
        if not rules:
            continue
        lines.append(f"{', '.join(stratum.relations)}{', in a loop' if stratum.is_recursive else ''}")
        for rule in rules:
            lines.append(f"  {rule}")
            lines += _body(planner, planner.plans[id(rule)].body, numbers, users, "    ")
    if numbers:
        lines.append("indexes")
        for index, number in numbers.items():
            count = len(users[index])
            lines.append(f"  index {number}: {_shown(planner, index)}, {count} use{'' if count == 1 else 's'}")
    return "\n".join(lines)


def _body(
    planner: Planner,
    plan: BodyPlan,
    numbers: dict[RelationIndex, int],
    users: dict[RelationIndex, list[str]],
    lead: str,
) -> Iterator[str]:
    for step, text in enumerate(_steps(planner, plan.order, numbers, users), 1):
        yield f"{lead}{step}. {text}"
    for pattern in plan.parts.negations:
        yield f"{lead}without {pattern.atom}"
    for name, aggregate in plan.parts.aggregates:
        yield f"{lead}{aggregate}"
        yield from _body(planner, plan.inner[name], numbers, users, f"{lead}  ")


def _steps(
    planner: Planner, order: Order, numbers: dict[RelationIndex, int], users: dict[RelationIndex, list[str]]
) -> Iterator[str]:
    for pattern, key in zip(order.patterns, order.keys, strict=True):
        if key is None:
            yield f"all of {pattern.atom}"
            continue
        index = index_of(pattern, key)
        others = len(users[index]) - 1
        shared = f", shared with {others} other look-up{'' if others == 1 else 's'}" if others else ""
        yield f"{pattern.atom} by {_key(planner, index)}: index {numbers[index]}{shared}"


def _key(planner: Planner, index: RelationIndex) -> str:
    attributes = planner.program.relations[index.relation].attributes
    return f"({', '.join(attributes[at] for at in index.key if at < len(attributes))})" if index.key else "nothing"


def _shown(planner: Planner, index: RelationIndex) -> str:
    return f"{index.relation} by {_key(planner, index)}{', of a selection' if index.selection else ''}"
