"""An engine with the tables of the statements, for tests of lowering without Java; and how answers compare."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

import pyarrow as pa

from ikebana.engine import Engine
from ikebana.errors import IkebanaError
from ikebana.expressions.core.types import arrow_type
from ikebana.sql import SourceTable
from ikebana.sql.lowering.query import lower
from ikebana.sql.planned import Planned
from ikebana.sql.statements import Statement
from tests.sql.rows import FIELDS, Row, Rows, arrow, drawn
from tests.sql.statements import KEYS, PREPARED, planned

TOLERANCE = 1e-12
"""How much floating-point numbers may differ: sums depend on the order of summation."""


class World:
    """An engine with all tables, rows in them, and views by the names of statements."""

    def __init__(
        self, workers: int = 1, rows: Rows | None = None, *, share: bool = True, streams: Collection[str] = ()
    ) -> None:
        self.engine = Engine(workers, share=share)
        self.tables = {name: self._table(name, name in streams) for name in FIELDS}
        self.rows: Rows = {name: [] for name in FIELDS}
        self.engine.advance()
        if rows is not None:
            self.change_to(rows)

    def _table(self, name: str, is_stream: bool) -> SourceTable:
        key = () if is_stream else KEYS.get(name, ())
        made = self.engine.table(name, FIELDS[name], key or None, "stream" if is_stream else "table")
        return SourceTable(name, made, key, is_stream)

    def install(self, name: str, plan: Planned | None = None) -> None:
        """A view for a statement."""
        lowered = lower(plan or planned(name), self.tables)
        self.engine.install(name, lowered.rows)

    def statement(self, name: str) -> Statement:
        """A prepared statement."""
        fields = [pa.field(each, _kind(kind), nullable=False) for each, kind in PREPARED[name][1].items()]
        return Statement(self.engine, name, planned(name), fields, self.tables)

    def change_to(self, rows: Rows) -> None:
        """One transaction that leaves exactly these rows."""
        with self.engine.transaction():
            for name, wanted in rows.items():
                self._change_table(name, wanted)
        self.rows = {name: list(each) for name, each in rows.items()}

    def _change_table(self, name: str, wanted: list[Row]) -> None:
        table, key = self.engine.tables[name], KEYS.get(name)
        if key:
            before, after = ({_key(name, row): row for row in each} for each in (self.rows[name], wanted))
            gone = [row for each, row in before.items() if each not in after]
            new = [row for each, row in after.items() if before.get(each) != row]
            add = table.upsert
        else:
            known = {repr(row): row for row in [*self.rows[name], *wanted]}
            counts = Counter(map(repr, wanted))
            counts.subtract(map(repr, self.rows[name]))
            gone = [known[each] for each, count in counts.items() for _ in range(-count)]
            new = [known[each] for each, count in counts.items() for _ in range(count)]
            add = table.insert
        if gone:
            table.delete(arrow(name, gone).select(key) if key else arrow(name, gone))
        if new:
            add(arrow(name, new))

    def answers(self) -> dict[str, pa.Table | str]:
        """What each view has, or why it has nothing."""
        return {name: self.answer(name) for name in self.engine.views}

    def answer(self, name: str) -> pa.Table | str:
        """What a view has, or why it has nothing."""
        try:
            return self.engine.views[name].to_arrow()
        except IkebanaError as error:
            return f"failed: {error}"

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _kind(text: str) -> pa.DataType:
    """The type of a parameter, as plans know it."""
    return arrow_type({"bigint": "long", "int": "integer"}.get(text.lower(), text.lower()))


def _key(table: str, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEYS[table])


# Changes.


def wandering(target: Rows, steps: int, seed: int) -> list[Rows]:
    """Rows that change a bit from step to step: at first some of the target and others, at last exactly the target."""
    chance = random.Random(seed)
    found = [{name: _perturbed(name, _nearer(name, [], rows, chance), chance) for name, rows in target.items()}]
    for _ in range(steps - 2):
        found.append(
            {name: _perturbed(name, _nearer(name, found[-1][name], target[name], chance), chance) for name in target}
        )
    return [*found, target]


def _perturbed(table: str, rows: list[Row], chance: random.Random) -> list[Row]:
    """The rows, and some others, which take the place of those with the same keys."""
    others = [drawn(table, chance) for _ in range(2 + len(rows) // 6)]
    if table not in KEYS:
        return [*rows, *others]
    return list({_key(table, row): row for row in [*rows, *others]}.values())


def _nearer(table: str, rows: list[Row], target: list[Row], chance: random.Random) -> list[Row]:
    """Half of the rows that should not be there left out, and half of those that should be there put in."""
    left = [row for row in rows if row in target or chance.random() < 0.5]
    new = [row for row in target if row not in left and chance.random() < 0.5]
    if table not in KEYS:
        return [*left, *new]
    return list({_key(table, row): row for row in [*left, *new]}.values())


# Comparing.


def difference(
    found: pa.Table | str, wanted: pa.Table | str, *, in_order: bool = False, free_lists: bool = False
) -> str:
    """How an answer differs from the one wanted; nothing if it does not. With `free_lists` their order is left open."""
    if isinstance(found, str) or isinstance(wanted, str):
        return "" if found == wanted else f"{found} in place of {wanted}"
    ours, theirs = ([(field.name, _plain(field.type)) for field in each.schema] for each in (found, wanted))
    if ours != theirs:
        return f"columns {ours} in place of {theirs}"
    one, two = (_listed(each, in_order, free_lists) for each in (found, wanted))
    if len(one) == len(two) and all(map(_alike, one, two)):
        return ""
    pairs = [(a, b) for a, b in zip(one, two, strict=False) if not _alike(a, b)]
    return f"{len(one)} rows in place of {len(two)}; {pairs[:3]}"


def _plain(kind: pa.DataType) -> str:
    return str(kind).replace(" not null", "")


def _listed(table: pa.Table, in_order: bool, free_lists: bool) -> list[Any]:
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    if free_lists:
        rows = [tuple(sorted(each, key=_place) if isinstance(each, list) else each for each in row) for row in rows]
    return rows if in_order else sorted(rows, key=_place)


def _place(value: Any) -> str:
    """Something by which rows can be sorted: the same for numbers that may differ."""
    if isinstance(value, float):
        return f"{value + 0.0:.6e}"
    if isinstance(value, dict):
        return str([_place(each) for each in value.values()])
    return str([_place(each) for each in value]) if isinstance(value, list | tuple) else repr(value)


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_alike(one[name], two[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(_alike, one, two))
    return type(one) is type(two) and bool(one == two)


def problems(
    found: Mapping[str, pa.Table | str], wanted: Mapping[str, pa.Table | str], names: Iterable[str]
) -> list[str]:
    """The statements whose answers differ, and how."""
    return [f"{name}: {text}" for name in names if (text := difference(found[name], wanted[name]))]
