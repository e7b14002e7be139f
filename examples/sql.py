"""Live SQL on Spark: views, a prepared statement, what they share, and a window that expires. Takes half a minute.

A small shop with customers, orders and an events table. Each section runs queries in SQL, changes the tables, and shows
that the results have followed. Most of the time goes into starting Spark.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import ikebana as ik
from ikebana.spark import Session

CUSTOMERS, ORDERS = 1_000, 20_000
NATIONS = ["Denmark", "France", "Japan", "Kenya", "Peru"]

REVENUE = """
    SELECT c.nation, sum(o.price) AS revenue, count(*) AS orders
    FROM orders o JOIN customers c ON o.customer = c.id
    GROUP BY c.nation ORDER BY revenue DESC
"""
DEAREST = """
    SELECT o.id, c.name, c.nation, o.price
    FROM orders o JOIN customers c ON o.customer = c.id
    ORDER BY o.price DESC, o.id LIMIT 3
"""
OF_CUSTOMER = "SELECT id, price FROM orders WHERE customer = :customer ORDER BY price DESC, id LIMIT 2"
BEST = """
    SELECT c.name, sum(o.price) AS spent
    FROM orders o JOIN customers c ON o.customer = c.id
    WHERE c.nation = 'Japan'
    GROUP BY c.name ORDER BY spent DESC, name LIMIT 3
"""
SEEN = "SELECT DISTINCT customer FROM events WHERE at > now() - INTERVAL 1 MINUTE"
VISITORS = """
    SELECT c.nation, count(*) AS visitors
    FROM seen JOIN customers c ON seen.customer = c.id
    GROUP BY c.nation ORDER BY nation
"""

console = Console()


def heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def show(title: str, rows: pa.Table) -> None:
    """Print rows as a table."""
    console.print(title)
    table = Table()
    for name in rows.column_names:
        table.add_column(name, justify="left" if pa.types.is_string(rows[name].type) else "right")
    for row in rows.to_pylist():
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


def timed(what: str, start: float) -> None:
    console.print(f"[dim]{what}: {(time.perf_counter() - start) * 1e3:,.1f} ms[/dim]")


def fill(session: Session) -> None:
    """Create three tables, and fill two of them."""
    customers = session.create_table("customers", "id BIGINT, name STRING, nation STRING", key="id")
    orders = session.create_table("orders", "id BIGINT, customer BIGINT, price DECIMAL(12, 2)", key="id")
    session.create_table("events", "customer BIGINT NOT NULL, at TIMESTAMP NOT NULL")
    customers.insert([(number, f"Customer {number}", NATIONS[number % 5]) for number in range(CUSTOMERS)])
    buyers = CUSTOMERS * 9 // 10  # the others never order
    orders.insert([(n, n * 7919 % buyers, Decimal(100 + n * 104_729 % 50_000) / 100) for n in range(ORDERS)])


def views(session: Session) -> None:
    heading("SQL views follow every change")
    orders = session.table("orders")
    revenue, dearest = session.view("revenue", REVENUE), session.view("dearest", DEAREST)
    show("Revenue:", revenue.to_arrow())
    show("Dearest orders:", dearest.to_arrow())
    start = time.perf_counter()
    with session.transaction():
        orders.upsert((0, 42, Decimal("999.90")))
        orders.delete({"id": dearest.to_arrow()["id"].to_pylist()[:1]})
    after = dearest.to_arrow()
    timed("a new order, a cancelled one, and the new result", start)
    show("Dearest orders, after that:", after)


def statement(session: Session) -> None:
    heading("A prepared statement: one dataflow, any number of live results")
    of_customer = session.prepare(OF_CUSTOMER, customer="BIGINT", name="orders of a customer")
    of_customer.open(customer=0)
    start = time.perf_counter()
    results = [of_customer.open(customer=number) for number in range(1, 101)]
    timed("a hundred more customers", start)
    show("Best orders of customer 42:", results[41].to_arrow())
    session.table("orders").upsert((1, 42, Decimal("1000.00")))
    show("The same, after one more order:", results[41].to_arrow())
    of_customer.close()


def sharing(session: Session) -> None:
    heading("Which arrangements another query reuses, and which it builds")
    console.print(session.explain(BEST), highlight=False, soft_wrap=True)
    start = time.perf_counter()
    rows = session.view("best customers", BEST).to_arrow()
    timed("planned, created and read", start)
    show("Best customers in Japan:", rows)


def window(session: Session) -> None:
    heading("A window that expires: customers seen within the last minute, by nation")
    session.view("seen", SEEN)
    visitors, now = session.view("visitors", VISITORS), datetime.now(UTC)
    ages = {0: 0.0, 1: 10.0, 2: 55.0, 5: 55.0, 3: 120.0}  # seconds ago, by customer
    session.table("events").insert([(customer, now - timedelta(seconds=age)) for customer, age in ages.items()])
    show("Now:", visitors.to_arrow())
    while sum(visitors.to_arrow()["visitors"].to_pylist()) > 2:
        time.sleep(0.2)
    passed = (datetime.now(UTC) - now).total_seconds()
    show(f"{passed:.0f} seconds later, without any change of the table:", visitors.to_arrow())


def main() -> None:
    with console.status("starting Spark and a worker (15 seconds or so) ..."):
        session = ik.connect(workers=1)
    with session:
        fill(session)
        for section in (views, statement, sharing, window):
            section(session)


if __name__ == "__main__":
    main()
