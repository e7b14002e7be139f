"""A shop on Spark: many live queries over the same tables. Run by `make demo`; takes about a minute.

Starts Spark and workers on this machine, loads customers and orders, creates several views, and shows how long each
took to create with the arrangements that exist already, and without them. Then orders come in, change and are cancelled
for a while, and all views follow.

Options: --seconds N (how long orders come in), --orders N (how many orders there are at first).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

import ikebana as ik
from ikebana.engine.collection import Collection
from ikebana.spark import Session, View
from ikebana.spark.info import ArrangementInfo
from ikebana.spark.listing import Listing

CUSTOMERS, BATCH = 20_000, 100
REGIONS = ["Africa", "America", "Asia", "Europe", "Middle East"]
STATUS = ["open", "packed", "sent", "late"]

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
    placed = session.create_table(
        "orders", "order_id BIGINT, customer BIGINT NOT NULL, status STRING, cents BIGINT", key="order_id"
    )
    placed.load(
        spark.range(orders).selectExpr(
            "id AS order_id",
            f"(id * 7919) % {CUSTOMERS} AS customer",
            "CASE WHEN id % 10 < 7 THEN 'sent' WHEN id % 10 < 9 THEN 'packed' ELSE 'open' END AS status",
            "100 + (id * 104729) % 50000 AS cents",
        )
    )
    watched = session.create_table("watched", "customer BIGINT", key="customer")
    watched.insert({"customer": list(range(0, CUSTOMERS, CUSTOMERS // 10))})


def questions(session: Session) -> dict[str, Collection]:
    """The questions to be answered at any time. All of them read orders by customer, or customers by key."""
    customers, orders, watched = (session.table(name) for name in ("customers", "orders", "watched"))
    by_customer, customer_index = orders.arrange("customer"), customers.arrange("customer")

    def is_waiting(columns: dict[str, Any]) -> Any:
        return pc.not_equal(columns["status"], "sent")

    spent = orders.sum("customer", "cents", "spent")
    return {
        "revenue by region": by_customer.join(customer_index).sum("region", "cents", "cents"),
        "waiting, by region": by_customer.filter(is_waiting).join(customer_index).count("region", "waiting"),
        "best customers of each region": spent.join(customers, on="customer").top_k("region", 1, "spent"),
        "orders of customers we watch": watched.arrange("customer").join(by_customer),
        "what customers we watch have spent": watched.join(orders, on="customer").sum("customer", "cents", "spent"),
        "what they wait for": watched.arrange("customer").join(by_customer.filter(is_waiting)),
    }


def install(session: Session, questions: dict[str, Collection]) -> tuple[dict[str, View], Table]:
    """Create a view for each question twice, without and with sharing; only the latter is kept."""
    timings = Table(title="From asking to the first answer", title_justify="left")
    for column in ("question", "on its own", "shared", "times faster"):
        timings.add_column(column, justify="left" if column == "question" else "right")
    views: dict[str, View] = {}
    for name, question in questions.items():
        start = time.perf_counter()
        session.view(f"{name}, alone", question, share=False).wait()
        alone = time.perf_counter() - start
        session.drop_view(f"{name}, alone")
        start = time.perf_counter()
        views[name] = session.view(name, question)
        views[name].wait()
        spent = time.perf_counter() - start
        timings.add_row(name, f"{alone * 1e3:,.1f} ms", f"{spent * 1e3:,.1f} ms", f"{alone / spent:,.0f}")
    return views, timings


class Shop:
    """Generates changes: new orders, orders whose status changes, orders that are cancelled."""

    def __init__(self, orders: Any, first: int) -> None:
        self._orders, self._next = orders, first
        self._random = np.random.default_rng(2020)
        self._live: list[int] = []
        self.changes = 0

    def step(self) -> int:
        """Apply a batch of changes in one transaction; returns its epoch."""
        ids = np.arange(self._next, self._next + BATCH)
        self._next += BATCH
        status = self._random.choice(STATUS, BATCH)
        rows = {
            "order_id": ids,
            "customer": self._random.integers(0, CUSTOMERS, BATCH),
            "status": status.tolist(),
            "cents": self._random.integers(100, 50_000, BATCH),
        }
        cancelled = self._live[: BATCH // 2]
        self._live = self._live[BATCH // 2 :] + ids.tolist()
        ops = ["upsert"] * BATCH + ["delete"] * len(cancelled)
        columns = {
            name: pa.array([*np.asarray(column).tolist(), *([None] * len(cancelled))]) for name, column in rows.items()
        }
        columns["order_id"] = pa.array([*ids.tolist(), *cancelled])
        self.changes += len(ops)
        return int(self._orders.change(columns, ops))


def screen(views: dict[str, View], shop: Shop, latencies: list[float]) -> Group:
    """The current answers."""
    regions = Table(title="Live answers", title_justify="left")
    for column in ("region", "revenue", "waiting", "best customer", "spent"):
        regions.add_column(column, justify="left" if column in ("region", "best customer") else "right")
    revenue = by_region(views["revenue by region"])
    waiting = by_region(views["waiting, by region"])
    best = by_region(views["best customers of each region"])
    for region in REGIONS:
        top = best.get(region, {})
        regions.add_row(
            region,
            f"{revenue.get(region, {}).get('cents', 0) / 100:,.2f}",
            f"{waiting.get(region, {}).get('waiting', 0):,}",
            str(top.get("name", "")),
            f"{top.get('spent', 0) / 100:,.2f}",
        )
    recent = latencies[-100:] or [0.0]
    median = f"{np.median(recent) * 1e3:.1f} ms (median of the last {len(recent)})"
    return Group(regions, f"{shop.changes:,} changes; a transaction was in all answers after {median}")


def by_region(view: View) -> dict[str, dict[str, Any]]:
    return {row["region"]: row for row in view.to_arrow().to_pylist()}


def live(session: Session, orders: Any, views: dict[str, View], first: int, duration: float) -> None:
    """Change orders for a while, and show the answers."""
    shop, latencies = Shop(orders, first), list[float]()
    end = time.monotonic() + duration
    with Live(console=console, refresh_per_second=8, transient=False) as display:
        while time.monotonic() < end:
            start = time.perf_counter()
            epoch = shop.step()
            for view in views.values():
                view.wait(epoch)
            latencies.append(time.perf_counter() - start)
            if len(latencies) % 10 == 1:
                display.update(screen(views, shop, latencies))
        display.update(screen(views, shop, latencies))


def check(views: dict[str, View], orders: Any, session: Session) -> bool:
    """Whether Spark computes the same result from scratch."""
    customers = session.table("customers").to_df()
    scratch = orders.to_df().join(customers, "customer").groupBy("region").sum("cents").collect()
    return {row[0]: row[1] for row in scratch} == {
        region: row["cents"] for region, row in by_region(views["revenue by region"]).items()
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=15)
    options.add_argument("--orders", type=int, default=300_000)
    arguments = options.parse_args()

    console.print(INTRODUCTION)
    with console.status("starting Spark and the workers (15 seconds or so) ..."):
        session = ik.connect(temp_views=False)  # nothing here asks spark.sql for these names
    with session:
        console.print(f"[bold]{session!r}[/bold]\n")
        with console.status("loading customers and orders ..."):
            start = time.perf_counter()
            create_tables(session, arguments.orders)
            spent = time.perf_counter() - start
        orders = session.table("orders")
        console.print(f"{arguments.orders:,} orders and {CUSTOMERS:,} customers loaded in {spent:.1f} s\n")
        views, timings = install(session, questions(session))
        console.print(timings)
        console.print(
            "[dim]On its own, a question builds the indexes that it needs from all rows. Shared, it attaches to "
            "existing indexes: the less is left to compute, the more this saves.[/dim]\n"
        )
        live(session, orders, views, arguments.orders, arguments.seconds)
        console.print("\n[bold]The arrangements of the first worker[/bold] [dim](readers: how many share them)[/dim]")
        first_worker = [info for info in session.arrangements() if info.worker == 0]
        console.print(repr(Listing(first_worker, ArrangementInfo)), highlight=False, soft_wrap=True)
        same = check(views, orders, session)
        console.print(f"\nThe same as Spark's answer from scratch: {'yes' if same else 'NO'}")
    console.print(
        "\nWhere to go next: README.md, examples/, docs/ARCHITECTURE.md; `ikebana bench list` for experiments."
    )


if __name__ == "__main__":
    main()
