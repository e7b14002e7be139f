"""The rows of a program's relations at one epoch, to explain facts by them.

Cost: reading the relations on which a fact depends, and installing views of those that are not maintained yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa

from ikebana.datalog.parser import parse_atom
from ikebana.datalog.stratify import rule_dependencies
from ikebana.datalog.why import Explainer
from ikebana.engine.views import View
from ikebana.errors import TimeError
from ikebana.expressions import ColumnBatch

if TYPE_CHECKING:
    from ikebana.datalog.program import Program

_numbers = itertools.count(1)

_ATTEMPTS = 10
"""How often the relations are read anew if they change meanwhile, before other threads are kept from changing them."""


def explainer(program: Program, fact: str) -> Explainer:
    """An explainer with the rows of all relations on which a fact depends, at the last closed epoch."""
    derived = program.checked.rules_by_head
    names = _needed(program, parse_atom(fact).relation)
    with ExitStack() as stack:
        views: dict[tuple[str, bool], View] = {}
        for name in names:
            views[name, True] = program.relation(name).view
            if derived[name]:  # its facts have no view of their own
                view_name = f"{program.name}: facts of {name} {next(_numbers)}"  # several threads may ask at once
                view = program.engine.install(view_name, program.facts[name].rows)
                stack.callback(view.drop)
                views[name, False] = view
        tables = _read_together(program, views)

    def rows(name: str) -> ColumnBatch:
        return _batch(tables[name, True], program.planner.columns(name), program.relations[name].arity)

    def facts(name: str) -> ColumnBatch:
        if not derived[name]:
            return rows(name)
        return _batch(tables[name, False], program.facts[name].columns, program.relations[name].arity)

    return Explainer(program.checked, rows, facts, program.storage)


def _needed(program: Program, relation: str) -> list[str]:
    """The relations on which a relation depends, and itself; none if there is no such relation."""
    needed = [relation] if relation in program.relations else []
    for name in needed:
        for rule in program.checked.rules_by_head[name]:
            for read in rule_dependencies(rule.rule):
                if read.relation not in needed:
                    needed.append(read.relation)
    return needed


def _read_together(program: Program, views: dict[tuple[str, bool], View]) -> dict[tuple[str, bool], pa.Table]:
    """The rows of all views at one epoch."""
    for _ in range(_ATTEMPTS):
        epoch = program.engine.epoch - 1
        try:
            return {key: view.to_arrow(epoch) for key, view in views.items()}
        except TimeError:  # the epoch is gone: other threads change facts meanwhile
            continue
    with program.engine.coordinator.lock:
        epoch = program.engine.epoch - 1
        return {key: view.to_arrow(epoch) for key, view in views.items()}


def _batch(table: pa.Table, columns: Iterable[str], arity: int) -> ColumnBatch:
    """The attributes of a relation; none, if it has none."""
    names = list(columns)[:arity]
    return ColumnBatch({name: table[name].combine_chunks() for name in names}, table.num_rows)
