"""The program that maintains one query in Pathway; it is run by path, in a Python that has Pathway.

    python pathway_child.py NUMBER FOLDER    # NUMBER of the query; FOLDER/columns.json has the columns of the tables

The program imports nothing from this package, which that Python may not have. FOLDER has a subfolder of CSV files for
each table, with one file per logical batch. Pathway reads CSV files without creating Python objects for rows; its
Python connector and data frames took several times as long for Q6. Changes of the answer are written to `answer.csv`,
with a `diff` of 1 or -1. The duration of the run in seconds is printed.

Dates are integers such as 19950315, and amounts are floating-point numbers; integer cents took as long. ORDER BY and
LIMIT are left out, because Pathway does not have them.
"""

from __future__ import annotations

import importlib
import json
import operator
import sys
import time
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

_TYPES = {"int": int, "float": float, "str": str}


class Queries:
    """The 22 queries over Pathway tables: `q1()` returns the table with the answer to Q1, and so on."""

    def __init__(self, pathway: Any, tables: Mapping[str, Any]) -> None:
        self._pathway, self._tables, self._reduce = pathway, tables, pathway.reducers

    def q1(self) -> Any:
        items = self._read("lineitem")
        items = items.filter(items.l_shipdate <= 19980902)
        items = items.with_columns(volume=revenue(items), taxed=revenue(items) * (1 + items.l_tax))
        return items.groupby(items.l_returnflag, items.l_linestatus).reduce(
            items.l_returnflag,
            items.l_linestatus,
            sum_qty=self._reduce.sum(items.l_quantity),
            sum_base_price=self._reduce.sum(items.l_extendedprice),
            sum_disc_price=self._reduce.sum(items.volume),
            sum_charge=self._reduce.sum(items.taxed),
            avg_qty=self._reduce.avg(items.l_quantity),
            avg_price=self._reduce.avg(items.l_extendedprice),
            avg_disc=self._reduce.avg(items.l_discount),
            count_order=self._reduce.count(),
        )

    def q2(self) -> Any:
        part, offers = self._read("part"), self._read("partsupp")
        part = part.filter((part.p_size == 15) & part.p_type.str.endswith("BRASS"))
        nations = self._nations_of("EUROPE")
        columns = "s_suppkey s_acctbal s_name n_name s_address s_phone s_comment"
        suppliers = join(self._read("supplier"), nations, "s_nationkey=n_nationkey", columns)
        offers = join(offers, part, "ps_partkey=p_partkey", "ps_suppkey ps_supplycost p_partkey p_mfgr")
        columns = "ps_supplycost s_acctbal s_name n_name p_partkey p_mfgr s_address s_phone s_comment"
        offers = join(offers, suppliers, "ps_suppkey=s_suppkey", columns)
        least = offers.groupby(offers.p_partkey).reduce(
            least_partkey=offers.p_partkey, least=self._reduce.min(offers.ps_supplycost)
        )
        columns = "s_acctbal s_name n_name p_partkey p_mfgr s_address s_phone s_comment"
        return join(offers, least, "p_partkey=least_partkey ps_supplycost=least", columns)

    def q3(self) -> Any:
        customer, orders, items = self._read("customer"), self._read("orders"), self._read("lineitem")
        customer = customer.filter(customer.c_mktsegment == "BUILDING")
        orders = orders.filter(orders.o_orderdate < 19950315)
        items = items.filter(items.l_shipdate > 19950315)
        orders = join(orders, customer, "o_custkey=c_custkey", "o_orderkey o_orderdate o_shippriority")
        items = items.select(items.l_orderkey, volume=revenue(items))
        rows = join(items, orders, "l_orderkey=o_orderkey", "l_orderkey o_orderdate o_shippriority volume")
        return rows.groupby(rows.l_orderkey, rows.o_orderdate, rows.o_shippriority).reduce(
            rows.l_orderkey, revenue=self._reduce.sum(rows.volume), o_orderdate=rows.o_orderdate,
            o_shippriority=rows.o_shippriority,
        )  # fmt: skip

    def q4(self) -> Any:
        orders, items = self._read("orders"), self._read("lineitem")
        orders = orders.filter((orders.o_orderdate >= 19930701) & (orders.o_orderdate < 19931001))
        late = distinct(items.filter(items.l_commitdate < items.l_receiptdate), "l_orderkey")
        rows = join(orders, late, "o_orderkey=l_orderkey", "o_orderpriority")
        return rows.groupby(rows.o_orderpriority).reduce(rows.o_orderpriority, order_count=self._reduce.count())

    def q5(self) -> Any:
        customer, orders, items = self._read("customer"), self._read("orders"), self._read("lineitem")
        orders = orders.filter((orders.o_orderdate >= 19940101) & (orders.o_orderdate < 19950101))
        orders = join(orders, customer, "o_custkey=c_custkey", "o_orderkey c_nationkey")
        suppliers = join(
            self._read("supplier"), self._nations_of("ASIA"), "s_nationkey=n_nationkey", "s_suppkey s_nationkey n_name"
        )
        items = items.select(items.l_orderkey, items.l_suppkey, volume=revenue(items))
        rows = join(items, orders, "l_orderkey=o_orderkey", "l_suppkey c_nationkey volume")
        rows = join(rows, suppliers, "l_suppkey=s_suppkey c_nationkey=s_nationkey", "n_name volume")
        return rows.groupby(rows.n_name).reduce(rows.n_name, revenue=self._reduce.sum(rows.volume))

    def q6(self) -> Any:
        items = self._read("lineitem")
        items = items.filter(
            (items.l_shipdate >= 19940101)
            & (items.l_shipdate < 19950101)
            & (items.l_discount >= 0.05)
            & (items.l_discount <= 0.07)
            & (items.l_quantity < 24)
        )
        return items.reduce(revenue=self._reduce.sum(items.l_extendedprice * items.l_discount))

    def q7(self) -> Any:
        nation, items = self._read("nation"), self._read("lineitem")
        nation = nation.filter(one_of(nation.n_name, "FRANCE", "GERMANY"))
        supplier_nations = nation.select(supp_nationkey=nation.n_nationkey, supp_nation=nation.n_name)
        customer_nations = nation.select(cust_nationkey=nation.n_nationkey, cust_nation=nation.n_name)
        suppliers = join(
            self._read("supplier"), supplier_nations, "s_nationkey=supp_nationkey", "s_suppkey supp_nation"
        )
        customers = join(
            self._read("customer"), customer_nations, "c_nationkey=cust_nationkey", "c_custkey cust_nation"
        )
        orders = join(self._read("orders"), customers, "o_custkey=c_custkey", "o_orderkey cust_nation")
        items = items.filter((items.l_shipdate >= 19950101) & (items.l_shipdate <= 19961231))
        items = items.select(
            items.l_orderkey, items.l_suppkey, l_year=items.l_shipdate // 10_000, volume=revenue(items)
        )
        rows = join(items, suppliers, "l_suppkey=s_suppkey", "l_orderkey supp_nation l_year volume")
        rows = join(rows, orders, "l_orderkey=o_orderkey", "supp_nation cust_nation l_year volume")
        rows = rows.filter(rows.supp_nation != rows.cust_nation)
        return rows.groupby(rows.supp_nation, rows.cust_nation, rows.l_year).reduce(
            rows.supp_nation, rows.cust_nation, rows.l_year, revenue=self._reduce.sum(rows.volume)
        )

    def q8(self) -> Any:
        part, orders, items = self._read("part"), self._read("orders"), self._read("lineitem")
        part = part.filter(part.p_type == "ECONOMY ANODIZED STEEL")
        orders = orders.filter((orders.o_orderdate >= 19950101) & (orders.o_orderdate <= 19961231))
        orders = orders.select(orders.o_orderkey, orders.o_custkey, o_year=orders.o_orderdate // 10_000)
        customers = join(self._read("customer"), self._nations_of("AMERICA"), "c_nationkey=n_nationkey", "c_custkey")
        suppliers = join(self._read("supplier"), self._read("nation"), "s_nationkey=n_nationkey", "s_suppkey n_name")
        items = items.select(items.l_orderkey, items.l_partkey, items.l_suppkey, volume=revenue(items))
        rows = join(items, part, "l_partkey=p_partkey", "l_orderkey l_suppkey volume")
        orders = join(orders, customers, "o_custkey=c_custkey", "o_orderkey o_year")
        rows = join(rows, orders, "l_orderkey=o_orderkey", "l_suppkey o_year volume")
        rows = join(rows, suppliers, "l_suppkey=s_suppkey", "n_name o_year volume")
        rows = rows.with_columns(national=self._if(rows.n_name == "BRAZIL", rows.volume, 0.0))
        shares = rows.groupby(rows.o_year).reduce(
            rows.o_year, national=self._reduce.sum(rows.national), volume=self._reduce.sum(rows.volume)
        )
        return shares.select(shares.o_year, mkt_share=shares.national / shares.volume)

    def q9(self) -> Any:
        part, orders = self._read("part"), self._read("orders")
        part = part.filter(part.p_name.str.find("green") >= 0)
        orders = orders.select(orders.o_orderkey, o_year=orders.o_orderdate // 10_000)
        suppliers = join(self._read("supplier"), self._read("nation"), "s_nationkey=n_nationkey", "s_suppkey n_name")
        columns = "l_orderkey l_partkey l_suppkey l_quantity l_extendedprice l_discount"
        rows = join(self._read("lineitem"), part, "l_partkey=p_partkey", columns)
        offers, on = self._read("partsupp"), "l_partkey=ps_partkey l_suppkey=ps_suppkey"
        rows = join(rows, offers, on, f"{columns} ps_supplycost")
        amount = revenue(rows) - rows.ps_supplycost * rows.l_quantity
        rows = rows.select(rows.l_orderkey, rows.l_suppkey, amount=amount)
        rows = join(rows, suppliers, "l_suppkey=s_suppkey", "l_orderkey n_name amount")
        rows = join(rows, orders, "l_orderkey=o_orderkey", "n_name o_year amount")
        return rows.groupby(rows.n_name, rows.o_year).reduce(
            rows.n_name, rows.o_year, sum_profit=self._reduce.sum(rows.amount)
        )

    def q10(self) -> Any:
        orders, items = self._read("orders"), self._read("lineitem")
        orders = orders.filter((orders.o_orderdate >= 19931001) & (orders.o_orderdate < 19940101))
        items = items.filter(items.l_returnflag == "R")
        items = items.select(items.l_orderkey, volume=revenue(items))
        rows = join(items, orders, "l_orderkey=o_orderkey", "o_custkey volume")
        spent = rows.groupby(rows.o_custkey).reduce(rows.o_custkey, revenue=self._reduce.sum(rows.volume))
        columns = "c_custkey c_name revenue c_acctbal c_nationkey c_address c_phone c_comment"
        customers = join(spent, self._read("customer"), "o_custkey=c_custkey", columns)
        return join(
            customers, self._read("nation"), "c_nationkey=n_nationkey", columns.replace("c_nationkey", "n_name")
        )

    def q11(self) -> Any:
        nation, offers = self._read("nation"), self._read("partsupp")
        nation = nation.filter(nation.n_name == "GERMANY")
        suppliers = join(self._read("supplier"), nation, "s_nationkey=n_nationkey", "s_suppkey")
        offers = offers.select(offers.ps_partkey, offers.ps_suppkey, amount=offers.ps_supplycost * offers.ps_availqty)
        offers = join(offers, suppliers, "ps_suppkey=s_suppkey", "ps_partkey amount")
        parts = offers.groupby(offers.ps_partkey).reduce(offers.ps_partkey, value=self._reduce.sum(offers.amount))
        total = offers.reduce(total=self._reduce.sum(offers.amount))
        rows = join(parts, total, "", "ps_partkey value total")
        rows = rows.filter(rows.value > rows.total * 0.0001)
        return rows.select(rows.ps_partkey, rows.value)

    def q12(self) -> Any:
        items = self._read("lineitem")
        items = items.filter(
            one_of(items.l_shipmode, "MAIL", "SHIP")
            & (items.l_commitdate < items.l_receiptdate)
            & (items.l_shipdate < items.l_commitdate)
            & (items.l_receiptdate >= 19940101)
            & (items.l_receiptdate < 19950101)
        )
        rows = join(items, self._read("orders"), "l_orderkey=o_orderkey", "l_shipmode o_orderpriority")
        urgent = self._if(one_of(rows.o_orderpriority, "1-URGENT", "2-HIGH"), 1, 0)
        rows = rows.select(rows.l_shipmode, high=urgent, low=1 - urgent)
        return rows.groupby(rows.l_shipmode).reduce(
            rows.l_shipmode, high=self._reduce.sum(rows.high), low=self._reduce.sum(rows.low)
        )

    def q13(self) -> Any:
        customer, orders = self._read("customer"), self._read("orders")
        special = orders.o_comment.str.find("special")
        orders = orders.filter(~((special >= 0) & (orders.o_comment.str.find("requests", special + 7) >= 0)))
        orders_of = orders.groupby(orders.o_custkey).reduce(orders.o_custkey, order_count=self._reduce.count())
        counts = customer.join_left(orders_of, customer.c_custkey == orders_of.o_custkey).select(
            c_count=self._pathway.coalesce(orders_of.order_count, 0)
        )
        return counts.groupby(counts.c_count).reduce(counts.c_count, custdist=self._reduce.count())

    def q14(self) -> Any:
        items = self._read("lineitem")
        items = items.filter((items.l_shipdate >= 19950901) & (items.l_shipdate < 19951001))
        items = items.select(items.l_partkey, volume=revenue(items))
        rows = join(items, self._read("part"), "l_partkey=p_partkey", "p_type volume")
        rows = rows.with_columns(promoted=self._if(rows.p_type.str.startswith("PROMO"), rows.volume, 0.0))
        sums = rows.reduce(promoted=self._reduce.sum(rows.promoted), volume=self._reduce.sum(rows.volume))
        return sums.select(promo_revenue=100.0 * sums.promoted / sums.volume)

    def q15(self) -> Any:
        items = self._read("lineitem")
        items = items.filter((items.l_shipdate >= 19960101) & (items.l_shipdate < 19960401))
        items = items.select(items.l_suppkey, volume=revenue(items))
        totals = items.groupby(items.l_suppkey).reduce(items.l_suppkey, total=self._reduce.sum(items.volume))
        most = totals.reduce(most=self._reduce.max(totals.total))
        best = join(totals, most, "total=most", "l_suppkey total")
        return join(best, self._read("supplier"), "l_suppkey=s_suppkey", "s_suppkey s_name s_address s_phone total")

    def q16(self) -> Any:
        part, supplier = self._read("part"), self._read("supplier")
        part = part.filter(
            (part.p_brand != "Brand#45")
            & ~part.p_type.str.startswith("MEDIUM POLISHED")
            & one_of(part.p_size, 49, 14, 23, 45, 19, 3, 36, 9)
        )
        of_customer = supplier.s_comment.str.find("Customer")
        complaints = supplier.s_comment.str.find("Complaints", of_customer + 8)
        bad = supplier.filter((of_customer >= 0) & (complaints >= 0))
        offers = join(self._read("partsupp"), part, "ps_partkey=p_partkey", "ps_suppkey p_brand p_type p_size")
        rows = without(offers, bad, "ps_suppkey", "s_suppkey")
        return rows.groupby(rows.p_brand, rows.p_type, rows.p_size).reduce(
            rows.p_brand, rows.p_type, rows.p_size, supplier_cnt=self._reduce.count_distinct(rows.ps_suppkey)
        )

    def q17(self) -> Any:
        part = self._read("part")
        part = part.filter((part.p_brand == "Brand#23") & (part.p_container == "MED BOX"))
        items = join(self._read("lineitem"), part, "l_partkey=p_partkey", "p_partkey l_quantity l_extendedprice")
        usual = items.groupby(items.p_partkey).reduce(
            usual_partkey=items.p_partkey, usual=self._reduce.avg(items.l_quantity)
        )
        rows = join(items, usual, "p_partkey=usual_partkey", "l_quantity l_extendedprice usual")
        rows = rows.filter(rows.l_quantity < 0.2 * rows.usual)
        total = rows.reduce(total=self._reduce.sum(rows.l_extendedprice))
        return total.select(avg_yearly=total.total / 7.0)

    def q18(self) -> Any:
        items = self._read("lineitem")
        sums = items.groupby(items.l_orderkey).reduce(items.l_orderkey, quantity=self._reduce.sum(items.l_quantity))
        sums = sums.filter(sums.quantity > 300)
        columns = "o_orderkey o_orderdate o_totalprice quantity"
        orders = join(sums, self._read("orders"), "l_orderkey=o_orderkey", f"o_custkey {columns}")
        return join(orders, self._read("customer"), "o_custkey=c_custkey", f"c_name c_custkey {columns}")

    def q19(self) -> Any:
        items = self._read("lineitem")
        items = items.filter(one_of(items.l_shipmode, "AIR", "AIR REG") & (items.l_shipinstruct == "DELIVER IN PERSON"))
        items = items.select(items.l_partkey, items.l_quantity, volume=revenue(items))
        columns = "l_quantity volume p_brand p_container p_size"
        rows = join(items, self._read("part"), "l_partkey=p_partkey", columns)

        def fits(brand: str, size: str, containers: str, least: int, largest: int) -> Any:
            return (
                (rows.p_brand == brand)
                & one_of(rows.p_container, *(f"{size} {container}" for container in containers.split()))
                & (rows.l_quantity >= least)
                & (rows.l_quantity <= least + 10)
                & (rows.p_size >= 1)
                & (rows.p_size <= largest)
            )

        rows = rows.filter(
            fits("Brand#12", "SM", "CASE BOX PACK PKG", 1, 5)
            | fits("Brand#23", "MED", "BAG BOX PKG PACK", 10, 10)
            | fits("Brand#34", "LG", "CASE BOX PACK PKG", 20, 15)
        )
        return rows.reduce(revenue=self._reduce.sum(rows.volume))

    def q20(self) -> Any:
        nation, part, items = self._read("nation"), self._read("part"), self._read("lineitem")
        nation = nation.filter(nation.n_name == "CANADA")
        part = part.filter(part.p_name.str.startswith("forest"))
        items = items.filter((items.l_shipdate >= 19940101) & (items.l_shipdate < 19950101))
        sold = items.groupby(items.l_partkey, items.l_suppkey).reduce(
            items.l_partkey, items.l_suppkey, sold=self._reduce.sum(items.l_quantity)
        )
        columns = "ps_partkey ps_suppkey ps_availqty"
        offers = join(self._read("partsupp"), part, "ps_partkey=p_partkey", columns)
        offers = join(offers, sold, "ps_partkey=l_partkey ps_suppkey=l_suppkey", f"{columns} sold")
        offers = distinct(offers.filter(offers.ps_availqty > 0.5 * offers.sold), "ps_suppkey")
        columns = "s_name s_address"
        suppliers = join(self._read("supplier"), nation, "s_nationkey=n_nationkey", f"s_suppkey {columns}")
        return join(suppliers, offers, "s_suppkey=ps_suppkey", columns)

    def q21(self) -> Any:
        """Count a late line item if its order has other suppliers, and none of them is late."""
        nation, orders, items = self._read("nation"), self._read("orders"), self._read("lineitem")
        nation = nation.filter(nation.n_name == "SAUDI ARABIA")
        suppliers = join(self._read("supplier"), nation, "s_nationkey=n_nationkey", "s_suppkey s_name")
        orders = orders.filter(orders.o_orderstatus == "F")
        late = items.filter(items.l_receiptdate > items.l_commitdate)
        several = self._suppliers(items)
        several = several.filter(several.first != several.last)
        alone = self._suppliers(late)
        alone = alone.filter(alone.first == alone.last)
        rows = join(late, suppliers, "l_suppkey=s_suppkey", "l_orderkey s_name")
        rows = join(rows, orders, "l_orderkey=o_orderkey", "l_orderkey s_name")
        rows = join(rows, several, "l_orderkey=orderkey", "l_orderkey s_name")
        rows = join(rows, alone, "l_orderkey=orderkey", "s_name")
        return rows.groupby(rows.s_name).reduce(rows.s_name, numwait=self._reduce.count())

    def q22(self) -> Any:
        customer, orders = self._read("customer"), self._read("orders")
        customer = customer.with_columns(code=customer.c_phone.str.slice(0, 2))
        customer = customer.filter(one_of(customer.code, "13", "31", "23", "29", "30", "18", "17"))
        usual = customer.filter(customer.c_acctbal > 0.0)
        usual = usual.reduce(usual=self._reduce.avg(usual.c_acctbal))
        rows = join(customer, usual, "", "c_custkey code c_acctbal usual")
        rows = rows.filter(rows.c_acctbal > rows.usual)
        rows = without(rows, distinct(orders, "o_custkey"), "c_custkey", "o_custkey")
        return rows.groupby(rows.code).reduce(
            rows.code, numcust=self._reduce.count(), totacctbal=self._reduce.sum(rows.c_acctbal)
        )

    def _read(self, name: str) -> Any:
        return self._tables[name]

    def _if(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return self._pathway.if_else(condition, then, otherwise)

    def _nations_of(self, name: str) -> Any:
        """Return the nations of a region."""
        region = self._read("region")
        region = region.filter(region.r_name == name)
        return join(self._read("nation"), region, "n_regionkey=r_regionkey", "n_nationkey n_name")

    def _suppliers(self, items: Any) -> Any:
        """Return the smallest and the largest supplier key of every order."""
        return items.groupby(items.l_orderkey).reduce(
            orderkey=items.l_orderkey,
            first=self._reduce.min(items.l_suppkey),
            last=self._reduce.max(items.l_suppkey),
        )


def revenue(items: Any) -> Any:
    """Return the discounted price of line items."""
    return items.l_extendedprice * (1 - items.l_discount)


def one_of(column: Any, *values: Any) -> Any:
    """Return whether a column has one of the values."""
    return reduce(operator.or_, [column == value for value in values])


def distinct(table: Any, column: str) -> Any:
    """Return the distinct values of a column."""
    return table.groupby(table[column]).reduce(table[column])


def join(left: Any, right: Any, on: str, columns: str) -> Any:
    """Return some columns of the join of two tables on pairs of columns, such as "a=b c=d"; a cross join if none."""
    pairs = [pair.split("=") for pair in on.split()]
    matched = left.join(right, *(left[left_column] == right[right_column] for left_column, right_column in pairs))
    own = set(left.column_names())
    return matched.select(*((left if name in own else right)[name] for name in columns.split()))


def without(left: Any, right: Any, left_column: str, right_column: str) -> Any:
    """Return the rows of `left` that have no match in `right`, where `right_column` has distinct values."""
    matched = left.join_left(right, left[left_column] == right[right_column]).select(
        *(left[name] for name in left.column_names()), match=right[right_column]
    )
    return matched.filter(matched.match.is_none())


def main(number: str, folder: Path) -> None:
    """Run a query over all batches, and print the duration of the run in seconds."""
    pathway = importlib.import_module("pathway")
    tables = {}
    for name, columns in json.loads((folder / "columns.json").read_text()).items():
        schema = pathway.schema_from_types(**{column: _TYPES[kind] for column, kind in columns.items()})
        tables[name] = pathway.io.csv.read(
            str(folder / name), schema=schema, mode="static", autocommit_duration_ms=None
        )
    answer = getattr(Queries(pathway, tables), f"q{number}")()
    pathway.io.csv.write(answer, str(folder / "answer.csv"))
    started = time.perf_counter()
    pathway.run(monitoring_level=pathway.MonitoringLevel.NONE)
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
