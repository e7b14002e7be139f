"""A shop on Spark: many live answers over the same tables, asked in SQL. Run by `make demo`; takes about half a minute.

Starts Spark and workers on this machine, loads customers and orders, and creates a view for each question: once with
indexes of its own, once with the indexes that exist already. Then orders come in, change and are cancelled for a while,
and all answers follow. After that, a further question joins late, and a row that cannot be computed makes one answer
fail, which heals when the row is corrected. At the end: which view takes how much memory, and whether Spark's own
answers are the same.

Options: --seconds N (how long orders come in), --orders N (how many orders there are at first).
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

import ikebana as ik
from ikebana.spark import Session, View

CUSTOMERS, BATCH = 20_000, 100
REGIONS = ["Africa", "America", "Asia", "Europe", "Middle East"]
STATUS = ["open", "packed", "sent", "late"]

QUESTIONS = {
    "revenue": """
        SELECT region, sum(cents) AS cents FROM orders JOIN customers USING (customer) GROUP BY region""",
    "waiting": """
        SELECT region, count(*) AS waiting FROM orders JOIN customers USING (customer)
        WHERE status <> 'sent' GROUP BY region""",
    "best_customers": """
        SELECT region, name, spent FROM (
            SELECT region, name, spent, row_number() OVER (PARTITION BY region ORDER BY spent DESC, name) AS place
            FROM (SELECT customer, sum(cents) AS spent FROM orders GROUP BY customer) JOIN customers USING (customer)
        ) WHERE place = 1""",
    "watched_orders": "SELECT * FROM watched JOIN orders USING (customer)",
    "watched_spent": """
        SELECT customer, sum(cents) AS spent FROM watched JOIN orders USING (customer) GROUP BY customer""",
    "watched_waiting": "SELECT * FROM watched JOIN orders USING (customer) WHERE status <> 'sent'",
}
LATE_QUESTION = "SELECT name, order_id, cents FROM watched JOIN orders USING (customer) JOIN customers USING (customer)"
FRAGILE_QUESTION = "SELECT sum(CAST(coupon AS INT)) AS percent FROM orders WHERE coupon IS NOT NULL"
"""The coupon of an order is text. In Spark, to cast text that is no number is an error."""

INTRODUCTION = (
    "[bold]A shop with live answers[/bold]\n"
    "Customers and orders are tables, spread over workers that Spark hosts. Questions about them are views: every "
    'change of a table updates every answer. The indexes that the views need ("arrangements") exist once.\n'
)

console = Console()


def create_tables(session: Session, orders: int) -> None:
    """Create and load the tables: customers, orders, and some customers to watch."""
    spark = session.spark
    customers = session.create_table("customers", "customer BIGINT, name STRING, region STRING", key="customer")
    names = ", ".join(f"'{region}'" for region in REGIONS)
    customers.load(
        spark.range(CUSTOMERS).selectExpr(
            "id AS customer",
            "concat('Customer ', id) AS name",
            f"element_at(array({names}), cast(id % 5 AS int) + 1) AS region",
        )
    )
    schema = "order_id BIGINT, customer BIGINT NOT NULL, status STRING, cents BIGINT, coupon STRING"
    session.create_table("orders", schema, key="order_id").load(
        spark.range(orders).selectExpr(
            "id AS order_id",
            f"(id * 7919) % {CUSTOMERS} AS customer",
            "CASE WHEN id % 10 < 7 THEN 'sent' WHEN id % 10 < 9 THEN 'packed' ELSE 'open' END AS status",
            "100 + (id * 104729) % 50000 AS cents",
            "CASE WHEN id % 1000 = 0 THEN '10' END AS coupon",
        )
    )
    watched = session.create_table("watched", "customer BIGINT", key="customer")
    watched.insert({"customer": list(range(0, CUSTOMERS, CUSTOMERS // 10))})


def installed(session: Session, name: str, question: str, *, share: bool) -> tuple[View, float]:
    """A view with its first answer, and the seconds that it took."""
    start = time.perf_counter()
    view = session.view(name, question, share=share)
    view.wait()
    return view, time.perf_counter() - start


def install(session: Session) -> tuple[dict[str, View], Table]:
    """Create a view for each question twice, without and with sharing; only the latter is kept."""
    timings = Table(title="From asking to the first answer", title_justify="left")
    for column in ("question", "indexes of its own", "shared indexes", "times faster"):
        timings.add_column(column, justify="left" if column == "question" else "right")
    views: dict[str, View] = {}
    for name, question in QUESTIONS.items():
        alone, separate = installed(session, f"{name}_alone", question, share=False)
        alone.drop()
        views[name], shared = installed(session, name, question, share=True)
        timings.add_row(name, milliseconds(separate), milliseconds(shared), f"{separate / shared:,.0f}")
    return views, timings


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


class Shop:
    """Generates changes: new orders, orders whose status changes, orders that are cancelled."""

    def __init__(self, orders: Any, first: int) -> None:
        self._orders, self._next = orders, first
        self._random = np.random.default_rng(2020)
        self._live: list[int] = []
        self.changes = 0
        self.latencies: list[float] = []

    def step(self, views: dict[str, View]) -> None:
        """Apply a batch of changes in one transaction, and wait until all answers contain it."""
        start = time.perf_counter()
        epoch = self._change()
        for view in views.values():
            view.wait(epoch)
        self.latencies.append(time.perf_counter() - start)

    def _change(self) -> int:
        ids = np.arange(self._next, self._next + BATCH)
        self._next += BATCH
        cancelled = self._live[: BATCH // 2]
        self._live = self._live[BATCH // 2 :] + ids.tolist()
        nothing = [None] * len(cancelled)
        columns = {
            "order_id": pa.array([*ids.tolist(), *cancelled]),
            "customer": pa.array([*self._random.integers(0, CUSTOMERS, BATCH).tolist(), *nothing]),
            "status": pa.array([*self._random.choice(STATUS, BATCH).tolist(), *nothing]),
            "cents": pa.array([*self._random.integers(100, 50_000, BATCH).tolist(), *nothing]),
            "coupon": pa.nulls(BATCH + len(cancelled), pa.string()),
        }
        ops = ["upsert"] * BATCH + ["delete"] * len(cancelled)
        self.changes += len(ops)
        return int(self._orders.change(columns, ops))


def screen(views: dict[str, View], shop: Shop) -> Group:
    """The current answers."""
    regions = Table(title="Live answers", title_justify="left")
    for column in ("region", "revenue", "waiting", "best customer", "spent"):
        regions.add_column(column, justify="left" if column in ("region", "best customer") else "right")
    revenue, waiting, best = (by_region(views[name]) for name in ("revenue", "waiting", "best_customers"))
    for region in REGIONS:
        top = best.get(region, {})
        regions.add_row(
            region,
            f"{revenue.get(region, {}).get('cents', 0) / 100:,.2f}",
            f"{waiting.get(region, {}).get('waiting', 0):,}",
            str(top.get("name", "")),
            f"{top.get('spent', 0) / 100:,.2f}",
        )
    recent = shop.latencies[-100:] or [0.0]
    median = f"{milliseconds(float(np.median(recent)))} (median of the last {len(recent)})"
    return Group(regions, f"{shop.changes:,} changes; a transaction was in all answers after {median}")


def by_region(view: View) -> dict[str, dict[str, Any]]:
    return {row["region"]: row for row in view.to_arrow().to_pylist()}


def live(views: dict[str, View], shop: Shop, duration: float) -> None:
    """Change orders for a while, and show the answers."""
    end = time.monotonic() + duration
    with Live(console=console, refresh_per_second=8, transient=False) as display:
        while time.monotonic() < end:
            shop.step(views)
            if len(shop.latencies) % 10 == 1:
                display.update(screen(views, shop))
        display.update(screen(views, shop))


def join_late(session: Session, shop: Shop, views: dict[str, View]) -> None:
    """Ask a further question while the tables change."""
    shop.step(views)
    view, spent = installed(session, "late_question", LATE_QUESTION, share=True)
    rows = view.count()
    console.print(f"[bold]A question that joins late[/bold] has its {rows:,} rows after {milliseconds(spent)}.")
    console.print(f"[dim]{LATE_QUESTION}[/dim]\n")


def fail_and_heal(session: Session) -> None:
    """Let one answer fail on a bad row, and correct the row."""
    orders, coupons = session.table("orders"), session.view("coupons", FRAGILE_QUESTION)
    row = orders.lookup(order_id=0).to_pylist()[0]
    console.print(f"[bold]An answer that fails, and heals[/bold]\n[dim]{FRAGILE_QUESTION}[/dim]")
    console.print(f"  before: {coupons.first()['percent']}")
    orders.upsert({**row, "coupon": "ten"})
    try:
        coupons.collect()
    except ik.IkebanaError as error:
        console.print(f"  with the coupon 'ten': {str(error).splitlines()[0]}", highlight=False)
    console.print(f"  all other views are live: {all(info.state == 'live' for info in others(session, 'coupons'))}")
    orders.upsert(row)
    console.print(f"  corrected: {coupons.first()['percent']}\n")


def others(session: Session, name: str) -> list[Any]:
    return [info for info in session.views() if info.name != name]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=8)
    options.add_argument("--orders", type=int, default=300_000)
    arguments = options.parse_args()

    logging.getLogger("ikebana").setLevel(logging.ERROR)  # the demo itself shows that a view fails
    console.print(INTRODUCTION)
    with console.status("starting Spark and the workers (15 seconds or so) ..."):
        session = ik.connect(temp_views=False)  # nothing here asks spark.sql for these names
    with session:
        console.print(f"[bold]{session!r}[/bold]\n")
        with console.status("loading customers and orders ..."):
            start = time.perf_counter()
            create_tables(session, arguments.orders)
            spent = time.perf_counter() - start
        console.print(f"{arguments.orders:,} orders and {CUSTOMERS:,} customers loaded in {spent:.1f} s\n")
        with console.status("asking ..."):
            views, timings = install(session)
        console.print(timings)
        console.print(
            "[dim]With indexes of its own, a question first builds these from all rows. With shared indexes, it "
            "attaches to those that exist: the less is left to compute, the more this saves.[/dim]\n"
        )
        shop = Shop(session.table("orders"), arguments.orders)
        live(views, shop, arguments.seconds)
        console.print()
        join_late(session, shop, views)
        fail_and_heal(session)
        console.print("[bold]Memory, by table and view[/bold]")
        console.print(repr(session.memory()), highlight=False, soft_wrap=True)
        same = views["revenue"].verify()
        console.print(f"\nThe revenue is the same as Spark's answer from scratch: {'yes' if same else 'NO'}")
    console.print(
        "\n[bold]What to try next[/bold]\n"
        "  README.md                a first program of your own\n"
        "  examples/sql.py          subqueries, windows, prepared statements, explain\n"
        "  examples/live_graph.py   a graph whose queries come and go\n"
        "  docs/SPARK.md            tables from DataFrames and streams, views, look-ups, changes\n"
        "  ikebana bench list       the experiments of the paper"
    )


if __name__ == "__main__":
    main()
