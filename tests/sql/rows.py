"""Rows for the tables of the statements, without Java: the input of Spark's answers (`tests.sql.record_plans`).

The rows have nulls, duplicates and matching keys. Their values are such that SQL defines the answer of every statement:
no ties where an order decides, no errors, and edges that lead upward, so that recursions end. `drawn` returns further
rows of the same kind, for changes; among these there may be ties.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
Rows = dict[str, list[Row]]
"""Rows by table."""


def _never(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_PRICE, _TIME = pa.decimal128(15, 2), pa.timestamp("us", "UTC")

FIELDS: Mapping[str, tuple[pa.Field, ...]] = {
    "orders": (
        _never("id", pa.int64()),
        pa.field("customer", pa.int64()),
        _never("day", pa.date32()),
        _never("price", _PRICE),
        _never("status", pa.string()),
        pa.field("note", pa.string()),
    ),
    "items": (
        _never("order_id", pa.int64()),
        _never("line", pa.int32()),
        pa.field("part", pa.int64()),
        pa.field("quantity", pa.int32()),
        pa.field("price", _PRICE),
        pa.field("tax", pa.float64()),
    ),
    "customers": (
        _never("id", pa.int64()),
        _never("name", pa.string()),
        pa.field("nation", pa.int32()),
        pa.field("credit", _PRICE),
    ),
    "nations": (_never("id", pa.int32()), _never("name", pa.string()), pa.field("region", pa.int32())),
    "edges": (_never("src", pa.int64()), _never("dst", pa.int64()), pa.field("weight", pa.int32())),
    "events": (
        _never("at", _TIME),
        pa.field("device", pa.string()),
        pa.field("reading", pa.float64()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("place", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.float64())])),
        pa.field("done", pa.bool_()),
    ),
    "stock": (
        _never("shop", pa.int32()),
        pa.field("goods", pa.map_(pa.string(), pa.int32())),
        pa.field("moves", pa.list_(pa.field("element", pa.struct([("n", pa.int32()), ("at", pa.date32())])))),
    ),
}
"""The columns of `tests.sql.statements.TABLES`, as Arrow has them."""

_STATUSES = ("open", "closed", "shipped")
_NOTES = (None, None, "x", "aa", "cab bb", " 12 ", "7", "-3", "", "größe", "open")
_NATIONS = ("Chile", "France", "Ghana", "India", "Japan", "Kenya", "Peru")
_READINGS = (None, 0.0, -0.0, 0.5, 1.25, 2.5, 3.1, -7.75)
_TAGS = (None, [], ["a"], ["b", "a"], ["c", None, "c"], ["", "b"])


def _order(key: int, chance: random.Random) -> Row:
    return {
        "id": key,
        "customer": chance.choice([None, *range(1, 13)]),
        "day": date(2023, 12, 20) + timedelta(days=chance.choice([chance.randrange(30), chance.randrange(400)])),
        "price": Decimal(chance.randrange(100, 30000)).scaleb(-2),
        "status": chance.choice(_STATUSES),
        "note": chance.choice(_NOTES),
    }


def _item(key: int, chance: random.Random) -> Row:
    return {
        "order_id": key // 4,
        "line": key % 4,
        "part": chance.choice([None, 2, 3, 5, 7, 7, 7]),
        "quantity": chance.choice([None, -4, 1, 2, 30, 48, 50, chance.randrange(20)]),
        "price": chance.choice([None, Decimal(chance.randrange(100, 30000)).scaleb(-2)]),
        "tax": chance.choice([None, 0.0, 0.07, 0.19]),
    }


def _customer(key: int, chance: random.Random) -> Row:
    return {
        "id": key,
        "name": _NATIONS[key - 1] if key in (2, 5) else f"customer {chance.randrange(20)}",
        "nation": chance.choice([None, 1, 1, 2, 3, 4, 9]),
        "credit": chance.choice([None, Decimal(chance.randrange(0, 20000)).scaleb(-2)]),
    }


def _nation(key: int, chance: random.Random) -> Row:
    return {"id": key, "name": _NATIONS[(key - 1) % len(_NATIONS)], "region": chance.choice([None, 1, 2])}


def _edge(key: int, chance: random.Random) -> Row:
    src = chance.randrange(1, 14)
    return {"src": src, "dst": src + chance.randrange(1, 5), "weight": chance.choice([None, 1, 2])}


def _event(key: int, chance: random.Random) -> Row:
    place = {"x": chance.choice([None, 1.5]), "y": float(chance.randrange(3))}
    return {
        "at": datetime(2024, 3, 1, 10, tzinfo=UTC) + timedelta(minutes=7 * key, microseconds=chance.randrange(10**6)),
        "device": chance.choice([None, "north", "south", "west"]),
        "reading": chance.choice(_READINGS),
        "tags": chance.choice(_TAGS),
        "place": chance.choice([None, place]),
        "done": chance.choice([None, False, True]),
    }


def _shop(key: int, chance: random.Random) -> Row:
    move = {"n": chance.choice([None, 1, 2]), "at": date(2024, 1, 1 + chance.randrange(3))}
    return {
        "shop": key,
        "goods": chance.choice([None, [], [("bolts", None), ("nuts", chance.randrange(9))], [("nails", key)]]),
        "moves": chance.choice([None, [], [move], [move, None, {"n": key, "at": None}]]),
    }


_MAKERS: dict[str, tuple[Callable[[int, random.Random], Row], range]] = {
    "orders": (_order, range(1, 61)),
    "items": (_item, range(4, 180)),
    "customers": (_customer, range(1, 23)),
    "nations": (_nation, range(1, 10)),
    "edges": (_edge, range(100)),
    "events": (_event, range(100)),
    "stock": (_shop, range(12)),
}
"""A function that makes a row of a key, and the possible keys, by table."""

_COUNTS = {"orders": 45, "items": 60, "customers": 16, "nations": 7, "edges": 22, "events": 34, "stock": 8}


def drawn(table: str, chance: random.Random) -> Row:
    """A random row of a table."""
    make, keys = _MAKERS[table]
    return make(chance.choice(keys), chance)


def rows() -> Rows:
    """The rows over which Spark answered the statements."""
    chance = random.Random(11)
    tables = {
        name: [make(key, chance) for key in sorted(chance.sample(keys, _COUNTS[name]))]
        for name, (make, keys) in _MAKERS.items()
    }
    _untied(tables["orders"])
    for order in tables["orders"]:
        if order["status"] == "shipped":  # a subquery about these has no nulls
            order["customer"] = order["customer"] or 4
    prices = {order["id"]: order["price"] for order in tables["orders"]}
    for at, item in enumerate(tables["items"]):
        if at % 5 == 0:
            item["price"] = prices.get(item["order_id"], item["price"])
    tables["edges"] += [{"src": 1, "dst": dst, "weight": 1} for dst in (2, 4)]
    for name in ("edges", "events"):  # tables without a key
        tables[name] += [dict(tables[name][at]) for at in (3, 8, 8)]
    return tables


def _untied(orders: Sequence[Row]) -> None:
    """Make the days of orders of the same status distinct: frames of rows are ordered by day."""
    taken = set()
    for order in orders:
        while (order["status"], order["day"]) in taken:
            order["day"] += timedelta(days=1)
        taken.add((order["status"], order["day"]))


def arrow(table: str, rows: Sequence[Row]) -> pa.Table:
    """Rows as an Arrow table."""
    return pa.Table.from_pylist(list(rows), pa.schema(FIELDS[table]))
