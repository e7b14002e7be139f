"""A tour of traces: one index, many readers, each at its own time. Run by `make demo`; takes a few seconds.

Orders arrive in epochs, and some are cancelled later. The tour arranges them by customer once and then shows what
sharing that index gives: readers of different epochs, views that cost no memory, late readers that attach at once, and
a past that is compacted as soon as no reader needs it.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import track
from rich.table import Table

import ikebana as ik

CUSTOMERS, ORDERS_PER_EPOCH, EPOCHS, MORE_EPOCHS = 100_000, 20_000, 100, 120

console = Console()
schema = ik.Schema(key={"customer": pa.int64()}, val={"order": pa.int64(), "cents": pa.int32()})


def heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def milliseconds(start: float) -> str:
    return f"{(time.perf_counter() - start) * 1e3:,.1f} ms"


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


class Shop:
    """Generates orders, and cancels half of the orders of ten epochs ago."""

    def __init__(self) -> None:
        self.now = 0
        self.random = np.random.default_rng(2020)
        self.past: list[dict[str, np.ndarray]] = []

    def epoch(self, orders: ik.Arrange) -> None:
        epoch, first = self.now, self.now * ORDERS_PER_EPOCH
        new = {
            "customer": self.random.integers(0, CUSTOMERS, ORDERS_PER_EPOCH),
            "order": np.arange(first, first + ORDERS_PER_EPOCH),
            "cents": self.random.integers(100, 100_000, ORDERS_PER_EPOCH).astype(np.int32),
        }
        orders.update(new, time=(epoch,))
        self.past.append(new)
        if epoch >= 10:
            cancelled = {name: column[::2] for name, column in self.past[epoch - 10].items()}
            orders.update(cancelled, time=(epoch,), diff=-1)
        self.now += 1
        orders.advance((self.now,))


def show_orders(title: str, orders: pa.Table) -> None:
    table = Table(title=title, title_justify="left", min_width=40)
    for name in ("order", "cents", "diff"):
        table.add_column(name, justify="right")
    for row in orders.select(["order", "cents", "diff"]).sort_by("order").slice(0, 5).to_pylist():
        table.add_row(*(f"{value:,}" for value in row.values()))
    console.print(table)
    if orders.num_rows > 5:
        console.print(f"  and {orders.num_rows - 5} more", style="dim")


def main() -> None:
    heading("1. Arrange: updates in, one shared index out")
    orders, shop = ik.Arrange(schema, name="orders"), Shop()
    archivist = orders.handle()  # never advances: for this reader the whole history stays exact
    start = time.perf_counter()
    for _ in track(range(EPOCHS), description="100 epochs of orders", console=console, transient=True):
        shop.epoch(orders)
    updates = len(archivist.updates())
    rate = updates / (time.perf_counter() - start)
    console.print(f"  {updates:,} updates indexed, {rate:,.0f} updates/s, {megabytes(archivist.nbytes)}")
    console.print(f"  {archivist!r}", style="dim")

    heading("2. One index, exact at every epoch")
    customer = {"customer": [4711]}
    for at in (20, EPOCHS - 1):
        begin = time.perf_counter()
        rows = archivist.lookup(customer, at=(at,))
        show_orders(f"customer 4711 at epoch {at}, looked up in {milliseconds(begin)}", rows)

    heading("3. Another reader sees the same index differently, and copies nothing")
    analyst = archivist.clone()
    large = analyst.filter(lambda row: pc.greater(row["cents"], 90_000)).project(["cents"])
    begin, before = time.perf_counter(), archivist.nbytes
    rows = large.lookup(customer, at=(EPOCHS - 1,))
    console.print(
        f"  large orders of customer 4711: {rows.num_rows}, in {milliseconds(begin)}; "
        f"index before {megabytes(before)}, after {megabytes(archivist.nbytes)}, readers {archivist.readers}"
    )

    heading("4. A late reader attaches at once, instead of indexing the history again")
    begin = time.perf_counter()
    attached = analyst.import_()
    took = milliseconds(begin)
    begin = time.perf_counter()
    rebuilt = ik.Arrange(schema, name="rebuilt")
    rebuilt.push(archivist.updates())
    rebuilt.advance((EPOCHS,))
    console.print(f"  attached to {len(attached.history)} batches in {took}; rebuilding took {milliseconds(begin)}")

    heading("5. History that no reader needs is compacted away")
    console.print(f"  the archivist still holds the past: {megabytes(archivist.nbytes)} after {shop.now} epochs")
    archivist.drop()
    for _ in track(range(MORE_EPOCHS), description="more epochs of orders", console=console, transient=True):
        shop.epoch(orders)
        analyst.advance((shop.now - 1,))
    console.print(f"  the archivist has gone:             {megabytes(analyst.nbytes)} after {shop.now} epochs")
    try:
        analyst.read(at=(20,))
    except ik.TimeError as error:
        console.print(f"  and the past with it:\n    {str(error).replace(chr(10), chr(10) + '    ')}", style="dim")

    heading("Where to go next")
    console.print("  README.md has a first program; docs/ARCHITECTURE.md how it works;")
    console.print("  `.venv/bin/ikebana bench list` what is measured, each a command.\n")


if __name__ == "__main__":
    main()
