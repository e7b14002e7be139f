"""A stream of changes to all eight tables of TPC-H: new and cancelled orders, corrected prices, renamed nations.

Rounds are random, but the same for the same seed and data. They preserve referential integrity: orders are inserted and
deleted together with their line items, and parts and suppliers with their offers (rows of partsupp); rows that others
refer to are not deleted.

The validation parameters of several queries select few or no rows of a small sample. The first round therefore inserts
suppliers, customers and parts that the queries select, and every round has a scene for each query: orders, offers or
accounts that change its answer. From the first round on no answer is empty, and most answers change in every round.

Cost: the rows of a round are generated one by one in Python; whole tables are processed by column.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana_bench.tpch.schemas import KEYS, SCHEMAS, TABLES

Row = dict[str, Any]


class Changes(NamedTuple):
    """The changes of a table in a round; no key is in both tables."""

    upserts: pa.Table
    deletes: pa.Table


Round = dict[str, Changes]
"""The changes of each table that changes."""

SUPPLIER_NATIONS = ("FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA", "CHINA") * 2
CUSTOMER_NATIONS = ("FRANCE", "GERMANY", "BRAZIL", "CANADA", "CHINA")
EUROPEAN = ("FRANCE", "GERMANY")

PARTS: dict[str, Row] = {
    "brass": {"p_type": "LARGE PLATED BRASS", "p_size": 15},
    "steel": {"p_type": "ECONOMY ANODIZED STEEL"},
    "green": {"p_name": "dark green peru lace thistle"},
    "forest": {"p_name": "forest blush khaki linen salmon"},
    "promo": {"p_type": "PROMO BURNISHED COPPER"},
    "box": {"p_brand": "Brand#23", "p_container": "MED BOX", "p_size": 5},
    "case": {"p_brand": "Brand#12", "p_container": "SM CASE", "p_size": 3},
    "crate": {"p_brand": "Brand#34", "p_container": "LG CASE", "p_size": 10},
    "counted": {"p_brand": "Brand#11", "p_type": "STANDARD PLATED TIN", "p_size": 49},
}
"""The column values of the first round's parts that the queries select."""

SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
WORDS = ("carefully", "ironic", "deposits", "sleep", "furiously", "final", "accounts", "among", "pending", "foxes")


def applied(table: pa.Table, key: list[str], changes: Changes) -> pa.Table:
    """Return a table with changes applied."""
    touched = np.concatenate([_codes(changes.upserts, key), _codes(changes.deletes, key)])
    unchanged = table.filter(pa.array(~np.isin(_codes(table, key), touched)))
    return pa.concat_tables([unchanged, changes.upserts]).combine_chunks()


def _codes(table: pa.Table, key: list[str]) -> NDArray[np.int64]:
    """Return an integer that identifies the key of each row."""
    first, *more = (table[name].to_numpy().astype(np.int64) for name in key)
    for column in more:
        first = (first << 28) + column
    return first


