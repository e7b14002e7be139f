"""An engine with the tables of the statements, for tests of lowering without Java; and comparison of answers."""

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
"""The tolerance for floating-point numbers: sums depend on the order of summation."""


class StatementTables:
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
        table = self.engine.table(name, FIELDS[name], key or None, "stream" if is_stream else "table")
        return SourceTable(name, table, key, is_stream)

    def install(self, name: str, plan: Planned | None = None) -> None:
        """Install a view for a statement."""
        lowered = lower(plan or planned(name), self.tables)
        self.engine.install(name, lowered.rows)

    def statement(self, name: str, **options: Any) -> Statement:
        """A prepared statement."""
        fields = [pa.field(parameter, _kind(kind), nullable=False) for parameter, kind in PREPARED[name][1].items()]
        return Statement(self.engine, name, planned(name), fields, self.tables, **options)

    def change_to(self, rows: Rows) -> None:
        """Change all tables to exactly these rows, in one transaction."""
        with self.engine.transaction():
            for name, target in rows.items():
                self._change_table(name, target)
        self.rows = {name: list(table_rows) for name, table_rows in rows.items()}

    def _change_table(self, name: str, target: list[Row]) -> None:
        table, key = self.engine.tables[name], KEYS.get(name)
        if key:
            before, after = ({_key(name, row): row for row in state} for state in (self.rows[name], target))
            gone = [row for row_key, row in before.items() if row_key not in after]
            new = [row for row_key, row in after.items() if before.get(row_key) != row]
            add = table.upsert
        else:
            known = {repr(row): row for row in [*self.rows[name], *target]}
            counts = Counter(map(repr, target))
            counts.subtract(map(repr, self.rows[name]))
            gone = [known[text] for text, count in counts.items() for _ in range(-count)]
            new = [known[text] for text, count in counts.items() for _ in range(count)]
            add = table.insert
        if gone:
            table.delete(arrow(name, gone).select(key) if key else arrow(name, gone))
        if new:
            add(arrow(name, new))

    def answers(self) -> dict[str, pa.Table | str]:
        """The rows of each view, or its error."""
        return {name: self.answer(name) for name in self.engine.views}

    def answer(self, name: str) -> pa.Table | str:
        """The rows of a view, or its error."""
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
    """The Arrow type of a parameter, given its SQL type."""
    return arrow_type({"bigint": "long", "int": "integer"}.get(text.lower(), text.lower()))


def _key(table: str, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEYS[table])


# Changes.


def wandering(target: Rows, steps: int, seed: int) -> list[Rows]:
    """Rows that change a bit from step to step, from some of the target and others to exactly the target."""
    chance = random.Random(seed)
    states = [{name: _perturbed(name, _nearer(name, [], rows, chance), chance) for name, rows in target.items()}]
    for _ in range(steps - 2):
        states.append(
            {name: _perturbed(name, _nearer(name, states[-1][name], target[name], chance), chance) for name in target}
        )
    return [*states, target]


def _perturbed(table: str, rows: list[Row], chance: random.Random) -> list[Row]:
    """The rows and some random others, which replace rows with the same keys."""
    others = [drawn(table, chance) for _ in range(2 + len(rows) // 6)]
    if table not in KEYS:
        return [*rows, *others]
    return list({_key(table, row): row for row in [*rows, *others]}.values())


def _nearer(table: str, rows: list[Row], target: list[Row], chance: random.Random) -> list[Row]:
    """The rows without half of those that are not in the target, and with half of those that are missing."""
    left = [row for row in rows if row in target or chance.random() < 0.5]
    new = [row for row in target if row not in left and chance.random() < 0.5]
    if table not in KEYS:
        return [*left, *new]
    return list({_key(table, row): row for row in [*left, *new]}.values())


# Comparing.


def difference(
    actual: pa.Table | str, expected: pa.Table | str, *, in_order: bool = False, free_lists: bool = False
) -> str:
    """How an answer differs from the expected one, or ""; with `free_lists`, the order of lists does not matter."""
    if isinstance(actual, str) or isinstance(expected, str):
        return "" if actual == expected else f"{actual} in place of {expected}"
    actual_columns, expected_columns = (_columns(table) for table in (actual, expected))
    if actual_columns != expected_columns:
        return f"columns {actual_columns} in place of {expected_columns}"
    one, two = (_listed(table, in_order, free_lists) for table in (actual, expected))
    if len(one) == len(two) and all(map(_alike, one, two)):
        return ""
    pairs = [(a, b) for a, b in zip(one, two, strict=False) if not _alike(a, b)]
    return f"{len(one)} rows in place of {len(two)}; {pairs[:3]}"


def _columns(table: pa.Table) -> list[tuple[str, str]]:
    return [(field.name, str(field.type).replace(" not null", "")) for field in table.schema]


def _listed(table: pa.Table, in_order: bool, free_lists: bool) -> list[Any]:
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    if free_lists:
        rows = [tuple(sorted(value, key=_place) if isinstance(value, list) else value for value in row) for row in rows]
    return rows if in_order else sorted(rows, key=_place)


def _place(value: Any) -> str:
    """A sort key for rows: the same for numbers that are equal within the tolerance."""
    if isinstance(value, float):
        return f"{value + 0.0:.6e}"
    if isinstance(value, dict):
        return str(list(map(_place, value.values())))
    return str(list(map(_place, value))) if isinstance(value, list | tuple) else repr(value)


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_alike(one[name], two[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(_alike, one, two))
    return type(one) is type(two) and bool(one == two)


def problems(
    actual: Mapping[str, pa.Table | str], expected: Mapping[str, pa.Table | str], names: Iterable[str]
) -> list[str]:
    """The statements whose answers differ, and how."""
    return [f"{name}: {text}" for name in names if (text := difference(actual[name], expected[name]))]