class RefreshStream:
    """Generates rounds of changes; `snapshot` has the tables after all rounds so far."""

    def __init__(self, data: Mapping[str, pa.Table], seed: int = 0, *, orders: int = 20) -> None:
        """Start with the tables `data`. A round has about `orders` random new orders in addition to its scenes."""
        self.snapshot = dict(data)
        self.rounds = 0
        self._random = random.Random(seed)
        self._orders = orders
        self._changes: dict[str, dict[tuple[int, ...], Row | None]] = {}
        self._next = {name: int(np.max(data[name][KEYS[name][0]].to_numpy())) + 1 for name in TABLES}
        names = data["nation"]
        self._nations = dict(zip(names["n_name"].to_pylist(), names["n_nationkey"].to_pylist(), strict=True))
        self._suppliers: list[int] = []
        self._customers: dict[str, int] = {}
        self._parts: dict[str, int] = {}
        self._offers: list[tuple[int, int]] = []  # never deleted
        self._scenes: list[list[int]] = []  # the new orders of each round
        self._idle: list[int] = []  # customers without orders
        self._spare: list[tuple[int, int]] = []  # parts and suppliers without orders

    def next_round(self) -> Round:
        """Return the changes of the next round, and apply them to `snapshot`."""
        self._changes = {name: {} for name in TABLES}
        if not self.rounds:
            self._settle()
        for scene in (
            *(self._shipping_soon, self._late_summer, self._within_asia, self._between_two_nations, self._market_share),
            *(self._green_profit, self._returned, self._promoted, self._best_supplier, self._small_and_large),
            *(self._large_order, self._by_air, self._forest, self._kept_waiting, self._idle_customers),
            *(
                self._offers_change,
                self._complaints,
                self._random_orders,
                self._corrections,
                self._places,
                self._spares,
            ),
        ):
            scene()
        self._cancel()
        self.rounds += 1
        changes = {name: self._collected(name) for name in TABLES if self._changes[name]}
        self.snapshot |= {name: applied(self.snapshot[name], KEYS[name], change) for name, change in changes.items()}
        return changes

    # Changes.

    def _put(self, table: str, row: Row) -> None:
        self._changes[table][tuple(row[name] for name in KEYS[table])] = row

    def _collected(self, table: str) -> Changes:
        changes, schema = self._changes[table], SCHEMAS[table]
        keys = pa.schema([schema.field(name) for name in KEYS[table]])
        deleted = [dict(zip(KEYS[table], key, strict=True)) for key, row in changes.items() if row is None]
        rows = [row for row in changes.values() if row is not None]
        return Changes(pa.Table.from_pylist(rows, schema), pa.Table.from_pylist(deleted, keys))

    def _some(self, table: str, count: int) -> list[Row]:
        """Return at most `count` random rows that the current round has not changed so far."""
        snapshot = self.snapshot[table]
        indices = self._random.sample(range(snapshot.num_rows), min(count, snapshot.num_rows))
        rows = snapshot.take(pa.array(indices)).to_pylist()
        return [row for row in rows if tuple(row[name] for name in KEYS[table]) not in self._changes[table]]

    def _alter(self, table: str, count: int, changed: Callable[[Row], Row]) -> None:
        """Change the columns that `changed` returns, in at most `count` random rows."""
        for row in self._some(table, count):
            self._put(table, row | changed(row))

    def _by_key(self, table: str, keys: list[int]) -> list[Row]:
        """Return the current rows with these values in the first key column."""
        column = KEYS[table][0]
        snapshot = self.snapshot[table]
        before = snapshot.filter(pa.array(np.isin(snapshot[column].to_numpy(), keys))).to_pylist()
        rows = {tuple(row[name] for name in KEYS[table]): row for row in before}
        pending = {key: row for key, row in self._changes[table].items() if key[0] in keys}
        return [row for row in (rows | pending).values() if row is not None]

    # Values.

    def _new(self, table: str) -> int:
        self._next[table] += 1
        return self._next[table] - 1

    def _money(self, least: float, most: float) -> Decimal:
        return Decimal(self._random.randint(round(least * 100), round(most * 100))).scaleb(-2)

    def _words(self, *more: str) -> str:
        return " ".join([*self._random.choices(WORDS, k=4), *more])

    def _day(self, first: date, days: int) -> date:
        return first + timedelta(self._random.randrange(days))

    def _supplier_of(self, nation: str) -> int:
        """Return a random supplier of a nation, from those of the first round."""
        indices = [index for index, name in enumerate(SUPPLIER_NATIONS) if name == nation]
        return self._suppliers[self._random.choice(indices)]

    def _phone(self, nation: int) -> str:
        return f"{10 + nation}-{self._random.randint(100, 999)}-{self._random.randint(100, 999)}-0000"

    # Rows.

    def _supplier(self, nation: str) -> int:
        key, home = self._new("supplier"), self._nations[nation]
        row = {"s_suppkey": key, "s_name": f"Supplier#{key:09}", "s_address": self._words(), "s_nationkey": home}
        row |= {"s_phone": self._phone(home), "s_acctbal": self._money(-999, 9999), "s_comment": self._words()}
        self._put("supplier", row)
        return key

    def _customer(self, nation: str, **values: Any) -> int:
        key, home = self._new("customer"), self._nations[nation]
        row = {"c_custkey": key, "c_name": f"Customer#{key:09}", "c_address": self._words(), "c_nationkey": home}
        row |= {"c_phone": self._phone(home), "c_acctbal": self._money(-999, 9999), "c_comment": self._words()}
        self._put("customer", row | {"c_mktsegment": self._random.choice(SEGMENTS)} | values)
        return key

    def _part(self, **values: Any) -> int:
        key, maker = self._new("part"), self._random.randint(1, 5)
        row = {"p_partkey": key, "p_name": "almond misty rose snow tan", "p_mfgr": f"Manufacturer#{maker}"}
        row |= {"p_brand": f"Brand#{maker}{maker}", "p_type": "SMALL BRUSHED NICKEL", "p_size": 21}
        row |= {"p_container": "JUMBO JAR", "p_retailprice": self._money(900, 1100), "p_comment": self._words()}
        self._put("part", row | values)
        return key

    def _offer(self, part: int, supplier: int) -> None:
        row = {"ps_partkey": part, "ps_suppkey": supplier, "ps_availqty": self._random.randint(5000, 9999)}
        self._put("partsupp", row | {"ps_supplycost": self._money(1, 1000), "ps_comment": self._words()})

    def _order(self, customer: int, day: date, *lines: Row, **values: Any) -> int:
        """Insert a new order; columns of a line that are not given are random."""
        key = self._new("orders")
        items = [self._line(key, number, day, line) for number, line in enumerate(lines, 1)]
        row = {"o_orderkey": key, "o_custkey": customer, "o_orderstatus": self._random.choice("FOP")}
        row |= {"o_totalprice": sum((item["l_extendedprice"] for item in items), Decimal("0.00")), "o_orderdate": day}
        row |= {"o_orderpriority": self._random.choice(PRIORITIES), "o_clerk": "Clerk#000000001", "o_shippriority": 0}
        more = ("special", "requests") if self._random.random() < 0.3 else ()
        self._put("orders", row | {"o_comment": self._words(*more)} | values)
        self._scenes[-1].append(key)
        return key

    def _line(self, order: int, number: int, day: date, values: Row) -> Row:
        part, supplier = values.pop("offer", None) or self._random.choice(self._offers)
        shipped = self._day(day + timedelta(1), 120)
        row: Row = {"l_orderkey": order, "l_partkey": part, "l_suppkey": supplier, "l_linenumber": number}
        row |= {"l_quantity": self._money(1, 50).quantize(Decimal(1)), "l_discount": self._money(0, 0.1)}
        row |= {"l_tax": self._money(0, 0.08), "l_returnflag": self._random.choice("RAN"), "l_linestatus": "F"}
        row |= {"l_shipdate": shipped, "l_commitdate": self._day(day + timedelta(30), 60)}
        row |= {"l_shipinstruct": self._random.choice(INSTRUCTIONS), "l_shipmode": self._random.choice(MODES)}
        row |= {"l_comment": self._words()} | values
        row.setdefault("l_receiptdate", self._day(row["l_shipdate"] + timedelta(1), 30))
        row["l_extendedprice"] = (row["l_quantity"] * self._money(900, 2000)).quantize(Decimal("0.01"))
        self._put("lineitem", row)
        return row

    def _any_customer(self) -> int:
        return self._random.choice(list(self._customers.values()))

    # The first round.

    def _settle(self) -> None:
        """Insert suppliers, customers and parts that the queries select, and an offer of each part by each supplier."""
        self._suppliers = [self._supplier(nation) for nation in SUPPLIER_NATIONS]
        self._customers = {nation: self._customer(nation, c_mktsegment="BUILDING") for nation in CUSTOMER_NATIONS}
        self._parts = {kind: self._part(**values) for kind, values in PARTS.items()}
        self._offers = [(part, supplier) for part in self._parts.values() for supplier in self._suppliers]
        for part, supplier in self._offers:
            self._offer(part, supplier)
        offered = self._some("partsupp", 200)
        self._offers += [(row["ps_partkey"], row["ps_suppkey"]) for row in offered]

    # Scenes. The docstring of a scene names the queries whose answers it is meant to change; others may change too.

    def _shipping_soon(self) -> None:
        """Q3."""
        self._scenes.append([])  # the first scene of a round
        day = self._day(date(1995, 3, 1), 14)
        lines = [{"l_shipdate": self._day(date(1995, 3, 16), 30), "l_quantity": Decimal(50)} for _ in range(7)]
        self._order(self._any_customer(), day, *lines)

    def _late_summer(self) -> None:
        """Q4, and Q12 half a year later."""
        day = self._day(date(1993, 7, 1), 90)
        late = {"l_commitdate": day + timedelta(30), "l_receiptdate": day + timedelta(40)}
        self._order(self._any_customer(), day, late)
        day = self._day(date(1994, 2, 1), 90)
        late = {"l_commitdate": day + timedelta(30), "l_receiptdate": day + timedelta(40)}
        for mode in ("MAIL", "SHIP"):
            self._order(self._any_customer(), day, late | {"l_shipdate": day + timedelta(10), "l_shipmode": mode})

    def _within_asia(self) -> None:
        """Q5 and Q6."""
        offer = (self._parts["counted"], self._supplier_of("CHINA"))
        day = self._day(date(1994, 1, 1), 200)
        line = {"offer": offer, "l_discount": Decimal("0.06"), "l_quantity": Decimal(20)}
        self._order(self._customers["CHINA"], day, line | {"l_shipdate": day + timedelta(20)})

    def _between_two_nations(self) -> None:
        """Q7."""
        for origin, destination in (EUROPEAN, EUROPEAN[::-1]):
            day = self._day(date(1995, 1, 1), 500)
            offer = (self._parts["counted"], self._supplier_of(origin))
            self._order(self._customers[destination], day, {"offer": offer, "l_shipdate": day + timedelta(9)})

    def _market_share(self) -> None:
        """Q8."""
        for nation in ("BRAZIL", "CHINA"):
            offer = (self._parts["steel"], self._supplier_of(nation))
            self._order(self._customers["BRAZIL"], self._day(date(1995, 1, 1), 700), {"offer": offer})

    def _green_profit(self) -> None:
        """Q9."""
        offer = (self._parts["green"], self._random.choice(self._suppliers))
        self._order(self._any_customer(), self._day(date(1992, 1, 1), 2000), {"offer": offer})

    def _returned(self) -> None:
        """Q10."""
        lines = [{"l_returnflag": "R", "l_quantity": Decimal(50)} for _ in range(7)]
        self._order(self._any_customer(), self._day(date(1993, 10, 1), 90), *lines)

    def _promoted(self) -> None:
        """Q14."""
        offer = (self._parts["promo"], self._random.choice(self._suppliers))
        line = {"offer": offer, "l_shipdate": self._day(date(1995, 9, 1), 30)}
        self._order(self._any_customer(), date(1995, 8, 1), line)

    def _best_supplier(self) -> None:
        """Q15: the best supplier alternates between two, with a growing revenue."""
        offer = (self._parts["counted"], self._suppliers[self.rounds % 2])
        for _ in range(min(self.rounds + 1, 8)):
            shipped = [self._day(date(1996, 1, 1), 90) for _ in range(7)]
            lines = [{"offer": offer, "l_shipdate": day, "l_quantity": Decimal(50)} for day in shipped]
            self._order(self._any_customer(), date(1995, 12, 1), *lines)

    def _small_and_large(self) -> None:
        """Q17."""
        offer = (self._parts["box"], self._random.choice(self._suppliers))
        lines = [{"offer": offer, "l_quantity": Decimal(quantity)} for quantity in (1, 1, 48, 49, 50)]
        self._order(self._any_customer(), self._day(date(1992, 1, 1), 2000), *lines)

    def _large_order(self) -> None:
        """Q18."""
        lines = [{"l_quantity": Decimal(self._random.randint(44, 50))} for _ in range(7)]
        self._order(self._any_customer(), self._day(date(1992, 1, 1), 2000), *lines)

    def _by_air(self) -> None:
        """Q19."""
        handed = {"l_shipmode": "AIR", "l_shipinstruct": "DELIVER IN PERSON"}
        supplier = self._random.choice(self._suppliers)
        for kind, quantity in (("case", 5), ("box", 15), ("crate", 25)):
            line = handed | {"offer": (self._parts[kind], supplier), "l_quantity": Decimal(quantity)}
            self._order(self._any_customer(), self._day(date(1992, 1, 1), 2000), line)

    def _forest(self) -> None:
        """Q20: Canadian suppliers have enough parts available, and change their addresses."""
        for supplier in [key for key, name in zip(self._suppliers, SUPPLIER_NATIONS, strict=True) if name == "CANADA"]:
            line = {"offer": (self._parts["forest"], supplier), "l_quantity": Decimal(3)}
            self._order(self._any_customer(), date(1994, 1, 1), line | {"l_shipdate": self._day(date(1994, 2, 1), 300)})
            (row,) = self._by_key("supplier", [supplier])
            self._put("supplier", row | {"s_address": f"{self._words()} {self.rounds}"})

    def _kept_waiting(self) -> None:
        """Q21."""
        day = self._day(date(1992, 1, 1), 1000)
        late = {"l_commitdate": day + timedelta(30), "l_receiptdate": day + timedelta(40)}
        soon = {"l_commitdate": day + timedelta(30), "l_receiptdate": day + timedelta(20)}
        shipped = {"l_shipdate": day + timedelta(10)}
        waiting = (self._parts["counted"], self._supplier_of("SAUDI ARABIA"))
        other = (self._parts["counted"], self._supplier_of("CHINA"))
        lines = [late | shipped | {"offer": waiting}, soon | shipped | {"offer": other}]
        self._order(self._any_customer(), day, *lines, o_orderstatus="F")

    def _idle_customers(self) -> None:
        """Q22: customers with high balances and no orders are inserted, and the oldest of them are deleted."""
        for code in (13, 31, 23, 29):
            phone = f"{code}-{self._random.randint(100, 999)}-555-0000"
            self._idle.append(self._customer("CHINA", c_phone=phone, c_acctbal=self._money(9000, 9999)))
        if self.rounds > 1:
            for key in self._idle[:3]:
                self._changes["customer"][key,] = None
            del self._idle[:3]

    def _offers_change(self) -> None:
        """Q2 and Q11: supply costs and the account balances of European suppliers change."""
        home = {key: name for key, name in zip(self._suppliers, SUPPLIER_NATIONS, strict=True) if name in EUROPEAN}
        for row in self._by_key("supplier", list(home)):
            self._put("supplier", row | {"s_acctbal": self._money(-999, 9999)})
        for row in self._by_key("partsupp", [self._parts["brass"], self._parts["counted"]]):
            if row["ps_suppkey"] in home:
                self._put("partsupp", row | {"ps_supplycost": self._money(1, 1000)})

    def _complaints(self) -> None:
        """Q16: complaints about some suppliers are added or removed."""
        about = self._suppliers[self.rounds % 2 :: 2]
        for row in self._by_key("supplier", about[: 3 + self.rounds % 3]):
            more = () if "Complaints" in row["s_comment"] else ("Customer", "Complaints")
            self._put("supplier", row | {"s_comment": self._words(*more)})

    def _random_orders(self) -> None:
        """Random new orders."""
        customers = [row["c_custkey"] for row in self._some("customer", self._orders) if row["c_custkey"] % 3]
        for customer in (key for key in customers if key not in self._idle):
            lines: list[Row] = [{} for _ in range(self._random.randint(1, 7))]
            self._order(customer, self._day(date(1992, 1, 1), 2400), *lines)

    def _corrections(self) -> None:
        """Changed prices, states, comments, accounts and offers."""
        chance, count = self._random, self._orders
        self._alter("lineitem", count, lambda row: {"l_extendedprice": row["l_extendedprice"] + self._money(-9, 99)})
        self._alter(
            "lineitem", count, lambda row: {"l_returnflag": chance.choice("RAN"), "l_discount": self._money(0, 0.1)}
        )
        self._alter(
            "lineitem", count, lambda row: {"l_receiptdate": row["l_receiptdate"] + timedelta(chance.randint(-9, 9))}
        )
        self._alter("orders", count, lambda row: {"o_orderstatus": chance.choice("FOP")})
        self._alter("orders", count, lambda row: {"o_comment": self._words("special", "packages", "requests")})
        self._alter("orders", count, lambda row: {"o_orderpriority": chance.choice(PRIORITIES)})
        few = max(3, count // 4)
        self._alter(
            "customer",
            few,
            lambda row: {"c_acctbal": self._money(-999, 9999), "c_phone": self._phone(chance.randint(0, 24))},
        )
        self._alter("customer", few, lambda row: {"c_mktsegment": chance.choice(SEGMENTS), "c_comment": self._words()})
        self._alter("supplier", 2, lambda row: {"s_acctbal": self._money(-999, 9999), "s_comment": self._words()})
        self._alter("part", few, lambda row: {"p_retailprice": self._money(900, 2000), "p_size": chance.randint(1, 50)})
        self._alter(
            "partsupp",
            count,
            lambda row: {"ps_availqty": chance.randint(1, 9999), "ps_supplycost": self._money(1, 1000)},
        )

    def _places(self) -> None:
        """Nations and regions: new comments, and every third round a new name for a nation that no query selects."""
        self._alter("region", 1, lambda row: {"r_comment": self._words()})
        self._alter("nation", 1, lambda row: {"n_comment": self._words()})
        if self.rounds % 3 == 1:
            (row,) = self._by_key("nation", [self._nations["JAPAN"]])
            self._put("nation", row | {"n_name": "NIPPON" if row["n_name"] == "JAPAN" else "JAPAN"})

    def _spares(self) -> None:
        """Insert a part and a supplier without orders, with their offer; delete those of two rounds ago."""
        part, supplier = self._part(p_size=9), self._supplier("GERMANY")
        self._offer(part, supplier)
        self._spare.append((part, supplier))
        if len(self._spare) > 2:
            part, supplier = self._spare.pop(0)
            self._changes["partsupp"][part, supplier] = None
            self._changes["part"][part,] = None
            self._changes["supplier"][supplier,] = None

    def _cancel(self) -> None:
        """Delete orders with their line items: random ones, and a third of the new orders of the round before last."""
        cancelled = [row["o_orderkey"] for row in self._some("orders", self._orders // 2)]
        if len(self._scenes) > 2:
            past = self._random.sample(self._scenes[-3], len(self._scenes[-3]) // 3)
            cancelled += [row["o_orderkey"] for row in self._by_key("orders", past)]
        for key in cancelled:
            self._changes["orders"][key,] = None
        for row in self._by_key("lineitem", cancelled):
            self._changes["lineitem"][row["l_orderkey"], row["l_linenumber"]] = None
